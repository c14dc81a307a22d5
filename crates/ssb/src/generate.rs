//! Generates the benchmark into a directory: whole, or not at all.
//!
//! The marker file says that the directory's files are ours although there is no manifest yet;
//! it appears first and goes last, so an interrupted run can be repeated, and files of someone
//! else are never replaced.

use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use crate::{
    Generator, Manifest, SsbError, Table,
    manifest::{DATA_VERSION, MANIFEST_FILE, ManifestFile, ManifestTable, read_manifest},
    write::{FilePlan, Job, Step, write_table},
};

/// Present while the directory is being filled.
const MARKER_FILE: &str = ".ssb-unfinished";

/// Limit of [`GenerateOptions::rows_per_batch`], which keeps text offsets within 32 bits.
const ROWS_PER_BATCH_MAX: u64 = 1 << 24;
/// Limit of [`GenerateOptions::lineorder_files`]: each has a writer thread.
const LINEORDER_FILES_MAX: u32 = 1024;
/// Limit of [`GenerateOptions::threads`].
const THREADS_MAX: usize = 1024;

/// What to generate, and where.
#[derive(Clone)]
pub struct GenerateOptions<'a> {
    /// Scale factor, [`SCALE_MIN`](crate::SCALE_MIN)..=[`SCALE_MAX`](crate::SCALE_MAX).
    pub scale: f64,
    /// Seed of all values but the number of lines of each order.
    pub seed: u64,
    /// Output directory; created if missing.
    pub out: PathBuf,
    /// Threads that generate; 0 for one a core. Each file has a writer thread besides.
    pub threads: usize,
    /// Rows of a full record batch, 1..=2^24.
    pub rows_per_batch: u64,
    /// 0: one file `lineorder.arrow`. n: a folder `lineorder` with up to n files (never more than
    /// there are record batches), each a range of rows, written at the same time. One file's
    /// writer thread keeps up with about four generating threads: more cores want more files.
    pub lineorder_files: u32,
    /// Called in the calling thread after every batch that has been handed to its file.
    pub progress: Option<&'a dyn Fn(Progress)>,
    /// Raised by another thread to stop; nothing of the run is left behind then.
    pub cancel: Option<&'a AtomicBool>,
}

impl GenerateOptions<'_> {
    /// Scale `scale` into `out`: seed 42, all cores, one file a table, batches of 2^20 rows.
    pub fn new(scale: f64, out: impl Into<PathBuf>) -> Self {
        Self {
            scale,
            seed: 42,
            out: out.into(),
            threads: 0,
            rows_per_batch: 1 << 20,
            lineorder_files: 0,
            progress: None,
            cancel: None,
        }
    }

    fn check(&self) -> Result<(), SsbError> {
        let refuse = |option, value, problem| Err(SsbError::Option { option, value, problem });
        if !(1..=ROWS_PER_BATCH_MAX).contains(&self.rows_per_batch) {
            return refuse("rows_per_batch", self.rows_per_batch, "not in 1..=2^24");
        }
        if self.lineorder_files > LINEORDER_FILES_MAX {
            return refuse("lineorder_files", self.lineorder_files.into(), "more than 1024");
        }
        if self.threads > THREADS_MAX {
            return refuse("threads", self.threads as u64, "more than 1024");
        }
        Ok(())
    }

    fn threads(&self) -> usize {
        match self.threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            threads => threads,
        }
    }

    fn check_cancelled(&self) -> Result<(), SsbError> {
        match self.cancel {
            Some(flag) if flag.load(Ordering::Relaxed) => Err(SsbError::Cancelled),
            _ => Ok(()),
        }
    }

    fn file_name(&self, table: Table, file: usize) -> String {
        match table {
            Table::Lineorder if self.lineorder_files > 0 => shard_name(file),
            _ => format!("{}.arrow", table.name()),
        }
    }
}

/// Path of a lineorder file relative to the output directory; names sort in row order.
fn shard_name(file: usize) -> String {
    format!("{}/part-{file:05}.arrow", Table::Lineorder.name())
}

/// How far a run has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The table being written.
    pub table: Table,
    /// Rows written, all tables together.
    pub rows_done: u64,
    /// Rows of all tables.
    pub rows_total: u64,
    /// Bytes written, all tables together.
    pub bytes: u64,
}

/// What a run has produced.
#[derive(Clone, Debug)]
pub struct Summary {
    /// The manifest as written.
    pub manifest: Manifest,
    /// Rows of all tables.
    pub rows: u64,
    /// Bytes of all files but the manifest.
    pub bytes: u64,
    /// Time the run took.
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

/// Generates all five tables into a directory. The same scale and seed give the same bytes for
/// any number of threads. A directory that is complete with the same parameters is left as it is.
///
/// # Errors
/// [`SsbError::Scale`] and [`SsbError::Option`] for values out of range; [`SsbError::Occupied`]
/// and [`SsbError::NotOurs`] when the directory holds something else; [`SsbError::Write`] and
/// [`SsbError::Io`] when writing fails; [`SsbError::Cancelled`]. After an error in writing, and
/// after cancellation, the files of the run are removed.
pub fn generate(options: &GenerateOptions<'_>) -> Result<Summary, SsbError> {
    let started = Instant::now();
    options.check()?;
    let generator = Generator::new(options.scale, options.seed)?;
    if let Some(manifest) = complete_manifest(options, &generator)? {
        return Ok(Summary::new(manifest, started, true));
    }
    options.check_cancelled()?;
    let mut directory = OpenDirectory::prepare(&options.out)?;
    let manifest = write_all(options, &generator, &mut directory)?;
    manifest.write(&options.out)?;
    directory.complete()?;
    Ok(Summary::new(manifest, started, false))
}

/// A manifest of these parameters without tables.
fn empty_manifest(options: &GenerateOptions<'_>, generator: &Generator) -> Manifest {
    Manifest {
        data_version: DATA_VERSION,
        scale: generator.scale(),
        seed: generator.seed(),
        rows_per_batch: options.rows_per_batch,
        lineorder_files: options.lineorder_files,
        tables: Vec::new(),
    }
}

/// The directory's manifest when all of its files are there and it is what the options ask for.
fn complete_manifest(
    options: &GenerateOptions<'_>,
    generator: &Generator,
) -> Result<Option<Manifest>, SsbError> {
    let Some(manifest) = read_manifest(&options.out)? else { return Ok(None) };
    if !manifest.files_are_present(&options.out) {
        return Ok(None);
    }
    let wanted = empty_manifest(options, generator);
    if manifest.has_parameters_of(&wanted) {
        return Ok(Some(manifest));
    }
    let (held, wanted) = (manifest.parameters(), wanted.parameters());
    Err(SsbError::Occupied { dir: options.out.clone(), held, wanted })
}

fn write_all(
    options: &GenerateOptions<'_>,
    generator: &Generator,
    directory: &mut OpenDirectory,
) -> Result<Manifest, SsbError> {
    let rows_total = Table::ALL.iter().map(|&table| generator.rows(table)).sum();
    let mut done = Step { rows: 0, bytes: 0 };
    let mut manifest = empty_manifest(options, generator);
    for table in Table::ALL {
        options.check_cancelled()?;
        let mut on_step = |step: Step| {
            done = Step { rows: done.rows + step.rows, bytes: done.bytes + step.bytes };
            if let Some(progress) = options.progress {
                progress(Progress { table, rows_done: done.rows, rows_total, bytes: done.bytes });
            }
        };
        let files = plan_files(options, table, generator.rows(table));
        directory.expect(&files)?;
        let job = Job {
            table: generator.of(table),
            files: &files,
            rows_per_batch: options.rows_per_batch,
            threads: options.threads(),
            cancel: options.cancel,
        };
        let written = write_table(&job, &mut on_step)?;
        let entries = written.iter().enumerate().map(|(file, summary)| ManifestFile {
            path: options.file_name(table, file),
            rows: summary.rows,
            bytes: summary.bytes,
        });
        manifest.tables.push(ManifestTable {
            name: table.name().into(),
            rows: generator.rows(table),
            files: entries.collect(),
        });
    }
    options.check_cancelled()?;
    Ok(manifest)
}

/// Splits a table into its files at multiples of the batch size, as evenly as that allows.
fn plan_files(options: &GenerateOptions<'_>, table: Table, rows: u64) -> Vec<FilePlan> {
    let batches = rows.div_ceil(options.rows_per_batch);
    let files = match table {
        Table::Lineorder => u64::from(options.lineorder_files).clamp(1, batches.max(1)),
        _ => 1,
    };
    let first_row = |file: u64| rows.min(batches * file / files * options.rows_per_batch);
    (0..files)
        .map(|file| FilePlan {
            path: options.out.join(options.file_name(table, file as usize)),
            rows: first_row(file)..first_row(file + 1),
        })
        .collect()
}

/// The output directory while it is being filled. Dropping it before it is complete removes what
/// the run has made.
struct OpenDirectory {
    path: PathBuf,
    /// Directories that this run has created, outermost first.
    created: Vec<PathBuf>,
    files: Vec<PathBuf>,
    complete: bool,
}

impl OpenDirectory {
    /// Creates the directory and the marker; removes what an incomplete run has left.
    fn prepare(path: &Path) -> Result<Self, SsbError> {
        let leftovers = owned_files(path)?;
        let ours = path.join(MARKER_FILE).exists() || path.join(MANIFEST_FILE).exists();
        if let (false, Some(path)) = (ours, leftovers.first()) {
            return Err(SsbError::NotOurs { path: path.clone() });
        }
        let mut directory =
            Self { path: path.into(), created: Vec::new(), files: Vec::new(), complete: false };
        directory.create(path)?;
        let marker = path.join(MARKER_FILE);
        fs::write(&marker, b"").map_err(SsbError::io("create", marker))?;
        remove_if_there(&path.join(MANIFEST_FILE))?;
        leftovers.iter().try_for_each(|file| remove_if_there(file))?;
        Ok(directory)
    }

    /// Creates a directory and its missing parents, and remembers them.
    fn create(&mut self, path: &Path) -> Result<(), SsbError> {
        let missing = path
            .ancestors()
            .take_while(|dir| !dir.as_os_str().is_empty() && !dir.exists())
            .map(Path::to_path_buf)
            .collect::<Vec<_>>();
        fs::create_dir_all(path).map_err(SsbError::io("create directory", path))?;
        self.created.extend(missing.into_iter().rev());
        Ok(())
    }

    /// Announces files that are about to be written.
    fn expect(&mut self, files: &[FilePlan]) -> Result<(), SsbError> {
        for file in files {
            if let Some(parent) = file.path.parent() {
                self.create(parent)?;
            }
            self.files.push(file.path.clone());
        }
        Ok(())
    }

    /// The manifest is written: what is here stays.
    fn complete(mut self) -> Result<(), SsbError> {
        self.complete = true;
        remove_if_there(&self.path.join(MARKER_FILE))
    }
}

impl Drop for OpenDirectory {
    fn drop(&mut self) {
        if self.complete {
            return;
        }
        // Best effort: the error that ended the run is the one to report, and the marker goes
        // last so that a file which could not be removed still counts as ours.
        let files_gone = self.files.iter().all(|file| remove_if_there(file).is_ok());
        if files_gone {
            let _ = remove_if_there(&self.path.join(MARKER_FILE));
        }
        for dir in self.created.iter().rev() {
            // Fails, as it should, when someone else has put a file there.
            let _ = fs::remove_dir(dir);
        }
    }
}

fn remove_if_there(path: &Path) -> Result<(), SsbError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(SsbError::io("remove", path)(error))
        }
        _ => Ok(()),
    }
}

/// Files in `dir` that have the names of tables or of lineorder's parts.
fn owned_files(dir: &Path) -> Result<Vec<PathBuf>, SsbError> {
    let mut files: Vec<PathBuf> = Table::ALL
        .iter()
        .map(|table| dir.join(format!("{}.arrow", table.name())))
        .filter(|path| path.exists())
        .collect();
    let folder = dir.join(Table::Lineorder.name());
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(files),
        Err(error) => return Err(SsbError::io("list", folder)(error)),
    };
    for entry in entries {
        let path = entry.map_err(SsbError::io("list", &folder))?.path();
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
    fn files_split_at_batches_and_cover_all_rows() {
        for (rows, files) in [(1_u64, 4_u32), (100, 1), (100, 3), (101, 3), (95, 10), (1000, 7)] {
            let mut options = GenerateOptions::new(1.0, "out");
            options.rows_per_batch = 10;
            options.lineorder_files = files;
            let plan = plan_files(&options, Table::Lineorder, rows);
            assert!(plan.len() as u64 <= rows.div_ceil(10));
            assert_eq!((plan[0].rows.start, plan[plan.len() - 1].rows.end), (0, rows));
            for pair in plan.windows(2) {
                assert_eq!(pair[0].rows.end, pair[1].rows.start);
                assert!(pair[0].rows.end.is_multiple_of(10) && !pair[0].rows.is_empty());
            }
            assert_eq!(plan_files(&options, Table::Part, rows).len(), 1);
        }
    }
}
