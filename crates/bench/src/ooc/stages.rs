//! Stage times of a run and of its chunks.

use std::collections::BTreeMap;

use headrace_flow::{RaceReport, Span};
use headrace_ooc::Report;
use serde::Serialize;

use crate::transfer::percentile;

/// Busy times of stages, summed over the races of a run, nanoseconds. Stages overlap.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct StageTimes {
    /// Planning before the first race.
    pub plan_ns: u64,
    /// At least one read was under way.
    pub read_ns: u64,
    /// Copies to the device.
    pub h2d_ns: u64,
    /// Kernels.
    pub kernel_ns: u64,
    /// Work on the CPU, divided by its threads.
    pub cpu_ns: u64,
    /// Copies from the device.
    pub d2h_ns: u64,
    /// At least one write was under way.
    pub write_ns: u64,
}

impl StageTimes {
    /// Names, in the order of [`Self::named`].
    pub const NAMES: [&'static str; 7] = ["plan", "read", "h2d", "kernel", "cpu", "d2h", "write"];

    /// Of a run.
    pub(super) fn of(report: &Report) -> StageTimes {
        let mut times = StageTimes { plan_ns: report.plan_ns, ..StageTimes::default() };
        for RaceReport {
            read_busy_ns,
            h2d_ns,
            kernel_ns,
            execute_busy_ns,
            consumers,
            d2h_ns,
            write_busy_ns,
            ..
        } in report.passes.iter().map(|pass| &pass.race)
        {
            times.read_ns += read_busy_ns;
            times.h2d_ns += h2d_ns;
            times.kernel_ns += kernel_ns;
            times.cpu_ns += execute_busy_ns / (*consumers).max(1) as u64;
            times.d2h_ns += d2h_ns;
            times.write_ns += write_busy_ns;
        }
        times
    }

    /// The times in the order of the stages.
    pub fn named(&self) -> [(&'static str, u64); 7] {
        let Self { plan_ns, read_ns, h2d_ns, kernel_ns, cpu_ns, d2h_ns, write_ns } = *self;
        let times = [plan_ns, read_ns, h2d_ns, kernel_ns, cpu_ns, d2h_ns, write_ns];
        std::array::from_fn(|stage| (Self::NAMES[stage], times[stage]))
    }
}

/// Durations of chunks in a stage, nanoseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ChunkTimes {
    /// The stage, as named in a trace: "read", "copy to device", "execute", "copy to host", "write".
    pub stage: &'static str,
    /// Chunks, or pieces of output.
    pub count: u64,
    /// 5th percentile.
    pub p5_ns: u64,
    /// Median.
    pub p50_ns: u64,
    /// 95th percentile.
    pub p95_ns: u64,
}

impl ChunkTimes {
    /// For each stage of a trace, in order of their beginning.
    pub(super) fn of(spans: &[Span]) -> Vec<ChunkTimes> {
        let mut stages: BTreeMap<&str, (u64, &'static str, Vec<u64>)> = BTreeMap::new();
        for span in spans {
            let new = || (span.start_ns, span.name, Vec::new());
            let (start_ns, _, times) = stages.entry(span.name).or_insert_with(new);
            *start_ns = span.start_ns.min(*start_ns);
            times.push(span.duration_ns);
        }
        let mut stages: Vec<_> = stages.into_values().collect();
        stages.sort_by_key(|(start_ns, ..)| *start_ns);
        let times = |(_, stage, times): (u64, _, Vec<u64>)| ChunkTimes::of_times(stage, times);
        stages.into_iter().map(times).collect()
    }

    fn of_times(stage: &'static str, mut times_ns: Vec<u64>) -> ChunkTimes {
        times_ns.sort_unstable();
        let at = |percent| percentile(&times_ns, percent);
        let count = times_ns.len() as u64;
        ChunkTimes { stage, count, p5_ns: at(5), p50_ns: at(50), p95_ns: at(95) }
    }
}

#[cfg(test)]
mod tests {
    use headrace_ooc::Pass;

    use super::*;

    #[test]
    fn stages_of_all_races_add_up_and_threads_share_theirs() {
        let race = RaceReport {
            read_busy_ns: 5,
            execute_busy_ns: 12,
            consumers: 4,
            write_busy_ns: 7,
            ..RaceReport::default()
        };
        let passes = ["split", "merge"].map(|name| Pass { name, race: race.clone() });
        let report = Report { plan_ns: 1, passes: passes.to_vec(), ..Report::default() };
        let times = StageTimes::of(&report);
        assert_eq!((times.plan_ns, times.read_ns, times.cpu_ns, times.write_ns), (1, 10, 6, 14));
        assert_eq!(times.named()[4], ("cpu", 6));
        assert_eq!(times.named().map(|(name, _)| name), StageTimes::NAMES);
    }

    #[test]
    fn percentiles_are_those_of_each_stage() {
        let span = |name, start_ns, duration_ns| Span {
            track: String::new(),
            name,
            start_ns,
            duration_ns,
            chunk: 0,
            slot: None,
            bytes: 0,
        };
        let mut spans = vec![span("execute", 50, 7)];
        spans.extend((1..=100).rev().map(|ns| span("read", ns, ns * 10)));
        let found = ChunkTimes::of(&spans);
        let read = ChunkTimes { stage: "read", count: 100, p5_ns: 50, p50_ns: 500, p95_ns: 950 };
        let execute = ChunkTimes { stage: "execute", count: 1, p5_ns: 7, p50_ns: 7, p95_ns: 7 };
        assert_eq!(found, [read, execute]);
        assert_eq!(ChunkTimes::of(&[]), []);
    }
}
