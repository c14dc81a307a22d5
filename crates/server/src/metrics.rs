//! Counters, in the text of Prometheus.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use headrace_engine::failure::{Class, Failure};

/// Upper ends of the buckets of durations, in seconds.
const SECONDS: [f64; 10] = [0.001, 0.005, 0.025, 0.1, 0.25, 1.0, 2.5, 10.0, 60.0, 600.0];

/// What was asked and answered.
#[derive(Debug, Default)]
pub struct Metrics {
    answered: AtomicU64,
    failed: AtomicU64,
    refused: AtomicU64,
    rows: AtomicU64,
    bytes_read: AtomicU64,
    /// By the first bucket that they fit.
    durations: [AtomicU64; SECONDS.len() + 1],
    duration_ns: AtomicU64,
}

/// What is told of the moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Now {
    pub running: usize,
    pub waiting: usize,
    pub memory_used_bytes: u64,
    pub memory_limit_bytes: u64,
}

impl Metrics {
    /// A statement that was answered, or failed on the way.
    pub fn ended(&self, is_answered: bool, (rows, bytes_read): (u64, u64), took: Duration) {
        let outcome = if is_answered { &self.answered } else { &self.failed };
        outcome.fetch_add(1, Ordering::Relaxed);
        self.rows.fetch_add(rows, Ordering::Relaxed);
        self.bytes_read.fetch_add(bytes_read, Ordering::Relaxed);
        let seconds = took.as_secs_f64();
        let bucket = SECONDS.iter().position(|end| seconds <= *end).unwrap_or(SECONDS.len());
        self.durations[bucket].fetch_add(1, Ordering::Relaxed);
        self.duration_ns.fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
    }

    /// One that did not begin.
    pub fn failed(&self, failure: &Failure, took: Duration) {
        match failure.class {
            Class::Forbidden | Class::Busy => {
                self.refused.fetch_add(1, Ordering::Relaxed);
            }
            _ => self.ended(false, (0, 0), took),
        }
    }

    /// The text.
    pub fn text(&self, now: Now) -> String {
        let mut text = String::new();
        let mut told = |name: &str, kind: &str, help: &str, values: &[(&str, f64)]| {
            let _ = writeln!(text, "# HELP headrace_{name} {help}\n# TYPE headrace_{name} {kind}");
            for (label, value) in values {
                let _ = writeln!(text, "headrace_{name}{label} {value}");
            }
        };
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64;
        let outcomes = [
            ("{outcome=\"answered\"}", of(&self.answered)),
            ("{outcome=\"failed\"}", of(&self.failed)),
            ("{outcome=\"refused\"}", of(&self.refused)),
        ];
        told("statements_total", "counter", "Statements by how they ended.", &outcomes);
        told("rows_total", "counter", "Rows of answers.", &[("", of(&self.rows))]);
        let read = [("", of(&self.bytes_read))];
        told("read_bytes_total", "counter", "Bytes of tables that pipelines read.", &read);
        let states = [
            ("{state=\"running\"}", now.running as f64),
            ("{state=\"waiting\"}", now.waiting as f64),
        ];
        told("statements", "gauge", "Statements of this moment, without small ones.", &states);
        let used = [("", now.memory_used_bytes as f64)];
        told("memory_used_bytes", "gauge", "Host memory that statements and caches hold.", &used);
        let limit = [("", now.memory_limit_bytes as f64)];
        told("memory_limit_bytes", "gauge", "Host memory that they may hold.", &limit);
        self.durations_text(&mut text);
        text
    }

    fn durations_text(&self, text: &mut String) {
        let name = "headrace_statement_seconds";
        let _ = writeln!(text, "# HELP {name} How long statements took.\n# TYPE {name} histogram");
        let mut count = 0;
        let ends = SECONDS.iter().map(ToString::to_string).chain(["+Inf".to_string()]);
        for (bucket, end) in self.durations.iter().zip(ends) {
            count += bucket.load(Ordering::Relaxed);
            let _ = writeln!(text, "{name}_bucket{{le=\"{end}\"}} {count}");
        }
        let sum = self.duration_ns.load(Ordering::Relaxed) as f64 / 1e9;
        let _ = writeln!(text, "{name}_sum {sum}\n{name}_count {count}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ended_is_counted() {
        let metrics = Metrics::default();
        metrics.ended(true, (3, 100), Duration::from_millis(3));
        metrics.ended(false, (0, 0), Duration::from_secs(3000));
        metrics.failed(&Failure::new(Class::Busy, "busy"), Duration::ZERO);
        let text = metrics.text(Now { running: 2, ..Now::default() });
        for line in [
            "headrace_statements_total{outcome=\"answered\"} 1",
            "headrace_statements_total{outcome=\"failed\"} 1",
            "headrace_statements_total{outcome=\"refused\"} 1",
            "headrace_statements{state=\"running\"} 2",
            "headrace_rows_total 3",
            "headrace_statement_seconds_bucket{le=\"0.001\"} 0",
            "headrace_statement_seconds_bucket{le=\"0.005\"} 1",
            "headrace_statement_seconds_bucket{le=\"+Inf\"} 2",
            "headrace_statement_seconds_count 2",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }
}
