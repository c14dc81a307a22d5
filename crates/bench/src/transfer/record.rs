//! What came out of a run: plain data, as it stands in the JSON record.

use headrace_flow::{LatencySummary, RaceReport};
use serde::Serialize;

use super::{CacheState, Checksum};

/// One run.
#[derive(Debug, Clone, Serialize)]
pub struct BenchRun {
    /// "read" or "write".
    pub operation: &'static str,
    /// The way that was asked for.
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
    /// Paths as the user named them.
    pub paths: Vec<String>,
    /// Files below them.
    pub files: usize,
    /// Size of these files.
    pub file_bytes: u64,
    /// The page cache before the run.
    pub cache: CacheRecord,
    /// Why the run ended before its last byte; the figures are those of the part that was done.
    pub partial: Option<&'static str>,
    /// Bytes that arrived.
    pub bytes: u64,
    /// Chunks, or blocks, that arrived.
    pub chunks: u64,
    /// From the first request to the last byte consumed, nanoseconds.
    pub wall_ns: u64,
    /// Bytes that arrived per second of wall time; 0 if there were none.
    pub gb_per_s: f64,
    /// Blocks per second, when random.
    pub iops: Option<f64>,
    /// What the pinned ring cost before the clock started, if it was made for this run.
    pub ring: Option<RingRecord>,
    /// From the start to the first chunk in the consumer's hands, nanoseconds.
    pub first_chunk_ns: u64,
    /// By the way they really took.
    pub bytes_by_path: BytesMoved,
    /// Latency of chunks (blocks, when random), each from its first request to its last answer.
    pub latency: Latency,
    /// Mean size of a request to the kernel (what the devices saw of it is with them).
    pub mean_request_bytes: u64,
    /// Share of their time in which consumers waited for bytes, 0 to 1; `None` when writing.
    pub consumer_wait_share: Option<f64>,
    /// The stages, each with its own speed and the ceiling that was measured for it.
    pub stages: Vec<StageRecord>,
    /// The stage that was the limit, in words.
    pub bottleneck: Option<String>,
    /// What the model says about this run.
    pub predicted: Option<PredictedRecord>,
    /// What each underlying block device did meanwhile.
    pub devices: Vec<DeviceRecord>,
    /// Processor time of this process.
    pub cpu: CpuRecord,
    /// Reads (writes) that moved less than was asked for, and were resumed.
    pub short_transfers: u64,
    /// Bytes that a file refused to move by O_DIRECT, and that went through the page cache.
    pub direct_refused_bytes: u64,
    /// The readers that were used, in words.
    pub engines: Vec<String>,
    /// Why a better path was not taken.
    pub path_reasons: Vec<String>,
    /// What else should be known.
    pub notes: Vec<String>,
    /// The comparison with plain reads, if it was asked for.
    pub verification: Option<Verification>,
}

/// Bytes by the way they took. `ram` and `ssd` sum up the others: `ssd` went past the page
/// cache, `ram` came from memory or through the page cache (what the devices delivered meanwhile
/// tells how much of that storage had to read).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct BytesMoved {
    /// `mapped` + `cached` + `buffered` + `registered`.
    pub ram2gpu: u64,
    /// `direct`.
    pub ssd2gpu: u64,
    /// Straight from storage to device memory.
    pub cufile: u64,
    /// As `ram2gpu`, when the target is the host.
    pub ram2host: u64,
    /// As `ssd2gpu`, when the target is the host.
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

/// The making of a ring of pinned slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct RingRecord {
    /// Its size.
    pub bytes: u64,
    /// Until the first slot was ready, nanoseconds: with `first_chunk_ns` what a query waits for.
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
        let at = |percent: usize| {
            // The smallest time that at least this share does not exceed.
            let rank = (times_ns.len() * percent).div_ceil(100).max(1);
            times_ns.get(rank - 1).copied().unwrap_or(0)
        };
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
    /// The fastest that was measured on this machine for it.
    pub ceiling_gb_per_s: Option<f64>,
    /// The run's speed as a share of that ceiling, 0 to 1 (and above, if the ceiling is old).
    pub ceiling_share: Option<f64>,
}

/// The model's word on a run.
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
    /// Reads and writes per second that the device was asked for.
    pub requests_per_s: f64,
    /// Their mean size.
    pub mean_request_bytes: u64,
    /// Share of the time in which it had something to do, 0 to 1.
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
    /// What was asked for.
    pub asked: CacheState,
    /// Share of the files' bytes that was in memory when the clock started, 0 to 1; `None` where
    /// the kernel does not say.
    pub resident_share_before: Option<f64>,
    /// What could not be done.
    pub notes: Vec<String>,
}

/// The comparison of what arrived with plain reads.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verification {
    /// Chunks compared.
    pub chunks: u64,
    /// Bytes compared.
    pub bytes: u64,
    /// Chunks that differ.
    pub mismatch_count: u64,
    /// The first of them.
    pub mismatches: Vec<Mismatch>,
    /// Checksum of all that arrived, hexadecimal.
    pub checksum: String,
    /// What it was compared with.
    pub reference: &'static str,
    /// Time that the comparison took.
    pub seconds: f64,
}

/// A chunk that did not arrive as it lies in its file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Mismatch {
    /// Its number.
    pub chunk: usize,
    /// Its file.
    pub file: String,
    /// Where it begins.
    pub offset: u64,
    /// Its length.
    pub bytes: u64,
    /// Checksum of what arrived.
    pub found: Checksum,
    /// Checksum by plain reads.
    pub expected: Checksum,
}

/// GB/s: bytes per nanosecond; 0 where there was no time.
pub(crate) fn per_ns(bytes: u64, ns: u64) -> f64 {
    if ns == 0 { 0.0 } else { bytes as f64 / ns as f64 }
}

pub(crate) fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// The stages that a race had, as it timed them.
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
