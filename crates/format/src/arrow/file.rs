//! One Arrow file: its checked metadata.

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_buffer::Buffer;
use arrow_schema::DataType;
use headrace_io::{FileIdentity, ReadAt, ReadMode, RemoteBytes, SourceFile, try_map};
use headrace_ir::{ColumnExtents, Encoding, Extent};

use super::batches::Batches;
use super::decode::DecodeError;
use super::fields::{FileField, Footprint};
use super::kept::{KeptMetadata, ReadFile};
use super::mapping::Mapping;
use super::message::{self, BatchMessage, Block, MAGIC, METADATA_THREADS_MAX, TRAILER_BYTES};
use super::packed::value_type;
use super::schema::{Dictionaries, FileSchema, Lie, Shared};
use super::statistics::{self, ColumnExtremes, MAX_VALUES_KEY, MIN_VALUES_KEY, Texts};
use crate::error::{FormatError, Result};

/// Record batches whose metadata one thread reads in one run.
const BATCHES_PER_RUN: usize = 64;

/// The same for a remote file, by as many threads: each message is a request, and few of them are adjacent.
const REMOTE_BATCHES_PER_RUN: usize = 4;
const REMOTE_THREADS_MAX: usize = 16;

/// Minimum of such runs per thread.
const RUNS_PER_THREAD_MIN: usize = 1;

/// A file of a table.
#[derive(Debug)]
pub struct ArrowFile {
    path: PathBuf,
    identity: FileIdentity,
    remote: Option<Arc<dyn RemoteBytes>>,
    rows: u64,
    pub(super) schema: Arc<FileSchema>,
    pub(super) batches: Batches,
    /// By field; `None`: no statistics. Empty if no field has any.
    statistics: Vec<Option<ColumnExtremes>>,
    statistics_refused: Vec<String>,
    pub(super) dictionaries: Arc<Dictionaries>,
    pub(super) mapping: Mapping,
}

/// The facts about the values of one column in one batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bounds {
    Unknown,
    /// No rows, or all NULL.
    NoValues,
    Range(i128, i128),
}

/// A file, or the reason why it is still empty.
pub(super) enum Opened {
    File(Box<ArrowFile>),
    Skipped(String),
}

impl ArrowFile {
    /// Reads and checks the metadata and the dictionaries of a file.
    pub(super) fn open(path: &Path, shared: &Shared) -> Result<Opened> {
        Self::open_source(&SourceFile::open(path)?, shared, None)
    }

    /// The same for a known file, possibly with cached metadata.
    pub(super) fn open_source(
        file: &Arc<SourceFile>,
        shared: &Shared,
        kept: Option<&KeptMetadata>,
    ) -> Result<Opened> {
        // What is wrong with what was kept may not be wrong with the file.
        let known = kept.and_then(|kept| kept.of(file));
        if let Some(Ok(opened)) = known.map(|known| Self::parse(&known, shared)) {
            return Ok(opened);
        }
        let whole = Whole::of(file)?;
        let source: &dyn ReadAt = match &whole {
            Some(whole) => whole,
            None => file.as_ref(),
        };
        let Some(kept) = kept else { return Self::parse(source, shared) };
        let read = ReadFile::of(source);
        let opened = Self::parse(&read, shared)?;
        if matches!(opened, Opened::File(_)) {
            kept.learn(read);
        }
        Ok(opened)
    }

    /// Like [`open`](Self::open), for an open file.
    pub(super) fn parse(source: &dyn ReadAt, shared: &Shared) -> Result<Opened> {
        if let Some(reason) = incomplete(source)? {
            return Ok(Opened::Skipped(reason));
        }
        let mut footer = message::read_footer(source)?;
        let texts: Vec<_> = footer.fields.iter_mut().map(statistics::take_texts).collect();
        let schema = FileSchema::new(footer.fields, footer.metadata, footer.unions_have_validity);
        let mut file = ArrowFile {
            path: source.path().to_path_buf(),
            identity: source.identity(),
            remote: source.source().remote_bytes().cloned(),
            rows: 0,
            schema: shared.schema(schema),
            batches: Batches::default(),
            statistics: Vec::new(),
            statistics_refused: Vec::new(),
            dictionaries: Arc::default(),
            mapping: Mapping::default(),
        };
        let dictionaries = file.read_dictionaries(source, &footer.dictionaries)?;
        file.dictionaries = shared.dictionaries(dictionaries);
        file.batches = file.read_batches(source, &footer.batches)?;
        file.rows = file.batches.rows_total();
        file.read_statistics(source, &texts);
        Ok(Opened::File(Box::new(file)))
    }

    fn read_batches(&self, source: &dyn ReadAt, blocks: &[Block]) -> Result<Batches> {
        let total = self.schema.total;
        let (batches_per_run, threads_max) = match source.source().is_remote() {
            true => (REMOTE_BATCHES_PER_RUN, REMOTE_THREADS_MAX),
            false => (BATCHES_PER_RUN, METADATA_THREADS_MAX),
        };
        let runs = blocks.len().div_ceil(batches_per_run);
        let parts = try_map(runs, (RUNS_PER_THREAD_MIN, threads_max), |run| {
            let mut batches = Batches::new(total);
            let first = run * batches_per_run;
            for (i, block) in blocks[first..].iter().take(batches_per_run).enumerate() {
                let batch = message::read_batch_message(source, block, first + i, total)?;
                self.check_batch(&batch, block, first + i)?;
                batches.push(&batch);
            }
            Ok::<_, FormatError>(batches)
        })?;
        Ok(Batches::joined(total, parts))
    }

    /// A non-existent file, for tests of metadata cost.
    #[cfg(test)]
    pub(super) fn imagined(
        schema: Arc<FileSchema>,
        batches: Batches,
        statistics: Vec<Option<ColumnExtremes>>,
    ) -> Self {
        ArrowFile {
            path: PathBuf::from("imagined.arrow"),
            identity: FileIdentity { device: 0, inode: 0, size_bytes: 0, mtime_ns: 0, ctime_ns: 0 },
            remote: None,
            rows: batches.rows_total(),
            schema,
            batches,
            statistics,
            statistics_refused: Vec::new(),
            dictionaries: Arc::default(),
            mapping: Mapping::default(),
        }
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether its bytes are fetched.
    pub(super) fn is_remote(&self) -> bool {
        self.remote.is_some()
    }

    /// Its identity when the table was opened.
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
        self.batches.rows(batch)
    }

    /// Rows of the largest record batch.
    pub(super) fn batch_rows_max(&self) -> u64 {
        self.batches.rows_max()
    }

    /// Why statistics in the file are not used, by column.
    pub fn statistics_refused(&self) -> &[String] {
        &self.statistics_refused
    }

    /// The file, for reading its extents. It is opened on demand, so that a table may have more
    /// files than a process may open; if it is no longer the file that the table knows, reading is
    /// an error, [`headrace_io::IoError::Changed`].
    pub fn source(&self) -> Arc<SourceFile> {
        self.source_as(true)
    }

    /// Like [`source`](Self::source); without the check, the file may have been written to.
    pub(crate) fn source_as(&self, is_checked: bool) -> Arc<SourceFile> {
        match &self.remote {
            Some(bytes) => SourceFile::remote(&self.path, self.identity, Arc::clone(bytes)),
            None => SourceFile::known_as(&self.path, self.identity, is_checked),
        }
    }

    /// Error if the file changed since the table was opened, or if a page that was read through a
    /// mapping could not be delivered. Call it after the last use of batches that
    /// [`ArrowTable::read_batch`](super::ArrowTable::read_batch) returned.
    pub fn check_unchanged(&self) -> Result<()> {
        self.mapping.check(&self.path)?;
        Ok(self.source().check_unchanged()?)
    }

    /// Releases the pages of the mapping, to keep the process small; batches in it stay valid and
    /// fault their pages in again.
    pub fn release_mapped(&self) {
        self.mapping.release(self.identity.size_bytes);
    }

    fn read_dictionaries(&self, source: &dyn ReadAt, blocks: &[Block]) -> Result<Dictionaries> {
        let fields: HashMap<i64, FileField> = self
            .schema
            .fields
            .iter()
            .flat_map(FileField::dictionaries)
            .filter_map(|(id, field)| Some((id, field.dictionary_values()?)))
            .collect();
        let mut dictionaries = Dictionaries::new();
        for (number, block) in blocks.iter().enumerate() {
            self.read_dictionary(source, block, number, &fields, &mut dictionaries)?;
        }
        Ok(dictionaries)
    }

    fn read_dictionary(
        &self,
        source: &dyn ReadAt,
        block: &Block,
        number: usize,
        fields: &HashMap<i64, FileField>,
        dictionaries: &mut Dictionaries,
    ) -> Result<()> {
        let footprint = |id: i64| match fields.get(&id) {
            Some(values) => Ok(values.footprint(self.schema.unions_have_validity)),
            None => Err(format!("no column has dictionary {id}")),
        };
        let message = message::read_dictionary_message(source, block, number, footprint)?;
        let place = || format!("dictionary batch {number}");
        let corrupt =
            |cause: String| FormatError::corrupt(&self.path, block.body.offset, place(), cause);
        let Some(field) = fields.get(&message.id) else {
            return Err(corrupt(format!("no column has dictionary {}", message.id)));
        };
        if dictionaries.contains_key(&message.id) && !message.is_delta {
            return Err(corrupt(format!("dictionary {} stands there twice", message.id)));
        }
        let bytes = |extent: Extent, _| read_copy(source, extent);
        let unions_have_validity = self.schema.unions_have_validity;
        let values = message.learn(field, &bytes, dictionaries, unions_have_validity);
        let values = values.map_err(|error| match error {
            DecodeError::Data(cause) => corrupt(cause),
            DecodeError::Source(error) => error,
        })?;
        dictionaries.insert(message.id, values);
        Ok(())
    }

    /// Checks everything that planning relies on.
    fn check_batch(&self, batch: &BatchMessage, block: &Block, number: usize) -> Result<()> {
        for (i, field) in self.schema.fields.iter().enumerate() {
            let start = self.schema.start(&batch.variadics, i);
            check_column(batch, self.schema.places[i].lie.as_ref(), start).map_err(|cause| {
                let place = format!("record batch {number}, column {}", field.name());
                FormatError::corrupt(&self.path, block.header.offset, place, cause)
            })?;
        }
        Ok(())
    }

    /// Adopts statistics that pass the checks.
    fn read_statistics(&mut self, source: &dyn ReadAt, texts: &[Option<Texts>]) {
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
        let take = |(i, texts): (usize, &Option<Texts>)| match self.believe(
            i,
            texts.as_ref()?,
            head.get(i),
        ) {
            Ok(extremes) => Some(Ok(extremes)),
            Err(cause) => Some(Err(format!("{}: {cause}", self.schema.fields[i].name()))),
        };
        let taken: Vec<_> = texts.iter().enumerate().map(take).collect();
        for outcome in taken {
            let outcome = outcome.transpose();
            self.statistics.push(outcome.unwrap_or_else(|cause| {
                self.statistics_refused.push(cause);
                None
            }));
        }
    }

    fn believe(
        &self,
        i: usize,
        texts: &Texts,
        head: Option<&FileField>,
    ) -> std::result::Result<ColumnExtremes, String> {
        let value_type = value_type(&self.schema.fields[i].field);
        if !statistics::has_statistics(&value_type) {
            return Err(format!("smallest and largest values of type {value_type}"));
        }
        let head = head.ok_or("the schema at the start of the file lacks the column")?;
        let head = |key: &str| head.field.metadata().get(key);
        // pg2arrow leaves empty entries there and fills those of the footer.
        if head(MIN_VALUES_KEY) == Some(&texts.min) || head(MAX_VALUES_KEY) == Some(&texts.max) {
            let cause = "they stood there before the data were written, so they are of other data";
            return Err(cause.into());
        }
        let extremes = statistics::from_text(&texts.min, &texts.max, self.batches.len())?;
        for batch in 0..self.batches.len() {
            let (rows, nulls) = (self.batches.rows(batch), self.nulls(batch, i));
            match extremes.get(batch).flatten() {
                None if rows > 0 && nulls.is_some_and(|nulls| nulls < rows) => {
                    return Err(format!("batch {batch} has values but no smallest one"));
                }
                Some((min, max)) if !fits(&value_type, min, max) => {
                    return Err(format!("{min}..{max} does not fit {value_type}"));
                }
                _ => {}
            }
        }
        Ok(extremes)
    }

    /// Start of a field's entries in a batch.
    pub(super) fn start(&self, batch: usize, field: usize) -> Footprint {
        self.schema.start(self.batches.variadics(batch), field)
    }

    /// NULLs of a field in a batch, if the file states them. 0 is reliable, because no reader then
    /// looks at the bitmap; any other number is a claim.
    pub(super) fn nulls(&self, batch: usize, field: usize) -> Option<u64> {
        self.batches.nulls(batch, self.schema.places[field].start.nodes)
    }

    /// Whether a field has NULLs in a batch, as far as its file says; a bitmap of an unknown number of them may have some.
    pub(super) fn may_have_nulls(&self, batch: usize, field: usize) -> bool {
        match self.nulls(batch, field) {
            Some(nulls) => nulls > 0,
            None => {
                let first = self.start(batch, field).buffers;
                self.batches.buffers(batch).get(first).is_none_or(|bitmap| bitmap.bytes > 0)
            }
        }
    }

    /// The first batch in which items of a field of lists may be NULL.
    pub(super) fn with_null_items(&self, field: usize) -> Option<usize> {
        let is_list = self.schema.places[field].lie.as_ref().is_some_and(|lie| lie.is_list);
        let node = self.schema.places[field].start.nodes + 1;
        let has_no_bitmap = |batch: usize| {
            let bitmap = self.start(batch, field).buffers + 1;
            self.batches.buffers(batch).get(bitmap).is_some_and(|buffer| buffer.bytes == 0)
        };
        let may_be_null = |batch: &usize| match self.batches.nulls(*batch, node) {
            Some(nulls) => nulls > 0,
            None => !has_no_bitmap(*batch),
        };
        if is_list { (0..self.batches.len()).find(may_be_null) } else { None }
    }

    /// The file's statistics of a field in a batch. The absence of values needs both the statistics
    /// and the NULL count: the count alone is a claim that no reader relies on if a bitmap
    /// contradicts it.
    pub(super) fn bounds(&self, batch: usize, field: usize) -> Bounds {
        let extremes = self.statistics.get(field).and_then(Option::as_ref);
        match extremes.and_then(|extremes| extremes.get(batch)) {
            Some(Some((min, max))) => Bounds::Range(min, max),
            Some(None) if self.nulls(batch, field) == Some(self.batches.rows(batch)) => {
                Bounds::NoValues
            }
            Some(None) | None => Bounds::Unknown,
        }
    }

    /// Stored bytes of all buffers of a field in a batch.
    pub(super) fn stored_bytes(&self, batch: usize, field: usize) -> u64 {
        let buffers = self.batches.buffers(batch);
        let first = self.start(batch, field).buffers;
        let last = match field + 1 < self.schema.fields.len() {
            true => self.start(batch, field + 1).buffers,
            false => buffers.len(),
        };
        buffers.get(first..last).into_iter().flatten().map(|b| b.bytes).sum()
    }

    /// Maximum bytes of a batch's buffers after and during decoding.
    pub(super) fn decoded_bytes_max(&self, batch: usize) -> Result<u64> {
        let message = self.batches.message(batch);
        let stored_bytes = message.buffers.iter().map(|buffer| buffer.bytes).sum();
        if message.compression.is_none() {
            return Ok(stored_bytes);
        }
        let source = self.source();
        let claims = message.buffers.iter().filter(|buffer| buffer.bytes >= 8);
        claims.map(|buffer| buffer.offset).try_fold(stored_bytes, |total, offset| {
            let mut claim = [0; 8];
            source.read_exact_at(offset, &mut claim)?;
            Ok(total.saturating_add(u64::try_from(i64::from_le_bytes(claim)).unwrap_or(0)))
        })
    }

    /// Byte ranges of rows of a field that pipelines can take in place, in an uncompressed batch.
    /// Texts are those of the whole batch unless `texts` gives the bytes of these rows: see
    /// [`text_offset`](Self::text_offset).
    pub(super) fn extents(
        &self,
        batch: usize,
        field: usize,
        (first_row, rows): (u64, u64),
        texts: Option<&Range<u64>>,
    ) -> Option<ColumnExtents> {
        let lie = self.schema.places[field].lie.as_ref()?;
        let buffers = self.batches.buffers(batch).get(self.start(batch, field).buffers..)?;
        let part =
            |whole: &Extent, skip: u64, bytes: u64| Extent { offset: whole.offset + skip, bytes };
        let validity = buffers
            .first()
            .filter(|b| self.nulls(batch, field) != Some(0) && b.bytes > 0)
            .map(|b| part(b, first_row / 8, rows.div_ceil(8)));
        let own = buffers.get(lie.buffer())?;
        let own = part(own, first_row * lie.row_bits / 8, lie.bytes(rows));
        let (values, offsets) = match (&lie.encoding, texts) {
            (Encoding::Offsets { .. }, None) => (*buffers.get(2)?, Some(own)),
            (Encoding::Offsets { .. }, Some(texts)) => {
                (part(buffers.get(2)?, texts.start, texts.end - texts.start), Some(own))
            }
            _ => (own, None),
        };
        Some(ColumnExtents {
            encoding: lie.encoding.clone(),
            values,
            offsets,
            offsets_base: texts.filter(|_| offsets.is_some()).map_or(0, |texts| texts.start),
            validity,
            remap: None,
        })
    }

    /// Start of a row's text among the bytes of its batch's texts; for the row after the last, their
    /// end: read from the file. `None`: the field has no offsets.
    ///
    /// # Errors
    /// The file cannot be read, or the offset lies outside the texts.
    pub(super) fn text_offset(
        &self,
        source: &dyn ReadAt,
        (batch, field): (usize, usize),
        row: u64,
    ) -> Result<Option<u64>> {
        let lie = self.schema.places[field].lie.as_ref();
        let Some(Encoding::Offsets { offset_bytes }) = lie.map(|lie| &lie.encoding) else {
            return Ok(None);
        };
        let buffers = self.batches.buffers(batch).get(self.start(batch, field).buffers..);
        let Some([_, offsets, texts]) = buffers.and_then(|buffers| buffers.first_chunk()) else {
            return Ok(None);
        };
        let width = usize::from(*offset_bytes);
        let at = offsets.offset + row * u64::from(*offset_bytes);
        let mut bytes = [0; 8];
        source.read_exact_at(at, &mut bytes[..width])?;
        let offset = u64::from_le_bytes(bytes);
        if offset > texts.bytes {
            let name = self.schema.fields[field].name();
            let place = format!("record batch {batch}, column {name}, row {row}");
            let cause = format!("the text begins at byte {offset} of {}", texts.bytes);
            return Err(FormatError::corrupt(&self.path, at, place, cause));
        }
        Ok(Some(offset))
    }

    /// Bytes of the texts of a field in a batch; `None` without offsets.
    pub(super) fn text_bytes(&self, batch: usize, field: usize) -> Option<u64> {
        let lie = self.schema.places[field].lie.as_ref()?;
        let buffers = self.batches.buffers(batch).get(self.start(batch, field).buffers..)?;
        matches!(lie.encoding, Encoding::Offsets { .. }).then_some(buffers.get(2)?.bytes)
    }
}

fn check_column(
    batch: &BatchMessage,
    lie: Option<&Lie>,
    start: Footprint,
) -> std::result::Result<(), String> {
    let node = batch.nodes.get(start.nodes).ok_or("no field entry")?;
    if node.rows != batch.rows {
        return Err(format!("{} rows in a batch of {}", node.rows, batch.rows));
    }
    let Some(lie) = lie else { return Ok(()) };
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
    let what = match lie.encoding {
        Encoding::Offsets { .. } => "offsets",
        _ => "values",
    };
    at_least(what, buffer(lie.buffer())?, lie.bytes(batch.rows))
}

/// A small file in memory: one read instead of eight, for tables of very many files.
#[derive(Debug)]
struct Whole {
    file: Arc<SourceFile>,
    bytes: Vec<u8>,
}

impl Whole {
    /// `None`: the file is not small.
    fn of(file: &Arc<SourceFile>) -> Result<Option<Whole>> {
        const SMALL_BYTES: u64 = 64 << 10;
        if file.size_bytes() > SMALL_BYTES {
            return Ok(None);
        }
        let mut bytes = vec![0; file.size_bytes() as usize];
        file.read_exact_at(0, &mut bytes)?;
        Ok(Some(Whole { file: file.clone(), bytes }))
    }
}

impl ReadAt for Whole {
    fn source(&self) -> &SourceFile {
        &self.file
    }

    fn read_at(&self, _: ReadMode, offset: u64, into: &mut [u8]) -> std::io::Result<usize> {
        let from = self.bytes.get(offset as usize..).unwrap_or_default();
        let bytes = from.len().min(into.len());
        into[..bytes].copy_from_slice(&from[..bytes]);
        Ok(bytes)
    }
}

/// Why the file is still empty; `None` if it ends like a complete file.
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

/// Whether bounds are possible for an integer-like type.
fn fits(data_type: &DataType, min: i128, max: i128) -> bool {
    let (low, high): (i128, i128) = match data_type {
        DataType::Int8 => (i8::MIN.into(), i8::MAX.into()),
        DataType::Int16 => (i16::MIN.into(), i16::MAX.into()),
        DataType::Int32 | DataType::Date32 | DataType::Time32(_) | DataType::Decimal32(_, _) => {
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
