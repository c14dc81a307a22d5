//! Adds the measurements to the shared record of ceilings.

use std::path::Path;

use headrace_bench::transfer::PathChoice;
use headrace_ceilings::{Ceilings, CeilingsError, Measure, Measurement, StoreKey};

use crate::Options;
use crate::facts::{AccessProbe, Facts, Known, Outcome, PathFacts, Way};

/// Less than this does not show a drive's sustained rate.
const BYTES_MIN: u64 = 64 << 20;

const HOW: &str = "headrace doctor";

/// Records the measurements of `facts`, and notes in them where, or why not.
pub(crate) fn keep(mut facts: Facts, options: &Options) -> Facts {
    let measurements = measurements(&facts);
    if measurements.is_empty() || options.forget {
        return facts;
    }
    facts.record = Some(match write(&measurements) {
        Ok(place) => place,
        Err(error) => format!("not kept: {error}"),
    });
    facts
}

fn write(measurements: &[Measurement]) -> Result<String, CeilingsError> {
    // A damaged record is moved aside when the new one is written.
    let mut ceilings =
        Ceilings::load().or_else(|_| Ceilings::default_path().map(Ceilings::empty_at))?;
    let recorded = ceilings.record(measurements)?;
    let mut text = format!("kept in {}", ceilings.path().display());
    if let Some(aside) = recorded.moved_aside {
        text.push_str(&format!("; a damaged record was moved to {}", aside.display()));
    }
    Ok(text)
}

/// The ceilings among the facts.
fn measurements(facts: &Facts) -> Vec<Measurement> {
    let mut found = Vec::new();
    let mut add = |measure, value: f64, bytes| {
        if value.is_finite() && value > 0.0 {
            found.push(Measurement { measure, value, how: HOW.to_string(), bytes });
        }
    };
    if let Some(copy) = facts.machine.memory_copy.value() {
        let threads = u32::try_from(copy.threads).unwrap_or(u32::MAX);
        // How many bytes that took is not told.
        add(Measure::HostCopy { threads }, copy.gb_per_s, 0);
    }
    for gpu in &facts.gpu.devices {
        let Some(address) = gpu.address.value().map(ToString::to_string) else { continue };
        let gpu_measures = [
            (Measure::HostToDevice { gpu: address.clone() }, &gpu.h2d),
            (Measure::DeviceToHost { gpu: address.clone() }, &gpu.d2h),
            (Measure::DeviceMemory { gpu: address }, &gpu.memory_speed),
        ];
        for (measure, speed) in gpu_measures {
            if let Some(speed) = speed.value() {
                add(measure, speed.gb_per_s, speed.bytes);
            }
        }
    }
    if let Some(Known::Value(all)) = &facts.gpu.all_h2d {
        let gpus = u32::try_from(all.ordinals.len()).unwrap_or(u32::MAX);
        add(Measure::AllHostToDevice { gpus }, all.total_gb_per_s, 0);
    }
    for path in &facts.paths {
        for (measure, value, bytes) in of_path(path) {
            add(measure, value, bytes);
        }
    }
    found
}

fn of_path(path: &PathFacts) -> Vec<(Measure, f64, u64)> {
    let Some(file) = path.examined.value() else { return Vec::new() };
    // A key needs the file as it is now; one that went away meanwhile has none.
    let Ok(store) = StoreKey::of_path(&file.path) else { return Vec::new() };
    if file.memory_backed || file.has_holes() {
        return Vec::new();
    }
    let probes = path.access.iter();
    probes.filter_map(|probe| of_probe(path, &store, probe)).collect()
}

fn of_probe(
    path: &PathFacts,
    store: &StoreKey,
    probe: &AccessProbe,
) -> Option<(Measure, f64, u64)> {
    let Outcome::Works { gb_per_s, timed_bytes, requests_at_once, .. } = &probe.outcome else {
        return None;
    };
    let (store, threads) = (store.clone(), *requests_at_once);
    // Named as the benchmark names them: they are the same ways.
    let access = |path: PathChoice| path.name().to_string();
    let measure = match probe.way {
        Way::Uring => Measure::StorageRead { store, access: access(PathChoice::Uring), threads },
        Way::DirectThreads => {
            Measure::StorageRead { store, access: access(PathChoice::Direct), threads }
        }
        Way::Buffered if path.page_cache_gb_per_s().is_some() => Measure::PageCacheRead { threads },
        _ => return None,
    };
    (*timed_bytes >= BYTES_MIN).then_some((measure, *gb_per_s.value()?, *timed_bytes))
}

/// The best sequential read rate of a file's storage, if it is recorded and not stale. An
/// unreadable record is reported when it is written.
pub(crate) fn earlier_gb_per_s(file: &Path) -> Option<f64> {
    let read = Ceilings::load().ok()?.for_path(file).ok()?.read?;
    (!read.stale).then_some(read.value)
}
