//! COPY: what it writes is whole or not there, and what lay there stays until then.
//!
//! DataFusion's writers finish their files even if the query fails. So they write into a hidden folder beside the
//! target, and what is in it takes the target's place when the query is done. Arrow files are written by our own
//! writer, so that they stream.

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::sink::DataSink;
use datafusion::execution::memory_pool::MemoryLimit;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::dml::CopyTo;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType};
use futures::StreamExt;
use headrace_format::arrow::{ArrowWriter, WriterOptions, WriterSummary, is_table_file};
use headrace_io::write::hidden::{Hidden, is_whole};
use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::catalog::{partition_of, refused, remote};
use crate::error::{blocking, external};
use crate::planner_memory::batch_bytes;

/// Rows of more bytes than this make a record batch, however few they are.
const BATCH_BYTES_MAX: u64 = 256 << 20;
/// Smaller ones cost more than they save.
const BATCH_BYTES_MIN: u64 = 1 << 20;
/// A writer holds pending rows and the record batch made of them, outside the operators' memory pool. A batch takes at most
/// one part in so many of that pool.
const BATCH_SHARE: u64 = 4;

/// Bytes of the record batches that are written, at most, where the planner's operators may have so many; `None`: no limit.
pub fn batch_bytes_max(planner_bytes: Option<u64>) -> usize {
    let bytes = planner_bytes.map_or(BATCH_BYTES_MAX, |bytes| bytes / BATCH_SHARE);
    bytes.clamp(BATCH_BYTES_MIN, BATCH_BYTES_MAX) as usize
}

/// The same for what runs in a context.
pub fn batch_bytes_max_of(context: &TaskContext) -> usize {
    match context.memory_pool().memory_limit() {
        MemoryLimit::Finite(bytes) => batch_bytes_max(Some(bytes as u64)),
        _ => batch_bytes_max(None),
    }
}

/// Where a COPY writes to.
#[derive(Debug)]
pub enum Target {
    /// A file or folder of this machine.
    Local(PathBuf),
    /// An object of a store, by its address.
    Remote(PathBuf),
}

/// Where a COPY writes to.
pub fn target_of(copy: &CopyTo) -> Target {
    match copy.output_url.split_once("://") {
        Some(("file", path)) => Target::Local(PathBuf::from(path)),
        Some(_) => Target::Remote(PathBuf::from(&copy.output_url)),
        None => Target::Local(PathBuf::from(&copy.output_url)),
    }
}

/// Whether it writes one file.
pub fn is_one_file(copy: &CopyTo) -> bool {
    match copy.options.get("single_file_output").map(String::as_str) {
        Some("true") => true,
        Some("false") => false,
        _ => {
            let path = Path::new(&copy.output_url);
            copy.partition_by.is_empty()
                && !copy.output_url.ends_with('/')
                && path.extension().is_some()
        }
    }
}

/// A hidden folder beside the target, or among the temporary files if that is an object of a store; without a
/// commit it is removed.
#[derive(Debug)]
pub struct Staging {
    /// Goes with what is not committed.
    _folder: Hidden,
    /// What will take the target's place: a file in the folder, or a folder in it.
    content: PathBuf,
    target: PathBuf,
    is_remote: bool,
}

impl Staging {
    /// Begins to write what will be the target.
    ///
    /// # Errors
    /// A target that cannot be a file or a new folder.
    pub fn new(target: &Target, is_one_file: bool) -> Result<Staging> {
        match target {
            Target::Local(path) => Self::local(path, is_one_file),
            Target::Remote(address) => Self::remote(address, is_one_file),
        }
    }

    fn remote(target: &Path, is_one_file: bool) -> Result<Staging> {
        remote::check_target(target)?;
        if !is_one_file {
            let cause = "a folder of objects could not be whole or not there";
            return Err(refused(target, cause, "name one object, such as s3://bucket/x.parquet"));
        }
        let temporary = std::env::temp_dir();
        let folder = Hidden::folder(&temporary)
            .map_err(|e| refused(&temporary, e, "TMPDIR names a folder for temporary files"))?;
        let extension = target.extension().unwrap_or_default().to_string_lossy();
        let content = folder.path().join(format!("data.{extension}"));
        Ok(Staging { _folder: folder, content, target: target.to_path_buf(), is_remote: true })
    }

    fn local(target: &Path, is_one_file: bool) -> Result<Staging> {
        let fail = |cause: &dyn fmt::Display, remedy: &str| refused(target, cause, remedy);
        let name_another = "name another file, or a folder";
        let target = real(target)?;
        if let Ok(metadata) = std::fs::metadata(&target) {
            if is_one_file && !metadata.is_file() {
                return Err(fail(&"it is no regular file", name_another));
            }
            let is_empty = || std::fs::read_dir(&target).is_ok_and(|mut all| all.next().is_none());
            if !is_one_file && !is_empty() {
                return Err(fail(&"it is there, and no empty folder", "name a new folder"));
            }
        }
        Self::begin(target, is_one_file)
    }

    /// Begins to write what will be put in the place of a folder of partitions by
    /// [`replace_folder`](Self::replace_folder).
    ///
    /// # Errors
    /// A target that is something else.
    pub fn replacing_folder(target: &Path) -> Result<Staging> {
        check_is_partitions(target)?;
        Self::beside(target, false)
    }

    /// Begins to write what will be put in the place of a table, whatever lies there.
    ///
    /// # Errors
    /// A place that cannot be written beside.
    pub fn beside(target: &Path, is_one_file: bool) -> Result<Staging> {
        Self::begin(real(target)?, is_one_file)
    }

    fn begin(target: PathBuf, is_one_file: bool) -> Result<Staging> {
        let fail = |cause: &dyn fmt::Display, remedy| refused(&target, cause, remedy);
        let folder = Hidden::folder(target.parent().unwrap_or(Path::new("/"))).map_err(|e| {
            fail(
                &format!("cannot write beside it: {e}"),
                "choose a folder that is there and that you may write to",
            )
        })?;
        let extension = target.extension().unwrap_or_default().to_string_lossy();
        let content = match is_one_file {
            true => folder.path().join(format!("data.{extension}")),
            false => folder.path().join("data"),
        };
        Ok(Staging { _folder: folder, content, target, is_remote: false })
    }

    /// Where to write, as DataFusion takes it: no letter of it means anything but itself.
    pub fn url(&self) -> String {
        let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/-_.".contains(byte);
        let bytes = self.content.as_os_str().as_bytes().iter();
        let path: String = bytes
            .map(|byte| match plain(byte) {
                true => (*byte as char).to_string(),
                false => format!("%{byte:02X}"),
            })
            .collect();
        format!("file://{path}{}", if self.is_folder() { "/" } else { "" })
    }

    fn is_folder(&self) -> bool {
        self.content.extension().is_none()
    }

    /// What is to be written: a file, or a folder, which the writer makes.
    pub fn content(&self) -> &Path {
        &self.content
    }

    /// What it will be.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Puts a folder that was written in the place of another, at once; that one goes with the hidden folder.
    ///
    /// # Errors
    /// What lies there is no folder of partitions, or cannot be replaced; it stays then.
    pub fn replace_folder(&self) -> Result<()> {
        check_is_partitions(&self.target)?;
        std::fs::create_dir_all(&self.content)
            .map_err(|e| refused(&self.content, e, "see whether its folder may be written"))?;
        self.exchange("remove it first")?;
        is_whole(&self.target);
        Ok(())
    }

    /// Puts what was written in the place of what lies there, file or folder, at once; that goes with the hidden folder.
    ///
    /// # Errors
    /// A file system that cannot do that.
    pub fn exchange(&self, remedy: &str) -> Result<()> {
        renameat_with(CWD, &self.content, CWD, &self.target, RenameFlags::EXCHANGE)
            .map_err(|e| refused(&self.target, e, remedy))?;
        self.settle();
        Ok(())
    }

    /// A name that was given lasts.
    fn settle(&self) {
        if let Some(folder) = self.target.parent() {
            // The name is there; a file system that cannot sync folders keeps it in its own way.
            let _ = File::open(folder).and_then(|folder| folder.sync_all());
        }
    }

    /// Puts what was written in its place.
    ///
    /// # Errors
    /// If that fails, what lay there stays.
    pub fn commit(&self) -> Result<()> {
        if self.is_remote {
            let opened = File::options().append(true).create(true).open(&self.content);
            opened.map_err(|e| refused(&self.content, e, "see whether it may be written"))?;
            return remote::upload(&self.content, &self.target);
        }
        let put = || -> io::Result<()> {
            // A query of no rows may have written none.
            if self.is_folder() {
                std::fs::create_dir_all(&self.content)?;
                return std::fs::rename(&self.content, &self.target);
            }
            let file = File::options().append(true).create(true).open(&self.content)?;
            if let Ok(old) = std::fs::metadata(&self.target) {
                file.set_permissions(old.permissions())?;
            }
            file.sync_all()?;
            std::fs::rename(&self.content, &self.target)
        };
        put().map_err(|e| refused(&self.target, e, "see whether it may be replaced"))?;
        is_whole(&self.target);
        self.settle();
        Ok(())
    }
}

/// What is written to through a link is what it leads to.
fn real(target: &Path) -> Result<PathBuf> {
    let real = match std::fs::canonicalize(target) {
        Err(e) if e.kind() == io::ErrorKind::NotFound && !target.is_symlink() => {
            std::path::absolute(target)
        }
        found => found,
    };
    real.map_err(|e| refused(target, e, "name another file, or a folder"))
}

/// A folder in whose place another may be put: it has nothing but partitions and files of tables in it.
///
/// # Errors
/// What else it has.
fn check_is_partitions(folder: &Path) -> Result<()> {
    let remedy = "remove it, or name another folder";
    let fail = |path: &Path, cause: &dyn fmt::Display| refused(path, cause, remedy);
    for entry in std::fs::read_dir(folder).map_err(|e| fail(folder, &e))? {
        let entry = entry.map_err(|e| fail(folder, &e))?;
        let (path, kind) = (entry.path(), entry.file_type().map_err(|e| fail(folder, &e))?);
        match kind.is_dir() {
            true if partition_of(&path).is_some() => check_is_partitions(&path)?,
            false if kind.is_file() && is_table_file(&path) => {}
            _ => {
                return Err(fail(
                    &path,
                    &"it would be lost, and is no part of a table in partitions",
                ));
            }
        }
    }
    Ok(())
}

/// The columns of an Arrow file that streams: plain text and bytes; the `dictionary` columns, if text, as
/// dictionaries.
pub fn streamed_schema(schema: &Schema, dictionary: &[String]) -> SchemaRef {
    let fields = schema.fields().iter().map(|field| {
        let is_text =
            matches!(field.data_type(), DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
        let data_type = match field.data_type() {
            _ if is_text && dictionary.contains(field.name()) => {
                DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))
            }
            DataType::Utf8View | DataType::LargeUtf8 => DataType::Utf8,
            DataType::BinaryView | DataType::LargeBinary => DataType::Binary,
            // A file has one dictionary a column, and those of numbers are not united.
            DataType::Dictionary(_, values) if !has_united_codes(values) => values.as_ref().clone(),
            other => other.clone(),
        };
        Field::new(field.name(), data_type, field.is_nullable())
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// The same columns, all of which may be NULL: those of a table that is made of a query take NULL later.
pub fn nullable(schema: &Schema) -> SchemaRef {
    let fields = schema.fields().iter().map(|field| field.as_ref().clone().with_nullable(true));
    Arc::new(Schema::new_with_metadata(fields.collect::<Vec<_>>(), schema.metadata().clone()))
}

fn has_united_codes(values: &DataType) -> bool {
    use DataType::{Binary, BinaryView, LargeBinary, LargeUtf8, Utf8, Utf8View};
    matches!(values, Utf8 | LargeUtf8 | Utf8View | Binary | LargeBinary | BinaryView)
}

/// Writes batches of any size as an Arrow file that streams: in the types of its schema, and never so many rows
/// at once that they do not fit the memory.
pub struct StreamedWriter<W> {
    writer: ArrowWriter<W>,
    /// Of the rows that do not fill a record batch yet.
    pending_bytes: usize,
    pending_bytes_max: usize,
}

impl<W: Write> StreamedWriter<W> {
    /// By a writer whose schema is a [`streamed_schema`] of the batches; record batches are of so many bytes at most.
    pub fn new(writer: ArrowWriter<W>, batch_bytes_max: usize) -> Self {
        Self { writer, pending_bytes: 0, pending_bytes_max: batch_bytes_max }
    }

    /// Takes rows.
    ///
    /// # Errors
    /// Those of [`ArrowWriter::write`], and values that do not fit the file's types.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let batch = recoded(batch, self.writer.held_schema())?;
        let (rows, bytes) = (batch.num_rows(), batch_bytes(&batch)?);
        self.writer.write(&batch).map_err(external)?;
        let pending_rows = self.writer.pending_rows();
        self.pending_bytes = match pending_rows < rows {
            true => bytes / rows * pending_rows,
            false => self.pending_bytes + bytes,
        };
        if self.pending_bytes > self.pending_bytes_max {
            self.pending_bytes = 0;
            self.writer.end_batch().map_err(external)?;
        }
        Ok(())
    }

    /// The writer, to be ended.
    pub fn into_inner(self) -> ArrowWriter<W> {
        self.writer
    }

    /// The writer.
    pub fn get_mut(&mut self) -> &mut ArrowWriter<W> {
        &mut self.writer
    }
}

/// Writes a stream as an Arrow file that streams, in record batches of so many bytes at most.
///
/// `progress` is told of rows before they are written; its error ends it.
///
/// # Errors
/// Those of the stream, and of the disk; the target is as it was then.
pub async fn write_arrow(
    path: &Path,
    schema: &SchemaRef,
    batch_bytes_max: usize,
    mut data: SendableRecordBatchStream,
    progress: impl Fn(u64) -> Result<()>,
) -> Result<WriterSummary> {
    let writer = ArrowWriter::create(path, schema, WriterOptions::default()).map_err(external)?;
    let mut writer = StreamedWriter::new(writer, batch_bytes_max);
    let mut next = data.next().await;
    while let Some(batch) = next {
        let batch = batch?;
        progress(batch.num_rows() as u64)?;
        let written = blocking(move || writer.write(&batch).map(|()| writer));
        // The next rows are made while these are written.
        let (written, more) = tokio::join!(written, data.next());
        (writer, next) = (written?, more);
    }
    blocking(move || writer.into_inner().finish().map_err(external)).await
}

fn recoded(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let columns = batch.columns().iter().zip(schema.fields());
    // A value that does not fit must not become NULL.
    let fit = CastOptions { safe: false, ..CastOptions::default() };
    let columns = columns.map(|(column, field)| {
        cast_with_options(column, field.data_type(), &fit).map_err(|error| {
            DataFusionError::from(error).context(format!("column {}", field.name()))
        })
    });
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let columns = columns.collect::<Result<Vec<_>>>()?;
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?)
}

/// COPY .. TO 'x.arrow'.
#[derive(Debug)]
pub struct ArrowSink {
    path: PathBuf,
    given: SchemaRef,
    written: SchemaRef,
}

impl ArrowSink {
    /// Of rows of such columns.
    pub fn new(path: PathBuf, schema: SchemaRef) -> Self {
        Self { path, written: streamed_schema(&schema, &[]), given: schema }
    }

    /// Writes them as columns that may be NULL, whether or not theirs may.
    pub fn nullable(self) -> Self {
        Self { written: nullable(&self.written), ..self }
    }
}

impl DisplayAs for ArrowSink {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "HeadraceArrow({})", self.path.display())
    }
}

#[async_trait]
impl DataSink for ArrowSink {
    fn schema(&self) -> &SchemaRef {
        &self.given
    }

    async fn write_all(
        &self,
        data: SendableRecordBatchStream,
        context: &Arc<TaskContext>,
    ) -> Result<u64> {
        let bytes_max = batch_bytes_max_of(context);
        Ok(write_arrow(&self.path, &self.written, bytes_max, data, |_| Ok(())).await?.rows)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::Cursor;

    use datafusion::arrow::array::{ArrayRef, StringArray};
    use datafusion::arrow::ipc::reader::FileReader;

    use super::*;

    #[test]
    fn a_batch_ends_with_its_rows_or_its_bytes() {
        let text: ArrayRef = Arc::new(StringArray::from(vec!["x".repeat(100); 1000]));
        let batch = RecordBatch::try_from_iter([("t", text)]).unwrap();
        let sizes = |pending_bytes_max: usize| -> Vec<usize> {
            let options = WriterOptions { rows_per_batch: 100, ..WriterOptions::default() };
            let writer = ArrowWriter::over(Vec::new(), "t", &batch.schema(), options).unwrap();
            let mut writer = StreamedWriter::new(writer, pending_bytes_max);
            for begin in (0..1000).step_by(40) {
                // A slice, whose buffers are those of all rows.
                writer.write(&batch.slice(begin, 40)).unwrap();
            }
            let (file, _) = writer.into_inner().end().unwrap();
            let reader = FileReader::try_new(Cursor::new(file), None).unwrap();
            reader.map(|batch| batch.unwrap().num_rows()).collect()
        };
        assert_eq!(sizes(11_000), [100; 10], "104 bytes a row: 100 rows fit");
        assert_eq!(sizes(6_000)[..3], [80, 80, 80]);
    }

    #[test]
    fn what_a_killed_process_left_is_in_nobodys_way() {
        let dir = tempfile::tempdir().unwrap();
        for number in 0..100 {
            let name = format!(".headrace-{}-{number}.partial", std::process::id());
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        Staging::local(&dir.path().join("t.csv"), true).unwrap().commit().unwrap();
        assert!(dir.path().join("t.csv").is_file());
    }

    #[test]
    fn a_folder_of_no_rows_is_a_folder() {
        let dir = tempfile::tempdir().unwrap();
        Staging::local(&dir.path().join("t"), false).unwrap().commit().unwrap();
        assert!(dir.path().join("t").is_dir());
    }
}
