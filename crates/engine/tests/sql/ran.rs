//! Proof of what ran: a test of a processor that something else answered tests nothing.

use headrace_engine::{Fallback, Processor, QueryReport, Settings};

/// How many stages the wanted processor ran, of those that one is chosen for.
///
/// # Errors
/// What else ran, where only the wanted processor may.
pub fn on_wanted(settings: &Settings, report: &QueryReport) -> Result<usize, String> {
    let wanted = settings.processor.to_string();
    let placed: Vec<_> = report.pipelines.iter().flat_map(|run| run.placed()).collect();
    let others = || placed.iter().filter(|stage| stage.processor != wanted);
    match settings.processor {
        Processor::Auto => Ok(placed.len()),
        Processor::Off if !report.pipelines.is_empty() => Err(format!("pipelines ran: {report:?}")),
        Processor::Off => Ok(0),
        Processor::Cpu | Processor::Cuda => match others().next() {
            Some(other) if settings.fallback == Fallback::Forbid => {
                Err(format!("{} ran what {wanted} was to run: {report:?}", other.processor))
            }
            Some(other) if other.processor_why_not.is_none() => {
                Err(format!("{} ran, and nothing says why: {report:?}", other.processor))
            }
            _ => Ok(placed.len() - others().count()),
        },
    }
}
