//! The two processors of the pipeline IR.
//!
//! # The data that flows through
//!
//! ```text
//! ir::Program ──bind──► Bound ──► cpu::CpuProgram ──worker──► state ─┐
//!   + SourceInfo                                                     ├─merge─► state ─finish─► Output
//!   + BuildTables             └─► cuda::CudaProgram ─kernel─► state ─┘
//! ```
//!
//! 1. [`bind`] lowers a pipeline for the table and the builds at hand: dictionary predicates
//!    become lookup tables over codes, group keys with known ranges become digits of a dense
//!    group number, payloads become narrow arrays, steps are ordered by how many rows they
//!    are expected to remove. Everything that both processors must agree on is decided here,
//!    once.
//! 2. A processor takes segments (row ranges of the streamed table, see [`segment`]) and folds
//!    them into partial state ([`state`]). The CPU processor does so with one worker a core
//!    over cache-sized batches; the CUDA processor with one generated kernel.
//! 3. States merge in any order and finish into Arrow record batches, or into a
//!    [`build::BuildTable`] that other pipelines probe. As data they are [`partial`] states,
//!    which travel between processors and processes, and wait elsewhere when memory is short.
//!
//! What a processor cannot do it says when it is compiled, as a [`WhyNot`]; it never does
//! something else instead.
//!
//! # What this crate must never know
//!
//! DataFusion, PostgreSQL, files and their formats. It depends on Arrow's arrays because
//! results and dictionaries are Arrow arrays, and on `flow` and `gpu` to be fed.

pub mod bind;
pub mod bound;
pub mod build;
pub mod cpu;
pub mod cuda;
pub mod memory;
pub mod partial;
pub mod partition;
pub mod segment;
pub mod state;

pub mod column;

mod calendar;
mod column_in;
mod error;
mod function;

pub use bound::Bound;
pub use build::{BuildOptions, BuildTable};
pub use column::{arrow_field, arrow_type};
pub use error::{ExecError, WhyNot};
pub use segment::{ColumnView, Dictionary, SegmentView, SourceColumn, SourceInfo};
