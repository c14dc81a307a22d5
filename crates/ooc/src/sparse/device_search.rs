//! The search for levels on a GPU: levels and frontiers stay in its memory from level to level. A level brings back two numbers,
//! and one for each chunk.

use std::sync::Arc;
use std::sync::atomic::AtomicI32;

use headrace_flow::{Race, RaceReport};

use super::csr::Csr;
use super::device::{OnDevice, Searched, Work};
use super::faults::Faults;
use super::launches::SearchMemory;
use super::plan::{Piece, Plan};
use crate::Result;

/// Levels that are brought back at once.
const BLOCK: usize = 1 << 20;

/// What a pass over chunks has found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Entries that were looked at.
    pub edges: u64,
    /// Vertices of the level.
    pub vertices: u64,
    /// For each chunk of the matrix, not 0 if a row of it stays without a level; 0 for one that was not asked.
    pub open: Vec<u64>,
}

impl Searched {
    fn memory(&self, level: u64) -> SearchMemory {
        let next = (level % 2) as usize;
        SearchMemory {
            levels: self.levels.ptr(),
            frontier: self.bits[1 - next].ptr(),
            next: self.bits[next].ptr(),
            open: self.open.ptr(),
            counts: self.counts.ptr(),
            faults: self.wrong.ptr(),
        }
    }
}

impl OnDevice {
    /// Has all vertices without a level, but for the source.
    ///
    /// # Errors
    /// Of the device and its memory.
    pub fn begin_search(&mut self, (csr, plan): (&Csr, &Plan), source: usize) -> Result<()> {
        let words = csr.rows.div_ceil(64);
        let searched = Searched {
            levels: self.room(csr.rows.div_ceil(2))?,
            bits: [self.room(words)?, self.room(words)?],
            open: self.room(plan.chunks())?,
            counts: self.room(2)?,
            wrong: self.room(2)?,
        };
        // SAFETY: the buffers stay with this device, which waits for its streams before they go; nothing else is queued that
        // touches them.
        unsafe {
            self.stream().fill_async(&searched.levels, 0, csr.rows * 4, 0xff)?;
            self.stream().fill_async(&searched.bits[0], 0, words * 8, 0)?;
        }
        let bit = 1u64 << (source % 64);
        self.stream().upload(&searched.levels, source * 4, &0i32.to_le_bytes())?;
        self.stream().upload(&searched.bits[0], source / 64 * 8, &bit.to_le_bytes())?;
        self.searched = Some(Arc::new(searched));
        Ok(())
    }

    /// Finds a level in the chunks of a race.
    ///
    /// # Errors
    /// Of the race and the device; the caller looks at the faults.
    pub fn search(
        &mut self,
        (race, chunks): (&Race<Piece>, &[usize]),
        (csr, plan): (&Csr, &Plan),
        level: u64,
        faults: &Faults,
    ) -> Result<(RaceReport, Found)> {
        let Some(searched) = self.searched.clone() else { return Ok(Default::default()) };
        let next = &searched.bits[(level % 2) as usize];
        let mut found = Found { open: vec![0; plan.chunks()], ..Found::default() };
        // SAFETY: as in `begin_search`: the level before is done.
        unsafe {
            self.stream().fill_async(next, 0, csr.rows.div_ceil(64) * 8, 0)?;
            self.stream().fill_async(&searched.open, 0, plan.chunks() * 8, 0)?;
            self.stream().fill_async(&searched.counts, 0, 16, 0)?;
        }
        let memory = searched.memory(level);
        let calls = |piece: Piece, addresses: &[u64]| memory.search(csr, piece, addresses, level);
        let work = Work { chunks, calls: &calls, wrong: &searched.wrong };
        let report = self.stream_through(&work, race, (csr, plan), faults)?;
        let mut counts = [0u64; 2];
        self.stream().download(&searched.counts, 0, bytemuck::cast_slice_mut(&mut counts))?;
        self.stream().download(&searched.open, 0, bytemuck::cast_slice_mut(&mut found.open))?;
        [found.edges, found.vertices] = counts;
        Ok((report, found))
    }

    /// Brings the levels back.
    ///
    /// # Errors
    /// Of the device.
    pub fn end_search(&mut self, levels: &mut [AtomicI32]) -> Result<()> {
        let Some(searched) = self.searched.take() else { return Ok(()) };
        let mut block = vec![0i32; BLOCK.min(levels.len())];
        for (number, levels) in levels.chunks_mut(BLOCK).enumerate() {
            let block = &mut block[..levels.len()];
            let bytes = bytemuck::cast_slice_mut(block);
            self.stream().download(&searched.levels, number * BLOCK * 4, bytes)?;
            levels.iter_mut().zip(block).for_each(|(to, level)| *to.get_mut() = *level);
        }
        Ok(())
    }
}
