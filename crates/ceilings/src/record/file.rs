//! The file of the record: its location, reading and replacement.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::{CeilingsError, Entries, Measure, Sample};

const FORMAT: &str = "headrace ceilings";
const VERSION: u64 = 1;
const FILE_NAME: &str = "ceilings.json";

/// Far above the size of [`super::MEASURES_MAX`] measures of some machines.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// A record begins with its format: a file without it within this many bytes is something else.
const FORMAT_BYTES: usize = 256;

/// The beginning of our records.
const OPENING: &str = "{\n  \"format\": \"headrace ceilings\"";

const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// Entries by machine.
pub(super) type Machines = BTreeMap<String, Entries>;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    format: String,
    version: u64,
    machines: BTreeMap<String, Vec<Entry>>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    measure: Measure,
    samples: Vec<Sample>,
}

/// Like [`super::Ceilings::default_path`], with the variables of `variable`.
pub(super) fn default_path(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let folder = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    folder("HEADRACE_CEILINGS").or_else(|| {
        folder("HEADRACE_CACHE")
            .or_else(|| folder("XDG_CACHE_HOME").map(|cache| cache.join("headrace")))
            .or_else(|| folder("HOME").map(|home| home.join(".cache/headrace")))
            .map(|folder| folder.join(FILE_NAME))
    })
}

/// Devices and pipes are not records: reading one may never end, and replacing one would remove it.
fn refuse_special(path: &Path) -> Result<(), CeilingsError> {
    match fs::metadata(path) {
        Ok(found) if !found.is_file() && !found.is_dir() => Err(CeilingsError::Foreign {
            path: path.to_path_buf(),
            what: "it is no regular file".to_string(),
        }),
        // What else is wrong shows when it is opened.
        _ => Ok(()),
    }
}

/// The content of the file; empty if there is none.
pub(super) fn read(path: &Path) -> Result<Machines, CeilingsError> {
    refuse_special(path)?;
    let mut bytes = Vec::new();
    match File::open(path) {
        Err(cause) if cause.kind() == ErrorKind::NotFound => return Ok(Machines::new()),
        Err(cause) => return Err(CeilingsError::io(path, "open", cause)),
        Ok(file) => file
            .take(FILE_BYTES_MAX + 1)
            .read_to_end(&mut bytes)
            .map_err(|cause| CeilingsError::io(path, "read", cause))?,
    };
    parse(path, &bytes)
}

fn parse(path: &Path, bytes: &[u8]) -> Result<Machines, CeilingsError> {
    let foreign = |what: &str| {
        Err(CeilingsError::Foreign { path: path.to_path_buf(), what: what.to_string() })
    };
    let damaged = |place: String| Err(CeilingsError::Damaged { path: path.to_path_buf(), place });
    // What a crash leaves of a file on some filesystems.
    if bytes.iter().all(|byte| *byte == 0) {
        return damaged(format!("its beginning: {} bytes, all zero", bytes.len()));
    }
    let opening = String::from_utf8_lossy(&bytes[..bytes.len().min(FORMAT_BYTES)]);
    if !opening.contains(FORMAT) {
        return match OPENING.starts_with(&*opening) {
            true => damaged(format!("its end, after {} bytes", bytes.len())),
            false => foreign("it does not begin as one"),
        };
    }
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return foreign("it is too large to be one");
    }
    let document: Document = match serde_json::from_slice(bytes) {
        Ok(document) => document,
        // Another version may have other members: it is looked for first.
        Err(cause) => match version_of(bytes) {
            Some(version) if version > VERSION => return newer(path, version),
            _ => return damaged(cause.to_string()),
        },
    };
    match document {
        Document { format, .. } if format != FORMAT => foreign("another format is named"),
        Document { version, .. } if version > VERSION => newer(path, version),
        Document { machines, .. } => match entries_of(machines) {
            Ok(machines) => Ok(machines),
            Err(place) => damaged(place),
        },
    }
}

fn newer(path: &Path, version: u64) -> Result<Machines, CeilingsError> {
    Err(CeilingsError::Newer { path: path.to_path_buf(), version, known: VERSION })
}

fn version_of(bytes: &[u8]) -> Option<u64> {
    serde_json::from_slice::<serde_json::Value>(bytes).ok()?.get("version")?.as_u64()
}

fn entries_of(machines: BTreeMap<String, Vec<Entry>>) -> Result<Machines, String> {
    let mut found = Machines::new();
    for (machine, list) in machines {
        let entries = found.entry(machine.clone()).or_default();
        for Entry { measure, samples } in list {
            let wrong = samples.iter().find(|s| !(s.value.is_finite() && s.value > 0.0));
            if let Some(sample) = wrong {
                return Err(format!("machine {machine}: {measure:?} has value {}", sample.value));
            }
            if samples.is_empty() {
                return Err(format!("machine {machine}: {measure:?} has no sample"));
            }
            entries.insert(measure, samples);
        }
    }
    Ok(found)
}

/// Like [`read`], but renames a damaged record and returns its new name.
pub(super) fn read_or_move_aside(
    path: &Path,
    now_unix_s: u64,
) -> Result<(Machines, Option<PathBuf>), CeilingsError> {
    match read(path) {
        Err(CeilingsError::Damaged { .. }) => {
            let aside = beside(path, &format!("damaged-{now_unix_s}"));
            fs::rename(path, &aside)
                .map_err(|cause| CeilingsError::io(path, "move aside", cause))?;
            Ok((Machines::new(), Some(aside)))
        }
        read => Ok((read?, None)),
    }
}

/// Replaces the file atomically.
pub(super) fn replace(path: &Path, machines: &Machines) -> Result<(), CeilingsError> {
    let document = Document {
        format: FORMAT.to_string(),
        version: VERSION,
        machines: machines
            .iter()
            .map(|(machine, entries)| (machine.clone(), entries_to_text(entries)))
            .collect(),
    };
    let temporary = beside(path, &format!("{}.tmp", std::process::id()));
    let written = write_synced(&temporary, &document).and_then(|()| fs::rename(&temporary, path));
    written.map_err(|cause| {
        // It may not exist; what matters is the error above.
        let _ = fs::remove_file(&temporary);
        CeilingsError::io(path, "write", cause)
    })
}

fn entries_to_text(entries: &Entries) -> Vec<Entry> {
    entries
        .iter()
        .map(|(measure, samples)| Entry { measure: measure.clone(), samples: samples.clone() })
        .collect()
}

fn write_synced(path: &Path, document: &Document) -> std::io::Result<()> {
    let mut text = serde_json::to_vec_pretty(document)?;
    text.push(b'\n');
    let mut file = File::create(path)?;
    file.write_all(&text)?;
    file.sync_all()
}

/// `path` with `.suffix` appended.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".");
    name.push(suffix);
    path.with_file_name(name)
}

/// Held while the file is read, changed and replaced. A separate file, because the record itself is
/// replaced; it is never removed, because otherwise two processes could lock different files.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

impl Lock {
    pub fn take(path: &Path) -> Result<Lock, CeilingsError> {
        refuse_special(path)?;
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::create_dir_all(folder)
                .map_err(|cause| CeilingsError::io(path, "make the folder of", cause))?;
        }
        let lock_path = beside(path, "lock");
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&lock_path)
            .map_err(|cause| CeilingsError::io(path, "open the lock of", cause))?;
        let begun = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Lock { _file: file }),
                Err(TryLockError::WouldBlock) if begun.elapsed() < LOCK_TIMEOUT => {
                    std::thread::sleep(LOCK_PAUSE);
                }
                Err(TryLockError::WouldBlock) => {
                    let waited_ms = LOCK_TIMEOUT.as_millis() as u64;
                    return Err(CeilingsError::Locked { path: lock_path, waited_ms });
                }
                Err(TryLockError::Error(cause)) => {
                    return Err(CeilingsError::io(path, "lock", cause));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_device_is_neither_read_nor_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.json");
        std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        assert!(matches!(read(&path), Err(CeilingsError::Foreign { .. })));
        assert!(matches!(read_or_move_aside(&path, 1), Err(CeilingsError::Foreign { .. })));
        assert!(matches!(Lock::take(&path), Err(CeilingsError::Foreign { .. })));
        let names = fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(names, 1, "nothing was put beside it");
    }

    fn path_with(set: &[(&str, &str)]) -> Option<PathBuf> {
        default_path(|name| {
            set.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn the_most_specific_variable_names_the_file() {
        let home = ("HOME", "/home/a");
        let cache = ("XDG_CACHE_HOME", "/c");
        assert_eq!(path_with(&[]), None);
        assert_eq!(path_with(&[home]).unwrap(), Path::new("/home/a/.cache/headrace/ceilings.json"));
        assert_eq!(path_with(&[home, cache]).unwrap(), Path::new("/c/headrace/ceilings.json"));
        let own = [home, cache, ("HEADRACE_CACHE", "/own")];
        assert_eq!(path_with(&own).unwrap(), Path::new("/own/ceilings.json"));
        let file = [home, cache, ("HEADRACE_CACHE", "/own"), ("HEADRACE_CEILINGS", "/x/y")];
        assert_eq!(path_with(&file).unwrap(), Path::new("/x/y"));
        assert_eq!(path_with(&[("HOME", "")]), None);
    }
}
