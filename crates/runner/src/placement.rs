//! Which processor runs a pipeline: what is known before it runs, and what `auto` makes of it.
//!
//! Over columns that lie in device memory a GPU takes milliseconds. To bring them there, to compile a
//! kernel and to open a device takes seconds, in which the cores are often done. So `auto` asks what is
//! faster this time, and what earlier runs took:
//!
//! - What a GPU has yet to do before it answers (its *start*) is estimated from the bytes that are not
//!   there yet, a compilation, and a device that is not open.
//! - If the cores are expected to be done before that, they run. What their runs over a table take adds
//!   up; once it is as much as the start, the GPU is begun, since whoever asks so often asks again, and the
//!   start is taken off the sum. That is never more than twice what the better choice from the beginning
//!   would have taken.
//! - Once both have run, the faster one runs. A table that does not fit device memory has its start at
//!   every run.
//! - A start that is all that a GPU lacks is made behind the queries (`rehearse`) where the process stays.
//!
//! None of it changes an answer.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Weak};

use headrace_cuda::{CudaProgram, SegmentLayout, Tuning};
use headrace_format::{ChunkOptions, Table};
use headrace_ir::{Expr, Field, NamedExpr, Pipeline, Program, Scalar, Sink, Value};
use headrace_pipeline::WhyNot;
use headrace_pipeline::bind::{BindOptions, Lookups, bind};
use headrace_pipeline::build::BuildOptions;
use parking_lot::Mutex;

use crate::builds::build_of;
use crate::chunks::source_info;
use crate::error::RunError;
use crate::report::WINDOWS_ON_CORES;
use crate::runner::Runner;
use crate::settings::{Processor, Settings};
use crate::table::StreamTable;

/// What a core does of a pipeline in a second, before one has run: two filters and a sum take a third of
/// it, a join of three twice.
const CORE_BYTES_PER_S: f64 = 2e9;

/// What a core takes for a row of so many groups that their table is in no cache: to find the group, and its part in
/// merging, spilling and finishing them (TPC-H queries 13 and 18).
const CORE_GROUPED_NS: f64 = 100.0;

/// Groups from which on that is so.
const MANY_GROUPS: u128 = 1 << 22;

/// Of rows that conditions or joins come before, so many are grouped, as long as nothing else is known.
const LEFT_SHARE: f64 = 0.25;

/// How fast columns come to a device the first time, through slots.
const FIRST_BYTES_PER_S: f64 = 20e9;

/// How fast a table streams over the link that comes again and again.
const LINK_BYTES_PER_S: f64 = 50e9;

/// What a kernel takes that is compiled in haste, and opening a device.
const COMPILE_MS: f64 = 350.0;
const OPEN_MS: f64 = 400.0;

/// Pipelines and tables of which times are kept; the one used longest ago leaves.
const ENTRIES_MAX: usize = 256;

/// Where a driver shows that it has GPUs, natively and under WSL.
const DEVICE_FILES: [&str; 2] = ["/dev/nvidiactl", "/dev/dxg"];

/// A pipeline over a table.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    pipeline: Pipeline,
    /// Weak: a table that is gone must not be kept, nor another one taken for it.
    table: Weak<dyn Table>,
}

impl Subject {
    pub(crate) fn new(pipeline: &Pipeline, table: &Arc<dyn Table>) -> Self {
        Self { pipeline: pipeline.clone(), table: Arc::downgrade(table) }
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.table.strong_count() > 0
    }

    pub(crate) fn is(&self, pipeline: &Pipeline, table: &Arc<dyn Table>) -> bool {
        std::ptr::addr_eq(self.table.as_ptr(), Arc::as_ptr(table)) && self.pipeline == *pipeline
    }
}

/// What a pipeline's runs took.
#[derive(Clone, Debug, Default, PartialEq)]
struct Times {
    cores_ms: Option<f64>,
    /// The fastest run on GPUs whose columns were there, and the number of such runs: the first one may have compiled a
    /// kernel over them.
    gpu_ms: Option<f64>,
    gpu_runs: u32,
    /// The reason that an earlier run on a GPU gave up.
    refusal: Option<WhyNot>,
}

/// What is known of pipelines that differ in constants alone: they have one kernel.
#[derive(Clone, Copy, Debug, Default)]
struct Kind {
    /// Whether GPUs have its kernel.
    is_compiled: bool,
    /// Whether a rehearsal was begun.
    is_rehearsed: bool,
}

/// Why the cores run a pipeline.
#[derive(Debug)]
pub(crate) struct OnCores {
    pub why: WhyNot,
    /// Whether a GPU lacks nothing but its start, which stays made, as far as that is known.
    pub lacks_start: bool,
}

impl From<WhyNot> for OnCores {
    fn from(why: WhyNot) -> Self {
        Self { why, lacks_start: false }
    }
}

/// What is known of a table's columns.
#[derive(Clone, Debug, Default, PartialEq)]
struct Account {
    /// Time of the runs on the cores, less the expected time of each start of a GPU.
    spent_ms: f64,
    /// Columns that were brought to GPUs.
    brought: BTreeSet<usize>,
}

/// Sizes that a choice depends on, besides measured times.
#[derive(Clone, Copy, Debug)]
struct Facts {
    /// Bytes of the columns, and those of them that no GPU was brought yet.
    bytes: u64,
    missing_bytes: u64,
    /// Rows that go to many groups.
    grouped_rows: f64,
    threads: usize,
    /// Whether GPUs have its kernel.
    is_compiled: bool,
    /// Whether the cores decode the columns that a GPU is brought.
    is_decoded: bool,
    /// Bytes of columns that the GPUs keep; `None`: none is open yet.
    cache_bytes: Option<u64>,
}

/// What the runs of a session took.
#[derive(Debug, Default)]
pub(crate) struct Placements {
    state: Mutex<State>,
}

/// The ones used last are the last.
#[derive(Debug, Default)]
struct State {
    pipelines: Vec<(Subject, Times)>,
    kinds: Vec<(Subject, Kind)>,
    tables: Vec<(Weak<dyn Table>, Account)>,
    /// Pipelines without their constants that ran over groups on a GPU: their kernels are there.
    over_groups: Vec<Pipeline>,
}

impl Placements {
    /// Takes note of a run on the cores.
    pub(crate) fn ran_on_cores(&self, pipeline: &Pipeline, table: &Arc<dyn Table>, ms: f64) {
        if !may_have_gpus() {
            return;
        }
        let mut state = self.state.lock();
        state.times(pipeline, table).cores_ms = Some(ms);
        state.account(table).spent_ms += ms;
    }

    /// Takes note of a run on GPUs; whether it brought columns. `start_ms`: how long their start was expected to take.
    pub(crate) fn ran_on_gpus(
        &self,
        pipeline: &Pipeline,
        table: &Arc<dyn Table>,
        ms: f64,
        start_ms: f64,
    ) -> bool {
        let mut state = self.state.lock();
        let account = state.account(table);
        let columns = &pipeline.source.ordinals;
        let had_all = columns.iter().all(|column| account.brought.contains(column));
        account.brought.extend(columns);
        account.spent_ms = (account.spent_ms - start_ms).max(0.0);
        let was_compiled = std::mem::replace(&mut state.kind(pipeline, table).is_compiled, true);
        let times = state.times(pipeline, table);
        if had_all && was_compiled {
            times.gpu_ms = Some(times.gpu_ms.map_or(ms, |before| before.min(ms)));
            times.gpu_runs += 1;
        }
        !had_all
    }

    /// Why GPUs do not take a pipeline, as an earlier run found out.
    pub(crate) fn refusal(&self, pipeline: &Pipeline, table: &Arc<dyn Table>) -> Option<WhyNot> {
        let state = self.state.lock();
        let known = state.pipelines.iter().find(|(subject, _)| subject.is(pipeline, table))?;
        known.1.refusal.clone()
    }

    /// What the last run on the cores took.
    pub(crate) fn cores_ms(&self, pipeline: &Pipeline, table: &Arc<dyn Table>) -> Option<f64> {
        self.state.lock().times(pipeline, table).cores_ms
    }

    /// Takes note of why GPUs do not take a pipeline.
    pub(crate) fn was_refused(&self, pipeline: &Pipeline, table: &Arc<dyn Table>, why: &WhyNot) {
        self.state.lock().times(pipeline, table).refusal = Some(why.clone());
    }

    /// Takes note of a run over groups that another stage left on a GPU.
    pub(crate) fn ran_over_groups(&self, pipeline: &Pipeline) {
        let (kind, known) = (pipeline.without_constants(), &mut self.state.lock().over_groups);
        let at = known.iter().position(|known| *known == kind);
        used_last(known, at, || kind);
    }

    /// Whether a pipeline has run so.
    pub(crate) fn has_run_over_groups(&self, pipeline: &Pipeline) -> bool {
        self.state.lock().over_groups.contains(&pipeline.without_constants())
    }

    /// Whether a start behind the queries is due: it is begun once.
    pub(crate) fn begin_rehearsal(&self, pipeline: &Pipeline, table: &Arc<dyn Table>) -> bool {
        let mut state = self.state.lock();
        !std::mem::replace(&mut state.kind(pipeline, table).is_rehearsed, true)
    }

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        *self.state.lock() = State::default();
    }
}

impl State {
    fn times(&mut self, pipeline: &Pipeline, table: &Arc<dyn Table>) -> &mut Times {
        self.pipelines.retain(|(subject, _)| subject.is_alive());
        let known = self.pipelines.iter().position(|(subject, _)| subject.is(pipeline, table));
        let new = || (Subject::new(pipeline, table), Times::default());
        &mut used_last(&mut self.pipelines, known, new).1
    }

    fn kind(&mut self, pipeline: &Pipeline, table: &Arc<dyn Table>) -> &mut Kind {
        self.kinds.retain(|(subject, _)| subject.is_alive());
        let pipeline = pipeline.without_constants();
        let known = self.kinds.iter().position(|(subject, _)| subject.is(&pipeline, table));
        let new = || (Subject::new(&pipeline, table), Kind::default());
        &mut used_last(&mut self.kinds, known, new).1
    }

    fn account(&mut self, table: &Arc<dyn Table>) -> &mut Account {
        self.tables.retain(|(table, _)| table.strong_count() > 0);
        let is_known = |(known, _): &(Weak<dyn Table>, Account)| {
            std::ptr::addr_eq(known.as_ptr(), Arc::as_ptr(table))
        };
        let known = self.tables.iter().position(is_known);
        &mut used_last(&mut self.tables, known, || (Arc::downgrade(table), Account::default())).1
    }
}

/// Whether a driver shows any.
fn may_have_gpus() -> bool {
    DEVICE_FILES.iter().any(|file| Path::new(file).exists())
}

/// Puts an entry, or a new one, last; the first leaves where there are too many.
fn used_last<T>(entries: &mut Vec<T>, known: Option<usize>, new: impl FnOnce() -> T) -> &mut T {
    let entry = known.map_or_else(new, |at| entries.remove(at));
    if entries.len() >= ENTRIES_MAX {
        entries.remove(0);
    }
    entries.push(entry);
    let last = entries.len() - 1;
    &mut entries[last]
}

/// About how many rows of a table go to many groups: those of columns of numbers that lie far apart. Of other keys it is
/// not known, and none are counted.
fn grouped_rows(pipeline: &Pipeline, table: &dyn Table) -> f64 {
    let Sink::Aggregate { keys, .. } = &pipeline.sink else { return 0.0 };
    let rows = table.rows().unwrap_or(0);
    let values = |key: &NamedExpr| {
        let Expr::Register { index, .. } = key.expr else { return 1 };
        let Some(&column) = pipeline.source.ordinals.get(index) else { return 1 };
        if table.dictionary(column).is_some() {
            return 1;
        }
        let stats = table.column_stats(column);
        let span = stats.max.zip(stats.min).map(|(max, min)| max.abs_diff(min));
        span.map_or(1, |span| u128::from(span) + 1)
    };
    let groups = keys.iter().map(values).fold(1, u128::saturating_mul).min(rows.into());
    let share = if pipeline.steps.is_empty() { 1.0 } else { LEFT_SHARE };
    if groups < MANY_GROUPS { 0.0 } else { rows as f64 * share }
}

/// The expected time until GPUs begin a pipeline, in milliseconds, if they are to run it; why not, if the cores are.
fn choose(times: &Times, account: &Account, facts: Facts) -> Result<f64, OnCores> {
    if let Some(refusal) = &times.refusal {
        return Err(refusal.clone().into());
    }
    let cores = |cores_ms: f64, gpu_ms: f64, what: &str| {
        WhyNot::new(format!("auto: the cores take {cores_ms:.0} ms, a GPU {gpu_ms:.0} ms {what}"))
    };
    if let (Some(cores_ms), Some(gpu_ms), 2..) = (times.cores_ms, times.gpu_ms, times.gpu_runs) {
        return if cores_ms < gpu_ms {
            Err(cores(cores_ms, gpu_ms, "as they ran before").into())
        } else {
            Ok(0.0)
        };
    }
    let threads = facts.threads.max(1) as f64;
    let read_ms = facts.bytes as f64 / (CORE_BYTES_PER_S * threads) * 1e3;
    let guess_ms = read_ms + facts.grouped_rows * CORE_GROUPED_NS / threads / 1e6;
    let cores_ms = times.cores_ms.unwrap_or(guess_ms);
    let stays = facts.cache_bytes.is_none_or(|cache_bytes| facts.bytes <= cache_bytes);
    let brought_bytes = if stays { facts.missing_bytes } else { facts.bytes } as f64;
    let rate = if stays { FIRST_BYTES_PER_S } else { LINK_BYTES_PER_S };
    // What the cores decode for a GPU costs them what it does without one.
    let decode_ms = match facts.is_decoded {
        true => brought_bytes / (CORE_BYTES_PER_S * threads) * 1e3,
        false => 0.0,
    };
    let bring_ms = brought_bytes / rate * 1e3 + decode_ms;
    let compile_ms = if facts.is_compiled { 0.0 } else { COMPILE_MS };
    let open_ms = if facts.cache_bytes.is_none() { OPEN_MS } else { 0.0 };
    let start_ms = bring_ms + compile_ms + open_ms;
    if start_ms <= cores_ms || (stays && account.spent_ms >= start_ms) {
        return Ok(start_ms);
    }
    let what = if stays { "until it begins" } else { "for a table that does not fit its memory" };
    Err(OnCores { why: cores(cores_ms, start_ms, what), lacks_start: stays })
}

impl Runner {
    /// Whether `auto` has GPUs run a pipeline: the expected time of their start, in milliseconds.
    ///
    /// # Errors
    /// Why the cores are to run it.
    pub(crate) fn choose(
        &self,
        pipeline: &Pipeline,
        table: &StreamTable,
        settings: &Settings,
    ) -> Result<f64, OnCores> {
        self.functions().check(pipeline)?;
        if pipeline.cuda_functions().iter().any(|(_, has_twin)| !has_twin) {
            return Ok(0.0);
        }
        let source = table.source();
        if source.comes_once() {
            let why = WhyNot::new("auto: a kernel is not made for rows that operators make");
            return Err(why.into());
        }
        if matches!(pipeline.sink, Sink::Windows(_)) && pipeline.probes().next().is_none() {
            // Over the link each of them costs more than a look at it.
            let why =
                WhyNot::new("auto: all rows go to the cores, which sort them for the windows");
            return Err(why.into());
        }
        if source.needs_cores() {
            let why =
                WhyNot::new("auto: the cores decode the table, and a GPU would wait for them");
            return Err(why.into());
        }
        if !may_have_gpus() || settings.behind {
            // Without a GPU this tells why, at no cost. Behind the queries it opens one: no client waits, and the choice
            // needs the bytes that it keeps.
            self.cuda(&settings.devices)?;
        }
        let is_open = !self.gpus().all_open().is_empty();
        let cache_bytes = is_open.then(|| self.device_cache_bytes());
        let mut state = self.placements().state.lock();
        let account = state.account(source).clone();
        let columns = &pipeline.source.ordinals;
        let missing = columns.iter().filter(|column| !account.brought.contains(column));
        let facts = Facts {
            bytes: table.columns_bytes(columns),
            missing_bytes: table.columns_bytes(missing),
            grouped_rows: grouped_rows(pipeline, &**source),
            threads: settings.threads,
            is_compiled: state.kind(pipeline, source).is_compiled,
            is_decoded: source.is_decoded_by_readers(columns),
            cache_bytes,
        };
        match choose(state.times(pipeline, source), &account, facts) {
            // This run makes the start.
            Err(OnCores { lacks_start: true, .. }) if settings.behind => Ok(0.0),
            chosen => chosen,
        }
    }

    /// Whether the columns of a pipeline may stay on the GPUs.
    pub(crate) fn may_keep(&self, pipeline: &Pipeline, table: &StreamTable) -> bool {
        let bytes = table.columns_bytes(&pipeline.source.ordinals);
        let stays = !table.source().comes_once() && !table.source().needs_cores();
        stays && bytes <= self.device_cache_bytes()
    }

    /// Where a stage of a program will run that reads a table or batches, as far as that can be told before the builds that
    /// it probes are made.
    ///
    /// # Errors
    /// Why not on a GPU.
    pub fn place(
        &self,
        program: &Program,
        stage: usize,
        tables: &[Arc<StreamTable>],
        settings: &Settings,
    ) -> Result<(), WhyNot> {
        let asked = settings.processor;
        if matches!(asked, Processor::Cpu | Processor::Off) {
            return Err(WhyNot::new(format!("headrace.processor is {asked}")));
        }
        let values: Vec<_> = program.parameters.iter().map(some_value).collect();
        let program = program.with_values(&values);
        let program = program.map_err(|error| WhyNot::new(error.to_string()))?;
        let missing = || WhyNot::new(format!("stage {stage} is not there"));
        let pipeline = program.stage(stage).ok_or_else(missing)?;
        let table = pipeline.source.input.table().and_then(|table| tables.get(table));
        let Some(table) = table else {
            return Err(WhyNot::new(format!("{} is no table", pipeline.source.table)));
        };
        // What is missing in the program comes before what is missing in the machine.
        if matches!(pipeline.sink, Sink::Windows(_)) {
            return Err(WhyNot::new(WINDOWS_ON_CORES));
        }
        self.functions().check(pipeline)?;
        check_kernel(pipeline, &program.stages, table)?;
        self.cuda(&settings.devices)?;
        match asked {
            Processor::Auto => {
                self.choose(pipeline, table, settings).map(drop).map_err(|on_cores| on_cores.why)
            }
            _ => Ok(()),
        }
    }
}

/// In place of a parameter: whether there is a kernel does not depend on its value.
fn some_value(parameter: &Field) -> Scalar {
    let values = [Value::Bool(false), Value::Int(0), Value::Float(0.0), Value::Utf8(String::new())];
    let scalar = |value| Scalar::new(parameter.data_type.clone(), value);
    let null = || Scalar::null(parameter.data_type.clone());
    values.into_iter().map(scalar).find(Scalar::is_of_its_type).unwrap_or_else(null)
}

/// Asks the code generator whether it makes a kernel of a pipeline whose builds are empty.
fn check_kernel(
    pipeline: &Pipeline,
    stages: &[Pipeline],
    table: &StreamTable,
) -> Result<(), WhyNot> {
    let why = |error: RunError| WhyNot::new(error.to_string());
    let empty = |stage: &Pipeline| build_of(stage, &[], BuildOptions::default()).map(Arc::new);
    let builds: Vec<_> =
        stages.iter().map(empty).collect::<Result<_, _>>().map_err(|error| why(error.into()))?;
    let ordinals = &pipeline.source.ordinals;
    let options = ChunkOptions { is_plain: true, ..ChunkOptions::default() };
    let feed = Arc::clone(table.source()).feed(ordinals, &[], options);
    let feed = feed.map_err(|error| why(error.into()))?;
    let info = source_info(pipeline, table, &*feed);
    let options = BindOptions { lookups: Lookups::Gpu, ..BindOptions::default() };
    let bound = Arc::new(bind(pipeline, &info, &builds, &options)?);
    CudaProgram::check(&bound, Tuning::FULL)?;
    let layout = SegmentLayout::of_encodings(&feed.facts().encodings);
    CudaProgram::compile(bound, &layout, Tuning::FULL).map(drop)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const FACTS: Facts = Facts {
        bytes: 8_000_000_000,
        missing_bytes: 8_000_000_000,
        grouped_rows: 0.0,
        threads: 16,
        is_compiled: false,
        is_decoded: false,
        cache_bytes: Some(60_000_000_000),
    };

    fn is_gpu(times: &Times, spent_ms: f64, facts: Facts) -> bool {
        choose(times, &Account { spent_ms, ..Account::default() }, facts).is_ok()
    }

    #[test]
    fn the_cores_run_first_and_a_gpu_once_they_took_as_long_as_its_start() {
        let times = Times { cores_ms: Some(245.0), ..Times::default() };
        // 0.4 s over the link and 0.35 s for a kernel.
        assert!(!is_gpu(&Times::default(), 0.0, FACTS));
        assert!(!is_gpu(&times, 700.0, FACTS));
        assert!(is_gpu(&times, 800.0, FACTS));
        let closed = Facts { cache_bytes: None, ..FACTS };
        assert!(!is_gpu(&times, 800.0, closed), "a device is to be opened, too");
        let brought = Facts { missing_bytes: 0, ..FACTS };
        assert!(is_gpu(&times, 360.0, brought) && !is_gpu(&times, 340.0, brought));
        let compiled = Facts { is_compiled: true, ..brought };
        assert!(is_gpu(&times, 0.0, compiled), "nothing is left to begin with");
    }

    #[test]
    fn a_start_is_made_behind_the_queries_where_it_stays_made() {
        let lacks_start = |times: &Times, facts| {
            choose(times, &Account::default(), facts).is_err_and(|on_cores| on_cores.lacks_start)
        };
        assert!(lacks_start(&Times::default(), FACTS));
        let large = Facts { cache_bytes: Some(1_000_000_000), ..FACTS };
        assert!(!lacks_start(&Times { cores_ms: Some(100.0), ..Times::default() }, large));
        let both =
            Times { cores_ms: Some(1.0), gpu_ms: Some(2.0), gpu_runs: 2, ..Times::default() };
        assert!(!lacks_start(&both, FACTS));
        let refused = Times { refusal: Some(WhyNot::new("too long")), ..Times::default() };
        assert!(!lacks_start(&refused, FACTS));
    }

    #[test]
    fn few_cores_do_not_outrun_a_gpu_that_has_to_begin() {
        assert!(is_gpu(&Times::default(), 0.0, Facts { threads: 1, ..FACTS }));
    }

    #[test]
    fn many_groups_take_the_cores_longer_than_a_gpu_to_begin() {
        assert!(!is_gpu(&Times::default(), 0.0, FACTS));
        let grouped = Facts { grouped_rows: 600e6, ..FACTS };
        assert!(is_gpu(&Times::default(), 0.0, grouped), "3.75 s of the cores");
        let known = Times { cores_ms: Some(245.0), ..Times::default() };
        assert!(!is_gpu(&known, 0.0, grouped), "what was measured is known better");
    }

    #[test]
    fn a_table_larger_than_device_memory_comes_every_time() {
        let large = Facts { bytes: 128_000_000_000, is_compiled: true, ..FACTS };
        let fast = Times { cores_ms: Some(1160.0), ..Times::default() };
        assert!(!is_gpu(&fast, 1e9, large), "however often it is asked for");
        assert!(is_gpu(&Times { cores_ms: Some(5000.0), ..fast }, 0.0, large));
    }

    #[test]
    fn what_both_took_decides_and_a_refusal_stays() {
        let times = |cores_ms, gpu_ms| Times {
            cores_ms: Some(cores_ms),
            gpu_ms: Some(gpu_ms),
            gpu_runs: 2,
            ..Times::default()
        };
        assert!(is_gpu(&times(10.0, 3.0), 0.0, FACTS));
        let once = Times { gpu_runs: 1, ..times(3.0, 10.0) };
        let brought = Facts { missing_bytes: 0, is_compiled: true, ..FACTS };
        assert!(is_gpu(&once, 0.0, brought), "it may have compiled a kernel");
        let refused = choose(&times(3.0, 10.0), &Account::default(), FACTS).unwrap_err();
        assert_eq!(refused.why.0, "auto: the cores take 3 ms, a GPU 10 ms as they ran before");
        let refusal = Some(WhyNot::new("too long a text"));
        assert!(!is_gpu(&Times { refusal, ..times(10.0, 3.0) }, 0.0, FACTS));
    }
}
