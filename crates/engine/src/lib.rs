//! The façade of Headrace: sessions, tables, queries.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use headrace_engine::{Session, SessionOptions};
//!
//! let session = Session::new(SessionOptions::default())?;
//! session.register_path("/data/ssb".as_ref())?;
//! let (batches, report) = session
//!     .sql("select d_year, sum(lo_revenue) from lineorder, date \
//!           where lo_orderdate = d_datekey group by d_year")
//!     .await?
//!     .collect()
//!     .await?;
//! println!("{} rows, {:.1} ms on {}", report.rows, report.wall_ms, report.processor);
//! # drop(batches); Ok(()) }
//! ```
//!
//! # The data that flows through
//!
//! ```text
//! SQL ─DataFusion─► logical plan ─overflow─► checked arithmetic ─DataFusion─► physical plan
//!                                                                                │
//!       fragments over Headrace tables ◄──────────── rule ────────────────────────┤
//!            │ ir::Program                                                       │ the rest
//!            ▼                                                                   ▼
//!       exec::PipelineExec ─► runner: builds, race on cpu or cuda ──batches──► DataFusion's
//!                                                                            operators
//! ```
//!
//! - [`catalog`]: Arrow files as tables with statistics; what a folder holds.
//! - [`copy`]: what statements write: whole or not at all.
//! - [`partitioned`]: Arrow files in folders that values of columns name.
//! - [`scan`]: the planner's own scan of such a table.
//! - [`overflow`]: integer and decimal arithmetic fails instead of wrapping, whatever runs it.
//! - [`rule`]: which fragments become pipelines, and why others do not.
//! - [`failure`]: why a statement has no answer, for every door.
//! - [`exec`]: pipelines as nodes of a plan; the runner runs them.
//! - [`functions`]: SQL functions that the planner lacks, or means otherwise.
//! - [`sql`]: what users of other databases write, in the words of the planner.
//! - `fixes`: faults of DataFusion and its parser, a file each, with a canary that tells when it can go.
//! - `table_calls`: functions of whole tables in CUDA, in FROM.
//! - `planner_rules`: DataFusion's rules for plans, and ours among them.
//! - [`report`]: what a query did.
//!
//! # Settings
//!
//! By [`SessionOptions`] or `SET headrace.<name> = '<value>'`; see [`Settings`].
//!
//! `processor`: `auto` (CUDA where there is a GPU and it takes the pipeline, else the CPU),
//! `cpu`, `cuda`, `off` (no pipelines: the planner's own plan, the baseline).
//! `fallback = forbid`: a query fails unless every scan of a Headrace table is inside a
//! pipeline that runs on the wanted processor.
//!
//! # What this crate must never know
//!
//! Who asks: shells, bindings, servers. Readers of DataFusion's types are welcome to
//! [`Session::context`].
//!
//! # Building
//!
//! Tests and program share one build of DataFusion: the manifest asks for the features that the tests' libraries
//! and the line editor of `cli` ask for.

pub mod catalog;
pub mod config;
pub mod copy;
mod copy_beside;
mod copy_plan;
pub mod exec;
pub mod failure;
pub mod functions;
pub mod overflow;
pub mod partitioned;
pub mod report;
mod residence;
pub mod rule;
pub mod scan;
pub mod sql;
pub mod wording;

mod altered;
mod apart;
mod cuda_functions;
mod cuda_tables;
mod error;
mod explain;
mod fixes;
mod floats;
mod folder_values;
mod held_tables;
mod home;
mod home_changes;
mod home_folder;
mod kept_views;
mod limits;
mod opened;
mod packed;
mod panics;
mod plan_cache;
mod planner_memory;
mod planner_rules;
mod plans;
mod schemas;
mod semantics;
mod session;
mod strict;
mod table_calls;
mod view_files;

pub use fixes::deep_expressions::OnLargeStack;
pub use headrace_flow::{AccessPath, Trace};
pub use headrace_runner::{
    Fallback, GpuService, MemorySplit, Processor, RunReport, RunnerOptions, SettingError, Settings,
    parse_access,
};
pub use panics::{fault, silence_panics};
pub use report::{PipelineShare, QueryProgress, QueryReport};
pub use schemas::PUBLIC;
pub use semantics::moment_texts::{is_meant as is_moment, texts as moment_texts};
pub use session::{GivenTables, Query, Session, SessionOptions};
pub use sql::cuda_function::NewCudaFunction;
