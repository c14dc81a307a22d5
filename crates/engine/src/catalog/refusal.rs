//! Errors of files that cannot be read.

use std::fmt;
use std::path::Path;

use datafusion::common::DataFusionError;

use super::pipe;

/// An error with its place and what helps.
pub fn refused(
    path: &Path,
    cause: impl fmt::Display,
    remedy: impl fmt::Display,
) -> DataFusionError {
    let cause = cause.to_string();
    let place = pipe::shown(path).display().to_string();
    // Those of the lower crates name the file themselves.
    let text = if cause.contains(&place) { cause } else { format!("{place}: {cause}") };
    let hint = if text.contains("\nhint: ") { String::new() } else { format!("\nhint: {remedy}") };
    DataFusionError::Execution(text + &hint)
}
