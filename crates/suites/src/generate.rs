//! Generates a suite's tables into a directory, completely or not at all.
//!
//! The marker file says that the directory's files are ours while there is no manifest. It appears
//! first and is removed last, so an interrupted run can be repeated, and other files are never
//! replaced.

use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use headrace_io::write::hidden::Hidden;

use crate::{
    Manifest, Suite, SuiteError,
    error::check_scale,
    manifest::{ManifestFile, ManifestTable, read_manifest},
    write::{FilePlan, Job, Step, TableGenerator, write_table},
};

/// Limit of [`GenerateOptions::rows_per_batch`], which keeps text offsets within 32 bits.
const ROWS_PER_BATCH_MAX: u64 = 1 << 24;
/// Limit of [`GenerateOptions::fact_files`]: each has a writer thread.
const FACT_FILES_MAX: u32 = 1024;
/// Limit of [`GenerateOptions::threads`].
const THREADS_MAX: usize = 1024;

/// What to generate, and where.
#[derive(Clone)]
pub struct GenerateOptions<'a> {
    /// The suite.
    pub suite: Suite,
    /// Scale factor, [`SCALE_MIN`](crate::SCALE_MIN)..=[`SCALE_MAX`](crate::SCALE_MAX).
    pub scale: f64,
    /// Seed of the values of the Star Schema Benchmark (all but the number of lines of each order)
    /// and of ClickBench; the values of TPC-H are those of its specification.
    pub seed: u64,
    /// Output directory; created if missing.
    pub out: PathBuf,
    /// Generating threads; 0 for one per core. Each file has an additional writer thread.
    pub threads: usize,
    /// Rows of a full record batch, 1..=2^24.
    pub rows_per_batch: u64,
    /// 0: one file for the largest table, such as `lineorder.arrow`. n: a folder of its name with
    /// up to n files (never more than there are pieces to write), each a range of rows, written in
    /// parallel. One file's writer thread keeps up with about four generating threads: more cores
    /// need more files.
    pub fact_files: u32,
    /// Called in the calling thread after every piece that was passed to its file.
    pub progress: Option<&'a dyn Fn(Progress)>,
    /// Set by another thread to stop; nothing of the run is left behind then.
    pub cancel: Option<&'a AtomicBool>,
}

impl GenerateOptions<'_> {
    /// A suite at scale `scale` into `out`: seed 42, all cores, one file per table, batches of 2^20
    /// rows.
    pub fn new(suite: Suite, scale: f64, out: impl Into<PathBuf>) -> Self {
        Self {
            suite,
            scale,
            seed: 42,
            out: out.into(),
            threads: 0,
            rows_per_batch: 1 << 20,
            fact_files: 0,
            progress: None,
            cancel: None,
        }
    }

    fn check(&self) -> Result<(), SuiteError> {
        let refuse = |option, value, problem| Err(SuiteError::Option { option, value, problem });
        if !(1..=ROWS_PER_BATCH_MAX).contains(&self.rows_per_batch) {
            return refuse("rows_per_batch", self.rows_per_batch, "not in 1..=2^24");
        }
        if self.fact_files > FACT_FILES_MAX {
            return refuse("fact_files", self.fact_files.into(), "more than 1024");
        }
        if self.threads > THREADS_MAX {
            return refuse("threads", self.threads as u64, "more than 1024");
        }
        check_scale(self.scale)
    }

    fn threads(&self) -> usize {
        match self.threads {
            0 => headrace_io::system::cores(),
            threads => threads,
        }
    }

    fn check_cancelled(&self) -> Result<(), SuiteError> {
        match self.cancel {
            Some(flag) if flag.load(Ordering::Relaxed) => Err(SuiteError::Cancelled),
            _ => Ok(()),
        }
    }

    /// Whether a table is split into files.
    fn is_split(&self, table: &str) -> bool {
        self.fact_files > 0 && table == self.suite.fact_table()
    }

    /// Path of a table's file relative to the output directory; names sort in row order.
    fn file_name(&self, table: &str, file: usize) -> String {
        if self.is_split(table) {
            format!("{table}/part-{file:05}.arrow")
        } else {
            format!("{table}.arrow")
        }
    }
}

/// The progress of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The table being written.
    pub table: &'static str,
    /// Rows written, over all tables.
    pub rows_done: u64,
    /// Rows of all tables; approximate for TPC-DS.
    pub rows_total: u64,
    /// Bytes written, over all tables.
    pub bytes: u64,
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Summary {
    /// The manifest as written.
    pub manifest: Manifest,
    /// Rows of all tables.
    pub rows: u64,
    /// Bytes of all files except the manifest.
    pub bytes: u64,
    /// Duration of the run.
    pub elapsed: Duration,
    /// Whether the directory was complete already and nothing was written.
    pub reused: bool,
}

impl Summary {
    fn new(manifest: Manifest, started: Instant, reused: bool) -> Self {
        let files = || manifest.tables.iter().flat_map(|table| &table.files);
        Self {
            rows: files().map(|file| file.rows).sum(),
            bytes: files().map(|file| file.bytes).sum(),
            elapsed: started.elapsed(),
            reused,
            manifest,
        }
    }
}

/// Generates all tables of a suite into a directory. The same scale and seed give the same bytes for
/// any number of threads. A directory that is complete with the same parameters is not changed.
///
/// # Errors
/// [`SuiteError::Scale`] and [`SuiteError::Option`] for values out of range; [`SuiteError::Occupied`]
/// and [`SuiteError::NotOurs`] when the directory holds something else; [`SuiteError::Write`] and
/// [`SuiteError::Io`] when writing fails; [`SuiteError::Cancelled`]. After an error in writing, and
/// after cancellation, the files of the run are removed.
pub fn generate(options: &GenerateOptions<'_>) -> Result<Summary, SuiteError> {
    let started = Instant::now();
    options.check()?;
    if let Some(manifest) = complete_manifest(options)? {
        return Ok(Summary::new(manifest, started, true));
    }
    options.check_cancelled()?;
    let tables = options.suite.generators(options.scale, options.seed)?;
    let mut directory = OpenDirectory::prepare(options.suite, &options.out)?;
    let manifest = write_all(options, &tables, &mut directory)?;
    manifest.write(options.suite, &options.out)?;
    directory.complete()?;
    Ok(Summary::new(manifest, started, false))
}

/// A manifest of these parameters without tables.
fn empty_manifest(options: &GenerateOptions<'_>) -> Manifest {
    Manifest {
        data_version: options.suite.data_version(),
        scale: options.scale,
        seed: options.suite.seed(options.seed),
        rows_per_batch: options.rows_per_batch,
        fact_files: options.fact_files,
        tables: Vec::new(),
    }
}

/// The directory's manifest if all of its files exist and it matches the options.
fn complete_manifest(options: &GenerateOptions<'_>) -> Result<Option<Manifest>, SuiteError> {
    let Some(manifest) = read_manifest(options.suite, &options.out)? else { return Ok(None) };
    if !manifest.files_are_present(&options.out) {
        return Ok(None);
    }
    let wanted = empty_manifest(options);
    if manifest.has_parameters_of(&wanted) {
        return Ok(Some(manifest));
    }
    let (held, wanted) = (manifest.parameters(), wanted.parameters());
    Err(SuiteError::Occupied { dir: options.out.clone(), held, wanted })
}

fn write_all(
    options: &GenerateOptions<'_>,
    tables: &[Box<dyn TableGenerator>],
    directory: &mut OpenDirectory,
) -> Result<Manifest, SuiteError> {
    let rows_total = tables.iter().map(|table| table.rows()).sum();
    let mut done = Step { rows: 0, bytes: 0 };
    let mut manifest = empty_manifest(options);
    for table in tables {
        let name = table.name();
        options.check_cancelled()?;
        let mut on_step = |step: Step| {
            done = Step { rows: done.rows + step.rows, bytes: done.bytes + step.bytes };
            if let Some(progress) = options.progress {
                progress(Progress {
                    table: name,
                    rows_done: done.rows,
                    rows_total,
                    bytes: done.bytes,
                });
            }
        };
        let files = plan_files(options, name, table.pieces(options.rows_per_batch));
        directory.expect(&files)?;
        let job = Job {
            table: table.as_ref(),
            files: &files,
            rows_per_batch: options.rows_per_batch,
            threads: options.threads(),
            cancel: options.cancel,
        };
        let written = write_table(&job, &mut on_step)?;
        let entries = written.iter().enumerate().map(|(file, summary)| ManifestFile {
            path: options.file_name(name, file),
            rows: summary.rows,
            bytes: summary.bytes,
        });
        manifest.tables.push(ManifestTable {
            name: name.into(),
            rows: written.iter().map(|summary| summary.rows).sum(),
            files: entries.collect(),
        });
    }
    options.check_cancelled()?;
    Ok(manifest)
}

/// Splits a table into its files at piece borders, as evenly as possible.
fn plan_files(options: &GenerateOptions<'_>, table: &str, pieces: u64) -> Vec<FilePlan> {
    let files = match options.is_split(table) {
        true => u64::from(options.fact_files).min(pieces.max(1)),
        false => 1,
    };
    (0..files)
        .map(|file| FilePlan {
            path: options.out.join(options.file_name(table, file as usize)),
            pieces: pieces * file / files..pieces * (file + 1) / files,
        })
        .collect()
}

/// The output directory while it is being filled. Dropped before it is complete, it removes what
/// the run has created.
struct OpenDirectory {
    /// `None` once it is complete.
    marker: Option<Hidden>,
    /// Directories created by this run, outermost first.
    created: Vec<PathBuf>,
    files: Vec<Hidden>,
}

impl OpenDirectory {
    /// Creates the directory and the marker; removes the remains of an incomplete run.
    fn prepare(suite: Suite, path: &Path) -> Result<Self, SuiteError> {
        let leftovers = owned_files(suite, path)?;
        let (marker, manifest) = (path.join(suite.marker_file()), path.join(suite.manifest_file()));
        let ours = marker.exists() || manifest.exists();
        if let (false, Some(path)) = (ours, leftovers.first()) {
            return Err(SuiteError::NotOurs { path: path.clone() });
        }
        let mut directory = Self { marker: None, created: Vec::new(), files: Vec::new() };
        directory.create(path)?;
        fs::write(&marker, b"").map_err(SuiteError::io("create", &marker))?;
        directory.marker = Some(Hidden::owned(marker));
        remove_if_there(&manifest)?;
        leftovers.iter().try_for_each(|file| remove_if_there(file))?;
        Ok(directory)
    }

    /// Creates a directory and its missing parents, and records them.
    fn create(&mut self, path: &Path) -> Result<(), SuiteError> {
        let missing = path
            .ancestors()
            .take_while(|dir| !dir.as_os_str().is_empty() && !dir.exists())
            .map(Path::to_path_buf)
            .collect::<Vec<_>>();
        fs::create_dir_all(path).map_err(SuiteError::io("create directory", path))?;
        self.created.extend(missing.into_iter().rev());
        Ok(())
    }

    /// Announces files to be written.
    fn expect(&mut self, files: &[FilePlan]) -> Result<(), SuiteError> {
        for file in files {
            if let Some(parent) = file.path.parent() {
                self.create(parent)?;
            }
            self.files.push(Hidden::owned(&file.path));
        }
        Ok(())
    }

    /// The manifest is written: the files stay.
    fn complete(mut self) -> Result<(), SuiteError> {
        self.files.drain(..).for_each(Hidden::keep);
        self.created.clear();
        self.marker.take().map_or(Ok(()), |marker| remove_if_there(marker.path()))
    }
}

impl Drop for OpenDirectory {
    fn drop(&mut self) {
        // Best effort: the error that ended the run is the one to report, and the marker goes
        // last so that a file which could not be removed still counts as ours.
        let paths: Vec<PathBuf> = self.files.drain(..).map(|it| it.path().to_path_buf()).collect();
        if let Some(marker) = self.marker.take()
            && paths.iter().any(|path| path.exists())
        {
            marker.keep();
        }
        for dir in self.created.iter().rev() {
            // Fails, as it should, when someone else has put a file there.
            let _ = fs::remove_dir(dir);
        }
    }
}

fn remove_if_there(path: &Path) -> Result<(), SuiteError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(SuiteError::io("remove", path)(error))
        }
        _ => Ok(()),
    }
}

/// Files in `dir` with the names of tables or of the largest table's parts.
fn owned_files(suite: Suite, dir: &Path) -> Result<Vec<PathBuf>, SuiteError> {
    let mut files: Vec<PathBuf> = suite
        .tables()
        .iter()
        .map(|table| dir.join(format!("{table}.arrow")))
        .filter(|path| path.exists())
        .collect();
    let folder = dir.join(suite.fact_table());
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(files),
        Err(error) => return Err(SuiteError::io("list", folder)(error)),
    };
    for entry in entries {
        let path = entry.map_err(SuiteError::io("list", &folder))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("");
        if name.starts_with("part-") && name.ends_with(".arrow") {
            files.push(path);
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_cover_all_pieces() {
        for (pieces, files) in [(1_u64, 4_u32), (10, 1), (10, 3), (11, 3), (9, 10), (100, 7)] {
            let mut options = GenerateOptions::new(Suite::Ssb, 1.0, "out");
            options.fact_files = files;
            let plan = plan_files(&options, "lineorder", pieces);
            assert!(plan.len() as u64 <= pieces);
            assert_eq!((plan[0].pieces.start, plan[plan.len() - 1].pieces.end), (0, pieces));
            for pair in plan.windows(2) {
                assert_eq!(pair[0].pieces.end, pair[1].pieces.start);
                assert!(!pair[0].pieces.is_empty());
            }
            assert_eq!(plan_files(&options, "part", pieces).len(), 1);
        }
    }
}
