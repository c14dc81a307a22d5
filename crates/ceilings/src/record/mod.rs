//! One record per machine of its measured ceilings.
//!
//! A [`Ceiling`] is the best *recent* rate of a measurement: for each [`Measure`] the record keeps
//! the newest [`SAMPLES_MAX`] samples and takes the highest one not older than [`FRESH_S`]. So one
//! disturbed run does not lower a ceiling, and a rate that the machine no longer reaches is
//! dropped: after [`SAMPLES_MAX`] newer measurements, or after [`FRESH_S`], when it is marked stale
//! and any newer sample replaces it.
//!
//! ```text
//!  bench, doctor ── record ──►  ceilings.json  (locked, read again, merged, replaced by rename)
//!                                     ▼ load
//!            get, for_store ──► Ceiling ──► "storage-bound: 2.41 GB/s, 97% of the 2.48 GB/s …"
//! ```
//!
//! Machines may share the file (a home folder on NFS): each has its own part, named after its host
//! name and a digest of its machine id. GB = 10^9 bytes.

mod error;
mod file;
mod key;
mod measure;
mod text;

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

pub use error::CeilingsError;
pub use key::StoreKey;
use measure::Entries;
pub use measure::{Measure, Sample};
pub use text::{Place, share_of_ceiling};

/// Samples kept per measure.
pub const SAMPLES_MAX: usize = 8;

/// A sample older than this, in seconds (30 days), is stale.
pub const FRESH_S: u64 = 30 * 24 * 3600;

/// Measures kept per machine; the oldest are dropped first.
const MEASURES_MAX: usize = 1024;

/// A new result, with the present time.
#[derive(Debug, Clone, PartialEq)]
pub struct Measurement {
    /// The measure.
    pub measure: Measure,
    /// GB/s, or operations per second.
    pub value: f64,
    /// Source: the command, or words.
    pub how: String,
    /// Bytes moved by the measurement.
    pub bytes: u64,
}

/// The current ceiling of a measure.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Ceiling {
    /// The measure.
    pub measure: Measure,
    /// GB/s, or operations per second.
    pub value: f64,
    /// Unit of `value`.
    pub unit: &'static str,
    /// Time, in seconds since 1970.
    pub unix_s: u64,
    /// Source: the command, or words.
    pub how: String,
    /// Bytes moved by the measurement.
    pub bytes: u64,
    /// Number of samples behind it.
    pub samples: usize,
    /// Age at the lookup, in seconds.
    pub age_s: u64,
    /// Whether every sample is older than [`FRESH_S`].
    pub stale: bool,
}

/// The best measurements of one storage, over all access paths and threads.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct StoreCeilings {
    /// Sequential reads, GB/s.
    pub read: Option<Ceiling>,
    /// Sequential writes, GB/s.
    pub write: Option<Ceiling>,
    /// Random reads, IOPS (of any block size).
    pub random_read: Option<Ceiling>,
}

/// The result of recording measurements.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recorded {
    /// A damaged record was moved here; the new one begins without it.
    pub moved_aside: Option<PathBuf>,
}

/// The record of this machine as loaded.
#[derive(Debug, Clone)]
pub struct Ceilings {
    path: PathBuf,
    machine: String,
    entries: Entries,
}

impl Ceilings {
    /// The record at its usual place (see [`Ceilings::default_path`]). A file that does not exist
    /// is an empty record.
    ///
    /// # Errors
    /// [`CeilingsError`]: no location, a file that cannot be read, or one that is not ours.
    pub fn load() -> Result<Ceilings, CeilingsError> {
        Self::load_from(Self::default_path()?)
    }

    /// The record in a given file.
    ///
    /// # Errors
    /// As [`Ceilings::load`].
    pub fn load_from(path: impl Into<PathBuf>) -> Result<Ceilings, CeilingsError> {
        Self::load_machine(path.into(), key::this_machine())
    }

    /// An empty record to be stored at `path`, to continue after [`Ceilings::load`] failed.
    pub fn empty_at(path: impl Into<PathBuf>) -> Ceilings {
        Ceilings { path: path.into(), machine: key::this_machine(), entries: Entries::new() }
    }

    fn load_machine(path: PathBuf, machine: String) -> Result<Ceilings, CeilingsError> {
        let mut machines = file::read(&path)?;
        let entries = machines.remove(&machine).unwrap_or_default();
        Ok(Ceilings { path, machine, entries })
    }

    /// `$HEADRACE_CEILINGS`, else `ceilings.json` in `$HEADRACE_CACHE`, `$XDG_CACHE_HOME/headrace`
    /// or `~/.cache/headrace`.
    ///
    /// # Errors
    /// [`CeilingsError::NoPlace`] if none of the variables is set.
    pub fn default_path() -> Result<PathBuf, CeilingsError> {
        file::default_path(|name| std::env::var_os(name)).ok_or(CeilingsError::NoPlace)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The name of this machine's part of the file.
    pub fn machine(&self) -> &str {
        &self.machine
    }

    /// Whether this machine has no measurements.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds results to the file and to `self`, which also receives what others have recorded
    /// meanwhile. The file is locked, read again and replaced.
    ///
    /// A damaged record is moved aside (see [`Recorded::moved_aside`]); a file that is not a
    /// record, or has a newer version, is not touched.
    ///
    /// # Errors
    /// [`CeilingsError::Value`] if a value is not a positive number: nothing is recorded then.
    /// Otherwise as [`Ceilings::load`], and errors of the filesystem.
    pub fn record(&mut self, measurements: &[Measurement]) -> Result<Recorded, CeilingsError> {
        self.record_at(measurements, now_unix_s())
    }

    fn record_at(
        &mut self,
        measurements: &[Measurement],
        now_unix_s: u64,
    ) -> Result<Recorded, CeilingsError> {
        for Measurement { measure, value, .. } in measurements {
            if !(value.is_finite() && *value > 0.0) {
                return Err(CeilingsError::Value { measure: measure.clone(), value: *value });
            }
        }
        let _lock = file::Lock::take(&self.path)?;
        let (mut machines, moved_aside) = file::read_or_move_aside(&self.path, now_unix_s)?;
        let entries = machines.entry(self.machine.clone()).or_default();
        for measurement in measurements {
            add(entries, measurement, now_unix_s);
        }
        forget_oldest(entries);
        let entries = entries.clone();
        file::replace(&self.path, &machines)?;
        self.entries = entries;
        Ok(Recorded { moved_aside })
    }

    /// The ceiling of one measure.
    pub fn get(&self, measure: &Measure) -> Option<Ceiling> {
        self.get_at(measure, now_unix_s())
    }

    fn get_at(&self, measure: &Measure, now_unix_s: u64) -> Option<Ceiling> {
        let samples = self.entries.get(measure)?;
        // A clock that was set back makes samples of the future: they count as new.
        let age_s = |sample: &Sample| now_unix_s.saturating_sub(sample.unix_s);
        let best_fresh = samples
            .iter()
            .filter(|sample| age_s(sample) <= FRESH_S)
            .max_by(|a, b| a.value.total_cmp(&b.value));
        let newest = || samples.iter().max_by_key(|sample| sample.unix_s);
        let sample = best_fresh.or_else(newest)?;
        Some(Ceiling {
            measure: measure.clone(),
            value: sample.value,
            unit: measure.unit(),
            unix_s: sample.unix_s,
            how: sample.how.clone(),
            bytes: sample.bytes,
            samples: samples.len(),
            age_s: age_s(sample),
            stale: best_fresh.is_none(),
        })
    }

    /// Every ceiling of this machine, ordered by measure.
    pub fn all(&self) -> Vec<Ceiling> {
        self.entries.keys().filter_map(|measure| self.get(measure)).collect()
    }

    /// The best of the measures selected by `wanted`; a fresh one before any stale one.
    pub fn best(&self, wanted: impl Fn(&Measure) -> bool) -> Option<Ceiling> {
        self.entries
            .keys()
            .filter(|measure| wanted(measure))
            .filter_map(|measure| self.get(measure))
            .max_by(|a, b| (!a.stale, a.value).partial_cmp(&(!b.stale, b.value)).unwrap_or(EQUAL))
    }

    /// The ceilings of one storage.
    pub fn for_store(&self, store: &StoreKey) -> StoreCeilings {
        let of_store = |measure: &Measure| measure.store() == Some(store);
        StoreCeilings {
            read: self.best(|m| of_store(m) && matches!(m, Measure::StorageRead { .. })),
            write: self.best(|m| of_store(m) && matches!(m, Measure::StorageWrite { .. })),
            random_read: self.best(|m| of_store(m) && matches!(m, Measure::RandomRead { .. })),
        }
    }

    /// The ceilings of a path's storage.
    ///
    /// # Errors
    /// Those of examining the path.
    pub fn for_path(&self, path: &Path) -> std::io::Result<StoreCeilings> {
        Ok(self.for_store(&StoreKey::of_path(path)?))
    }
}

const EQUAL: std::cmp::Ordering = std::cmp::Ordering::Equal;

fn add(entries: &mut Entries, measurement: &Measurement, now_unix_s: u64) {
    let Measurement { measure, value, how, bytes } = measurement.clone();
    let samples = entries.entry(measure).or_default();
    samples.push(Sample { value, unix_s: now_unix_s, how, bytes });
    let surplus = samples.len().saturating_sub(SAMPLES_MAX);
    samples.drain(..surplus);
}

fn forget_oldest(entries: &mut Entries) {
    while entries.len() > MEASURES_MAX {
        let newest = |samples: &Vec<Sample>| samples.iter().map(|sample| sample.unix_s).max();
        let oldest = entries.iter().min_by_key(|(_, samples)| newest(samples));
        let Some(measure) = oldest.map(|(measure, _)| measure.clone()) else { return };
        entries.remove(&measure);
    }
}

/// The present time for ages of measurements: seconds since 1970.
pub fn now_unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests;
