//! A cache of the metadata that opening a table's files reads, in a file of its own: one read instead of several per
//! file, for tables of very many files, or if each read is a request to a server.
//!
//! The cache holds raw bytes of each file under its identity. They pass the same checks as bytes of the file. A file
//! with another identity is read itself.
//!
//! ```text
//! "HRKEPT01" | xxHash of the rest | groups: kept bytes, bytes, entries as one zstd frame
//! an entry: path, identity, ranges of the file with their bytes
//! ```
//!
//! Over 10^4 to 10^5 files of 4.6 kB, a query without the cost of opening them would be 1.6 times faster where all
//! files are read, and 4 times where only counts, keys or statistics are asked for.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use headrace_io::{FileIdentity, ReadAt, ReadMode, SourceFile, try_map};
use twox_hash::XxHash64;

const MAGIC: &[u8; 8] = b"HRKEPT01";

/// Minimum of local files for which caching pays off.
const LOCAL_FILES_MIN: usize = 64;

/// Entries are compressed in groups: those of one table's files are similar.
const GROUP_BYTES: usize = 4 << 20;

/// Limit per file; dictionaries may be larger.
const FILE_BYTES_MAX: usize = 1 << 20;

/// Limit per table.
const TABLE_BYTES_MAX: usize = 1 << 30;

/// A file written this recently may be written again with the same time stamp.
const SETTLED: Duration = Duration::from_secs(2);

/// Cache files of this age are removed.
const FORGOTTEN: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// The cached metadata of one table's files.
#[derive(Debug)]
pub struct KeptMetadata {
    /// The path of the cache file.
    path: PathBuf,
    known: HashMap<PathBuf, Known>,
    learnt: Mutex<Vec<Learnt>>,
    /// Number of files with new metadata that causes a rewrite.
    learnt_min: usize,
}

/// Known ranges of a file, by first byte.
#[derive(Clone, Debug)]
struct Known {
    identity: FileIdentity,
    ranges: Vec<(u64, Range<usize>)>,
    bytes: Arc<Vec<u8>>,
}

#[derive(Debug)]
struct Learnt {
    path: PathBuf,
    ranges: Vec<(u64, Vec<u8>)>,
}

impl KeptMetadata {
    /// The cached metadata for the files of the table at a place, if the folder has any; an unreadable or damaged cache
    /// counts as missing. `None`: these files are read fast enough.
    pub fn open(folder: &Path, table: &Path, files: &[Arc<SourceFile>]) -> Option<Self> {
        let are_remote = files.iter().any(|file| file.is_remote());
        let files_min = if are_remote { 1 } else { LOCAL_FILES_MIN };
        if files.len() < files_min {
            return None;
        }
        let name = XxHash64::oneshot(0, table.as_os_str().as_bytes());
        let path = folder.join(format!("{name:016x}.kept"));
        let known = fs::read(&path).ok().and_then(|bytes| decoded(&bytes)).unwrap_or_default();
        let learnt_min = if are_remote { 1 } else { LOCAL_FILES_MIN.max(known.len() / 16) };
        Some(Self { path, known, learnt: Mutex::default(), learnt_min })
    }

    /// A file with its cached metadata, to be read in its place.
    pub(super) fn of(&self, file: &Arc<SourceFile>) -> Option<KnownFile> {
        let known = self.known.get(file.path())?;
        (known.identity == file.identity())
            .then(|| KnownFile { file: Arc::clone(file), known: known.clone() })
    }

    /// What was read of a file, for the cache.
    pub(super) fn learn(&self, read: ReadFile<'_>) {
        let ranges = read.ranges.into_inner().unwrap_or_else(PoisonError::into_inner);
        let bytes: usize = ranges.iter().map(|(_, bytes)| bytes.len()).sum();
        if bytes > FILE_BYTES_MAX || !is_settled(&read.file.identity()) {
            return;
        }
        let learnt = Learnt { path: read.file.path().to_path_buf(), ranges };
        self.learnt.lock().unwrap_or_else(PoisonError::into_inner).push(learnt);
    }

    /// Stores the new metadata of existing files, if worthwhile.
    ///
    /// # Errors
    /// The file cannot be written. The old cache stays.
    pub fn keep(self, files: &[Arc<SourceFile>]) -> io::Result<()> {
        let learnt = self.learnt.into_inner().unwrap_or_else(PoisonError::into_inner);
        if learnt.len() < self.learnt_min {
            return Ok(());
        }
        let learnt: HashMap<PathBuf, Learnt> =
            learnt.into_iter().map(|learnt| (learnt.path.clone(), learnt)).collect();
        let mut groups = Groups::default();
        for file in files {
            let (path, identity) = (file.path(), file.identity());
            if let Some(learnt) = learnt.get(path) {
                let ranges =
                    learnt.ranges.iter().map(|(offset, bytes)| (*offset, bytes.as_slice()));
                groups.add(path, &identity, ranges)?;
            } else if let Some(known) = self.known.get(path).filter(|k| k.identity == identity) {
                let ranges =
                    known.ranges.iter().map(|(offset, at)| (*offset, &known.bytes[at.clone()]));
                groups.add(path, &identity, ranges)?;
            }
        }
        let Some(folder) = self.path.parent() else { return Ok(()) };
        let bytes = groups.finish()?;
        if bytes.len() > TABLE_BYTES_MAX {
            return Ok(());
        }
        fs::create_dir_all(folder)?;
        let mut file = tempfile::Builder::new().prefix(".kept").tempfile_in(folder)?;
        file.write_all(&bytes)?;
        file.persist(&self.path)?;
        remove_forgotten(folder)
    }
}

/// Whether a file's identity guarantees its contents: time stamps are coarse.
fn is_settled(identity: &FileIdentity) -> bool {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let settled_ns = now.saturating_sub(SETTLED).as_nanos();
    // A server that tells no time may have no name for a version either.
    identity.mtime_ns > 0 && identity.mtime_ns as u128 <= settled_ns
}

fn remove_forgotten(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let is_kept = entry.path().extension().is_some_and(|extension| extension == "kept");
        let age = entry.metadata()?.modified()?.elapsed().unwrap_or_default();
        if is_kept && age > FORGOTTEN {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// A file with some cached ranges; the others are read.
#[derive(Debug)]
pub(super) struct KnownFile {
    file: Arc<SourceFile>,
    known: Known,
}

impl ReadAt for KnownFile {
    fn source(&self) -> &SourceFile {
        &self.file
    }

    fn read_at(&self, mode: ReadMode, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let after = self.known.ranges.partition_point(|(first, _)| *first <= offset);
        let known = after.checked_sub(1).and_then(|at| {
            let (first, range) = &self.known.ranges[at];
            self.known.bytes[range.clone()].get((offset - first) as usize..)
        });
        match known.filter(|known| !known.is_empty()) {
            Some(known) => {
                let bytes = known.len().min(into.len());
                into[..bytes].copy_from_slice(&known[..bytes]);
                Ok(bytes)
            }
            None => self.file.read_at(mode, offset, into),
        }
    }
}

/// A file, and what is read of it.
#[derive(Debug)]
pub(super) struct ReadFile<'a> {
    file: &'a dyn ReadAt,
    ranges: Mutex<Vec<(u64, Vec<u8>)>>,
}

impl<'a> ReadFile<'a> {
    pub fn of(file: &'a dyn ReadAt) -> Self {
        Self { file, ranges: Mutex::default() }
    }
}

impl ReadAt for ReadFile<'_> {
    fn source(&self) -> &SourceFile {
        self.file.source()
    }

    fn read_at(&self, mode: ReadMode, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let bytes = self.file.read_at(mode, offset, into)?;
        let mut ranges = self.ranges.lock().unwrap_or_else(PoisonError::into_inner);
        ranges.push((offset, into[..bytes].to_vec()));
        Ok(bytes)
    }
}

/// Entries, compressed in groups.
#[derive(Default)]
struct Groups {
    done: Vec<u8>,
    group: Vec<u8>,
}

impl Groups {
    fn add<'a>(
        &mut self,
        path: &Path,
        identity: &FileIdentity,
        ranges: impl Iterator<Item = (u64, &'a [u8])>,
    ) -> io::Result<()> {
        let path = path.as_os_str().as_bytes();
        let mut ranges: Vec<_> = ranges.filter(|(_, bytes)| !bytes.is_empty()).collect();
        ranges.sort_unstable_by_key(|(offset, bytes)| (*offset, bytes.len()));
        put(&mut self.group, path.len() as u64);
        self.group.extend_from_slice(path);
        let FileIdentity { device, inode, size_bytes, mtime_ns, ctime_ns } = *identity;
        let numbers = [device, inode, size_bytes, mtime_ns as u64, ctime_ns as u64];
        numbers.into_iter().for_each(|number| put(&mut self.group, number));
        put(&mut self.group, ranges.len() as u64);
        for (offset, bytes) in ranges {
            put(&mut self.group, offset);
            put(&mut self.group, bytes.len() as u64);
            self.group.extend_from_slice(bytes);
        }
        if self.group.len() >= GROUP_BYTES { self.end_group() } else { Ok(()) }
    }

    fn end_group(&mut self) -> io::Result<()> {
        let kept = zstd::bulk::compress(&self.group, 1)?;
        put(&mut self.done, kept.len() as u64);
        put(&mut self.done, self.group.len() as u64);
        self.done.extend_from_slice(&kept);
        self.group.clear();
        Ok(())
    }

    fn finish(mut self) -> io::Result<Vec<u8>> {
        self.end_group()?;
        let mut file = MAGIC.to_vec();
        put(&mut file, XxHash64::oneshot(0, &self.done));
        file.extend_from_slice(&self.done);
        Ok(file)
    }
}

fn put(into: &mut Vec<u8>, number: u64) {
    into.extend_from_slice(&number.to_le_bytes());
}

/// The known files; `None`: the bytes are damaged.
fn decoded(file: &[u8]) -> Option<HashMap<PathBuf, Known>> {
    let mut file = Bytes { bytes: file, at: 0 };
    if file.take(MAGIC.len())? != MAGIC {
        return None;
    }
    let hash = file.number()?;
    if hash != XxHash64::oneshot(0, &file.bytes[file.at..]) {
        return None;
    }
    let mut groups = Vec::new();
    while file.at < file.bytes.len() {
        let (kept, bytes) = (file.size()?, file.size()?);
        groups.push((file.take(kept)?, bytes));
    }
    let entries = try_map(groups.len(), (1, super::message::METADATA_THREADS_MAX), |nth| {
        let (kept, bytes) = groups[nth];
        // A group ends with the entry that makes it large; short ranges take more for where they lie than for their bytes.
        let bytes = (bytes <= GROUP_BYTES + 8 * FILE_BYTES_MAX).then_some(bytes).ok_or(())?;
        let group = zstd::bulk::decompress(kept, bytes).map_err(|_| ())?;
        entries(Arc::new(group)).ok_or(())
    });
    Some(entries.ok()?.into_iter().flatten().collect())
}

fn entries(group: Arc<Vec<u8>>) -> Option<Vec<(PathBuf, Known)>> {
    let mut bytes = Bytes { bytes: &group, at: 0 };
    let mut entries = Vec::new();
    while bytes.at < bytes.bytes.len() {
        let length = bytes.size()?;
        let path = std::ffi::OsString::from_vec(bytes.take(length)?.to_vec());
        let identity = FileIdentity {
            device: bytes.number()?,
            inode: bytes.number()?,
            size_bytes: bytes.number()?,
            mtime_ns: bytes.number()? as i64,
            ctime_ns: bytes.number()? as i64,
        };
        let mut ranges = Vec::new();
        for _ in 0..bytes.number()? {
            let (offset, length) = (bytes.number()?, bytes.size()?);
            let first = bytes.at;
            bytes.take(length)?;
            ranges.push((offset, first..bytes.at));
        }
        entries.push((path.into(), Known { identity, ranges, bytes: Arc::clone(&group) }));
    }
    Some(entries)
}

/// A sequential reader of bytes; `None` past their end.
struct Bytes<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(count)?;
        let taken = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }

    fn number(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_le_bytes)
    }

    fn size(&mut self) -> Option<usize> {
        self.number()?.try_into().ok()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use arrow_array::{ArrayRef, Int32Array, RecordBatch};

    use super::*;
    use crate::arrow::{ArrowTable, ArrowWriter, WriterOptions};

    fn write(path: &Path, values: Vec<i32>) {
        let column: ArrayRef = Arc::new(Int32Array::from(values));
        let batch = RecordBatch::try_from_iter([("x", column)]).unwrap();
        let mut writer =
            ArrowWriter::create(path, &batch.schema(), WriterOptions::default()).unwrap();
        writer.write(&batch).unwrap();
        writer.finish().unwrap();
        // Written long enough ago.
        let long_ago = SystemTime::now() - Duration::from_secs(60);
        fs::File::options().write(true).open(path).unwrap().set_modified(long_ago).unwrap();
    }

    struct Folder {
        data: tempfile::TempDir,
        kept: tempfile::TempDir,
    }

    impl Folder {
        fn of(files: usize) -> Self {
            let folder =
                Self { data: tempfile::tempdir().unwrap(), kept: tempfile::tempdir().unwrap() };
            for file in 0..files {
                write(&folder.path(file), vec![file as i32; file % 5 + 1]);
            }
            folder
        }

        fn path(&self, file: usize) -> PathBuf {
            self.data.path().join(format!("{file:04}.arrow"))
        }

        fn sources(&self, files: usize) -> Vec<Arc<SourceFile>> {
            let known = |file| {
                let path = self.path(file);
                let identity = FileIdentity::of_path(&path).unwrap();
                SourceFile::known(path, identity)
            };
            (0..files).map(known).collect()
        }

        fn kept(&self, sources: &[Arc<SourceFile>]) -> Option<KeptMetadata> {
            KeptMetadata::open(self.kept.path(), self.data.path(), sources)
        }

        /// Opens the table and caches its metadata; returns its rows, and how many files were read.
        fn open(&self, sources: &[Arc<SourceFile>]) -> (u64, usize) {
            let kept = self.kept(sources);
            let table = ArrowTable::open_sources(sources, kept.as_ref()).unwrap();
            let Some(kept) = kept else { return (table.rows(), sources.len()) };
            let read = kept.learnt.lock().unwrap().len();
            kept.keep(sources).unwrap();
            (table.rows(), read)
        }
    }

    fn rows(files: usize) -> u64 {
        (0..files as u64).map(|file| file % 5 + 1).sum()
    }

    #[test]
    fn files_that_are_known_are_not_read() {
        let folder = Folder::of(100);
        let sources = folder.sources(100);
        assert_eq!(folder.open(&sources), (rows(100), 100));
        assert_eq!(folder.open(&sources), (rows(100), 0));
        // Nor opened: they need not even be there.
        let sources = folder.sources(100);
        (0..100).for_each(|file| fs::remove_file(folder.path(file)).unwrap());
        let kept = folder.kept(&sources).unwrap();
        assert_eq!(ArrowTable::open_sources(&sources, Some(&kept)).unwrap().rows(), rows(100));
        assert!(ArrowTable::open_sources(&sources, None).is_err());
    }

    #[test]
    fn a_file_that_is_another_by_now_is_read() {
        let folder = Folder::of(100);
        folder.open(&folder.sources(100));
        write(&folder.path(7), vec![1; 50]);
        let sources = folder.sources(100);
        let expected = rows(100) - 3 + 50;
        // One file more or less does not have all of it written again.
        assert_eq!(folder.open(&sources), (expected, 1));
        assert_eq!(folder.open(&sources), (expected, 1));
        (0..70).for_each(|file| write(&folder.path(file), vec![2; 3]));
        let sources = folder.sources(90);
        assert_eq!(folder.open(&sources).1, 70);
        assert_eq!(folder.open(&sources).1, 0);
        assert_eq!(folder.kept(&sources).unwrap().known.len(), 90);
    }

    #[test]
    fn what_was_just_written_is_not_kept() {
        let folder = Folder::of(80);
        let now = SystemTime::now();
        let touch = |file| {
            let file = fs::File::options().write(true).open(folder.path(file)).unwrap();
            file.set_modified(now).unwrap();
        };
        (0..10).for_each(touch);
        let sources = folder.sources(80);
        assert_eq!(folder.open(&sources), (rows(80), 70));
        assert_eq!(folder.kept(&sources).unwrap().known.len(), 70);
    }

    #[test]
    fn few_files_are_not_worth_it() {
        let folder = Folder::of(LOCAL_FILES_MIN - 1);
        folder.open(&folder.sources(LOCAL_FILES_MIN - 1));
        assert_eq!(fs::read_dir(folder.kept.path()).unwrap().count(), 0);
    }

    #[test]
    fn damage_is_noticed() {
        let folder = Folder::of(100);
        let sources = folder.sources(100);
        folder.open(&sources);
        let path = folder.kept(&sources).unwrap().path;
        let whole = fs::read(&path).unwrap();
        assert_eq!(decoded(&whole).unwrap().len(), 100);
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            assert!(decoded(&damaged).is_none(), "byte {at}");
            assert!(decoded(&whole[..at]).is_none(), "{at} bytes");
        }
        fs::write(&path, &whole[..whole.len() / 2]).unwrap();
        assert_eq!(folder.open(&sources), (rows(100), 100));
        assert_eq!(folder.open(&sources), (rows(100), 0));
    }

    #[test]
    fn the_forgotten_is_removed() {
        let folder = Folder::of(100);
        let old = folder.kept.path().join("0123456789abcdef.kept");
        let other = folder.kept.path().join("notes.txt");
        for path in [&old, &other] {
            let file = fs::File::create(path).unwrap();
            file.set_modified(SystemTime::now() - 2 * FORGOTTEN).unwrap();
        }
        folder.open(&folder.sources(100));
        assert!(!old.exists() && other.exists());
    }
}
