//! What a race really did: bytes by path, time by stage, and which stage was the limit.

use std::collections::BTreeSet;
use std::fmt;
use std::time::{Duration, Instant};

use serde::Serialize;

/// Reasons kept per race; more would say the same of other files.
const REASONS_MAX: usize = 64;

/// Wanted bytes by the way they really took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct BytesByPath {
    /// Consumed in place from a mapping (a device: copied from it).
    pub mapped: u64,
    /// Found in the host cache.
    pub cached: u64,
    /// Read through the page cache.
    pub buffered: u64,
    /// Read by O_DIRECT.
    pub direct: u64,
    /// Already in device memory.
    pub resident_device: u64,
}

impl BytesByPath {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.mapped + self.cached + self.buffered + self.direct + self.resident_device
    }
}

/// A stage of the race.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// From storage, or another place on the host, into slots.
    Read,
    /// From the host to the device.
    CopyToDevice,
    /// What the consumers, or the kernels, do.
    Execute,
}

/// The stage that was busiest.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Bottleneck {
    /// The stage.
    pub stage: Stage,
    /// What to call it ("storage-bound").
    pub name: &'static str,
    /// Share of the wall time in which it was busy, 0 to 1.
    pub busy_share: f64,
    /// Bytes through the stage per second of its busy time, in GB (10^9 bytes).
    pub gb_per_s: f64,
}

impl fmt::Display for Bottleneck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {:.2} GB/s, busy {:.0}% of the time",
            self.name,
            self.gb_per_s,
            self.busy_share * 100.0
        )
    }
}

/// Latencies of the reads of a race, from submission to completion of an extent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct LatencySummary {
    /// Number of extents.
    pub count: u64,
    /// Median (a histogram bucket's upper end: at most a quarter too high), nanoseconds.
    pub p50_ns: u64,
    /// 99th percentile (likewise), nanoseconds.
    pub p99_ns: u64,
    /// Longest, exact, nanoseconds.
    pub max_ns: u64,
}

/// What happened in a race. Times are wall-clock nanoseconds; bytes are wanted bytes unless said
/// otherwise.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct RaceReport {
    /// From the call to the return.
    pub wall_ns: u64,
    /// From the call to the moment when the first chunk was handed to a consumer.
    pub first_chunk_ns: u64,
    /// Chunks that were consumed.
    pub chunks: u64,
    /// Whether it ended with [`Verdict::Enough`](crate::Verdict::Enough).
    pub ended_early: bool,
    /// Bytes of consumed chunks, by path.
    pub bytes_by_path: BytesByPath,
    /// Bytes that reads transferred: widened extents, and chunks read ahead but not consumed.
    pub transferred_bytes: u64,
    /// Bytes wanted by the reads behind `transferred_bytes`.
    pub read_bytes: u64,
    /// Bytes copied into slots of a device from memory of the host: cached or mapped.
    pub host_copied_bytes: u64,
    /// Time with at least one read under way.
    pub read_busy_ns: u64,
    /// Time with no read under way although chunks were still to be read: no slot was free.
    pub read_wait_ns: u64,
    /// Consumers.
    pub consumers: usize,
    /// Time in consumers, summed over them.
    pub execute_busy_ns: u64,
    /// Time in which consumers waited for a chunk, summed over them.
    pub execute_wait_ns: u64,
    /// Time of copies to the device, as the lane measured it.
    pub h2d_ns: u64,
    /// Time of kernels, as the lane measured it.
    pub kernel_ns: u64,
    /// Latencies of reads.
    pub read_latency: LatencySummary,
    /// Reads that brought less than was asked for, and were resumed.
    pub short_reads: u64,
    /// Bytes that a file refused to deliver by O_DIRECT, read through the page cache instead.
    pub direct_refused_bytes: u64,
    /// The readers that were used, in words.
    pub engines: Vec<String>,
    /// Why a better path was not taken.
    pub path_reasons: Vec<String>,
}

impl RaceReport {
    /// Consumed bytes per second of wall time, in GB (10^9 bytes).
    pub fn gb_per_s(&self) -> f64 {
        per_ns(self.bytes_by_path.total(), self.wall_ns)
    }

    /// The stage that was busy for the largest share of the wall time; `None` if nothing was
    /// consumed.
    pub fn bottleneck(&self) -> Option<Bottleneck> {
        if self.chunks == 0 || self.wall_ns == 0 {
            return None;
        }
        let total = self.bytes_by_path.total();
        let copied = total - self.bytes_by_path.resident_device;
        let share = |busy_ns: u64| busy_ns as f64 / self.wall_ns as f64;
        let on_device = self.h2d_ns > 0 || self.kernel_ns > 0;
        let execute = if on_device {
            ("kernel-bound", share(self.kernel_ns), per_ns(total, self.kernel_ns))
        } else {
            let each = self.execute_busy_ns / self.consumers.max(1) as u64;
            ("cpu-bound", share(each), per_ns(total, each))
        };
        let filled = self.read_bytes + self.host_copied_bytes;
        let stages = [
            (Stage::Execute, execute),
            (Stage::CopyToDevice, ("link-bound", share(self.h2d_ns), per_ns(copied, self.h2d_ns))),
            (
                Stage::Read,
                (
                    self.read_stage_name(),
                    share(self.read_busy_ns),
                    per_ns(filled, self.read_busy_ns),
                ),
            ),
        ];
        stages
            .into_iter()
            .map(|(stage, (name, busy_share, gb_per_s))| Bottleneck {
                stage,
                name,
                busy_share,
                gb_per_s,
            })
            .max_by(|a, b| a.busy_share.total_cmp(&b.busy_share))
    }

    /// What limits a race whose busiest stage is the filling of slots.
    fn read_stage_name(&self) -> &'static str {
        let BytesByPath { direct, buffered, .. } = self.bytes_by_path;
        if self.host_copied_bytes > direct.max(buffered) {
            "host-copy-bound"
        } else if direct >= buffered {
            "storage-bound"
        } else {
            "page-cache-bound"
        }
    }
}

/// GB/s: bytes per nanosecond.
fn per_ns(bytes: u64, ns: u64) -> f64 {
    if ns == 0 { 0.0 } else { bytes as f64 / ns as f64 }
}

/// A histogram with four buckets per power of two.
#[derive(Debug)]
pub(crate) struct Latencies {
    buckets: [u64; 256],
    count: u64,
    max_ns: u64,
}

impl Default for Latencies {
    fn default() -> Self {
        Latencies { buckets: [0; 256], count: 0, max_ns: 0 }
    }
}

impl Latencies {
    pub fn add(&mut self, latency_ns: u64) {
        self.buckets[Self::bucket(latency_ns)] += 1;
        self.count += 1;
        self.max_ns = self.max_ns.max(latency_ns);
    }

    pub fn summary(&self) -> LatencySummary {
        LatencySummary {
            count: self.count,
            p50_ns: self.quantile(1, 2),
            p99_ns: self.quantile(99, 100),
            max_ns: self.max_ns,
        }
    }

    fn quantile(&self, numerator: u64, denominator: u64) -> u64 {
        let wanted = (self.count * numerator).div_ceil(denominator);
        let mut seen = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= wanted && seen > 0 {
                return Self::upper_end_ns(bucket).min(self.max_ns);
            }
        }
        0
    }

    fn bucket(ns: u64) -> usize {
        let ns = ns.max(4);
        let power = ns.ilog2() as usize;
        // The two bits below the leading one.
        power * 4 + (ns >> (power - 2) & 3) as usize
    }

    fn upper_end_ns(bucket: usize) -> u64 {
        let (power, quarter) = (bucket / 4, bucket as u128 % 4);
        let end = (5 + quarter) << power >> 2;
        u64::try_from(end).unwrap_or(u64::MAX)
    }
}

/// Time during which something is the case.
#[derive(Debug, Default)]
pub(crate) struct Stopwatch {
    since: Option<Instant>,
    total: Duration,
}

impl Stopwatch {
    pub fn set(&mut self, on: bool) {
        match (on, self.since) {
            (true, None) => self.since = Some(Instant::now()),
            (false, Some(since)) => {
                self.total += since.elapsed();
                self.since = None;
            }
            _ => {}
        }
    }

    pub fn total_ns(&self) -> u64 {
        (self.total + self.since.map_or(Duration::ZERO, |since| since.elapsed())).as_nanos() as u64
    }
}

/// Reasons without repetitions.
#[derive(Debug, Default)]
pub(crate) struct Reasons {
    texts: BTreeSet<String>,
    left_out: u64,
}

impl Reasons {
    pub fn add(&mut self, reason: String) {
        if self.texts.len() < REASONS_MAX {
            self.texts.insert(reason);
        } else if !self.texts.contains(&reason) {
            self.left_out += 1;
        }
    }

    pub fn into_texts(self) -> Vec<String> {
        let mut texts: Vec<String> = self.texts.into_iter().collect();
        if self.left_out > 0 {
            texts.push(format!("and {} reasons more", self.left_out));
        }
        texts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latency_quantiles_are_at_most_a_quarter_too_high() {
        let mut latencies = Latencies::default();
        for ns in (1..=1000u64).map(|i| i * 1000) {
            latencies.add(ns);
        }
        let summary = latencies.summary();
        assert_eq!((summary.count, summary.max_ns), (1000, 1_000_000));
        assert!((500_000..=625_000).contains(&summary.p50_ns), "{summary:?}");
        assert!((990_000..=1_000_000).contains(&summary.p99_ns), "{summary:?}");
        assert_eq!(Latencies::default().summary(), LatencySummary::default());
        latencies.add(0);
        latencies.add(u64::MAX);
        assert_eq!(latencies.summary().max_ns, u64::MAX);
    }

    #[test]
    fn the_busiest_stage_is_the_bottleneck() {
        let mut report = RaceReport {
            wall_ns: 1_000,
            chunks: 1,
            consumers: 2,
            bytes_by_path: BytesByPath { direct: 2_000, ..BytesByPath::default() },
            read_bytes: 2_000,
            read_busy_ns: 800,
            execute_busy_ns: 1_000,
            ..RaceReport::default()
        };
        let found = report.bottleneck().expect("chunks were consumed");
        assert_eq!((found.stage, found.name), (Stage::Read, "storage-bound"));
        assert_eq!(found.to_string(), "storage-bound: 2.50 GB/s, busy 80% of the time");
        report.execute_busy_ns = 1_900;
        assert_eq!(report.bottleneck().map(|found| found.name), Some("cpu-bound"));
        report.h2d_ns = 990;
        assert_eq!(report.bottleneck().map(|found| found.name), Some("link-bound"));
        assert_eq!(RaceReport::default().bottleneck(), None);
    }
}
