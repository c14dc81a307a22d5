//! The division of memory.
//!
//! ```text
//! one pass     all records                       | read: slots, numbers   then   windows, benches
//! two passes   records before each bucket (1/8)  | read: slots, windows, numbers (3/4)
//!                                                | then: slots (1/2), benches (1/4), windows (1/10)
//! ```

use headrace_io::EXTENT_ALIGN_BYTES;

use super::records::Records;
use super::splitters::BUCKETS_MAX;

/// Bytes of a bucket for the fastest sort: with as much spare memory it fits in a core's own cache.
const BUCKET_BYTES: u64 = 512 << 10;

/// The largest chunk if all records fit.
const CHUNK_BYTES: u64 = 8 << 20;

/// The smallest chunk of a file that will be read again: smaller ones would make too many pieces.
const CHUNK_BYTES_MIN: u64 = 64 << 10;

/// The largest chunk that is written to a temporary file.
const SPILLED_CHUNK_BYTES: u64 = 64 << 20;

/// Minimum average bytes per chunk and bucket in a temporary file: smaller reads waste their blocks.
const PIECE_BYTES: u64 = 16 << 10;

/// Maximum bytes of an output window.
const WINDOW_BYTES: u64 = 1 << 20;

/// Memory below which another thread does not help.
const THREAD_BYTES: u64 = 1 << 20;

/// Maximum widening of an extent when it is read.
const WIDENED_BYTES: u64 = 2 * EXTENT_ALIGN_BYTES as u64;

/// The sizes of a sort.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sizes {
    /// Threads that work.
    pub threads: usize,
    /// Whole records that are partitioned at once.
    pub chunk_bytes: u64,
    /// Target number of buckets.
    pub buckets: usize,
    /// A larger bucket is partitioned again, if it is read from a file.
    pub bucket_bytes_max: u64,
    /// Slots of the race that reads the input, and of the one that reads buckets.
    pub slots: usize,
    /// Bytes of a slot for buckets.
    pub unit_bytes: u64,
    /// Windows for sorted records.
    pub windows: usize,
    /// Bytes of such a window.
    pub window_bytes: u64,
}

impl Sizes {
    /// Bytes of a slot for a chunk of the input, or of its output.
    pub fn slot_bytes(&self) -> u64 {
        self.chunk_bytes.next_multiple_of(EXTENT_ALIGN_BYTES as u64) + WIDENED_BYTES
    }

    /// Number of parts for a bucket of this size, which was too large.
    pub fn buckets_of(&self, bytes: u64) -> usize {
        let wanted = bytes.div_ceil(BUCKET_BYTES.min(self.bucket_bytes_max / 2).max(1));
        buckets(wanted.min(self.buckets as u64))
    }

    /// Bytes for the bucket numbers of a chunk's records.
    pub fn ids_bytes(&self, records: &dyn Records) -> u64 {
        self.chunk_bytes / records.record_bytes() as u64 * 2
    }

    /// Bytes for the number of records before each bucket of each chunk of the input.
    pub fn starts_bytes(&self, input_bytes: u64) -> u64 {
        input_bytes.div_ceil(self.chunk_bytes) * (4 * (self.buckets as u64 + 1) + 64)
    }

    /// Sizes if all records are kept in memory, and they fit.
    pub fn of_one_pass(
        records: &dyn Records,
        input_bytes: u64,
        limit_bytes: u64,
        threads: usize,
        chunk_bytes: Option<usize>,
    ) -> Option<Sizes> {
        let record_bytes = records.record_bytes() as u64;
        let shared = (input_bytes / (4 * threads as u64)).max(64 << 10);
        let asked = |bytes| (bytes as u64).max(CHUNK_BYTES_MIN);
        let most = chunk_bytes.map_or(CHUNK_BYTES, asked).min(shared);
        let fits = |shift: u32| {
            let sizes = Sizes {
                threads,
                chunk_bytes: ((most >> shift) / record_bytes).max(1) * record_bytes,
                buckets: buckets(input_bytes.div_ceil(BUCKET_BYTES)),
                bucket_bytes_max: u64::MAX,
                slots: threads + 2,
                unit_bytes: WINDOW_BYTES,
                windows: 3 * threads + 2,
                window_bytes: WINDOW_BYTES,
            };
            let of_thread = sizes.slot_bytes() + sizes.ids_bytes(records);
            let reading = 2 * sizes.slot_bytes() + threads as u64 * of_thread;
            let bench = records.bench_bytes(2 * BUCKET_BYTES as usize) as u64;
            let writing = sizes.windows as u64 * sizes.window_bytes + threads as u64 * bench;
            let all = input_bytes + sizes.starts_bytes(input_bytes) + reading.max(writing);
            (all <= limit_bytes).then_some(sizes)
        };
        (0..=3).find_map(fits)
    }

    /// Sizes if partitioned records go to a temporary file: on as many threads as have room for a bucket each, since
    /// partitioning every bucket again takes longer than running fewer threads. If none has, on all.
    pub fn of_two_passes(
        records: &dyn Records,
        input_bytes: u64,
        limit_bytes: u64,
        threads: usize,
        chunk_bytes: Option<usize>,
    ) -> Sizes {
        let most = most_threads(limit_bytes, threads);
        let on =
            |threads| Self::on_threads(records, input_bytes, limit_bytes, threads, chunk_bytes);
        let fits = |sizes: &Sizes| {
            let bucket_bytes = input_bytes / sizes.buckets as u64;
            bucket_bytes + bucket_bytes / 4 <= sizes.bucket_bytes_max.min(sizes.unit_bytes)
        };
        (1..=most).rev().map(on).find(fits).unwrap_or_else(|| on(most))
    }

    /// Sizes if partitioned records go to a temporary file and come back in parts of at most `part_bytes`, which
    /// others sort.
    pub fn of_parts(
        records: &dyn Records,
        (input_bytes, part_bytes): (u64, u64),
        limit_bytes: u64,
        threads: usize,
        chunk_bytes: Option<usize>,
    ) -> Sizes {
        let threads = most_threads(limit_bytes, threads);
        let sizes = Self::on_threads(records, input_bytes, limit_bytes, threads, chunk_bytes);
        // Parts are gathered of buckets: many small ones fill them.
        let enough = (16 * input_bytes / part_bytes) as usize + 16;
        Sizes {
            unit_bytes: part_bytes,
            bucket_bytes_max: u64::MAX,
            buckets: sizes.buckets.min(enough),
            ..sizes
        }
    }

    fn on_threads(
        records: &dyn Records,
        input_bytes: u64,
        limit_bytes: u64,
        threads: usize,
        chunk_bytes: Option<usize>,
    ) -> Sizes {
        let threads = threads as u64;
        let record_bytes = records.record_bytes() as u64;
        // Slots and windows for each thread and two more, and half a chunk of numbers.
        let shares = 2 * (threads + 2) + threads.div_ceil(2);
        let most = (limit_bytes / 4 * 3 / shares).saturating_sub(WIDENED_BYTES);
        let asked_bytes = chunk_bytes.map_or(u64::MAX, |bytes| (bytes as u64).max(CHUNK_BYTES_MIN));
        let most = most.min(SPILLED_CHUNK_BYTES).min(asked_bytes);
        let chunk_bytes = (most / record_bytes).max(1) * record_bytes;
        let chunks = input_bytes.div_ceil(chunk_bytes);
        let unit_bytes = limit_bytes / 2 / (threads + 1);
        let bench_share = (records.bench_bytes(1 << 20) as u64).div_ceil(1 << 20);
        let bucket_bytes_max = limit_bytes / 4 / threads / bench_share;
        let wanted = input_bytes.div_ceil(BUCKET_BYTES.min(bucket_bytes_max / 2).max(1));
        let most_buckets = (chunk_bytes / PIECE_BYTES).min(limit_bytes / 8 / 4 / chunks);
        let windows = 2 * threads + 2;
        let window_bytes = (limit_bytes / 10 / windows).min(WINDOW_BYTES);
        let window_bytes = window_bytes / EXTENT_ALIGN_BYTES as u64 * EXTENT_ALIGN_BYTES as u64;
        // With less than a block beside what the race puts before it, nothing could be written: a limit that
        // has no room for these is refused when they are reserved.
        let window_bytes = window_bytes.max(2 * EXTENT_ALIGN_BYTES as u64);
        Sizes {
            threads: threads as usize,
            chunk_bytes,
            buckets: buckets(wanted.min(most_buckets)),
            bucket_bytes_max,
            slots: threads as usize + 1,
            unit_bytes,
            windows: windows as usize,
            window_bytes,
        }
    }
}

fn most_threads(limit_bytes: u64, threads: usize) -> usize {
    threads.min((limit_bytes / THREAD_BYTES) as usize).max(1)
}

fn buckets(wanted: u64) -> usize {
    wanted.clamp(4, BUCKETS_MAX as u64 / 2) as usize
}
