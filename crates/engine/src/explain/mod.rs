//! How a pipeline reads in EXPLAIN.

mod document;
mod shows;
mod stages;

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, RecordBatch, StringArray};
use datafusion::common::Result;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan};

pub use self::document::explained;
use self::document::with_pipelines;
pub use self::shows::is_explained;
use self::stages::{Shown, ShownStage};
use crate::catalog::shown_text;
use crate::exec::PipelineExec;
use crate::limits::Limits;
use crate::report::report_lines;

impl DisplayAs for PipelineExec {
    fn fmt_as(&self, t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let separator = if t == DisplayFormatType::TreeRender { "\n" } else { "\n          " };
        if t != DisplayFormatType::TreeRender {
            f.write_str("PipelineExec: ")?;
        }
        f.write_str(&lines(self).join(separator))
    }
}

/// The stages in the order in which they run, step by step. The first line stands beside the node's name and shows the source of
/// the last stage. After a run these are the stages that ran, with the rows after each step.
fn lines(node: &PipelineExec) -> Vec<String> {
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
