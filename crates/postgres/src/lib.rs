//! `CREATE EXTENSION headrace`: the door to Headrace that a PostgreSQL server opens.
//!
//! # The data that flows through
//!
//! ```text
//! a grouping, a table, all tables joined ──planner──► is every part of it something a pipeline can do?
//!      │ no: why_not, shown by EXPLAIN VERBOSE          │ yes
//!      ▼                                                 ▼
//! PostgreSQL's own paths ◄───────────────── a path: Custom Scan (Headrace)
//!                                             ir::Program + table + child plans + outputs, as JSON
//! executor:
//!   child plans ──rows──► record batches ─────────────────────────┐
//!   visibility map + shared buffers ──► which blocks to read directly │
//!   segment files ──race──► format::heap on the workers ──────────┼──► runner ──► groups or rows ──► tuples
//!   all other blocks ──snapshot, this thread──► pages, batches ───┘
//! ```
//!
//! - [`planner`]: the hooks, the shape of the query, the path and its cost.
//! - [`translate`]: PostgreSQL's expressions, types and aggregates in the words of `ir`, by OID, or the
//!   reason why not.
//! - [`plan`]: what travels from the planner to the executor.
//! - [`executor`]: the one node. It holds PostgreSQL's own plan for the same rows as its first child:
//!   whatever a pipeline cannot finish (a value that Arrow cannot hold, an overflow, too little memory)
//!   is answered by that plan, so that no query fails that PostgreSQL can answer, and errors are
//!   PostgreSQL's own.
//!   It runs pipelines on threads of its own, or hands them to the one process that owns the GPUs
//!   (`headrace_service`), which then asks it for what only a backend knows.
//! - [`blocks`]: which blocks may be read beside the server, and how that is proven.
//! - [`foreign`]: Arrow files as foreign tables, which INSERT adds to. [`residence`]: those that a GPU keeps.
//! - [`cuda_language`]: functions in CUDA, which the service compiles into its kernels.
//! - [`version`]: everything that differs between PostgreSQL's major versions.
//!
//! # The threads' rules
//!
//! PostgreSQL's functions are called by the backend's own thread alone. Workers block every signal,
//! touch nothing of the server but its files and pages of the visibility map that the backend has
//! pinned for them, and are joined before the backend leaves the node, by whatever way: a normal end,
//! an error that unwinds, or the exit of the process.
//!
//! # What this crate must never know
//!
//! DataFusion, tokio, CUDA (a backend never makes a context), the other doors.

mod blocks;
mod cuda_function;
mod cuda_language;
mod datum;
mod devices;
mod executor;
mod explain;
mod foreign;
mod kept;
mod nodes;
mod plan;
mod planner;
mod preload;
mod residence;
mod settings;
mod stat;
mod translate;
mod version;

pgrx::pg_module_magic!();

/// Called by the server when it has loaded the library.
#[pgrx::pg_guard]
pub extern "C-unwind" fn _PG_init() {
    no_backtraces();
    settings::define();
    preload::install();
    // SAFETY: the backend's thread, once a process: the server calls this before anything else here.
    unsafe {
        executor::register();
        planner::install();
        residence::install();
        explain::install();
    }
}

/// The server's own errors pass through Rust on their way, and would show it to users as a backtrace
/// where the server was started with RUST_BACKTRACE.
fn no_backtraces() {
    if std::env::var_os("RUST_LIB_BACKTRACE").is_none() {
        // SAFETY: the backend has no other thread yet.
        unsafe { std::env::set_var("RUST_LIB_BACKTRACE", "0") };
    }
}

/// The version of the library that is loaded.
#[pgrx::pg_extern(immutable, parallel_safe)]
fn library_version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}
