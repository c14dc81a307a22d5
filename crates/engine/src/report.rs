//! What a query did, for people and programs.

use std::sync::Arc;

use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_plan::ExecutionPlan;
use headrace_flow::{BytesByPath, RaceReport};
use headrace_io::decimal_bytes;
use headrace_runner::{RunReport, Served, StreamTable};
use serde::Serialize;

use crate::catalog::TextSource;
use crate::exec::{PipelineExec, TableCallExec};
use crate::limits::Limits;
use crate::scan::HeadraceScanExec;

/// Lines for EXPLAIN ANALYZE; `limits` are the measured ceilings, or why there are none.
pub(crate) fn report_lines(report: &RunReport, limits: &Result<Limits, String>) -> Vec<String> {
    let race = &report.streamed.race;
    let mut lines = vec![format!(
        "ran on {}: rows in {}, out {}, wall {:.2} ms (builds {:.2}, bind {:.2}, race {:.2}, \
         finish {:.2})",
        report.streamed.processor,
        report.streamed.rows_in,
        report.streamed.rows_out,
        report.streamed.wall_ms,
        report.build_ms,
        report.streamed.bind_ms,
        ms(race.wall_ns),
        report.streamed.finish_ms
    )];
    if let Some(Served { pid, device, queued_ms }) = &report.served {
        let device = device.as_deref().map(|device| format!(" on {device}")).unwrap_or_default();
        lines.push(format!("gpu-service: process {pid}{device}, waited {queued_ms:.2} ms"));
    }
    let why_not = report.served_why_not.iter();
    lines.extend(why_not.map(|why| format!("not in the gpu-service: {why}")));
    if report.streamed.processor == "planner" {
        let reason = report.streamed.processor_why_not.iter();
        lines.extend(reason.map(|reason| format!("why_not: {reason}")));
        return lines;
    }
    let mut bytes = bytes_by_path_text(&race.bytes_by_path);
    if race.bytes_by_path.remote > 0 {
        bytes += &format!(" in {} reads", race.read_requests);
    }
    lines.push(format!("bytes {bytes}; {:.2} GB/s", race.gb_per_s()));
    lines.push(format!(
        "read {:.2} ms, h2d {:.2} ms, execute {:.2} ms on {}, kernel {:.2} ms",
        ms(race.read_busy_ns),
        ms(race.h2d_ns),
        ms(race.execute_busy_ns),
        race.consumers,
        ms(race.kernel_ns)
    ));
    lines.extend(limit_lines(race, limits));
    lines.push(format!(
        "chunks {}, batches pruned {} ({} rows), builds made {}, cached {}",
        race.chunks,
        report.streamed.pruned_batches,
        report.streamed.pruned_rows,
        report.builds_made,
        report.builds_cached
    ));
    if report.streamed.spilled_bytes > 0 {
        lines.push(format!("groups spilled {}", decimal_bytes(report.streamed.spilled_bytes)));
    }
    lines.extend(report.streamed.gpus.iter().map(|gpu| {
        let (came, resident) = (decimal_bytes(gpu.came_bytes), decimal_bytes(gpu.resident_bytes));
        format!("GPU {}: {came} came, {resident} were there", gpu.gpu)
    }));
    lines.extend(race.path_reasons.iter().map(|reason| format!("path: {reason}")));
    lines
}

fn limit_lines(race: &RaceReport, limits: &Result<Limits, String>) -> Vec<String> {
    let Some(bottleneck) = race.bottleneck() else { return Vec::new() };
    match limits {
        Ok(limits) => vec![
            format!("bottleneck {}", limits.bottleneck(race).unwrap_or_default()),
            format!("model: {}", limits.prediction(race)),
        ],
        Err(reason) => {
            vec![format!("bottleneck {bottleneck}"), format!("model: {reason}")]
        }
    }
}

/// "mapped 4096, direct 8192": the paths that were taken.
fn bytes_by_path_text(bytes: &BytesByPath) -> String {
    let taken: Vec<String> = bytes
        .named()
        .iter()
        .filter(|(_, bytes)| *bytes > 0)
        .map(|(path, bytes)| format!("{path} {bytes}"))
        .collect();
    if taken.is_empty() { "none".to_string() } else { taken.join(", ") }
}

/// Nanoseconds as milliseconds.
pub fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

/// How far a query has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueryProgress {
    /// Rows of tables that its pipelines were given, with those that statistics ruled out.
    pub rows: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Rows of all those tables: builds that are kept from an earlier query need not read theirs.
    pub rows_total: u64,
}

/// Rows of the tables that the pipelines of a plan read.
pub(crate) fn rows_streamed(plan: &Arc<dyn ExecutionPlan>) -> u64 {
    let own = plan.downcast_ref::<PipelineExec>().map_or(0, |pipeline| {
        let planned = pipeline.planned();
        // Rows of a child plan are known when they are there.
        let tables = planned.program.sources().map(|source| planned.table(source));
        tables.flatten().filter_map(|table| table.source().rows()).sum()
    });
    own + plan.children().into_iter().map(rows_streamed).sum::<u64>()
}

/// A stage that is idle for most of a query's time is not its limit.
const LIMIT_SHARE_MIN: f64 = 0.25;

/// In the names of operators that could be part of a pipeline.
const PLANNER_WORK: [&str; 3] = ["Join", "Aggregate", "Window"];

/// What a query did.
#[derive(Clone, Debug, Default, Serialize)]
pub struct QueryReport {
    /// Rows of the answer.
    pub rows: u64,
    /// From the call to the last row, planning included, in milliseconds.
    pub wall_ms: f64,
    /// Parsing, planning, optimising, in milliseconds.
    pub planning_ms: f64,
    /// What else is to be known of the answer: files that are no part of their table.
    pub notes: Vec<String>,
    /// Whether the plan was made for an earlier query of the same text.
    pub plan_cached: bool,
    /// What ran the query: "cpu", "cuda", "planner" (pipelines that were handed back, and tables that the planner's
    /// own operators read); joined by " + " if several.
    pub processor: String,
    /// Bytes of streamed tables by the way they took.
    pub bytes_by_path: BytesByPath,
    /// Bytes read for pipelines and builds.
    pub bytes_read: u64,
    /// Requests to servers while it ran, those of other queries at the same time included.
    pub remote_requests: u64,
    /// Bytes of files that came from servers meanwhile: more than `bytes_by_path` says of them, since listings are not
    /// counted there, nor footers and what lies between small reads.
    pub remote_bytes: u64,
    /// Time of kernels on a device, in milliseconds.
    pub kernel_ms: f64,
    /// The stage that limited the longest pipeline, in words.
    pub bottleneck: Option<String>,
    /// Why parts of the query were not run by a pipeline, or not on the wanted processor.
    pub why_not: Vec<String>,
    /// Every pipeline, in the order of the plan.
    pub pipelines: Vec<RunReport>,
    /// Whether operators of the planner read a table.
    pub reads_by_planner: bool,
    /// Operators of the planner that join, group or number rows, by name, each once.
    pub planner_operators: Vec<String>,
}

/// How much of a query ran as pipelines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PipelineShare {
    /// All reading, joining and grouping.
    Whole,
    /// Some of it.
    Part,
    /// Nothing.
    None,
}

impl QueryReport {
    /// Collects what the pipelines of an executed plan have to say.
    pub fn of(plan: &Arc<dyn ExecutionPlan>) -> Self {
        let mut report = Self::default();
        report.visit(plan);
        report.summarise();
        report
    }

    /// How much of the query ran as pipelines; the order of few rows, and HAVING, count for nothing.
    pub fn pipeline_share(&self) -> PipelineShare {
        let ran = |pipeline: &&RunReport| pipeline.streamed.processor != "planner";
        let pipelines = self.pipelines.iter().filter(ran).count();
        match pipelines {
            0 => PipelineShare::None,
            _ if self.reads_by_planner || !self.planner_operators.is_empty() => PipelineShare::Part,
            _ if pipelines < self.pipelines.len() => PipelineShare::Part,
            _ => PipelineShare::Whole,
        }
    }

    /// Files that were not read, once for each table.
    fn note_skipped(&mut self, table: &StreamTable) {
        let note = table.skipped_note().filter(|note| !self.notes.contains(note));
        self.notes.extend(note);
    }

    /// Records of text files that were left out, as somebody wished.
    fn note_ignored(&mut self, scan: &DataSourceExec) {
        let Some((config, source)) = scan.downcast_to_file_source::<TextSource>() else { return };
        let ignored = source.ignored();
        let file = config.file_groups.iter().find_map(|group| group.files().first());
        if let Some(file) = file.filter(|_| ignored > 0) {
            let records = if ignored == 1 { "record that does" } else { "records that do" };
            let place = file.path();
            self.notes
                .push(format!("{place}: {ignored} {records} not fit left out (ignore_errors)"));
        }
    }

    fn visit(&mut self, plan: &Arc<dyn ExecutionPlan>) {
        if let Some(scan) = plan.downcast_ref::<HeadraceScanExec>() {
            self.note_skipped(scan.table().stream());
            let reasons = scan.why_not().iter().map(|r| format!("{}: {r}", scan.table().name()));
            self.why_not.extend(reasons);
            self.reads_by_planner = true;
        }
        if let Some(scan) = plan.downcast_ref::<DataSourceExec>() {
            self.note_ignored(scan);
        }
        let name = plan.name();
        let works = PLANNER_WORK.iter().any(|work| name.contains(work));
        if works && !self.planner_operators.iter().any(|known| known == name) {
            self.planner_operators.push(name.to_string());
        }
        if let Some(pipeline) = plan.downcast_ref::<PipelineExec>() {
            pipeline.planned().tables.iter().for_each(|table| self.note_skipped(table));
            self.why_not.extend(pipeline.why_not().iter().map(ToString::to_string));
            self.pipelines.extend(pipeline.report());
        }
        if let Some(call) = plan.downcast_ref::<TableCallExec>() {
            self.pipelines.extend(call.report());
        }
        plan.children().into_iter().for_each(|child| self.visit(child));
    }

    fn summarise(&mut self) {
        let mut processors: Vec<&str> = Vec::new();
        if self.reads_by_planner {
            processors.push("planner");
        }
        for pipeline in &self.pipelines {
            self.bytes_read += pipeline.build_bytes;
            for stage in pipeline.placed() {
                let bytes = &stage.race.bytes_by_path;
                self.bytes_by_path.add(bytes);
                self.bytes_read += bytes.total();
                self.kernel_ms += ms(stage.race.kernel_ns);
                if !processors.contains(&stage.processor.as_str()) {
                    processors.push(&stage.processor);
                }
                self.why_not.extend(stage.processor_why_not.clone());
            }
        }
        self.processor =
            if processors.is_empty() { "planner".to_string() } else { processors.join(" + ") };
        let longest = self
            .pipelines
            .iter()
            .max_by(|a, b| a.streamed.race.wall_ns.cmp(&b.streamed.race.wall_ns));
        self.bottleneck = longest
            .and_then(|p| p.streamed.race.bottleneck())
            .filter(|bottleneck| bottleneck.busy_share >= LIMIT_SHARE_MIN)
            .map(|bottleneck| bottleneck.to_string());
        let mut seen = std::collections::HashSet::new();
        self.why_not.retain(|reason| seen.insert(reason.clone()));
    }
}
