//! What a race really did: bytes by path, time by stage, and which stage was the limit.

mod bottleneck;
mod latency;
mod notes;

use serde::{Deserialize, Serialize};

pub use bottleneck::{Bottleneck, Stage};
pub(crate) use latency::Latencies;
pub use latency::LatencySummary;
pub(crate) use notes::{Reasons, Stopwatch};

/// Wanted bytes by their real access path.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BytesByPath {
    /// Consumed in place from a mapping (a device: copied from it into a slot).
    pub mapped: u64,
    /// Found in the host cache.
    pub cached: u64,
    /// Read through the page cache.
    pub buffered: u64,
    /// Read by O_DIRECT.
    pub direct: u64,
    /// Copied to a device straight from a registered mapping.
    pub registered: u64,
    /// Read into device memory by the device's own reader.
    pub cufile: u64,
    /// Already in device memory.
    pub resident_device: u64,
    /// Supplied in memory (used in place, or copied into a slot).
    pub memory: u64,
    /// Fetched from another machine.
    #[serde(default)]
    pub remote: u64,
    /// Decoded by the threads that read.
    #[serde(default)]
    pub decoded: u64,
}

impl BytesByPath {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.named().iter().map(|(_, bytes)| bytes).sum()
    }

    /// Each path's name with its bytes.
    pub fn named(&self) -> [(&'static str, u64); 10] {
        let BytesByPath {
            mapped,
            cached,
            buffered,
            direct,
            registered,
            cufile,
            resident_device,
            memory,
            remote,
            decoded,
        } = *self;
        [
            ("mapped", mapped),
            ("cached", cached),
            ("buffered", buffered),
            ("direct", direct),
            ("registered", registered),
            ("cufile", cufile),
            ("resident_device", resident_device),
            ("memory", memory),
            ("remote", remote),
            ("decoded", decoded),
        ]
    }

    /// Adds another count.
    pub fn add(&mut self, other: &BytesByPath) {
        self.mapped += other.mapped;
        self.cached += other.cached;
        self.buffered += other.buffered;
        self.direct += other.direct;
        self.registered += other.registered;
        self.cufile += other.cufile;
        self.memory += other.memory;
        self.remote += other.remote;
        self.decoded += other.decoded;
        self.resident_device += other.resident_device;
    }
}

/// The events of a race, or of one of its lanes. Times are wall-clock nanoseconds; bytes are wanted
/// bytes unless said otherwise.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RaceReport {
    /// From the call to the return.
    pub wall_ns: u64,
    /// From the call until the first chunk was handed to a consumer.
    pub first_chunk_ns: u64,
    /// Chunks that were consumed and whose output, if any, was written.
    pub chunks: u64,
    /// Chunks that a lane stole from another lane's list.
    pub stolen_chunks: u64,
    /// Whether it ended with [`Verdict::Enough`](crate::Verdict::Enough).
    pub ended_early: bool,
    /// Bytes of consumed chunks, by path.
    pub bytes_by_path: BytesByPath,
    /// Bytes that reads transferred, including widened extents and chunks that were read ahead but
    /// not consumed.
    pub transferred_bytes: u64,
    /// Bytes wanted by the reads behind `transferred_bytes`.
    pub read_bytes: u64,
    /// Reads that extents were cut into: requests to the kernel, or to the device's own reader.
    pub read_requests: u64,
    /// Bytes copied into a device's slots from host memory: cached or mapped.
    pub host_copied_bytes: u64,
    /// Time with at least one read, or registration of a mapping, under way.
    pub read_busy_ns: u64,
    /// Time with no read under way although chunks remained: no slot was free.
    pub read_wait_ns: u64,
    /// Maximum of consumers working at a time; 0 for a device.
    pub consumers: usize,
    /// Minimum of consumers [allowed](crate::ConsumerLimit) at a time.
    pub consumers_min: usize,
    /// Time in consumers, summed over them.
    pub execute_busy_ns: u64,
    /// Time that consumers waited for chunks, summed over them. On a device: time without a chunk
    /// to work on.
    pub execute_wait_ns: u64,
    /// Time of copies to the device, as the lane measured it.
    pub h2d_ns: u64,
    /// Time of kernels, as the lane measured it.
    pub kernel_ns: u64,
    /// Time of copies from the device, as the lane measured it.
    pub d2h_ns: u64,
    /// Bytes copied from the device.
    pub d2h_bytes: u64,
    /// Latencies of reads.
    pub read_latency: LatencySummary,
    /// Short reads, which were resumed.
    pub short_reads: u64,
    /// Bytes that a file refused to deliver by O_DIRECT, read through the page cache instead.
    pub direct_refused_bytes: u64,
    /// Bytes of output that were written.
    pub written_bytes: u64,
    /// Bytes that writes transferred by O_DIRECT, the padding of an unaligned end included.
    pub written_direct_bytes: u64,
    /// Bytes that writes transferred through the page cache.
    pub written_buffered_bytes: u64,
    /// Bytes of each sink that chunks appended to.
    pub appended_bytes: Vec<u64>,
    /// Writes that outputs were cut into.
    pub write_requests: u64,
    /// Time with at least one write under way.
    pub write_busy_ns: u64,
    /// Time that consumers waited for memory for their output, summed over them.
    pub write_wait_ns: u64,
    /// Latencies of writes.
    pub write_latency: LatencySummary,
    /// Short writes, which were resumed.
    pub short_writes: u64,
    /// The readers and writers that were used, in words.
    pub engines: Vec<String>,
    /// Why a better path was not taken.
    pub path_reasons: Vec<String>,
}

impl RaceReport {
    /// Consumed bytes per second of wall time, in GB (10^9 bytes).
    pub fn gb_per_s(&self) -> f64 {
        per_ns(self.bytes_by_path.total(), self.wall_ns)
    }

    /// Mean size of a read, in bytes, as the kernel was asked for it.
    pub fn mean_read_bytes(&self) -> f64 {
        self.transferred_bytes as f64 / self.read_requests.max(1) as f64
    }

    /// Adds the report of another lane of the same race. Bytes, counts and times summed over
    /// consumers add up; of stage times, which lanes have in parallel, the longest counts, and of
    /// first chunks the earliest. Latencies are merged separately, as histograms.
    pub(crate) fn take_in(&mut self, lane: &RaceReport) {
        self.wall_ns = self.wall_ns.max(lane.wall_ns);
        if lane.first_chunk_ns > 0 {
            let first = if self.first_chunk_ns == 0 { u64::MAX } else { self.first_chunk_ns };
            self.first_chunk_ns = first.min(lane.first_chunk_ns);
        }
        self.ended_early |= lane.ended_early;
        self.bytes_by_path.add(&lane.bytes_by_path);
        for (sum, more) in [
            (&mut self.chunks, lane.chunks),
            (&mut self.stolen_chunks, lane.stolen_chunks),
            (&mut self.transferred_bytes, lane.transferred_bytes),
            (&mut self.read_bytes, lane.read_bytes),
            (&mut self.read_requests, lane.read_requests),
            (&mut self.host_copied_bytes, lane.host_copied_bytes),
            (&mut self.execute_busy_ns, lane.execute_busy_ns),
            (&mut self.execute_wait_ns, lane.execute_wait_ns),
            (&mut self.d2h_bytes, lane.d2h_bytes),
            (&mut self.short_reads, lane.short_reads),
            (&mut self.direct_refused_bytes, lane.direct_refused_bytes),
            (&mut self.written_bytes, lane.written_bytes),
            (&mut self.written_direct_bytes, lane.written_direct_bytes),
            (&mut self.written_buffered_bytes, lane.written_buffered_bytes),
            (&mut self.write_requests, lane.write_requests),
            (&mut self.write_wait_ns, lane.write_wait_ns),
            (&mut self.short_writes, lane.short_writes),
        ] {
            *sum += more;
        }
        for (longest, time) in [
            (&mut self.read_busy_ns, lane.read_busy_ns),
            (&mut self.read_wait_ns, lane.read_wait_ns),
            (&mut self.h2d_ns, lane.h2d_ns),
            (&mut self.kernel_ns, lane.kernel_ns),
            (&mut self.d2h_ns, lane.d2h_ns),
            (&mut self.write_busy_ns, lane.write_busy_ns),
        ] {
            *longest = time.max(*longest);
        }
        self.consumers += lane.consumers;
        self.consumers_min += lane.consumers_min;
        merge_texts(&mut self.engines, &lane.engines);
        merge_texts(&mut self.path_reasons, &lane.path_reasons);
    }
}

impl RaceReport {
    /// One report of this race and of another that ran behind it: bytes, counts and times add up. Latencies of reads and
    /// writes stay this one's.
    #[must_use]
    pub fn then(&self, later: &Self) -> Self {
        let mut both = self.clone();
        both.take_in(later);
        both.first_chunk_ns = self.first_chunk_ns;
        both.consumers = self.consumers.max(later.consumers);
        both.consumers_min = self.consumers_min.min(later.consumers_min);
        for (sum, own, more) in [
            (&mut both.wall_ns, self.wall_ns, later.wall_ns),
            (&mut both.read_busy_ns, self.read_busy_ns, later.read_busy_ns),
            (&mut both.read_wait_ns, self.read_wait_ns, later.read_wait_ns),
            (&mut both.h2d_ns, self.h2d_ns, later.h2d_ns),
            (&mut both.kernel_ns, self.kernel_ns, later.kernel_ns),
            (&mut both.d2h_ns, self.d2h_ns, later.d2h_ns),
            (&mut both.write_busy_ns, self.write_busy_ns, later.write_busy_ns),
        ] {
            *sum = own + more;
        }
        both
    }
}

fn merge_texts(into: &mut Vec<String>, from: &[String]) {
    for text in from {
        if !into.contains(text) {
            into.push(text.clone());
        }
    }
}

/// What a race over several devices did.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct DevicesReport {
    /// All lanes together: bytes and counts are sums; a stage's time is the longest of any lane,
    /// since lanes run in parallel.
    pub merged: RaceReport,
    /// Each lane, in the order in which they were given.
    pub lanes: Vec<RaceReport>,
}

/// One lane's observations, with the histograms for merging latencies.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tally {
    pub report: RaceReport,
    pub reads: Latencies,
    pub writes: Latencies,
}

impl Tally {
    /// The report, with its latencies.
    pub fn finish(mut self, wall_ns: u64) -> RaceReport {
        self.report.wall_ns = wall_ns;
        self.report.read_latency = self.reads.summary();
        self.report.write_latency = self.writes.summary();
        self.report
    }

    /// All lanes of a race.
    pub fn merge(tallies: Vec<Tally>, wall_ns: u64) -> DevicesReport {
        let mut all = Tally::default();
        for tally in &tallies {
            all.report.take_in(&tally.report);
            all.reads.merge(&tally.reads);
            all.writes.merge(&tally.writes);
        }
        DevicesReport {
            merged: all.finish(wall_ns),
            lanes: tallies.into_iter().map(|tally| tally.finish(wall_ns)).collect(),
        }
    }
}

/// GB/s: bytes per nanosecond.
fn per_ns(bytes: u64, ns: u64) -> f64 {
    if ns == 0 { 0.0 } else { bytes as f64 / ns as f64 }
}
