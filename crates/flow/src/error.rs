//! Why a race ended without an answer.

use headrace_io::{BoxError, IoError, OutOfBudget};

use crate::{AccessPath, WriteAccess};

/// The first error of a race.
#[derive(Debug, thiserror::Error)]
pub enum RaceError {
    /// A chunk could not be read; the cause names file and offset.
    #[error("chunk {chunk} could not be read: {source}")]
    Read {
        /// The chunk.
        chunk: usize,
        /// File, offset and cause.
        source: IoError,
    },
    /// A file is no longer the one that was opened; all results are invalid.
    #[error(transparent)]
    Changed(IoError),
    /// Memory or threads were not available at start-up.
    #[error(transparent)]
    StartUp(IoError),
    /// The memory budget has no room for a single slot.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfBudget),
    /// The producer of the chunks failed.
    #[error("the next chunk could not be had: {source}")]
    Feed {
        /// Its message.
        source: BoxError,
    },
    /// A chunk names a file that the race does not have, or an extent outside of it.
    #[error("chunk {chunk}, buffer {buffer}: {what}")]
    BadChunk {
        /// The chunk.
        chunk: usize,
        /// Index of the read in the chunk.
        buffer: usize,
        /// The problem.
        what: String,
    },
    /// A chunk's output names a sink that the race does not have, or a place outside of it, or
    /// is too large.
    #[error("chunk {chunk}, output: {what}")]
    BadOutput {
        /// The chunk.
        chunk: usize,
        /// The problem.
        what: String,
    },
    /// A chunk's output could not be written; the cause names file and offset.
    #[error("the output of chunk {chunk} could not be written: {source}")]
    Write {
        /// The chunk.
        chunk: usize,
        /// File, offset and cause.
        source: IoError,
    },
    /// A chunk does not fit a slot.
    #[error(
        "chunk {chunk} needs a slot of {needed_bytes} bytes, slots have {slot_bytes}; \
         choose smaller chunks or larger slots"
    )]
    ChunkTooLarge {
        /// The chunk.
        chunk: usize,
        /// Bytes needed.
        needed_bytes: usize,
        /// Bytes there are.
        slot_bytes: usize,
    },
    /// A write path was forced that a sink, or the kernel, does not offer.
    #[error("writing by {access:?} was forced and cannot be had for {sink}: {reason}")]
    WriteUnavailable {
        /// The path.
        access: WriteAccess,
        /// The sink.
        sink: String,
        /// The reason.
        reason: String,
    },
    /// A path was forced that a file, or the kernel, does not offer.
    #[error("access path {access:?} was forced and cannot be had for {file}: {reason}")]
    PathUnavailable {
        /// The path.
        access: AccessPath,
        /// The file.
        file: String,
        /// The reason.
        reason: String,
    },
    /// A consumer failed.
    #[error("chunk {chunk}: {source}")]
    Consumer {
        /// The chunk it was given.
        chunk: usize,
        /// Its message.
        source: BoxError,
    },
    /// A consumer or a device lane panicked.
    #[error("panic while working on {}: {message}", chunk.map_or_else(|| "the race".to_string(), |c| format!("chunk {c}")))]
    Panic {
        /// The chunk, if it is known.
        chunk: Option<usize>,
        /// The panic's message.
        message: String,
    },
    /// The device failed.
    #[error("{stage}{}: {source}", chunk.map_or_else(String::new, |c| format!(" of chunk {c}")))]
    Device {
        /// The chunk, if the failure concerns one.
        chunk: Option<usize>,
        /// The failed operation ("copy to the device", "launch").
        stage: &'static str,
        /// The lane's message.
        source: BoxError,
    },
    /// The race was cancelled.
    #[error("cancelled")]
    Cancelled,
    /// There are no consumers.
    #[error("a race needs at least one consumer")]
    NoConsumer,
}
