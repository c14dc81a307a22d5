//! COPY: what it writes is whole or not there, and what lay there stays until then.
//!
//! DataFusion's writers finish their files even if the query fails. So they write into a hidden folder beside the
//! target, and what is in it takes the target's place when the query is done. Arrow files are written by our own
//! writer, so that they stream.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::sink::DataSink;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::dml::CopyTo;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType};
use futures::StreamExt;
use headrace_format::arrow::{ArrowWriter, WriterOptions, WriterSummary};
use tokio::task::spawn_blocking;

use crate::catalog::refused;
use crate::error::external;

/// Rows of more bytes than this make a record batch, however few they are.
const BATCH_BYTES_MAX: usize = 256 << 20;

/// Where a COPY writes to; `None`: nowhere on this machine.
pub fn local_target(copy: &CopyTo) -> Option<PathBuf> {
    match copy.output_url.split_once("://") {
        Some(("file", path)) => Some(PathBuf::from(path)),
        Some(_) => None,
        None => Some(PathBuf::from(&copy.output_url)),
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

/// A hidden folder beside the target; without a commit it is removed.
#[derive(Debug)]
pub struct Staging {
    folder: PathBuf,
    /// What will take the target's place: a file in the folder, or a folder in it.
    content: PathBuf,
    target: PathBuf,
}

impl Staging {
    /// Begins to write what will be `target`.
    ///
    /// # Errors
    /// A target that cannot be a file or a new folder.
    pub fn new(target: &Path, is_one_file: bool) -> Result<Staging> {
        let fail = |cause: &dyn fmt::Display, remedy| refused(target, cause, remedy);
        let name_another = "name another file, or a folder";
        // What is written to through a link is what it leads to.
        let target = match std::fs::canonicalize(target) {
            Ok(target) => target,
            Err(e) if e.kind() == io::ErrorKind::NotFound && !target.is_symlink() => {
                std::path::absolute(target).map_err(|e| fail(&e, name_another))?
            }
            Err(e) => return Err(fail(&e, name_another)),
        };
        if let Ok(metadata) = std::fs::metadata(&target) {
            if is_one_file && !metadata.is_file() {
                return Err(fail(&"it is no regular file", name_another));
            }
            let is_empty = || std::fs::read_dir(&target).is_ok_and(|mut all| all.next().is_none());
            if !is_one_file && !is_empty() {
                return Err(fail(&"it is there, and no empty folder", "name a new folder"));
            }
        }
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!(".headrace-{}-{number}.partial", std::process::id());
        let folder = target.parent().unwrap_or(Path::new("/")).join(name);
        std::fs::create_dir(&folder).map_err(|e| {
            fail(
                &format!("cannot write beside it: {e}"),
                "choose a folder that is there and that you may write to",
            )
        })?;
        let extension = target.extension().unwrap_or_default().to_string_lossy();
        let content = match is_one_file {
            true => folder.join(format!("data.{extension}")),
            false => folder.join("data"),
        };
        Ok(Staging { folder, content, target })
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
        let is_folder = self.content.extension().is_none();
        format!("file://{path}{}", if is_folder { "/" } else { "" })
    }

    /// Puts what was written in its place.
    ///
    /// # Errors
    /// If that fails, what lay there stays.
    pub fn commit(&self) -> Result<()> {
        let put = || -> io::Result<()> {
            if self.content.is_dir() {
                return std::fs::rename(&self.content, &self.target);
            }
            // A query of no rows may have written none.
            let file = File::options().append(true).create(true).open(&self.content)?;
            if let Ok(old) = std::fs::metadata(&self.target) {
                file.set_permissions(old.permissions())?;
            }
            file.sync_all()?;
            std::fs::rename(&self.content, &self.target)
        };
        put().map_err(|e| refused(&self.target, e, "see whether it may be replaced"))?;
        if let Some(folder) = self.target.parent() {
            // The name is there; a file system that cannot sync folders keeps it in its own way.
            let _ = File::open(folder).and_then(|folder| folder.sync_all());
        }
        Ok(())
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
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
            other => other.clone(),
        };
        Field::new(field.name(), data_type, field.is_nullable())
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// Writes batches of any size as an Arrow file that streams.
///
/// `progress` is told of rows before they are written; its error ends it.
///
/// # Errors
/// Those of the stream, and of the disk; the target is as it was then.
pub async fn write_arrow(
    path: &Path,
    schema: &SchemaRef,
    mut data: SendableRecordBatchStream,
    progress: impl Fn(u64) -> Result<()>,
) -> Result<WriterSummary> {
    let mut writer =
        ArrowWriter::create(path, schema, WriterOptions::default()).map_err(external)?;
    let mut pending_bytes = 0;
    while let Some(batch) = data.next().await {
        let (batch, schema) = (batch?, Arc::clone(schema));
        progress(batch.num_rows() as u64)?;
        pending_bytes += batch.get_array_memory_size();
        let is_full = pending_bytes > BATCH_BYTES_MAX;
        if is_full {
            pending_bytes = 0;
        }
        let write = move || -> Result<ArrowWriter> {
            writer.write(&recoded(&batch, &schema)?).map_err(external)?;
            if is_full {
                writer.end_batch().map_err(external)?;
            }
            Ok(writer)
        };
        writer = blocking(write).await?;
    }
    blocking(move || writer.finish().map_err(external)).await
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    spawn_blocking(work).await.map_err(|e| DataFusionError::ExecutionJoin(Box::new(e)))?
}

fn recoded(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let columns = batch.columns().iter().zip(schema.fields());
    let columns = columns.map(|(column, field)| Ok(cast(column, field.data_type())?));
    let options =
        datafusion::arrow::array::RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
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
        _context: &Arc<TaskContext>,
    ) -> Result<u64> {
        Ok(write_arrow(&self.path, &self.written, data, |_| Ok(())).await?.rows)
    }
}
