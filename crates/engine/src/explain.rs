//! How a pipeline reads in EXPLAIN.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, RecordBatch, StringArray};
use datafusion::catalog::TableProvider;
use datafusion::common::Result;
use datafusion::physical_plan::ExecutionPlan;
use headrace_io::decimal_bytes;
use headrace_ir::{Input, Pipeline, Program};

use crate::catalog::{HeadraceTable, PlannedTable, TableEntry, shown_text};
use crate::exec::PipelineExec;
use crate::limits::Limits;
use crate::report::report_lines;
use crate::rule::Planned;

/// The pipeline step by step; the first line stands beside the node's name.
pub fn lines(node: &PipelineExec) -> Vec<String> {
    let planned = node.planned();
    let program = &planned.program;
    let mut lines = vec![source_line("stream", &program.answer, planned)];
    for stage in &program.stages {
        lines.push(format!("  {}", source_line("build", stage, planned)));
        lines.extend(step_lines(program, stage, "    "));
    }
    lines.extend(step_lines(program, &program.answer, "  "));
    let (processor, reason) = node.processor();
    let access = node.settings().access;
    lines.push(match reason {
        None => format!("  processor {processor}, access {access}"),
        Some(reason) => format!("  processor {processor}, access {access}; why_not cuda: {reason}"),
    });
    if !node.why_not().is_empty() {
        let reasons: Vec<_> = node.why_not().iter().map(ToString::to_string).collect();
        lines.push(format!("  why_not above: {}", reasons.join("; ")));
    }
    if let Some(report) = node.report() {
        let limits = Limits::of(node);
        lines.extend(report_lines(&report, &limits).into_iter().map(|line| format!("  {line}")));
    }
    lines
}

fn step_lines(program: &Program, pipeline: &Pipeline, indent: &str) -> Vec<String> {
    let steps = pipeline.steps.iter().map(|step| program.step_line(step));
    let sink = std::iter::once(Program::sink_line(&pipeline.sink));
    steps.chain(sink).map(|line| format!("{indent}{line}")).collect()
}

fn source_line(verb: &str, pipeline: &Pipeline, planned: &Planned) -> String {
    let names: Vec<_> = pipeline.source.columns.iter().map(|c| c.name.as_str()).collect();
    let Some(table) = planned.table(&pipeline.source) else {
        let rows = match &pipeline.source.input {
            Input::Values(rows) => format!("{} rows of constants", rows.len()),
            Input::Stage(stage) => format!("rows of stage {stage}"),
            _ => "rows".to_string(),
        };
        return format!("{verb} {rows} of {} [{}]", pipeline.source.table, names.join(", "));
    };
    let bytes = pipeline.source.ordinals.iter().map(|&c| table.column_bytes(c)).sum();
    let mut line = format!(
        "{verb} {} [{}] {} rows, {}",
        pipeline.source.table,
        names.join(", "),
        table.rows(),
        decimal_bytes(bytes)
    );
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
