//! One pipeline on one or several GPUs.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use headrace_flow::{
    Affinity, BytesByPath, CancelToken, DeviceLane, FeedBounds, Race, RaceError, RaceOptions,
    RaceReport,
};
use headrace_ir::Source;
use headrace_pipeline::bound::{Bound, BoundSink};
use headrace_pipeline::state::DenseState;
use headrace_pipeline::{ExecError, WhyNot};
use parking_lot::Mutex;

use crate::device::CudaDevice;
use crate::error::CudaError;
use crate::execution::{CudaExecution, StepsLeft};
use crate::groups_left::{self, GroupsLeft};
use crate::host_memory::RingNeeds;
use crate::layout::SegmentLayout;
use crate::pinned::Ring;
use crate::resident_run::ResidentRun;
use crate::rows::RowOutput;
use crate::run_feed::{Rest, RunFeed};
use crate::stats::CudaStats;
use crate::stream_chunks::ChunkSource;
use crate::stream_plan::StreamPlan;
use crate::stream_program::{ChunkBounds, StreamProgram};

/// What a query leaves, rows and hashed groups aside, which are in its [`RowOutput`].
#[derive(Debug, Default)]
pub struct CudaAnswer {
    /// Accumulators of an aggregation by dense groups.
    pub state: Option<DenseState>,
    /// What the steps left, all devices together: nothing if no kernel was needed, `None` where they ran
    /// in several orders.
    pub steps: Option<StepsLeft>,
    /// What was done on all devices; the time of kernels is that of the device that took longest.
    pub stats: CudaStats,
    /// What came to each device, and what was there.
    pub by_device: Vec<DeviceBytes>,
}

/// The bytes of columns that a run had on a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceBytes {
    /// The device.
    pub ordinal: usize,
    /// Bytes that came.
    pub came: u64,
    /// Bytes that were there.
    pub resident: u64,
}

/// Takes the groups of a run where they lie, before they are handed over, or why they do not lie on one device;
/// whether it did, so that they need not be handed over.
pub type TakeGroups<'a> = &'a (dyn Fn(Result<&GroupsLeft<'_>, WhyNot>) -> bool + Sync);

/// What a run goes over: chunks dealt to as many devices as it has.
#[derive(Debug, Default)]
pub struct RunSource {
    /// How all segments lie in their files; `None`: there is none.
    pub layout: Option<SegmentLayout>,
    /// Chunks that are known.
    pub planned: Vec<ChunkSource>,
    /// Those that come while the race runs; `None`: that is all.
    pub rest: Option<Rest>,
}

impl RunSource {
    /// Chunks that are all.
    pub fn of(planned: Vec<ChunkSource>) -> Self {
        let segments = planned.iter().flat_map(|chunk| &chunk.segments);
        let layouts = segments.map(|source| SegmentLayout::of(&source.segment));
        Self { layout: SegmentLayout::merged(layouts), planned, rest: None }
    }
}

/// A pipeline with what each device has of its chunks.
pub struct CudaRun {
    bound: Arc<Bound>,
    parts: Vec<Part>,
    planned: Vec<ChunkSource>,
    /// By planned chunk: the device that takes it.
    owners: Vec<usize>,
    rest: Option<Rest>,
}

struct Part {
    execution: CudaExecution,
    plan: StreamPlan,
}

impl CudaRun {
    /// Finds the columns on each device and loads the kernel.
    ///
    /// # Errors
    /// [`CudaError`] when a kernel does not compile, memory or a device fails, or an extent is too
    /// short for its rows.
    pub fn new(
        devices: &[Arc<CudaDevice>],
        bound: &Arc<Bound>,
        source: RunSource,
    ) -> Result<Self, CudaError> {
        let RunSource { layout, planned, rest } = source;
        let pages = rest.as_ref().and_then(|rest| rest.pages.as_ref()).map(|pages| &pages.plan);
        let mut parts = on_each(devices.iter().collect(), |_, device: &Arc<CudaDevice>| {
            let mut execution = CudaExecution::new(device, bound, &[])?;
            let plan = StreamPlan::new(&mut execution, &planned, layout.as_ref(), pages)?;
            Ok(Part { execution, plan })
        })?;
        let plans: Vec<&StreamPlan> = parts.iter().map(|part| &part.plan).collect();
        let owners = owners(&planned, &plans);
        for (number, part) in parts.iter_mut().enumerate() {
            part.plan.set_own(|chunk| owners[chunk] == number);
        }
        Ok(Self { bound: Arc::clone(bound), parts, planned, owners, rest })
    }

    /// Whether every device has all that it is to work on: nothing needs to be read.
    pub fn is_resident(&self) -> bool {
        self.rest.is_none() && self.parts.iter().all(|part| part.plan.is_resident())
    }

    /// Makes ready to run over resident columns.
    ///
    /// # Errors
    /// [`ExecError::Internal`] for a run that is not resident, or what describing gives.
    pub fn into_resident(self) -> Result<ResidentRuns, CudaError> {
        let runs = self.parts.into_iter().map(|part| ResidentRun::new(part.execution, &part.plan));
        Ok(ResidentRuns { bound: self.bound, runs: runs.collect::<Result<_, _>>()? })
    }

    /// Bytes that a race reads where no device has anything, at most; `None`: nobody knows.
    pub fn bytes(&self) -> Option<u64> {
        if let Some(rest) = &self.rest {
            return rest.bytes;
        }
        let read = self.read();
        Some(self.planned.iter().map(|chunk| chunk.bytes(read)).sum())
    }

    /// Columns that the kernels read: the same on all devices.
    fn read(&self) -> &[usize] {
        self.parts.first().map(|part| part.plan.read.as_slice()).unwrap_or_default()
    }

    /// What the largest chunk takes.
    fn chunk_bounds(&self) -> ChunkBounds {
        let (read, planned) = (self.read(), &self.planned);
        let known = ChunkBounds {
            slot_bytes: planned.iter().map(|chunk| chunk.slot_bytes(read)).max().unwrap_or(0),
            rows: planned.iter().map(ChunkSource::rows).max().unwrap_or(0),
            segments: planned.iter().map(|chunk| chunk.segments.len()).max().unwrap_or(0),
            may_grow: self.rest.is_some(),
        };
        let Some(rest) = &self.rest else { return known };
        let limits = rest.chunker.limits();
        let slot_bytes = limits.slot_bytes.max(rest.segment_slot_bytes) as usize;
        ChunkBounds {
            slot_bytes: known.slot_bytes.max(slot_bytes),
            rows: known.rows.max(limits.rows),
            segments: known.segments.max(limits.segments),
            ..known
        }
    }

    /// The slots of every device, taken by one query at a time: a query that waits for its last ring
    /// waits only for queries that have all of theirs.
    fn rings(&self, needs: RingNeeds, token: &CancelToken) -> Result<Vec<Ring>, CudaError> {
        static TAKING: Mutex<()> = Mutex::new(());
        let _alone = TAKING.lock();
        let take = |part: &Part| Ring::take(part.execution.device(), needs, token);
        self.parts.iter().map(take).collect()
    }

    /// Chunks that must be read at a time so that so many readers of each device have work. Reads that decode are not
    /// shared, and some take several times as long as others: there are to be twice as many as readers.
    fn read_together(&self, readers: usize) -> usize {
        let largest = self.planned.iter().max_by_key(|chunk| chunk.rows());
        let Some((reads, files)) = largest.map(|chunk| chunk.reads(self.read())) else { return 1 };
        match files.iter().any(|file| file.is_made()) {
            true => (2 * readers / self.parts.len()).div_ceil(reads.len()),
            false => 1,
        }
    }

    /// Whether each device has room for all planned chunks that are its own, as they lie in their
    /// files. They then stay where they were dealt to, so that the devices take equally long when
    /// nothing needs to be read any more.
    fn can_stay(&self) -> bool {
        let read = self.read();
        let mut bytes = vec![0; self.parts.len()];
        for (chunk, owner) in self.planned.iter().zip(&self.owners) {
            bytes[*owner] += chunk.bytes(read);
        }
        let budget = |part: &Part| part.execution.device().resident().stats().budget_bytes;
        let has_identity = self.planned.iter().all(ChunkSource::has_identity);
        has_identity && self.parts.iter().zip(bytes).all(|(part, bytes)| bytes <= budget(part))
    }

    /// The chunks for a race.
    fn feed(&mut self) -> RunFeed {
        let can_stay = self.can_stay();
        let planned = std::mem::take(&mut self.planned).into_iter();
        RunFeed {
            planned: planned.zip(self.owners.iter().copied()).collect(),
            can_stay,
            rest: self.rest.take(),
            read: self.read().to_vec(),
            devices: self.parts.iter().map(|p| Arc::clone(p.execution.device())).collect(),
            queries: self.parts.iter().map(|part| part.plan.query).collect(),
            full: VecDeque::new(),
            has_ended: false,
        }
    }

    /// Streams through the devices. Output rows and hashed groups go to `output`, which is to be
    /// finished then, unless `take` takes these.
    ///
    /// # Errors
    /// As [`Race::run_device`]; the failure of a row is the source of [`RaceError::Device`].
    pub fn stream(
        mut self,
        options: RaceOptions,
        token: &CancelToken,
        output: &RowOutput<'_>,
        take: Option<TakeGroups<'_>>,
    ) -> Result<(CudaAnswer, RaceReport), RaceError> {
        let failed = |error: CudaError| RaceError::Device {
            chunk: None,
            stage: "preparing the GPU",
            source: error.into(),
        };
        let chunk = self.chunk_bounds();
        let planned = self.planned.len() as u64;
        let later = self.rest.as_ref().map_or(Some(0), |rest| rest.chunks);
        let chunks = later.map(|later| later + planned);
        let needs = RingNeeds {
            chunk_bytes: chunk.slot_bytes,
            chunks: chunks.map_or(usize::MAX, |chunks| chunks as usize),
            read_together: self.read_together(options.readers),
        };
        let mut rings = self.rings(needs, token).map_err(failed)?;
        let bytes = self.bytes();
        let pages = self.rest.as_ref().and_then(|rest| rest.pages.clone());
        let bounds = FeedBounds { bytes, chunks, slot_bytes: chunk.slot_bytes };
        let feed = Box::new(self.feed());
        let race = Race::fed(feed, bounds, options, token.clone());
        let mut lanes = Vec::with_capacity(rings.len());
        for (ring, part) in rings.iter_mut().zip(self.parts) {
            let slots = ring.slots();
            let Part { execution, plan } = part;
            let program = StreamProgram::new(execution, plan, (slots, chunk), output);
            let owner = pages.as_ref().map(|pages| &pages.owner);
            let program = program.and_then(|program| program.with_pages(owner));
            lanes.push(ring.lane(program.map_err(failed)?));
        }
        let report = match lanes.as_mut_slice() {
            [lane] => race.run_device(lane)?,
            lanes => {
                let lanes =
                    lanes.iter_mut().map(|lane| lane as &mut (dyn DeviceLane<ChunkSource> + Send));
                race.run_devices(lanes.collect(), &Affinity::none())?.merged
            }
        };
        let executions = lanes.into_iter().map(|lane| lane.into_program().into_execution());
        let executions: Vec<_> = executions.collect();
        // What takes the groups may stream tables in turn, through rings of its own.
        executions.iter().try_for_each(CudaExecution::synchronize).map_err(failed)?;
        drop(rings);
        let is_only = executions.len() == 1;
        let answer_of = |_, mut execution| answer(&mut execution, output, is_only, take);
        let answers = on_each(executions, answer_of).map_err(failed)?;
        Ok((merged(&self.bound, answers).map_err(failed)?, report))
    }
}

/// A pipeline over columns that are all on the devices, ready to run again and again.
pub struct ResidentRuns {
    bound: Arc<Bound>,
    runs: Vec<ResidentRun>,
}

impl ResidentRuns {
    /// The pipeline.
    pub fn bound(&self) -> &Arc<Bound> {
        &self.bound
    }

    /// Whether they run with a kernel of another pipeline, so that later ones may do better.
    pub fn is_borrowed(&self) -> bool {
        self.runs.iter().any(ResidentRun::is_borrowed)
    }

    /// Device memory that they have of their own, in bytes.
    pub fn device_bytes(&self) -> u64 {
        self.runs.iter().map(ResidentRun::device_bytes).sum()
    }

    /// Runs on all devices at the same time; `None` if a column has left its device since. Output
    /// rows and hashed groups go to `output`, which is to be finished then, unless `take` takes these.
    ///
    /// # Errors
    /// The failure of a row, as the CPU processor gives it, or [`CudaError::Gpu`].
    pub fn run(
        &mut self,
        output: &RowOutput<'_>,
        take: Option<TakeGroups<'_>>,
    ) -> Result<Option<(CudaAnswer, RaceReport)>, CudaError> {
        let started = Instant::now();
        let chunks = self.runs.iter().map(ResidentRun::chunks).sum();
        let answers = self.answers(output, take);
        if !matches!(answers, Ok(Some(_))) {
            self.runs.iter_mut().for_each(ResidentRun::abandon);
        }
        let Some(answers) = answers? else { return Ok(None) };
        let answer = merged(&self.bound, answers)?;
        let report = RaceReport {
            wall_ns: started.elapsed().as_nanos() as u64,
            chunks,
            bytes_by_path: BytesByPath {
                resident_device: answer.stats.resident_bytes,
                ..BytesByPath::default()
            },
            kernel_ns: (answer.stats.kernel_ms * 1e6) as u64,
            ..RaceReport::default()
        };
        Ok(Some((answer, report)))
    }

    /// All devices are given their work before the first is waited for; where that is more than
    /// kernels, each has a thread. `None` if a column has left its device. Otherwise some may be under way.
    fn answers(
        &mut self,
        output: &RowOutput<'_>,
        take: Option<TakeGroups<'_>>,
    ) -> Result<Option<Vec<CudaAnswer>>, CudaError> {
        let is_only = self.runs.len() == 1;
        // No device is to work for nothing.
        if !self.runs.iter_mut().all(ResidentRun::find) {
            return Ok(None);
        }
        let mut begun = Vec::with_capacity(self.runs.len());
        for run in &mut self.runs {
            let Some(has_begun) = run.begin()? else { return Ok(None) };
            begun.push((run, has_begun));
        }
        let finish = |_, (run, has_begun): (&mut ResidentRun, bool)| {
            answer(run.finish(has_begun, output)?, output, is_only, take)
        };
        let answers = match begun.iter().all(|(_, has_begun)| *has_begun) {
            true => begun.into_iter().map(|run| finish(0, run)).collect(),
            false => on_each(begun, finish),
        };
        answers.map(Some)
    }
}

/// Runs a pipeline over the groups that others left, and was bound for [`info_of`](crate::info_of) these. Its rows and hashed groups
/// go to `output`, which is to be finished then, unless `take` takes these.
///
/// # Errors
/// What the CUDA processor cannot do, and a result of a group that does not fit its type, as a
/// [`WhyNot`]: nothing has gone to `output` then. The failure of a row, or [`CudaError::Gpu`].
pub fn run_over(
    lefts: &[&GroupsLeft<'_>],
    source: &Source,
    bound: &Arc<Bound>,
    output: &RowOutput<'_>,
    take: Option<TakeGroups<'_>>,
) -> Result<CudaAnswer, CudaError> {
    answer(&mut groups_left::run(lefts, source, bound, output)?, output, true, take)
}

/// The device of each chunk: the one that has most of it, because it took it when it was idle, or
/// else the one that it was dealt to.
fn owners(chunks: &[ChunkSource], plans: &[&StreamPlan]) -> Vec<usize> {
    let owner = |(number, chunk): (usize, &ChunkSource)| {
        let has = |device: &usize| plans[*device].resident_bytes(number);
        // The last of equals is taken.
        let others = (0..plans.len()).filter(|device| *device != chunk.device);
        others.chain([chunk.device]).max_by_key(has).unwrap_or(chunk.device)
    };
    chunks.iter().enumerate().map(owner).collect()
}

/// What an execution that is done leaves. `is_only`: there is no other.
fn answer(
    execution: &mut CudaExecution,
    output: &RowOutput<'_>,
    is_only: bool,
    take: Option<TakeGroups<'_>>,
) -> Result<CudaAnswer, CudaError> {
    let is_taken = take.is_some_and(|take| match execution.groups_left(is_only) {
        Ok(left) => take(Ok(&left)),
        Err(why) => take(Err(why)),
    });
    if !is_taken {
        execution.hand_over(output, is_only)?;
    }
    let (state, stats) = (execution.take_dense()?, execution.stats);
    let ordinal = execution.device().device().info().ordinal;
    let bytes = DeviceBytes { ordinal, came: stats.h2d_bytes, resident: stats.resident_bytes };
    Ok(CudaAnswer { state, steps: execution.steps_left()?, stats, by_device: vec![bytes] })
}

/// What the steps left on all devices that ran any; `None` if these ran them in several orders.
fn steps_together<'a>(answers: impl Iterator<Item = Option<&'a StepsLeft>>) -> Option<StepsLeft> {
    let mut whole = StepsLeft::default();
    for part in answers {
        let part = part?;
        if whole.places.is_empty() {
            whole = part.clone();
        } else if whole.places == part.places {
            let sums = whole.rows.iter_mut().zip(&part.rows);
            sums.for_each(|(sum, rows)| *sum = sum.zip(*rows).map(|(sum, rows)| sum + rows));
        } else if !part.places.is_empty() {
            return None;
        }
    }
    Some(whole)
}

/// The answers of all devices as one.
fn merged(bound: &Bound, answers: Vec<CudaAnswer>) -> Result<CudaAnswer, CudaError> {
    let steps = steps_together(answers.iter().map(|answer| answer.steps.as_ref()));
    let by_device = answers.iter().flat_map(|answer| answer.by_device.clone()).collect();
    let mut whole = CudaAnswer { steps, by_device, ..CudaAnswer::default() };
    for CudaAnswer { state, stats, .. } in answers {
        match (&mut whole.state, state) {
            (Some(whole), Some(part)) => {
                let BoundSink::Aggregate { accumulators, .. } = &bound.sink else {
                    return Err(ExecError::Internal("states of another sink".into()).into());
                };
                whole.merge(&part, accumulators)?;
            }
            (whole, part) => *whole = whole.take().or(part),
        }
        tracing::debug!(?stats, "one GPU's part");
        let all = &mut whole.stats;
        all.launches += stats.launches;
        all.kernel_ms = all.kernel_ms.max(stats.kernel_ms);
        all.groups_brought += stats.groups_brought;
        all.h2d_bytes += stats.h2d_bytes;
        all.resident_bytes += stats.resident_bytes;
        all.admitted_bytes += stats.admitted_bytes;
    }
    Ok(whole)
}

/// `work` on each item, at the same time if there are several; the first error in their order.
fn on_each<T: Send, R: Send>(
    items: Vec<T>,
    work: impl Fn(usize, T) -> Result<R, CudaError> + Sync,
) -> Result<Vec<R>, CudaError> {
    if items.len() <= 1 {
        return items.into_iter().enumerate().map(|(number, item)| work(number, item)).collect();
    }
    let work = &work;
    headrace_io::scope(|scope| {
        let mut threads = Vec::with_capacity(items.len());
        for (number, item) in items.into_iter().enumerate() {
            let thread = scope.spawn(move || work(number, item));
            let lacking = |e| ExecError::Internal(format!("a thread could not be had: {e}"));
            threads.push(thread.map_err(lacking)?);
        }
        let panicked = |_| Err(ExecError::Internal("a thread for a GPU panicked".into()).into());
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(panicked)).collect()
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn work_on_each_device_ends_with_all_answers_or_an_error() {
        assert_eq!(on_each(vec![5, 6, 7], |number, item| Ok(number + item)).unwrap(), [5, 7, 9]);
        assert!(on_each(Vec::<u8>::new(), |_, item| Ok(item)).unwrap().is_empty());
        let failed = |number, ()| match number {
            1 => Err(ExecError::Internal("one".into()).into()),
            _ => Ok(()),
        };
        assert!(on_each(vec![(); 3], failed).unwrap_err().to_string().contains("one"));
        let panics = |number: usize, ()| {
            assert_ne!(number, 1, "by order");
            Ok(())
        };
        assert!(on_each(vec![(); 2], panics).unwrap_err().to_string().contains("panicked"));
    }
}
