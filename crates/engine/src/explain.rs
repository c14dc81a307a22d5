//! How a pipeline reads in EXPLAIN.

use headrace_ir::{BuildSource, Pipeline, Program};

use crate::catalog::HeadraceTable;
use crate::exec::PipelineExec;
use crate::limits::Limits;
use crate::rule::TableUse;

/// Bytes in decimal units, three significant digits.
pub fn bytes_text(bytes: u64) -> String {
    let units = [(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")];
    let value = bytes as f64;
    match units.iter().find(|(scale, _)| value >= *scale) {
        Some((scale, unit)) => format!("{:.3} {unit}", value / scale),
        None => format!("{bytes} B"),
    }
}

/// The pipeline step by step; the first line stands beside the node's name.
pub fn lines(node: &PipelineExec) -> Vec<String> {
    let planned = node.planned();
    let program = &planned.program;
    let mut lines = vec![source_line("stream", &program.pipeline, &planned.stream)];
    for (build, table) in program.builds.iter().zip(&planned.builds) {
        match (&build.source, table) {
            (BuildSource::Pipeline(pipeline), Some(table)) => {
                lines.push(format!("  {}", source_line("build", pipeline, table)));
                lines.extend(step_lines(program, pipeline, "    "));
            }
            (BuildSource::Child(child), _) => {
                lines.push(format!("  build {} from child plan {child}", build.name));
            }
            _ => lines.push(format!("  build {}", build.name)),
        }
    }
    lines.extend(step_lines(program, &program.pipeline, "  "));
    let (processor, reason) = node.processor();
    let access = node.config().access;
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
        lines.extend(report.lines(&limits).into_iter().map(|line| format!("  {line}")));
    }
    lines
}

fn step_lines(program: &Program, pipeline: &Pipeline, indent: &str) -> Vec<String> {
    let steps = pipeline.steps.iter().map(|step| program.step_line(step));
    let sink = std::iter::once(Program::sink_line(&pipeline.sink));
    steps.chain(sink).map(|line| format!("{indent}{line}")).collect()
}

fn source_line(verb: &str, pipeline: &Pipeline, table: &TableUse) -> String {
    let bytes = table.columns.iter().map(|&c| table.table.column_bytes(c)).sum();
    let names: Vec<_> = pipeline.source.columns.iter().map(|c| c.name.as_str()).collect();
    let mut line = format!(
        "{verb} {} [{}] {} rows, {}",
        pipeline.source.table,
        names.join(", "),
        table.table.rows(),
        bytes_text(bytes)
    );
    if let Some(skipped) = skipped_text(&table.table) {
        line += &format!(", {skipped}");
    }
    line
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
