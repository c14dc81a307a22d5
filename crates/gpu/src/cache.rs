//! Compiled kernels cached on disk, by content.
//!
//! An entry's name is the SHA-256 of everything that determines the machine code: source, headers,
//! options, architecture and NVRTC's version. Nothing is ever invalidated; a changed kernel is
//! another entry. An entry on disk is
//!
//! ```text
//! magic (8) | SHA-256 of the rest (32) | warnings bytes, u32 LE (4) | warnings | cubin
//! ```
//!
//! so a truncated or corrupted file is detected and compiled again. Entries appear by rename:
//! processes that share the folder see complete files only.

use std::env;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use sha2::{Digest, Sha256};

use crate::compiler::{Compiler, Cubin, Source, all_options};
use crate::error::Result;

const MAGIC: &[u8; 8] = b"HRCUBIN\x01";
const DIGEST_BYTES: usize = 32;
const LENGTH_BYTES: usize = 4;
const SUBFOLDER: &str = "cubin";

/// Above this many entries the oldest quarter is removed. A kernel is some tens of kilobytes.
const ENTRIES_MAX: usize = 4096;

/// A temporary file this old belongs to a dead process.
const TEMPORARY_AGE_MAX: Duration = Duration::from_secs(3600);

/// The cubin cache. One per process is enough; several processes may share its folder.
#[derive(Debug)]
pub struct CubinCache {
    folder: Option<PathBuf>,
    warned: AtomicBool,
    hits: AtomicU64,
    misses: AtomicU64,
    damaged: AtomicU64,
    write_failures: AtomicU64,
    compile_us: AtomicU64,
}

/// Counters of a [`CubinCache`].
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct CacheStats {
    /// Kernels read from the folder.
    pub hits: u64,
    /// Kernels compiled.
    pub misses: u64,
    /// Entries found damaged; each also counts as a miss.
    pub damaged: u64,
    /// Kernels that were compiled and could not be stored.
    pub write_failures: u64,
    /// Milliseconds spent in the compiler, over all threads.
    pub compile_ms: f64,
}

/// Where a cubin came from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum CacheOutcome {
    /// It was read from the folder.
    Hit,
    /// It was compiled in `compile_ms` milliseconds.
    Compiled {
        /// Milliseconds in the compiler.
        compile_ms: f64,
    },
}

/// Why an entry could not be used.
#[derive(Debug, PartialEq, Eq)]
enum ReadFailure {
    Absent,
    Damaged,
    Unreadable(String),
}

impl CubinCache {
    /// A cache in the user's folder: `$HEADRACE_CACHE`, else `$XDG_CACHE_HOME/headrace`, else
    /// `~/.cache/headrace`. If none of the variables is set, nothing is stored, and a warning says
    /// so.
    pub fn open_default() -> Self {
        let folder = cache_folder();
        if folder.is_none() {
            tracing::warn!(
                "compiled kernels are not kept: HEADRACE_CACHE, XDG_CACHE_HOME and HOME are unset"
            );
        }
        Self::with_folder(folder)
    }

    /// A cache in `folder`, which is created with the first kernel.
    pub fn open(folder: impl Into<PathBuf>) -> Self {
        Self::with_folder(Some(folder.into()))
    }

    fn with_folder(folder: Option<PathBuf>) -> Self {
        Self {
            folder: folder.map(|folder| folder.join(SUBFOLDER)),
            warned: AtomicBool::new(false),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            damaged: AtomicU64::new(0),
            write_failures: AtomicU64::new(0),
            compile_us: AtomicU64::new(0),
        }
    }

    /// The folder of the entries, if kernels are stored.
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// Hits, misses and compile time so far.
    pub fn stats(&self) -> CacheStats {
        CacheStats {
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            damaged: self.damaged.load(Ordering::Relaxed),
            write_failures: self.write_failures.load(Ordering::Relaxed),
            compile_ms: self.compile_us.load(Ordering::Relaxed) as f64 / 1e3,
        }
    }

    /// The cubin of `source` for `arch`: from the folder, or compiled by `compiler` and stored. A
    /// folder that cannot be read or written is counted and causes one warning, never an error: the
    /// kernel is compiled instead.
    ///
    /// # Errors
    /// As [`Compiler::compile`].
    pub fn compile(
        &self,
        compiler: &Compiler,
        source: &Source<'_>,
        arch: &str,
        options: &[&str],
    ) -> Result<(Cubin, CacheOutcome)> {
        let key = key_of(source, &all_options(arch, options)?, compiler.version());
        if let Some(cubin) = self.read(&key, source, arch) {
            self.hits.fetch_add(1, Ordering::Relaxed);
            return Ok((cubin, CacheOutcome::Hit));
        }
        self.misses.fetch_add(1, Ordering::Relaxed);
        let begun = Instant::now();
        let compiled = compiler.compile(source, arch, options);
        let elapsed = begun.elapsed();
        let elapsed_us = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
        self.compile_us.fetch_add(elapsed_us, Ordering::Relaxed);
        let cubin = compiled?;
        self.keep(&key, &cubin);
        let compile_ms = elapsed.as_secs_f64() * 1e3;
        tracing::debug!(kernel = source.name, arch, compile_ms, "compiled");
        Ok((cubin, CacheOutcome::Compiled { compile_ms }))
    }

    /// Whether [`compile`](Self::compile) would find the cubin in the folder, by its name.
    pub fn knows(
        &self,
        compiler: &Compiler,
        source: &Source<'_>,
        arch: &str,
        options: &[&str],
    ) -> bool {
        let Ok(options) = all_options(arch, options) else { return false };
        let key = key_of(source, &options, compiler.version());
        self.folder.as_deref().is_some_and(|folder| entry_path(folder, &key).exists())
    }

    fn read(&self, key: &str, source: &Source<'_>, arch: &str) -> Option<Cubin> {
        let path = entry_path(self.folder.as_deref()?, key);
        match read_entry(&path) {
            Ok((warnings, image)) => Some(Cubin {
                name: source.name.to_string(),
                arch: arch.to_string(),
                image,
                warnings,
            }),
            Err(ReadFailure::Absent) => None,
            Err(ReadFailure::Damaged) => {
                self.damaged.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(path = %path.display(), "a damaged compiled kernel is replaced");
                None
            }
            Err(ReadFailure::Unreadable(error)) => {
                self.warn_once("read", &path, &error);
                None
            }
        }
    }

    fn keep(&self, key: &str, cubin: &Cubin) {
        let Some(folder) = self.folder.as_deref() else {
            return;
        };
        let kept = write_entry(folder, key, cubin).and_then(|()| tidy(folder, ENTRIES_MAX));
        if let Err(error) = kept {
            self.write_failures.fetch_add(1, Ordering::Relaxed);
            self.warn_once("written", folder, &error.to_string());
        }
    }

    fn warn_once(&self, verb: &str, path: &Path, error: &str) {
        if !self.warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                path = %path.display(),
                error,
                "compiled kernels cannot be {verb}: each start compiles them again; set \
                 HEADRACE_CACHE to a writable folder"
            );
        }
    }
}

/// The user's cache folder: `$HEADRACE_CACHE`, else `$XDG_CACHE_HOME/headrace`, else `~/.cache/headrace`;
/// `None`: none of the variables is set.
pub fn cache_folder() -> Option<PathBuf> {
    default_folder(|name| env::var_os(name))
}

/// `variable` reads the environment. Empty values count as unset, and so does a relative
/// XDG_CACHE_HOME, as its specification demands.
fn default_folder(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let path = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    path("HEADRACE_CACHE")
        .or_else(|| {
            path("XDG_CACHE_HOME")
                .filter(|folder| folder.is_absolute())
                .map(|folder| folder.join("headrace"))
        })
        .or_else(|| path("HOME").map(|home| home.join(".cache").join("headrace")))
}

fn entry_path(folder: &Path, key: &str) -> PathBuf {
    folder.join(format!("{key}.cubin"))
}

/// Every field is hashed with its length, so that no two inputs collide by concatenation.
fn key_of(source: &Source<'_>, options: &[String], nvrtc_version: (u32, u32)) -> String {
    let mut hash = Sha256::new();
    let mut add = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    };
    add(MAGIC);
    add(&nvrtc_version.0.to_le_bytes());
    add(&nvrtc_version.1.to_le_bytes());
    add(source.name.as_bytes());
    add(source.text.as_bytes());
    add(&(source.headers.len() as u64).to_le_bytes());
    for (name, text) in source.headers {
        add(name.as_bytes());
        add(text.as_bytes());
    }
    for option in options {
        add(option.as_bytes());
    }
    hex(&hash.finalize())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn encode(cubin: &Cubin) -> io::Result<Vec<u8>> {
    let warnings = cubin.warnings.as_bytes();
    let length = u32::try_from(warnings.len()).map_err(io::Error::other)?;
    let mut body = Vec::with_capacity(LENGTH_BYTES + warnings.len() + cubin.image.len());
    body.extend_from_slice(&length.to_le_bytes());
    body.extend_from_slice(warnings);
    body.extend_from_slice(&cubin.image);
    let mut entry = MAGIC.to_vec();
    entry.extend_from_slice(&Sha256::digest(&body));
    entry.extend_from_slice(&body);
    Ok(entry)
}

/// The warnings and the image of an entry, if it is complete.
fn decode(entry: &[u8]) -> Option<(String, Vec<u8>)> {
    let (digest, body) = entry.strip_prefix(MAGIC)?.split_at_checked(DIGEST_BYTES)?;
    if Sha256::digest(body).as_slice() != digest {
        return None;
    }
    let (length, rest) = body.split_first_chunk::<LENGTH_BYTES>()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    let (warnings, image) = rest.split_at_checked(length)?;
    Some((String::from_utf8(warnings.to_vec()).ok()?, image.to_vec()))
}

fn read_entry(path: &Path) -> Result<(String, Vec<u8>), ReadFailure> {
    let entry = fs::read(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => ReadFailure::Absent,
        _ => ReadFailure::Unreadable(error.to_string()),
    })?;
    decode(&entry).ok_or(ReadFailure::Damaged)
}

/// Not synced to the disk: an entry that a crash cuts short fails its checksum.
fn write_entry(folder: &Path, key: &str, cubin: &Cubin) -> io::Result<()> {
    static SEQUENCE: AtomicU64 = AtomicU64::new(0);
    let entry = encode(cubin)?;
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let sequence = SEQUENCE.fetch_add(1, Ordering::Relaxed);
    let temporary = folder.join(format!(".{key}.{}.{sequence}.tmp", process::id()));
    let written = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .open(&temporary)
        .and_then(|mut file| file.write_all(&entry))
        .and_then(|()| fs::rename(&temporary, entry_path(folder, key)));
    if written.is_err() {
        // Nothing more can be done about a file that cannot be removed either; the first
        // error is the one to tell.
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// Bounds the folder: removes the oldest quarter of the entries when there are more than
/// `entries_max`, and files of dead processes. Other processes may do the same concurrently, so a
/// missing file is no failure.
fn tidy(folder: &Path, entries_max: usize) -> io::Result<()> {
    let mut entries = Vec::new();
    for file in fs::read_dir(folder)?.flatten() {
        let Ok(modified) = file.metadata().and_then(|metadata| metadata.modified()) else {
            continue;
        };
        match file.path().extension().and_then(|extension| extension.to_str()) {
            Some("cubin") => entries.push((modified, file.path())),
            Some("tmp") if is_older_than(modified, TEMPORARY_AGE_MAX) => remove(&file.path())?,
            _ => {}
        }
    }
    if entries.len() > entries_max {
        entries.sort();
        let surplus = entries.len() - entries_max / 4 * 3;
        for (_, path) in &entries[..surplus] {
            remove(path)?;
        }
    }
    Ok(())
}

fn is_older_than(modified: SystemTime, age: Duration) -> bool {
    SystemTime::now().duration_since(modified).is_ok_and(|found| found > age)
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::collections::BTreeSet;
    use std::thread;

    fn cubin() -> Cubin {
        Cubin {
            name: "k.cu".into(),
            arch: "sm_90".into(),
            image: (0..=255).cycle().take(10_000).collect(),
            warnings: "k.cu(1): warning: ü".into(),
        }
    }

    fn source<'a>(text: &'a str, headers: &'a [(&'a str, &'a str)]) -> Source<'a> {
        Source { name: "k.cu", text, headers }
    }

    #[test]
    fn an_entry_comes_back_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        write_entry(folder.path(), "key", &cubin()).unwrap();
        let (warnings, image) = read_entry(&entry_path(folder.path(), "key")).unwrap();
        assert_eq!((warnings, image), (cubin().warnings, cubin().image));
        let left: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
        assert_eq!(left.len(), 1, "no temporary file stays: {left:?}");
    }

    #[test]
    fn every_cut_and_every_flipped_byte_is_found() {
        let mut small = cubin();
        small.image.truncate(64);
        let entry = encode(&small).unwrap();
        assert!(decode(&entry).is_some());
        for length in 0..entry.len() {
            assert!(decode(&entry[..length]).is_none(), "cut to {length}");
        }
        for index in 0..entry.len() {
            let mut flipped = entry.clone();
            flipped[index] ^= 0x10;
            assert!(decode(&flipped).is_none(), "flipped {index}");
        }
    }

    #[test]
    fn the_key_depends_on_everything_that_decides_the_code() {
        let options = |arch| all_options(arch, &[]).unwrap();
        let headers = [("a", "bc")];
        let moved = [("ab", "c")];
        let keys = [
            key_of(&source("x", &[]), &options("sm_90"), (13, 0)),
            key_of(&source("y", &[]), &options("sm_90"), (13, 0)),
            key_of(&source("x", &headers), &options("sm_90"), (13, 0)),
            key_of(&source("x", &moved), &options("sm_90"), (13, 0)),
            key_of(&source("x", &[]), &options("sm_100"), (13, 0)),
            key_of(&source("x", &[]), &options("sm_90"), (13, 1)),
            key_of(&source("x", &[]), &all_options("sm_90", &["-lineinfo"]).unwrap(), (13, 0)),
        ];
        assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), keys.len());
        assert_eq!(keys[0], key_of(&source("x", &[]), &options("sm_90"), (13, 0)));
        assert_eq!(keys[0].len(), 64);
    }

    #[test]
    fn the_default_folder_follows_the_environment() {
        let folder = |set: &[(&str, &str)]| {
            default_folder(|name| {
                set.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value))
            })
        };
        let (cache, xdg, home) =
            (("HEADRACE_CACHE", "/c"), ("XDG_CACHE_HOME", "/x"), ("HOME", "/h"));
        assert_eq!(folder(&[cache, xdg, home]), Some("/c".into()));
        assert_eq!(folder(&[xdg, home]), Some("/x/headrace".into()));
        assert_eq!(folder(&[home]), Some("/h/.cache/headrace".into()));
        assert_eq!(
            folder(&[("XDG_CACHE_HOME", "relative"), home]),
            Some("/h/.cache/headrace".into())
        );
        assert_eq!(folder(&[("HEADRACE_CACHE", ""), xdg]), Some("/x/headrace".into()));
        assert_eq!(folder(&[]), None);
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_counted_and_not_fatal() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, b"in the way").unwrap();
        let cache = CubinCache::open(&file);
        cache.keep("key", &cubin());
        cache.keep("key", &cubin());
        assert_eq!(cache.stats().write_failures, 2);
        assert!(cache.read("key", &source("x", &[]), "sm_90").is_none());
        assert_eq!(fs::read(&file).unwrap(), b"in the way");
    }

    #[test]
    fn a_damaged_entry_is_counted_and_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let cache = CubinCache::open(folder.path());
        cache.keep("key", &cubin());
        let path = entry_path(cache.folder().unwrap(), "key");
        let mut entry = fs::read(&path).unwrap();
        entry.pop();
        fs::write(&path, entry).unwrap();
        assert!(cache.read("key", &source("x", &[]), "sm_90").is_none());
        assert_eq!(cache.stats().damaged, 1);
    }

    #[test]
    fn the_folder_is_bounded_and_the_oldest_go_first() {
        let folder = tempfile::tempdir().unwrap();
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        for index in 0..9u64 {
            let path = entry_path(folder.path(), &index.to_string());
            fs::write(&path, b"x").unwrap();
            fs::File::options().write(true).open(&path).unwrap().set_modified(at(index)).unwrap();
        }
        let stale = folder.path().join(".a.1.0.tmp");
        let fresh = folder.path().join(".b.1.0.tmp");
        for path in [&stale, &fresh] {
            fs::write(path, b"x").unwrap();
        }
        fs::File::options().write(true).open(&stale).unwrap().set_modified(at(0)).unwrap();

        tidy(folder.path(), 9).unwrap();
        assert!(!stale.exists() && fresh.exists());
        assert!(entry_path(folder.path(), "0").exists(), "not above the bound");

        tidy(folder.path(), 8).unwrap();
        let left: Vec<bool> =
            (0..9).map(|i| entry_path(folder.path(), &i.to_string()).exists()).collect();
        assert_eq!(left, [false, false, false, true, true, true, true, true, true]);
    }

    const FOLDER_VARIABLE: &str = "HEADRACE_TEST_CACHE_FOLDER";
    const SHARED_KEYS: usize = 3;
    const ROUNDS: usize = 100;

    /// Entries of different lengths, so that a part of one is not another.
    fn cubin_of(key: usize) -> Cubin {
        Cubin { image: vec![key as u8 + 1; 10_000 * (key + 1)], ..cubin() }
    }

    /// What each process of the test below does: write and read the same entries, and tidy
    /// as if there were too many.
    #[test]
    #[ignore = "a part of processes_that_share_a_folder_see_whole_entries"]
    fn child_writes_and_reads_entries() {
        let Some(folder) = env::var_os(FOLDER_VARIABLE).map(PathBuf::from) else {
            println!("{FOLDER_VARIABLE} is unset");
            return;
        };
        for round in 0..ROUNDS {
            for key in 0..SHARED_KEYS {
                write_entry(&folder, &key.to_string(), &cubin_of(key)).unwrap();
                match read_entry(&entry_path(&folder, &key.to_string())) {
                    Ok((_, image)) => assert!(image == cubin_of(key).image, "round {round}"),
                    // Another process may have tidied it away.
                    Err(failure) => assert_eq!(failure, ReadFailure::Absent, "round {round}"),
                }
            }
            tidy(&folder, SHARED_KEYS - 1).unwrap();
        }
    }

    #[test]
    fn processes_that_share_a_folder_see_whole_entries() {
        let folder = tempfile::tempdir().unwrap();
        let child = "cache::tests::child_writes_and_reads_entries";
        let children: Vec<_> = (0..4)
            .map(|_| {
                process::Command::new(env::current_exe().unwrap())
                    .args(["--exact", child, "--ignored", "--nocapture"])
                    .env(FOLDER_VARIABLE, folder.path())
                    .stdout(process::Stdio::piped())
                    .stderr(process::Stdio::piped())
                    .spawn()
                    .unwrap()
            })
            .collect();
        for child in children {
            let output = child.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
            assert!(said.contains("1 passed"), "the child's test did not run: {said}");
        }
        let left: Vec<_> = fs::read_dir(folder.path()).unwrap().flatten().collect();
        assert!(left.iter().all(|entry| entry.path().extension().is_some_and(|e| e == "cubin")));
    }

    #[test]
    fn concurrent_writers_never_show_a_part_of_an_entry() {
        let folder = tempfile::tempdir().unwrap();
        write_entry(folder.path(), "key", &cubin()).unwrap();
        let path = entry_path(folder.path(), "key");
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        write_entry(folder.path(), "key", &cubin()).unwrap();
                    }
                });
            }
            for _ in 0..200 {
                assert!(read_entry(&path).is_ok());
            }
        });
    }
}
