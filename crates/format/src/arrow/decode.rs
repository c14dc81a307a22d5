//! Arrow arrays from the buffers of a batch: any type, any compression, checked in full.

use std::collections::HashMap;
use std::io::Read;

use arrow_buffer::Buffer;
use arrow_data::{ArrayData, BufferSpec, layout};
use arrow_schema::DataType;
use headrace_ir::Extent;

use super::fields::{FileField, Footprint};
use super::message::{BatchMessage, Compression, DictionaryMessage, Node};
use super::texts::StoredTexts;
use crate::error::{FormatError, Result};

/// The problem: in the data, or with reading them.
pub(crate) enum DecodeError {
    Data(String),
    Source(FormatError),
}

impl From<String> for DecodeError {
    fn from(cause: String) -> Self {
        Self::Data(cause)
    }
}

/// Where the bytes of a buffer may lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    /// In our own memory: checked bytes must not change, whoever writes to the file.
    Copied,
    /// Anywhere, also in the file: every bit pattern is a value, so nothing is checked.
    InPlace,
}

/// Bytes of a range of a file.
pub(crate) type Source<'a> = dyn Fn(Extent, Hold) -> Result<Buffer> + 'a;

/// Walks through the nodes and buffers of a batch, field by field.
pub(crate) struct Decoder<'a> {
    message: &'a BatchMessage,
    source: &'a Source<'a>,
    /// Values by dictionary id. A dictionary that is missing in the file is empty: all codes of its
    /// column are NULL.
    dictionaries: &'a HashMap<i64, ArrayData>,
    unions_have_validity: bool,
    next: Footprint,
}

impl<'a> Decoder<'a> {
    /// Starts at the field whose entries begin at `first`.
    pub fn new(
        message: &'a BatchMessage,
        source: &'a Source<'a>,
        dictionaries: &'a HashMap<i64, ArrayData>,
        unions_have_validity: bool,
        first: Footprint,
    ) -> Self {
        Self { message, source, dictionaries, unions_have_validity, next: first }
    }

    /// The next field's values, fully checked: buffer lengths, offsets, UTF-8, codes.
    pub fn array(&mut self, field: &FileField) -> std::result::Result<ArrayData, DecodeError> {
        let node = self.node()?;
        let data_type = field.data_type();
        let rows = usize::try_from(node.rows).map_err(|e| e.to_string())?;
        check_width(data_type, rows)?;
        let mut builder = ArrayData::builder(data_type.clone()).len(rows);
        if self.has_validity(data_type)
            && let Some(validity) = self.validity(node)?
        {
            builder = builder.null_bit_buffer(Some(validity));
        }
        for (i, spec) in layout(data_type).buffers.iter().enumerate() {
            let offsets = i == 0 && has_closing_offset(data_type);
            let buffer = self.buffer(hold(field, i))?;
            builder = builder.add_buffer(trim(buffer, spec, rows, offsets));
        }
        if matches!(data_type, DataType::Utf8View | DataType::BinaryView) {
            let count = self.message.variadics.get(self.next.variadics).copied();
            self.next.variadics += 1;
            for _ in 0..count.ok_or_else(|| "no variadic buffer count".to_string())? {
                builder = builder.add_buffer(self.buffer(hold(field, 1))?);
            }
        }
        match field.dictionary {
            Some(id) => builder = builder.add_child_data(self.dictionary(id, field)?),
            None => {
                for child in &field.children {
                    builder = builder.add_child_data(self.array(child)?);
                }
            }
        }
        builder.align_buffers(true).build().map_err(|e| DecodeError::Data(e.to_string()))
    }

    /// The next field's values if they are uncompressed texts, which stay in place.
    pub fn texts(&mut self, field: &FileField) -> std::result::Result<StoredTexts, DecodeError> {
        let node = self.node()?;
        let rows = usize::try_from(node.rows).map_err(|e| e.to_string())?;
        let validity = self.validity(node)?;
        let offsets = self.buffer(Hold::Copied)?;
        let values = self.extent()?;
        Ok(StoredTexts::new(field.data_type(), rows, (validity, &offsets, values))?)
    }

    fn has_validity(&self, data_type: &DataType) -> bool {
        match data_type {
            DataType::Null | DataType::RunEndEncoded(_, _) => false,
            DataType::Union(_, _) => self.unions_have_validity,
            _ => true,
        }
    }

    /// The validity bitmap; `None`: no NULLs.
    fn validity(&mut self, node: Node) -> std::result::Result<Option<Buffer>, DecodeError> {
        // Kernels count the bits once and then rely on their number.
        let buffer = self.buffer(Hold::Copied)?;
        if node.nulls == Some(0) || (node.nulls.is_none() && buffer.is_empty()) {
            return Ok(None);
        }
        // Unions of metadata version 4 have a bitmap that means nothing.
        let bytes = node.rows.div_ceil(8);
        if (buffer.len() as u64) < bytes {
            let cause = format!("validity of {} bytes for {} rows", buffer.len(), node.rows);
            return Err(cause.into());
        }
        Ok(Some(buffer))
    }

    fn dictionary(
        &self,
        id: i64,
        field: &FileField,
    ) -> std::result::Result<ArrayData, DecodeError> {
        if let Some(values) = self.dictionaries.get(&id) {
            return Ok(values.clone());
        }
        match field.data_type() {
            DataType::Dictionary(_, value) => Ok(ArrayData::new_empty(value)),
            other => Err(format!("{other} with a dictionary").into()),
        }
    }

    fn node(&mut self) -> std::result::Result<Node, DecodeError> {
        let node = self.message.nodes.get(self.next.nodes).copied();
        self.next.nodes += 1;
        Ok(node.ok_or_else(|| "too few fields in the batch".to_string())?)
    }

    fn extent(&mut self) -> std::result::Result<Extent, DecodeError> {
        let extent = self.message.buffers.get(self.next.buffers).copied();
        self.next.buffers += 1;
        Ok(extent.ok_or_else(|| "too few buffers in the batch".to_string())?)
    }

    fn buffer(&mut self, hold: Hold) -> std::result::Result<Buffer, DecodeError> {
        let extent = self.extent()?;
        if extent.bytes == 0 {
            return Ok(Buffer::from([]));
        }
        let bytes = |hold| (self.source)(extent, hold).map_err(DecodeError::Source);
        match self.message.compression {
            None => bytes(hold),
            // A decompressor relies on its input not to change under its hands.
            Some(codec) => Ok(decompress(codec, &bytes(Hold::Copied)?)?),
        }
    }
}

impl DictionaryMessage {
    /// The values of the dictionary from here on: its own, after the known ones for a delta.
    pub fn learn(
        &self,
        field: &FileField,
        source: &Source<'_>,
        known: &HashMap<i64, ArrayData>,
        unions_have_validity: bool,
    ) -> std::result::Result<ArrayData, DecodeError> {
        let first = Footprint::default();
        let mut decoder = Decoder::new(&self.values, source, known, unions_have_validity, first);
        let values = decoder.array(field)?;
        if values.len() as u64 != self.values.rows {
            let cause = format!("{} values in a batch of {}", values.len(), self.values.rows);
            return Err(cause.into());
        }
        let values = match (known.get(&self.id), self.is_delta) {
            (_, false) => values,
            (None, true) => {
                let cause = format!("delta of dictionary {}, which is not there", self.id);
                return Err(cause.into());
            }
            (Some(first), true) => {
                let parts = [first, &values].map(|data| arrow_array::make_array(data.clone()));
                let parts: Vec<&dyn arrow_array::Array> = parts.iter().map(AsRef::as_ref).collect();
                arrow_select::concat::concat(&parts).map_err(|e| e.to_string())?.to_data()
            }
        };
        Ok(values)
    }
}

/// Where buffer `i` of a field may lie, without validity; for views, buffers from 1 on are data.
fn hold(field: &FileField, i: usize) -> Hold {
    use DataType::*;
    match field.data_type() {
        _ if field.is_positions => Hold::Copied,
        FixedSizeBinary(_) => Hold::InPlace,
        Binary | LargeBinary | BinaryView if i > 0 => Hold::InPlace,
        plain if plain.is_primitive() => Hold::InPlace,
        // Offsets, views, sizes, type ids, codes, UTF-8; and bits, which filters count.
        _ => Hold::Copied,
    }
}

/// Whether the first buffer has an offset for the end of the last row.
fn has_closing_offset(data_type: &DataType) -> bool {
    use DataType::*;
    matches!(
        data_type,
        Utf8 | LargeUtf8 | Binary | LargeBinary | List(_) | LargeList(_) | Map(_, _)
    )
}

/// Removes bytes behind the last value: the Arrow library panics on a buffer whose length is not a
/// multiple of its element size. A buffer that is too short stays, and is refused later.
fn trim(buffer: Buffer, spec: &BufferSpec, rows: usize, offsets: bool) -> Buffer {
    let BufferSpec::FixedWidth { byte_width, .. } = spec else { return buffer };
    let count = if offsets { rows.saturating_add(1) } else { rows };
    let bytes = count.saturating_mul(*byte_width);
    if rows == 0 && buffer.len() < bytes {
        return Buffer::from([]);
    }
    if buffer.len() > bytes { buffer.slice_with_length(0, bytes) } else { buffer }
}

/// Error for a row count whose bytes overflow.
fn check_width(data_type: &DataType, rows: usize) -> std::result::Result<(), String> {
    let width = match data_type {
        DataType::FixedSizeBinary(width) | DataType::FixedSizeList(_, width) => *width,
        _ => return Ok(()),
    };
    let width = usize::try_from(width).map_err(|_| format!("width {width}"))?;
    match rows.checked_mul(width) {
        Some(total) if isize::try_from(total).is_ok() => Ok(()),
        _ => Err(format!("{rows} rows of width {width}")),
    }
}

/// Decodes one buffer: 8 bytes of decoded length (-1: not compressed), then the data.
///
/// Memory grows with the actual expansion of the data, never with its claimed length.
pub(crate) fn decompress(
    codec: Compression,
    buffer: &Buffer,
) -> std::result::Result<Buffer, String> {
    const LENGTH_BYTES: usize = 8;
    let Some((prefix, data)) = buffer.split_first_chunk::<LENGTH_BYTES>() else {
        return Err(format!("compressed buffer of {} bytes", buffer.len()));
    };
    let claimed = i64::from_le_bytes(*prefix);
    if claimed == -1 {
        return Ok(buffer.slice(LENGTH_BYTES));
    }
    let length = u64::try_from(claimed).map_err(|_| format!("decoded length {claimed}"))?;
    let mut decoded = Vec::new();
    let outcome = match codec {
        Compression::Lz4Frame => {
            lz4_flex::frame::FrameDecoder::new(data).take(length + 1).read_to_end(&mut decoded)
        }
        Compression::Zstd => zstd::stream::read::Decoder::with_buffer(data)
            .and_then(|decoder| decoder.take(length + 1).read_to_end(&mut decoded)),
    };
    outcome.map_err(|e| format!("{codec} data cannot be decoded: {e}"))?;
    if decoded.len() as u64 != length {
        return Err(format!(
            "{codec} data decode to {} bytes{}, {length} were announced",
            decoded.len(),
            if decoded.len() as u64 > length { " or more" } else { "" }
        ));
    }
    Ok(Buffer::from_vec(decoded))
}
