//! Rows whose predecessors are all written: sorted in memory, gathered and written in turn.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::DataType;
use arrow_select::interleave::interleave;
use headrace_format::arrow::ArrowWriter;
use headrace_io::Reservation;

use super::columns::{failed, with_columns};
use super::keys::Keys;
use super::work::Work;
use crate::Result;

/// Rows that are gathered at a time.
const GATHER_ROWS: usize = 32 << 10;

/// Overhead of an array beside its values.
const ARRAY_BYTES: u64 = 1024;

/// The rows of a leaf, in memory.
#[derive(Debug, Default)]
pub(super) struct Leaf<'a> {
    batches: Vec<&'a RecordBatch>,
    keys: Vec<&'a Keys>,
    /// Number, batch and row: 64, 32 and 32 bits.
    entries: Vec<u128>,
}

impl<'a> Leaf<'a> {
    /// With room for this many rows.
    pub fn with_capacity(rows: usize) -> Self {
        Leaf { entries: Vec::with_capacity(rows), ..Leaf::default() }
    }

    /// Memory for this many rows here and while they are gathered, without their values.
    pub fn needs_bytes(work: &Work<'_>, rows: u64) -> u64 {
        let arrays = (rows / GATHER_ROWS as u64 + 1) * work.columns.plain.fields().len() as u64;
        rows * size_of::<u128>() as u64 + arrays * ARRAY_BYTES
    }

    /// Adds rows of a batch that follows the present ones.
    pub fn add(&mut self, batch: &'a RecordBatch, keys: &'a Keys, rows: impl Iterator<Item = u32>) {
        let number = (self.batches.len() as u128) << 32;
        let entry = |row| u128::from(keys.prefixes[row as usize]) << 64 | number | u128::from(row);
        self.entries.extend(rows.map(entry));
        self.batches.push(batch);
        self.keys.push(keys);
    }

    /// Sorts the rows; equal ones keep the order of the input.
    pub fn sort(&mut self) {
        let keys = &self.keys;
        if keys.iter().all(|keys| keys.is_whole()) {
            return self.entries.sort_unstable();
        }
        let rest = |entry: u128| keys[(entry as u64 >> 32) as usize].row(entry as u32 as usize);
        self.entries.sort_unstable_by(|a, b| {
            let by_rest = || rest(*a).cmp(rest(*b)).then(a.cmp(b));
            (a >> 64).cmp(&(b >> 64)).then_with(by_rest)
        });
    }

    /// The rows in table form. Memory beyond `held_bytes` comes from the reservation.
    pub fn gather(
        &self,
        work: &Work<'_>,
        reserved: &mut Reservation,
        held_bytes: u64,
    ) -> Result<Vec<RecordBatch>> {
        let columns = work.columns.plain.fields().len();
        let column = |i: usize| self.batches.iter().map(|batch| &**batch.column(i)).collect();
        let arrays: Vec<Vec<&dyn Array>> = (0..columns).map(column).collect();
        let mut gathered_bytes = held_bytes;
        let gathered = self.entries.chunks(GATHER_ROWS).map(|entries| {
            work.turns.check()?;
            let place = |entry: &u128| ((*entry as u64 >> 32) as usize, *entry as u32 as usize);
            let places: Vec<(usize, usize)> = entries.iter().map(place).collect();
            let gather = |arrays: &Vec<&dyn Array>| {
                Ok(compact(&interleave(arrays, &places).map_err(failed("gathering rows"))?))
            };
            let columns = arrays.iter().map(gather).collect::<Result<Vec<_>>>()?;
            let batch = with_columns(&work.columns.plain, columns, entries.len())?;
            gathered_bytes += batch.get_array_memory_size() as u64;
            if gathered_bytes > reserved.bytes() {
                reserved.resize(gathered_bytes)?;
            }
            work.columns.whole(&batch)
        });
        gathered.collect()
    }
}

/// A column without bytes that its views do not show.
pub(super) fn compact(column: &ArrayRef) -> ArrayRef {
    match column.data_type() {
        DataType::Utf8View => Arc::new(column.as_string_view().gc()),
        DataType::BinaryView => Arc::new(column.as_binary_view().gc()),
        _ => column.clone(),
    }
}

/// The file that is written.
pub(super) struct Output {
    pub writer: ArrowWriter,
    /// Maximum bytes of rows that wait for a full batch.
    pending_bytes_max: u64,
    pending_bytes: u64,
}

impl Output {
    pub fn new(writer: ArrowWriter, pending_bytes_max: u64) -> Self {
        Output { writer, pending_bytes_max, pending_bytes: 0 }
    }

    pub fn write(&mut self, batches: Vec<RecordBatch>) -> Result<()> {
        for batch in batches {
            let bytes = batch.columns().iter().map(own_bytes).sum::<u64>();
            if self.pending_bytes + bytes > self.pending_bytes_max {
                self.writer.end_batch()?;
                self.pending_bytes = 0;
            }
            self.writer.write(&batch)?;
            self.pending_bytes += bytes;
            let pending_rows = self.writer.pending_rows();
            if pending_rows < batch.num_rows() {
                self.pending_bytes = bytes * pending_rows as u64 / batch.num_rows() as u64;
            }
        }
        Ok(())
    }
}

/// Bytes of a column, without a dictionary that all batches share.
fn own_bytes(column: &ArrayRef) -> u64 {
    match column.as_any_dictionary_opt() {
        Some(dictionary) => dictionary.keys().get_array_memory_size() as u64,
        None => column.get_array_memory_size() as u64,
    }
}
