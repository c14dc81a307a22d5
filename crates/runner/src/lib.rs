//! Runs an [`ir::Program`](headrace_ir::Program) over tables, and says what it did.
//!
//! # The data that flows through
//!
//! ```text
//! Program + tables and batches + settings
//!      │ lowered: parameters, distinct calls, grouping sets
//!      ▼
//! a graph of stages ─► those that are ready, several at a time ─► results: builds, partitions
//!      │                                                             │
//!      ▼                                                             ▼
//! the last stage: a feed of its input ─► bind ─► race on cpu or cuda ─► merge ─► batches to `emit`
//!                                                                   └───► RunReport
//! ```
//!
//! - A stage that ends in a build or in partitions is made, and its result is kept for the run
//!   ([`graph`]); builds are kept for later runs, too ([`build_cache`]).
//! - A stage that ends in rows or groups runs while the stage that reads it does, on threads of its own,
//!   with a bounded queue between them. If a GPU is left with all of its groups, the reader runs over them
//!   there ([`over_stage`]).
//! - The rows of a stage of window functions are sorted before they go on ([`windows`]).
//! - A build that does not fit memory changes the graph: the build and the rows that probe it become
//!   partitions, joined pair by pair ([`partitioned`], [`parts`]).
//!
//! A door (a SQL planner, another database's executor, a service) makes the program and hands it
//! to [`Runner::run`] on a plain thread of its own; the call returns when the last row was emitted,
//! or with a [`RunError`] whose [`ErrorClass`] tells what kind of failure it was. A
//! [`CancelToken`](headrace_flow::CancelToken) ends it early.
//!
//! A program whose sink has partial output may run over parts of a table, on any machine; what the
//! runs emit is merged by [`Runner::merge`].
//!
//! - [`Runner`]: what runs share: caches, mappings, devices, the division of memory.
//! - [`StreamTable`]: a table of any format, with what is kept of it between runs; or record batches
//!   of another producer (`headrace_format::batches::BatchTable`), which come once.
//! - [`Settings`]: which processor, which fallback, which way of reading, how many threads.
//! - `cpu` and `cuda` run one [`task`] each; everything that depends on the processor is there.
//! - `placement` chooses between them; `rehearse` runs programs again on a GPU behind the queries, so that it is ready.
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
mod decoded;
mod error;
mod functions;
mod gpus;
mod graph;
mod held;
mod known;
mod memory;
mod merge;
mod near;
mod over_stage;
mod pages;
mod partitioned;
mod parts;
mod placement;
mod prepared;
mod progress;
mod rehearsal;
mod rehearse;
mod report;
mod run;
mod runner;
mod segments;
mod settings;
mod share;
mod shared;
mod table;
mod table_calls;
mod task;
mod windows;

pub use headrace_cuda::CalledTable;
pub use headrace_pipeline::partial::PartialMerge;

pub use bounds::{Interval, bounds};
pub use error::{ErrorClass, RunError};
pub use functions::{check_function, check_table_function};
pub use held::{HeldColumn, HeldColumns, MappedPart};
pub use known::KnownProgram;
pub use memory::MemorySplit;
pub use merge::partial_schema;
pub use progress::{Given, Progress};
pub use report::{GpuBytes, Place, RunReport, Served, StageReport, StepRows};
pub use run::{Request, on_cpu};
pub use runner::{Runner, RunnerOptions};
pub use settings::{
    Devices, Fallback, GpuService, Processor, SettingError, Settings, parse_access, parse_gpu_for,
};
pub use share::ThreadShare;
pub use table::{Remarks, StreamTable};
pub use task::Emit;
pub use windows::check_windows;
