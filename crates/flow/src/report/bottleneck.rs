//! Which stage was the limit.

use std::fmt;

use serde::Serialize;

use super::{BytesByPath, RaceReport, per_ns};

/// A stage of the race.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// From storage, or another place on the host, into slots.
    Read,
    /// From the host to the device.
    CopyToDevice,
    /// The consumers' or kernels' work.
    Execute,
    /// From the device to the host.
    CopyToHost,
    /// From slots to storage.
    Write,
}

/// The stage that was busiest.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Bottleneck {
    /// The stage.
    pub stage: Stage,
    /// Its name as a bottleneck ("storage-bound").
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

impl RaceReport {
    /// The stage that was busy for the largest share of the wall time; `None` if nothing was
    /// consumed.
    pub fn bottleneck(&self) -> Option<Bottleneck> {
        if self.chunks == 0 || self.wall_ns == 0 {
            return None;
        }
        self.stages().into_iter().max_by(|a, b| a.busy_share.total_cmp(&b.busy_share))
    }

    /// Every stage with its name as a bottleneck. Of equally busy stages the last one is taken for
    /// the limit.
    pub fn stages(&self) -> [Bottleneck; 5] {
        let total = self.bytes_by_path.total();
        // What a device's own reader brings takes no copy.
        let past_copies = self.bytes_by_path.resident_device + self.bytes_by_path.cufile;
        let copied = total - past_copies;
        let stage = |stage, name, bytes, busy_ns: u64| Bottleneck {
            stage,
            name,
            busy_share: busy_ns as f64 / self.wall_ns.max(1) as f64,
            gb_per_s: per_ns(bytes, busy_ns),
        };
        let on_device = self.h2d_ns > 0 || self.kernel_ns > 0 || self.d2h_ns > 0;
        let execute = if on_device {
            stage(Stage::Execute, "kernel-bound", total, self.kernel_ns)
        } else {
            let each = self.execute_busy_ns / self.consumers.max(1) as u64;
            stage(Stage::Execute, "cpu-bound", total, each)
        };
        let filled = self.read_bytes + self.host_copied_bytes;
        [
            execute,
            stage(Stage::CopyToHost, "d2h-bound", self.d2h_bytes, self.d2h_ns),
            stage(Stage::CopyToDevice, "link-bound", copied, self.h2d_ns),
            stage(Stage::Write, "write-bound", self.written_bytes, self.write_busy_ns),
            stage(Stage::Read, self.read_stage_name(), filled, self.read_busy_ns),
        ]
    }

    /// The limit of a race whose busiest stage is the filling of slots.
    fn read_stage_name(&self) -> &'static str {
        let BytesByPath { direct, buffered, cufile, registered, remote, decoded, .. } =
            self.bytes_by_path;
        let read = direct.max(buffered).max(cufile).max(remote).max(decoded);
        if registered > read {
            // The reads' time is then that of pinning the mappings.
            "registration-bound"
        } else if self.host_copied_bytes > read {
            "host-copy-bound"
        } else if decoded > 0 && decoded == read {
            "decode-bound"
        } else if remote > 0 && remote == read {
            "network-bound"
        } else if direct + cufile >= buffered {
            "storage-bound"
        } else {
            "page-cache-bound"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        report.h2d_ns = 960;
        assert_eq!(report.bottleneck().map(|found| found.name), Some("link-bound"));
        (report.d2h_ns, report.d2h_bytes) = (970, 485);
        let found = report.bottleneck().expect("chunks were consumed");
        assert_eq!((found.name, found.gb_per_s), ("d2h-bound", 0.5));
        (report.write_busy_ns, report.written_bytes) = (980, 490);
        let found = report.bottleneck().expect("chunks were consumed");
        assert_eq!((found.name, found.gb_per_s), ("write-bound", 0.5));
        assert_eq!(RaceReport::default().bottleneck(), None);
    }

    #[test]
    fn lanes_add_up_and_share_the_time() {
        let lane = RaceReport {
            first_chunk_ns: 7,
            chunks: 3,
            bytes_by_path: BytesByPath { registered: 10, cufile: 5, ..BytesByPath::default() },
            h2d_ns: 50,
            engines: vec!["pread".to_string()],
            ..RaceReport::default()
        };
        let mut all = RaceReport::default();
        all.take_in(&lane);
        all.take_in(&RaceReport { first_chunk_ns: 5, h2d_ns: 40, ..lane.clone() });
        all.take_in(&RaceReport::default());
        assert_eq!((all.chunks, all.first_chunk_ns, all.h2d_ns), (6, 5, 50));
        assert_eq!((all.bytes_by_path.total(), all.engines.len()), (30, 1));
    }
}
