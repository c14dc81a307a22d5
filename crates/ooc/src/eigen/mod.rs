//! The leading eigenpairs of a symmetric matrix in files, by block power iteration: several vectors at once, so that one pass
//! over the files serves all of them.
//!
//! ```text
//!  Q: n x p, orthonormal, in memory ─► W = A Q: one pass over the files ─► H = Qᵀ W, p x p ─► its eigenpairs (T, values)
//!  ▲                                   (crate::sparse, crate::matvec)                                     │
//!  └── an orthonormal basis of W T ◄── residuals |W T - Q T values|: small enough? ◄──────────────────────┘
//! ```
//!
//! `p` is more than the `k` wanted pairs: a pair's error shrinks by `|value p+1| / |its value|` an iteration, however close
//! the wanted ones lie to each other, or opposite. The residual of a pair bounds the distance of its value to the nearest
//! eigenvalue, whatever the vectors were begun with.
//!
//! **Symmetric** matrices only: values and vectors of others are complex, and their vectors not orthogonal. The first products
//! with vectors without pattern tell: of a symmetric matrix `xᵀ (A y) = yᵀ (A x)`, of any other that holds for none of them,
//! but by a chance that has no width. What is stored in f32 may differ in its last bits.
//!
//! **The same bits** for any number of threads, any chunk size and, of a sparse matrix, on a GPU: the products have that, and
//! all sums here are of strips of rows, in order. Basis and small eigenproblem are the host's on any processor: a GPU gets
//! the block and gives the product back each time.
//!
//! **Memory**: 16 bytes a row and vector of the block, and what the product takes.
//!
//! | module | what it is |
//! |---|---|
//! | `job` | what is asked and answered |
//! | `product` | sparse and dense matrices behind one trait |
//! | `block` | products, rotations and orthonormal bases of long vectors |
//! | `small` | all eigenpairs of a small matrix |
//! | `iterate` | the operator: [`eigen`] |

mod block;
mod iterate;
mod job;
mod product;
mod small;

pub use iterate::{PAIRS_MAX, eigen};
pub use job::{AnyMatrix, EigenIteration, EigenJob, EigenReport};
