//! One run: from the plan to the groups.

use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use arrow_schema::Schema;
use headrace_flow::CancelToken;
use headrace_format::batches::{BatchSender, batch_channel};
use headrace_format::heap::{Attribute, HeapBlocks, HeapTable, Relation as Description};
use headrace_ir::{Program, Scalar};
use headrace_pipeline::arrow_field;
use headrace_runner::{
    Fallback, Processor, Request, RunReport, Runner, RunnerOptions, Settings, StreamTable,
};
use pgrx::pg_sys::{self, CustomScanState, List, Relation};

use super::answer::Answer;
use super::threads::Running;
use crate::blocks::{Listing, Map, Owner, ServerReader};
use crate::datum::Rows;
use crate::nodes::{WhyNot, items, why_not};
use crate::plan::{Child, Plan};
use crate::translate::{HeapColumn, constant};
use crate::{settings, version};

/// Batches of the server's rows that wait for the pipeline.
const QUEUED_BATCHES: usize = 8;
/// How long the backend sleeps at most before it looks for interrupts.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

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

/// What a table's description says, and which of its attributes are read.
unsafe fn description(relation: Relation) -> Result<Description, WhyNot> {
    let descriptor = &*(*relation).rd_att;
    let types = descriptor.attrs.as_slice(descriptor.natts as usize);
    let mut attributes = Vec::new();
    for (index, attribute) in types.iter().enumerate() {
        let HeapColumn { kind, length, align } = HeapColumn::of(attribute)?;
        let missing = match kind {
            Some(_) if attribute.atthasmissing => missing(descriptor, index, attribute)?,
            _ => None,
        };
        attributes.push(Attribute {
            name: crate::nodes::owned(attribute.attname.data.as_ptr()),
            kind,
            length,
            align,
            dropped: attribute.attisdropped,
            not_null: attribute.attnotnull,
            missing,
        });
    }
    Ok(Description {
        block_bytes: pg_sys::BLCKSZ as usize,
        checksums: pg_sys::DataChecksumsEnabled(),
        attributes,
    })
}

/// What tuples have that were written before a column was added.
unsafe fn missing(
    descriptor: &pg_sys::TupleDescData,
    index: usize,
    attribute: &pg_sys::FormData_pg_attribute,
) -> Result<Option<Vec<u8>>, WhyNot> {
    let Some(value) = version::missing_value(descriptor, index) else { return Ok(None) };
    Ok(Some(match attribute.attlen {
        -1 => {
            let whole = pg_sys::pg_detoast_datum_packed(value.cast_mut_ptr());
            let bytes = pgrx::varlena::vardata_any(whole).cast::<u8>();
            std::slice::from_raw_parts(bytes, pgrx::varlena::varsize_any_exhdr(whole)).to_vec()
        }
        length if attribute.attbyval => value.value().to_le_bytes()[..length as usize].to_vec(),
        length => {
            let bytes = value.cast_mut_ptr::<u8>();
            std::slice::from_raw_parts(bytes, usize::try_from(length).unwrap_or(0)).to_vec()
        }
    }))
}

/// Why no block of a table can be read from its files.
unsafe fn why_not_direct(relation: Relation, snapshot: pg_sys::Snapshot) -> Option<String> {
    let blocks =
        pg_sys::RelationGetNumberOfBlocksInFork(relation, pg_sys::ForkNumber::MAIN_FORKNUM);
    // The map's pages take buffers from everybody.
    let map_pages_max = pg_sys::NBuffers as u32 / 4;
    if !settings::ENABLE_DIRECT_READ.get() {
        Some("headrace.enable_direct_read is off".into())
    } else if pg_sys::RecoveryInProgress() || (*snapshot).takenDuringRecovery {
        Some("the server is in recovery".into())
    } else if !version::is_logged(relation) {
        Some("changes of the table are not logged".into())
    } else if version::snapshots_expire() {
        Some("old_snapshot_threshold lets vacuum take rows away from snapshots".into())
    } else if Map::pages_of(blocks) > map_pages_max {
        Some(format!(
            "its visibility map would take over a quarter of shared_buffers: {blocks} blocks"
        ))
    } else {
        None
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

/// A table's segment files, from the data directory, as many as listed blocks lie in.
unsafe fn files(relation: Relation, listing: &Listing) -> Vec<PathBuf> {
    let first = version::path_of(relation);
    let end = listing.direct.last().map_or(0, |range| range.end);
    let name = |number: u32| match number {
        0 => first.clone(),
        number => format!("{first}.{number}"),
    };
    (0..end.div_ceil(pg_sys::RELSEG_SIZE)).map(|number| name(number).into()).collect()
}

/// What the thread needs.
struct Job {
    program: Program,
    values: Vec<Scalar>,
    children: Vec<Vec<RecordBatch>>,
    table: StreamTable,
}

type Done = Result<(RunReport, Vec<RecordBatch>), String>;

thread_local! {
    /// The backend's runner, made for the first run and whenever its memory limit is another.
    static RUNNER: RefCell<Option<(i32, Arc<Runner>)>> = const { RefCell::new(None) };
}

fn runner() -> Arc<Runner> {
    let limit = settings::MEMORY_LIMIT_KIB.get();
    RUNNER.with_borrow_mut(|kept| match kept {
        Some((of, runner)) if *of == limit => Arc::clone(runner),
        _ => {
            let options = RunnerOptions {
                memory_limit_bytes: Some(limit as u64 * 1024),
                ..RunnerOptions::default()
            };
            let runner = Arc::new(Runner::new(&options));
            *kept = Some((limit, Arc::clone(&runner)));
            runner
        }
    })
}

/// Runs a job on a thread of its own, and does meanwhile what only the backend can.
unsafe fn watched(
    job: Job,
    owner: &Arc<Owner>,
    sender: BatchSender,
    reader: &mut ServerReader,
    listing: &Listing,
) -> Result<(RunReport, Vec<RecordBatch>), WhyNot> {
    let done: Arc<Mutex<Option<Done>>> = Arc::default();
    let (token, runner, threads) = (CancelToken::new(), runner(), settings::threads());
    let (its_done, its_owner, its_token) = (Arc::clone(&done), Arc::clone(owner), token.clone());
    let work = move || {
        let _over = Over(its_owner);
        let outcome = job.run(&runner, threads, &its_token);
        *its_done.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
    };
    let running = Running::start(token, work);
    let running = running.map_err(|error| WhyNot(format!("no thread can be started: {error}")))?;
    let served = serve(owner, sender, reader, listing);
    // A run that has no end of its own is ended here.
    drop(running);
    served?;
    let outcome = done.lock().unwrap_or_else(PoisonError::into_inner).take();
    match outcome {
        Some(Ok(answer)) => Ok(answer),
        Some(Err(cause)) => why_not(cause),
        None => why_not("the pipeline's thread ended by a panic"),
    }
}

/// Tells the end of a run, whatever it is.
struct Over(Arc<Owner>);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Job {
    fn run(self, runner: &Runner, threads: usize, token: &CancelToken) -> Done {
        let settings = Settings {
            processor: Processor::Cpu,
            fallback: Fallback::Forbid,
            threads,
            ..Settings::default()
        };
        let request = Request {
            program: &self.program,
            parameters: &self.values,
            tables: &[Arc::new(self.table)],
            children: &self.children,
            settings: &settings,
            token,
        };
        let answer = Mutex::new((Vec::new(), 0));
        let limit_bytes = runner.memory().limit_bytes as usize;
        let emit = |batch: RecordBatch| {
            let mut answer = answer.lock().unwrap_or_else(PoisonError::into_inner);
            answer.1 += batch.get_array_memory_size();
            answer.0.push(batch);
            answer.1 <= limit_bytes
        };
        let report = runner.run(&request, &emit).map_err(|error| error.to_string())?;
        let (batches, bytes) = answer.into_inner().unwrap_or_else(PoisonError::into_inner);
        match bytes > limit_bytes {
            true => Err("the groups take more than headrace.memory_limit".into()),
            false => Ok((report, batches)),
        }
    }
}

/// Reads the blocks that the pipeline does not, until it is over.
unsafe fn serve(
    owner: &Owner,
    sender: BatchSender,
    reader: &mut ServerReader,
    listing: &Listing,
) -> Result<(), WhyNot> {
    let mut sender = Some(sender);
    let mut listed = listing.server.iter().cloned().flatten();
    let (direct_blocks, mut left) = (listing.direct_blocks(), true);
    loop {
        pgrx::check_for_interrupts!();
        let next = if left { listed.next() } else { None };
        left = next.is_some();
        let wait = if left { Duration::ZERO } else { LOOK_INTERVAL };
        let state = owner.look(wait, |state| {
            left || state.is_over
                || !state.rerouted.is_empty()
                || (sender.is_some() && state.done_blocks == direct_blocks)
        });
        if state.is_over {
            return Ok(());
        }
        let rerouted = state.rerouted.iter().copied();
        for block in next.into_iter().chain(rerouted) {
            pgrx::check_for_interrupts!();
            if let Err(WhyNot(reason)) = reader.read(block) {
                return why_not(format!("block {block}: {reason}"));
            }
            send(sender.as_ref(), reader.batches(false)?);
        }
        if !left && state.done_blocks == direct_blocks && sender.is_some() {
            send(sender.as_ref(), reader.batches(true)?);
            if let Some(sender) = sender.take() {
                sender.finish();
            }
        }
    }
}

fn send(sender: Option<&BatchSender>, batches: Vec<RecordBatch>) {
    for batch in batches {
        // If nobody wants it, the run is over, which is seen next.
        let _ = sender.is_some_and(|sender| sender.send(batch));
    }
}
