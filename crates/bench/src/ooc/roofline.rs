//! Plain reads and writes of the same files, and the model's predictions from them.

use std::sync::Arc;

use headrace_ceilings::Measure;
use headrace_ceilings::model::{self, Gpu, Machine, Scan, StorageDevice};
use headrace_flow::RaceReport;
use headrace_gpu::Device;
use headrace_ooc::Processor;

use super::OocPlan;
use super::error::{Unmeasured, first_line};
use super::measure::Measured;
use super::operator::Input;
use super::record::{Figure, Missing, PlainRead, Point, Predicted, Roofline};
use crate::transfer::{
    Bench, BenchPlan, BenchRun, CacheState, Hooks, HostMemory, Operation, PathChoice, Pattern,
    Target, against_ceilings,
};

/// Maximum size of a plain write: more says nothing new about a drive that is not full.
const WRITE_BYTES_MAX: u64 = 1 << 30;

/// A plain transfer of an input.
#[derive(Debug, Clone)]
struct Plain {
    target: Target,
    memory: HostMemory,
    cache: CacheState,
    way: PathChoice,
}

/// The plain reads of an input; `is_detailed` adds those from the page cache.
fn wanted(has_gpu: bool, is_detailed: bool) -> Vec<Plain> {
    use PathChoice::{Cufile, Direct, Mmap, Pread, Registered, Uring};
    let (gpu, pinned) = (Target::Gpus(vec![0]), HostMemory::Pinned);
    let plain = |target: &Target, memory, cache| {
        let target = target.clone();
        move |way| Plain { target: target.clone(), memory, cache, way }
    };
    let mut all = Vec::new();
    all.extend([Uring, Direct, Pread].map(plain(&Target::Host, pinned, CacheState::Cold)));
    if has_gpu {
        all.extend([Uring, Direct, Cufile].map(plain(&gpu, pinned, CacheState::Cold)));
    }
    if is_detailed {
        all.extend([Mmap, Pread].map(plain(&Target::Host, pinned, CacheState::Hot)));
    }
    if is_detailed && has_gpu {
        all.extend([Pread, Registered].map(plain(&gpu, pinned, CacheState::Hot)));
        all.extend([Pread].map(plain(&gpu, HostMemory::Pageable, CacheState::Hot)));
    }
    all
}

/// Measures the plain reads of an input, and a plain write in its folder.
///
/// # Errors
/// [`Unmeasured::Ended`] only: unavailable access paths count as missing.
pub(super) fn measure(
    (plan, transfers): (&OocPlan, &mut Bench),
    input: &Input,
    (has_gpu, is_detailed): (bool, bool),
) -> Result<(Vec<PlainRead>, Vec<Missing>), Unmeasured> {
    let mut found = Vec::new();
    let mut missing = Vec::new();
    for plain in wanted(has_gpu, is_detailed) {
        let transfer = BenchPlan {
            target: plain.target.clone(),
            memory: plain.memory,
            cache: plain.cache,
            path: plain.way,
            ..transfer_of(plan, input)
        };
        let name = format!("{} to {}", plain.way, plain.target);
        take(run(transfers, &transfer), (name, input), (&mut found, &mut missing))?;
    }
    if is_detailed {
        let bytes = (input.bytes / 4).clamp(1, WRITE_BYTES_MAX);
        let transfer = BenchPlan {
            paths: vec![input.output.clone()],
            operation: Operation::Write { bytes, overwrite: true, keep: false },
            ..transfer_of(plan, input)
        };
        let name = "write".to_string();
        take(run(transfers, &transfer), (name, input), (&mut found, &mut missing))?;
    }
    Ok((found, missing))
}

fn transfer_of(plan: &OocPlan, input: &Input) -> BenchPlan {
    BenchPlan {
        pattern: Pattern::Sequential { chunk_bytes: 16 << 20 },
        hooks: Hooks { cancel: Some(plan.cancel.clone()), ..Hooks::default() },
        ..BenchPlan::new(input.paths.clone())
    }
}

fn run(transfers: &mut Bench, plan: &BenchPlan) -> Result<BenchRun, Unmeasured> {
    let run = transfers.run(plan)?;
    match run.partial {
        Some(_) => Err(super::OocBenchError::Interrupted.into()),
        None => Ok(run),
    }
}

fn take(
    ran: Result<BenchRun, Unmeasured>,
    (name, input): (String, &Input),
    (found, missing): (&mut Vec<PlainRead>, &mut Vec<Missing>),
) -> Result<(), Unmeasured> {
    let (reason, is_failure) = match ran {
        Ok(run) => {
            found.push(PlainRead {
                operation: run.operation,
                input_bytes: input.bytes,
                target: run.target,
                memory: run.memory,
                cache: run.cache.asked,
                way: run.path,
                gb_per_s: run.gb_per_s,
                notes: run.cache.notes,
            });
            return Ok(());
        }
        Err(Unmeasured::Unavailable(reason)) => (reason, false),
        Err(Unmeasured::Failed(reason)) => (reason, true),
        Err(ended) => return Err(ended),
    };
    let (figure, input_bytes) = (Figure::Plain, Some(input.bytes));
    missing.push(Missing { figure, variant: name, input_bytes, reason, is_failure });
    Ok(())
}

/// The best plain read of an input of this size, to this processor, with the page cache in this
/// state.
fn best_read(
    plain: &[PlainRead],
    input_bytes: u64,
    processor: Processor,
    cache: CacheState,
) -> Option<&PlainRead> {
    let is_host = processor == Processor::Cpu;
    let alike = plain.iter().filter(|read| {
        read.operation == "read"
            && (read.input_bytes, read.cache) == (input_bytes, cache)
            && (read.target == "host") == is_host
            && read.memory != Some(HostMemory::Pageable.name())
    });
    alike.max_by(|a, b| a.gb_per_s.total_cmp(&b.gb_per_s))
}

/// Links of a GPU, measured once.
#[derive(Debug, Clone, Default)]
pub(super) struct Links {
    h2d_gb_per_s: Option<f64>,
    d2h_gb_per_s: Option<f64>,
}

impl Links {
    /// Those of a device; unmeasurable ones are unknown.
    pub fn of(device: &Arc<Device>) -> Links {
        let mut links = Links::default();
        for measured in against_ceilings::links(std::slice::from_ref(device)).unwrap_or_default() {
            match measured.measure {
                Measure::HostToDevice { .. } => links.h2d_gb_per_s = Some(measured.value),
                Measure::DeviceToHost { .. } => links.d2h_gb_per_s = Some(measured.value),
                _ => {}
            }
        }
        links
    }
}

/// Compares every point that read files with the best plain read of them, and with the model, whose
/// rates come from this benchmark: plain reads and writes, links, and the work in memory. The model
/// overlaps reads and writes, as if each had its own drive.
pub(super) fn judge(plain: &[PlainRead], links: &Links, measured: &mut [Measured]) {
    let in_core: Vec<(Processor, u64, f64)> = measured
        .iter()
        .filter(|one| one.point.figure == Figure::Throughput && one.point.way.is_none())
        .filter(|one| one.point.variant.starts_with("in-core"))
        .map(|one| (one.point.processor, one.point.input_bytes, one.point.gb_per_s))
        .collect();
    for Measured { point, races } in measured {
        let Some(cache) = point.cache.as_ref().map(|cache| cache.asked) else { continue };
        let Some(read) = best_read(plain, point.input_bytes, point.processor, cache) else {
            continue;
        };
        let share = point.gb_per_s / read.gb_per_s;
        point.roofline = Some(Roofline { gb_per_s: read.gb_per_s, way: read.way, share });
        let work = in_core.iter().find(|(processor, bytes, _)| {
            (*processor, *bytes) == (point.processor, point.input_bytes)
        });
        let machine = machine(plain, links, point, work.map(|(.., gb_per_s)| *gb_per_s));
        match predict(point, races, &machine) {
            Ok(predicted) => point.predicted = Some(predicted),
            Err(reason) => point.notes.push(format!("no prediction: {reason}")),
        }
    }
}

fn machine(plain: &[PlainRead], links: &Links, point: &Point, work: Option<f64>) -> Machine {
    let of_host = |cache| best_read(plain, point.input_bytes, Processor::Cpu, cache);
    let write = plain.iter().find(|transfer| transfer.operation == "write");
    let storage = of_host(CacheState::Cold).map(|read| StorageDevice {
        name: "plain reads".to_string(),
        read_gb_per_s: read.gb_per_s,
        write_gb_per_s: write.map(|write| write.gb_per_s),
    });
    let is_gpu = point.processor == Processor::Cuda;
    let gpu = links.h2d_gb_per_s.filter(|_| is_gpu).map(|h2d_gb_per_s| Gpu {
        name: point.ran_on.clone(),
        h2d_gb_per_s,
        d2h_gb_per_s: links.d2h_gb_per_s,
        // The model has a chunk arrive in device memory, and be read there once.
        memory_gb_per_s: work.map(|gb_per_s| 2.0 * gb_per_s),
    });
    Machine {
        storage: storage.into_iter().collect(),
        page_cache_gb_per_s: of_host(CacheState::Hot).map(|read| read.gb_per_s),
        cpu_gb_per_s: work.filter(|_| !is_gpu),
        cpu_workers: headrace_io::system::cores() as u32,
        gpus: gpu.into_iter().collect(),
        ..Machine::default()
    }
}

/// Races run one after the other; those that read share the work in memory.
fn predict(point: &Point, races: &[RaceReport], machine: &Machine) -> Result<Predicted, String> {
    let reading = races.iter().filter(|race| race.bytes_by_path.total() > 0).count();
    let machine = Machine {
        cpu_gb_per_s: machine.cpu_gb_per_s.map(|gb_per_s| gb_per_s * reading as f64),
        ..machine.clone()
    };
    let mut seconds = 0.0;
    let mut longest = (0.0, String::new());
    for race in races.iter().filter(|race| race.bytes_by_path.total() + race.written_bytes > 0) {
        let scan = scan_of(point, race);
        let predicted = model::predict(&scan, &machine).map_err(|error| first_line(&error))?;
        seconds += predicted.total_s;
        if predicted.total_s > longest.0 {
            longest = (predicted.total_s, predicted.bottleneck.to_string());
        }
    }
    if seconds == 0.0 {
        return Err("no race read or wrote anything".to_string());
    }
    let gb_per_s = point.input_bytes as f64 / 1e9 / seconds;
    Ok(Predicted { seconds, gb_per_s, bottleneck: longest.1 })
}

fn scan_of(point: &Point, race: &RaceReport) -> Scan {
    let by = race.bytes_by_path;
    let target = match point.processor {
        Processor::Cuda => model::Target::Gpu,
        _ => model::Target::Host,
    };
    let is_cold = point.cache.as_ref().is_some_and(|cache| cache.asked == CacheState::Cold);
    let in_memory = by.buffered + by.mapped + by.registered;
    let read = by.direct + by.cufile;
    let scan = match is_cold {
        true => Scan::of_paths(read + in_memory, by.cached, 0, 0, target),
        false => Scan::of_paths(read, in_memory - by.registered, by.registered, 0, target),
    };
    let slots = point.slots.map_or(scan.slots, |slots| u32::try_from(slots).unwrap_or(u32::MAX));
    Scan {
        chunk_bytes: (by.total() / race.chunks.max(1)).max(1),
        slots,
        result_bytes: race.written_bytes,
        result_written: race.written_bytes > 0,
        ..scan
    }
}
