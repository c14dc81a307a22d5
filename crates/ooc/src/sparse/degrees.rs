//! How many entries each column has: integers, which add up to the same in any order.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use headrace_flow::{BoxError, FedChunk, HostConsumer, RaceReport, Verdict};
use headrace_io::{MemoryBudget, MemoryUse, OutOfBudget, Reservation};

use super::chunk::{Checked, Chunk, Word};
use super::csr::Csr;
use super::faults::Faults;
use super::pass::Passes;
use super::plan::Piece;
use super::sums::words;
use crate::Result;

/// Entries of each column.
#[derive(Debug)]
pub(crate) struct Degrees {
    counts: Vec<AtomicU64>,
    _memory: Reservation,
}

impl Degrees {
    /// None yet.
    ///
    /// # Errors
    /// If they do not fit.
    pub fn zero(
        memory: &Arc<MemoryBudget>,
        columns: usize,
    ) -> std::result::Result<Degrees, OutOfBudget> {
        let memory = memory.reserve(MemoryUse::Pipelines, (columns as u64).saturating_mul(8))?;
        Ok(Degrees { counts: words(columns, 0), _memory: memory })
    }

    /// Counts all entries of a matrix, in one pass.
    ///
    /// # Errors
    /// Those of the pass.
    pub fn count(&self, passes: &Passes<'_>) -> Result<RaceReport> {
        let faults = Faults::default();
        let counter = || Counter::new(&passes.csr, self, &faults);
        Ok(passes.run(passes.all(), &faults, counter)?.1)
    }

    /// All of them, so many at a time.
    pub fn blocks(&self, columns: usize) -> impl Iterator<Item = Vec<u64>> {
        let numbers =
            |block: &[AtomicU64]| block.iter().map(|n| n.load(Ordering::Relaxed)).collect();
        self.counts.chunks(columns).map(numbers)
    }

    #[inline(always)]
    pub fn of(&self, column: usize) -> u64 {
        self.counts[column].load(Ordering::Relaxed)
    }
}

type Kernel = fn(Piece, &[&[u8]], u64, &Degrees) -> Checked<()>;

struct Counter<'a> {
    kernel: Kernel,
    index_end: u64,
    degrees: &'a Degrees,
    faults: &'a Faults,
}

impl<'a> Counter<'a> {
    fn new(csr: &Csr, degrees: &'a Degrees, faults: &'a Faults) -> Counter<'a> {
        let kernel: Kernel = match (csr.indptr.number.bytes(), csr.indices.number.bytes()) {
            (4, 4) => count::<[u8; 4], [u8; 4]>,
            (4, _) => count::<[u8; 4], [u8; 8]>,
            (_, 4) => count::<[u8; 8], [u8; 4]>,
            _ => count::<[u8; 8], [u8; 8]>,
        };
        Counter { kernel, index_end: csr.index_end(), degrees, faults }
    }
}

fn count<P: Word, I: Word>(
    piece: Piece,
    buffers: &[&[u8]],
    index_end: u64,
    degrees: &Degrees,
) -> Checked<()> {
    let chunk = Chunk::<P, I>::new(piece, buffers[0], buffers[1])?;
    chunk.check_indices(0..chunk.indices.len(), index_end)?;
    for index in chunk.indices {
        degrees.counts[index.value() as usize].fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

impl HostConsumer<Piece> for Counter<'_> {
    fn consume(
        &mut self,
        chunk: &FedChunk<Piece>,
        buffers: &[&[u8]],
    ) -> std::result::Result<Verdict, BoxError> {
        (self.kernel)(chunk.payload, buffers, self.index_end, self.degrees)
            .map_err(|fault| self.faults.note(fault))?;
        Ok(Verdict::Continue)
    }
}
