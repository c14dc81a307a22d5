//! How a pipeline reads in EXPLAIN.

use std::borrow::Cow;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, RecordBatch, StringArray};
use datafusion::catalog::TableProvider;
use datafusion::common::Result;
use datafusion::physical_plan::ExecutionPlan;
use headrace_io::decimal_bytes;
use headrace_ir::{Input, Pipeline, Program, Sink};
use headrace_runner::{Place, StageReport};

use crate::catalog::{HeadraceTable, PlannedTable, TableEntry, shown_text};
use crate::exec::PipelineExec;
use crate::limits::Limits;
use crate::report::report_lines;
use crate::rule::Planned;

/// The stages in the order in which they run, step by step. The first line stands beside the node's name and shows the source of
/// the last stage. After a run these are the stages that ran, with the rows after each step.
pub fn lines(node: &PipelineExec) -> Vec<String> {
    let (planned, report) = (node.planned(), node.report());
    let program = match report.as_ref().and_then(|report| report.program.as_ref()) {
        Some(ran) => Cow::Borrowed(ran),
        // A program that cannot be lowered is refused when it runs.
        None => planned.program.lowered().unwrap_or(Cow::Borrowed(&planned.program)),
    };
    let reports = report.as_ref().map_or(&[][..], |report| &report.stages);
    let shown = Shown { node, program: &program, reports };
    let verb = format!("stream {}", program.answer.source.table);
    let mut lines = vec![source_line(&verb, &program.answer, planned)];
    for (number, stage) in program.stages.iter().enumerate() {
        lines.extend(shown.stage_lines(number, stage).into_iter().map(|line| format!("  {line}")));
    }
    let answer = shown.step_lines(program.stages.len(), &program.answer);
    lines.extend(answer.into_iter().map(|line| format!("  {line}")));
    if !node.why_not().is_empty() {
        let reasons: Vec<_> = node.why_not().iter().map(ToString::to_string).collect();
        lines.push(format!("  why_not above: {}", reasons.join("; ")));
    }
    if let Some(report) = &report {
        let limits = Limits::of(node);
        lines.extend(report_lines(report, &limits).into_iter().map(|line| format!("  {line}")));
    }
    lines
}

/// A program and the reports of its run.
struct Shown<'a> {
    node: &'a PipelineExec,
    program: &'a Program,
    /// By stage; none before a run.
    reports: &'a [Option<StageReport>],
}

impl Shown<'_> {
    fn report(&self, number: usize) -> Option<&StageReport> {
        self.reports.get(number)?.as_ref()
    }

    fn stage_lines(&self, number: usize, stage: &Pipeline) -> Vec<String> {
        let verb = match stage.sink {
            Sink::Build { .. } => format!("build {}", self.program.build_name(number)),
            _ => format!("stage {number}: {}", stage.source.table),
        };
        let steps = self.step_lines(number, stage);
        let mut lines = vec![source_line(&verb, stage, self.node.planned())];
        lines.extend(steps.into_iter().map(|line| format!("  {line}")));
        lines
    }

    /// Steps in the order in which they ran, the sink, and the processor where one is chosen.
    fn step_lines(&self, number: usize, stage: &Pipeline) -> Vec<String> {
        let report = self.report(number);
        let ran = report.map(|report| &report.steps).filter(|steps| !steps.is_empty());
        let mut lines: Vec<String> = match ran {
            None => stage.steps.iter().map(|step| self.program.step_line(step)).collect(),
            Some(steps) => steps
                .iter()
                .filter_map(|ran| {
                    let line = self.program.step_line(stage.steps.get(ran.step)?);
                    Some(match ran.rows {
                        Some(rows) => format!("{line} ({})", rows_text(rows)),
                        None => line,
                    })
                })
                .collect(),
        };
        let sink = Program::sink_line(&stage.sink);
        let is_answer = number == self.program.stages.len();
        lines.push(match report {
            Some(report) => format!("{sink} ({})", result_text(report, is_answer)),
            None => sink,
        });
        lines.extend(self.processor_line(number, stage));
        lines
    }

    /// The processor of a stage, and why it is not a GPU.
    fn processor_line(&self, number: usize, stage: &Pipeline) -> Option<String> {
        if matches!(stage.sink, Sink::Build { .. }) {
            return None;
        }
        if stage.source.input.table().is_none() {
            let processor = self.report(number).map_or("cpu", |report| &report.processor);
            return Some(format!("processor {processor}: what it reads is in host memory"));
        }
        let access = self.node.settings().access;
        let planned = || {
            let (processor, reason) = self.node.processor_of(self.program, number);
            (processor, reason.map(|reason| reason.to_string()))
        };
        let (processor, reason) = match self.report(number) {
            None => planned(),
            Some(ran) if ran.processor == "cuda" || ran.processor_why_not.is_some() => {
                (ran.processor.as_str(), ran.processor_why_not.clone())
            }
            // The run had no choice: the settings say why.
            Some(ran) => (ran.processor.as_str(), planned().1),
        };
        Some(match reason {
            None => format!("processor {processor}, access {access}"),
            Some(reason) => {
                format!("processor {processor}, access {access}; why_not cuda: {reason}")
            }
        })
    }
}

fn rows_text(rows: u64) -> String {
    if rows == 1 { "1 row".to_string() } else { format!("{rows} rows") }
}

/// The result of a stage: rows, index, size, place and time.
fn result_text(report: &StageReport, is_answer: bool) -> String {
    let kept = match report.result.as_str() {
        "" => rows_text(report.rows_out),
        result => result.to_string(),
    };
    if is_answer || report.is_cached {
        return kept;
    }
    let place = match report.place {
        Place::Streamed => String::new(),
        place => format!(", {place}"),
    };
    format!("{kept}{place}, {:.2} ms", report.wall_ms)
}

fn source_line(verb: &str, pipeline: &Pipeline, planned: &Planned) -> String {
    let names: Vec<_> = pipeline.source.columns.iter().map(|c| c.name.as_str()).collect();
    let Some(table) = planned.table(&pipeline.source) else {
        let from = match &pipeline.source.input {
            Input::Values(rows) => format!("of {} rows of constants", rows.len()),
            Input::Stage(stage) => format!("from stage {stage}"),
            Input::Partitions(stage) => format!("from partitions of stage {stage}"),
            Input::Table(_) | Input::Batches(_) => "from a child plan".to_string(),
        };
        return format!("{verb} {from} [{}]", names.join(", "));
    };
    let bytes = pipeline.source.ordinals.iter().map(|&c| table.column_bytes(c)).sum();
    let mut line =
        format!("{verb} [{}] {} rows, {}", names.join(", "), table.rows(), decimal_bytes(bytes));
    if let Some(ruled_out) = table.ruled_out_text() {
        line += &format!(", {ruled_out}");
    }
    if let Some(skipped) = skipped_text(table) {
        line += &format!(", {skipped}");
    }
    line
}

/// Whether the rows of a plan are a plan.
pub fn is_explained(plan: &dyn ExecutionPlan) -> bool {
    matches!(plan.name(), "ExplainExec" | "AnalyzeExec")
}

/// A plan as it is shown: what follows the names of addresses may be a signature.
pub fn as_shown(plan: RecordBatch) -> Result<RecordBatch> {
    let column = |column: &ArrayRef| match column.as_string_opt::<i32>() {
        Some(texts) => {
            let shown = texts.iter().map(|text| text.map(shown_text));
            Arc::new(shown.collect::<StringArray>()) as ArrayRef
        }
        None => Arc::clone(column),
    };
    Ok(RecordBatch::try_new(plan.schema(), plan.columns().iter().map(column).collect())?)
}

/// Files named in one line.
const SKIPPED_NAMED_MAX: usize = 8;

/// Files that lie among a table's but are not part of it, with the reasons.
pub fn skipped_text(table: &HeadraceTable) -> Option<String> {
    let skipped = table.arrow().skipped();
    if skipped.is_empty() {
        return None;
    }
    let named = skipped.iter().take(SKIPPED_NAMED_MAX).map(|file| {
        let name = file.path.file_name().unwrap_or(file.path.as_os_str());
        format!("{} ({})", name.to_string_lossy(), file.reason)
    });
    let more = skipped.len().saturating_sub(SKIPPED_NAMED_MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let files = if skipped.len() == 1 { "file" } else { "files" };
    Some(format!(
        "{} {files} skipped: {}{more}",
        skipped.len(),
        named.collect::<Vec<_>>().join(", ")
    ))
}

/// What was told of a table's files and could be otherwise, or was left out.
pub fn table_notes(name: &str, table: &Arc<dyn TableProvider>) -> Vec<String> {
    let skipped = table.downcast_ref::<TableEntry>().and_then(|entry| skipped_note(&entry.0));
    let told = table.downcast_ref::<PlannedTable>().map(PlannedTable::notes).unwrap_or_default();
    let told = told.iter().map(|note| format!("table {name}: {note}"));
    skipped.into_iter().chain(told).collect()
}

/// The same, beside an answer.
pub fn skipped_note(table: &HeadraceTable) -> Option<String> {
    skipped_text(table).map(|skipped| format!("table {}: {skipped}", table.name()))
}
