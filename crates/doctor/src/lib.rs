//! The doctor: finds the obstacles between a path and the processor with real reads.
//!
//! ```text
//!  paths ───► paths, access ── every way, tried and timed ─┐
//!  machine ─► machine ─────── limits, kernel, memory ──────┼─► Facts ─► judge ─► Findings ─► Report
//!  GPUs ────► gpu ─────────── driver, links, speeds ───────┘     │                   text, JSON
//!                                                                └─► Ceilings (the shared record)
//! ```
//!
//! * Observation and judgement are separate. Observers return [`Facts`], plain data without a
//!   verdict. Judges are functions of facts alone, so a test can judge any machine.
//! * Nothing is guessed. An unavailable fact is [`Known::Unknown`] with the reason, and becomes a
//!   [`Finding`] of [`Level::Unknown`] where it matters.
//! * The capabilities of a path are tried, not inferred: every access path reads a piece of the
//!   file, compares it with plain reads, and is timed briefly. The access paths are those of the
//!   benchmark and of queries.
//! * Nothing is written to the paths unless [`Options::write`] is set, and the written file is
//!   removed. Reads through the page cache leave their data there.
//! * The parts of a report (a [`Finding`] with its [`Level`], [`Counts`], [`Known`], [`Report`]) are independent
//!   of the subject: the doctor of a PostgreSQL server uses them too.
//!
//! [`gds`] is a table of the same facts: what is here of GPUDirect Storage.
//! [`gpus`] lists the GPUs alone, with the same facts. [`system`] has the machine facts that only the doctor
//! needs; shared ones are in `headrace_io::system`.
//!
//! `headrace_bench`'s transfers try the access paths, because they measure what a path delivers; only they
//! and `headrace_gpu::measure` measure here. The record of ceilings is `headrace_ceilings`.
//!
//! This crate must never know: SQL, tables, formats, terminals, PostgreSQL.

#![warn(missing_docs)]

mod access;
mod facts;
mod finding;
mod gds;
mod gpu;
pub mod gpus;
mod judge;
mod machine;
mod options;
mod paths;
mod record;
mod render;
pub mod system;

use std::path::{Path, PathBuf};

use headrace_gpu::measure::CopySpeed;
use headrace_io::system::{NearestGpu, PciAddress, StorageHome, SysRoot, nearest_gpu};
use serde::Serialize;

pub use facts::{
    AccessProbe, CuFileFact, DeviceMemoryFact, DirectAlignment, Facts, FileFact, FilesBelow,
    GpuFact, GpuFacts, Known, LinkFact, MachineFacts, Outcome, PathFacts, PathKind, StageCeiling,
    Way,
};
pub use finding::{Counts, Finding, Level};
pub use gds::{Gds, GdsRow, GdsWay, Met, gds, render_gds};
pub use options::{Options, ProgressSink};
pub use render::{render, render_judged};

use access::Prober;
use gpu::cufile_fact;
use system::pci_links;

/// Facts and findings; also about other subjects than this machine.
#[derive(Debug, Clone, Serialize)]
pub struct Report<F = Facts> {
    /// Version of this format; it changes when a field changes its meaning.
    pub version: u32,
    /// 0 all well, 1 works but slower than it could, 2 broken.
    pub exit_code: i32,
    /// "1 problem, 2 things that could be faster".
    pub summary: String,
    /// How many findings there are of each level.
    pub counts: Counts,
    /// Worst first.
    pub findings: Vec<Finding>,
    /// The facts.
    pub facts: F,
}

impl Report {
    /// Judges facts.
    pub fn of(facts: Facts) -> Report {
        let findings = judge::judge(&facts);
        Report::judged(facts, findings)
    }
}

impl<F> Report<F> {
    /// From judged facts, worst finding first.
    pub fn judged(facts: F, mut findings: Vec<Finding>) -> Report<F> {
        finding::sort(&mut findings);
        let counts = Counts::of(&findings);
        Report {
            version: 1,
            exit_code: counts.exit_code(),
            summary: counts.summary(),
            counts,
            findings,
            facts,
        }
    }
}

/// Examines the machine and each of the paths, and judges.
pub fn examine(paths: &[PathBuf], options: &Options) -> Report {
    let root = SysRoot::host();
    options.say("the machine");
    let machine = machine::look(&root, options.quick);
    options.say("GPUs");
    let mut gpu = gpu::look(&root, options.quick);
    let mut prober = Prober::new(options);
    let paths: Vec<PathFacts> =
        paths.iter().map(|path| look_at_path(&root, path, &gpu, &mut prober, options)).collect();
    if !gpu.devices.is_empty() {
        // Once more: what the tries counted proves the mode.
        gpu.cufile = cufile_fact();
    }
    let ceilings = ceilings(&machine, &gpu, &paths);
    let facts = Facts { machine, gpu, ceilings, paths, record: None };
    Report::of(record::keep(facts, options))
}

/// One per stage, in the order of the data path.
fn ceilings(machine: &MachineFacts, gpu: &GpuFacts, paths: &[PathFacts]) -> Vec<StageCeiling> {
    let mut ceilings: Vec<StageCeiling> = paths.iter().filter_map(storage_ceiling).collect();
    let cached = paths.iter().filter_map(PathFacts::page_cache_gb_per_s).max_by(f64::total_cmp);
    ceilings.extend(cached.map(|rate| StageCeiling {
        stage: "page cache".to_string(),
        gb_per_s: Known::Value(rate),
    }));
    ceilings.push(StageCeiling {
        stage: "memory copy".to_string(),
        gb_per_s: match machine.memory_copy.as_result() {
            Ok(copy) => Known::Value(copy.gb_per_s),
            Err(reason) => Known::unknown(reason),
        },
    });
    ceilings.extend(gpu.devices.iter().flat_map(gpu_ceilings));
    ceilings.extend(gpu.all_h2d.as_ref().map(|all| StageCeiling {
        stage: format!("{} gpus at once, host to device", gpu.devices.len()),
        gb_per_s: match all.as_result() {
            Ok(all) => Known::Value(all.total_gb_per_s),
            Err(reason) => Known::unknown(reason),
        },
    }));
    ceilings
}

fn gpu_ceilings(gpu: &GpuFact) -> [StageCeiling; 3] {
    let stage = |what: &str, speed: &Known<CopySpeed>| StageCeiling {
        stage: format!("gpu {}, {what}", gpu.ordinal),
        gb_per_s: match speed.as_result() {
            Ok(speed) => Known::Value(speed.gb_per_s),
            Err(reason) => Known::unknown(reason),
        },
    };
    [
        stage("host to device", &gpu.h2d),
        stage("device to host", &gpu.d2h),
        stage("device memory", &gpu.memory_speed),
    ]
}

fn storage_ceiling(path: &PathFacts) -> Option<StageCeiling> {
    let file = path.examined.value()?;
    if file.size_bytes == 0 {
        return None;
    }
    let best = path.best_gb_per_s(Way::is_direct);
    let gb_per_s = match best {
        _ if file.memory_backed => Known::unknown("the file lies in memory"),
        _ if file.has_holes() => Known::unknown("the file has holes, or is compressed"),
        Some(rate) => Known::Value(rate),
        None => Known::unknown("no O_DIRECT read was measured"),
    };
    Some(StageCeiling { stage: format!("storage, {}", path.path.display()), gb_per_s })
}

fn look_at_path(
    root: &SysRoot,
    path: &Path,
    gpu: &GpuFacts,
    prober: &mut Prober<'_>,
    options: &Options,
) -> PathFacts {
    options.say(&path.display().to_string());
    let resolved = paths::resolve(path);
    let examined: Known<FileFact> = match &resolved.file {
        Some(file) => paths::examine(file).into(),
        None => Known::unknown("there is no file in it"),
    };
    let gpus: Vec<usize> = gpu.devices.iter().map(|device| device.ordinal).collect();
    let access = match examined.value() {
        Some(file) if file.size_bytes > 0 => prober.try_all(&file.path, &gpus),
        _ => Vec::new(),
    };
    let earlier_gb_per_s = match (examined.value(), options.forget) {
        (Some(file), false) => record::earlier_gb_per_s(&file.path),
        _ => None,
    };
    let home = StorageHome::of(root, resolved.file.as_deref().unwrap_or(path));
    let write = (options.write && resolved.kind.can_be_written())
        .then(|| prober.try_write(&writable_folder(path, &resolved.kind)));
    PathFacts {
        path: path.to_path_buf(),
        kind: resolved.kind,
        below: resolved.below,
        examined,
        links: links(root, &home),
        nearest_gpu: nearest(root, &home, gpu),
        home,
        earlier_gb_per_s,
        access,
        write,
    }
}

fn links(root: &SysRoot, home: &StorageHome) -> Vec<LinkFact> {
    let links = |address: &PciAddress| pci_links(root, address).into();
    home.pci.iter().map(|address| LinkFact { address: *address, links: links(address) }).collect()
}

fn nearest(root: &SysRoot, home: &StorageHome, gpu: &GpuFacts) -> Option<NearestGpu> {
    let addresses = gpu.devices.iter().map(|device| device.address.value().copied());
    let addresses: Vec<PciAddress> = addresses.collect::<Option<_>>()?;
    (!addresses.is_empty()).then(|| nearest_gpu(root, home, &addresses))
}

/// The folder itself, or the folder of a file.
fn writable_folder(path: &Path, kind: &PathKind) -> PathBuf {
    match (kind, path.parent()) {
        (PathKind::Folder, _) => path.to_path_buf(),
        (_, Some(parent)) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
        _ => PathBuf::from("."),
    }
}
