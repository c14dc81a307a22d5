//! One run: from the plan to the groups.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use arrow_schema::Schema;
use headrace_format::batches::batch_channel;
use headrace_format::heap::{HeapBlocks, HeapTable};
use headrace_ir::Scalar;
use headrace_pipeline::arrow_field;
use headrace_runner::{RunReport, StreamTable};
use pgrx::pg_sys::{self, CustomScanState, List, Relation};

use super::answer::Answer;
use super::description::{description, files, why_not_direct};
use super::job::{Job, watched};
use crate::blocks::{Listing, Map, Owner, ServerReader};
use crate::datum::Rows;
use crate::nodes::{WhyNot, items, why_not};
use crate::plan::{Child, Plan};
use crate::translate::constant;
use crate::{settings, version};

/// Batches of the server's rows that wait for the pipeline.
const QUEUED_BATCHES: usize = 8;

/// What a run did.
pub struct Ran {
    /// The pipeline's report, if it came to an end.
    pub report: Option<RunReport>,
    /// Blocks read from the files, those excepted that were rerouted.
    pub direct_blocks: u32,
    /// Blocks read through shared buffers.
    pub server_blocks: u32,
    /// Of these: not visible to everybody.
    pub not_visible_blocks: u32,
    /// Of these: newer in shared buffers.
    pub dirty_blocks: u32,
    /// Of these: found unfit after they were read from a file, and an example of why.
    pub rerouted_blocks: u32,
    /// Why the first of them was.
    pub rerouted_why: Option<String>,
    /// Why no block was read from the files.
    pub why_not_direct: Option<String>,
    /// From the first parameter to the last group.
    pub wall: Duration,
}

type Outcome = Result<Answer, WhyNot>;

/// Runs a plan.
///
/// # Safety
/// The backend's thread, from the node's own callback.
pub unsafe fn run(
    node: *mut CustomScanState,
    plan: &Plan,
    parameters: *mut List,
) -> (Outcome, Option<Ran>) {
    let started = Instant::now();
    let mut ran = None;
    let outcome = answer(node, plan, parameters, &mut ran);
    if let Some(ran) = &mut ran {
        ran.wall = started.elapsed();
    }
    (outcome, ran)
}

unsafe fn answer(
    node: *mut CustomScanState,
    plan: &Plan,
    parameters: *mut List,
    ran: &mut Option<Ran>,
) -> Outcome {
    let values = values(node, plan, parameters)?;
    let mut children = Vec::new();
    let states = items::<pg_sys::PlanState>((*node).custom_ps).skip(1);
    for (child, state) in plan.children.iter().zip(states) {
        children.push(vec![rows_of(child, state)?]);
    }
    let relation = pg_sys::table_open(plan.table(), pg_sys::AccessShareLock as i32);
    let snapshot = (*(*node).ss.ps.state).es_snapshot;
    let batches = stream(plan, relation, snapshot, values, children, ran);
    pg_sys::table_close(relation, pg_sys::AccessShareLock as i32);
    Answer::new(batches?, &plan.outputs)
}

/// The parameters' values.
unsafe fn values(
    node: *mut CustomScanState,
    plan: &Plan,
    parameters: *mut List,
) -> Result<Vec<Scalar>, WhyNot> {
    let context = (*node).ss.ps.ps_ExprContext;
    let mut values = Vec::new();
    let types = plan.program.parameters.iter().zip(&plan.parameters);
    for (expr, (field, oid)) in items::<pg_sys::ExprState>(parameters).zip(types) {
        let mut is_null = false;
        let datum = pg_sys::ExecEvalExprSwitchContext(expr, context, &mut is_null);
        values.push(match is_null {
            true => Scalar::null(field.data_type.clone()),
            false => constant::value(datum, pg_sys::Oid::from(*oid), &field.data_type)?,
        });
    }
    pg_sys::MemoryContextReset((*context).ecxt_per_tuple_memory);
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
            rows.push(place, value, pg_sys::Oid::from(column.type_oid))?;
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

unsafe fn stream(
    plan: &Plan,
    relation: Relation,
    snapshot: pg_sys::Snapshot,
    values: Vec<Scalar>,
    children: Vec<Vec<RecordBatch>>,
    ran: &mut Option<Ran>,
) -> Result<Vec<RecordBatch>, WhyNot> {
    if (*snapshot).snapshot_type != pg_sys::SnapshotType::SNAPSHOT_MVCC {
        return why_not("a snapshot that is not of a transaction");
    }
    version::predicate_lock(relation, snapshot);
    let description = description(relation)?;
    let wanted: Vec<usize> = plan.attributes.iter().map(|number| *number as usize - 1).collect();
    let mut reader = ServerReader::new(relation, snapshot, &description, &wanted)?;
    let mut listing = Listing::of(relation, why_not_direct(relation, snapshot));
    let map = Arc::new(std::mem::replace(&mut listing.map, Map::none()));
    let checks_sums = description.checksums;
    let owner = Arc::new(Owner::new(Arc::clone(&map)));
    let (sender, receiver) = batch_channel(QUEUED_BATCHES);
    let blocks = HeapBlocks {
        files: files(relation, &listing),
        blocks_per_file: pg_sys::RELSEG_SIZE,
        direct: listing.direct.clone(),
        relation: description,
    };
    let name = &plan.program.pipeline.source.table;
    let table = HeapTable::new(name, blocks, Arc::clone(&owner) as _, receiver);
    let table = table.map_err(|error| WhyNot(error.to_string()))?;
    // The server's own idea of how much of a table the page cache holds.
    let cached_blocks = u32::try_from(pg_sys::effective_cache_size).unwrap_or(0);
    let table = table.filling_page_cache(listing.direct_blocks() <= cached_blocks);
    let mut program = plan.program.clone();
    program.pipeline.source.ordinals = wanted.iter().filter_map(|a| table.column_of(*a)).collect();
    let job = Job { program, values, children, table: StreamTable::new(name, Arc::new(table)) };
    let outcome = watched(job, &owner, sender, &mut reader, &listing);
    let report = outcome.as_ref().ok().map(|(report, _)| report.clone());
    let rerouted = owner.rerouted();
    let direct_blocks = listing.direct_blocks() - rerouted.0;
    *ran = Some(Ran {
        report,
        direct_blocks,
        server_blocks: listing.server.iter().map(|range| range.end - range.start).sum::<u32>()
            + rerouted.0,
        not_visible_blocks: listing.not_visible_blocks,
        dirty_blocks: listing.dirty_blocks,
        rerouted_blocks: rerouted.0,
        rerouted_why: rerouted.1,
        why_not_direct: listing.why_not_direct,
        wall: Duration::ZERO,
    });
    let is_unchanged = checks_sums || map.is_unchanged();
    drop(owner);
    match Arc::try_unwrap(map) {
        Ok(mut map) => map.release(),
        // Whoever holds it was joined, so that nobody does; at worst the transaction's end releases it.
        Err(_) => return why_not("a thread that outlived its run"),
    }
    if !is_unchanged {
        return why_not(
            "a vacuum changed the visibility map meanwhile, and pages have no checksums",
        );
    }
    let (report, batches) = outcome?;
    version::count_scan(relation, report.rows_in, direct_blocks);
    Ok(batches)
}
