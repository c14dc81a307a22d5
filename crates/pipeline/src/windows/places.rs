//! Numbers of rows in their partitions, and columns of other rows.

use arrow_array::ArrayRef;
use headrace_columns::column::{Column, vector_array};
use headrace_columns::repr::Repr;
use headrace_columns::vector::{Data, Vector};
use headrace_ir::{DataType, Field, FrameEnd, RowOf, WindowFunction};

use super::begins::Begins;
use crate::ExecError;

/// What is carried over to the next rows of a partition.
#[derive(Default)]
pub struct Places {
    /// Rows so far.
    rows: u64,
    /// The number of the first of the last row's peers.
    rank: u64,
    /// Groups of peers so far.
    dense_rank: u64,
}

/// By row.
#[derive(Default)]
struct Numbers {
    row_number: Vec<u64>,
    rank: Vec<u64>,
    dense_rank: Vec<u64>,
}

impl Places {
    /// The results of the calls that aggregate nothing.
    pub fn evaluate(
        &mut self,
        (functions, fields): (&[WindowFunction], &[Field]),
        begins: &[Begins],
        column: &dyn Fn(usize) -> Result<Column, ExecError>,
        results: &mut [Option<ArrayRef>],
    ) -> Result<(), ExecError> {
        let wants = |function: WindowFunction| functions.contains(&function);
        let mut numbers = Numbers::default();
        for &what in begins {
            if what == Begins::Partition {
                *self = Self::default();
            }
            if what >= Begins::Peers {
                self.rank = self.rows + 1;
                self.dense_rank += 1;
            }
            self.rows += 1;
            numbers.row_number.push(self.rows);
            numbers.rank.push(self.rank);
            numbers.dense_rank.push(self.dense_rank);
        }
        let of = |numbers: &[u64]| {
            let vector = Vector::new(Data::U64(numbers.into()));
            vector_array(&vector, &Repr::U64, &DataType::UInt64, begins.len())
        };
        for (function, values) in [
            (WindowFunction::RowNumber, &numbers.row_number),
            (WindowFunction::Rank, &numbers.rank),
            (WindowFunction::DenseRank, &numbers.dense_rank),
        ] {
            if !wants(function.clone()) {
                continue;
            }
            let array = of(values)?;
            let places = functions.iter().zip(results.iter_mut());
            for (_, result) in places.filter(|(other, _)| **other == function) {
                *result = Some(array.clone());
            }
        }
        let mut spans = None;
        for (function, result) in functions.iter().zip(results) {
            let WindowFunction::Value { column: read, of } = function else { continue };
            let spans = spans.get_or_insert_with(|| Spans::of(begins));
            let values = column(*read)?;
            *result = Some(of_rows(&values, &fields[*read], &spans.rows(*of))?);
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
