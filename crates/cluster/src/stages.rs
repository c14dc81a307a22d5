//! What the stages of a job did, for EXPLAIN ANALYZE.
//!
//! A task notes its race as metrics of its node, at its first partition. Ballista keeps those of each task apart, by the
//! partitions that it had, and forgets those of a task that is run again. So they are added up here, where the query came from.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use ballista_core::serde::protobuf::operator_metric::Metric;
use ballista_core::serde::protobuf::{JobStageMetrics, OperatorMetric, OperatorWithMetrics};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricBuilder};
use headrace_runner::RunReport;

const BYTES: &str = "table bytes";
const BUILD_BYTES: &str = "build bytes";
const ROWS: &str = "table rows";
const RACE: &str = "race";
/// Where it ran, and on what: their values are in their names.
const AT: &str = "at ";
const ON: &str = "on ";

/// Notes a race of a task.
pub fn note(metrics: &ExecutionPlanMetricsSet, report: &RunReport, took: Duration, at: &str) {
    let count = |name: String, value: u64| {
        MetricBuilder::new(metrics).counter(name, 0).add(value as usize);
    };
    count(BYTES.to_string(), report.streamed.race.bytes_by_path.total());
    count(BUILD_BYTES.to_string(), report.build_bytes);
    count(ROWS.to_string(), report.streamed.rows_in);
    count(format!("{AT}{at}"), 1);
    count(format!("{ON}{}", report.streamed.processor), 1);
    MetricBuilder::new(metrics).subset_time(RACE, 0).add_duration(took);
}

/// What a task noted.
#[derive(Debug, Default)]
struct Race {
    bytes: u64,
    build_bytes: u64,
    rows: u64,
    seconds: f64,
    at: String,
    on: String,
}

impl Race {
    fn add(&mut self, metric: &OperatorMetric) {
        match &metric.metric {
            Some(Metric::Count(count)) => match count.name.as_str() {
                BYTES => self.bytes += count.value,
                BUILD_BYTES => self.build_bytes += count.value,
                ROWS => self.rows += count.value,
                name => {
                    if let Some(at) = name.strip_prefix(AT) {
                        self.at = at.to_string();
                    } else if let Some(on) = name.strip_prefix(ON) {
                        self.on = on.to_string();
                    }
                }
            },
            Some(Metric::Time(time)) if time.name == RACE => {
                self.seconds += time.value as f64 / 1e9
            }
            _ => {}
        }
    }
}

/// The stages, a line each.
pub fn lines(stages: &[JobStageMetrics]) -> Vec<String> {
    stages.iter().map(line).collect()
}

fn line(stage: &JobStageMetrics) -> String {
    let mut tasks: BTreeMap<u32, Race> = BTreeMap::new();
    for operator in &stage.operators {
        let is_of_race = |metric: &&OperatorMetric| metric.partition.is_some();
        if operator.operator_type == "PipelineShareExec" {
            for metric in operator.metrics.iter().filter(is_of_race) {
                tasks.entry(metric.partition.unwrap_or_default()).or_default().add(metric);
            }
        }
    }
    // Other partitions of a task have only its rows.
    tasks.retain(|_, race| !race.at.is_empty());
    let mut text = format!("stage {}: ", stage.stage_id);
    let _ = match tasks.is_empty() {
        true => write!(text, "{} partitions", stage.partitions),
        false => write!(text, "{}", races(&tasks.into_values().collect::<Vec<_>>())),
    };
    // The writer of a stage's output has the rows of what is below it.
    for operator in stage.operators.iter().filter(|operator| operator.depth == 1) {
        let _ = write!(text, ", {} rows of {}", rows_out(operator), operator.operator_type);
    }
    text
}

fn races(races: &[Race]) -> String {
    let sum = |of: fn(&Race) -> u64| races.iter().map(of).sum::<u64>();
    let mut executors: BTreeMap<&str, (u64, f64)> = BTreeMap::new();
    let mut processors: BTreeMap<&str, usize> = BTreeMap::new();
    for race in races {
        let executor = executors.entry(&race.at).or_default();
        *executor = (executor.0 + race.bytes, executor.1 + race.seconds);
        *processors.entry(&race.on).or_default() += 1;
    }
    let rate: f64 = executors
        .values()
        .filter(|(_, s)| *s > 0.0)
        .map(|(bytes, s)| *bytes as f64 / s / 1e9)
        .sum();
    let on: Vec<String> = processors.iter().map(|(on, tasks)| format!("{tasks} on {on}")).collect();
    let mut text = format!(
        "tasks={} ({}), executors={}, rows={}, bytes={}, {rate:.3} GB/s in sum",
        races.len(),
        on.join(", "),
        executors.len(),
        sum(|race| race.rows),
        sum(|race| race.bytes),
    );
    let builds = sum(|race| race.build_bytes);
    if builds > 0 {
        let _ = write!(text, ", bytes of builds={builds}");
    }
    if let Some(slowest) = races.iter().max_by(|a, b| a.seconds.total_cmp(&b.seconds)) {
        let _ = write!(text, ", slowest={:.3} s at {}", slowest.seconds, slowest.at);
    }
    text
}

fn rows_out(operator: &OperatorWithMetrics) -> u64 {
    let rows = |metric: &OperatorMetric| match metric.metric {
        Some(Metric::OutputRows(rows)) => rows,
        _ => 0,
    };
    operator.metrics.iter().map(rows).sum()
}

#[cfg(test)]
mod tests {
    use ballista_core::serde::protobuf::{NamedCount, NamedTime};

    use super::*;

    fn noted(partition: u32, (bytes, seconds): (u64, f64), at: &str) -> Vec<OperatorMetric> {
        let metric = |metric| OperatorMetric { partition: Some(partition), metric: Some(metric) };
        let count =
            |name: &str, value| metric(Metric::Count(NamedCount { name: name.into(), value }));
        let value = (seconds * 1e9) as u64;
        vec![
            count(BYTES, bytes),
            count(ROWS, 10),
            count(&format!("{AT}{at}"), 1),
            count("on cpu", 1),
            metric(Metric::Time(NamedTime { name: RACE.into(), value })),
            metric(Metric::OutputRows(3)),
        ]
    }

    #[test]
    fn races_of_tasks_are_added_up() {
        let mut metrics = noted(0, (1_000_000_000, 1.0), "a:1");
        metrics.extend(noted(3, (1_000_000_000, 3.0), "a:1"));
        metrics.extend(noted(5, (2_000_000_000, 0.5), "b:1"));
        metrics.push(OperatorMetric { partition: Some(1), metric: Some(Metric::OutputRows(0)) });
        let operator = OperatorWithMetrics {
            depth: 1,
            operator_type: "PipelineShareExec".into(),
            operator_desc: String::new(),
            metrics,
        };
        let line = line(&JobStageMetrics { stage_id: 1, partitions: 8, operators: vec![operator] });
        assert_eq!(
            line,
            "stage 1: tasks=3 (3 on cpu), executors=2, rows=30, bytes=4000000000, 4.500 GB/s in sum, \
             slowest=3.000 s at a:1, 9 rows of PipelineShareExec"
        );
    }
}
