//! The result of a run: plain data, as in the JSON record.

use headrace_flow::{LatencySummary, RaceReport};
use serde::Serialize;

use super::{CacheState, Checksum};

/// One run.
#[derive(Debug, Clone, Serialize)]
pub struct BenchRun {
    /// "read" or "write".
    pub operation: &'static str,
    /// The requested access path.
    pub path: &'static str,
    /// "host", or "gpu:0,1".
    pub target: String,
    /// "pinned" or "pageable" slots on the way to a GPU.
    pub memory: Option<&'static str>,
    /// "sequential" or "random".
    pub pattern: &'static str,
    /// Bytes of a chunk, or of a random block.
    pub chunk_bytes: u64,
    /// Slots of the ring (of each GPU).
    pub slots: usize,
    /// Reads in the kernel at once, with io_uring.
    pub depth: u32,
    /// Reader threads.
    pub threads: usize,
    /// The user's paths.
    pub paths: Vec<String>,
    /// Files below them.
    pub files: usize,
    /// Size of these files.
    pub file_bytes: u64,
    /// The page cache before the run.
    pub cache: CacheRecord,
    /// Why the run ended early; the figures are those of the finished part.
    pub partial: Option<&'static str>,
    /// Bytes received.
    pub bytes: u64,
    /// Chunks, or blocks, received.
    pub chunks: u64,
    /// From the first request to the last byte consumed, nanoseconds.
    pub wall_ns: u64,
    /// Bytes received per second of wall time; 0 if there were none.
    pub gb_per_s: f64,
    /// Blocks per second, when random.
    pub iops: Option<f64>,
    /// The cost of a pinned ring before the clock started, if it was created for this run.
    pub ring: Option<RingRecord>,
    /// From the start until a consumer got the first chunk, nanoseconds.
    pub first_chunk_ns: u64,
    /// By the real access path.
    pub bytes_by_path: BytesMoved,
    /// Latency of chunks (blocks, when random), each from its first request to its last answer.
    pub latency: Latency,
    /// Mean size of a request to the kernel (the devices' view is with them).
    pub mean_request_bytes: u64,
    /// Share of time in which consumers waited for bytes, 0 to 1; `None` when writing.
    pub consumer_wait_share: Option<f64>,
    /// The stages, each with its rate and its measured ceiling.
    pub stages: Vec<StageRecord>,
    /// The limiting stage in words.
    pub bottleneck: Option<String>,
    /// The model's prediction for this run.
    pub predicted: Option<PredictedRecord>,
    /// The activity of each underlying block device.
    pub devices: Vec<DeviceRecord>,
    /// Processor time of this process.
    pub cpu: CpuRecord,
    /// Short reads (writes), which were resumed.
    pub short_transfers: u64,
    /// Bytes that a file refused to move by O_DIRECT, and that went through the page cache.
    pub direct_refused_bytes: u64,
    /// The readers that were used, in words.
    pub engines: Vec<String>,
    /// Why a better path was not taken.
    pub path_reasons: Vec<String>,
    /// Other notes.
    pub notes: Vec<String>,
    /// The comparison with plain reads, if requested.
    pub verification: Option<Verification>,
}

/// Bytes by access path. `ram` and `ssd` sum up the others: `ssd` bypassed the page cache, `ram`
/// came from memory or through the page cache (the devices' counters tell how much of that storage
/// had to read).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct BytesMoved {
    /// `mapped` + `cached` + `buffered` + `registered`.
    pub ram2gpu: u64,
    /// `direct`.
    pub ssd2gpu: u64,
    /// Straight from storage to device memory.
    pub cufile: u64,
    /// Like `ram2gpu`, when the target is the host.
    pub ram2host: u64,
    /// Like `ssd2gpu`, when the target is the host.
    pub ssd2host: u64,
    /// All bytes that were written from the host.
    pub host2ssd: u64,
    /// All bytes that were written from GPUs.
    pub gpu2ssd: u64,
    /// From a mapping.
    pub mapped: u64,
    /// From the host chunk cache.
    pub cached: u64,
    /// Read (written) through the page cache.
    pub buffered: u64,
    /// Read (written) by O_DIRECT.
    pub direct: u64,
    /// Copied by the device from a mapping registered with it.
    pub registered: u64,
}

/// The creation of a ring of pinned slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct RingRecord {
    /// Its size.
    pub bytes: u64,
    /// Until the first slot was ready, nanoseconds: with `first_chunk_ns` the wait of a query.
    pub first_ready_ns: u64,
    /// Until the last slot was ready, nanoseconds.
    pub ready_ns: u64,
}

/// Latencies of chunks or blocks, nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Latency {
    /// Chunks or blocks.
    pub count: u64,
    /// Median.
    pub p50_ns: u64,
    /// 90th percentile.
    pub p90_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// Longest.
    pub max_ns: u64,
}

impl Latency {
    /// Exact percentiles of a list of times.
    pub(crate) fn of_times(mut times_ns: Vec<u64>) -> Latency {
        times_ns.sort_unstable();
        let at = |percent| percentile(&times_ns, percent);
        Latency {
            count: times_ns.len() as u64,
            p50_ns: at(50),
            p90_ns: at(90),
            p99_ns: at(99),
            max_ns: at(100),
        }
    }
}

impl From<LatencySummary> for Latency {
    fn from(summary: LatencySummary) -> Latency {
        Latency {
            count: summary.count,
            p50_ns: summary.p50_ns,
            p90_ns: summary.p90_ns,
            p99_ns: summary.p99_ns,
            max_ns: summary.max_ns,
        }
    }
}

/// A stage of the race.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StageRecord {
    /// "read", "h2d", "execute", "d2h", "write"; "fill" and "sync" when writing.
    pub stage: &'static str,
    /// Share of the wall time in which it was busy, 0 to 1.
    pub busy_share: f64,
    /// Bytes through it per second of its busy time.
    pub gb_per_s: f64,
    /// Its measured maximum on this machine.
    pub ceiling_gb_per_s: Option<f64>,
    /// The run's rate as a share of that ceiling, 0 to 1 (or above, if the ceiling is old).
    pub ceiling_share: Option<f64>,
}

/// The model's prediction for a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PredictedRecord {
    /// Predicted speed.
    pub gb_per_s: f64,
    /// Predicted time.
    pub seconds: f64,
    /// Predicted bottleneck.
    pub bottleneck: String,
}

/// A block device during a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DeviceRecord {
    /// Such as "nvme0n1".
    pub name: String,
    /// Read from it.
    pub read_gb_per_s: f64,
    /// Written to it.
    pub write_gb_per_s: f64,
    /// The same in bytes.
    pub read_bytes: u64,
    /// The same in bytes.
    pub written_bytes: u64,
    /// Requested reads and writes per second of the device.
    pub requests_per_s: f64,
    /// Their mean size.
    pub mean_request_bytes: u64,
    /// Share of time in which it was busy, 0 to 1.
    pub busy_share: f64,
}

/// Processor time of this process during a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct CpuRecord {
    /// In programs, nanoseconds.
    pub user_ns: u64,
    /// In the kernel, nanoseconds.
    pub system_ns: u64,
    /// Of the wall time; 100 is one core.
    pub percent: f64,
}

/// The page cache before a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CacheRecord {
    /// The request.
    pub asked: CacheState,
    /// Share of the files' bytes in memory when the clock started, 0 to 1; `None` if the kernel
    /// does not say.
    pub resident_share_before: Option<f64>,
    /// Whether that is what was asked for, as far as the kernel tells.
    pub is_as_asked: bool,
    /// What was impossible.
    pub notes: Vec<String>,
}

/// The comparison of the received bytes with plain reads.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verification {
    /// Chunks compared.
    pub chunks: u64,
    /// Bytes compared.
    pub bytes: u64,
    /// Differing chunks.
    pub mismatch_count: u64,
    /// The first of them.
    pub mismatches: Vec<Mismatch>,
    /// Checksum of all received bytes, hexadecimal.
    pub checksum: String,
    /// What they were compared with.
    pub reference: &'static str,
    /// Time that the comparison took.
    pub seconds: f64,
}

/// A chunk that differs from its file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Mismatch {
    /// Its number.
    pub chunk: usize,
    /// Its file.
    pub file: String,
    /// Its offset.
    pub offset: u64,
    /// Its length.
    pub bytes: u64,
    /// Checksum of the received bytes.
    pub found: Checksum,
    /// Checksum by plain reads.
    pub expected: Checksum,
}

/// The smallest of ascending times that at least this share does not exceed; 0 of none.
pub(crate) fn percentile(times_ns: &[u64], percent: usize) -> u64 {
    let rank = (times_ns.len() * percent).div_ceil(100).max(1);
    times_ns.get(rank - 1).copied().unwrap_or(0)
}

/// GB/s: bytes per nanosecond; 0 for no time.
pub(crate) fn per_ns(bytes: u64, ns: u64) -> f64 {
    if ns == 0 { 0.0 } else { bytes as f64 / ns as f64 }
}

pub(crate) fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// The stages of a race, with its own times.
pub(crate) fn stages_of(report: &RaceReport) -> Vec<StageRecord> {
    let arrived = report.bytes_by_path.total();
    let stage = |stage, busy_ns, bytes| StageRecord {
        stage,
        busy_share: share(busy_ns, report.wall_ns),
        gb_per_s: per_ns(bytes, busy_ns),
        ceiling_gb_per_s: None,
        ceiling_share: None,
    };
    let each_consumer_ns = report.execute_busy_ns / report.consumers.max(1) as u64;
    let execute_ns = if report.kernel_ns > 0 { report.kernel_ns } else { each_consumer_ns };
    let filled = report.read_bytes + report.host_copied_bytes + report.bytes_by_path.registered;
    let stages = [
        ("read", report.read_busy_ns, filled),
        ("h2d", report.h2d_ns, arrived - report.bytes_by_path.cufile),
        ("execute", execute_ns, arrived),
        ("d2h", report.d2h_ns, report.d2h_bytes),
        ("write", report.write_busy_ns, report.written_bytes),
    ];
    let took_part = stages.into_iter().filter(|(_, busy_ns, _)| *busy_ns > 0);
    took_part.map(|(name, busy_ns, bytes)| stage(name, busy_ns, bytes)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_sorted_list() {
        let latency = Latency::of_times((1..=1000).rev().collect());
        assert_eq!((latency.p50_ns, latency.p90_ns, latency.p99_ns), (500, 900, 990));
        assert_eq!((latency.count, latency.max_ns), (1000, 1000));
        assert_eq!(Latency::of_times(Vec::new()), Latency::default());
        assert_eq!(Latency::of_times(vec![7]).p99_ns, 7);
    }
}
