//! Arrow files of the server as foreign tables.
//!
//! ```text
//! CREATE FOREIGN TABLE ... OPTIONS (path ...) ──► options: whose table, which paths, may it be read
//! paths ──► files: Arrow files, the values that folders `key=value` give, opened once a session
//! columns declared ──► types: is a file's column what its foreign table says
//! planner ──► plan: rows, cost, what is read ──► scan: record batches ──► tuples
//! INSERT, COPY ──► insert: tuples ──► a new Arrow file, hidden ──► pending: in its place at the commit
//! option `residence` ──► residence: columns that the GPU service keeps
//! ```
//!
//! Whatever is wrong with a file, or with what a foreign table says of it, is an error of the query that
//! names the file and the column: never a crash, and never rows that are not there.

mod analyze;
mod failure;
mod files;
mod import;
mod insert;
mod options;
mod partitions;
mod pending;
mod plan;
mod pushed;
mod scan;
mod streamed;
mod table;
mod types;

use pgrx::Internal;
use pgrx::pg_sys::{self, FdwRoutine, NodeTag};

pub use plan::read_cost;
pub use streamed::{Opened, Streamed, is_on_gpu, is_ours, opened};
pub use table::service_name;

/// What the server calls.
///
/// # Safety
/// The backend's thread.
#[pgrx::pg_extern(volatile)]
fn fdw_handler() -> Internal {
    // SAFETY: the backend's thread; the routine is the server's memory, as it wants it.
    let routine = unsafe {
        let routine = pg_sys::palloc0(size_of::<FdwRoutine>()).cast::<FdwRoutine>();
        (*routine).type_ = NodeTag::T_FdwRoutine;
        (*routine).GetForeignRelSize = Some(plan::rel_size);
        (*routine).GetForeignPaths = Some(plan::paths);
        (*routine).GetForeignPlan = Some(plan::plan);
        (*routine).BeginForeignScan = Some(scan::begin);
        (*routine).IterateForeignScan = Some(scan::next_tuple);
        (*routine).ReScanForeignScan = Some(scan::rescan);
        (*routine).EndForeignScan = Some(scan::end);
        (*routine).ExplainForeignScan = Some(scan::explain);
        (*routine).AnalyzeForeignTable = Some(analyze::analyze);
        (*routine).ImportForeignSchema = Some(import::import);
        (*routine).IsForeignRelUpdatable = Some(insert::events);
        (*routine).PlanForeignModify = Some(insert::plan);
        (*routine).BeginForeignModify = Some(insert::begin_modify);
        (*routine).BeginForeignInsert = Some(insert::begin);
        (*routine).ExecForeignInsert = Some(insert::insert);
        (*routine).EndForeignModify = Some(insert::end);
        (*routine).EndForeignInsert = Some(insert::end);
        routine
    };
    Internal::from(Some(pg_sys::Datum::from(routine)))
}
