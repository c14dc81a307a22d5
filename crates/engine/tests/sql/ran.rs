//! Proof of what ran: a test of a processor that something else answered tests nothing.

use headrace_engine::{Fallback, Processor, QueryReport, Settings};

/// How many pipelines the wanted processor ran.
///
/// # Errors
/// What else ran, where only the wanted processor may.
pub fn on_wanted(settings: &Settings, report: &QueryReport) -> Result<usize, String> {
    let wanted = settings.processor.to_string();
    let others = || report.pipelines.iter().filter(|p| p.streamed.processor != wanted);
    match settings.processor {
        Processor::Auto => Ok(report.pipelines.len()),
        Processor::Off if !report.pipelines.is_empty() => Err(format!("pipelines ran: {report:?}")),
        Processor::Off => Ok(0),
        Processor::Cpu | Processor::Cuda => match others().next() {
            Some(other) if settings.fallback == Fallback::Forbid => Err(format!(
                "{} ran what {wanted} was to run: {report:?}",
                other.streamed.processor
            )),
            Some(other) if other.streamed.processor_why_not.is_none() => {
                Err(format!("{} ran, and nothing says why: {report:?}", other.streamed.processor))
            }
            _ => Ok(report.pipelines.len() - others().count()),
        },
    }
}
