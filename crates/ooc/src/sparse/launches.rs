//! The shapes and parameters of the kernels. Nothing here needs a GPU.

use super::csr::Csr;
use super::plan::{Piece, TILE};
use crate::NumberType;

/// Threads of a block.
pub(super) const BLOCK: u32 = 128;

/// Names of the kernels.
pub(super) const KERNELS: [&str; 4] = ["check", "multiply", "add_heads", "rank"];

/// Vertices whose ranks a block makes.
pub(super) const RANKED: usize = 1 << 14;

/// The source of the kernels for arrays of these types; values may be absent.
pub(crate) fn source(indptr: NumberType, indices: NumberType, data: Option<NumberType>) -> String {
    let bits = |number: NumberType| number.bytes() * 8;
    format!(
        "#define START_BITS {}\n#define INDEX_BITS {}\n#define VALUE_BITS {}\n{}",
        bits(indptr),
        bits(indices),
        data.map_or(0, bits),
        include_str!("kernels/sparse.cu")
    )
}

/// A launch of so many blocks.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Call {
    /// Which of [`KERNELS`].
    pub kernel: usize,
    pub blocks: usize,
    /// The members of `Params`, or of `RankParams`, in order.
    pub args: [u64; 16],
}

/// What the kernels of a pass work on: addresses, and lengths.
#[derive(Debug, Clone, Copy)]
pub(super) struct Memory {
    pub x: u64,
    pub y: u64,
    pub vectors: usize,
    /// For each tile of the matrix.
    pub head_rows: u64,
    pub heads: u64,
    /// Two numbers, of which no bit is unset until something is wrong.
    pub faults: u64,
}

/// What the ranks of a graph's vertices are made of: addresses.
#[derive(Debug, Clone, Copy)]
pub(super) struct RankMemory {
    pub ranks: u64,
    pub degrees: u64,
    /// Two numbers for each block.
    pub sums: u64,
}

impl RankMemory {
    /// New ranks of as many vertices, from the product in `memory`, whose vector they then are.
    pub fn rank(&self, memory: &Memory, vertices: usize, (base, damping): (f64, f64)) -> Call {
        let (base, damping) = (base.to_bits(), damping.to_bits());
        let RankMemory { ranks, degrees, sums } = *self;
        let mut args = [0; 16];
        args[..8].copy_from_slice(&[
            memory.y, ranks, memory.x, degrees, vertices as u64, base, damping, sums,
        ]);
        Call { kernel: 3, blocks: vertices.div_ceil(RANKED), args }
    }
}

impl Memory {
    /// The product of a chunk, whose arrays lie at these addresses.
    pub fn multiply(&self, csr: &Csr, piece: Piece, addresses: &[u64]) -> Vec<Call> {
        let Piece { from, to, .. } = piece;
        let args = self.args(csr, piece, addresses);
        let rows = to.row - from.row + 1;
        let tiles =
            if from.entry < to.entry { to.entry.div_ceil(TILE) - from.entry / TILE } else { 0 };
        let check = Call { kernel: 0, blocks: rows.div_ceil(BLOCK as usize), args };
        vec![check, Call { kernel: 1, blocks: tiles, args }]
    }

    /// The heads, after the last chunk.
    pub fn add_heads(&self, csr: &Csr) -> Call {
        let mut all = Piece::default();
        all.to.entry = csr.entries;
        let blocks = csr.entries.div_ceil(TILE).div_ceil(BLOCK as usize);
        Call { kernel: 2, blocks, args: self.args(csr, all, &[]) }
    }

    fn args(&self, csr: &Csr, Piece { from, to, .. }: Piece, addresses: &[u64]) -> [u64; 16] {
        let at = |array: usize| addresses.get(array).copied().unwrap_or(0);
        let rows = (to.row - from.row + 1) as u64;
        [
            at(0),
            at(1),
            at(2),
            from.row as u64,
            rows,
            from.entry as u64,
            to.entry as u64,
            csr.index_end(),
            self.x,
            csr.columns as u64,
            self.vectors as u64,
            self.y,
            csr.rows as u64,
            self.head_rows,
            self.heads,
            self.faults,
        ]
    }
}
