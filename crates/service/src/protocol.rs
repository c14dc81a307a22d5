//! Frames and messages.
//!
//! A frame is the letters `HRSV`, the bytes of its head (u32) and of its body (u64), both little-endian,
//! the head as JSON, the raw body: record batches as Arrow IPC streams of one batch, ranges as pairs of
//! little-endian u32. A connection begins with a `Hello` of both sides, whose form never changes;
//! everything else belongs to one [`VERSION`].

use std::io::{self, Read, Write};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::reader::StreamDecoder;
use arrow_ipc::writer::StreamWriter;
use headrace_format::TableDescription;
use headrace_format::heap::{Block, HeapBlocks};
use headrace_ir::{CudaFunction, CudaTableFunction, Field, Program, Scalar, TableLaunch};
pub use headrace_runner::MappedPart;
use headrace_runner::{ErrorClass, Processor, RunReport, Settings};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::devices::Devices;

/// Changes whenever a message changes.
pub const VERSION: u32 = 9;

/// Batches of rows that a client may have sent and the run has not taken.
pub const WINDOW_BATCHES: usize = 8;

const MAGIC: [u8; 4] = *b"HRSV";
const PREFIX_BYTES: usize = 16;

/// Fits a program with long lists.
const HEAD_BYTES_MAX: u32 = 64 << 20;

/// Fits a batch with texts of maximum length, and more.
const BODY_BYTES_MAX: u64 = 4 << 30;

/// Memory allocated for a body before its bytes arrive.
const BODY_BYTES_EARLY: u64 = 4 << 20;

/// A client's messages.
#[derive(Debug, Serialize, Deserialize)]
pub enum Ask {
    /// The first message.
    Hello(Hello),
    /// A request for the GPUs. Answered by [`Reply::Devices`].
    Devices,
    /// What the service is doing. Answered by [`Reply::Status`].
    Status,
    /// Where a stage would run. Answered by [`Reply::Placed`].
    Place(Box<Place>),
    /// Keeps a table in the memory of a GPU. Answered by [`Reply::Tables`].
    Keep(Files),
    /// Lets a kept table go, by its name. Answered by [`Reply::Tables`].
    Release(String),
    /// A function in CUDA: does it compile?
    CheckFunction(Box<CudaFunction>),
    /// A kept table is to be mapped: columns by name, or all. Answered by [`Reply::Mapped`]; the connection is the lease.
    Map {
        /// The table.
        table: String,
        /// The columns.
        columns: Vec<String>,
    },
    /// A run. Over heaps, the body has the listed block ranges of all of them, first and end of each. The batches of
    /// the other tables follow.
    Run(Box<Run>),
    /// Rows of another table, by its number behind those of files or heaps.
    Batch(usize),
    /// A function of a table is to be called. Rows follow, and [`Ask::Launch`]; answered as a run is.
    Call(Box<TableCall>),
    /// There are no more rows of the table: the call begins.
    Launch(TableLaunch),
    /// The answer to a question: a byte per block.
    Held {
        /// The question's number.
        question: u64,
    },
    /// Rows that the client read.
    Rows,
    /// There are no more rows.
    EndOfRows,
}

/// The service's messages.
#[derive(Debug, Serialize, Deserialize)]
pub enum Reply {
    /// The answer to the client's.
    Hello(Hello),
    /// The service rejects this client, with the reason.
    Refused(String),
    /// The GPUs.
    Devices(Devices),
    /// What the service is doing.
    Status(Box<Status>),
    /// The tables that are kept.
    Tables(Vec<KeptTable>),
    /// How columns are mapped.
    Mapped(Mapped),
    /// A GPU runs it, or why not.
    Placed(Result<(), String>),
    /// It compiles, or the compiler's words.
    Checked(Result<(), String>),
    /// Do consecutive blocks still hold?
    Holds {
        /// The question's number.
        question: u64,
        /// The first block.
        first: Block,
        /// Their number.
        blocks: u32,
    },
    /// The client must read this block.
    Reroute {
        /// The block.
        block: Block,
        /// The reason.
        why: String,
    },
    /// This many more blocks are done.
    Done(u32),
    /// This many more batches of rows were taken.
    Taken(usize),
    /// A part of the answer.
    Batch,
    /// The answer is complete.
    Finished(Box<Finished>),
    /// There is no answer.
    Failed {
        /// The kind of failure.
        class: ErrorClass,
        /// In words.
        message: String,
        /// The type and the place of a value that did not fit, which doors have words of their own for.
        overflow: Option<(String, String)>,
    },
}

/// What the service is doing.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Status {
    /// Its process.
    pub pid: u32,
    /// The data directory.
    pub folder: PathBuf,
    /// Since it started.
    pub uptime_s: u64,
    /// What runs pipelines.
    pub processor: Processor,
    /// Runs so far, and those under way.
    pub runs: u64,
    /// Runs that are under way or wait for their turn.
    pub runs_open: usize,
    /// Tables of files that it knows.
    pub tables: usize,
    /// Seconds without a session after which it ends; 0: never.
    pub idle_exit_s: u32,
    /// Columns in the memory of its GPUs.
    pub resident_bytes: u64,
    /// Tables that are kept there.
    pub kept: Vec<KeptTable>,
    /// The GPUs.
    pub devices: Devices,
}

/// A table that is kept in the memory of a GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptTable {
    /// Its name.
    pub name: String,
    /// The columns that are there.
    pub columns: Vec<String>,
    /// Those that cannot be: texts, and what is packed in its file. Queries bring them as they do for any table.
    pub others: Vec<String>,
    /// Its rows.
    pub rows: u64,
    /// Device memory that it takes.
    pub bytes: u64,
    /// Processes that have mapped it.
    pub readers: u64,
    /// Why it is not what its files are, if it is not.
    pub stale: Option<String>,
}

/// Columns for a process that maps them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Mapped {
    /// The identity of the GPU, `GPU-..`.
    pub gpu: String,
    /// The columns.
    pub columns: Vec<MappedColumn>,
}

/// A column for a process that maps it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MappedColumn {
    /// Its name and type.
    pub field: Field,
    /// Its parts, in the order of the rows.
    pub parts: Vec<MappedPart>,
}

/// The identity of a side.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Hello {
    /// [`VERSION`].
    pub protocol: u32,
    /// Version of the program.
    pub library: String,
}

impl Hello {
    /// The version of this program.
    pub fn own() -> Self {
        Self { protocol: VERSION, library: env!("CARGO_PKG_VERSION").into() }
    }

    /// Whether the other side has this version, or why not.
    ///
    /// # Errors
    /// Both versions in words.
    pub fn check(&self) -> Result<(), String> {
        match self.protocol == VERSION {
            true => Ok(()),
            false => Err(format!(
                "the other side is Headrace {} with protocol {}, this one {} with protocol {VERSION}",
                self.library,
                self.protocol,
                env!("CARGO_PKG_VERSION")
            )),
        }
    }
}

/// A run request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Run {
    /// The program.
    pub program: Program,
    /// A value for each of its parameters.
    pub parameters: Vec<Scalar>,
    /// Its first tables.
    pub tables: Tables,
    /// The number of batches that follow for each table behind those.
    pub batches: Vec<usize>,
    /// How it is run.
    pub settings: Settings,
    /// Runs of one session do not wait for each other's turns; `None`: it has no others.
    pub session: Option<u32>,
}

/// A call of a function of a table.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TableCall {
    /// The function.
    pub function: CudaTableFunction,
    /// A value for each of its parameters.
    pub parameters: Vec<Scalar>,
    /// How long the code may run, in milliseconds.
    pub timeout_ms: u64,
    /// As that of a [`Run`].
    pub session: Option<u32>,
}

/// The tables of a program.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Tables {
    /// Heaps, which are one table.
    Heaps(Heaps),
    /// Each is of Arrow files.
    Files(Vec<Files>),
}

/// A table of Arrow files under its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Files {
    /// The name by which programs, EXPLAIN and errors know it.
    pub name: String,
    /// How it is opened.
    pub description: TableDescription,
}

/// The blocks of a table.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Heaps {
    /// The heaps, whose files are named relative to the data directory. The listed ranges travel
    /// separately.
    pub heaps: Vec<HeapBlocks>,
    /// The number of ranges of each heap.
    pub ranges: Vec<usize>,
    /// Whether data that is read may stay in the page cache.
    pub fills_page_cache: bool,
}

/// A question: would a GPU run this stage of a program over files?
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Place {
    /// The program.
    pub program: Program,
    /// The stage.
    pub stage: usize,
    /// Its tables.
    pub tables: Vec<Files>,
    /// How it is run.
    pub settings: Settings,
}

/// The report of a successful run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Finished {
    /// The runner's report.
    pub report: RunReport,
    /// The GPU, if one ran it.
    pub device: Option<String>,
    /// Its time in the queue, in milliseconds.
    pub queued_ms: f64,
    /// Bytes of tables that the GPUs may cache.
    pub device_cache_bytes: u64,
}

/// A violation of the protocol by the other side.
#[derive(Debug, thiserror::Error)]
pub enum ProtocolError {
    /// The connection is lost.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It ended within a frame, or before a required frame.
    #[error("the connection ended within a message")]
    Truncated,
    /// The peer does not speak this protocol.
    #[error("a frame begins with {0:02x?}")]
    Magic([u8; 4]),
    /// A frame that our programs never send.
    #[error("a {part} of {bytes} bytes; at most {max_bytes} are taken")]
    Oversized {
        /// The part.
        part: &'static str,
        /// Its value.
        bytes: u64,
        /// The limit.
        max_bytes: u64,
    },
    /// A head that is not a message.
    #[error("a head cannot be read: {0}")]
    Head(#[from] serde_json::Error),
    /// A body that does not match its head.
    #[error("a body cannot be read: {0}")]
    Body(String),
    /// An unexpected message.
    #[error("{0}")]
    Unexpected(String),
}

/// A message and its body.
#[derive(Debug)]
pub struct Frame<M> {
    /// The message.
    pub head: M,
    /// Its body, usually empty.
    pub body: Vec<u8>,
}

/// Writes a frame.
///
/// # Errors
/// The connection is lost; or the message is larger than the other side accepts, and nothing was
/// written.
pub fn write<M: Serialize>(
    writer: &mut impl Write,
    head: &M,
    body: &[u8],
) -> Result<(), ProtocolError> {
    let head = serde_json::to_vec(head)?;
    let (head_bytes, body_bytes) = (head.len() as u64, body.len() as u64);
    check_lengths(head_bytes, body_bytes)?;
    let mut start = Vec::with_capacity(PREFIX_BYTES + head.len());
    start.extend(MAGIC);
    // Checked to be less.
    start.extend((head_bytes as u32).to_le_bytes());
    start.extend(body_bytes.to_le_bytes());
    start.extend(head);
    writer.write_all(&start)?;
    writer.write_all(body)?;
    Ok(())
}

fn check_lengths(head_bytes: u64, body_bytes: u64) -> Result<(), ProtocolError> {
    let parts =
        [("head", head_bytes, u64::from(HEAD_BYTES_MAX)), ("body", body_bytes, BODY_BYTES_MAX)];
    match parts.into_iter().find(|(_, bytes, max_bytes)| bytes > max_bytes) {
        Some((part, bytes, max_bytes)) => Err(ProtocolError::Oversized { part, bytes, max_bytes }),
        None => Ok(()),
    }
}

/// Reads a frame; `None` if the connection ended before it.
///
/// # Errors
/// [`ProtocolError`]: nothing can be read after it.
pub fn read<M: DeserializeOwned>(
    reader: &mut impl Read,
) -> Result<Option<Frame<M>>, ProtocolError> {
    let prefix = take(reader, PREFIX_BYTES as u64)?;
    let Some((magic, lengths)) = prefix.split_first_chunk::<4>() else {
        return if prefix.is_empty() { Ok(None) } else { Err(ProtocolError::Truncated) };
    };
    if *magic != MAGIC {
        return Err(ProtocolError::Magic(*magic));
    }
    let (Some((head, rest)), true) =
        (lengths.split_first_chunk::<4>(), prefix.len() == PREFIX_BYTES)
    else {
        return Err(ProtocolError::Truncated);
    };
    let body = rest.first_chunk::<8>().ok_or(ProtocolError::Truncated)?;
    let (head_bytes, body_bytes) = (u32::from_le_bytes(*head).into(), u64::from_le_bytes(*body));
    check_lengths(head_bytes, body_bytes)?;
    let (head, body) = (take(reader, head_bytes)?, take(reader, body_bytes)?);
    if (head.len() as u64, body.len() as u64) != (head_bytes, body_bytes) {
        return Err(ProtocolError::Truncated);
    }
    Ok(Some(Frame { head: serde_json::from_slice(&head)?, body }))
}

/// This many bytes, or fewer at the end. Memory grows with the received bytes, not with the
/// announced ones.
fn take(reader: &mut impl Read, bytes: u64) -> Result<Vec<u8>, ProtocolError> {
    let mut taken = vec![0; bytes.min(BODY_BYTES_EARLY) as usize];
    let mut filled = 0;
    // No read for no bytes: it would wait for some.
    while filled < taken.len() {
        match reader.read(&mut taken[filled..]) {
            Ok(0) => {
                taken.truncate(filled);
                break;
            }
            Ok(read) => filled += read,
            Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
            Err(cause) => return Err(cause.into()),
        }
        if filled == taken.len() {
            let more = (bytes - filled as u64).min(filled as u64);
            taken.resize(filled + more as usize, 0);
        }
    }
    Ok(taken)
}

/// A batch as a body.
///
/// # Errors
/// Arrow cannot write it.
pub fn encode_batch(batch: &RecordBatch) -> Result<Vec<u8>, ProtocolError> {
    let broken = |error: arrow_schema::ArrowError| ProtocolError::Body(error.to_string());
    let bytes = Vec::with_capacity(batch.get_array_memory_size() + 4096);
    let mut writer = StreamWriter::try_new(bytes, &batch.schema()).map_err(broken)?;
    writer.write(batch).map_err(broken)?;
    writer.into_inner().map_err(broken)
}

/// The one batch of a body. Its arrays lie in the body's memory.
///
/// # Errors
/// The body is not one batch, or not a valid one.
pub fn decode_batch(body: Vec<u8>) -> Result<RecordBatch, ProtocolError> {
    let decode = || {
        let (mut decoder, mut buffer) = (StreamDecoder::new(), Buffer::from_vec(body));
        let batch = decoder.decode(&mut buffer)?;
        match (batch, decoder.decode(&mut buffer)?) {
            (Some(batch), None) if buffer.is_empty() => Ok(batch),
            _ => Err(arrow_schema::ArrowError::IpcError("it is not one batch".into())),
        }
    };
    // Offsets that point out of the body are a panic of the library.
    let decoded = catch_unwind(AssertUnwindSafe(decode));
    let decoded = decoded.map_err(|_| ProtocolError::Body("its offsets contradict it".into()))?;
    decoded.map_err(|error| ProtocolError::Body(error.to_string()))
}

/// Ranges as a body: first and end of each.
pub fn encode_ranges(ranges: &[Range<u32>]) -> Vec<u8> {
    let numbers = ranges.iter().flat_map(|range| [range.start, range.end]);
    numbers.flat_map(u32::to_le_bytes).collect()
}

/// The ranges of a body.
///
/// # Errors
/// Its length.
pub fn decode_ranges(body: &[u8]) -> Result<Vec<Range<u32>>, ProtocolError> {
    let (ranges, []) = body.as_chunks::<8>() else {
        return Err(ProtocolError::Body(format!("{} bytes are no ranges", body.len())));
    };
    let range = |bytes: &[u8; 8]| {
        let both = u64::from_le_bytes(*bytes);
        both as u32..(both >> 32) as u32
    };
    Ok(ranges.iter().map(range).collect())
}

#[cfg(test)]
mod tests;
