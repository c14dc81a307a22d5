//! Numbers of rows in their partitions, and columns of other rows.

use arrow_array::ArrayRef;
use headrace_columns::column::{Column, vector_array};
use headrace_columns::repr::Repr;
use headrace_columns::vector::{Data, Vector};
use headrace_ir::{DataType, Field, FrameEnd, RowOf, WindowFunction};

use super::begins::Begins;
use super::results::Results;
use crate::ExecError;

/// What is carried over to the next rows of a partition.
pub struct Places {
    /// Whether a function is a number.
    are_asked: bool,
    counted: Counted,
}

#[derive(Clone, Copy, Default)]
struct Counted {
    /// Rows so far.
    rows: u64,
    /// The number of the first of the last row's peers.
    rank: u64,
    /// Groups of peers so far.
    dense_rank: u64,
}

impl Counted {
    /// A row more.
    fn next(&mut self, begins: Begins) -> Self {
        if begins == Begins::Partition {
            *self = Self::default();
        }
        if begins >= Begins::Peers {
            self.rank = self.rows + 1;
            self.dense_rank += 1;
        }
        self.rows += 1;
        *self
    }

    fn number(&self, function: &WindowFunction) -> Option<u64> {
        match function {
            WindowFunction::RowNumber => Some(self.rows),
            WindowFunction::Rank => Some(self.rank),
            WindowFunction::DenseRank => Some(self.dense_rank),
            WindowFunction::Value { .. } | WindowFunction::Aggregate { .. } => None,
        }
    }
}

impl Places {
    /// For the functions of a stage.
    pub fn of(functions: &[WindowFunction]) -> Self {
        let counted = Counted::default();
        let are_asked = functions.iter().any(|function| counted.number(function).is_some());
        Self { are_asked, counted }
    }

    /// The results of the calls that aggregate nothing.
    pub fn evaluate(
        &mut self,
        (functions, fields): (&[WindowFunction], &[Field]),
        begins: &[Begins],
        column: &dyn Fn(usize) -> Result<Column, ExecError>,
        results: &mut Results<'_>,
    ) -> Result<(), ExecError> {
        if self.are_asked {
            let numbers: Vec<Counted> =
                begins.iter().map(|&what| self.counted.next(what)).collect();
            for (call, function) in functions.iter().enumerate() {
                if self.counted.number(function).is_none() {
                    continue;
                }
                results.put(&[call], |rows| {
                    let count = rows.len();
                    let of_row = |counted: &Counted| counted.number(function);
                    let numbers: Vec<u64> = numbers[rows].iter().filter_map(of_row).collect();
                    let vector = Vector::new(Data::U64(numbers.into()));
                    Ok(vec![vector_array(&vector, &Repr::U64, &DataType::UInt64, count)?])
                })?;
            }
        }
        let mut spans = None;
        for (call, function) in functions.iter().enumerate() {
            let WindowFunction::Value { column: read, of } = function else { continue };
            let spans = spans.get_or_insert_with(|| Spans::of(begins));
            let (values, others) = (column(*read)?, spans.rows(*of));
            results
                .put(&[call], |rows| Ok(vec![of_rows(&values, &fields[*read], &others[rows])?]))?;
        }
        Ok(())
    }
}

/// A column's values of other rows; `None`: NULL.
fn of_rows(values: &Column, field: &Field, rows: &[Option<u32>]) -> Result<ArrayRef, ExecError> {
    let places: Vec<u32> = rows.iter().map(|row| row.unwrap_or(0)).collect();
    let mut taken = values.vector().take(&places);
    let valid = rows.iter().zip(&places).map(|(row, &place)| {
        let is_valid = values.validity().is_none_or(|valid| valid[place as usize] != 0);
        u8::from(row.is_some() && is_valid)
    });
    taken.validity = Some(valid.collect());
    Ok(vector_array(&taken, values.repr(), &field.data_type, rows.len())?)
}

/// Of each row of whole partitions, where its partition and its peers begin and end.
struct Spans {
    first: Vec<u32>,
    last_peer: Vec<u32>,
    last: Vec<u32>,
}

impl Spans {
    fn of(begins: &[Begins]) -> Self {
        let mut at = 0;
        let firsts = begins.iter().enumerate().map(|(row, what)| {
            if *what == Begins::Partition {
                at = row as u32;
            }
            at
        });
        let first = firsts.collect();
        let lasts = |least: Begins| {
            let mut at = begins.len() as u32;
            let mut last: Vec<u32> = Vec::with_capacity(begins.len());
            for (row, what) in begins.iter().enumerate().rev() {
                last.push(at - 1);
                if *what >= least {
                    at = row as u32;
                }
            }
            last.reverse();
            last
        };
        Self { first, last_peer: lasts(Begins::Peers), last: lasts(Begins::Partition) }
    }

    /// Of each row another.
    fn rows(&self, of: RowOf) -> Vec<Option<u32>> {
        let spans = self.first.iter().zip(&self.last_peer).zip(&self.last);
        let rows = spans.enumerate().map(|(row, ((&first, &last_peer), &last))| {
            let row = row as u64;
            let other = match of {
                RowOf::Before(by) => row.checked_sub(by)?,
                RowOf::After(by) => row.checked_add(by)?,
                RowOf::First => first.into(),
                RowOf::Last(FrameEnd::Row) => row,
                RowOf::Last(FrameEnd::Peers) => last_peer.into(),
                RowOf::Last(FrameEnd::Partition) => last.into(),
            };
            let is_of_partition = (u64::from(first)..=u64::from(last)).contains(&other);
            is_of_partition.then_some(other as u32)
        });
        rows.collect()
    }
}
