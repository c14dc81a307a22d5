//! One point: the prepared page cache, a warm-up, some runs, and answers that agree.

use std::sync::Arc;

use headrace_flow::{RaceReport, Trace};
use headrace_io::SourceFile;
use headrace_ooc::{Options, Processor, Report};

use super::error::Unmeasured;
use super::memory::forget_peak;
use super::operator::{Input, Limits, Operator, Ran};
use super::record::{Figure, Point};
use super::stages::{ChunkTimes, StageTimes};
use super::{Answer, OocBenchError, OocPlan, Source, Variant};
use crate::transfer::{
    BenchPlan, CacheRecord, CacheState, Hooks, PathChoice, Pattern, cache_state, chunks, input,
};

/// Maximum spans of a run: as many chunks as the largest inputs have.
const SPANS_MAX: usize = 1 << 18;

/// How to measure a point.
#[derive(Debug, Clone)]
pub(super) struct Setup {
    pub figure: Figure,
    pub variant: Variant,
    pub cache: CacheState,
    pub chunk_bytes: Option<u64>,
    pub slots: Option<usize>,
}

impl Setup {
    /// A variant as it runs by itself, cold.
    pub fn of(figure: Figure, variant: &Variant) -> Setup {
        let variant = variant.clone();
        Setup { figure, variant, cache: CacheState::Cold, chunk_bytes: None, slots: None }
    }
}

/// A point, and the races of its best run, for the model.
#[derive(Debug)]
pub(super) struct Measured {
    pub point: Point,
    pub races: Vec<RaceReport>,
}

/// The measurements on one input.
pub(super) struct Subject<'a> {
    pub plan: &'a OocPlan,
    pub operator: &'a dyn Operator,
    pub limits: Limits,
    /// The reason why nothing runs on a GPU, if so.
    pub no_gpu: Option<&'a str>,
    pub input: &'a Input,
    /// Whether the kernels of the next measurement have run before.
    pub is_warm: bool,
    /// The first variant's result, and its name.
    answer: Option<(String, Answer)>,
}

/// One timed run.
struct Timed {
    answer: Answer,
    report: Report,
    trace: Trace,
    resident_peak_bytes: Option<u64>,
}

impl<'a> Subject<'a> {
    /// An input without a known answer.
    pub fn new(
        (plan, operator): (&'a OocPlan, &'a dyn Operator),
        limits: Limits,
        no_gpu: Option<&'a str>,
        input: &'a Input,
    ) -> Subject<'a> {
        Subject { plan, operator, limits, no_gpu, input, is_warm: false, answer: None }
    }

    /// Measures a point. Of several access paths the first available one counts.
    ///
    /// # Errors
    /// Why there is no point; the end of everything if answers differ.
    pub fn measure(&mut self, setup: &Setup) -> Result<Measured, Unmeasured> {
        if let (Processor::Cuda, Some(why)) = (setup.variant.processor, self.no_gpu) {
            return Err(Unmeasured::Unavailable(why.to_string()));
        }
        let Source::Files(ways) = &setup.variant.source else {
            return self.measure_by(setup, None);
        };
        let mut notes = Vec::new();
        let mut last = Unmeasured::Unavailable("no way of reading is named".to_string());
        for way in *ways {
            match self.measure_by(setup, Some(*way)) {
                Ok(mut measured) => {
                    measured.point.notes.splice(0..0, notes);
                    return Ok(measured);
                }
                Err(Unmeasured::Unavailable(why)) => {
                    notes.push(format!("not by {way}: {why}"));
                    last = Unmeasured::Unavailable(why);
                }
                Err(other) => return Err(other),
            }
        }
        Err(last)
    }

    fn measure_by(
        &mut self,
        setup: &Setup,
        way: Option<PathChoice>,
    ) -> Result<Measured, Unmeasured> {
        let mut options = self.options(setup, way);
        let input = self.input;
        let operator = self.operator;
        let mut again = operator.ready(input, &setup.variant.source, &self.limits, &options)?;
        let mut runs: Vec<Timed> = Vec::new();
        let mut cache = None;
        let warm_ups = usize::from(self.needs_warm_up(setup));
        for run in 0..warm_ups + self.plan.runs {
            self.plan.check_cancelled()?;
            if way.is_some() {
                cache = Some(establish(self.plan, input, setup.cache)?);
            }
            let trace = Trace::new("bench", SPANS_MAX);
            options.trace = Some(trace.clone());
            forget_peak();
            let ran = again(&options);
            let resident_peak_bytes = headrace_io::system::peak_memory_bytes();
            // Whatever came of it: the next run writes it anew.
            let _ = std::fs::remove_file(&input.output);
            let Ran { answer, report } = ran?;
            self.compare(&setup.variant.name, &answer)?;
            if run >= warm_ups {
                runs.push(Timed { answer, report, trace, resident_peak_bytes });
            }
        }
        Ok(self.point(setup, way, cache, runs))
    }

    fn options(&self, setup: &Setup, way: Option<PathChoice>) -> Options {
        let (access, direct_engine) = way.unwrap_or(PathChoice::Auto).access();
        Options {
            processor: setup.variant.processor,
            chunk_bytes: setup.chunk_bytes.map(|bytes| bytes as usize),
            slots: setup.slots,
            access,
            direct_engine,
            sync: way.is_some(),
            ..self.plan.options()
        }
    }

    /// A hot run has run before; so have kernels, which are compiled at their first run.
    fn needs_warm_up(&self, setup: &Setup) -> bool {
        let is_gpu = setup.variant.processor == Processor::Cuda;
        setup.cache == CacheState::Hot || is_gpu && !self.is_warm
    }

    fn compare(&mut self, variant: &str, answer: &Answer) -> Result<(), OocBenchError> {
        match &self.answer {
            None => self.answer = Some((variant.to_string(), answer.clone())),
            Some((first, known)) if !known.agrees(answer) => {
                return Err(OocBenchError::Answers {
                    operator: self.operator.name(),
                    input: headrace_io::decimal_bytes(self.input.bytes),
                    found: [format!("{first} found {known}"), format!("{variant} found {answer}")],
                });
            }
            Some(_) => {}
        }
        Ok(())
    }

    fn point(
        &self,
        setup: &Setup,
        way: Option<PathChoice>,
        cache: Option<CacheRecord>,
        mut runs: Vec<Timed>,
    ) -> Measured {
        let runs_s: Vec<f64> = runs.iter().map(|run| run.report.wall_ns as f64 / 1e9).collect();
        runs.sort_by_key(|run| run.report.wall_ns);
        let median_ns = runs[runs.len() / 2].report.wall_ns.max(1);
        let best = runs.swap_remove(0);
        let report = best.report;
        let input = self.input;
        let is_cold = cache.as_ref().is_some_and(|cache| cache.asked == CacheState::Cold);
        let mut notes = report.notes.clone();
        for pass in &report.passes {
            notes.extend(pass.race.path_reasons.iter().cloned());
        }
        if best.trace.dropped() > 0 {
            notes.push(format!("{} spans were not recorded", best.trace.dropped()));
        }
        notes.dedup();
        let point = Point {
            figure: setup.figure,
            variant: setup.variant.name.clone(),
            processor: setup.variant.processor,
            ran_on: report.ran_on.clone(),
            way: way.map(PathChoice::name),
            input_bytes: input.bytes,
            records: input.records,
            selectivity: input.selectivity,
            chunk_bytes: setup.chunk_bytes,
            slots: setup.slots,
            cache,
            best_s: report.wall_ns as f64 / 1e9,
            median_s: median_ns as f64 / 1e9,
            gb_per_s: input.bytes as f64 / median_ns as f64,
            records_per_s: input.records as f64 / median_ns as f64 * 1e9,
            runs_s,
            answer: best.answer,
            output_bytes: report.output_bytes,
            temporary_bytes: report.temporary_bytes,
            stages: StageTimes::of(&report),
            chunk_times: ChunkTimes::of(&best.trace.spans()),
            host_peak_bytes: report.host_peak_bytes,
            resident_peak_bytes: best.resident_peak_bytes,
            device_peak_bytes: report.device_peak_bytes,
            limited_by: limit_of(&report, is_cold),
            roofline: None,
            predicted: None,
            notes,
        };
        Measured { point, races: report.passes.into_iter().map(|pass| pass.race).collect() }
    }
}

/// The limit of the longest race. Bytes that were read through the page cache, but were not in it,
/// came from storage.
fn limit_of(report: &Report, is_cold: bool) -> Option<String> {
    let longest = report.passes.iter().max_by_key(|pass| pass.race.wall_ns)?;
    let limit = longest.race.bottleneck()?.to_string();
    let storage = "storage-bound (through the page cache)";
    Some(if is_cold { limit.replacen("page-cache-bound", storage, 1) } else { limit })
}

/// Evicts an input's files from the page cache, or loads them.
pub(super) fn establish(
    plan: &OocPlan,
    input: &Input,
    cache: CacheState,
) -> Result<CacheRecord, Unmeasured> {
    let files = input::Inputs::open(&input.paths)?;
    let pattern = Pattern::Sequential { chunk_bytes: 4 << 20 };
    let chunks = chunks::cut(&files.sizes_bytes(), pattern, None);
    let files: Vec<Arc<SourceFile>> = files.files.into_iter().map(|input| input.file).collect();
    let hooks = Hooks { cancel: Some(plan.cancel.clone()), ..Hooks::default() };
    let transfer = BenchPlan { cache, hooks, ..BenchPlan::new(input.paths.clone()) };
    Ok(cache_state::prepare(&transfer, &files, &chunks)?)
}
