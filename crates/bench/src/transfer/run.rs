//! One run, from the plan to the record.

use std::path::Path;
use std::sync::Arc;

use headrace_flow::{AccessPath, ChunkSpec, RaceError, RaceReport};
use headrace_io::{ReadAt, SourceFile};

use super::counters::{Counted, Watched};
use super::gpu::{Gpus, Job};
use super::host::{self, Outcome};
use super::input::Inputs;
use super::record::{BenchRun, BytesMoved, CacheRecord, Latency, per_ns, share, stages_of};
use super::stop::Early;
use super::{
    BenchError, BenchPlan, CacheState, HostMemory, Operation, Pattern, Progress, Target,
    against_ceilings, cache_state, chunks, verify, write,
};
use headrace_ceilings::{Ceilings, CeilingsError, Measurement, Place, Recorded};

/// State kept between runs: the record of ceilings, and the runs' contributions.
#[derive(Debug, Default)]
pub struct Bench {
    ceilings: Option<Ceilings>,
    /// Whether runs add to the ceilings.
    records: bool,
    measured: Vec<Measurement>,
    /// Links with a measured rate, as lists of devices by PCI address.
    links_measured: Vec<Vec<String>>,
    gpus: Gpus,
}

/// One run without kept state; see [`Bench::run`].
///
/// # Errors
/// As [`Bench::run`].
pub fn run(plan: &BenchPlan) -> Result<BenchRun, BenchError> {
    Bench::default().run(plan)
}

impl Bench {
    /// Runs are not compared with any ceilings.
    pub fn new() -> Bench {
        Bench::default()
    }

    /// Runs are compared with these ceilings, and contribute to them if `records`: the links of
    /// GPUs at their first use, everything else with [`Bench::record_ceilings`].
    pub fn with_ceilings(ceilings: Ceilings, records: bool) -> Bench {
        Bench { ceilings: Some(ceilings), records, ..Bench::default() }
    }

    /// Adds the measurements so far to the record of ceilings: the highest value of each measure.
    /// Runs that verified, were short or mixed several access paths measured nothing.
    ///
    /// # Errors
    /// See [`Ceilings::record`].
    pub fn record_ceilings(&mut self) -> Result<Recorded, CeilingsError> {
        match (&mut self.ceilings, self.records && !self.measured.is_empty()) {
            (Some(ceilings), true) => ceilings.record(&std::mem::take(&mut self.measured)),
            _ => Ok(Recorded::default()),
        }
    }

    /// Executes a plan once.
    ///
    /// # Errors
    /// See [`BenchError`]. A run that is interrupted, or out of time, after its first byte is not
    /// an error: the record says that it is partial.
    pub fn run(&mut self, plan: &BenchPlan) -> Result<BenchRun, BenchError> {
        plan.check()?;
        match plan.operation {
            Operation::Read => self.read(plan),
            Operation::Write { .. } => self.write(plan),
        }
    }

    fn read(&mut self, plan: &BenchPlan) -> Result<BenchRun, BenchError> {
        let inputs = Inputs::open(&plan.paths)?;
        let sizes_bytes = inputs.sizes_bytes();
        chunks::check_count(&sizes_bytes, plan.pattern, plan.limit_bytes)?;
        let chunks = chunks::cut(&sizes_bytes, plan.pattern, plan.limit_bytes);
        let files: Vec<Arc<SourceFile>> =
            inputs.files.iter().map(|input| input.file.clone()).collect();
        if plan.cache.is_cold() {
            // What stays mapped cannot be dropped.
            self.gpus.forget_files();
        }
        let cache = cache_state::prepare(plan, &files, &chunks)?;
        let race_files: Vec<Arc<dyn ReadAt>> =
            files.iter().map(|file| wrapped(plan, file)).collect();

        let progress = progress_of(plan);
        progress.begin("reading", chunks.iter().map(ChunkSpec::bytes).sum());
        let watch = Watched::below(&plan.paths);
        let mut outcome = match &plan.target {
            Target::Host => host::run(plan, &race_files, &chunks, &progress, &watch)?,
            Target::Gpus(_) => self.gpus.run(&Job {
                plan,
                inputs: &inputs.files,
                files: &race_files,
                chunks: &chunks,
                progress: &progress,
                watch: &watch,
            })?,
        };
        let counted = std::mem::take(&mut outcome.counted);

        let mut run = empty_record(plan, cache, counted, inputs.notes);
        run.files = files.len();
        run.file_bytes = sizes_bytes.iter().sum();
        match (plan.verify, outcome.early) {
            // Whoever interrupts does not want to wait until all of it was read again.
            (true, Some(Early::Interrupted)) => {
                run.notes.push("interrupted: not verified".to_string());
            }
            (true, _) => {
                let found = verify::against_plain_reads(plan, &files, &chunks, &outcome.sums)?;
                run.verification = Some(found);
            }
            (false, _) => {}
        }
        let report = std::mem::take(&mut outcome.report);
        fill_from_race(&mut run, plan, outcome, &report);
        against_ceilings::tell_misses(&mut run);
        self.judge(plan, Some(&report), &mut run);
        Ok(run)
    }

    fn write(&mut self, plan: &BenchPlan) -> Result<BenchRun, BenchError> {
        let watch = Watched::below(&plan.paths);
        let mut written = write::run(plan, &progress_of(plan), &watch, &mut self.gpus)?;
        if plan.forbids_other_paths {
            check_written(plan, &written)?;
        }
        let counted = std::mem::take(&mut written.counted);
        let cache = CacheRecord {
            asked: CacheState::AsIs,
            resident_share_before: None,
            is_as_asked: true,
            notes: Vec::new(),
        };
        let mut run = empty_record(plan, cache, counted, Vec::new());
        run.files = written.files;
        run.file_bytes = written.file_bytes;
        run.partial = written.early.map(|early| early.text());
        run.bytes = written.bytes;
        run.chunks = written.chunks;
        run.wall_ns = written.wall_ns;
        run.gb_per_s = per_ns(written.bytes, written.wall_ns);
        let is_random = matches!(plan.pattern, Pattern::Random { .. });
        run.iops = is_random.then(|| per_ns(written.chunks, written.wall_ns) * 1e9);
        run.bytes_by_path = written.by_path;
        run.latency = written.latency;
        run.mean_request_bytes = written.mean_request_bytes;
        run.bottleneck = written.bottleneck();
        run.stages = written.stages;
        run.short_transfers = written.short_writes;
        run.direct_refused_bytes = written.direct_refused_bytes;
        run.engines = written.engines;
        run.path_reasons = written.reasons;
        run.notes.extend(written.notes);
        run.verification = written.verification;
        self.judge(plan, None, &mut run);
        Ok(run)
    }

    fn judge(&mut self, plan: &BenchPlan, report: Option<&RaceReport>, run: &mut BenchRun) {
        let gpus = self.measure_links(plan, run);
        let Some(ceilings) = &self.ceilings else { return };
        let place: Place = against_ceilings::place(&plan.paths, gpus);
        against_ceilings::judge(ceilings, &place, plan, report, run);
        if let Some(measurement) = against_ceilings::measurement(&place, plan, run) {
            against_ceilings::keep_highest(&mut self.measured, measurement);
        }
    }
}

impl Bench {
    /// The plan's GPUs by PCI address; measures their links at the first use.
    fn measure_links(&mut self, plan: &BenchPlan, run: &mut BenchRun) -> Vec<String> {
        let devices = match self.gpus.devices(&plan.target) {
            Ok(devices) => devices,
            Err(error) => {
                run.notes.push(format!("the links were not measured: {error}"));
                return Vec::new();
            }
        };
        let names: Vec<String> =
            devices.iter().map(|device| device.info().pcie_id.clone()).collect();
        let Some(ceilings) = self.ceilings.as_mut().filter(|_| self.records) else { return names };
        if names.is_empty() || self.links_measured.contains(&names) {
            return names;
        }
        self.links_measured.push(names.clone());
        let measured = against_ceilings::links(&devices).map_err(|error| error.to_string());
        let recorded =
            measured.and_then(|links| ceilings.record(&links).map_err(|error| error.to_string()));
        if let Err(error) = recorded {
            run.notes.push(format!("the speed of the links was not recorded: {error}"));
        }
        names
    }
}

/// Error if bytes were written through the page cache that O_DIRECT was to write.
fn check_written(plan: &BenchPlan, written: &write::Outcome) -> Result<(), BenchError> {
    let (access, _) = plan.path.access();
    let bytes = written.direct_refused_bytes;
    if access != AccessPath::Direct || bytes == 0 {
        return Ok(());
    }
    let file = plan.paths.first().map(|path| shown(path)).unwrap_or_default();
    let reason = format!(
        "{bytes} bytes were written through the page cache: O_DIRECT writes were refused (EINVAL)\nhint: headrace doctor \
         says what the file system can do"
    );
    Err(RaceError::PathUnavailable { access, file, reason }.into())
}

fn progress_of(plan: &BenchPlan) -> Arc<Progress> {
    plan.hooks.progress.clone().unwrap_or_default()
}

fn wrapped(plan: &BenchPlan, file: &Arc<SourceFile>) -> Arc<dyn ReadAt> {
    match &plan.hooks.wrap {
        Some(wrap) => wrap(file.clone()),
        None => file.clone(),
    }
}

/// The facts of a run without its outcome.
fn empty_record(
    plan: &BenchPlan,
    cache: CacheRecord,
    counted: Counted,
    mut notes: Vec<String>,
) -> BenchRun {
    notes.extend(counted.notes);
    BenchRun {
        operation: match plan.operation {
            Operation::Read => "read",
            Operation::Write { .. } => "write",
        },
        path: plan.path.name(),
        target: plan.target.to_string(),
        memory: matches!(plan.target, Target::Gpus(_)).then(|| HostMemory::name(plan.memory)),
        pattern: plan.pattern.name(),
        chunk_bytes: plan.pattern.bytes(),
        slots: plan.slot_count(),
        depth: plan.depth,
        threads: plan.threads,
        paths: plan.paths.iter().map(|path| shown(path)).collect(),
        files: 0,
        file_bytes: 0,
        cache,
        partial: None,
        bytes: 0,
        chunks: 0,
        wall_ns: 0,
        gb_per_s: 0.0,
        iops: None,
        ring: None,
        first_chunk_ns: 0,
        bytes_by_path: BytesMoved::default(),
        latency: Latency::default(),
        mean_request_bytes: 0,
        consumer_wait_share: None,
        stages: Vec::new(),
        bottleneck: None,
        predicted: None,
        devices: counted.devices,
        cpu: counted.cpu,
        short_transfers: 0,
        direct_refused_bytes: 0,
        engines: Vec::new(),
        path_reasons: Vec::new(),
        notes,
        verification: None,
    }
}

fn fill_from_race(run: &mut BenchRun, plan: &BenchPlan, outcome: Outcome, report: &RaceReport) {
    let random = matches!(plan.pattern, Pattern::Random { .. });
    run.notes.extend(outcome.notes);
    run.partial = outcome.early.map(|early| early.text());
    run.bytes = outcome.bytes;
    run.chunks = report.chunks;
    run.wall_ns = report.wall_ns;
    run.gb_per_s = per_ns(outcome.bytes, report.wall_ns);
    run.iops = random.then(|| per_ns(report.chunks, report.wall_ns) * 1e9);
    run.ring = outcome.ring;
    run.first_chunk_ns = report.first_chunk_ns;
    run.bytes_by_path = bytes_moved(plan, report);
    run.latency = match outcome.times_ns.is_empty() {
        true => Latency::from(report.read_latency),
        false => Latency::of_times(outcome.times_ns),
    };
    run.mean_request_bytes = report.mean_read_bytes() as u64;
    let waited = share(report.execute_wait_ns, report.execute_wait_ns + report.execute_busy_ns);
    run.consumer_wait_share = Some(match &plan.target {
        Target::Host => waited,
        Target::Gpus(gpus) => {
            let each = report.execute_wait_ns / gpus.len().max(1) as u64;
            share(each, report.wall_ns).min(1.0)
        }
    });
    run.stages = stages_of(report);
    run.bottleneck = report.bottleneck().map(|found| found.to_string());
    run.short_transfers = report.short_reads;
    run.direct_refused_bytes = report.direct_refused_bytes;
    run.engines = report.engines.clone();
    run.path_reasons = report.path_reasons.clone();
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn bytes_moved(plan: &BenchPlan, report: &RaceReport) -> BytesMoved {
    let bytes = report.bytes_by_path;
    let mut moved = BytesMoved {
        mapped: bytes.mapped,
        cached: bytes.cached,
        buffered: bytes.buffered,
        direct: bytes.direct,
        registered: bytes.registered,
        cufile: bytes.cufile,
        ..BytesMoved::default()
    };
    let ram = moved.mapped + moved.cached + moved.buffered + moved.registered;
    match plan.target {
        Target::Host => (moved.ram2host, moved.ssd2host) = (ram, moved.direct),
        Target::Gpus(_) => (moved.ram2gpu, moved.ssd2gpu) = (ram, moved.direct),
    }
    moved
}
