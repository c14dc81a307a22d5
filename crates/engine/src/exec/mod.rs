//! Running pipelines: [`PipelineExec`] in a plan, and behind it the [`Engine`] of a session.
//!
//! ```text
//! PipelineExec::execute ──► child plans' batches (async) ─┐
//!                                                         ▼
//!                          a thread: builds ──► chunks ──► bind ──► race ──► finish
//!                                                         │
//!                                     batches ◄── channel ┘   dropping the stream cancels
//! ```
//!
//! Everything that depends on the processor is in `cpu` and `cuda`; `run` asks one of them to
//! run a [`Task`] and knows no more of it.

mod bounds;
mod builds;
mod chunks;
mod cpu;
mod cuda;
mod engine;
mod fallback;
mod plan;
mod run;
mod stream;
mod task;

pub use engine::{Engine, EngineOptions, MemorySplit};
pub use plan::PipelineExec;
pub use task::RunError;
