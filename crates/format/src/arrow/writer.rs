//! Writes Arrow IPC files that read fast: large record batches, aligned buffers, one dictionary
//! a column, statistics of every batch.

use std::collections::{HashSet, VecDeque};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type};
use arrow_array::{
    Array, ArrayRef, FixedSizeListArray, Float32Array, Float64Array, RecordBatch,
    RecordBatchOptions,
};
use arrow_buffer::Buffer;
use arrow_cast::{CastOptions, cast_with_options};
use arrow_ipc::convert::IpcSchemaEncoder;
use arrow_ipc::writer::{DictionaryHandling, DictionaryTracker, IpcWriteOptions, StreamEncoder};
use arrow_ipc::{Block, FooterBuilder, MessageHeader, MetadataVersion};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use flatbuffers::FlatBufferBuilder;
use headrace_io::write::Appended;

use super::growing::GrowingDictionary;
use super::message::MAGIC;
use super::packed::{Packed, value_type};
use super::scan::{MessageScanner, ScannedMessage};
use super::statistics::{self, Extremes, MAX_VALUES_KEY, MIN_VALUES_KEY};
use super::types::{table_type, without_table_type};
use crate::error::{FormatError, Result};

/// Alignment of every buffer within the file, in bytes: a cache line, which suffices for any vector
/// load of a mapped file.
const BUFFER_ALIGN_BYTES: usize = 64;

/// How a file is written.
#[derive(Clone, Debug)]
pub struct WriterOptions {
    /// Rows of every record batch but the last. 2^20 rows are 4 MiB of a 4-byte column: large
    /// enough that reading one column of one batch is a long sequential read.
    pub rows_per_batch: usize,
    /// Whether the minimum and maximum of every batch are stored, see
    /// [`has_statistics`](super::has_statistics).
    pub statistics: bool,
}

impl Default for WriterOptions {
    fn default() -> Self {
        Self { rows_per_batch: 1 << 20, statistics: true }
    }
}

/// The totals of a writer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriterSummary {
    /// Rows.
    pub rows: u64,
    /// Record batches.
    pub batches: u64,
    /// Size of the file in bytes.
    pub bytes: u64,
}

/// Writes one Arrow IPC file.
///
/// Rows go to a hidden temporary file beside the target ([`Appended`]), which takes the target's name and
/// permissions when [`finish`](ArrowWriter::finish) has made it durable: the target is complete or
/// unchanged. Dropping an unfinished writer removes the temporary file.
///
/// Batches may have any size and are cut to [`WriterOptions::rows_per_batch`]. A dictionary column
/// may have a different dictionary in each batch: text and binary dictionaries are unified and
/// written before the first record batch; later values follow as a delta dictionary before the
/// batch that needs them.
///
/// [`over`](ArrowWriter::over) writes the same bytes to any writer.
pub struct ArrowWriter<W = BufWriter<Appended>> {
    path: PathBuf,
    /// `None` once finished or failed.
    file: Option<W>,
    offset: u64,
    schema: SchemaRef,
    /// Its columns until a batch is written; packed columns are packed after their statistics are
    /// computed.
    held: SchemaRef,
    options: WriterOptions,
    /// `None` once finished.
    encoder: Option<StreamEncoder>,
    messages: MessageScanner,
    /// Rows that do not fill a batch yet; dictionary columns as codes of `dictionaries`, packed ones unpacked.
    pending: VecDeque<Vec<ArrayRef>>,
    pending_rows: usize,
    pending_lens: VecDeque<usize>,
    dictionaries: Vec<Option<GrowingDictionary>>,
    statistics: Vec<Option<Vec<Extremes>>>,
    dictionary_ids: HashSet<i64>,
    dictionary_blocks: Vec<Block>,
    record_blocks: Vec<Block>,
    rows: u64,
    /// Whether any column is narrower than the table's.
    narrows: bool,
}

impl ArrowWriter {
    /// Starts a file.
    ///
    /// Statistics of another file in the schema's field metadata are dropped.
    ///
    /// # Errors
    /// [`FormatError::Column`] for a column whose type cannot be written, [`FormatError::Io`] if no
    /// file can be created there, or the path is not a file.
    pub fn create(
        path: impl AsRef<Path>,
        schema: &Schema,
        options: WriterOptions,
    ) -> Result<ArrowWriter> {
        let file = BufWriter::with_capacity(64 << 10, Appended::create(&path)?);
        Self::over(file, path, schema, options)
    }

    /// Writes the buffered rows and the footer, makes the file durable and gives it its name.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn finish(self) -> Result<WriterSummary> {
        let path = self.path.clone();
        let (file, summary) = self.end()?;
        let file = file.into_inner().map_err(|e| write_error(path, e.into_error()))?;
        file.commit()?;
        Ok(summary)
    }
}

impl<W: Write> ArrowWriter<W> {
    /// Starts a file in a sequential writer; `path` is its name in errors.
    ///
    /// # Errors
    /// [`FormatError::Column`] for a column whose type cannot be written.
    pub fn over(
        file: W,
        path: impl AsRef<Path>,
        schema: &Schema,
        options: WriterOptions,
    ) -> Result<Self> {
        if options.rows_per_batch == 0 {
            return Err(FormatError::Argument("record batches of 0 rows".into()));
        }
        let schema = without_statistics(schema);
        schema.fields().iter().try_for_each(|field| check_type(field.name(), field.data_type()))?;
        let ipc = IpcWriteOptions::try_new(BUFFER_ALIGN_BYTES, false, MetadataVersion::V5)
            .map_err(|e| FormatError::arrow("choosing write options", e))?
            .with_dictionary_handling(DictionaryHandling::Delta);
        let held = Schema::new(schema.fields().iter().map(|f| held_field(f)).collect::<Vec<_>>());
        let encoder = StreamEncoder::try_new_with_options(&schema, ipc)
            .map_err(|e| FormatError::arrow("starting the file", e))?;
        let mut writer = ArrowWriter {
            path: path.as_ref().to_path_buf(),
            file: Some(file),
            offset: 0,
            encoder: Some(encoder),
            messages: MessageScanner::default(),
            pending: VecDeque::new(),
            pending_rows: 0,
            pending_lens: VecDeque::new(),
            dictionaries: schema.fields().iter().map(|f| growing_dictionary(f)).collect(),
            statistics: held
                .fields()
                .iter()
                .map(|f| {
                    let keeps = options.statistics && statistics::has_statistics(f.data_type());
                    keeps.then(Vec::new)
                })
                .collect(),
            dictionary_ids: HashSet::new(),
            dictionary_blocks: Vec::new(),
            record_blocks: Vec::new(),
            rows: 0,
            narrows: schema.fields().iter().any(|f| table_type(f) != *f.data_type()),
            schema: Arc::new(schema),
            held: Arc::new(held),
            options,
        };
        let mut head = [0; BUFFER_ALIGN_BYTES];
        head[..MAGIC.len()].copy_from_slice(MAGIC);
        writer.write_bytes(&head)?;
        Ok(writer)
    }

    /// The schema of the file, without statistics.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The columns as [`write`](Self::write) takes them: packed ones are still unpacked.
    pub fn held_schema(&self) -> &SchemaRef {
        &self.held
    }

    /// Rows so far, including the buffered ones.
    pub fn rows(&self) -> u64 {
        self.rows + self.pending_rows as u64
    }

    /// Bytes written so far.
    pub fn bytes(&self) -> u64 {
        self.offset
    }

    /// Adds rows. Columns match by position; names of the batch do not matter. With a schema of
    /// [`narrow_schema`](super::narrow_schema) or [`packed_schema`](super::packed_schema), columns may have their
    /// original types.
    ///
    /// # Errors
    /// [`FormatError::Column`] if a column has another type than the file's or a value that does not fit it, has NULLs
    /// where the schema denies them, or has more distinct dictionary values than its codes can represent;
    /// [`FormatError::Write`] if the disk refuses. The writer is unusable after an error; drop it.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        match self.narrows {
            true => self.write_as_it_is(&self.narrowed(batch)?),
            false => self.write_as_it_is(batch),
        }
    }

    /// A batch with the file's narrow columns.
    fn narrowed(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let narrow = |(column, field): (&ArrayRef, &Arc<Field>)| {
            let (own, wanted) = (column.data_type(), field.data_type());
            if own == wanted || table_type(field) != *own {
                return Ok(Arc::clone(column));
            }
            let options = CastOptions { safe: false, ..CastOptions::default() };
            cast_with_options(column, wanted, &options)
                .map_err(|e| FormatError::column(field.name(), e.to_string()))
        };
        let columns: Vec<ArrayRef> =
            batch.columns().iter().zip(self.held.fields()).map(narrow).collect::<Result<_>>()?;
        let fields = batch.schema_ref().fields().iter().zip(&columns);
        let fields: Vec<Field> = fields
            .map(|(field, column)| {
                field.as_ref().clone().with_data_type(column.data_type().clone())
            })
            .collect();
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)
            .map_err(|e| FormatError::arrow("narrowing columns", e))
    }

    fn write_as_it_is(&mut self, batch: &RecordBatch) -> Result<()> {
        self.check_batch(batch)?;
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let columns = batch
            .columns()
            .iter()
            .zip(&mut self.dictionaries)
            .map(|(column, dictionary)| match dictionary {
                Some(dictionary) => dictionary.translate(column),
                None => Ok(without_hidden_nulls(column)),
            })
            .collect::<Result<Vec<_>>>()?;
        self.pending.push_back(columns);
        self.pending_lens.push_back(batch.num_rows());
        self.pending_rows += batch.num_rows();
        while self.pending_rows >= self.options.rows_per_batch {
            self.flush_rows(self.options.rows_per_batch)?;
        }
        Ok(())
    }

    /// Rows that do not fill a record batch yet.
    pub fn pending_rows(&self) -> usize {
        self.pending_rows
    }

    /// Ends the record batch here, for rows so large that fewer of them suffice.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn end_batch(&mut self) -> Result<()> {
        match self.pending_rows {
            0 => Ok(()),
            rows => self.flush_rows(rows),
        }
    }

    /// The destination; `None` after an error.
    pub fn get_mut(&mut self) -> Option<&mut W> {
        self.file.as_mut()
    }

    /// Writes the buffered rows and the footer.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn end(mut self) -> Result<(W, WriterSummary)> {
        self.end_batch()?;
        self.write_tail()?;
        let summary = WriterSummary {
            rows: self.rows,
            batches: self.record_blocks.len() as u64,
            bytes: self.offset,
        };
        self.file.take().map(|file| (file, summary)).ok_or_else(failed_before)
    }

    fn check_batch(&self, batch: &RecordBatch) -> Result<()> {
        if batch.num_columns() != self.schema.fields().len() {
            return Err(FormatError::Argument(format!(
                "a batch of {} columns for a file of {}",
                batch.num_columns(),
                self.schema.fields().len()
            )));
        }
        for (column, field) in batch.columns().iter().zip(self.held.fields()) {
            if column.data_type() != field.data_type() {
                let cause = format!("{} given, {} expected", column.data_type(), field.data_type());
                return Err(FormatError::column(field.name(), cause));
            }
            // Logical: a NULL in a dictionary counts as well as a NULL code.
            if !field.is_nullable() && column.logical_null_count() > 0 {
                let cause = "NULL given, but the column is declared NOT NULL";
                return Err(FormatError::column(field.name(), cause));
            }
        }
        Ok(())
    }

    /// Writes the first `rows` buffered rows as one record batch.
    fn flush_rows(&mut self, rows: usize) -> Result<()> {
        let columns = self.take_rows(rows)?;
        for (column, extremes) in columns.iter().zip(&mut self.statistics) {
            if let Some(extremes) = extremes {
                extremes.push(statistics::extremes(column));
            }
        }
        let columns = columns
            .iter()
            .zip(&mut self.dictionaries)
            .zip(self.schema.fields())
            .map(|((column, dictionary), field)| match (dictionary, Packed::of(field)) {
                (Some(dictionary), _) => dictionary.attach(column),
                (None, Some(packed)) => {
                    packed.pack(column).map_err(|cause| FormatError::column(field.name(), cause))
                }
                (None, None) => Ok(column.clone()),
            })
            .collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch = RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)
            .map_err(|e| FormatError::arrow("assembling a record batch", e))?;
        let Some(encoder) = &mut self.encoder else { return Err(failed_before()) };
        let buffers =
            encoder.encode(&batch).map_err(|e| FormatError::arrow("encoding a record batch", e))?;
        self.write_messages(&buffers)?;
        self.rows += rows as u64;
        Ok(())
    }

    /// Removes the first `rows` buffered rows and joins them, column by column.
    fn take_rows(&mut self, rows: usize) -> Result<Vec<ArrayRef>> {
        let mut parts: Vec<Vec<ArrayRef>> = vec![Vec::new(); self.schema.fields().len()];
        let mut missing = rows;
        while missing > 0 {
            let (Some(columns), Some(len)) =
                (self.pending.pop_front(), self.pending_lens.pop_front())
            else {
                return Err(FormatError::Argument("more rows asked for than buffered".into()));
            };
            let taken = len.min(missing);
            for (part, column) in parts.iter_mut().zip(&columns) {
                part.push(if taken == len { column.clone() } else { column.slice(0, taken) });
            }
            if taken < len {
                let rest = columns.iter().map(|c| c.slice(taken, len - taken)).collect();
                self.pending.push_front(rest);
                self.pending_lens.push_front(len - taken);
            }
            missing -= taken;
        }
        self.pending_rows -= rows;
        parts.iter().zip(self.schema.fields()).map(|(part, field)| join(part, field)).collect()
    }

    fn write_tail(&mut self) -> Result<()> {
        let Some(encoder) = self.encoder.take() else { return Err(failed_before()) };
        let buffers = encoder.finish().map_err(|e| FormatError::arrow("ending the stream", e))?;
        self.write_messages(&buffers)?;
        let footer = self.footer()?;
        let footer_bytes = i32::try_from(footer.len()).map_err(|_| {
            FormatError::Argument("the footer is larger than 2 GiB; use larger batches".into())
        })?;
        self.write_bytes(&footer)?;
        self.write_bytes(&footer_bytes.to_le_bytes())?;
        self.write_bytes(MAGIC)
    }

    /// The footer's schema differs from that at the start of the file by the statistics.
    fn footer(&self) -> Result<Vec<u8>> {
        let schema = self.schema_with_statistics();
        let mut builder = FlatBufferBuilder::new();
        let dictionaries = builder.create_vector(&self.dictionary_blocks);
        let records = builder.create_vector(&self.record_blocks);
        // A fresh tracker numbers the dictionaries as the first one did: in schema order.
        let mut tracker = DictionaryTracker::new(true);
        let schema = IpcSchemaEncoder::new()
            .with_dictionary_tracker(&mut tracker)
            .schema_to_fb_offset(&mut builder, &schema);
        let mut footer = FooterBuilder::new(&mut builder);
        footer.add_version(MetadataVersion::V5);
        footer.add_schema(schema);
        footer.add_dictionaries(dictionaries);
        footer.add_recordBatches(records);
        let root = footer.finish();
        builder.finish(root, None);
        Ok(builder.finished_data().to_vec())
    }

    fn schema_with_statistics(&self) -> Schema {
        let with = |field: &Arc<Field>, extremes: &Option<Vec<Extremes>>| {
            let mut field = field.as_ref().clone();
            if let Some(extremes) = extremes {
                let metadata = field.metadata_mut();
                metadata.insert(MIN_VALUES_KEY.into(), statistics::to_text(extremes, |p| p.0));
                metadata.insert(MAX_VALUES_KEY.into(), statistics::to_text(extremes, |p| p.1));
            }
            field
        };
        let fields: Vec<Field> =
            self.schema.fields().iter().zip(&self.statistics).map(|(f, e)| with(f, e)).collect();
        Schema::new_with_metadata(fields, self.schema.metadata().clone())
    }

    /// Writes encoded messages and records the positions of those that the footer lists.
    fn write_messages(&mut self, buffers: &[Buffer]) -> Result<()> {
        for buffer in buffers {
            let found = self
                .messages
                .scan(buffer, self.offset)
                .map_err(|cause| FormatError::Argument(format!("encoded messages: {cause}")))?;
            for message in found {
                match message.header {
                    MessageHeader::RecordBatch => self.record_blocks.push(message.block),
                    MessageHeader::DictionaryBatch => {
                        self.note_dictionary(&message)?;
                        self.dictionary_blocks.push(message.block);
                    }
                    _ => {}
                }
            }
            self.write_bytes(buffer)?;
        }
        Ok(())
    }

    /// A file has one dictionary per column, which may only grow. Top-level columns ensure this; a
    /// replaced dictionary inside a nested column is an error.
    fn note_dictionary(&mut self, message: &ScannedMessage) -> Result<()> {
        let Some((id, is_delta)) = message.dictionary else { return Ok(()) };
        if self.dictionary_ids.insert(id) || is_delta {
            return Ok(());
        }
        Err(FormatError::Argument(format!(
            "batches bring different dictionaries inside a nested column (dictionary {id}); give \
             every batch the same one, or plain values"
        )))
    }

    fn write_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        let file = self.file.as_mut().ok_or_else(failed_before)?;
        if let Err(cause) = file.write_all(bytes) {
            self.file = None;
            return Err(write_error(self.path.clone(), cause));
        }
        self.offset += bytes.len() as u64;
        Ok(())
    }
}

fn write_error(path: PathBuf, cause: io::Error) -> FormatError {
    FormatError::Write { path, action: "write the file", cause }
}

fn failed_before() -> FormatError {
    FormatError::Argument("the writer has failed before".into())
}

fn join(parts: &[ArrayRef], field: &Field) -> Result<ArrayRef> {
    if let [single] = parts {
        return Ok(single.clone());
    }
    let parts: Vec<&dyn Array> = parts.iter().map(AsRef::as_ref).collect();
    arrow_select::concat::concat(&parts)
        .map_err(|e| FormatError::arrow(format!("joining rows of column {}", field.name()), e))
}

/// A packed column unpacked, any other unchanged.
fn held_field(field: &Field) -> Field {
    let is = value_type(field);
    match is == *field.data_type() {
        true => field.clone(),
        false => without_table_type(field.clone().with_data_type(is)),
    }
}

fn growing_dictionary(field: &Field) -> Option<GrowingDictionary> {
    match field.data_type() {
        DataType::Dictionary(key, value) => Some(GrowingDictionary::new(field.name(), key, value)),
        _ => None,
    }
}

fn without_statistics(schema: &Schema) -> Schema {
    let strip = |field: &Arc<Field>| {
        let mut field = field.as_ref().clone();
        field.metadata_mut().remove(MIN_VALUES_KEY);
        field.metadata_mut().remove(MAX_VALUES_KEY);
        field
    };
    let fields: Vec<Field> = schema.fields().iter().map(strip).collect();
    Schema::new_with_metadata(fields, schema.metadata().clone())
}

/// Error for types that an IPC schema cannot express.
fn check_type(column: &str, data_type: &DataType) -> Result<()> {
    match data_type {
        DataType::Dictionary(_, value) if matches!(**value, DataType::Dictionary(_, _)) => {
            Err(FormatError::column(column, "a dictionary of dictionaries cannot be written"))
        }
        DataType::Dictionary(_, value) => check_type(column, value),
        DataType::List(f)
        | DataType::LargeList(f)
        | DataType::ListView(f)
        | DataType::LargeListView(f)
        | DataType::FixedSizeList(f, _)
        | DataType::Map(f, _)
        | DataType::RunEndEncoded(_, f) => check_type(column, f.data_type()),
        DataType::Struct(fields) => {
            fields.iter().try_for_each(|f| check_type(column, f.data_type()))
        }
        DataType::Union(fields, _) => {
            fields.iter().try_for_each(|(_, f)| check_type(column, f.data_type()))
        }
        _ => Ok(()),
    }
}

/// Lists of floats whose only NULL items are those of NULL lists, which some producers make, without them: pipelines read lists
/// in place where no item is NULL.
fn without_hidden_nulls(column: &ArrayRef) -> ArrayRef {
    let Some(lists) = column.as_fixed_size_list_opt() else { return Arc::clone(column) };
    let (DataType::FixedSizeList(item, items), Some(nulls)) =
        (lists.data_type(), lists.values().nulls())
    else {
        return Arc::clone(column);
    };
    let width = *items as usize;
    let is_whole = |row: usize| nulls.slice(row * width, width).null_count() == 0;
    let floats: ArrayRef = match item.data_type() {
        _ if !(0..lists.len()).all(|row| lists.is_null(row) || is_whole(row)) => {
            return Arc::clone(column);
        }
        DataType::Float32 => Arc::new(Float32Array::new(
            lists.values().as_primitive::<Float32Type>().values().clone(),
            None,
        )),
        DataType::Float64 => Arc::new(Float64Array::new(
            lists.values().as_primitive::<Float64Type>().values().clone(),
            None,
        )),
        _ => return Arc::clone(column),
    };
    let whole =
        FixedSizeListArray::try_new(Arc::clone(item), *items, floats, lists.nulls().cloned());
    whole.map_or_else(|_| Arc::clone(column), |lists| Arc::new(lists))
}
