//! The shapes and parameters of the kernels. Nothing here needs a GPU.

use super::csr::Csr;
use super::plan::{Piece, TILE};
use crate::NumberType;

/// Threads of a block.
pub(super) const BLOCK: u32 = 128;

/// Names of the kernels.
pub(super) const KERNELS: [&str; 5] = ["check", "multiply", "add_heads", "rank", "search"];

/// Vertices whose ranks a block makes.
pub(super) const RANKED: usize = 1 << 14;

/// The source of the kernels for arrays of these types; values may be absent.
pub(crate) fn source(indptr: NumberType, indices: NumberType, data: Option<NumberType>) -> String {
    let bits = |number: NumberType| number.bytes() * 8;
    format!(
        "#define START_BITS {}\n#define INDEX_BITS {}\n#define VALUE_BITS {}\n{}{}",
        bits(indptr),
        bits(indices),
        data.map_or(0, bits),
        include_str!("kernels/sparse.cu"),
        include_str!("kernels/search.cu")
    )
}

/// A launch of so many blocks.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Call {
    /// Which of [`KERNELS`].
    pub kernel: usize,
    pub blocks: usize,
    /// The members of `Params`, `RankParams` or `SearchParams`, in order.
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

/// What a search for levels works on: addresses.
#[derive(Debug, Clone, Copy)]
pub(super) struct SearchMemory {
    pub levels: u64,
    /// Bits of vertices: the level before, and the next one.
    pub frontier: u64,
    pub next: u64,
    /// A number for each chunk of the matrix.
    pub open: u64,
    /// Two numbers.
    pub counts: u64,
    /// As those of [`Memory`].
    pub faults: u64,
}

impl SearchMemory {
    /// The rows of a chunk that are in a level.
    pub fn search(&self, csr: &Csr, piece: Piece, addresses: &[u64], level: u64) -> Vec<Call> {
        let SearchMemory { levels, frontier, next, open, counts, faults } = *self;
        let open = open + piece.chunk as u64 * 8;
        let rest = [levels, frontier, next, level, open, counts, 0, faults];
        of_tiles(4, csr, piece, addresses, rest)
    }
}

/// The check of a chunk's rows, then a kernel over its tiles.
fn of_tiles(
    kernel: usize,
    csr: &Csr,
    piece: Piece,
    addresses: &[u64],
    rest: [u64; 8],
) -> Vec<Call> {
    let Piece { from, to, .. } = piece;
    let args = args(csr, piece, addresses, rest);
    let rows = to.row - from.row + 1;
    let tiles = if from.entry < to.entry { to.entry.div_ceil(TILE) - from.entry / TILE } else { 0 };
    let check = Call { kernel: 0, blocks: rows.div_ceil(BLOCK as usize), args };
    vec![check, Call { kernel, blocks: tiles, args }]
}

/// What every kernel on a chunk gets, and the rest.
fn args(csr: &Csr, Piece { from, to, .. }: Piece, addresses: &[u64], rest: [u64; 8]) -> [u64; 16] {
    let at = |array: usize| addresses.get(array).copied().unwrap_or(0);
    let rows = (to.row - from.row + 1) as u64;
    let (first_row, begin, end) = (from.row as u64, from.entry as u64, to.entry as u64);
    let mut args = [0; 16];
    args[..8].copy_from_slice(&[at(0), at(1), at(2), first_row, rows, begin, end, csr.index_end()]);
    args[8..].copy_from_slice(&rest);
    args
}

impl Memory {
    /// The product of a chunk, whose arrays lie at these addresses.
    pub fn multiply(&self, csr: &Csr, piece: Piece, addresses: &[u64]) -> Vec<Call> {
        of_tiles(1, csr, piece, addresses, self.rest(csr))
    }

    /// The heads, after the last chunk.
    pub fn add_heads(&self, csr: &Csr) -> Call {
        let mut all = Piece::default();
        all.to.entry = csr.entries;
        let blocks = csr.entries.div_ceil(TILE).div_ceil(BLOCK as usize);
        Call { kernel: 2, blocks, args: args(csr, all, &[], self.rest(csr)) }
    }

    fn rest(&self, csr: &Csr) -> [u64; 8] {
        [
            self.x, csr.columns as u64, self.vectors as u64, self.y, csr.rows as u64,
            self.head_rows, self.heads, self.faults,
        ]
    }
}
