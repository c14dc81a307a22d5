//! Footers and batch messages: the layout of a file.

use std::path::Path;

use arrow_ipc as ipc;
use flatbuffers::VerifierOptions;
use headrace_io::ReadAt;
use headrace_ir::Extent;

use super::fields::{self, FileField, Footprint};
use crate::error::{FormatError, Result};

pub(crate) const MAGIC: &[u8; 6] = b"ARROW1";
/// The first bytes of a message; in files from before Arrow 0.15 the length alone.
pub(crate) const CONTINUATION: [u8; 4] = [0xff; 4];
/// Footer length (4 bytes) and the closing magic.
pub(crate) const TRAILER_BYTES: u64 = 10;
/// Maximum rows of one record batch: far above what can be stored, low enough that products with
/// the width of any type stay below 2^64.
const ROWS_MAX: u64 = 1 << 40;
/// Maximum nesting of flatbuffer tables: deeper types are an attack.
const TABLE_DEPTH_MAX: usize = 64;

/// Maximum threads that read metadata. Storage often answers eight reads in the time of one; more gain
/// little.
pub(super) const METADATA_THREADS_MAX: usize = 8;

/// The location of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    /// Length prefix and flatbuffer.
    pub header: Extent,
    /// Buffers.
    pub body: Extent,
}

/// A parsed footer.
#[derive(Debug)]
pub(crate) struct Footer {
    pub fields: Vec<FileField>,
    pub metadata: std::collections::HashMap<String, String>,
    pub dictionaries: Vec<Block>,
    pub batches: Vec<Block>,
    /// Metadata version 4: unions have validity bitmaps.
    pub unions_have_validity: bool,
}

/// Length and NULLs of one field of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    pub rows: u64,
    /// `None`: unknown.
    pub nulls: Option<u64>,
}

/// The compression of buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compression {
    Lz4Frame,
    Zstd,
}

/// The metadata of a record batch or of a dictionary's values. All ranges lie inside the file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BatchMessage {
    pub rows: u64,
    pub nodes: Vec<Node>,
    /// Buffers, by position in the file.
    pub buffers: Vec<Extent>,
    pub variadics: Vec<u32>,
    pub compression: Option<Compression>,
}

/// A dictionary message.
pub(crate) struct DictionaryMessage {
    pub id: i64,
    pub is_delta: bool,
    pub values: BatchMessage,
}

/// Tables have at least 4 bytes each, so a flatbuffer cannot contain more of them than this; shared
/// tables that would be visited repeatedly exceed it.
fn verifier_options(bytes: usize) -> VerifierOptions {
    VerifierOptions {
        max_depth: TABLE_DEPTH_MAX,
        max_tables: (bytes / 4).max(16),
        max_apparent_size: bytes.saturating_mul(16).max(1 << 24),
        ignore_missing_null_terminator: false,
    }
}

fn read(file: &dyn ReadAt, extent: Extent) -> Result<Vec<u8>> {
    // `extent` was checked against the file's size: the allocation is no larger than the file.
    let mut bytes = vec![0; extent.bytes as usize];
    file.read_exact_at(extent.offset, &mut bytes)?;
    Ok(bytes)
}

/// Reads and checks the footer of a file that ends with the magic.
pub(crate) fn read_footer(file: &dyn ReadAt) -> Result<Footer> {
    let size_bytes = file.size_bytes();
    let trailer = Extent { offset: size_bytes - TRAILER_BYTES, bytes: TRAILER_BYTES };
    let bytes = read(file, trailer)?;
    let claimed = i32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    let footer_bytes = u64::try_from(claimed).unwrap_or(0);
    if footer_bytes == 0 || footer_bytes > trailer.offset.saturating_sub(MAGIC.len() as u64) {
        let cause = format!("a footer of {claimed} bytes in a file of {size_bytes} bytes");
        return Err(FormatError::corrupt(file.path(), trailer.offset, "footer length", cause));
    }
    let extent = Extent { offset: trailer.offset - footer_bytes, bytes: footer_bytes };
    let bytes = read(file, extent)?;
    parse_footer(file, &bytes, extent.offset)
        .map_err(|cause| FormatError::corrupt(file.path(), extent.offset, "footer", cause))
}

/// `data_bytes`: start of the footer, before which all blocks must end.
fn parse_footer(
    file: &dyn ReadAt,
    bytes: &[u8],
    data_bytes: u64,
) -> std::result::Result<Footer, String> {
    let footer = ipc::root_as_footer_with_opts(&verifier_options(bytes.len()), bytes)
        .map_err(|e| e.to_string())?;
    let schema = footer.schema().ok_or("no schema")?;
    let fields = fields::fields(schema)?;
    // Some writers leave it out, which says 1, and others write their own there, whatever the messages have.
    let unions_have_validity = match unions_have_validity(footer.version()) {
        Ok(they_have) if !fields.iter().any(FileField::has_union) => they_have,
        _ => {
            let head = read_head(file)?;
            self::unions_have_validity(parsed(&head)?.version())?
        }
    };
    let blocks = |list: Option<flatbuffers::Vector<'_, ipc::Block>>, what: &str| {
        list.into_iter()
            .flatten()
            .enumerate()
            .map(|(i, b)| block(b, data_bytes).map_err(|cause| format!("{what} {i} {cause}")))
            .collect::<std::result::Result<Vec<_>, _>>()
    };
    Ok(Footer {
        fields,
        metadata: fields::metadata(schema.custom_metadata()),
        dictionaries: blocks(footer.dictionaries(), "dictionary batch")?,
        batches: blocks(footer.recordBatches(), "record batch")?,
        unions_have_validity,
    })
}

/// By the version of the metadata.
pub(crate) fn unions_have_validity(
    version: ipc::MetadataVersion,
) -> std::result::Result<bool, String> {
    match version {
        ipc::MetadataVersion::V5 => Ok(false),
        ipc::MetadataVersion::V4 => Ok(true),
        other => Err(format!("metadata version {other:?}; versions 4 and 5 are read")),
    }
}

fn block(block: &ipc::Block, data_bytes: u64) -> std::result::Result<Block, String> {
    let (offset, header, body) = (block.offset(), block.metaDataLength(), block.bodyLength());
    let wrong = || {
        format!(
            "lies at {offset} with {header} + {body} bytes, outside the {data_bytes} before the footer"
        )
    };
    let offset = u64::try_from(offset).map_err(|_| wrong())?;
    let header = u64::try_from(header).map_err(|_| wrong())?;
    let body = u64::try_from(body).map_err(|_| wrong())?;
    let start = offset.checked_add(header).ok_or_else(wrong)?;
    let end = start.checked_add(body).ok_or_else(wrong)?;
    if header < 8 || end > data_bytes {
        return Err(wrong());
    }
    Ok(Block {
        header: Extent { offset, bytes: header },
        body: Extent { offset: start, bytes: body },
    })
}

/// The schema message at the start of a file: its fields' metadata tell whether statistics existed
/// before the data.
///
/// # Errors
/// Why there is none, in words: some writers put something unreadable there.
pub(crate) fn read_head_schema(file: &dyn ReadAt) -> std::result::Result<Vec<FileField>, String> {
    let head = read_head(file)?;
    fields::fields(parsed(&head)?.header_as_schema().ok_or("the first message is no schema")?)
}

/// The flatbuffer of a file's first message.
fn read_head(file: &dyn ReadAt) -> std::result::Result<Vec<u8>, String> {
    // The first message starts at the next multiple of the writer's alignment after the magic;
    // padding is zeros and a message is not.
    const HEAD_BYTES: u64 = 72;
    let bytes = |offset, bytes| read(file, Extent { offset, bytes }).map_err(|e| e.to_string());
    let head = bytes(0, HEAD_BYTES.min(file.size_bytes()))?;
    let start = (8..=head.len().saturating_sub(8))
        .step_by(8)
        .find(|i| head[*i..i + 8] != [0; 8])
        .ok_or("no message after the magic")?;
    let prefix = prefix_bytes(&head[start..]);
    let word = start + prefix - 4;
    let length = i32::from_le_bytes([head[word], head[word + 1], head[word + 2], head[word + 3]]);
    let length = u64::try_from(length).map_err(|_| "negative length")?;
    let offset = (start + prefix) as u64;
    if length > file.size_bytes().saturating_sub(offset) {
        return Err("the schema message ends after the file".into());
    }
    bytes(offset, length)
}

/// Bytes before a message's flatbuffer: continuation marker and length, or in old files only the
/// length.
fn prefix_bytes(message: &[u8]) -> usize {
    if message.starts_with(&CONTINUATION) { 8 } else { 4 }
}

fn message<'a>(bytes: &'a [u8]) -> std::result::Result<ipc::Message<'a>, String> {
    parsed(bytes.get(prefix_bytes(bytes)..).ok_or("no message")?)
}

/// An untrusted message, without the bytes before its flatbuffer.
pub(crate) fn parsed(flatbuffer: &[u8]) -> std::result::Result<ipc::Message<'_>, String> {
    ipc::root_as_message_with_opts(&verifier_options(flatbuffer.len()), flatbuffer)
        .map_err(|e| e.to_string())
}

/// Reads the metadata of record batch `number`, whose columns take `expected` entries.
pub(crate) fn read_batch_message(
    file: &dyn ReadAt,
    block: &Block,
    number: usize,
    expected: Footprint,
) -> Result<BatchMessage> {
    let bytes = read(file, block.header)?;
    let parse = || {
        let message = message(&bytes)?;
        let batch = message.header_as_record_batch().ok_or("the message is no record batch")?;
        batch_message(batch, block, expected)
    };
    parse().map_err(|cause| corrupt_block(file.path(), block, "record batch", number, cause))
}

/// Reads the metadata of dictionary batch `number`; `footprint` returns the entries of a
/// dictionary's values by id.
pub(crate) fn read_dictionary_message(
    file: &dyn ReadAt,
    block: &Block,
    number: usize,
    footprint: impl Fn(i64) -> std::result::Result<Footprint, String>,
) -> Result<DictionaryMessage> {
    let bytes = read(file, block.header)?;
    message(&bytes)
        .and_then(|message| dictionary_message(message, block, footprint))
        .map_err(|cause| corrupt_block(file.path(), block, "dictionary batch", number, cause))
}

/// The same for a message that was read.
pub(crate) fn dictionary_message(
    message: ipc::Message<'_>,
    block: &Block,
    footprint: impl Fn(i64) -> std::result::Result<Footprint, String>,
) -> std::result::Result<DictionaryMessage, String> {
    let batch = message.header_as_dictionary_batch().ok_or("the message is no dictionary")?;
    let data = batch.data().ok_or("the dictionary has no values")?;
    Ok(DictionaryMessage {
        id: batch.id(),
        is_delta: batch.isDelta(),
        values: batch_message(data, block, footprint(batch.id())?)?,
    })
}

fn corrupt_block(
    path: &Path,
    block: &Block,
    what: &str,
    number: usize,
    cause: String,
) -> FormatError {
    FormatError::corrupt(path, block.header.offset, format!("{what} {number}"), cause)
}

/// A batch's metadata, checked against its body and its columns.
pub(crate) fn batch_message(
    batch: ipc::RecordBatch<'_>,
    block: &Block,
    expected: Footprint,
) -> std::result::Result<BatchMessage, String> {
    let rows = rows(batch.length(), "length")?;
    let nodes = batch
        .nodes()
        .into_iter()
        .flatten()
        .map(|n| Ok(Node { rows: self::rows(n.length(), "field length")?, nulls: nulls(n)? }))
        .collect::<std::result::Result<Vec<_>, String>>()?;
    let buffers = batch
        .buffers()
        .into_iter()
        .flatten()
        .enumerate()
        .map(|(i, b)| buffer(b, block).map_err(|cause| format!("buffer {i} {cause}")))
        .collect::<std::result::Result<Vec<_>, _>>()?;
    let variadics = batch
        .variadicBufferCounts()
        .into_iter()
        .flatten()
        .map(|n| u32::try_from(n).map_err(|_| format!("{n} variadic buffers")))
        .collect::<std::result::Result<Vec<_>, _>>()?;
    let buffers_expected =
        expected.buffers as u64 + variadics.iter().map(|n| u64::from(*n)).sum::<u64>();
    let found = (nodes.len(), buffers.len() as u64, variadics.len());
    let wanted = (expected.nodes, buffers_expected, expected.variadics);
    if found != wanted {
        return Err(format!(
            "{} fields, {} buffers and {} variadic counts, where the schema asks for {}, {} and {}",
            found.0, found.1, found.2, wanted.0, wanted.1, wanted.2
        ));
    }
    Ok(BatchMessage { rows, nodes, buffers, variadics, compression: compression(batch)? })
}

fn rows(length: i64, what: &str) -> std::result::Result<u64, String> {
    match u64::try_from(length) {
        Ok(rows) if rows <= ROWS_MAX => Ok(rows),
        _ => Err(format!("{what} {length}")),
    }
}

fn nulls(node: &ipc::FieldNode) -> std::result::Result<Option<u64>, String> {
    match (node.null_count(), node.length()) {
        // The C data interface's "not computed"; some writers let it through.
        (-1, _) => Ok(None),
        (nulls, rows) if (0..=rows).contains(&nulls) => Ok(Some(nulls as u64)),
        (nulls, rows) => Err(format!("{nulls} NULLs in {rows} rows")),
    }
}

fn buffer(buffer: &ipc::Buffer, block: &Block) -> std::result::Result<Extent, String> {
    let wrong = || {
        format!(
            "lies at {} with {} bytes, outside the body of {}",
            buffer.offset(),
            buffer.length(),
            block.body.bytes
        )
    };
    let offset = u64::try_from(buffer.offset()).map_err(|_| wrong())?;
    let bytes = u64::try_from(buffer.length()).map_err(|_| wrong())?;
    match offset.checked_add(bytes) {
        Some(end) if end <= block.body.bytes => {
            Ok(Extent { offset: block.body.offset + offset, bytes })
        }
        // Where an empty buffer lies does not matter.
        _ if bytes == 0 => Ok(Extent { offset: block.body.offset, bytes: 0 }),
        _ => Err(wrong()),
    }
}

fn compression(batch: ipc::RecordBatch<'_>) -> std::result::Result<Option<Compression>, String> {
    let Some(compression) = batch.compression() else { return Ok(None) };
    if compression.method() != ipc::BodyCompressionMethod::BUFFER {
        return Err(format!("compression method {:?}", compression.method()));
    }
    Ok(Some(match compression.codec() {
        ipc::CompressionType::LZ4_FRAME => Compression::Lz4Frame,
        ipc::CompressionType::ZSTD => Compression::Zstd,
        other => return Err(format!("codec {other:?}")),
    }))
}

impl std::fmt::Display for Compression {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Lz4Frame => "LZ4",
            Self::Zstd => "ZSTD",
        })
    }
}
