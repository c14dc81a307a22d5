//! A run over the files of a foreign table.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use arrow_array::RecordBatch;
use headrace_ir::{Program, Scalar};
use headrace_runner::{RunReport, StreamTable};
use pgrx::pg_sys::{CustomScanState, List, Oid};

use super::job::{Job, Table, watched};
use super::run::{Given, Ran, Read};
use super::threads::LOOK_INTERVAL;
use crate::foreign::{self, Opened};
use crate::nodes::{WhyNot, why_not};
use crate::plan::Plan;
use crate::{datum::check_values, stat};

/// Runs a program over files, to its end.
pub(super) fn run(job: Job) -> Result<(RunReport, Vec<RecordBatch>), WhyNot> {
    // Dropped at the thread's end, whatever that is.
    let (over, is_over) = channel::<()>();
    let done = watched(job, over, || {
        while is_over.recv_timeout(LOOK_INTERVAL) == Err(RecvTimeoutError::Timeout) {
            pgrx::check_for_interrupts!();
        }
        Ok(())
    });
    let answered = done.map_err(|failure| WhyNot(failure.reason))?;
    Ok((answered.report, answered.batches))
}

/// The rows that a program brings of files.
///
/// # Safety
/// The backend's thread.
pub unsafe fn rows(
    program: Program,
    values: Vec<Scalar>,
    table: StreamTable,
) -> Result<(RunReport, Vec<RecordBatch>), WhyNot> {
    let outcome = run(Job { program, values, children: Vec::new(), table: Table::Own(table) });
    stat::count(outcome.is_ok(), None);
    let (report, batches) = outcome?;
    for array in batches.iter().flat_map(RecordBatch::columns) {
        check_values(array)?;
    }
    Ok((report, batches))
}

/// Runs a plan over files; conditions that the names of folders decide say over which.
pub(super) unsafe fn stream(
    node: *mut CustomScanState,
    plan: &Plan,
    clauses: *mut List,
    given: Given,
    ran: &mut Option<Ran>,
) -> Result<Vec<RecordBatch>, WhyNot> {
    let (estate, context) = ((*node).ss.ps.state, (*node).ss.ps.ps_ExprContext);
    let mut program = plan.program.clone();
    program.answer.sink.set_limit(given.limit);
    let Some(part) = plan.parts.first() else { return why_not("a plan without a table") };
    let (table, wanted) = (Oid::from(part.table), &part.attributes);
    let opened = foreign::opened(table, wanted, clauses, program, estate, context)?;
    let Opened { table, program, files, ruled_out_files } = opened;
    let Given { values, children, .. } = given;
    let outcome = run(Job { program, values, children, table: Table::Own(table) });
    let report = outcome.as_ref().ok().map(|(report, _)| report.clone());
    let read = Read::Files { files, ruled_out: ruled_out_files };
    let why_not_service = Some("foreign tables are streamed by the session itself".to_string());
    *ran = Some(Ran {
        report,
        read,
        served: None,
        why_not_service,
        service_failed: false,
        wall: Duration::ZERO,
    });
    outcome.map(|(_, batches)| batches)
}
