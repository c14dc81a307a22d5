//! Rows as Arrow files in folders that are named by the values of some columns, `year=2024/month=1/part.arrow`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{Array, ArrayRef, RecordBatch};
use datafusion::arrow::compute::{cast, partition};
use datafusion::arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::sink::DataSink;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType};
use futures::TryStreamExt;
use headrace_format::arrow::{ArrowTable, ArrowWriter, WriterOptions, WriterSummary};

use crate::catalog::{PARTITION_DEPTH_MAX, partition_name, refused};
use crate::copy::{StreamedWriter, batch_bytes_max_of, streamed_schema};
use crate::error::{blocking, external};

/// Of each folder, the one file.
const FILE_NAME: &str = "part.arrow";

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FoldersSummary {
    /// Rows of all files.
    pub rows: u64,
    /// Files.
    pub files: u64,
    /// Record batches.
    pub batches: u64,
    /// Bytes.
    pub bytes: u64,
}

impl FoldersSummary {
    fn add(&mut self, file: WriterSummary) {
        self.files += 1;
        self.rows += file.rows;
        self.batches += file.batches;
        self.bytes += file.bytes;
    }
}

/// Whether columns can be named by folders; the reason if not.
///
/// # Errors
/// What is wrong with one of them, in words.
pub fn check_keys(schema: &Schema, keys: &[String]) -> Result<(), String> {
    let names = || schema.fields().iter().map(|field| field.name().as_str()).collect::<Vec<_>>();
    for (at, key) in keys.iter().enumerate() {
        let Ok(field) = schema.field_with_name(key) else {
            return Err(format!("{key}: no such column\nhint: columns: {}", names().join(", ")));
        };
        if keys[..at].contains(key) {
            return Err(format!("{key}: it is named twice"));
        }
        let value = match field.data_type() {
            DataType::Dictionary(_, values) => values.as_ref(),
            other => other,
        };
        let is_text = matches!(value, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
        if !(is_text || value.is_integer() || matches!(value, DataType::Boolean | DataType::Date32))
        {
            return Err(format!(
                "{key}: its type is {value}\n\
                 hint: folders are named by whole numbers, texts, dates and truth values"
            ));
        }
    }
    if keys.len() > PARTITION_DEPTH_MAX {
        return Err(format!("{} columns, of {PARTITION_DEPTH_MAX} at most", keys.len()));
    }
    match schema.fields().len() == keys.len() {
        true => Err("no column is left for the files\nhint: name fewer columns".into()),
        false => Ok(()),
    }
}

/// Writes the rows of an Arrow file that is sorted by `keys` below a new folder: one file after the other, so that
/// one is open at a time, in record batches of so many bytes at most. `progress` is told of rows before they are written;
/// its error ends it.
///
/// # Errors
/// A file that cannot be read or written. What was written until then stays.
pub fn write_folders(
    sorted: &Path,
    keys: &[String],
    folder: &Path,
    batch_bytes_max: usize,
    progress: impl Fn(u64) -> Result<()>,
) -> Result<FoldersSummary> {
    let table = ArrowTable::open(&[sorted.to_path_buf()]).map_err(external)?;
    let mut folders = Folders::new(&table.narrow_schema(), keys, folder, batch_bytes_max)?;
    for (file, source) in table.files().iter().enumerate() {
        for batch in 0..source.batches() {
            let batch = table.read_batch(file, batch, None).map_err(external)?;
            progress(batch.num_rows() as u64)?;
            folders.write(&batch)?;
            drop(batch);
            source.release_mapped();
        }
    }
    table.check_unchanged().map_err(external)?;
    folders.finish()
}

/// The files, the last of which is written.
struct Folders {
    keys: Vec<String>,
    /// Of the rows that come.
    key_columns: Vec<usize>,
    columns: Vec<usize>,
    schema: SchemaRef,
    folder: PathBuf,
    batch_bytes_max: usize,
    open: Option<(PathBuf, Box<StreamedWriter<Output>>)>,
    summary: FoldersSummary,
}

type Output = std::io::BufWriter<headrace_io::write::Appended>;

impl Folders {
    fn new(
        schema: &Schema,
        keys: &[String],
        folder: &Path,
        batch_bytes_max: usize,
    ) -> Result<Self> {
        let key_columns = keys.iter().map(|key| schema.index_of(key));
        let key_columns: Vec<usize> = key_columns.collect::<Result<_, _>>()?;
        let columns = (0..schema.fields().len()).filter(|column| !key_columns.contains(column));
        let columns: Vec<usize> = columns.collect();
        let schema = schema.project(&columns)?.into();
        let summary = FoldersSummary::default();
        let (keys, folder) = (keys.to_vec(), folder.to_path_buf());
        Ok(Self {
            keys,
            key_columns,
            columns,
            schema,
            folder,
            batch_bytes_max,
            open: None,
            summary,
        })
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        if self.keys.is_empty() {
            return self.writer(self.folder.clone())?.write(batch);
        }
        let keys = self.key_columns.iter().map(|&column| plain(batch.column(column)));
        let keys: Vec<ArrayRef> = keys.collect::<Result<_>>()?;
        let rows = batch.project(&self.columns)?;
        for range in partition(&keys)?.ranges() {
            let path = self.path(&keys, range.start)?;
            let rows = rows.slice(range.start, range.len());
            self.writer(path)?.write(&rows)?;
        }
        Ok(())
    }

    /// The folder of a row.
    fn path(&self, keys: &[ArrayRef], row: usize) -> Result<PathBuf> {
        let mut path = self.folder.clone();
        let options = FormatOptions::default();
        for (key, values) in self.keys.iter().zip(keys) {
            let text = match values.is_null(row) {
                true => None,
                false => {
                    Some(ArrayFormatter::try_new(values, &options)?.value(row).try_to_string()?)
                }
            };
            path.push(partition_name(key, text.as_deref()));
        }
        Ok(path)
    }

    /// The writer of a folder's file, which is begun if it is another than that of the rows before.
    fn writer(&mut self, path: PathBuf) -> Result<&mut StreamedWriter<Output>> {
        if self.open.as_ref().is_none_or(|(open, _)| *open != path) {
            self.close()?;
            let remedy = "choose columns of shorter values, or another place";
            std::fs::create_dir_all(&path).map_err(|e| refused(&path, e, remedy))?;
            let (file, options) = (path.join(FILE_NAME), WriterOptions::default());
            if file.exists() {
                let cause = "it was written already: two values of a column would name one folder";
                return Err(refused(&file, cause, "give one of them another text"));
            }
            let writer = ArrowWriter::create(file, &self.schema, options);
            let writer = StreamedWriter::new(writer.map_err(external)?, self.batch_bytes_max);
            self.open = Some((path, Box::new(writer)));
        }
        let missing = || DataFusionError::Internal("a file that was just begun".into());
        self.open.as_mut().map(|(_, writer)| writer.as_mut()).ok_or_else(missing)
    }

    fn close(&mut self) -> Result<()> {
        if let Some((_, writer)) = self.open.take() {
            self.summary.add(writer.into_inner().finish().map_err(external)?);
        }
        Ok(())
    }

    fn finish(mut self) -> Result<FoldersSummary> {
        self.close()?;
        Ok(self.summary)
    }
}

/// COPY .. TO 'folder/' of Arrow files: the rows come sorted by the keys, if there are any.
#[derive(Debug)]
pub struct FoldersSink {
    folder: PathBuf,
    keys: Vec<String>,
    given: SchemaRef,
}

impl FoldersSink {
    /// Of rows of such columns.
    pub fn new(folder: PathBuf, keys: Vec<String>, schema: SchemaRef) -> Self {
        Self { folder, keys, given: schema }
    }
}

impl DisplayAs for FoldersSink {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "HeadraceArrow({}/{})", self.folder.display(), self.keys.join("/"))
    }
}

#[async_trait]
impl DataSink for FoldersSink {
    fn schema(&self) -> &SchemaRef {
        &self.given
    }

    async fn write_all(
        &self,
        mut data: SendableRecordBatchStream,
        context: &Arc<TaskContext>,
    ) -> Result<u64> {
        let schema = streamed_schema(&self.given, &[]);
        let bytes_max = batch_bytes_max_of(context);
        let mut folders = Folders::new(&schema, &self.keys, &self.folder, bytes_max)?;
        if self.keys.is_empty() {
            // One file, also of no rows.
            folders.writer(self.folder.clone())?;
        }
        while let Some(batch) = data.try_next().await? {
            let written = blocking(move || folders.write(&batch).map(|()| folders));
            folders = written.await?;
        }
        Ok(blocking(move || folders.finish()).await?.rows)
    }
}

/// Texts in place of codes of them: two codes may stand for one text.
fn plain(values: &ArrayRef) -> Result<ArrayRef> {
    match values.data_type() {
        DataType::Dictionary(_, plain) => Ok(cast(values, plain)?),
        _ => Ok(ArrayRef::clone(values)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use datafusion::arrow::array::{Int64Array, StringArray};

    use super::*;

    /// Every run of equal keys is one file, wherever record batches end.
    #[test]
    fn a_file_goes_on_where_a_batch_ends() {
        let dir = tempfile::tempdir().unwrap();
        let sorted = dir.path().join("sorted.arrow");
        let keys: ArrayRef = Arc::new(Int64Array::from_iter_values((0..100).map(|i| i / 40)));
        let values: ArrayRef =
            Arc::new(StringArray::from_iter_values((0..100).map(|i| i.to_string())));
        let rows = RecordBatch::try_from_iter([("k", keys), ("v", values)]).unwrap();
        let options = WriterOptions { rows_per_batch: 7, ..WriterOptions::default() };
        let mut writer = ArrowWriter::create(&sorted, &rows.schema(), options).unwrap();
        writer.write(&rows).unwrap();
        writer.finish().unwrap();
        let folder = dir.path().join("t");
        let written =
            write_folders(&sorted, &["k".to_string()], &folder, 1 << 20, |_| Ok(())).unwrap();
        assert_eq!((written.files, written.rows, written.batches), (3, 100, 3));
        let rows = |k: i64| {
            let table = ArrowTable::open(&[folder.join(format!("k={k}/part.arrow"))]).unwrap();
            (table.rows(), table.schema().fields().len())
        };
        assert_eq!([rows(0), rows(1), rows(2)], [(40, 1), (40, 1), (20, 1)]);
    }
}
