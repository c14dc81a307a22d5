//! How a pipeline reads in EXPLAIN.

mod document;
mod stages;

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, RecordBatch, StringArray};
use datafusion::catalog::TableProvider;
use datafusion::common::Result;
use datafusion::physical_plan::ExecutionPlan;

use self::document::with_pipelines;
use self::stages::{Shown, ShownStage};
use crate::catalog::{HeadraceTable, PlannedTable, TableEntry, shown_text};
use crate::exec::PipelineExec;
use crate::limits::Limits;
use crate::report::report_lines;

/// The stages in the order in which they run, step by step. The first line stands beside the node's name and shows the source of
/// the last stage. After a run these are the stages that ran, with the rows after each step.
pub fn lines(node: &PipelineExec) -> Vec<String> {
    let report = node.report();
    let shown = Shown::new(node, report.as_ref());
    let mut stages = shown.stages();
    let Some(answer) = stages.pop() else { return Vec::new() };
    let mut answer = answer.lines().into_iter();
    let mut lines: Vec<String> = answer.next().into_iter().collect();
    let below = stages.iter().flat_map(ShownStage::lines);
    lines.extend(below.map(|line| format!("  {line}")));
    lines.extend(answer);
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

pub use self::document::explained;

/// Whether the rows of a plan are a plan.
pub fn is_explained(plan: &dyn ExecutionPlan) -> bool {
    matches!(plan.name(), "ExplainExec" | "AnalyzeExec")
}

/// The texts of a plan as they are shown: what follows the names of addresses may be a signature. `ran`: what
/// ran below EXPLAIN ANALYZE.
pub fn as_shown(texts: RecordBatch, ran: &dyn ExecutionPlan) -> Result<RecordBatch> {
    let json = document::analyzed(ran);
    let text = |text: &str| match &json {
        Some(plan) if text.starts_with('[') => Ok(shown_text(&with_pipelines(text, plan)?)),
        _ => Ok(shown_text(text)),
    };
    let column = |column: &ArrayRef| match column.as_string_opt::<i32>() {
        Some(texts) => {
            let shown = texts.iter().map(|shown| shown.map(text).transpose());
            Ok(Arc::new(shown.collect::<Result<StringArray>>()?) as ArrayRef)
        }
        None => Ok(Arc::clone(column)),
    };
    let columns = texts.columns().iter().map(column).collect::<Result<_>>()?;
    Ok(RecordBatch::try_new(texts.schema(), columns)?)
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
