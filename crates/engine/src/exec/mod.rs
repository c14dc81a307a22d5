//! Pipelines, sorts of their rows, and calls of functions of tables, as nodes of a plan.
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
mod table_call;

pub use order::OrderExec;
pub use output::Output;
pub use plan::PipelineExec;
pub use stream::conform;
pub use table_call::TableCallExec;
