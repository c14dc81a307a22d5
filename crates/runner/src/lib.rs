//! Runs an [`ir::Program`](headrace_ir::Program) over tables, and says what it did.
//!
//! # The data that flows through
//!
//! ```text
//! Program + tables + rows of child plans + settings
//!      │
//!      ▼
//! builds (cached, or made by pipelines of their own, several at a time)
//!      │
//!      ▼
//! a feed of the streamed table ─► bind ─► race on cpu or cuda ─► merge ─► batches to `emit`
//!                                                                   └───► RunReport
//! ```
//!
//! A door (a SQL planner, another database's executor, a service) makes the program and hands it
//! to [`Runner::run`] on a plain thread of its own; the call returns when the last row was emitted,
//! or with a [`RunError`] whose [`ErrorClass`] tells what kind of failure it was. A
//! [`CancelToken`](headrace_flow::CancelToken) ends it early.
//!
//! A program with distinct calls is two runs at once: the groups of the first are batches of the second
//! (`distinct`).
//!
//! A build that does not fit memory is divided by its keys into temporary files, the rows that probe it
//! with it, and the join is one of pairs of partitions (`partitioned`, `parts`).
//!
//! A program whose sink has partial output may run over parts of a table, on any machine; what the
//! runs emit is merged by [`Runner::merge`].
//!
//! - [`Runner`]: what runs share: caches, mappings, devices, the division of memory.
//! - [`StreamTable`]: a table of any format, with what is kept of it between runs; or record batches
//!   of another producer (`headrace_format::batches::BatchTable`), which come once.
//! - [`Settings`]: which processor, which fallback, which way of reading, how many threads.
//! - `cpu` and `cuda` run one [`task`] each; everything that depends on the processor is there.
//!
//! # What this crate must never know
//!
//! SQL, DataFusion, PostgreSQL, tokio, and which door is asking.

#![warn(missing_docs)]

mod bounds;
mod build_cache;
mod builds;
mod chunks;
mod cpu;
mod cuda;
mod distinct;
mod error;
mod gpus;
mod memory;
mod merge;
mod pages;
mod partitioned;
mod parts;
mod placement;
mod prepared;
mod progress;
mod report;
mod run;
mod runner;
mod segments;
mod settings;
mod share;
mod table;
mod task;

pub use headrace_pipeline::partial::PartialMerge;

pub use bounds::{Interval, bounds};
pub use error::{ErrorClass, RunError};
pub use memory::MemorySplit;
pub use progress::{Given, Progress};
pub use report::RunReport;
pub use run::Request;
pub use runner::{Runner, RunnerOptions};
pub use settings::{Devices, Fallback, Processor, SettingError, Settings, parse_access};
pub use share::ThreadShare;
pub use table::StreamTable;
pub use task::Emit;
