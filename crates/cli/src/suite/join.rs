//! `headrace demo --join`: a large table joined with a small one and grouped, in every way that this machine has.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use headrace_bench::aligned;
use headrace_engine::Processor;
use headrace_suites::join::ROWS_PER_SCALE;
use headrace_suites::{GenerateOptions, Query, Suite};

use crate::args::{DemoArgs, EngineArgs};
use crate::blocking::blocking;
use crate::error::Result;
use crate::output::print;
use crate::session;
use crate::suite::demo::{default_folder, processors, quoted, this_program};
use crate::suite::generate::generate;
use crate::suite::measure::{Measurement, Plan, measure};
use crate::suite::run;

/// Runs of each processor after the first.
const HOT_RUNS: u32 = 2;

/// Generates once, asks every processor present, compares the answers with that of the planner's own plan.
pub async fn run(args: &DemoArgs, cancel: Arc<AtomicBool>) -> Result<()> {
    let rows = args.rows;
    let folder = args.data.clone().unwrap_or_else(|| default_folder(&format!("join-{rows}")));
    say!("t0 of {rows} rows and t1 of 100000, in {}", folder.display());
    let (out, scale) = (folder.clone(), rows as f64 / ROWS_PER_SCALE);
    let summary =
        blocking(move || generate(GenerateOptions::new(Suite::Join, scale, &out), false, &cancel))
            .await?;
    say!("{:.2} GB on disk", summary.bytes as f64 / 1e9);
    let mut measurements: Vec<Measurement> = Vec::new();
    for query in Suite::Join.queries() {
        for processor in [Processor::Off].into_iter().chain(processors()) {
            let mut measured = ask(&folder, processor, query).await?;
            measured.equal_to_off =
                measurements.first().map(|off| off.answer_sha256 == measured.answer_sha256);
            measurements.push(measured);
        }
        print(&format!("{}\n\n", query.sql.trim_end()))?;
    }
    print_result(&measurements, &folder, rows)?;
    run::refuse_wrong_answers(&measurements)
}

async fn ask(folder: &Path, processor: Processor, query: &Query) -> Result<Measurement> {
    // Where it is to run, or not at all.
    let fallback = if processor == Processor::Off { "allow" } else { "forbid" };
    let engine =
        EngineArgs { fallback: fallback.into(), ..session::on(processor, &EngineArgs::default()) };
    let session = session::open(folder, &engine)?;
    measure(&session, query, &Plan { runs: HOT_RUNS, drop_before_first: &[], baseline: None }).await
}

fn print_result(measurements: &[Measurement], folder: &Path, rows: u64) -> Result<()> {
    let (program, data) = (this_program(), quoted(folder));
    print(&format!(
        "{}\nTry next:\n  {program} --data {data} -c \"explain analyze select cat, count(*), avg(ax) from t0 natural join \
         t1 group by cat\"\n",
        table(measurements, rows),
    ))
}

/// Times and rates; the bytes are those of the columns that the query needs, whoever reads them.
fn table(measurements: &[Measurement], rows: u64) -> String {
    let bytes = measurements.iter().map(|measured| measured.bytes_read).max().unwrap_or(0);
    let header = ["ran on", "first ms", "hot ms", "M rows/s", "GB/s", "answer", "bottleneck"];
    let mut cells = vec![header.map(str::to_string)];
    cells.extend(measurements.iter().map(|measured| {
        let hot_ms = measured.best_ms();
        let answer = match measured.equal_to_off {
            None => format!("{} rows", measured.rows),
            Some(true) => "the same".into(),
            Some(false) => "ANOTHER".into(),
        };
        [
            place(measured),
            format!("{:.1}", measured.cold_ms),
            format!("{hot_ms:.1}"),
            format!("{:.1}", rows as f64 / hot_ms / 1e3),
            format!("{:.2}", bytes as f64 / hot_ms / 1e6),
            answer,
            measured.bottleneck.clone(),
        ]
    }));
    aligned(&cells, |_, column| matches!(column, 1..=4))
        .into_iter()
        .map(|line| line + "\n")
        .collect()
}

/// Where a query ran, in words.
fn place(measured: &Measurement) -> String {
    match measured.pipelines {
        "none" => "the planner's own plan".into(),
        _ => measured.processor.clone(),
    }
}

#[cfg(test)]
mod tests {
    use headrace_flow::BytesByPath;

    use super::*;

    fn measured(pipelines: &'static str, hot_ms: f64, equal_to_off: Option<bool>) -> Measurement {
        Measurement {
            query: "1".into(),
            processor: "cpu".into(),
            rows: 26,
            cold_ms: 100.0,
            page_cache_dropped: false,
            hot_ms: vec![hot_ms],
            planning_ms: 0.0,
            race_ms: 0.0,
            bytes_read: if pipelines == "none" { 0 } else { 5_000_000 },
            bytes_by_path: BytesByPath::default(),
            cold_bytes_by_path: BytesByPath::default(),
            kernel_ms: None,
            bottleneck: String::new(),
            answer_sha256: String::new(),
            equal_to_off,
            pipelines,
            planner_operators: Vec::new(),
            why_not: Vec::new(),
        }
    }

    #[test]
    fn the_table_says_where_how_fast_and_whether_answers_are_the_same() {
        let of = [measured("none", 50.0, None), measured("all", 10.0, Some(true))];
        let told = table(&of, 1_000_000);
        let lines: Vec<&str> = told.lines().collect();
        assert!(
            lines[1].contains("the planner's own plan") && lines[1].contains("26 rows"),
            "{told}"
        );
        assert!(lines[1].contains(" 20.0 ") && lines[1].contains(" 0.10 "), "{told}");
        assert!(lines[2].contains("cpu") && lines[2].contains("the same"), "{told}");
        assert!(lines[2].contains(" 100.0 ") && lines[2].contains(" 0.50 "), "{told}");
        assert!(table(&[measured("all", 1.0, Some(false))], 1).contains("ANOTHER"));
    }
}
