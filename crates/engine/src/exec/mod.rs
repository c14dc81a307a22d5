//! Pipelines, and sorts of their rows, as nodes of a plan.
//!
//! ```text
//! PipelineExec::execute ──► child plans' batches (async) ─┐
//!                                                         ▼
//!                                  a thread: Runner::run (builds, race, merge)
//!                                                         │
//!                                     batches ◄── channel ┘   dropping the stream cancels
//! ```

mod again;
mod fallback;
mod order;
mod output;
mod plan;
mod stream;
mod unclaimed;

pub use again::{AgainExec, NestedLoopsInLittleMemory};
pub use order::OrderExec;
pub use output::{Output, totals_of_nothing};
pub use plan::PipelineExec;
pub use unclaimed::FalseConstants;
