//! The last race: the pieces of each bucket are brought together, sorted, and written while others are sorted.

use std::ops::Range;
use std::sync::Arc;
use std::task::{Poll, Waker};

use headrace_flow::{
    BoxError, ChunkFeed, ChunkSpec, FedChunk, FeedBounds, HostProducer, NextChunk, Outbox, Race,
    RaceOptions, ReadSpec, Verdict,
};
use headrace_io::{MemoryUse, ReadAt};

use super::partition::{Partitioned, cut};
use super::records::{Bench, Records};
use super::sizes::Sizes;
use super::work::Work;
use crate::Result;

/// Neighbouring records of the output: a chunk of the race.
#[derive(Debug, Clone)]
pub(super) enum Unit {
    /// Neighbouring buckets, and their bytes.
    Sort { partitioned: usize, buckets: Range<usize>, bytes: u64 },
    /// Equal keys, in order.
    Copy(ChunkSpec),
}

/// All records of the output, in output order.
#[derive(Debug, Default)]
pub(super) struct Units {
    partitioned: Vec<Arc<Partitioned>>,
    units: Vec<Unit>,
    /// Bytes of the largest bucket that must be sorted.
    largest_bytes: u64,
}

impl Units {
    /// The buckets of partitioned records; those that are too large for memory are partitioned
    /// again.
    pub fn add(
        &mut self,
        work: &mut Work<'_>,
        partitioned: Partitioned,
        sizes: &Sizes,
    ) -> Result<()> {
        let (number, partitioned) = (self.partitioned.len(), Arc::new(partitioned));
        self.partitioned.push(partitioned.clone());
        let in_file = partitioned.file().is_some();
        // Buckets that are gathered for a unit.
        let (mut first, mut gathered) = (0, Size::default());
        for bucket in 0..partitioned.splitters.buckets() {
            let size = Size::of(&partitioned, bucket);
            let is_single = partitioned.splitters.is_single(bucket);
            let alone_bytes = if in_file { size.slot_bytes } else { size.bytes };
            let is_large = alone_bytes > sizes.unit_bytes;
            let is_too_large =
                in_file && (is_large || !is_single && size.bytes > sizes.bucket_bytes_max);
            if is_too_large || !gathered.fits(&size, in_file, sizes.unit_bytes) {
                self.push(number, first..bucket, gathered.bytes);
                (first, gathered) = (bucket, Size::default());
            }
            if !is_too_large {
                gathered.add(&size);
                if !is_single {
                    self.largest_bytes = self.largest_bytes.max(size.bytes);
                }
                continue;
            }
            first = bucket + 1;
            let extents: Vec<ReadSpec> = partitioned.extents(number, bucket..first).collect();
            if is_single {
                let record_bytes = work.records.record_bytes() as u64;
                let chunks = cut(&extents, record_bytes, sizes.unit_bytes, sizes.unit_bytes);
                self.units.extend(chunks.into_iter().map(Unit::Copy));
            } else {
                self.divide(work, &extents, sizes)?;
            }
        }
        self.push(number, first..partitioned.splitters.buckets(), gathered.bytes);
        Ok(())
    }

    fn push(&mut self, partitioned: usize, buckets: Range<usize>, bytes: u64) {
        if bytes > 0 {
            self.units.push(Unit::Sort { partitioned, buckets, bytes });
        }
    }

    /// Partitions a bucket's records again.
    fn divide(&mut self, work: &mut Work<'_>, extents: &[ReadSpec], sizes: &Sizes) -> Result<()> {
        let files = self.files();
        let bytes = extents.iter().map(|extent| extent.bytes).sum();
        let sizes_again = Sizes { buckets: sizes.buckets_of(bytes), ..*sizes };
        let again = Partitioned::of_extents(work, &files, extents, &sizes_again, false)?;
        self.add(work, again, sizes)
    }

    /// Sorts and writes everything, on as many threads as there is memory for; `false` if there is too little for
    /// one.
    pub fn write(self, work: &mut Work<'_>, sizes: &Sizes) -> Result<bool> {
        let (records, memory) = (work.records, work.room.memory.clone());
        let bench_bytes = records.bench_bytes(self.largest_bytes as usize) as u64;
        let windows_bytes = sizes.windows as u64 * sizes.window_bytes;
        let _windows = memory.reserve(MemoryUse::Slots, windows_bytes)?;
        let threads = (1..=sizes.threads.min(self.units.len()).max(1)).rev().find_map(|threads| {
            let bytes = threads as u64 * bench_bytes;
            Some((threads, memory.reserve_free(MemoryUse::Pipelines, bytes)?))
        });
        let Some((threads, _benches)) = threads else { return Ok(false) };
        let options = RaceOptions {
            slots: sizes.slots,
            output_slots: sizes.windows,
            output_slot_bytes: sizes.window_bytes as usize,
            ..work.race()
        };
        let units = Arc::new(self);
        let feed = Feed { units: units.clone(), next: 0 };
        let race = Race::fed(Box::new(feed), units.bounds(), options, work.options.token.clone());
        let sorter = |_| Sorter {
            units: &units,
            records,
            bench: Bench::new(records, units.largest_bytes as usize),
        };
        let race = race.with_appended(vec![work.output.clone()]);
        work.run("sort", &race, (0..threads).map(sorter).collect())?;
        Ok(true)
    }

    /// The reads of a unit; none for data in memory.
    fn reads(&self, unit: &Unit) -> ChunkSpec {
        match unit {
            Unit::Copy(chunk) => chunk.clone(),
            Unit::Sort { partitioned: number, buckets, .. } => {
                let partitioned = &self.partitioned[*number];
                let reads = || partitioned.extents(*number, buckets.clone()).collect();
                ChunkSpec { reads: partitioned.file().map(|_| reads()).unwrap_or_default() }
            }
        }
    }

    /// The reads of each unit, in order.
    pub fn specs(&self) -> impl Iterator<Item = ChunkSpec> {
        self.units.iter().map(|unit| self.reads(unit))
    }

    /// The temporary files, by the numbers in reads.
    pub fn files(&self) -> Vec<Arc<dyn ReadAt>> {
        self.partitioned.iter().filter_map(|partitioned| partitioned.file().cloned()).collect()
    }

    fn bounds(&self) -> FeedBounds {
        let specs = || self.specs();
        FeedBounds {
            bytes: Some(specs().map(|spec| spec.bytes()).sum()),
            chunks: Some(self.units.len() as u64),
            slot_bytes: specs().map(|spec| spec.slot_bytes()).max().unwrap_or(0),
        }
    }
}

/// Bytes of buckets, and of the slot that they are read into.
#[derive(Debug, Clone, Copy, Default)]
struct Size {
    bytes: u64,
    slot_bytes: u64,
}

impl Size {
    fn of(partitioned: &Partitioned, bucket: usize) -> Size {
        let reads = partitioned.extents(0, bucket..bucket + 1).collect();
        let chunk = ChunkSpec { reads };
        Size { bytes: chunk.bytes(), slot_bytes: chunk.slot_bytes() as u64 }
    }

    /// Whether these and others fit a unit; an empty unit takes anything.
    fn fits(&self, more: &Size, in_file: bool, unit_bytes: u64) -> bool {
        let of = |size: &Size| if in_file { size.slot_bytes } else { size.bytes };
        // Neighbours share blocks: what they take together is not more.
        self.bytes == 0 || of(self) + of(more) <= unit_bytes
    }

    fn add(&mut self, more: &Size) {
        self.bytes += more.bytes;
        self.slot_bytes += more.slot_bytes;
    }
}

/// Delivers units as chunks.
#[derive(Debug)]
struct Feed {
    units: Arc<Units>,
    next: usize,
}

impl ChunkFeed for Feed {
    fn poll_next(&mut self, _: &Waker) -> NextChunk {
        let Some(unit) = self.units.units.get(self.next) else { return Poll::Ready(None) };
        self.next += 1;
        let reads = self.units.reads(unit).reads;
        let file = |read: &ReadSpec| self.units.partitioned[read.file].file().cloned();
        let files = reads.iter().filter_map(file).collect();
        Poll::Ready(Some(Ok(FedChunk { reads, files, ..FedChunk::default() })))
    }
}

struct Sorter<'a> {
    units: &'a Units,
    records: &'a dyn Records,
    bench: Bench,
}

impl HostProducer for Sorter<'_> {
    fn produce(
        &mut self,
        chunk: &FedChunk,
        buffers: &[&[u8]],
        outbox: &mut Outbox<'_>,
    ) -> std::result::Result<Verdict, BoxError> {
        let unit = &self.units.units[chunk.number];
        let (mut left, mut sorted) = match unit {
            Unit::Copy(spec) => (spec.bytes(), Sorted::copied(buffers)),
            Unit::Sort { partitioned, buckets, bytes } => {
                let partitioned = &self.units.partitioned[*partitioned];
                let pieces = match partitioned.file() {
                    Some(_) => buffers.to_vec(),
                    None => partitioned.slices(buckets.clone()),
                };
                let sorted =
                    Sorted::of_buckets((self.records, partitioned), buckets.clone(), pieces);
                (*bytes, sorted)
            }
        };
        while left > 0 {
            let bytes = left.min(outbox.append_bytes_max() as u64);
            let mut window = outbox.append(0, bytes as usize)?;
            sorted.fill(&mut self.bench, &mut window);
            window.send();
            left -= bytes;
        }
        Ok(Verdict::Continue)
    }
}

/// The records of a unit, bucket by bucket on demand.
struct Sorted<'a> {
    from: Option<(&'a dyn Records, &'a Partitioned)>,
    /// The next buckets, and the first of the unit.
    buckets: Range<usize>,
    first: usize,
    /// By chunk, all buckets of the unit.
    pieces: Vec<&'a [u8]>,
    /// The rest of the bench.
    on_bench: Range<usize>,
    /// Data to be delivered unchanged before it, last first.
    as_is: Vec<&'a [u8]>,
}

impl<'a> Sorted<'a> {
    fn copied(pieces: &[&'a [u8]]) -> Self {
        let as_is = pieces.iter().rev().copied().collect();
        Sorted { from: None, buckets: 0..0, first: 0, pieces: Vec::new(), on_bench: 0..0, as_is }
    }

    fn of_buckets(
        from: (&'a dyn Records, &'a Partitioned),
        buckets: Range<usize>,
        pieces: Vec<&'a [u8]>,
    ) -> Self {
        let (first, as_is) = (buckets.start, Vec::new());
        Sorted { from: Some(from), buckets, first, pieces, on_bench: 0..0, as_is }
    }

    /// The next records, which must have this many bytes.
    fn fill(&mut self, bench: &mut Bench, mut into: &mut [u8]) {
        while !into.is_empty() {
            let from = if let Some(piece) = self.as_is.last_mut() {
                let (now, later) = piece.split_at(piece.len().min(into.len()));
                *piece = later;
                if later.is_empty() {
                    self.as_is.pop();
                }
                now
            } else if !self.on_bench.is_empty() {
                let bytes = self.on_bench.len().min(into.len());
                let start = self.on_bench.start;
                self.on_bench.start += bytes;
                &bench.records[start..start + bytes]
            } else {
                self.next_bucket(bench);
                continue;
            };
            let (now, later) = into.split_at_mut(from.len());
            now.copy_from_slice(from);
            into = later;
        }
    }

    /// Sorts the next bucket.
    fn next_bucket(&mut self, bench: &mut Bench) {
        let next = self.from.zip(self.buckets.next());
        let ((records, partitioned), bucket) =
            next.expect("a unit has as many bytes as its buckets");
        let width = records.record_bytes();
        let part = |starts: &[u32], piece: &'a [u8]| -> &'a [u8] {
            let at = |bucket: usize| (starts[bucket] - starts[self.first]) as usize * width;
            &piece[at(bucket)..at(bucket + 1)]
        };
        let pieces = partitioned.starts.iter().zip(&self.pieces);
        let parts = pieces.map(|(starts, piece)| part(starts, piece));
        let parts = parts.filter(|part| !part.is_empty());
        if partitioned.splitters.is_single(bucket) {
            self.as_is = parts.collect();
            self.as_is.reverse();
            return;
        }
        let mut bytes = 0;
        for part in parts {
            bench.records[bytes..bytes + part.len()].copy_from_slice(part);
            bytes += part.len();
        }
        records.sort(bench, bytes);
        self.on_bench = 0..bytes;
    }
}
