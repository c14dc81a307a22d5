//! Latencies of reads and writes, as a histogram of fixed size.

use serde::{Deserialize, Serialize};

/// Latencies of the reads, or writes, of a race, from submission to completion of an extent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencySummary {
    /// Number of extents.
    pub count: u64,
    /// Median (a histogram bucket's upper end: at most a quarter too high), nanoseconds.
    pub p50_ns: u64,
    /// 90th percentile (likewise), nanoseconds.
    pub p90_ns: u64,
    /// 99th percentile (likewise), nanoseconds.
    pub p99_ns: u64,
    /// Longest, exact, nanoseconds.
    pub max_ns: u64,
}

/// A histogram with four buckets per power of two.
#[derive(Debug, Clone)]
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

    /// Merges the histogram of another lane.
    pub fn merge(&mut self, other: &Latencies) {
        for (bucket, count) in self.buckets.iter_mut().zip(other.buckets) {
            *bucket += count;
        }
        self.count += other.count;
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    pub fn summary(&self) -> LatencySummary {
        LatencySummary {
            count: self.count,
            p50_ns: self.quantile(1, 2),
            p90_ns: self.quantile(9, 10),
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
        assert!((900_000..=1_000_000).contains(&summary.p90_ns), "{summary:?}");
        assert!((990_000..=1_000_000).contains(&summary.p99_ns), "{summary:?}");
        assert_eq!(Latencies::default().summary(), LatencySummary::default());
        latencies.add(0);
        latencies.add(u64::MAX);
        assert_eq!(latencies.summary().max_ns, u64::MAX);
    }

    #[test]
    fn merged_histograms_are_those_of_all_latencies() {
        let (mut odd, mut even, mut all) =
            (Latencies::default(), Latencies::default(), Latencies::default());
        for ns in (1..=1000u64).map(|i| i * i) {
            all.add(ns);
            if ns % 2 == 0 { even.add(ns) } else { odd.add(ns) }
        }
        odd.merge(&even);
        assert_eq!(odd.summary(), all.summary());
    }
}
