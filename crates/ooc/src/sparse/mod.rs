//! The product of a sparse matrix in files with vectors, and what graphs are asked by repeated products: ranks, levels.
//!
//! ```text
//!  a folder or .npz (CSR) ─► Csr: arrays, checked shapes ─► Plan: cuts ─► Feed ─► Race ─┬─ cores: terms, then sums ─┐
//!   indptr indices data                                                                 └─ GPU: the same            │
//!                                                                                                                   ▼
//!  x, in memory, binary64 ──────────► both                y, in memory ◄── heads, in order ◄── y[row], head[tile] ◄─┘
//! ```
//!
//! **Format.** A matrix in compressed sparse rows is three arrays, as SciPy has them: `indptr` (one more than rows; row
//! `r` has the entries `indptr[r]..indptr[r + 1]`), `indices` (the column of each entry) and `data` (its value). They
//! are `.npy` files of these names in a folder, or members of these names in a `.npz` that is not compressed
//! (`save_npz(.., compressed=False)`): a folder is an unpacked `.npz`. Members are streamed where they lie, at any
//! alignment. `indptr` and `indices` are i32, u32, i64 or u64; `data` is f32 or f64, and without it every value is 1.
//! `shape` gives rows and columns, and without it the matrix is square. Columns of a row may have any order, and repeat:
//! their values add up.
//!
//! **Graphs.** An entry in row `r` and column `c` is an edge from `c` to `r`: a row lists who points at it, so a product
//! pulls from there. A graph that is stored by its outgoing edges is transposed first (`A.T.tocsr()`).
//!
//! **The order of additions.** Entries are counted through the file, and each 512 of them are a tile. A term is the
//! product of a value and its factor, rounded to binary64. A row's terms within a tile are added in eight lanes, the
//! `i`-th of them in lane `i % 8`, then the lanes pairwise (4 apart, 2, 1); a row's tiles are added from the first to the
//! last. Nothing else is ever added, so the result has the same bits for any number of threads, any chunk size, any order
//! in which chunks arrive, and on a GPU. With `n` entries of a row and `u = 2^-53` it differs from the exact one by no
//! more than `g u / (1 - g u)` times the sum of the terms' magnitudes, where `g = min(n, n / 512 + 70) + 1`. Infinities
//! and NaN propagate as in IEEE 754.
//!
//! **No order of arrival.** A tile's first row may have begun before it: that row's sum within the tile is the tile's
//! head. A row that begins in a tile puts its first sum into `y`, and each has one writer. When the last chunk is done
//! the heads are added to `y`, tile after tile. So no chunk waits for another.
//!
//! **Checks.** `indptr` begins with 0, never decreases and ends with the number of entries; every index is below the
//! number of columns. All of it is checked in every pass, before a value is used as an address: what is wrong is an
//! error with the file and the place. (Levels look at few entries of a row behind the one that settles it, or at none.)
//!
//! **Memory.** x and y lie in memory, 8 bytes for each column and row and vector, reserved before they are allocated;
//! heads take 16 bytes for each 512 entries. Matrices do not fit there and need not: chunks of them stream by. A row that
//! is longer than a chunk is cut between tiles.
//!
//! | module | what it is |
//! |---|---|
//! | `archive` | members of a `.npz`, where they lie |
//! | `csr` | the arrays of a matrix, and their shapes |
//! | `plan` | cuts between chunks: entries or rows |
//! | `chunk`, `faults` | the bytes of a chunk as rows and entries, checked; what was wrong, in words |
//! | `sums` | y and the heads |
//! | `product` | terms and sums on the cores |
//! | `device`, `launches` | the same on a GPU |
//! | `device_ranks`, `device_search` | ranks, and levels, that stay there from pass to pass |
//! | `pass` | races over a matrix |
//! | `degrees`, `search` | entries of each column; the next level |
//! | `multiply`, `ranks`, `levels` | the operators: [`multiply`], [`ranks`], [`levels`] |
//!
//! This module must never know: where a graph comes from, what its vertices are called. The product with the transposed
//! matrix is left out: it scatters, and an order of its additions would cost a sort.

mod archive;
mod chunk;
mod csr;
mod degrees;
mod device;
mod device_ranks;
mod device_search;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod emulated;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod emulated_search;
mod faults;
mod launches;
mod levels;
mod multiply;
mod pass;
mod plan;
mod product;
mod ranks;
mod search;
mod sums;

pub(crate) use csr::Csr;
pub use csr::CsrFile;
pub use levels::{LevelsJob, LevelsReport, levels};
pub use multiply::{SpmvJob, SpmvReport, multiply};
pub(crate) use pass::Passes;
pub use ranks::{RanksIteration, RanksJob, RanksReport, ranks};
pub use search::Level;
pub(crate) use sums::Sums;

use crate::NumberType;

/// The source of the kernels for arrays of these types, for tests that compile all kernels.
pub fn kernels(indptr: NumberType, indices: NumberType, data: Option<NumberType>) -> String {
    launches::source(indptr, indices, data)
}
