//! What driver and consumers share.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use crossbeam_channel::Sender;
use headrace_io::{FedChunk, MappedFile, ReadAt, Window};
use parking_lot::Mutex;

use super::event::Event;
use crate::cache::Cached;
use crate::outbox::OutputRing;
use crate::stop::Stop;
use crate::work_queue::WorkQueue;
use crate::{BytesByPath, Race};

/// The location of a chunk's buffer.
pub(super) enum Place {
    Nothing,
    Memory(Arc<dyn ReadAt>),
    Mapped(Arc<MappedFile>),
    Cached(Cached),
    /// Exactly the wanted bytes, in a slot.
    Slot(Window),
}

/// A chunk whose bytes are all in memory.
pub(super) struct Ready<P> {
    pub chunk: FedChunk<P>,
    pub slot: Option<usize>,
    pub places: Vec<Place>,
    /// By access path, once it is consumed.
    pub bytes: BytesByPath,
}

/// The shared state of driver and consumers.
pub(super) struct Shared<'a, P> {
    pub race: &'a Race<P>,
    pub start: Instant,
    pub stop: Stop,
    pub queue: WorkQueue<Ready<P>>,
    pub events: Sender<Event>,
    /// Output memory, if the race has sinks.
    pub outputs: Option<OutputRing>,
    pub patient_max: usize,
    pub meter: Meter,
}

#[derive(Default)]
pub(super) struct Meter {
    pub first_chunk_ns: AtomicU64,
    pub busy_ns: AtomicU64,
    pub wait_ns: AtomicU64,
    pub output_wait_ns: AtomicU64,
    pub consumed: Mutex<(u64, BytesByPath)>,
    pub enough: AtomicU64,
}
