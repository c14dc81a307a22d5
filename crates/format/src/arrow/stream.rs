//! Arrow IPC streams: the messages of a file without its footer, read from front to back.
//!
//! They are checked and decoded like those of files ([`super::message`], [`super::decode`]): lengths against the rest
//! of the input, everything else before an array is made of it. A dictionary may be replaced or extended.

use std::collections::HashMap;
use std::io::Read;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions, make_array};
use arrow_buffer::{Buffer, MutableBuffer};
use arrow_cast::cast;
use arrow_ipc as ipc;
use arrow_schema::{Field, Schema, SchemaRef};
use headrace_io::{ReadAt, SourceFile};
use headrace_ir::Extent;

use super::decode::{DecodeError, Decoder, Hold};
use super::fields::{self, FileField};
use super::message::{self, Block, CONTINUATION};
use super::schema::{Dictionaries, FileSchema};
use super::types::without_table_type;

/// Why a stream cannot be read, without its name.
type Result<T, E = String> = std::result::Result<T, E>;

/// A larger schema message is invalid.
const SCHEMA_BYTES_MAX: u64 = 256 << 20;

/// The batches of a stream.
pub struct BatchStream<R> {
    input: R,
    offset: u64,
    size_bytes: u64,
    file: FileSchema,
    /// Of each dictionary's values.
    values: HashMap<i64, FileField>,
    dictionaries: Dictionaries,
    schema: SchemaRef,
    wanted: Vec<usize>,
    batches: usize,
}

/// A message: its location, its flatbuffer, and its body.
struct Message {
    block: Block,
    header: Vec<u8>,
    body: Buffer,
}

impl<R: Read> BatchStream<R> {
    /// Begins to read a stream of this many bytes; an empty stream has no schema.
    ///
    /// # Errors
    /// Why it is not a stream.
    pub fn open(input: R, size_bytes: u64) -> Result<Self> {
        let mut stream = BatchStream {
            input,
            offset: 0,
            size_bytes,
            file: FileSchema::new(Vec::new(), HashMap::new(), false),
            values: HashMap::new(),
            dictionaries: Dictionaries::new(),
            schema: Arc::new(Schema::empty()),
            wanted: Vec::new(),
            batches: 0,
        };
        let Some(first) = stream.message()? else { return Err("it has no schema".into()) };
        let file = first.schema().map_err(|cause| first.corrupt("schema", &cause))?;
        let dictionaries = file.fields.iter().flat_map(FileField::dictionaries);
        let values = dictionaries.filter_map(|(id, field)| Some((id, field.dictionary_values()?)));
        stream.values = values.collect();
        stream.wanted = (0..file.fields.len()).collect();
        let fields: Vec<Field> = file.fields.iter().map(table_field).collect();
        stream.schema = Arc::new(Schema::new_with_metadata(fields, file.metadata.clone()));
        stream.file = file;
        Ok(stream)
    }

    /// The columns of the batches.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Decodes only the named columns from here on, in the stream's order.
    pub fn only(mut self, is_wanted: impl Fn(&str) -> bool) -> Self {
        let fields = self.file.fields.iter();
        let wanted = self.wanted.iter().zip(fields).filter(|(_, field)| is_wanted(field.name()));
        let wanted: Vec<usize> = wanted.map(|(at, _)| *at).collect();
        let fields: Vec<_> = wanted.iter().map(|at| self.schema.field(*at).clone()).collect();
        self.schema = Arc::new(Schema::new_with_metadata(fields, self.schema.metadata().clone()));
        self.wanted = wanted;
        self
    }

    /// The next batch; `None` at the end.
    fn batch(&mut self) -> Result<Option<RecordBatch>> {
        while let Some(message) = self.message()? {
            let parsed = message.parsed().map_err(|cause| message.corrupt("message", &cause))?;
            match parsed.header_type() {
                ipc::MessageHeader::RecordBatch => {
                    let batch = self.record_batch(&message, parsed)?;
                    self.batches += 1;
                    return Ok(Some(batch));
                }
                ipc::MessageHeader::DictionaryBatch => self.dictionary(&message, parsed)?,
                other => return Err(message.corrupt("message", &format!("it is a {other:?}"))),
            }
        }
        Ok(None)
    }

    fn record_batch(&self, message: &Message, parsed: ipc::Message<'_>) -> Result<RecordBatch> {
        let place = format!("record batch {}", self.batches);
        let corrupt = |cause: String| message.corrupt(&place, &cause);
        let batch = parsed.header_as_record_batch().ok_or("no record batch").map_err(String::from);
        let batch = batch
            .and_then(|batch| message::batch_message(batch, &message.block, self.file.total))
            .map_err(corrupt)?;
        let bytes = |extent: Extent, _: Hold| Ok(message.bytes(extent));
        let column = |&at: &usize| {
            let field = &self.file.fields[at];
            let start = self.file.start(&batch.variadics, at);
            let unions_have_validity = self.file.unions_have_validity;
            let mut decoder =
                Decoder::new(&batch, &bytes, &self.dictionaries, unions_have_validity, start);
            let values = decoder.array(field).map_err(in_words).and_then(|values| {
                match values.len() as u64 == batch.rows {
                    true => in_table(field, make_array(values)),
                    false => Err(format!("{} rows in a batch of {}", values.len(), batch.rows)),
                }
            });
            values.map_err(|cause| {
                message.corrupt(&format!("{place}, column {}", field.name()), &cause)
            })
        };
        let columns = self.wanted.iter().map(column).collect::<Result<Vec<ArrayRef>>>()?;
        let rows = usize::try_from(batch.rows).map_err(|e| corrupt(e.to_string()))?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)
            .map_err(|e| corrupt(e.to_string()))
    }

    fn dictionary(&mut self, message: &Message, parsed: ipc::Message<'_>) -> Result<()> {
        let unions_have_validity = self.file.unions_have_validity;
        let values =
            |id: i64| self.values.get(&id).ok_or_else(|| format!("no column has dictionary {id}"));
        let footprint = |id: i64| Ok(values(id)?.footprint(unions_have_validity));
        let learnt = || {
            let batch = message::dictionary_message(parsed, &message.block, footprint)?;
            let bytes = |extent: Extent, _: Hold| Ok(message.bytes(extent));
            let field = values(batch.id)?;
            let known = batch.learn(field, &bytes, &self.dictionaries, unions_have_validity);
            known.map(|values| (batch.id, values)).map_err(in_words)
        };
        let (id, values) = learnt().map_err(|cause| message.corrupt("dictionary", &cause))?;
        self.dictionaries.insert(id, values);
        Ok(())
    }

    /// The next message; `None` at the end of the stream, or of the input at a message border.
    fn message(&mut self) -> Result<Option<Message>> {
        let offset = self.offset;
        if self.left() == 0 {
            return Ok(None);
        }
        let mut word = self.word()?;
        if word == CONTINUATION {
            word = self.word()?;
        }
        let length = i32::from_le_bytes(word);
        if length == 0 {
            self.offset = self.size_bytes;
            return Ok(None);
        }
        let corrupt = |cause: String| corrupt_at(offset, "message", &cause);
        let bytes = self.inside(length.into(), "message").map_err(corrupt)?;
        let mut header = vec![0; bytes];
        self.fill(&mut header)?;
        let parsed = message::parsed(&header).map_err(corrupt)?;
        let bytes = self.inside(parsed.bodyLength(), "body").map_err(corrupt)?;
        let mut body = MutableBuffer::from_len_zeroed(bytes);
        self.fill(body.as_slice_mut())?;
        let block = Block {
            header: Extent { offset, bytes: header.len() as u64 },
            body: Extent { offset: 0, bytes: bytes as u64 },
        };
        Ok(Some(Message { block, header, body: body.into() }))
    }

    fn word(&mut self) -> Result<[u8; 4]> {
        let mut word = [0; 4];
        self.fill(&mut word)?;
        Ok(word)
    }

    fn left(&self) -> u64 {
        self.size_bytes.saturating_sub(self.offset)
    }

    /// A length within the rest of the input.
    fn inside(&self, length: i64, what: &str) -> Result<usize> {
        let inside = u64::try_from(length).ok().filter(|length| *length <= self.left());
        inside.and_then(|length| usize::try_from(length).ok()).ok_or_else(|| {
            format!("a {what} of {length} bytes, where the file has {} more", self.left())
        })
    }

    fn fill(&mut self, into: &mut [u8]) -> Result<()> {
        if into.len() as u64 > self.left() {
            return Err(corrupt_at(self.offset, "message", "the stream breaks off"));
        }
        self.input.read_exact(into).map_err(|e| e.to_string())?;
        self.offset += into.len() as u64;
        Ok(())
    }
}

impl<R: Read> Iterator for BatchStream<R> {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.batch();
        if batch.is_err() {
            self.offset = self.size_bytes;
        }
        batch.transpose()
    }
}

impl Message {
    fn parsed(&self) -> Result<ipc::Message<'_>> {
        message::parsed(&self.header)
    }

    fn schema(&self) -> Result<FileSchema> {
        let parsed = self.parsed()?;
        let schema = parsed.header_as_schema().ok_or("the first message is no schema")?;
        let unions_have_validity = message::unions_have_validity(parsed.version())?;
        let metadata = fields::metadata(schema.custom_metadata());
        Ok(FileSchema::new(fields::fields(schema)?, metadata, unions_have_validity))
    }

    /// Extents lie within the body: they were checked when the message was read.
    fn bytes(&self, extent: Extent) -> Buffer {
        let Range { start, end } = extent.offset as usize..(extent.offset + extent.bytes) as usize;
        self.body.slice_with_length(start, end - start)
    }

    fn corrupt(&self, place: &str, cause: &str) -> String {
        corrupt_at(self.block.header.offset, place, cause)
    }
}

fn corrupt_at(offset: u64, place: &str, cause: &str) -> String {
    format!("corrupt at byte {offset} ({place}): {cause}")
}

fn in_words(error: DecodeError) -> String {
    match error {
        DecodeError::Data(cause) => cause,
        DecodeError::Source(error) => error.to_string(),
    }
}

/// A column in the table's type: narrow and packed columns are expanded.
fn table_field(field: &FileField) -> Field {
    without_table_type(field.field.clone().with_data_type(field.table_type()))
}

fn in_table(field: &FileField, values: ArrayRef) -> Result<ArrayRef> {
    let wanted = field.table_type();
    match field.packed() {
        Some(packed) => packed.unpack(&values),
        None if *values.data_type() == wanted => Ok(values),
        None => cast(&values, &wanted).map_err(|e| e.to_string()),
    }
}

/// Whether a file begins with a message, as streams do; files begin with their magic.
pub fn begins_stream(file: &SourceFile) -> bool {
    let mut start = [0; 4];
    if file.size_bytes() < 8 || file.read_exact_at(0, &mut start).is_err() {
        return false;
    }
    if start == CONTINUATION {
        return true;
    }
    // Streams of before Arrow 0.15 begin with the schema's length.
    let length = u64::from(u32::from_le_bytes(start));
    if length == 0 || length > SCHEMA_BYTES_MAX.min(file.size_bytes() - 4) {
        return false;
    }
    let mut header = vec![0; length as usize];
    file.read_exact_at(4, &mut header).is_ok()
        && message::parsed(&header).is_ok_and(|parsed| parsed.header_as_schema().is_some())
}
