//! Where partitions and peers begin among sorted rows: where a row's keys are not those of the row before.

use arrow_array::RecordBatch;
use headrace_columns::column::Column;
use headrace_columns::column_in::append_array;
use headrace_columns::vector::{Data, Element, Vector};
use headrace_ir::{Field, Windows};

use super::columns::repr_of;
use crate::ExecError;

/// What begins with a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Begins {
    /// It is a peer of the row before.
    Nothing,
    /// Its peers.
    Peers,
    /// Its partition, and its peers.
    Partition,
}

/// Finds them, batch by batch.
pub struct Boundaries {
    /// Columns that tell partitions apart.
    partition: Vec<usize>,
    /// Columns that tell peers apart, too.
    order: Vec<usize>,
    /// The last row's, in this order.
    last: Option<Vec<Column>>,
}

impl Boundaries {
    pub fn of(windows: &Windows) -> Self {
        let order = windows.order.iter().map(|key| key.column).collect();
        Self { partition: windows.partition.clone(), order, last: None }
    }

    /// What begins with each row of the next batch.
    pub fn of_next(
        &mut self,
        batch: &RecordBatch,
        fields: &[Field],
    ) -> Result<Vec<Begins>, ExecError> {
        let rows = batch.num_rows();
        let mut begins = vec![Begins::Nothing; rows];
        let Some(end) = rows.checked_sub(1).and_then(|end| u32::try_from(end).ok()) else {
            return Ok(begins);
        };
        let mut last = Vec::with_capacity(self.partition.len() + self.order.len());
        let of_partitions = self.partition.iter().map(|column| (column, Begins::Partition));
        let of_peers = self.order.iter().map(|column| (column, Begins::Peers));
        for (place, (&column, what)) in of_partitions.chain(of_peers).enumerate() {
            // The last row of the batch before comes first.
            let mut keys = match &self.last {
                Some(last) => last[place].take(&[0])?,
                None => Column::new(repr_of(&fields[column])?)?,
            };
            append_array(&mut keys, batch.column(column), &fields[column])?;
            let first = keys.rows() - rows;
            mark(&keys.vector(), first, what, &mut begins);
            last.push(keys.take(&[end + first as u32])?);
        }
        if self.last.replace(last).is_none() {
            begins[0] = Begins::Partition;
        }
        Ok(begins)
    }
}

/// Marks the rows whose key is not that of the row before. Of `keys` the first `first` are of rows before.
fn mark(keys: &Vector<'_>, first: usize, what: Begins, begins: &mut [Begins]) {
    let valid = keys.validity.as_deref();
    let is_valid = |row: usize| valid.is_none_or(|valid| valid[row] != 0);
    let mut mark_where = |differ: &dyn Fn(usize) -> bool| {
        // Without a row before, the first is marked by whoever asks.
        for (row, begins) in begins.iter_mut().enumerate().skip(usize::from(first == 0)) {
            let (at, before) = (row + first, row + first - 1);
            let is_other = match (is_valid(before), is_valid(at)) {
                (true, true) => differ(at),
                (before, at) => before != at,
            };
            if is_other {
                *begins = (*begins).max(what);
            }
        }
    };
    macro_rules! by_data {
        ($($variant:ident),*) => {
            match &keys.data {
                $(Data::$variant(keys) => mark_where(&|at| !keys[at].equal(keys[at - 1])),)*
                Data::Bool(keys) => mark_where(&|at| keys[at] != keys[at - 1]),
                Data::Str(keys) => mark_where(&|at| keys[at] != keys[at - 1]),
                Data::Bytes(keys) => mark_where(&|at| keys[at] != keys[at - 1]),
            }
        };
    }
    by_data!(I8, I16, I32, I64, U8, U16, U32, U64, F32, F64, I128);
}
