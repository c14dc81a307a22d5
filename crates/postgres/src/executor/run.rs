//! One run: from the plan to the groups.

use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use arrow_schema::Schema;
use headrace_columns::column::arrow_field;
use headrace_ir::{Field, Scalar};
use headrace_runner::RunReport;
use pgrx::pg_sys::{self, CustomScanState, List};

use super::answer::Answer;
use super::heap::Blocks;
use super::service::Served;
use super::{files, heap};
use crate::datum::{Rows, check_digits};
use crate::nodes::{WhyNot, items, why_not};
use crate::plan::{Child, Plan};
use crate::settings;
use crate::translate::constant;

/// What a run did.
pub struct Ran {
    /// The pipeline's report, if it came to an end.
    pub report: Option<RunReport>,
    /// What was read.
    pub read: Read,
    /// If the process that owns the GPUs ran it.
    pub served: Option<Served>,
    /// Why it did not.
    pub why_not_service: Option<String>,
    /// Whether it was asked, and failed.
    pub service_failed: bool,
    /// From the first parameter to the last group.
    pub wall: Duration,
}

/// What a run read.
pub enum Read {
    /// Blocks of heaps.
    Blocks(Blocks),
    /// Files of a foreign table.
    Files {
        /// Files that were read.
        files: u64,
        /// Files that their folders ruled out.
        ruled_out: u64,
    },
}

/// What a run is given besides its table.
pub(super) struct Given {
    pub values: Vec<Scalar>,
    pub children: Vec<RecordBatch>,
    /// Rows that are wanted; `None`: all.
    pub limit: Option<u64>,
}

type Outcome = Result<Answer, WhyNot>;

/// Runs a plan.
///
/// # Safety
/// The backend's thread, from the node's own callback.
pub unsafe fn run(
    node: *mut CustomScanState,
    plan: &Plan,
    clauses: *mut List,
    parameters: *mut List,
) -> (Outcome, Option<Ran>) {
    let started = Instant::now();
    let mut ran = None;
    let outcome = answer(node, plan, clauses, parameters, &mut ran);
    if let Some(ran) = &mut ran {
        ran.wall = started.elapsed();
    }
    (outcome, ran)
}

unsafe fn answer(
    node: *mut CustomScanState,
    plan: &Plan,
    clauses: *mut List,
    parameters: *mut List,
    ran: &mut Option<Ran>,
) -> Outcome {
    let context = (*node).ss.ps.ps_ExprContext;
    let values = values(context, &plan.program.parameters, &plan.parameters, parameters)?;
    pg_sys::MemoryContextReset((*context).ecxt_per_tuple_memory);
    let mut children = Vec::new();
    let states = items::<pg_sys::PlanState>((*node).custom_ps).skip(1);
    for (child, state) in plan.children.iter().zip(states) {
        children.push(rows_of(child, state)?);
    }
    let limit = limit(context, plan, parameters);
    let given = Given { values, children, limit };
    let batches = match plan.of_files {
        true => files::stream(node, plan, clauses, given, ran),
        false => heap::stream(node, plan, &given, ran),
    };
    Answer::new(batches?, &plan.outputs)
}

/// How many rows are wanted, by LIMIT and OFFSET behind the parameters; `None`: all.
pub unsafe fn limit(
    context: *mut pg_sys::ExprContext,
    plan: &Plan,
    parameters: *mut List,
) -> Option<u64> {
    let number = |bound: *mut pg_sys::ExprState| {
        let mut is_null = false;
        let datum = pg_sys::ExecEvalExprSwitchContext(bound, context, &mut is_null);
        // Negative ones are errors of PostgreSQL's, which looks at them first.
        (!is_null).then(|| u64::try_from(datum.value() as i64).unwrap_or(0))
    };
    let mut bounds = items::<pg_sys::ExprState>(parameters).skip(plan.parameters.len());
    let count = number(bounds.next()?)?;
    let offset = bounds.next().and_then(number).unwrap_or(0);
    count.checked_add(offset)
}

/// The values of parameters: of expressions, of these types.
///
/// # Errors
/// One that pipelines do not have.
pub unsafe fn values(
    context: *mut pg_sys::ExprContext,
    fields: &[Field],
    types: &[u32],
    exprs: *mut List,
) -> Result<Vec<Scalar>, WhyNot> {
    let mut values = Vec::new();
    let types = fields.iter().zip(types);
    for (expr, (field, oid)) in items::<pg_sys::ExprState>(exprs).zip(types) {
        let mut is_null = false;
        let datum = pg_sys::ExecEvalExprSwitchContext(expr, context, &mut is_null);
        values.push(match is_null {
            true => Scalar::null(field.data_type.clone()),
            false => constant::value(datum, pg_sys::Oid::from(*oid), &field.data_type)?,
        });
    }
    Ok(values)
}

/// All rows of a child plan.
unsafe fn rows_of(child: &Child, state: *mut pg_sys::PlanState) -> Result<RecordBatch, WhyNot> {
    let fields = child.columns.iter().map(|column| arrow_field(&column.field));
    let schema = Schema::new(fields.collect::<Vec<_>>());
    let mut rows = Rows::new(&schema)?;
    let limit_bytes = settings::MEMORY_LIMIT_KIB.get() as usize * 1024 / 2;
    loop {
        pgrx::check_for_interrupts!();
        let slot = pg_sys::ExecProcNode(state);
        if slot.is_null() || ((*slot).tts_flags & pg_sys::TTS_FLAG_EMPTY as u16) != 0 {
            return rows.finish();
        }
        pg_sys::slot_getallattrs(slot);
        for (place, column) in child.columns.iter().enumerate() {
            let is_null = *(*slot).tts_isnull.add(column.position);
            let value = (!is_null).then(|| *(*slot).tts_values.add(column.position));
            check_digits(value, column.shows)?;
            let of = pg_sys::Oid::from(column.type_oid);
            rows.push_asked(place, value, of, column.query.as_ref())?;
        }
        rows.end_row();
        if rows.bytes() > limit_bytes {
            return why_not(format!(
                "the rows of {} take more than half of headrace.memory_limit",
                child.name
            ));
        }
    }
}
