//! The out-of-core operators: thin doors over `headrace_ooc`.

mod eigen;
mod generate;
mod matvec;
mod run;
mod sets;
mod sort;
mod sparse;

pub use eigen::{EigenArgs, eigen};
pub use generate::{DEFAULT_SEED, GenerateCommand, generate};
pub use matvec::{MatvecArgs, matvec};
pub use sets::{FencesArgs, SetArgs, fences, set};
pub use sort::{SortArgs, sort};
pub use sparse::{BfsArgs, PagerankArgs, SpmvArgs, bfs, pagerank, spmv};
