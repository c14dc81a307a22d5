//! Which rows and entries form a chunk.
//!
//! ```text
//!  rows     │ r0 │ r1 │      r2       │    r3    │ r4..r9, empty │ r10 │     a cut: the first row that is not done, and
//!  entries  └────┴────┴───────────────┴──────────┴┴┴┴┴┴┴┴┴┴┴┴┴┴┴┴─────┘     the first entry that is not read
//!  cuts     ▲               ▲                    ▲         ▲
//!         (0,0)     (2, a number of tiles)   another     rows enough for a chunk
//! ```
//!
//! Chunks have equally many entries, a whole number of tiles, wherever rows end; many empty rows are cut between two of
//! them. A cut is found by bisection of `indptr` in its file: a few small reads for each chunk, and none of the rest.
//! Everything that was not read is checked when its chunk is (`chunk`).

use std::sync::Arc;
use std::task::{Poll, Waker};

use headrace_flow::{ChunkFeed, FedChunk, FeedBounds, NextChunk, ReadSpec};
use headrace_io::{MemoryBudget, MemoryUse, Reservation, try_map};

use super::csr::Csr;
use crate::{OocError, Result};

/// Entries of a tile, whose sums are computed at once. The order of additions depends on it, and on nothing else.
pub(crate) const TILE: usize = 512;

/// Values of `indptr` that a bisection reads at once.
const WINDOW: usize = 512;

/// Concurrent small reads, and how many of them justify a thread.
const READERS: usize = 32;
const READS_PER_THREAD_MIN: usize = 16;

/// A place between two chunks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Cut {
    /// The first row that is not done before it.
    pub row: usize,
    /// The first entry behind it.
    pub entry: usize,
}

/// A chunk: rows and entries between two cuts. The last row's entries may go on behind it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Piece {
    pub chunk: usize,
    pub from: Cut,
    pub to: Cut,
}

/// All cuts of a matrix, its ends included.
#[derive(Debug)]
pub(crate) struct Plan {
    cuts: Vec<Cut>,
    slot_bytes: usize,
    _memory: Reservation,
}

impl Plan {
    /// Chunks of about `chunk_bytes`, at least a tile or a row.
    ///
    /// # Errors
    /// [`OocError::Input`] if `indptr` is seen to decrease; [`OocError::Budget`]; errors of the reads.
    pub fn new(csr: &Csr, chunk_bytes: usize, memory: &Arc<MemoryBudget>) -> Result<Plan> {
        let entry_bytes = csr.arrays().skip(1).map(|array| array.number.bytes()).sum::<usize>();
        // Half for entries, half for rows.
        let entries = (chunk_bytes / 2 / entry_bytes / TILE).max(1) * TILE;
        let rows = (chunk_bytes / 2 / csr.indptr.number.bytes()).max(1);
        let chunks_max = csr.entries / entries + csr.rows / rows + 2;
        let memory =
            memory.reserve(MemoryUse::Operators, (chunks_max * 2 * size_of::<Cut>()) as u64)?;
        let mut cuts = vec![Cut::default()];
        let inner = csr.entries.div_ceil(entries).saturating_sub(1);
        cuts.extend(try_map(inner, (READS_PER_THREAD_MIN, READERS), |cut| {
            let entry = (cut + 1) * entries;
            Ok::<_, OocError>(Cut { row: row_of(csr, entry)?, entry })
        })?);
        cuts.push(Cut { row: csr.rows, entry: csr.entries });
        let mut cuts = between_rows(csr, &cuts, rows)?;
        cuts.dedup();
        let mut plan = Plan { cuts, slot_bytes: 0, _memory: memory };
        let slot_bytes = |chunk| ReadSpec::slot_bytes_of(&reads(csr, plan.piece(chunk)));
        plan.slot_bytes = (0..plan.chunks()).map(slot_bytes).max().unwrap_or(0);
        Ok(plan)
    }

    pub fn chunks(&self) -> usize {
        self.cuts.len() - 1
    }

    pub fn piece(&self, chunk: usize) -> Piece {
        Piece { chunk, from: self.cuts[chunk], to: self.cuts[chunk + 1] }
    }

    /// Bytes of a slot that fits any chunk.
    pub fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }
}

/// The reads of a chunk: where its rows begin, that of the row behind them included; columns; values.
pub(crate) fn reads(csr: &Csr, Piece { from, to, .. }: Piece) -> Vec<ReadSpec> {
    let entries = csr.arrays().skip(1).map(|array| array.read(from.entry, to.entry));
    std::iter::once(csr.indptr.read(from.row, to.row + 1)).chain(entries).collect()
}

fn decreasing(csr: &Csr, rows: std::ops::Range<usize>) -> OocError {
    let what = format!("indptr decreases between rows {} and {}", rows.start, rows.end);
    OocError::input(csr.indptr.file.path(), what, "write the matrix anew")
}

/// How many rows end at or before an entry.
fn row_of(csr: &Csr, entry: usize) -> Result<usize> {
    let is_done = |end: &u64| *end <= entry as u64;
    let (mut low, mut high) = (0, csr.rows);
    while high - low > WINDOW {
        let middle = low + (high - low) / 2;
        match is_done(&csr.indptr.integers(middle + 1, middle + 2)?[0]) {
            true => low = middle + 1,
            false => high = middle,
        }
    }
    Ok(low + csr.indptr.integers(low + 1, high + 1)?.partition_point(is_done))
}

/// With further cuts, so that no more than `rows_max` rows lie between two.
fn between_rows(csr: &Csr, cuts: &[Cut], rows_max: usize) -> Result<Vec<Cut>> {
    let mut all = vec![cuts[0]];
    for pair in cuts.windows(2) {
        let (from, to) = (pair[0], pair[1]);
        if from.row > to.row {
            return Err(decreasing(csr, to.row..from.row));
        }
        let mut last = from;
        for row in (from.row..to.row).step_by(rows_max).skip(1) {
            let entry = csr.indptr.integers(row, row + 1)?[0];
            if entry < last.entry as u64 || entry > to.entry as u64 {
                return Err(decreasing(csr, last.row..to.row));
            }
            last = Cut { row, entry: entry as usize };
            all.push(last);
        }
        all.push(to);
    }
    Ok(all)
}

/// Some chunks of a matrix.
#[derive(Debug)]
pub(crate) struct Feed {
    csr: Csr,
    plan: Arc<Plan>,
    chunks: Vec<usize>,
    given: usize,
}

impl Feed {
    pub fn new(csr: &Csr, plan: &Arc<Plan>, chunks: Vec<usize>) -> Feed {
        Feed { csr: csr.clone(), plan: plan.clone(), chunks, given: 0 }
    }

    pub fn bounds(&self) -> FeedBounds {
        let bytes = |chunk: &usize| -> u64 {
            reads(&self.csr, self.plan.piece(*chunk)).iter().map(|read| read.bytes).sum()
        };
        FeedBounds {
            bytes: Some(self.chunks.iter().map(bytes).sum()),
            chunks: Some(self.chunks.len() as u64),
            slot_bytes: self.plan.slot_bytes(),
        }
    }
}

impl ChunkFeed<Piece> for Feed {
    fn poll_next(&mut self, _waker: &Waker) -> NextChunk<Piece> {
        let Some(&chunk) = self.chunks.get(self.given) else { return Poll::Ready(None) };
        self.given += 1;
        let payload = self.plan.piece(chunk);
        let files = self.csr.arrays().map(|array| array.file.clone()).collect();
        let reads = reads(&self.csr, payload);
        Poll::Ready(Some(Ok(FedChunk { reads, files, payload, ..FedChunk::default() })))
    }
}
