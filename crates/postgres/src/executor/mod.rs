//! The node.
//!
//! ```text
//! first tuple asked for ─► run: parameters, builds' rows, pipeline ─► an answer
//!                              └─ it cannot be: PostgreSQL's own plan, the first child, from here on
//! answer ─► tuples of rows, or of keys and aggregates ─► the server's conditions on groups, its target list
//! ```
//!
//! A run begins and ends within one call of the server: no thread outlives it.

mod answer;
mod description;
mod files;
mod heap;
mod job;
mod row_way;
mod run;
pub mod service;
pub mod threads;

use std::ptr::null_mut;

use pgrx::pg_sys::{
    self, CustomExecMethods, CustomScan, CustomScanState, EState, ExplainState, List, Node,
    NodeTag, ScanState, TupleTableSlot,
};

use pgrx::pg_sys::panic::ErrorReport;

use crate::nodes::{WhyNot, items};
use crate::plan::Plan;
use crate::planner::{Methods, NAME, SCAN_METHODS};
use crate::settings::{self, Fallback};
use crate::stat;
use crate::version;
use answer::Answer;

pub use files::rows;
pub use heap::Blocks;
pub use run::{Ran, Read, values};
pub use threads::without_signals;

static EXEC_METHODS: Methods<CustomExecMethods> = Methods(CustomExecMethods {
    CustomName: NAME.as_ptr(),
    BeginCustomScan: Some(begin),
    ExecCustomScan: Some(next_tuple),
    EndCustomScan: Some(end),
    ReScanCustomScan: Some(rescan),
    MarkPosCustomScan: None,
    RestrPosCustomScan: None,
    EstimateDSMCustomScan: None,
    InitializeDSMCustomScan: None,
    ReInitializeDSMCustomScan: None,
    InitializeWorkerCustomScan: None,
    ShutdownCustomScan: None,
    ExplainCustomScan: Some(explain),
});

/// Makes the node known to the server, which must find it by name in plans that it copied.
///
/// # Safety
/// The backend's thread, once a process.
pub unsafe fn register() {
    pg_sys::RegisterCustomScanMethods(&raw const SCAN_METHODS.0);
    threads::register();
}

/// The node's state: the server's part first.
#[repr(C)]
struct State {
    server: CustomScanState,
    /// Ours; dropped with the query's memory.
    own: *mut Own,
}

/// What a node keeps.
pub struct Own {
    /// What to do.
    pub plan: Plan,
    /// Conditions that the names of folders decide.
    clauses: *mut List,
    parameters: *mut List,
    progress: Progress,
    /// Tuples of PostgreSQL's own plan as this node's.
    slot: *mut TupleTableSlot,
    /// What the last run did.
    pub ran: Option<Ran>,
    /// Why the last run has no answer.
    pub why_not: Option<String>,
}

enum Progress {
    NotBegun,
    Answering(Answer),
    /// PostgreSQL's own plan does it.
    Own,
}

/// A state for a node of a plan.
#[pgrx::pg_guard]
pub unsafe extern "C-unwind" fn create_state(_node: *mut CustomScan) -> *mut Node {
    let state = pg_sys::palloc0(size_of::<State>()).cast::<State>();
    (*state).server.ss.ps.type_ = NodeTag::T_CustomScanState;
    (*state).server.methods = &raw const EXEC_METHODS.0;
    state.cast()
}

#[pgrx::pg_guard]
unsafe extern "C-unwind" fn begin(node: *mut CustomScanState, estate: *mut EState, flags: i32) {
    let scan = (*node).ss.ps.plan.cast::<CustomScan>();
    let (plan, clauses) = match Plan::of_list((*scan).custom_private) {
        Ok(both) => both,
        Err(cause) => pgrx::error!("a plan of Headrace cannot be read: {cause}"),
    };
    for child in items::<pg_sys::Plan>((*scan).custom_plans) {
        let child = pg_sys::ExecInitNode(child, estate, flags);
        (*node).custom_ps = pg_sys::lappend((*node).custom_ps, child.cast());
    }
    let result = pg_sys::ExecGetResultType(&raw mut (*node).ss.ps);
    let own = Own {
        plan,
        clauses,
        parameters: pg_sys::ExecInitExprList((*scan).custom_exprs, &raw mut (*node).ss.ps),
        progress: Progress::NotBegun,
        slot: pg_sys::ExecInitExtraTupleSlot(estate, result, &raw const pg_sys::TTSOpsVirtual),
        ran: None,
        why_not: None,
    };
    let mut memory = pgrx::PgMemoryContexts::For((*estate).es_query_cxt);
    (*node.cast::<State>()).own = memory.leak_and_drop_on_delete(own);
}

unsafe fn own<'a>(node: *mut CustomScanState) -> &'a mut Own {
    &mut *(*node.cast::<State>()).own
}

#[pgrx::pg_guard]
unsafe extern "C-unwind" fn next_tuple(node: *mut CustomScanState) -> *mut TupleTableSlot {
    let own = own(node);
    if matches!(own.progress, Progress::NotBegun) {
        own.progress = begun(node, own);
    }
    match own.progress {
        Progress::Own => own_tuple(node, own.slot),
        _ => version::scan(&raw mut (*node).ss, Some(access), Some(recheck)),
    }
}

unsafe fn begun(node: *mut CustomScanState, own: &mut Own) -> Progress {
    let (result, ran) = run::run(node, &own.plan, own.clauses, own.parameters);
    own.ran = ran;
    stat::count(result.is_ok(), own.ran.as_ref());
    match result {
        Ok(answer) => {
            own.why_not = None;
            Progress::Answering(answer)
        }
        Err(WhyNot(reason)) => {
            if settings::FALLBACK.get() == Fallback::forbid {
                let code = pgrx::PgSqlErrorCode::ERRCODE_FEATURE_NOT_SUPPORTED;
                let cause = format!("Headrace cannot finish this query: {reason}");
                ErrorReport::new(code, cause, "next_tuple")
                    .set_hint("Set headrace.fallback to allow to let PostgreSQL answer it.")
                    .report(pgrx::PgLogLevel::ERROR);
            }
            pgrx::debug1!("Headrace fell back: {reason}");
            bound_own(node, own);
            own.why_not = Some(reason);
            Progress::Own
        }
    }
}

/// Lets PostgreSQL's own plan know how many rows are wanted, as a LIMIT above a sort does.
unsafe fn bound_own(node: *mut CustomScanState, own: &Own) {
    let limit = run::limit((*node).ss.ps.ps_ExprContext, &own.plan, own.parameters);
    // Negative: all of them; an earlier run may have wanted less.
    let rows = limit.and_then(|rows| i64::try_from(rows).ok()).unwrap_or(-1);
    if let Some(child) = items((*node).custom_ps).next() {
        pg_sys::ExecSetTupleBound(rows, child);
    }
}

/// The next tuple of the first child, in a slot of the kind that was promised.
unsafe fn own_tuple(node: *mut CustomScanState, slot: *mut TupleTableSlot) -> *mut TupleTableSlot {
    pg_sys::ExecClearTuple(slot);
    let Some(child) = items::<pg_sys::PlanState>((*node).custom_ps).next() else { return slot };
    let found = pg_sys::ExecProcNode(child);
    if found.is_null() || ((*found).tts_flags & pg_sys::TTS_FLAG_EMPTY as u16) != 0 {
        return slot;
    }
    pg_sys::slot_getallattrs(found);
    let columns = (*(*slot).tts_tupleDescriptor).natts as usize;
    // Both are of the grouping's target list.
    std::ptr::copy_nonoverlapping((*found).tts_values, (*slot).tts_values, columns);
    std::ptr::copy_nonoverlapping((*found).tts_isnull, (*slot).tts_isnull, columns);
    pg_sys::ExecStoreVirtualTuple(slot)
}

#[pgrx::pg_guard]
unsafe extern "C-unwind" fn access(scan: *mut ScanState) -> *mut TupleTableSlot {
    let node = scan.cast::<CustomScanState>();
    let slot = (*scan).ss_ScanTupleSlot;
    version::clear_virtual(slot);
    let own = own(node);
    let Progress::Answering(answer) = &mut own.progress else { return slot };
    let memory = (*(*scan).ps.ps_ExprContext).ecxt_per_tuple_memory;
    let outer = pg_sys::MemoryContextSwitchTo(memory);
    let stored = answer.store_next(&own.plan.outputs, slot);
    pg_sys::MemoryContextSwitchTo(outer);
    match stored {
        Ok(is_one) => {
            if is_one {
                version::store_virtual(slot);
            }
            slot
        }
        // Types and ranges were checked before the first tuple: this is an error of ours.
        Err(WhyNot(cause)) => pgrx::error!("Headrace: {cause}"),
    }
}

#[pgrx::pg_guard]
unsafe extern "C-unwind" fn recheck(_scan: *mut ScanState, _slot: *mut TupleTableSlot) -> bool {
    true
}

#[pgrx::pg_guard]
unsafe extern "C-unwind" fn rescan(node: *mut CustomScanState) {
    let own = own(node);
    for child in items::<pg_sys::PlanState>((*node).custom_ps) {
        if !(*node).ss.ps.chgParam.is_null() {
            pg_sys::UpdateChangedParamSet(child, (*node).ss.ps.chgParam);
        }
        pg_sys::ExecReScan(child);
    }
    pg_sys::ExecScanReScan(&raw mut (*node).ss);
    match &mut own.progress {
        progress if !(*node).ss.ps.chgParam.is_null() => *progress = Progress::NotBegun,
        // Nothing that the answer, or that there is none, depends on is another now.
        Progress::Answering(answer) => answer.rewind(),
        Progress::NotBegun | Progress::Own => {}
    }
}

#[pgrx::pg_guard]
unsafe extern "C-unwind" fn end(node: *mut CustomScanState) {
    for child in items::<pg_sys::PlanState>((*node).custom_ps) {
        pg_sys::ExecEndNode(child);
    }
    own(node).progress = Progress::NotBegun;
    (*node).custom_ps = null_mut();
}

#[pgrx::pg_guard]
unsafe extern "C-unwind" fn explain(
    node: *mut CustomScanState,
    _ancestors: *mut List,
    es: *mut ExplainState,
) {
    crate::explain::node(own(node), es);
}
