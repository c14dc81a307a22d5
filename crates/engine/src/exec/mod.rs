//! Pipelines, and sorts of their rows, as nodes of a plan.
//!
//! ```text
//! PipelineExec::execute ──► child plans' batches (async) ─┐
//!                                                         ▼
//!                                  a thread: Runner::run (builds, race, merge)
//!                                                         │
//!                                     batches ◄── channel ┘   dropping the stream cancels
//! ```

mod fallback;
mod order;
mod output;
mod plan;
mod served;
mod stream;

pub use order::OrderExec;
pub use output::Output;
pub use plan::PipelineExec;
pub use stream::conform;
