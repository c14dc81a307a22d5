//! The readable report: measurements, then findings, worst first.

use std::fmt::Write;

use headrace_io::decimal_bytes;

use crate::Report;
use crate::facts::{AccessProbe, Facts, FileFact, Known, Outcome, PathFacts};
use crate::finding::{Finding, Level};

/// Lines of a report. Ends with the summary: "1 problem, 2 things that could be faster".
pub fn render(report: &Report) -> String {
    let mut out = String::new();
    ceilings(&mut out, &report.facts);
    for path in &report.facts.paths {
        render_path(&mut out, path);
    }
    out + &render_judged(report)
}

/// The end of any report: findings and summary.
pub fn render_judged<F>(report: &Report<F>) -> String {
    let mut out = String::new();
    render_findings(&mut out, &report.findings);
    line(&mut out, "");
    line(&mut out, &report.summary);
    out
}

fn ceilings(out: &mut String, facts: &Facts) {
    let measured: Vec<(&str, f64)> = facts
        .ceilings
        .iter()
        .filter_map(|ceiling| Some((ceiling.stage.as_str(), *ceiling.gb_per_s.value()?)))
        .collect();
    if measured.is_empty() {
        return;
    }
    line(out, "ceilings, GB/s (10^9 bytes), measured now");
    let width = measured.iter().map(|(stage, _)| stage.chars().count()).max().unwrap_or(0);
    for (stage, rate) in measured {
        line(out, &format!("  {stage:<width$}  {rate:8.2}"));
    }
    if let Some(record) = &facts.record {
        line(out, &format!("  {record}"));
    }
    line(out, "");
}

fn render_path(out: &mut String, path: &PathFacts) {
    // Why nothing was tried is among the findings.
    if path.access.is_empty() && path.write.is_none() {
        return;
    }
    let mut title = path.path.display().to_string();
    if let Some(file) = path.examined.value() {
        let _ = write!(title, ": {}", file_text(path, file));
    }
    line(out, &title);
    let probes: Vec<&AccessProbe> = path.access.iter().chain(&path.write).collect();
    let ways: Vec<String> = probes.iter().map(|probe| probe.way.to_string()).collect();
    let width = ways.iter().map(|way| way.chars().count()).max().unwrap_or(0);
    for (way, probe) in ways.iter().zip(probes) {
        line(out, &format!("  {way:<width$}  {}", outcome_text(probe)));
    }
    line(out, "");
}

fn file_text(path: &PathFacts, file: &FileFact) -> String {
    let mut text = format!("{}, {}", decimal_bytes(file.size_bytes), file.filesystem);
    if file.path != path.path {
        let shown = file.path.strip_prefix(&path.path).unwrap_or(&file.path);
        text = format!("read from {}, {text}", shown.display());
    }
    match file.resident_share.as_result() {
        _ if file.memory_backed => text.push_str(", in memory"),
        Ok(share) => {
            let _ = write!(text, ", {:.0}% in the page cache", share * 100.0);
        }
        Err(_) => text.push_str(", share in the page cache unknown"),
    }
    text
}

fn outcome_text(probe: &AccessProbe) -> String {
    match &probe.outcome {
        Outcome::Works { gb_per_s, taken, .. } => match gb_per_s {
            Known::Value(rate) => format!("{rate:8.2} GB/s  {taken}"),
            Known::Unknown { .. } => format!("      ok       {taken}"),
        },
        Outcome::Refused { reason, .. } => format!("      no       {}", first_line(reason)),
        Outcome::Wrong { what } => format!("   WRONG       {what}"),
        Outcome::NotTried { reason } => format!("       -       {reason}"),
    }
}

fn render_findings(out: &mut String, findings: &[Finding]) {
    let width = Level::Unknown.name().len();
    for finding in findings {
        line(
            out,
            &format!(
                "{:<width$}  {}: {}",
                finding.level.name(),
                finding.subject,
                first_line(&finding.found)
            ),
        );
        for (name, text) in [("why", &finding.why), ("fix", &finding.remedy)] {
            if !text.is_empty() {
                line(out, &format!("{:<width$}    {name}: {text}", ""));
            }
        }
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

fn line(out: &mut String, text: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(out, "{}", text.trim_end());
}
