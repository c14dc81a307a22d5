//! Pipelines as nodes of a plan.
//!
//! ```text
//! PipelineExec::execute ──► child plans' batches (async) ─┐
//!                                                         ▼
//!                                  a thread: Runner::run (builds, race, merge)
//!                                                         │
//!                                     batches ◄── channel ┘   dropping the stream cancels
//! ```

mod fallback;
mod plan;
mod stream;

pub use plan::PipelineExec;
