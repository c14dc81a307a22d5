//! The shapes and parameters of the kernels. Nothing here needs a GPU.

use super::plan::Tile;
use crate::NumberType;

/// Threads of a block.
pub(super) const BLOCK: u32 = 256;

/// Bytes per load of a thread.
const LOAD_BYTES: usize = 16;

/// The source of the kernels for values of a type.
pub(crate) fn source(number: NumberType) -> String {
    let bits = number.bytes() * 8;
    format!("#define VALUE_BITS {bits}\n{}", include_str!("kernels/matvec.cu"))
}

/// Names of the kernels.
pub(super) const KERNELS: [&str; 6] =
    ["forward_1", "forward_4", "transposed_1", "transposed_4", "add_forward", "add_transposed"];

/// A launch of at least this many threads.
#[derive(Debug)]
pub(super) struct Call {
    /// Which of [`KERNELS`].
    pub kernel: usize,
    pub threads: usize,
    /// The members of `Params`, in order.
    pub args: [u64; 16],
}

/// A tile in device memory and its products with the matrix and with its transpose.
#[derive(Debug, Clone, Copy)]
pub(super) struct Products {
    pub tile: Tile,
    pub value_bytes: usize,
    /// Its address and row distance; unused when sums are added.
    pub base: u64,
    pub row_bytes: u64,
    /// The number of vectors.
    pub counts: [usize; 2],
    /// Their address and length.
    pub x: [(u64, u64); 2],
    pub sums: [u64; 2],
    /// Like `x`, for the results.
    pub y: [(u64, u64); 2],
}

impl Products {
    /// The kernels that compute sums: for four vectors at a time, then for one.
    pub fn multiply(&self) -> Vec<Call> {
        let (tile, per) = (&self.tile, LOAD_BYTES / self.value_bytes);
        let mut calls = Vec::new();
        for which in 0..2 {
            let mut vector = 0;
            while vector < self.counts[which] {
                let fours = vector + 4 <= self.counts[which];
                let (group, units) = if which == 0 {
                    let loads = tile.span_columns.min(tile.columns).div_ceil(per);
                    let group = if loads > 32 { BLOCK as usize } else { loads.next_power_of_two() };
                    let rows = if fours { 4 } else { 8 };
                    (group, tile.rows.div_ceil(rows) * tile.spans())
                } else {
                    (1, tile.columns.div_ceil(per) * tile.bands())
                };
                let kernel = 2 * which + usize::from(fours);
                calls.push(self.call(kernel, which, units * group, (vector, group)));
                vector += if fours { 4 } else { 1 };
            }
        }
        calls
    }

    /// The kernel that adds the sums to the results.
    pub fn add(&self) -> Vec<Call> {
        let results = [self.tile.rows, self.tile.columns];
        let wanted = (0..2).filter(|which| self.counts[*which] > 0);
        let add = |which| self.call(4 + which, which, results[which] * self.counts[which], (0, 0));
        wanted.map(add).collect()
    }

    fn call(
        &self,
        kernel: usize,
        which: usize,
        threads: usize,
        (vector, group): (usize, usize),
    ) -> Call {
        let (tile, x, y) = (&self.tile, self.x[which], self.y[which]);
        let args = [
            self.base, self.row_bytes, tile.rows as u64, tile.columns as u64,
            tile.first_row as u64, tile.first_column as u64, tile.band_rows as u64,
            tile.span_columns as u64, x.0, x.1, vector as u64, self.counts[which] as u64,
            self.sums[which], y.0, y.1, group as u64,
        ];
        Call { kernel, threads, args }
    }
}
