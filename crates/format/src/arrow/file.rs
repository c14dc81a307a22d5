//! One Arrow file: what its metadata say, checked.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use arrow_buffer::Buffer;
use arrow_data::ArrayData;
use arrow_schema::DataType;
use headrace_io::{FileIdentity, MappedFile, ReadAt, SourceFile};
use headrace_ir::{ColumnExtents, Encoding, Extent};

use super::decode::{DecodeError, Decoder};
use super::fields::{FileField, Footprint};
use super::message::{self, BatchMessage, Block, MAGIC, Node, TRAILER_BYTES};
use super::parallel::try_map;
use super::statistics::{self, Extremes, MAX_VALUES_KEY, MIN_VALUES_KEY};
use super::types::{ir_type, is_text};
use crate::error::{FormatError, Result};

/// Record batches whose metadata one thread reads when a file is opened, at least.
const BATCHES_PER_THREAD_MIN: usize = 64;

/// A file of a table.
#[derive(Debug)]
pub struct ArrowFile {
    path: PathBuf,
    identity: FileIdentity,
    rows: u64,
    pub(super) fields: Vec<FileField>,
    /// Where each field's entries begin in the metadata of a batch, variadic buffers aside.
    starts: Vec<Footprint>,
    pub(super) batches: Vec<BatchMessage>,
    /// By field; `None`: no statistics.
    statistics: Vec<Option<Vec<Extremes>>>,
    statistics_refused: Vec<String>,
    pub(super) dictionaries: HashMap<i64, ArrayData>,
    pub(super) unions_have_validity: bool,
    pub(super) metadata: HashMap<String, String>,
    mapping: OnceLock<std::result::Result<Arc<MappedFile>, String>>,
    pub(super) mapped_bytes: AtomicU64,
    pub(super) copied_bytes: AtomicU64,
}

/// How batches of a file were read by [`ArrowTable::read_batch`](super::ArrowTable::read_batch).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BatchReads {
    /// Bytes taken in place from a mapping of the file.
    pub mapped_bytes: u64,
    /// Bytes copied into memory: what must not change once it was checked, or everything if the
    /// file could not be mapped.
    pub copied_bytes: u64,
    /// Why the file could not be mapped.
    pub mapping_refused: Option<String>,
}

/// What is known of the values of one column in one batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bounds {
    Unknown,
    /// No rows, or all NULL.
    NoValues,
    Range(i128, i128),
}

/// A file, or why there is nothing in it yet.
pub(super) enum Opened {
    File(Box<ArrowFile>),
    Skipped(String),
}

impl ArrowFile {
    /// Reads and checks the metadata and the dictionaries of a file.
    pub(super) fn open(path: &Path) -> Result<Opened> {
        Self::parse(SourceFile::open(path)?.as_ref())
    }

    /// As [`open`](Self::open), of a file that is open.
    pub(super) fn parse(source: &dyn ReadAt) -> Result<Opened> {
        if let Some(reason) = incomplete(source)? {
            return Ok(Opened::Skipped(reason));
        }
        let footer = message::read_footer(source)?;
        let mut total = Footprint::default();
        let mut starts = Vec::with_capacity(footer.fields.len());
        for field in &footer.fields {
            starts.push(total);
            total = total.plus(field.footprint(footer.unions_have_validity));
        }
        let mut file = ArrowFile {
            path: source.path().to_path_buf(),
            identity: source.identity(),
            rows: 0,
            starts,
            batches: Vec::new(),
            statistics: Vec::new(),
            statistics_refused: Vec::new(),
            dictionaries: HashMap::new(),
            unions_have_validity: footer.unions_have_validity,
            metadata: footer.metadata,
            fields: footer.fields,
            mapping: OnceLock::new(),
            mapped_bytes: AtomicU64::new(0),
            copied_bytes: AtomicU64::new(0),
        };
        file.read_dictionaries(source, &footer.dictionaries)?;
        file.batches = try_map(footer.batches.len(), BATCHES_PER_THREAD_MIN, |number| {
            let block = &footer.batches[number];
            let batch = message::read_batch_message(source, block, number, total)?;
            file.check_batch(&batch, block, number)?;
            Ok::<_, FormatError>(batch)
        })?;
        file.rows = file.batches.iter().map(|batch| batch.rows).sum();
        file.read_statistics(source);
        Ok(Opened::File(Box::new(file)))
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Which file it was when the table was opened.
    pub fn identity(&self) -> FileIdentity {
        self.identity
    }

    /// Rows of all record batches.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Number of record batches.
    pub fn batches(&self) -> usize {
        self.batches.len()
    }

    /// Rows of a record batch; 0 for one that does not exist.
    pub fn batch_rows(&self, batch: usize) -> u64 {
        self.batches.get(batch).map_or(0, |b| b.rows)
    }

    /// Why statistics that stand in the file are not used, column by column.
    pub fn statistics_refused(&self) -> &[String] {
        &self.statistics_refused
    }

    /// How [`ArrowTable::read_batch`](super::ArrowTable::read_batch) got its bytes so far.
    pub fn reads(&self) -> BatchReads {
        BatchReads {
            mapped_bytes: self.mapped_bytes.load(Ordering::Relaxed),
            copied_bytes: self.copied_bytes.load(Ordering::Relaxed),
            mapping_refused: self.mapping.get().and_then(|m| m.as_ref().err().cloned()),
        }
    }

    /// Opens the file for reading its extents. Nothing is kept open in between, so that a table
    /// may have more files than a process may have open.
    ///
    /// # Errors
    /// [`headrace_io::IoError::Changed`] if it is not the file any more that the table knows.
    pub fn open_source(&self) -> Result<Arc<SourceFile>> {
        let source = SourceFile::open(&self.path)?;
        if source.identity() != self.identity {
            // Says what differs; if it does not differ any more, it did when it was opened.
            self.identity.check_unchanged(&self.path)?;
            return Err(FormatError::Io(headrace_io::IoError::Changed {
                path: self.path.clone(),
                what: "it was replaced while it was opened".into(),
            }));
        }
        Ok(source)
    }

    /// Error if the file changed since the table was opened, or if a page that was read through
    /// a mapping could not be delivered. To be called after the last use of batches that
    /// [`ArrowTable::read_batch`](super::ArrowTable::read_batch) returned.
    pub fn check_unchanged(&self) -> Result<()> {
        if let Some(Ok(mapping)) = self.mapping.get() {
            mapping.check()?;
        }
        Ok(self.identity.check_unchanged(&self.path)?)
    }

    /// Gives the pages of the mapping back, so that the process stays small; batches that lie in
    /// it stay valid and fault their pages in again.
    pub fn release_mapped(&self) {
        if let Some(Ok(mapping)) = self.mapping.get() {
            mapping.release(0..self.identity.size_bytes);
        }
    }

    /// The mapping of the file, made at the first call; the reason if it cannot be had.
    pub(super) fn mapping(&self) -> Result<std::result::Result<&Arc<MappedFile>, &str>> {
        if self.mapping.get().is_none() {
            let source = self.open_source()?;
            let mapped = MappedFile::map(source).map(Arc::new).map_err(|e| e.to_string());
            // Another thread may have been faster; its mapping is as good.
            let _ = self.mapping.set(mapped);
        }
        match self.mapping.get() {
            Some(Ok(mapping)) => Ok(Ok(mapping)),
            Some(Err(reason)) => Ok(Err(reason)),
            None => Ok(Err("the mapping is being made")),
        }
    }

    fn read_dictionaries(&mut self, source: &dyn ReadAt, blocks: &[Block]) -> Result<()> {
        let fields: HashMap<i64, FileField> = self
            .fields
            .iter()
            .flat_map(FileField::dictionaries)
            .filter_map(|(id, field)| Some((id, field.dictionary_values()?)))
            .collect();
        blocks
            .iter()
            .enumerate()
            .try_for_each(|(number, block)| self.read_dictionary(source, block, number, &fields))
    }

    fn read_dictionary(
        &mut self,
        source: &dyn ReadAt,
        block: &Block,
        number: usize,
        fields: &HashMap<i64, FileField>,
    ) -> Result<()> {
        let footprint = |id: i64| match fields.get(&id) {
            Some(values) => Ok(values.footprint(self.unions_have_validity)),
            None => Err(format!("no column has dictionary {id}")),
        };
        let message = message::read_dictionary_message(source, block, number, footprint)?;
        let place = || format!("dictionary batch {number}");
        let corrupt =
            |cause: String| FormatError::corrupt(&self.path, block.body.offset, place(), cause);
        let Some(field) = fields.get(&message.id) else {
            return Err(corrupt(format!("no column has dictionary {}", message.id)));
        };
        let bytes = |extent: Extent, _| read_copy(source, extent);
        let mut decoder = Decoder::new(
            &message.values,
            &bytes,
            &self.dictionaries,
            self.unions_have_validity,
            Footprint::default(),
        );
        let values = decoder.array(field).map_err(|error| match error {
            DecodeError::Data(cause) => corrupt(cause),
            DecodeError::Source(error) => error,
        })?;
        if values.len() as u64 != message.values.rows {
            return Err(corrupt(format!(
                "{} values in a batch of {}",
                values.len(),
                message.values.rows
            )));
        }
        let values = match (self.dictionaries.get(&message.id), message.is_delta) {
            (None, false) => values,
            (None, true) => {
                return Err(corrupt(format!(
                    "delta of dictionary {}, which is not there",
                    message.id
                )));
            }
            (Some(_), false) => {
                return Err(corrupt(format!("dictionary {} stands there twice", message.id)));
            }
            (Some(first), true) => {
                let parts = [first, &values].map(|data| arrow_array::make_array(data.clone()));
                let parts: Vec<&dyn arrow_array::Array> = parts.iter().map(AsRef::as_ref).collect();
                arrow_select::concat::concat(&parts).map_err(|e| corrupt(e.to_string()))?.to_data()
            }
        };
        self.dictionaries.insert(message.id, values);
        Ok(())
    }

    /// Checks everything that planning relies on.
    fn check_batch(&self, batch: &BatchMessage, block: &Block, number: usize) -> Result<()> {
        for (i, field) in self.fields.iter().enumerate() {
            let start = self.start(batch, i);
            self.check_column(batch, field, start).map_err(|cause| {
                let place = format!("record batch {number}, column {}", field.name());
                FormatError::corrupt(&self.path, block.header.offset, place, cause)
            })?;
        }
        Ok(())
    }

    fn check_column(
        &self,
        batch: &BatchMessage,
        field: &FileField,
        start: Footprint,
    ) -> std::result::Result<(), String> {
        let node = batch.nodes.get(start.nodes).ok_or("no field entry")?;
        if node.rows != batch.rows {
            return Err(format!("{} rows in a batch of {}", node.rows, batch.rows));
        }
        let Some(encoding) = encoding(field.data_type()) else { return Ok(()) };
        if batch.compression.is_some() || batch.rows == 0 {
            return Ok(());
        }
        let buffer = |i: usize| batch.buffers.get(start.buffers + i).ok_or("no buffer entry");
        let at_least = |what: &str, extent: &Extent, bytes: u64| {
            if extent.bytes >= bytes {
                return Ok(());
            }
            Err(format!("{what} of {} bytes where {} rows take {bytes}", extent.bytes, batch.rows))
        };
        if node.nulls != Some(0) && !(node.nulls.is_none() && buffer(0)?.bytes == 0) {
            at_least("validity", buffer(0)?, batch.rows.div_ceil(8))?;
        }
        match &encoding {
            Encoding::Offsets { offset_bytes } => {
                at_least("offsets", buffer(1)?, (batch.rows + 1) * u64::from(*offset_bytes))
            }
            fixed => {
                let data_type = ir_type(field.data_type()).ok_or("type is not known")?;
                let bytes = fixed.values_bytes(&data_type, batch.rows).ok_or("no fixed width")?;
                at_least("values", buffer(1)?, bytes)
            }
        }
    }

    /// Takes statistics over where they can be believed.
    fn read_statistics(&mut self, source: &dyn ReadAt) {
        let present = |field: &FileField| {
            let metadata = field.field.metadata();
            Some((metadata.get(MIN_VALUES_KEY)?.clone(), metadata.get(MAX_VALUES_KEY)?.clone()))
        };
        let texts: Vec<_> = self.fields.iter().map(present).collect();
        self.statistics = vec![None; self.fields.len()];
        if texts.iter().all(Option::is_none) {
            return;
        }
        let head = match message::read_head_schema(source) {
            Ok(head) => head,
            Err(cause) => {
                self.statistics_refused.push(format!("all columns: {cause}"));
                return;
            }
        };
        for (i, text) in texts.into_iter().enumerate() {
            let Some((min, max)) = text else { continue };
            match self.believe(i, &min, &max, head.get(i)) {
                Ok(extremes) => self.statistics[i] = Some(extremes),
                Err(cause) => {
                    self.statistics_refused.push(format!("{}: {cause}", self.fields[i].name()));
                }
            }
        }
    }

    fn believe(
        &self,
        i: usize,
        min: &str,
        max: &str,
        head: Option<&FileField>,
    ) -> std::result::Result<Vec<Extremes>, String> {
        let field = &self.fields[i];
        if !statistics::has_statistics(field.data_type()) {
            return Err(format!("smallest and largest values of type {}", field.data_type()));
        }
        let head = head.ok_or("the schema at the start of the file lacks the column")?;
        let head = |key: &str| head.field.metadata().get(key).map(String::as_str);
        // pg2arrow leaves empty entries there and fills those of the footer.
        if head(MIN_VALUES_KEY) == Some(min) || head(MAX_VALUES_KEY) == Some(max) {
            let cause = "they stood there before the data were written, so they are of other data";
            return Err(cause.into());
        }
        let extremes = statistics::from_text(min, max, self.batches.len())?;
        for (number, (extremes, batch)) in extremes.iter().zip(&self.batches).enumerate() {
            let node = batch.nodes.get(self.start(batch, i).nodes).ok_or("no field entry")?;
            let may_have_values = node.nulls.is_none_or(|nulls| nulls < batch.rows);
            match (extremes, may_have_values && batch.rows > 0) {
                (None, true) if node.nulls.is_some() => {
                    return Err(format!("batch {number} has values but no smallest one"));
                }
                (Some((min, max)), _) if !fits(field.data_type(), *min, *max) => {
                    return Err(format!("{min}..{max} does not fit {}", field.data_type()));
                }
                _ => {}
            }
        }
        Ok(extremes)
    }

    /// Where a field's entries begin in a batch.
    pub(super) fn start(&self, batch: &BatchMessage, field: usize) -> Footprint {
        let start = self.starts[field];
        let variadic: u64 =
            batch.variadics.iter().take(start.variadics).map(|n| u64::from(*n)).sum();
        Footprint { buffers: start.buffers + variadic as usize, ..start }
    }

    /// NULLs of a field in a batch, if the file says how many. 0 is the truth, for no reader then
    /// looks at the bitmap; any other number is a claim.
    pub(super) fn nulls(&self, batch: usize, field: usize) -> Option<u64> {
        let batch = &self.batches[batch];
        batch.nodes.get(self.start(batch, field).nodes).and_then(|node: &Node| node.nulls)
    }

    /// What the file's statistics say of the values of a field in a batch. That there are none
    /// takes their word and the count of NULLs: the count alone is a claim that no reader relies
    /// on where a bitmap says otherwise.
    pub(super) fn bounds(&self, batch: usize, field: usize) -> Bounds {
        match self.statistics[field].as_ref().and_then(|s| s.get(batch).copied()) {
            Some(Some((min, max))) => Bounds::Range(min, max),
            Some(None) if self.nulls(batch, field) == Some(self.batches[batch].rows) => {
                Bounds::NoValues
            }
            Some(None) | None => Bounds::Unknown,
        }
    }

    /// Bytes of all buffers of a field in a batch, as they lie in the file.
    pub(super) fn stored_bytes(&self, batch: usize, field: usize) -> u64 {
        let message = &self.batches[batch];
        let first = self.start(message, field).buffers;
        let last = match field + 1 < self.fields.len() {
            true => self.start(message, field + 1).buffers,
            false => message.buffers.len(),
        };
        message.buffers.get(first..last).into_iter().flatten().map(|b| b.bytes).sum()
    }

    /// Byte ranges of rows of a field, whose type has an [`encoding`] and whose batch is not
    /// compressed. Text bytes are those of the whole batch, because offsets count from there.
    pub(super) fn extents(
        &self,
        batch: usize,
        field: usize,
        first_row: u64,
        rows: u64,
    ) -> Option<ColumnExtents> {
        let message = &self.batches[batch];
        let start = self.start(message, field);
        let node = message.nodes.get(start.nodes)?;
        let buffer = |i: usize| message.buffers.get(start.buffers + i).copied();
        let part =
            |whole: Extent, skip: u64, bytes: u64| Extent { offset: whole.offset + skip, bytes };
        let validity = buffer(0)
            .filter(|b| node.nulls != Some(0) && b.bytes > 0)
            .map(|b| part(b, first_row / 8, rows.div_ceil(8)));
        let data_type = self.fields[field].data_type();
        let encoding = encoding(data_type)?;
        let (values, offsets) = match &encoding {
            Encoding::Offsets { offset_bytes } => {
                let width = u64::from(*offset_bytes);
                (buffer(2)?, Some(part(buffer(1)?, first_row * width, (rows + 1) * width)))
            }
            fixed => {
                let data_type = ir_type(data_type)?;
                let skip = fixed.values_bytes(&data_type, first_row)?;
                (part(buffer(1)?, skip, fixed.values_bytes(&data_type, rows)?), None)
            }
        };
        Some(ColumnExtents { encoding, values, offsets, validity, remap: None })
    }
}

/// Why there is nothing in the file yet; `None` if it ends as a complete file does.
fn incomplete(source: &dyn ReadAt) -> Result<Option<String>> {
    let size_bytes = source.size_bytes();
    if size_bytes == 0 {
        return Ok(Some("it is empty".into()));
    }
    let mut head = vec![0; size_bytes.min(MAGIC.len() as u64) as usize];
    source.read_exact_at(0, &mut head)?;
    if !MAGIC.starts_with(&head) {
        let cause = match head.as_slice() {
            [0xff, 0xff, 0xff, 0xff, ..] => {
                "it is an Arrow IPC stream; convert it to the file format".to_string()
            }
            other => format!("it starts with {:?}", String::from_utf8_lossy(other)),
        };
        return Err(FormatError::NotArrow { path: source.path().to_path_buf(), cause });
    }
    let unfinished = || Some("it has no footer, so it is still being written".to_string());
    if size_bytes < 8 + TRAILER_BYTES {
        return Ok(unfinished());
    }
    let mut tail = [0; MAGIC.len()];
    source.read_exact_at(size_bytes - tail.len() as u64, &mut tail)?;
    Ok(if tail == *MAGIC { None } else { unfinished() })
}

/// Bytes of a range, read into memory.
pub(super) fn read_copy(source: &dyn ReadAt, extent: Extent) -> Result<Buffer> {
    let mut bytes = arrow_buffer::MutableBuffer::from_len_zeroed(extent.bytes as usize);
    source.read_exact_at(extent.offset, bytes.as_slice_mut())?;
    Ok(bytes.into())
}

/// How values of an Arrow type lie, in the words of the pipeline IR; `None` for types that it
/// does not know and for views.
pub(super) fn encoding(data_type: &DataType) -> Option<Encoding> {
    Some(match data_type {
        DataType::Boolean => Encoding::Bits,
        DataType::Utf8 | DataType::Binary => Encoding::Offsets { offset_bytes: 4 },
        DataType::LargeUtf8 | DataType::LargeBinary => Encoding::Offsets { offset_bytes: 8 },
        DataType::Dictionary(key, values) if is_text(values) => {
            Encoding::Dictionary { code_bytes: u8::try_from(key.primitive_width()?).ok()? }
        }
        other => {
            ir_type(other)?.plain_width_bytes()?;
            Encoding::Plain
        }
    })
}

/// Whether bounds can be those of values of an integer-like type.
fn fits(data_type: &DataType, min: i128, max: i128) -> bool {
    let (low, high): (i128, i128) = match data_type {
        DataType::Int8 => (i8::MIN.into(), i8::MAX.into()),
        DataType::Int16 => (i16::MIN.into(), i16::MAX.into()),
        DataType::Int32 | DataType::Date32 | DataType::Time32(_) => {
            (i32::MIN.into(), i32::MAX.into())
        }
        DataType::UInt8 => (0, u8::MAX.into()),
        DataType::UInt16 => (0, u16::MAX.into()),
        DataType::UInt32 => (0, u32::MAX.into()),
        DataType::UInt64 => (0, u64::MAX.into()),
        DataType::Decimal128(_, _) => (i128::MIN, i128::MAX),
        _ => (i64::MIN.into(), i64::MAX.into()),
    };
    low <= min && max <= high
}
