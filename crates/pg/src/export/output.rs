//! The destination of rows: a file, or files of a bounded size in a folder.
//!
//! Either appears under its name when all of it is on disk. Until then it is a hidden temporary beside it,
//! which is removed with its writer.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::Schema;
use headrace_format::arrow::{ArrowWriter, WriterOptions, WriterSummary};
use tempfile::TempDir;

use crate::error::{PgError, Result};

/// A record batch ends at this size, whatever its rows: this bounds memory, and offsets of texts
/// stay within 32 bits.
const BATCH_BYTES_MAX: usize = 256 << 20;

/// The suffix of every file.
const ENDING: &str = "arrow";

/// The final output.
#[derive(Debug)]
pub(super) struct Target {
    pub path: PathBuf,
    /// The size of a file at which the next one begins; `None`: one file, and no folder.
    file_bytes: Option<u64>,
}

impl Target {
    /// The target of `out`: itself, or for a folder a file with the table's name in it. Existing
    /// files are replaced only if `forced`.
    pub fn new(out: &Path, table: &str, file_bytes: Option<u64>, forced: bool) -> Result<Target> {
        let path = match out.is_dir() || out.as_os_str().as_encoded_bytes().ends_with(b"/") {
            true => within(out, table, file_bytes.is_some())?,
            false => out.to_path_buf(),
        };
        if path.exists() && !forced {
            return Err(PgError::new(format!("{} exists", path.display()))
                .remedy("name another one, or add --force to replace it"));
        }
        if path.is_dir() && !holds_only_arrow(&path) {
            return Err(PgError::new(format!(
                "{} is a folder with other things than Arrow files",
                path.display()
            ))
            .remedy("name another one: it is not replaced"));
        }
        Ok(Target { path, file_bytes })
    }

    /// Begins it.
    pub fn begin(&self, schema: Arc<Schema>) -> Result<Output<'_>> {
        let folder = self.file_bytes.map(|_| hidden_beside(&self.path)).transpose()?;
        let first = folder.as_ref().map_or_else(|| self.path.clone(), |f| numbered(f.path(), 0));
        let writer = create(&first, &schema)?;
        let ended = WriterSummary { rows: 0, batches: 0, bytes: 0 };
        Ok(Output { target: self, schema, folder, writer, ended, files: 1, batch_bytes: 0 })
    }
}

/// The path of a table's name in a folder.
fn within(folder: &Path, table: &str, is_folder: bool) -> Result<PathBuf> {
    let ending = if is_folder { String::new() } else { format!(".{ENDING}") };
    let named = |cause: String| {
        let example = folder.join(format!("NAME{ending}"));
        Err(PgError::usage(cause).remedy(format!("-o {}", example.display())))
    };
    if !folder.is_dir() {
        return Err(PgError::new(format!("{}: there is no such folder", folder.display()))
            .remedy(format!("mkdir -p {}", folder.display())));
    }
    match table {
        "" => named(format!("{} is a folder, and a query has no name", folder.display())),
        "." | ".." => named(format!("table {table} has a name that no file has")),
        _ if table.contains('/') => named(format!("table {table} has a name that no file has")),
        _ => Ok(folder.join(format!("{table}{ending}"))),
    }
}

fn holds_only_arrow(folder: &Path) -> bool {
    let is_arrow = |entry: fs::DirEntry| {
        entry.path().extension() == Some(OsStr::new(ENDING))
            && entry.file_type().is_ok_and(|kind| kind.is_file())
    };
    fs::read_dir(folder).is_ok_and(|mut entries| entries.all(|entry| entry.is_ok_and(is_arrow)))
}

/// A folder beside a path, with the read permissions of the path's folder.
fn hidden_beside(path: &Path) -> Result<TempDir> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    tempfile::Builder::new()
        .prefix(&format!(".{name}."))
        .permissions(Permissions::from_mode(0o777))
        .tempdir_in(parent(path))
        .map_err(|error| failed(path, &error))
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn numbered(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("part-{number:05}.{ENDING}"))
}

fn create(file: &Path, schema: &Schema) -> Result<ArrowWriter> {
    ArrowWriter::create(file, schema, WriterOptions::default()).map_err(PgError::new)
}

fn failed(path: &Path, error: &std::io::Error) -> PgError {
    PgError::new(format!("{} cannot be written: {error}", path.display()))
}

/// The output being written.
pub(super) struct Output<'a> {
    target: &'a Target,
    schema: Arc<Schema>,
    writer: ArrowWriter,
    /// The location of files until all are complete.
    folder: Option<TempDir>,
    /// Totals of the files before the writer's.
    ended: WriterSummary,
    files: u64,
    /// Rows in the writer that wait for the end of their record batch.
    batch_bytes: usize,
}

impl Output<'_> {
    /// Rows so far.
    pub fn rows(&self) -> u64 {
        self.ended.rows + self.writer.rows()
    }

    /// Bytes of the files so far.
    pub fn bytes(&self) -> u64 {
        self.ended.bytes + self.writer.bytes()
    }

    /// Adds rows.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let bytes = batch.get_array_memory_size();
        if self.is_full(bytes) {
            self.next_file()?;
        }
        let rows = self.writer.pending_rows() + batch.num_rows();
        self.writer.write(batch).map_err(PgError::new)?;
        // Fewer rows than there were: it has ended a batch by itself.
        let before = if self.writer.pending_rows() < rows { 0 } else { self.batch_bytes };
        self.batch_bytes = before + bytes;
        if self.batch_bytes >= BATCH_BYTES_MAX {
            self.writer.end_batch().map_err(PgError::new)?;
            self.batch_bytes = 0;
        }
        Ok(())
    }

    /// All rows are complete: returns the totals and the number of files.
    pub fn finish(mut self) -> Result<(WriterSummary, u64)> {
        self.ended = sum(self.ended, self.writer.finish().map_err(PgError::new)?);
        if let Some(folder) = self.folder {
            commit(folder, &self.target.path).map_err(|error| failed(&self.target.path, &error))?;
        }
        Ok((self.ended, self.files))
    }

    fn is_full(&self, more_bytes: usize) -> bool {
        let bytes = self.writer.bytes() + (self.batch_bytes + more_bytes) as u64;
        self.target.file_bytes.is_some_and(|max| self.writer.rows() > 0 && bytes > max)
    }

    fn next_file(&mut self) -> Result<()> {
        let Some(folder) = &self.folder else { return Ok(()) };
        let next = create(&numbered(folder.path(), self.files), &self.schema)?;
        let full = std::mem::replace(&mut self.writer, next);
        self.ended = sum(self.ended, full.finish().map_err(PgError::new)?);
        self.files += 1;
        self.batch_bytes = 0;
        Ok(())
    }
}

fn sum(a: WriterSummary, b: WriterSummary) -> WriterSummary {
    WriterSummary {
        rows: a.rows + b.rows,
        batches: a.batches + b.batches,
        bytes: a.bytes + b.bytes,
    }
}

/// Renames a folder; the previous one is removed, or restored if that fails.
fn commit(folder: TempDir, path: &Path) -> std::io::Result<()> {
    let aside = match path.exists() {
        true => Some(tempfile::Builder::new().prefix(".replaced.").tempdir_in(parent(path))?),
        false => None,
    };
    let old = aside.as_ref().map(|aside| aside.path().join("old"));
    if let Some(old) = &old {
        fs::rename(path, old)?;
    }
    File::open(folder.path())?.sync_all()?;
    if let Err(error) = fs::rename(folder.path(), path) {
        if let Some(old) = &old {
            fs::rename(old, path)?;
        }
        return Err(error);
    }
    // It has another name now.
    let _ = folder.keep();
    File::open(parent(path))?.sync_all()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use arrow_array::{ArrayRef, Int64Array};

    use super::*;

    fn batch() -> RecordBatch {
        let column: ArrayRef = Arc::new(Int64Array::from_iter_values(0..1000));
        RecordBatch::try_from_iter([("n", column)]).unwrap()
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn files_end_at_their_size_and_all_appear_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let target = Target::new(folder.path(), "t", Some(20_000), false).unwrap();
        let mut output = target.begin(batch().schema()).unwrap();
        for _ in 0..10 {
            output.write(&batch()).unwrap();
        }
        assert!(names(folder.path()).iter().all(|name| name.starts_with('.')));
        let (written, files) = output.finish().unwrap();
        assert_eq!((written.rows, files), (10_000, 5));
        assert_eq!(names(folder.path()), ["t"]);
        let parts = names(&folder.path().join("t"));
        assert_eq!((parts.len(), parts[0].as_str()), (5, "part-00000.arrow"));
        for part in parts {
            let bytes = fs::metadata(folder.path().join("t").join(part)).unwrap().len();
            assert!(bytes < 20_000, "{bytes}");
        }
        let mode = fs::metadata(folder.path().join("t")).unwrap().permissions().mode();
        assert_eq!(mode & 0o700, 0o700);
    }

    #[test]
    fn what_is_given_up_leaves_nothing_and_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let old = folder.path().join("t");
        fs::create_dir(&old).unwrap();
        fs::write(old.join("old.arrow"), "old").unwrap();
        assert!(Target::new(folder.path(), "t", Some(1), false).is_err());
        let target = Target::new(folder.path(), "t", Some(1), true).unwrap();
        let mut output = target.begin(batch().schema()).unwrap();
        output.write(&batch()).unwrap();
        output.write(&batch()).unwrap();
        drop(output);
        assert_eq!(
            (names(folder.path()), names(&old)),
            (vec!["t".into()], vec!["old.arrow".into()])
        );
        target.begin(batch().schema()).unwrap().finish().unwrap();
        assert_eq!((names(folder.path()), names(&old).len()), (vec!["t".into()], 1));
        assert_eq!(names(&old), ["part-00000.arrow"]);
        fs::write(old.join("notes.txt"), "mine").unwrap();
        let refused = Target::new(folder.path(), "t", Some(1), true).unwrap_err();
        assert!(refused.cause.contains("other things"), "{refused}");
    }
}
