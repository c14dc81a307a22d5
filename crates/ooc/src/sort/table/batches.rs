//! A sort of batches from another producer: they arrive one by one and leave in order, one by one.
//!
//! ```text
//! push ─► codes of one dictionary ─► pieces, in memory ───────────────────────► one pass ──┐
//!                                      └─ too many ─► sample ─► splitters                  ├─► batches, in order
//!                                                                 └─► temporary files ─► two passes
//! ```
//!
//! While they fit in memory nothing is written. The first batch that does not fit moves all to temporary files,
//! and all later ones go there as they arrive.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use arrow_select::concat::concat_batches;
use headrace_flow::CancelToken;
use headrace_io::{MemoryBudget, MemoryUse, Reservation};
use headrace_ir::OrderKey;
use headrace_spill::SpillFolder;

use super::columns::{Columns, failed, with_columns};
use super::keys::KeyMaker;
use super::leaf::compact;
use super::sizes::Sizes;
use super::source::{Source, batch_bytes};
use super::turns::Turns;
use super::two_passes::Divided;
use super::work::Work;
use super::{one_pass, two_passes};
use crate::{OocError, Result};

/// Bytes of a piece beyond which there is no gain.
const PIECE_BYTES_MAX: u64 = 4 << 20;
const PIECE_BYTES_MIN: u64 = 64 << 10;

/// Expected total in multiples of the amount that did not fit in memory; more is partitioned again.
const EXPECTED_MEMORIES: u64 = 16;

/// Resources of a sort.
#[derive(Debug, Clone)]
pub struct BatchSortOptions {
    /// Threads.
    pub threads: usize,
    /// Its complete memory: a separate budget, see [`MemoryBudget::within`].
    pub memory: Arc<MemoryBudget>,
    /// Folder of temporary files, if the memory is too small.
    pub spills: Arc<SpillFolder>,
    /// Cancels it.
    pub token: CancelToken,
}

/// The report of a sort.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BatchSortReport {
    /// Rows in and out.
    pub rows: u64,
    /// 1: they fit in memory. 2: through temporary files.
    pub passes: u32,
    /// Bytes that were written to temporary files.
    pub temporary_bytes: u64,
}

/// A stable sort of batches that arrive one by one.
#[derive(Debug)]
pub struct BatchSort {
    columns: Columns,
    maker: KeyMaker,
    options: BatchSortOptions,
    piece_bytes: u64,
    /// Batches that are too small to be a piece.
    small: Vec<RecordBatch>,
    small_bytes: u64,
    pieces: Vec<RecordBatch>,
    pieces_bytes: u64,
    /// For both.
    held: Reservation,
    /// Maximum bytes of keys of the held rows.
    keys_bytes: u64,
    rows: u64,
    rows_bytes: u64,
    divided: Option<Divided>,
    temporary_bytes: u64,
}

impl BatchSort {
    /// A sort of batches of a schema, by some of their columns.
    ///
    /// # Errors
    /// [`OocError::Usage`] for columns without an order or that cannot be moved, or if there are no sort
    /// columns.
    pub fn new(
        schema: &SchemaRef,
        by: &[OrderKey],
        options: BatchSortOptions,
    ) -> Result<BatchSort> {
        let columns = Columns::of_schema(schema)?;
        let maker = KeyMaker::new(&columns, by)?;
        let share = options.memory.limit_bytes() / (16 * options.threads as u64).max(1);
        Ok(BatchSort {
            columns,
            maker,
            piece_bytes: share.clamp(PIECE_BYTES_MIN, PIECE_BYTES_MAX),
            small: Vec::new(),
            small_bytes: 0,
            pieces: Vec::new(),
            pieces_bytes: 0,
            held: options.memory.reserve_nothing(MemoryUse::Operators),
            keys_bytes: 0,
            rows: 0,
            rows_bytes: 0,
            divided: None,
            temporary_bytes: 0,
            options,
        })
    }

    /// Whether batches of a schema can be sorted so.
    ///
    /// # Errors
    /// As [`new`](Self::new)'s.
    pub fn check(schema: &SchemaRef, by: &[OrderKey]) -> Result<()> {
        KeyMaker::new(&Columns::of_schema(schema)?, by).map(drop)
    }

    /// Bytes that were written to temporary files so far.
    pub fn temporary_bytes(&self) -> u64 {
        self.temporary_bytes
    }

    /// Adds a batch, whose rows follow the present ones.
    ///
    /// # Errors
    /// [`OocError::Budget`] if the batch does not fit in memory twice; errors of temporary files.
    pub fn push(&mut self, batch: &RecordBatch) -> Result<()> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let batch = self.columns.adopt(batch)?;
        self.maker.follow(&self.columns);
        let bytes = batch_bytes(&batch);
        // A piece is made of them: both are there for a moment.
        if self.held.resize(self.held.bytes() + 2 * bytes).is_err() {
            // Others have taken what this may have.
            self.make_piece()?;
            self.divide()?;
            self.held.resize(2 * bytes)?;
        }
        self.rows += batch.num_rows() as u64;
        self.rows_bytes += bytes;
        self.keys_bytes += batch.num_rows() as u64 * (self.maker.fixed_row_bytes() + 4);
        self.keys_bytes += self.maker.texts_bytes(&batch);
        self.small_bytes += bytes;
        self.small.push(batch);
        if self.small_bytes < self.piece_bytes {
            return Ok(());
        }
        self.make_piece()?;
        let memory = &self.options.memory;
        if self.divided.is_some() {
            // One for each thread to divide.
            let wanted_bytes = self.piece_bytes * self.options.threads as u64;
            return if self.pieces_bytes >= wanted_bytes { self.divide() } else { Ok(()) };
        }
        // As much again as a piece may come before this is asked again.
        let held_bytes = self.pieces_bytes + 2 * self.piece_bytes + self.keys_bytes;
        if self.sizes().one_pass_bytes(held_bytes) > memory.limit_bytes() {
            return self.divide();
        }
        Ok(())
    }

    /// Delivers all rows in order; `emit` says whether to continue.
    ///
    /// # Errors
    /// [`OocError::Cancelled`] if it stops; [`OocError::Budget`], and errors of temporary files.
    pub fn finish(
        mut self,
        mut emit: impl FnMut(RecordBatch) -> bool + Send,
    ) -> Result<BatchSortReport> {
        self.make_piece()?;
        let mut emitted = 0;
        let mut write = |batches: Vec<RecordBatch>| {
            for batch in batches {
                emitted += batch.num_rows() as u64;
                if !emit(batch) {
                    return Err(OocError::Cancelled);
                }
            }
            Ok(())
        };
        let mut passes = if self.divided.is_some() { 2 } else { 1 };
        if passes == 1 && !self.pieces.is_empty() {
            match one_pass::sort(&self.work(), &Source::Held(&self.pieces), &mut write) {
                // The keys did not fit; nothing was handed over.
                Err(OocError::Budget(_)) => passes = 2,
                done => done?,
            }
        }
        if passes == 2 {
            self.divide()?;
            if let Some(divided) = self.divided.take() {
                let work = self.work();
                two_passes::sort(&work, divided, &self.options.spills, &mut write)?;
                self.temporary_bytes += work.temporary_bytes.into_inner();
            }
        }
        assert!(emitted == self.rows, "{emitted} rows of {} were handed over", self.rows);
        Ok(BatchSortReport { rows: self.rows, passes, temporary_bytes: self.temporary_bytes })
    }

    /// Joins small batches, without bytes that their slices and views do not show.
    fn make_piece(&mut self) -> Result<()> {
        if self.small.is_empty() {
            return Ok(());
        }
        let joined = concat_batches(&self.columns.plain, &std::mem::take(&mut self.small));
        let joined = joined.map_err(failed("joining batches"))?;
        let columns = joined.columns().iter().map(compact).collect();
        let piece = with_columns(&self.columns.plain, columns, joined.num_rows())?;
        drop(joined);
        self.pieces_bytes += batch_bytes(&piece);
        self.pieces.push(piece);
        self.small_bytes = 0;
        Ok(self.held.resize(self.pieces_bytes)?)
    }

    /// Moves the held pieces to temporary files.
    fn divide(&mut self) -> Result<()> {
        if self.pieces.is_empty() {
            return Ok(());
        }
        let pieces = std::mem::take(&mut self.pieces);
        let (source, before) = (Source::Held(&pieces), self.divided.take());
        let work = self.work();
        let mut divided = match before {
            Some(divided) => divided,
            None => {
                let expected_bytes = EXPECTED_MEMORIES * self.options.memory.limit_bytes();
                Divided::like(&work, &source, expected_bytes, &self.options.spills)?
            }
        };
        divided.add(&work, &source)?;
        self.temporary_bytes += work.temporary_bytes.into_inner();
        self.divided = Some(divided);
        (self.pieces_bytes, self.keys_bytes) = (0, 0);
        Ok(self.held.resize(0)?)
    }

    fn sizes(&self) -> Sizes {
        let row_bytes = self.rows_bytes.div_ceil(self.rows.max(1)).max(1);
        let (limit_bytes, threads) = (self.options.memory.limit_bytes(), self.options.threads);
        Sizes::new(limit_bytes, threads, None, row_bytes, self.maker.fixed_row_bytes())
    }

    fn work(&self) -> Work<'_> {
        Work {
            columns: &self.columns,
            maker: &self.maker,
            turns: Turns {
                threads: self.options.threads,
                memory: self.options.memory.clone(),
                token: self.options.token.clone(),
            },
            sizes: self.sizes(),
            releases_mapped: false,
            stages: Default::default(),
            temporary_bytes: Default::default(),
        }
    }
}
