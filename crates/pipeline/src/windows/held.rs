//! Rows that memory holds, sorted partition by partition.
//!
//! ```text
//! batch ─► portion: its rows by part, as the hashes of their partitions say
//! portions ─► a part: partitions are numbered ─► rows by partition ─► each sorted ─► gathered ─► WindowScan
//! ```
//!
//! Whole partitions are in one part, so parts are sorted and computed each by itself, by whatever thread.

use arrow_array::{Array, RecordBatch};
use arrow_select::interleave::interleave;
use headrace_columns::column::Column;
use headrace_columns::column_in::append_array;
use headrace_columns::group_keys::KeyLayout;
use headrace_columns::hash::hash_keys;
use headrace_columns::vector::Vector;
use headrace_ir::{Field, NamedExpr, Windows};
use headrace_spill::batch_bytes;

use super::WindowScan;
use super::columns::{column_of, repr_of};
use super::words::words_of;
use crate::ExecError;
use crate::cpu::group_table::GroupTable;
use crate::cpu::sorted::compare;

/// Rows that are gathered at a time, at most and at least, and bytes that they should not exceed.
const GATHER_ROWS_MAX: usize = 16 << 10;
const GATHER_ROWS_MIN: usize = 64;
const GATHER_BYTES: u64 = 4 << 20;

/// Bytes that a row takes here, beside its own, its keys' and its gathered ones.
const ROW_BYTES: u64 = 52;

/// How rows are divided, sorted and computed.
pub struct HeldRows<'w> {
    windows: &'w Windows,
    fields: Vec<Field>,
    parts: usize,
}

/// What watches over a part in the making.
pub trait Guard {
    /// Whether it goes on.
    ///
    /// # Errors
    /// [`ExecError::Cancelled`].
    fn check(&self) -> Result<(), ExecError>;

    /// Reserves what rows take that wait.
    ///
    /// # Errors
    /// There is too little memory.
    fn hold(&mut self, bytes: u64) -> Result<(), ExecError>;
}

/// A batch with its rows by part.
pub struct Portion {
    batch: RecordBatch,
    bytes: u64,
    rows: Vec<u32>,
    /// Where each part begins among them, and the end.
    starts: Vec<usize>,
}

/// A row of a part.
#[derive(Clone, Copy)]
struct Entry {
    word: u64,
    /// Its place among the rows of the part.
    at: u32,
}

impl<'w> HeldRows<'w> {
    /// In as many parts; of one partition there is one.
    pub fn new(windows: &'w Windows, parts: usize) -> Self {
        let parts = if windows.partition.is_empty() { 1 } else { parts.max(1) };
        let fields = windows.columns.iter().map(NamedExpr::field).collect();
        Self { windows, fields, parts }
    }

    /// What so many rows of so many bytes take with all that is made of them, but what [`run`](Self::run) holds.
    pub fn needs_bytes(rows: u64, bytes: u64) -> u64 {
        3 * bytes + ROW_BYTES * rows
    }

    /// How many parts there are.
    pub fn parts(&self) -> usize {
        self.parts
    }

    /// Divides the rows of a batch.
    ///
    /// # Errors
    /// Batches of other columns.
    pub fn portion(&self, batch: RecordBatch) -> Result<Portion, ExecError> {
        let count = batch.num_rows();
        if self.parts == 1 {
            let (rows, starts) = ((0..count as u32).collect(), vec![0, count]);
            return Ok(Portion { bytes: batch_bytes(&batch), batch, rows, starts });
        }
        let keys = self.windows.partition.iter();
        let keys = keys.map(|&column| column_of([&batch], column, &self.fields[column]));
        let keys = keys.collect::<Result<Vec<Column>, _>>()?;
        let vectors: Vec<Vector<'_>> = keys.iter().map(Column::vector).collect();
        let mut hashes = Vec::new();
        hash_keys(&vectors.iter().collect::<Vec<_>>(), count, &mut hashes);
        // Of the low bits the table of a part makes use.
        let part = |hash: u64| (((hash >> 32) * self.parts as u64) >> 32) as usize;
        let (starts, rows) = by_number(self.parts, hashes.iter().map(|&hash| part(hash)));
        Ok(Portion { bytes: batch_bytes(&batch), batch, rows, starts })
    }

    /// Sorts the rows of a part and puts them out with the results of the calls; `false`: no more are wanted.
    ///
    /// # Errors
    /// [`ExecError`] of the calls, or of the guard.
    pub fn run(
        &self,
        portions: &[Portion],
        part: usize,
        guard: &mut dyn Guard,
        emit: &dyn Fn(RecordBatch) -> bool,
    ) -> Result<bool, ExecError> {
        let of_portion = |(number, portion): (usize, &Portion)| {
            let rows = &portion.rows[portion.starts[part]..portion.starts[part + 1]];
            rows.iter().map(move |&row| (number, row as usize)).collect::<Vec<_>>()
        };
        let places: Vec<(usize, usize)> =
            portions.iter().enumerate().flat_map(of_portion).collect();
        if places.is_empty() {
            return Ok(true);
        }
        let arrays = |column: usize| {
            portions.iter().map(|it| &**it.batch.column(column)).collect::<Vec<&dyn Array>>()
        };
        let gather = |column: usize, places: &[(usize, usize)]| {
            let gathered = interleave(&arrays(column), places);
            gathered.map_err(|error| ExecError::Internal(format!("rows of windows: {error}")))
        };
        let chunk_rows = self.chunk_rows(portions);
        // In chunks: one array holds 2 GiB of texts.
        let key = |column: usize| {
            let field = &self.fields[column];
            let mut key = Column::new(repr_of(field)?)?;
            for places in places.chunks(chunk_rows) {
                guard.check()?;
                append_array(&mut key, &gather(column, places)?, field)?;
            }
            Ok::<_, ExecError>(key)
        };
        let partition = self.windows.partition.iter().map(|&column| key(column));
        let (partitions, numbers) =
            self.numbered(&partition.collect::<Result<Vec<_>, _>>()?, places.len())?;
        let order = self.windows.order.iter().map(|of| key(of.column));
        let order = order.collect::<Result<Vec<_>, _>>()?;
        guard.check()?;
        let sorted = self.sorted(partitions, &numbers, &order)?;
        drop((numbers, order));
        let mut scan = WindowScan::new(self.windows)?;
        for entries in sorted.chunks(chunk_rows) {
            guard.check()?;
            let places: Vec<_> = entries.iter().map(|entry| places[entry.at as usize]).collect();
            let columns = (0..self.fields.len()).map(|column| gather(column, &places));
            let columns = columns.collect::<Result<Vec<_>, _>>()?;
            let batch = RecordBatch::try_new(portions[0].batch.schema(), columns);
            let batch =
                batch.map_err(|error| ExecError::Internal(format!("rows of windows: {error}")))?;
            guard.hold(scan.needs_bytes(&batch))?;
            if !scan.push(batch)?.into_iter().all(emit) {
                return Ok(false);
            }
        }
        guard.check()?;
        Ok(scan.finish()?.into_iter().all(emit))
    }

    fn chunk_rows(&self, portions: &[Portion]) -> usize {
        let bytes: u64 = portions.iter().map(|portion| portion.bytes).sum();
        let rows: u64 = portions.iter().map(|portion| portion.batch.num_rows() as u64).sum();
        let wanted = GATHER_BYTES * rows / bytes.max(1);
        (wanted as usize).clamp(GATHER_ROWS_MIN, GATHER_ROWS_MAX)
    }

    /// How many partitions a part has, and the number of each row's.
    fn numbered(&self, keys: &[Column], rows: usize) -> Result<(usize, Vec<u32>), ExecError> {
        let mut numbers = vec![0; rows];
        if keys.is_empty() {
            return Ok((1, numbers));
        }
        let reprs = keys.iter().map(|key| (key.repr().clone(), true));
        let mut table = GroupTable::new(KeyLayout::new(reprs));
        let vectors: Vec<Vector<'_>> = keys.iter().map(Column::vector).collect();
        table.number(&vectors.iter().collect::<Vec<_>>(), rows, &mut numbers)?;
        Ok((table.len(), numbers))
    }

    /// The rows of a part by partition, each partition in its order.
    fn sorted(
        &self,
        partitions: usize,
        numbers: &[u32],
        order: &[Column],
    ) -> Result<Vec<Entry>, ExecError> {
        let (starts, rows) = by_number(partitions, numbers.iter().map(|&it| it as usize));
        let vectors: Vec<Vector<'_>> = order.iter().map(Column::vector).collect();
        let (Some(first), Some(key)) = (vectors.first(), self.windows.order.first()) else {
            return Ok(rows.into_iter().map(|at| Entry { word: 0, at }).collect());
        };
        let (words, are_whole) = words_of(first, key)?;
        let entry = |at: u32| Entry { word: words[at as usize], at };
        let mut entries: Vec<Entry> = rows.into_iter().map(entry).collect();
        let tells_all = are_whole && order.len() == 1;
        for bounds in starts.windows(2) {
            let partition = &mut entries[bounds[0]..bounds[1]];
            if tells_all {
                partition.sort_unstable_by_key(|entry| entry.word);
            } else {
                let keys = &self.windows.order;
                let by_keys =
                    |a: &Entry, b: &Entry| compare(keys, (&vectors, a.at), (&vectors, b.at));
                partition.sort_unstable_by(|a, b| a.word.cmp(&b.word).then_with(|| by_keys(a, b)));
            }
        }
        Ok(entries)
    }
}

/// Where the items of each number begin, and their places by number.
fn by_number(
    numbers: usize,
    of_items: impl Iterator<Item = usize> + Clone,
) -> (Vec<usize>, Vec<u32>) {
    let mut starts = vec![0; numbers + 1];
    of_items.clone().for_each(|number| starts[number + 1] += 1);
    for number in 0..numbers {
        starts[number + 1] += starts[number];
    }
    let mut next = starts.clone();
    let mut places = vec![0; starts[numbers]];
    for (at, number) in of_items.enumerate() {
        places[next[number]] = at as u32;
        next[number] += 1;
    }
    (starts, places)
}
