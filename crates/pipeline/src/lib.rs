//! The pipeline IR, bound to a table, and its CPU processor.
//!
//! # The data that flows through
//!
//! ```text
//! ir::Program ──bind──► Bound ──► cpu::CpuProgram ──worker──► state ─┐
//!   + SourceInfo                                                     ├─merge─► state ─finish─► Output
//!   + BuildTables             └─► another processor ────────► state ─┘
//! ```
//!
//! 1. [`bind`] lowers a pipeline for the table and the builds at hand: dictionary predicates
//!    become lookup tables over codes, group keys with known ranges become digits of a dense
//!    group number, payloads become narrow arrays, steps are ordered by how many rows they
//!    are expected to remove. Everything that all processors must agree on is decided here,
//!    once.
//! 2. A processor takes segments (row ranges of the streamed table, see [`headrace_columns::segment`]) and folds
//!    them into partial state ([`state`]). The CPU processor does so with one worker a core
//!    over cache-sized batches. The CUDA processor is a crate of its own, `headrace-cuda`.
//! 3. States merge in any order and finish into Arrow record batches, or into a
//!    [`build::BuildTable`] that other pipelines probe. As data they are [`partial`] states,
//!    which travel between processors and processes, and wait elsewhere when memory is short.
//!    Hashed groups that another processor made become [`group_states`].
//!
//! What a processor cannot do it says when it is compiled, as a [`WhyNot`]; it never does
//! something else instead.
//!
//! # What this crate must never know
//!
//! DataFusion, PostgreSQL, GPUs, files and their formats; how single values are computed, which is the
//! work of `headrace-columns`. It depends on Arrow's arrays because results and dictionaries are Arrow
//! arrays, and on `flow` to be cancelled.

pub mod bind;
pub mod bound;
pub mod build;
pub mod cpu;
pub mod group_states;
pub mod partial;
pub mod partition;
pub mod state;
pub mod windows;

mod distinct;
mod error;
mod function;
mod source;

pub use bind::check_pattern;
pub use bound::Bound;
pub use build::{BuildOptions, BuildTable};
pub use error::{ExecError, WhyNot};
pub use source::{SourceColumn, SourceInfo};
