//! Runs and sweeps as curves: speed over chunk size, a line for each combination of the rest.

use std::collections::BTreeMap;

use super::{BenchRun, Sweep};
use crate::plot::{CeilingLine, SERIES_MAX, SweepPlot, SweepPoint};

/// The curves of a sweep.
pub fn of_sweep(sweep: &Sweep) -> SweepPlot {
    of_runs(&sweep.runs().cloned().collect::<Vec<_>>())
}

/// The curves of some runs. Where there would be more lines than a picture can show, threads are
/// left out of their names and each point is the best of its numbers of threads.
pub fn of_runs(runs: &[BenchRun]) -> SweepPlot {
    let random = runs.iter().any(|run| run.iops.is_some());
    let mut points = points(runs, true);
    let mut title = title(runs);
    if distinct_series(&points) > SERIES_MAX {
        points = best_of_equals(self::points(runs, false));
        title.push_str(", best number of threads");
    }
    SweepPlot {
        title,
        x_label: if random { "block size" } else { "chunk size" }.to_string(),
        y_label: if random { "IOPS" } else { "GB/s (10^9 bytes)" }.to_string(),
        points,
        ceilings: if random { Vec::new() } else { ceilings(runs) },
        ..SweepPlot::default()
    }
}

fn title(runs: &[BenchRun]) -> String {
    let mut names: Vec<&str> =
        runs.iter().flat_map(|run| run.paths.iter().map(String::as_str)).collect();
    names.sort_unstable();
    names.dedup();
    let operation = runs.first().map_or("transfer", |run| run.operation);
    match names.as_slice() {
        [] => operation.to_string(),
        [one] => format!("{operation} {one}"),
        [first, rest @ ..] => format!("{operation} {first} and {} more", rest.len()),
    }
}

fn points(runs: &[BenchRun], with_threads: bool) -> Vec<SweepPoint> {
    let several_paths = differ(runs, |run| run.paths.len());
    let several_targets = differ(runs, |run| run.target.clone());
    runs.iter()
        .map(|run| {
            let mut series = run.path.to_string();
            if several_targets {
                series.push_str(&format!(" to {}", run.target));
            }
            if let Some(memory) = run.memory {
                series.push_str(&format!(", {memory}"));
            }
            if several_paths {
                series.push_str(&format!(", {} paths", run.paths.len()));
            }
            if with_threads {
                series.push_str(&format!(", {} threads", run.threads));
            }
            let y = run.iops.unwrap_or(run.gb_per_s);
            SweepPoint { series, x: run.chunk_bytes as f64, y }
        })
        .collect()
}

fn differ<T: PartialEq>(runs: &[BenchRun], of: impl Fn(&BenchRun) -> T) -> bool {
    runs.windows(2).any(|pair| of(&pair[0]) != of(&pair[1]))
}

fn distinct_series(points: &[SweepPoint]) -> usize {
    let mut names: Vec<&str> = points.iter().map(|point| point.series.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    names.len()
}

/// Of several points of one series at one place the highest.
fn best_of_equals(points: Vec<SweepPoint>) -> Vec<SweepPoint> {
    let mut best: BTreeMap<(String, u64), f64> = BTreeMap::new();
    for point in points {
        // Chunk sizes are whole numbers.
        let y = best.entry((point.series, point.x as u64)).or_insert(point.y);
        *y = y.max(point.y);
    }
    best.into_iter().map(|((series, x), y)| SweepPoint { series, x: x as f64, y }).collect()
}

/// Every ceiling that a stage of a run was compared with; the highest of a stage.
fn ceilings(runs: &[BenchRun]) -> Vec<CeilingLine> {
    let mut highest: BTreeMap<&str, f64> = BTreeMap::new();
    for stage in runs.iter().flat_map(|run| &run.stages) {
        if let Some(ceiling) = stage.ceiling_gb_per_s {
            let known = highest.entry(stage.stage).or_insert(ceiling);
            *known = known.max(ceiling);
        }
    }
    let line = |(stage, y): (&str, f64)| CeilingLine { name: format!("{stage} ceiling"), y };
    highest.into_iter().map(line).collect()
}
