//! The benchmark: operator by operator, size by size.

use std::mem::discriminant;
use std::path::Path;

use headrace_io::{binary_bytes, decimal_bytes};
use headrace_ooc::{DeviceRoom, Options, Processor};

use super::error::{Unmeasured, first_line};
use super::folder::OwnFolder;
use super::intersect::Intersect;
use super::matvec::Matvec;
use super::measure::{Measured, Setup, Subject};
use super::operator::{Input, Limits, Operator, variants};
use super::record::{Figure, Missing, OocRecord, OperatorRecord, Point, Versions};
use super::render::cache_name;
use super::roofline::{self, Links};
use super::sort::Sort;
use super::{Benchmark, OocBenchError, OocPlan, Source, Variant};
use crate::transfer::{Bench, CacheState, PathChoice};

/// Measures the plan; `tell` receives every finished point.
///
/// # Errors
/// See [`OocBenchError`]. An interruption after the first point is not an error: the record says
/// that it is partial. Nothing is left in the folder in any case.
pub fn run(plan: &OocPlan, tell: &dyn Fn(&str)) -> Result<OocRecord, OocBenchError> {
    plan.check()?;
    let folder = OwnFolder::below(&plan.folder, plan.max_bytes)?;
    // Open until the end: what it takes to begin with a device is no part of a run.
    let room = DeviceRoom::open(&Options::default());
    let device_bytes = room.as_ref().ok().map(|room| room.pool.stats().budget_bytes);
    let links = room.as_ref().map(|room| Links::of(room.pool.device())).unwrap_or_default();
    let mut record = OocRecord {
        command: plan.command.clone(),
        versions: versions(),
        folder: plan.folder.display().to_string(),
        max_bytes: plan.max_bytes,
        runs: plan.runs,
        limits: Limits::now(device_bytes),
        no_gpu: room.as_ref().err().map(first_line),
        operators: Vec::new(),
        partial: None,
    };
    for benchmark in &plan.benchmarks {
        let operator = operator_of(*benchmark);
        let mut session = Session::new(plan, &*operator, &record, tell);
        let ended = session.run(&folder);
        let (measured, mut of_operator) = (session.measured, session.record);
        of_operator.points = against_ceilings(&of_operator, &links, measured);
        let has_points = !of_operator.points.is_empty();
        record.operators.push(of_operator);
        match ended {
            Ok(()) => {}
            Err(OocBenchError::Interrupted) if has_points || record.operators.len() > 1 => {
                record.partial = Some("interrupted");
                break;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(record)
}

fn operator_of(benchmark: Benchmark) -> Box<dyn Operator> {
    match benchmark {
        Benchmark::Intersect => Box::new(Intersect),
        Benchmark::Sort => Box::new(Sort),
        Benchmark::Matvec => Box::new(Matvec),
    }
}

fn against_ceilings(
    record: &OperatorRecord,
    links: &Links,
    mut measured: Vec<Measured>,
) -> Vec<Point> {
    roofline::judge(&record.plain, links, &mut measured);
    measured.into_iter().map(|one| one.point).collect()
}

fn versions() -> Versions {
    let probe = headrace_gpu::probe();
    Versions {
        headrace: env!("CARGO_PKG_VERSION"),
        driver: match probe.driver_version {
            Ok((major, minor)) => format!("CUDA {major}.{minor}"),
            Err(reason) => first_line(&reason),
        },
        nvrtc: match probe.nvrtc {
            Ok(found) => format!("{}.{}", found.major, found.minor),
            Err(reason) => first_line(&reason),
        },
    }
}

/// One operator.
struct Session<'a> {
    plan: &'a OocPlan,
    operator: &'a dyn Operator,
    limits: Limits,
    no_gpu: Option<String>,
    tell: &'a dyn Fn(&str),
    transfers: Bench,
    threads: usize,
    /// Sources from which the operator has run on a GPU.
    warm: Vec<Source>,
    measured: Vec<Measured>,
    record: OperatorRecord,
}

impl<'a> Session<'a> {
    fn new(
        plan: &'a OocPlan,
        operator: &'a dyn Operator,
        record: &OocRecord,
        tell: &'a dyn Fn(&str),
    ) -> Session<'a> {
        Session {
            plan,
            operator,
            limits: record.limits,
            no_gpu: record.no_gpu.clone(),
            tell,
            transfers: Bench::new(),
            threads: plan.options().threads(),
            warm: Vec::new(),
            measured: Vec::new(),
            record: OperatorRecord {
                operator: operator.name(),
                records_name: operator.records_name(),
                sizes_bytes: Vec::new(),
                detail_bytes: 0,
                has_selectivities: !operator.selectivities(plan.is_quick).is_empty(),
                plain: Vec::new(),
                points: Vec::new(),
                missing: Vec::new(),
            },
        }
    }

    fn run(&mut self, folder: &OwnFolder) -> Result<(), OocBenchError> {
        let sizes_bytes = self.plan.sizes_bytes(self.operator.input_bytes_max(self.plan.max_bytes));
        let detail_bytes = self.plan.detail_bytes(&sizes_bytes);
        for bytes in sizes_bytes {
            let is_detailed = bytes == detail_bytes;
            let input = self.generate(folder.path(), bytes, None)?;
            self.record.sizes_bytes.push(input.bytes);
            if is_detailed {
                self.record.detail_bytes = input.bytes;
            }
            self.plain(&input, is_detailed)?;
            let mut setups = self.of_all_variants(Figure::Throughput);
            if is_detailed {
                setups.extend(self.methods(bytes));
            }
            self.measure(&input, &setups)?;
            folder.empty()?;
        }
        for selectivity in self.operator.selectivities(self.plan.is_quick) {
            let input = self.generate(folder.path(), detail_bytes, Some(*selectivity))?;
            let setups = self.of_all_variants(Figure::Selectivity);
            self.measure(&input, &setups)?;
            folder.empty()?;
        }
        Ok(())
    }

    fn generate(
        &self,
        folder: &Path,
        bytes: u64,
        selectivity: Option<f64>,
    ) -> Result<Input, OocBenchError> {
        self.plan.check_cancelled()?;
        let bytes_text = decimal_bytes(bytes);
        (self.tell)(&format!("{}: generating {bytes_text}", self.operator.name()));
        // On stable storage: what is still to be written would be in the way of what is measured.
        let options = Options { sync: true, ..self.plan.options() };
        match self.operator.generate(folder, bytes, selectivity, &options) {
            Ok(input) => Ok(input),
            Err(headrace_ooc::OocError::Cancelled) => Err(OocBenchError::Interrupted),
            Err(error) => Err(error.into()),
        }
    }

    fn plain(&mut self, input: &Input, is_detailed: bool) -> Result<(), OocBenchError> {
        let how = (self.no_gpu.is_none(), is_detailed);
        match roofline::measure((self.plan, &mut self.transfers), input, how) {
            Ok((plain, missing)) => {
                self.record.plain.extend(plain);
                self.record.missing.extend(missing);
                Ok(())
            }
            Err(Unmeasured::Ended(error)) => Err(*error),
            Err(Unmeasured::Unavailable(_) | Unmeasured::Failed(_)) => Ok(()),
        }
    }

    fn of_all_variants(&self, figure: Figure) -> Vec<Setup> {
        variants(self.threads).iter().map(|variant| Setup::of(figure, variant)).collect()
    }

    /// Access paths, by chunk size, cold and hot; on a GPU also without overlap.
    fn methods(&self, input_bytes: u64) -> Vec<Setup> {
        let mut setups = Vec::new();
        for cache in [CacheState::Cold, CacheState::Hot] {
            for (processor, way, ways) in WAYS {
                for chunk_bytes in self.plan.chunks_bytes(input_bytes) {
                    let name = match processor {
                        Processor::Cuda => format!("gpu, {way}"),
                        _ => format!("cpu, {way}"),
                    };
                    let variant = Variant { name, processor, source: Source::Files(ways) };
                    let setup = Setup {
                        cache,
                        chunk_bytes: Some(chunk_bytes),
                        ..Setup::of(Figure::Methods, &variant)
                    };
                    if processor == Processor::Cuda && way == PathChoice::Uring {
                        let mut alone = Setup { slots: Some(1), ..setup.clone() };
                        alone.variant.name.push_str(", no overlap");
                        setups.push(alone);
                    }
                    setups.push(setup);
                }
            }
        }
        setups
    }

    fn measure(&mut self, input: &Input, setups: &[Setup]) -> Result<(), OocBenchError> {
        let no_gpu = self.no_gpu.clone();
        let what = (self.plan, self.operator);
        let mut subject = Subject::new(what, self.limits, no_gpu.as_deref(), input);
        for setup in setups {
            let source = &setup.variant.source;
            subject.is_warm =
                self.warm.iter().any(|warm| discriminant(warm) == discriminant(source));
            let (reason, is_failure) = match subject.measure(setup) {
                Ok(measured) => {
                    if setup.variant.processor == Processor::Cuda && !subject.is_warm {
                        self.warm.push(source.clone());
                    }
                    (self.tell)(&line_of(self.operator.name(), &measured.point));
                    self.measured.push(measured);
                    continue;
                }
                Err(Unmeasured::Unavailable(reason)) => (reason, false),
                Err(Unmeasured::Failed(reason)) => (reason, true),
                Err(Unmeasured::Ended(error)) => return Err(*error),
            };
            self.missing(input, setup, reason, is_failure);
        }
        Ok(())
    }

    /// Once for each variant, if the reason is the same for all sizes.
    fn missing(&mut self, input: &Input, setup: &Setup, reason: String, is_failure: bool) {
        let is_everywhere =
            setup.variant.processor == Processor::Cuda && self.no_gpu.as_ref() == Some(&reason);
        let missing = Missing {
            figure: setup.figure,
            variant: setup.variant.name.clone(),
            input_bytes: (!is_everywhere).then_some(input.bytes),
            reason,
            is_failure,
        };
        if !self.record.missing.contains(&missing) {
            self.record.missing.push(missing);
        }
    }
}

/// Access paths, one by one.
const WAYS: [(Processor, PathChoice, &[PathChoice]); 10] = {
    use PathChoice::{Cufile, Direct, Mmap, Pread, Registered, Uring};
    [
        (Processor::Cpu, Mmap, &[Mmap]),
        (Processor::Cpu, Pread, &[Pread]),
        (Processor::Cpu, Direct, &[Direct]),
        (Processor::Cpu, Uring, &[Uring]),
        (Processor::Cuda, Mmap, &[Mmap]),
        (Processor::Cuda, Pread, &[Pread]),
        (Processor::Cuda, Direct, &[Direct]),
        (Processor::Cuda, Uring, &[Uring]),
        (Processor::Cuda, Registered, &[Registered]),
        (Processor::Cuda, Cufile, &[Cufile]),
    ]
};

fn line_of(operator: &str, point: &Point) -> String {
    let mut text = format!("{operator}: {}", point.variant);
    if let Some(bytes) = point.chunk_bytes {
        text.push_str(&format!(", chunks of {}", binary_bytes(bytes)));
    }
    let cache = point.cache.as_ref().map(|cache| cache_name(cache.asked));
    let cache = cache.map(|name| format!(", {name}")).unwrap_or_default();
    let bytes = decimal_bytes(point.input_bytes);
    format!("{text}, {bytes}{cache}: {:.2} GB/s", point.gb_per_s)
}
