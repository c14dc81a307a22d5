//! Rows that may be among the first of their partition: the others are dropped before anything sorts them.
//!
//! Of each partition the first words ([`super::words`]) of the rows that come first are known, as many as are wanted: a row
//! whose word is larger than all of them comes behind as many rows as are wanted. Each worker knows its own rows, and gives
//! up where few are dropped or partitions are many.

use arrow_array::{BooleanArray, RecordBatch};
use arrow_select::filter::filter_record_batch;
use headrace_columns::column::Column;
use headrace_columns::group_keys::KeyLayout;
use headrace_columns::vector::Vector;
use headrace_ir::{Field, NamedExpr, OrderKey, Windows};

use super::columns::{column_of, repr_of};
use super::words::words_of;
use crate::ExecError;
use crate::cpu::group_table::GroupTable;

/// Words of all partitions at most.
const WORDS_MAX: usize = 1 << 20;

/// Rows that are looked at before it is known whether that pays.
const TRIAL_ROWS: usize = 1 << 16;

/// Of the rows that are looked at at least one of so many must be dropped.
const DROPPED_SHARE: usize = 4;

/// The first words of the partitions that one worker has seen.
pub struct FirstRows {
    fields: Vec<Field>,
    partition: Vec<usize>,
    order: OrderKey,
    /// How many are wanted of each partition.
    wanted: usize,
    table: GroupTable,
    /// So many words a partition, those that are there as a heap whose largest comes first.
    words: Vec<u64>,
    /// How many of them are there.
    counts: Vec<u32>,
    seen: usize,
    dropped: usize,
    is_off: bool,
}

impl FirstRows {
    /// For a stage; `None`: all of its rows are wanted.
    ///
    /// # Errors
    /// Columns that no processor takes.
    pub fn of(windows: &Windows) -> Result<Option<Self>, ExecError> {
        let (Some(wanted), Some(&order)) = (windows.first, windows.order.first()) else {
            return Ok(None);
        };
        let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
        let fields: Vec<Field> = windows.columns.iter().map(NamedExpr::field).collect();
        let partition = windows.partition.clone();
        let keys = partition.iter().map(|&column| Ok((repr_of(&fields[column])?, true)));
        let keys = keys.collect::<Result<Vec<_>, ExecError>>()?;
        Ok(Some(Self {
            table: GroupTable::new(KeyLayout::new(keys.into_iter())),
            words: Vec::new(),
            counts: Vec::new(),
            is_off: wanted > WORDS_MAX,
            seen: 0,
            dropped: 0,
            fields,
            partition,
            order,
            wanted,
        }))
    }

    /// Host bytes.
    pub fn bytes(&self) -> u64 {
        let own = size_of_val::<[u64]>(&self.words) + size_of_val::<[u32]>(&self.counts);
        self.table.bytes() + own as u64
    }

    /// Drops no more rows, and takes no more memory.
    pub fn give_up(&mut self) {
        self.is_off = self.wanted > 0;
        self.table = GroupTable::new(KeyLayout::new(std::iter::empty()));
        (self.words, self.counts) = (Vec::new(), Vec::new());
    }

    /// Rows that were dropped.
    pub fn dropped(&self) -> usize {
        self.dropped
    }

    /// The rows of a batch that may be wanted.
    ///
    /// # Errors
    /// Batches of other columns.
    pub fn keep(&mut self, batch: RecordBatch) -> Result<RecordBatch, ExecError> {
        let rows = batch.num_rows();
        if self.is_off || rows == 0 || self.wanted == 0 {
            return Ok(if self.wanted == 0 { batch.slice(0, 0) } else { batch });
        }
        let numbers = self.numbers(&batch)?;
        if self.is_off {
            return Ok(batch);
        }
        let words = self.words_of(&batch)?;
        let may_be = |(&number, &word): (&u32, &u64)| self.offer(number as usize, word);
        let kept: Vec<bool> = numbers.iter().zip(&words).map(may_be).collect();
        let count = kept.iter().filter(|kept| **kept).count();
        self.seen += rows;
        self.dropped += rows - count;
        if self.seen >= TRIAL_ROWS && self.dropped < self.seen / DROPPED_SHARE {
            self.give_up();
        }
        if count == rows {
            return Ok(batch);
        }
        let kept = filter_record_batch(&batch, &BooleanArray::from(kept));
        kept.map_err(|error| ExecError::Internal(format!("first rows: {error}")))
    }

    /// The partition of each row.
    fn numbers(&mut self, batch: &RecordBatch) -> Result<Vec<u32>, ExecError> {
        let rows = batch.num_rows();
        let mut numbers = vec![0; rows];
        if !self.partition.is_empty() {
            let keys = self.partition.iter().map(|&column| self.column(batch, column));
            let keys = keys.collect::<Result<Vec<Column>, _>>()?;
            let vectors: Vec<Vector<'_>> = keys.iter().map(Column::vector).collect();
            numbers.clear();
            self.table.number(&vectors.iter().collect::<Vec<_>>(), rows, &mut numbers)?;
        }
        let partitions = if self.partition.is_empty() { 1 } else { self.table.len() };
        match partitions.checked_mul(self.wanted).filter(|words| *words <= WORDS_MAX) {
            Some(words) => {
                self.words.resize(words, 0);
                self.counts.resize(partitions, 0);
            }
            None => self.give_up(),
        }
        Ok(numbers)
    }

    fn column(&self, batch: &RecordBatch, column: usize) -> Result<Column, ExecError> {
        column_of([batch], column, &self.fields[column])
    }

    /// A word for each row.
    fn words_of(&self, batch: &RecordBatch) -> Result<Vec<u64>, ExecError> {
        let column = self.column(batch, self.order.column)?;
        Ok(words_of(&column.vector(), &self.order)?.0)
    }

    /// Whether as few rows of a partition come before a word as are wanted.
    fn offer(&mut self, partition: usize, word: u64) -> bool {
        let first = partition * self.wanted;
        let (heap, count) =
            (&mut self.words[first..first + self.wanted], &mut self.counts[partition]);
        if (*count as usize) < heap.len() {
            let mut at = *count as usize;
            heap[at] = word;
            *count += 1;
            while at > 0 && heap[(at - 1) / 2] < heap[at] {
                heap.swap(at, (at - 1) / 2);
                at = (at - 1) / 2;
            }
            return true;
        }
        if word >= heap[0] {
            return word == heap[0];
        }
        heap[0] = word;
        let mut at = 0;
        loop {
            let (left, right) = (2 * at + 1, 2 * at + 2);
            let Some(&of_left) = heap.get(left) else { break };
            let larger = match heap.get(right) {
                Some(&of_right) if of_right > of_left => right,
                _ => left,
            };
            if heap[larger] <= heap[at] {
                break;
            }
            heap.swap(at, larger);
            at = larger;
        }
        true
    }
}
