//! The first race: each chunk's records are partitioned into buckets as they arrive, independently
//! of other chunks.
//!
//! ```text
//! chunk 0 │ bucket 0 │ bucket 1 │ bucket 2 │      in memory, or in a temporary file
//! chunk 1 │ bucket 0 │ bucket 1 │ bucket 2 │      ▲ chunks stay in the order of the input
//!           └──────────────┴ a bucket is its pieces of all chunks: so equal keys stay in order, too
//! ```
//!
//! No chunk waits for another, and no bucket's size must be known in advance; neighbouring buckets of a chunk are one
//! extent.

use std::ops::Range;
use std::sync::Arc;

use headrace_flow::{
    BoxError, ChunkSpec, HostProducer, Outbox, OutputSpec, Race, RaceOptions, ReadSpec, Verdict,
};
use headrace_io::write::WriteAt;
use headrace_io::{AlignedBuffer, EXTENT_ALIGN_BYTES, MemoryUse, Placement, ReadAt, Reservation};

use super::records::Records;
use super::sample::sample;
use super::sizes::Sizes;
use super::splitters::Splitters;
use super::work::Work;
use crate::Result;

/// Records in buckets.
#[derive(Debug)]
pub(super) struct Partitioned {
    pub splitters: Splitters,
    /// By chunk: records before each bucket, and in total.
    pub starts: Vec<Box<[u32]>>,
    /// By chunk: its offset.
    offsets: Vec<u64>,
    record_bytes: u64,
    place: Place,
    _reserved: Reservation,
}

#[derive(Debug)]
enum Place {
    Memory(AlignedBuffer, #[allow(dead_code)] Reservation),
    /// Readable until it is dropped.
    File {
        file: Arc<dyn ReadAt>,
        _written: Arc<dyn WriteAt>,
    },
}

impl Partitioned {
    /// Partitions the records of extents by sampled splitters: in memory, or into a temporary file.
    pub fn of_extents(
        work: &mut Work<'_>,
        files: &[Arc<dyn ReadAt>],
        extents: &[ReadSpec],
        sizes: &Sizes,
        in_memory: bool,
    ) -> Result<Partitioned> {
        let bytes = extents.iter().map(|extent| extent.bytes).sum();
        let mut keys = sample(work, files, extents)?;
        work.planned();
        let splitters = Splitters::of_sample(&mut keys, sizes.buckets, work.records.key_max());
        drop(keys);
        let record_bytes = work.records.record_bytes() as u64;
        let chunks = cut(extents, record_bytes, sizes.chunk_bytes, sizes.slot_bytes());
        let align = if in_memory { 1 } else { EXTENT_ALIGN_BYTES as u64 };
        let (offsets, all_bytes) = offsets(&chunks, align);
        let memory = &work.room.memory;
        let starts_bytes = chunks.len() as u64 * (4 * (splitters.buckets() as u64 + 1) + 64);
        let reserved = memory.reserve(MemoryUse::Pipelines, starts_bytes)?;
        let target = match in_memory {
            true => {
                let reserved = memory.reserve(MemoryUse::Pipelines, bytes)?;
                Target::Memory(AlignedBuffer::allocate(bytes as usize)?, reserved)
            }
            false => Target::File(work.temporary(all_bytes)?),
        };
        let starts = partition(work, (files, chunks), sizes, &splitters, (&target, &offsets))?;
        let place = match target {
            Target::Memory(array, reserved) => Place::Memory(array, reserved),
            Target::File(written) => {
                let file = work.options.files.read_back(written.sink())?;
                // All that is read from now on.
                work.reads_temporary = true;
                Place::File { file, _written: written }
            }
        };
        Ok(Partitioned { splitters, starts, offsets, record_bytes, place, _reserved: reserved })
    }

    /// The temporary file.
    pub fn file(&self) -> Option<&Arc<dyn ReadAt>> {
        match &self.place {
            Place::Memory(..) => None,
            Place::File { file, .. } => Some(file),
        }
    }

    /// The location of some buckets of each chunk.
    pub fn extents(&self, file: usize, buckets: Range<usize>) -> impl Iterator<Item = ReadSpec> {
        self.starts.iter().zip(&self.offsets).map(move |(starts, offset)| {
            let before = u64::from(starts[buckets.start]);
            let records = u64::from(starts[buckets.end]) - before;
            let offset = offset + before * self.record_bytes;
            ReadSpec { file, offset, bytes: records * self.record_bytes }
        })
    }

    /// By chunk, its records of some buckets; empty if they are in a file.
    pub fn slices(&self, buckets: Range<usize>) -> Vec<&[u8]> {
        let Place::Memory(array, _) = &self.place else { return Vec::new() };
        let slice =
            |ReadSpec { offset, bytes, .. }| &array.as_slice()[offset as usize..][..bytes as usize];
        self.extents(0, buckets).map(slice).collect()
    }
}

/// The destination of partitioned chunks.
enum Target {
    Memory(AlignedBuffer, Reservation),
    File(Arc<dyn WriteAt>),
}

/// Runs the race; returns for each chunk the number of records before each bucket.
fn partition(
    work: &mut Work<'_>,
    (files, chunks): (&[Arc<dyn ReadAt>], Vec<ChunkSpec>),
    sizes: &Sizes,
    splitters: &Splitters,
    (target, offsets): (&Target, &[u64]),
) -> Result<Vec<Box<[u32]>>> {
    let (records, memory) = (work.records, work.room.memory.clone());
    let threads = sizes.threads.min(chunks.len()).max(1);
    let ids_bytes = sizes.ids_bytes(records);
    let _ids = memory.reserve(MemoryUse::Pipelines, threads as u64 * ids_bytes)?;
    let (array, sinks, name) = match target {
        Target::Memory(array, _) => (Some(Array(array.as_ptr())), Vec::new(), "read"),
        Target::File(file) => (None, vec![file.clone()], "partition"),
    };
    let windows = if sinks.is_empty() { 0 } else { threads + 2 };
    let _windows = memory.reserve(MemoryUse::Slots, windows as u64 * sizes.slot_bytes())?;
    let options = RaceOptions {
        slots: threads + 2,
        output_slots: windows,
        output_slot_bytes: sizes.slot_bytes() as usize,
        ..work.race()
    };
    let race = Race::new(files.to_vec(), chunks, options, work.options.token.clone())?;
    let partitioner = |_| Partitioner {
        records,
        splitters,
        offsets,
        array,
        ids: vec![0; (ids_bytes / 2) as usize],
        starts: Vec::new(),
    };
    let partitioners = (0..threads).map(partitioner).collect();
    let partitioners = work.run(name, &race.with_outputs(sinks), partitioners)?;
    let mut starts: Vec<_> = partitioners.into_iter().flat_map(|done| done.starts).collect();
    starts.sort_unstable_by_key(|(chunk, _)| *chunk);
    Ok(starts.into_iter().map(|(_, starts)| starts).collect())
}

/// The memory of all records; each chunk has its own part.
#[derive(Clone, Copy)]
struct Array(*mut u8);

// SAFETY: the parts that partitioners write do not overlap, and nobody reads before the race has ended.
unsafe impl Send for Array {}

struct Partitioner<'a> {
    records: &'a dyn Records,
    splitters: &'a Splitters,
    /// By chunk: its offset, in the array or in the sink.
    offsets: &'a [u64],
    array: Option<Array>,
    ids: Vec<u16>,
    starts: Vec<(usize, Box<[u32]>)>,
}

impl HostProducer for Partitioner<'_> {
    fn produce(
        &mut self,
        chunk: usize,
        pieces: &[&[u8]],
        outbox: &mut Outbox<'_>,
    ) -> std::result::Result<Verdict, BoxError> {
        let bytes: usize = pieces.iter().map(|piece| piece.len()).sum();
        let offset = self.offsets[chunk];
        let starts = match self.array {
            Some(Array(start)) => {
                // SAFETY: the array has room for all chunks one after the other, and the offsets say where each
                // begins; a chunk is handed to one consumer, once.
                let into =
                    unsafe { std::slice::from_raw_parts_mut(start.add(offset as usize), bytes) };
                self.records.partition(pieces, self.splitters, &mut self.ids, into)
            }
            None => {
                let to = OutputSpec { sink: 0, offset, bytes: bytes as u64 };
                let mut into = outbox.buffer(to)?;
                let starts =
                    self.records.partition(pieces, self.splitters, &mut self.ids, &mut into);
                into.send();
                starts
            }
        };
        self.starts.push((chunk, starts));
        Ok(Verdict::Continue)
    }
}

/// Chunks of up to `chunk_bytes` bytes of whole records, which fit a slot: all of the extents, in order.
pub(super) fn cut(
    extents: &[ReadSpec],
    record_bytes: u64,
    chunk_bytes: u64,
    slot_bytes: u64,
) -> Vec<ChunkSpec> {
    let mut chunks: Vec<ChunkSpec> = Vec::new();
    // What the last of them has room for, of records and of its slot.
    let (mut room, mut slot_room) = (0, 0);
    for extent in extents {
        let mut left = *extent;
        while left.bytes > 0 {
            let head_bytes = left.offset % EXTENT_ALIGN_BYTES as u64;
            let behind = (slot_room / EXTENT_ALIGN_BYTES as u64 * EXTENT_ALIGN_BYTES as u64)
                .saturating_sub(head_bytes);
            let bytes = left.bytes.min(room).min(behind) / record_bytes * record_bytes;
            if bytes == 0 {
                assert!(
                    chunks.last().is_none_or(|chunk| !chunk.reads.is_empty()),
                    "an empty chunk"
                );
                chunks.push(ChunkSpec::default());
                (room, slot_room) = (chunk_bytes, slot_bytes);
                continue;
            }
            let read = ReadSpec { bytes, ..left };
            room -= bytes;
            slot_room -= Placement::of(read.offset, bytes).window_bytes as u64;
            if let Some(chunk) = chunks.last_mut() {
                chunk.reads.push(read);
            }
            left = ReadSpec { offset: left.offset + bytes, bytes: left.bytes - bytes, ..left };
        }
    }
    chunks
}

/// The offset of each chunk if they are consecutive, each at a multiple of `align`; and the end of all.
fn offsets(chunks: &[ChunkSpec], align: u64) -> (Vec<u64>, u64) {
    let mut end = 0;
    let offsets = chunks.iter().map(|chunk| {
        let offset = end;
        end = (end + chunk.bytes()).next_multiple_of(align);
        offset
    });
    (offsets.collect(), end)
}
