//! A run compared with the record of this machine's ceilings: shares, the bottleneck, the
//! prediction; and the run's contribution to that record.

use std::path::PathBuf;
use std::sync::Arc;

use headrace_flow::RaceReport;
use headrace_gpu::{Device, GpuError, measure};

use super::record::{BenchRun, BytesMoved, PredictedRecord};
use super::{BenchPlan, Operation, PathChoice, Pattern, Target};
use headrace_ceilings::model::{self, Machine, Scan};
use headrace_ceilings::{
    Ceiling, Ceilings, Measure, Measurement, Place, StoreKey, share_of_ceiling,
};

/// A shorter run says more about its start than about storage.
const RECORD_BYTES_MIN: u64 = 64 << 20;

/// At least this share of a run's bytes must have taken one access path for the run to measure it.
const PURE_SHARE: f64 = 0.99;

/// The location of a run: the storage, if it is a single one, and the GPUs by PCI address.
pub(crate) fn place(paths: &[PathBuf], gpus: Vec<String>) -> Place {
    let mut stores: Vec<StoreKey> =
        paths.iter().filter_map(|path| StoreKey::of_path(path).ok()).collect();
    let all_known = stores.len() == paths.len();
    stores.dedup();
    let store = if all_known && stores.len() == 1 { stores.pop() } else { None };
    Place { store, gpus }
}

/// Bytes that storage delivered through the page cache, as far as the residency before the run
/// tells: bytes that were not in memory and not read past the page cache. They use the path of
/// bytes in memory at the speed of storage.
fn missed_bytes(run: &BenchRun) -> u64 {
    missed_of(run.bytes, &run.bytes_by_path, run.cache.resident_share_before.unwrap_or(1.0))
}

fn missed_of(bytes: u64, by: &BytesMoved, resident_share: f64) -> u64 {
    let absent_bytes = (bytes as f64 * (1.0 - resident_share)) as u64;
    let missed_bytes =
        absent_bytes.saturating_sub(by.direct + by.cufile).min(by.mapped + by.buffered);
    // Residency is sampled.
    if missed_bytes as f64 > bytes as f64 * (1.0 - PURE_SHARE) { missed_bytes } else { 0 }
}

/// Whether storage delivered most bytes of a run that did not bypass the page cache.
fn mostly_missed(run: &BenchRun) -> bool {
    missed_bytes(run) > run.bytes / 2
}

/// Attributes bytes that passed through the page cache to storage, and renames a limit that was
/// storage's.
pub(crate) fn tell_misses(run: &mut BenchRun) {
    let missed_bytes = missed_bytes(run);
    // Random blocks hit anew what earlier ones brought: how many missed is not known.
    if missed_bytes == 0 || run.iops.is_some() {
        return;
    }
    run.notes.push(format!(
        "{} were not in memory before: storage delivered them through the page cache",
        headrace_io::decimal_bytes(missed_bytes)
    ));
    if let (true, Some(bottleneck)) = (mostly_missed(run), &mut run.bottleneck) {
        *bottleneck =
            bottleneck.replacen("page-cache-bound", "storage-bound (through the page cache)", 1);
    }
}

/// Fills in the ceilings of a run.
pub(crate) fn judge(
    ceilings: &Ceilings,
    place: &Place,
    plan: &BenchPlan,
    report: Option<&RaceReport>,
    run: &mut BenchRun,
) {
    if let Some(iops) = run.iops {
        // There is no record of random writes.
        let store = place.store.as_ref().filter(|_| plan.operation == Operation::Read);
        let ceiling = store.and_then(|store| ceilings.for_store(store).random_read);
        if let (Some(ceiling), Some(bottleneck)) = (ceiling, &mut run.bottleneck) {
            bottleneck.push_str(&beside(iops, &ceiling));
        }
        return;
    }
    let speed = run.gb_per_s;
    let missed = mostly_missed(run);
    let from_memory = run.bytes_by_path.direct + run.bytes_by_path.cufile == 0 && !missed;
    for stage in &mut run.stages {
        let ceiling = ceiling_of(ceilings, place, stage.stage, from_memory);
        stage.ceiling_gb_per_s = ceiling.as_ref().map(|ceiling| ceiling.value);
        stage.ceiling_share = ceiling.map(|ceiling| speed / ceiling.value);
    }
    let name = match report {
        Some(report) => report.bottleneck().map(|found| match found.name {
            "page-cache-bound" if missed => "storage-bound",
            name => name,
        }),
        None => Some("write-bound"),
    };
    let ceiling = name.and_then(|name| ceilings.of_bottleneck(name, place));
    if let (Some(ceiling), Some(bottleneck)) = (ceiling, &mut run.bottleneck) {
        bottleneck.push_str(&beside(speed, &ceiling));
    }
    if plan.operation == Operation::Read && run.bytes > 0 {
        predict(ceilings, place, plan, run);
    }
}

/// The run's rate compared with the known maximum; a faster run sets a new maximum and is not a
/// share of the old one.
fn beside(value: f64, ceiling: &Ceiling) -> String {
    if value <= ceiling.value || ceiling.stale {
        return format!("; the run is at {}", share_of_ceiling(value, ceiling));
    }
    let known = match ceiling.unit {
        "IOPS" => format!("{:.0} IOPS", ceiling.value),
        unit => format!("{:.2} {unit}", ceiling.value),
    };
    format!("; the fastest run yet, {known} was the ceiling until now")
}

fn ceiling_of(
    ceilings: &Ceilings,
    place: &Place,
    stage: &str,
    from_memory: bool,
) -> Option<Ceiling> {
    let name = match stage {
        "read" if from_memory => "page-cache-bound",
        "read" => "storage-bound",
        "h2d" => "link-bound",
        "d2h" => "d2h-bound",
        "write" => "write-bound",
        _ => return None,
    };
    ceilings.of_bottleneck(name, place)
}

fn predict(ceilings: &Ceilings, place: &Place, plan: &BenchPlan, run: &mut BenchRun) {
    let by = &run.bytes_by_path;
    let target = match plan.target {
        Target::Host => model::Target::Host,
        Target::Gpus(_) => model::Target::Gpu,
    };
    let missed_bytes = missed_bytes(run);
    let storage_bytes = by.direct + by.cufile + missed_bytes;
    let mut memory_bytes = by.mapped + by.buffered + by.cached - missed_bytes;
    if (memory_bytes as f64) < storage_bytes as f64 * (1.0 - PURE_SHARE) {
        // The partial last block of a file that is read by O_DIRECT is no stage of its own.
        memory_bytes = 0;
    }
    let scan = Scan {
        chunk_bytes: run.chunk_bytes,
        slots: u32::try_from(run.slots).unwrap_or(u32::MAX),
        ..Scan::of_paths(storage_bytes, memory_bytes, by.registered, 0, target)
    };
    let machine = Machine::measured(ceilings, place.store.as_ref(), &place.gpus);
    match model::predict(&scan, &machine) {
        Ok(prediction) => {
            run.predicted = Some(PredictedRecord {
                gb_per_s: prediction.wire_gb_per_s,
                seconds: prediction.total_s,
                bottleneck: prediction.bottleneck.to_string(),
            });
        }
        Err(error) => {
            let text = error.to_string();
            let reason = text.lines().next().unwrap_or_default();
            run.notes.push(format!("no prediction: {reason}"));
        }
    }
}

/// The rate of the links to these devices, each alone and all together, measured now.
pub(crate) fn links(devices: &[Arc<Device>]) -> Result<Vec<Measurement>, GpuError> {
    let measurement = |measure, value, bytes| Measurement {
        measure,
        value,
        how: "copies from pinned memory before a run of headrace bench io".to_string(),
        bytes,
    };
    let mut found = Vec::new();
    for device in devices {
        let gpu = device.info().pcie_id.clone();
        let (to, from) = (measure::h2d(device)?, measure::d2h(device)?);
        let measure = Measure::HostToDevice { gpu: gpu.clone() };
        found.push(measurement(measure, to.gb_per_s, to.bytes));
        found.push(measurement(Measure::DeviceToHost { gpu }, from.gb_per_s, from.bytes));
    }
    if devices.len() > 1 {
        let together = measure::h2d_all(devices)?;
        let gpus = u32::try_from(devices.len()).unwrap_or(u32::MAX);
        let measure = Measure::AllHostToDevice { gpus };
        // How many bytes that took is not told.
        found.push(measurement(measure, together.total_gb_per_s, 0));
    }
    Ok(found)
}

/// The measurements of this machine in a run, if any.
pub(crate) fn measurement(place: &Place, plan: &BenchPlan, run: &BenchRun) -> Option<Measurement> {
    if run.bytes < RECORD_BYTES_MIN && run.iops.is_none() {
        return None;
    }
    if run.verification.is_some() || run.bytes == 0 {
        // Checksums take time that storage does not need.
        return None;
    }
    let by = &run.bytes_by_path;
    let pure = |bytes: u64| bytes as f64 >= run.bytes as f64 * PURE_SHARE;
    let at_once = match plan.path {
        PathChoice::Auto | PathChoice::Uring => plan.depth,
        _ => u32::try_from(plan.threads).unwrap_or(u32::MAX),
    };
    let access = plan.path.name().to_string();
    let measure = match (&plan.operation, plan.pattern) {
        (Operation::Write { .. }, Pattern::Random { .. }) => return None,
        (Operation::Write { .. }, Pattern::Sequential { .. }) => {
            Measure::StorageWrite { store: place.store.clone()?, access, threads: at_once }
        }
        (Operation::Read, Pattern::Random { block_bytes }) if pure(by.direct) => {
            let store = place.store.clone()?;
            Measure::RandomRead { store, access, threads: at_once, block_bytes }
        }
        (Operation::Read, Pattern::Sequential { .. }) if pure(by.direct) => {
            Measure::StorageRead { store: place.store.clone()?, access, threads: at_once }
        }
        (Operation::Read, Pattern::Sequential { .. })
            if pure(by.buffered)
                && run.cache.resident_share_before.is_some_and(|share| share >= PURE_SHARE) =>
        {
            Measure::PageCacheRead { threads: u32::try_from(plan.threads).unwrap_or(u32::MAX) }
        }
        _ => return None,
    };
    Some(Measurement {
        measure,
        value: run.iops.unwrap_or(run.gb_per_s),
        how: format!(
            "headrace bench io --to {} --path {} with chunks of {} bytes",
            run.target, run.path, run.chunk_bytes
        ),
        bytes: run.bytes,
    })
}

/// The highest of several results of one measure: the record keeps few, and a poor setting says
/// nothing about the possible rate.
pub(crate) fn keep_highest(kept: &mut Vec<Measurement>, new: Measurement) {
    match kept.iter_mut().find(|old| old.measure == new.measure) {
        Some(old) if old.value < new.value => *old = new,
        Some(_) => {}
        None => kept.push(new),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_absent_and_passed_the_page_cache_came_from_storage() {
        let buffered = |bytes| BytesMoved { buffered: bytes, ..BytesMoved::default() };
        assert_eq!(missed_of(1000, &buffered(1000), 0.0), 1000);
        assert_eq!(missed_of(1000, &buffered(1000), 0.25), 750);
        // All of it was in memory, but for the error of sampling.
        assert_eq!(missed_of(1000, &buffered(1000), 1.0), 0);
        assert_eq!(missed_of(1000, &buffered(1000), 0.995), 0);
        // The absent half was read past the page cache.
        let half = BytesMoved { mapped: 500, direct: 500, ..BytesMoved::default() };
        assert_eq!(missed_of(1000, &half, 0.5), 0);
        assert_eq!(missed_of(1000, &half, 0.0), 500);
    }
}
