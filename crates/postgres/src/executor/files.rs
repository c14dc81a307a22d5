//! A run over the files of a foreign table.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use arrow_array::RecordBatch;
use headrace_ir::{Program, Scalar};
use headrace_runner::{RunReport, StreamTable};
use headrace_service::protocol::Files;
use pgrx::pg_sys::{CustomScanState, List, Oid};

use super::job::{Answered, Failure, Job, Table, watched};
use super::run::{Given, Ran, Read};
use super::service;
use super::threads::LOOK_INTERVAL;
use crate::foreign::{self, Opened};
use crate::nodes::{WhyNot, why_not};
use crate::plan::Plan;
use crate::settings::{self, Fallback};
use crate::{datum::check_values, stat};

/// Runs a program over files, to its end.
fn run(job: Job) -> Result<Answered, Failure> {
    // Dropped at the thread's end, whatever that is.
    let (over, is_over) = channel::<()>();
    watched(job, over, || {
        while is_over.recv_timeout(LOOK_INTERVAL) == Err(RecvTimeoutError::Timeout) {
            pgrx::check_for_interrupts!();
        }
        Ok(())
    })
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
    let Answered { report, batches, .. } = outcome.map_err(|failure| WhyNot(failure.reason))?;
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
    somewhere(opened, given, ran).map_err(|failure| WhyNot(failure.reason))
}

/// In the process that owns the GPUs if that is wanted, and here if it is not, or fails. What a GPU keeps is wanted there,
/// whatever its size.
fn somewhere(
    opened: Opened,
    given: Given,
    ran: &mut Option<Ran>,
) -> Result<Vec<RecordBatch>, Failure> {
    let Opened { table, name, is_on_gpu, program, bytes, files, ruled_out_files } = opened;
    let Given { values, children, .. } = given;
    let (mut why_not, mut outcome) = (service::why_not(is_on_gpu, || bytes), None);
    let service_failed = why_not.is_none();
    if service_failed {
        let table = for_service(&table, name, is_on_gpu);
        let (program, values, children) = (program.clone(), values.clone(), children.clone());
        match table.and_then(|table| run(Job { program, values, children, table })) {
            Err(failure)
                if failure.is_of_the_place && settings::FALLBACK.get() == Fallback::allow =>
            {
                pgrx::debug1!("Headrace's service failed: {}", failure.reason);
                why_not = Some(failure.reason);
            }
            other => outcome = Some(other),
        }
    }
    let here = || run(Job { program, values, children, table: Table::Own(table) });
    let outcome = outcome.unwrap_or_else(here);
    let answered = outcome.as_ref().ok();
    *ran = Some(Ran {
        report: answered.map(|answered| answered.report.clone()),
        read: Read::Files { files, ruled_out: ruled_out_files },
        served: answered.and_then(|answered| answered.served.clone()),
        service_failed: service_failed && why_not.is_some(),
        why_not_service: why_not,
        wall: Duration::ZERO,
    });
    Ok(outcome?.batches)
}

/// A table that the service opens by itself.
fn for_service(table: &StreamTable, name: String, is_on_gpu: bool) -> Result<Table, Failure> {
    let description = table.source().description();
    let not_there = |why| Failure { reason: format!("{name}: {why}"), is_of_the_place: true };
    let description = description.map_err(not_there)?;
    Ok(Table::Files { files: Files { name, description }, is_on_gpu })
}
