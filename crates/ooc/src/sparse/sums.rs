//! The result of a product, written by any thread in any order: see the module's "No order of arrival".

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use headrace_io::{MemoryBudget, MemoryUse, OutOfBudget, Reservation, for_each, huge};

use super::plan::TILE;

/// The row of a tile that has no head.
const NO_ROW: u64 = u64::MAX;

/// Values that a thread clears at once.
const CLEARED: usize = 1 << 16;

/// Words that several threads write, in huge pages: they do so anywhere.
pub(crate) fn words(length: usize, word: u64) -> Vec<AtomicU64> {
    let mut words = huge::reserved(length);
    words.extend((0..length).map(|_| AtomicU64::new(word)));
    words
}

/// Numbers of binary64 that several threads write, each by one of them.
#[derive(Debug)]
pub(crate) struct Shared(Vec<AtomicU64>);

impl Shared {
    fn zero(length: usize) -> Shared {
        Shared(words(length, 0))
    }

    #[inline(always)]
    pub fn get(&self, at: usize) -> f64 {
        f64::from_bits(self.0[at].load(Ordering::Relaxed))
    }

    #[inline(always)]
    fn put(&self, at: usize, value: f64) {
        self.0[at].store(value.to_bits(), Ordering::Relaxed);
    }
}

/// y, and the heads of tiles.
#[derive(Debug)]
pub(crate) struct Sums {
    /// Vector after vector.
    pub y: Shared,
    rows: usize,
    vectors: usize,
    /// The row that goes on into a tile, and its sums there.
    head_rows: Vec<AtomicU64>,
    heads: Shared,
    _memory: Reservation,
}

impl Sums {
    /// Zeros.
    ///
    /// # Errors
    /// If they do not fit.
    pub fn zero(
        memory: &Arc<MemoryBudget>,
        (rows, entries): (usize, usize),
        vectors: usize,
    ) -> Result<Sums, OutOfBudget> {
        let tiles = entries.div_ceil(TILE);
        let values = (rows as u64).saturating_add(tiles as u64).saturating_mul(vectors as u64);
        let bytes = values.saturating_add(tiles as u64).saturating_mul(8);
        let memory = memory.reserve(MemoryUse::Pipelines, bytes)?;
        let (y, heads) = (Shared::zero(rows * vectors), Shared::zero(tiles * vectors));
        let head_rows = words(tiles, NO_ROW);
        Ok(Sums { y, rows, vectors, head_rows, heads, _memory: memory })
    }

    /// Zeros again.
    pub fn clear(&mut self, threads: usize) {
        for_each(self.y.0.chunks_mut(CLEARED), threads, |block| {
            block.iter_mut().for_each(|value| *value.get_mut() = 0);
        });
        self.head_rows.iter_mut().for_each(|row| *row.get_mut() = NO_ROW);
    }

    /// The sum of a row's first tile.
    #[inline(always)]
    pub fn put(&self, row: usize, vector: usize, sum: f64) {
        self.y.put(vector * self.rows + row, sum);
    }

    /// The sum of a row that began before a tile, within it.
    #[inline(always)]
    pub fn put_head(&self, tile: usize, row: usize, vector: usize, sum: f64) {
        self.head_rows[tile].store(row as u64, Ordering::Relaxed);
        self.heads.put(tile * self.vectors + vector, sum);
    }

    /// Adds the heads, after the last chunk.
    pub fn finish(&mut self) {
        for (tile, row) in self.head_rows.iter_mut().enumerate() {
            let row = *row.get_mut();
            if row == NO_ROW {
                continue;
            }
            for vector in 0..self.vectors {
                let at = vector * self.rows + row as usize;
                self.y.put(at, self.y.get(at) + self.heads.get(tile * self.vectors + vector));
            }
        }
    }

    /// y in blocks, for who computed it elsewhere, heads included.
    pub fn blocks(&mut self, values: usize) -> impl Iterator<Item = Block<'_>> {
        self.y.0.chunks_mut(values).map(Block)
    }

    /// y, after that.
    pub fn into_values(self) -> Vec<f64> {
        self.into_parts().0
    }

    /// y, and the memory that is reserved for it and what is gone.
    pub fn into_parts(self) -> (Vec<f64>, Reservation) {
        let values = self.y.0.into_iter().map(|value| f64::from_bits(value.into_inner()));
        (values.collect(), self._memory)
    }
}

/// Some consecutive values of y.
pub(crate) struct Block<'a>(&'a mut [AtomicU64]);

impl Block<'_> {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Sets as many.
    pub fn put(self, values: &[f64]) {
        for (to, value) in self.0.iter_mut().zip(values) {
            *to.get_mut() = value.to_bits();
        }
    }
}
