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
use pgrx::pg_sys::{self, CustomScanState, List, Oid, Relation, Snapshot};

use super::answer::Answer;
use super::description::{description, files};
use super::job::{Job, watched};
use crate::blocks::{Counts, Map, Owner, Part, list};
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
    /// How their blocks were to be read.
    pub listed: Counts,
    /// Blocks that were to be read from the files, and found unfit after they were.
    pub rerouted_blocks: u64,
    /// Why the first of them was.
    pub rerouted_why: Option<String>,
    /// Why no block of a table was read from its files.
    pub why_not_direct: Option<String>,
    /// From the first parameter to the last group.
    pub wall: Duration,
}

impl Ran {
    /// Blocks whose rows were read from the files.
    pub fn direct_blocks(&self) -> u64 {
        self.listed.direct - self.rerouted_blocks
    }

    /// Blocks whose rows were read through shared buffers.
    pub fn server_blocks(&self) -> u64 {
        self.listed.server + self.rerouted_blocks
    }
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
    let lock = pg_sys::AccessShareLock as i32;
    let relations = plan.tables.iter().map(|table| pg_sys::table_open(Oid::from(*table), lock));
    let relations: Vec<Relation> = relations.collect();
    let snapshot = (*(*node).ss.ps.state).es_snapshot;
    let batches = stream(plan, &relations, snapshot, values, children, ran);
    relations.into_iter().for_each(|relation| pg_sys::table_close(relation, lock));
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
            false => constant::value(datum, Oid::from(*oid), &field.data_type)?,
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
            rows.push(place, value, Oid::from(column.type_oid))?;
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
    relations: &[Relation],
    snapshot: Snapshot,
    values: Vec<Scalar>,
    children: Vec<Vec<RecordBatch>>,
    ran: &mut Option<Ran>,
) -> Result<Vec<RecordBatch>, WhyNot> {
    if (*snapshot).snapshot_type != pg_sys::SnapshotType::SNAPSHOT_MVCC {
        return why_not("a snapshot that is not of a transaction");
    }
    let (parts, maps) = parts(plan, relations, snapshot)?;
    let checks_sums = parts.iter().all(|part| part.description.checksums);
    let maps = Arc::new(maps);
    let owner = Arc::new(Owner::new(Arc::clone(&maps)));
    let (sender, receiver) = batch_channel(QUEUED_BATCHES);
    let heaps = parts.iter().map(|part| HeapBlocks {
        files: files(part.relation, &part.listing),
        blocks_per_file: pg_sys::RELSEG_SIZE,
        direct: part.listing.direct.clone(),
        relation: part.description.clone(),
    });
    let counts = parts.iter().fold(Counts::default(), |sum, part| sum.and(part.listing.counts));
    let name = &plan.program.pipeline.source.table;
    let table = HeapTable::new(name, heaps.collect(), Arc::clone(&owner) as _, receiver);
    let table = table.map_err(|error| WhyNot(error.to_string()))?;
    // The server's own idea of how much of a table the page cache holds.
    let cached_blocks = u64::try_from(pg_sys::effective_cache_size).unwrap_or(0);
    let table =
        StreamTable::new(name, Arc::new(table.filling_page_cache(counts.direct <= cached_blocks)));
    let mut program = plan.program.clone();
    let names: Vec<&str> =
        program.pipeline.source.columns.iter().map(|c| c.name.as_str()).collect();
    let source = table.source_over(0, &names).map_err(WhyNot)?;
    program.pipeline.source.ordinals = source.ordinals;
    let job = Job { program, values, children, table };
    let outcome = watched(job, &owner, sender, &parts, snapshot);
    let (rerouted_blocks, rerouted_why) = owner.rerouted();
    *ran = Some(Ran {
        report: outcome.as_ref().ok().map(|(report, _)| report.clone()),
        listed: counts,
        rerouted_blocks,
        rerouted_why,
        why_not_direct: parts.iter().find_map(|part| part.listing.why_not_direct.clone()),
        wall: Duration::ZERO,
    });
    let is_unchanged = checks_sums || maps.iter().all(|map| map.is_unchanged());
    drop(owner);
    match Arc::try_unwrap(maps) {
        Ok(maps) => maps.into_iter().for_each(|mut map| map.release()),
        // Whoever holds them was joined, so that nobody does; at worst the transaction's end releases them.
        Err(_) => return why_not("a thread that outlived its run"),
    }
    if !is_unchanged {
        return why_not(
            "a vacuum changed the visibility map meanwhile, and pages have no checksums",
        );
    }
    let (report, batches) = outcome?;
    count_scans(&parts, report.rows_in);
    Ok(batches)
}

/// The tables, of whose blocks it is known how they are read.
unsafe fn parts(
    plan: &Plan,
    relations: &[Relation],
    snapshot: Snapshot,
) -> Result<(Vec<Part>, Vec<Map>), WhyNot> {
    let mut described = Vec::new();
    for &relation in relations {
        version::predicate_lock(relation, snapshot);
        let description = description(relation)?;
        let wanted = plan.program.pipeline.source.columns.iter().map(|column| {
            let mut attributes = description.attributes.iter();
            attributes.position(|own| !own.dropped && own.name == column.name)
        });
        let Some(wanted) = wanted.collect::<Option<Vec<usize>>>() else {
            return why_not("a part without a column of the whole");
        };
        described.push((relation, description, wanted));
    }
    let (listings, maps) = list(relations, snapshot);
    let parts = described.into_iter().zip(listings);
    let parts = parts.map(|((relation, description, wanted), listing)| Part {
        relation,
        description,
        wanted,
        listing,
    });
    Ok((parts.collect(), maps))
}

/// Rows of all tables are known, those of each are estimated by its share of the blocks.
unsafe fn count_scans(parts: &[Part], rows: u64) {
    let blocks = |part: &Part| part.listing.counts.direct + part.listing.counts.server;
    let all: u64 = parts.iter().map(blocks).sum();
    for part in parts {
        let share = blocks(part) as f64 / all.max(1) as f64;
        let direct = u32::try_from(part.listing.counts.direct).unwrap_or(u32::MAX);
        version::count_scan(part.relation, (rows as f64 * share) as u64, direct);
    }
}
