//! Ranks on a GPU: they, their shares and the degrees stay in its memory from product to product. An iteration brings back two
//! numbers for each block of vertices.

use std::sync::Arc;

use headrace_flow::{Race, RaceReport};

use super::csr::Csr;
use super::device::{OnDevice, Ranked};
use super::faults::Faults;
use super::launches::{RANKED, RankMemory};
use super::plan::{Piece, Plan};
use crate::Result;
use crate::vectors::Vectors;

impl OnDevice {
    /// Puts ranks, their shares and the vertices' degrees into the device's memory.
    ///
    /// # Errors
    /// Of the device and its memory.
    pub fn begin_ranks(
        &mut self,
        csr: &Csr,
        ranks: &[f64],
        shares: &Vectors,
        degrees: impl Iterator<Item = Vec<u64>>,
    ) -> Result<()> {
        let (lying, vertices) = (self.put(csr, shares)?, ranks.len());
        let ranked = Ranked {
            lying,
            ranks: self.room(vertices)?,
            degrees: self.room(vertices)?,
            sums: self.room(2 * vertices.div_ceil(RANKED))?,
            vertices,
        };
        self.stream().upload(&ranked.ranks, 0, bytemuck::cast_slice(ranks))?;
        let mut at = 0;
        for block in degrees {
            self.stream().upload(&ranked.degrees, at, bytemuck::cast_slice(&block))?;
            at += block.len() * 8;
        }
        self.ranked = Some(Arc::new(ranked));
        Ok(())
    }

    /// A product with the shares, then `base + damping * sum` for each vertex. The sums of each block: how much its ranks have
    /// changed, and how much dangles; none if something is wrong with the matrix.
    ///
    /// # Errors
    /// As [`multiply`](Self::multiply).
    pub fn iterate_ranks(
        &mut self,
        race: &Race<Piece>,
        (csr, plan): (&Csr, &Plan),
        constants: (f64, f64),
        faults: &Faults,
    ) -> Result<(RaceReport, Vec<[f64; 2]>)> {
        let Some(ranked) = self.ranked.clone() else { return Ok(Default::default()) };
        let report = self.pass(&ranked.lying, race, (csr, plan), faults)?;
        if faults.are_any() {
            return Ok((report, Vec::new()));
        }
        let memory = RankMemory {
            ranks: ranked.ranks.ptr(),
            degrees: ranked.degrees.ptr(),
            sums: ranked.sums.ptr(),
        };
        let call = memory.rank(&ranked.lying.memory(), ranked.vertices, constants);
        let mut sums = vec![[0.0; 2]; call.blocks];
        self.enqueue(&[call])?;
        self.stream().download(&ranked.sums, 0, bytemuck::cast_slice_mut(&mut sums))?;
        Ok((report, sums))
    }

    /// Brings the ranks back.
    ///
    /// # Errors
    /// Of the device.
    pub fn end_ranks(&mut self, ranks: &mut [f64]) -> Result<()> {
        match self.ranked.take() {
            Some(ranked) => {
                Ok(self.stream().download(&ranked.ranks, 0, bytemuck::cast_slice_mut(ranks))?)
            }
            None => Ok(()),
        }
    }
}
