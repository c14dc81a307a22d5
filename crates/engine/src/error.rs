//! Errors of the lower crates as DataFusion's, and back.

use std::fmt;

use datafusion::arrow::error::ArrowError;
use datafusion::common::{DataFusionError, Result};
use headrace_columns::ColumnError;
use headrace_pipeline::{ExecError, WhyNot};
use headrace_runner::{ErrorClass, RunError};
use tokio::task::spawn_blocking;

use crate::failure::Class;
use crate::panics::error_of;

/// What this crate itself finds wrong: of a class, with what helps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// What kind of failure it is.
    pub class: Class,
    /// What is wrong.
    pub cause: String,
    /// What helps.
    pub hint: Option<String>,
}

impl Told {
    /// One that the planner's operators hand on as it is.
    pub fn error(class: Class, cause: impl Into<String>, hint: Option<&str>) -> DataFusionError {
        external(Self { class, cause: cause.into(), hint: hint.map(String::from) })
    }

    /// That which is at the root of an error.
    pub fn of(error: &DataFusionError) -> Option<&Self> {
        match error.find_root() {
            DataFusionError::External(error) => error.downcast_ref(),
            DataFusionError::ArrowError(error, _) => match error.as_ref() {
                ArrowError::ExternalError(error) => error.downcast_ref(),
                _ => None,
            },
            _ => None,
        }
    }
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.cause)?;
        self.hint.iter().try_for_each(|hint| write!(f, "\nhint: {hint}"))
    }
}

impl std::error::Error for Told {}

/// Wraps an error of a lower crate.
pub fn external(error: impl std::error::Error + Send + Sync + 'static) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// Waits for work that blocks, on a thread for that.
///
/// # Errors
/// The work's, and that it ended without an answer.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    spawn_blocking(work).await.map_err(|e| match e.try_into_panic() {
        Ok(panic) => error_of(&*panic),
        Err(e) => DataFusionError::ExecutionJoin(Box::new(e)),
    })?
}

/// A pipeline's failure, with the same words as the planner's own operators use for it.
pub fn execution(error: ExecError) -> DataFusionError {
    match error {
        ExecError::Column(ColumnError::Overflow { type_name, place }) => {
            overflow(&place, &type_name)
        }
        ExecError::Column(ColumnError::Memory { .. }) => {
            DataFusionError::ResourcesExhausted(error.to_string())
        }
        other => external(other),
    }
}

/// As [`execution`], for whatever ended a run.
pub fn run_error(error: RunError) -> DataFusionError {
    match error {
        RunError::Exec(error) => execution(error),
        RunError::Elsewhere { class: ErrorClass::OutOfMemory, message } => {
            DataFusionError::ResourcesExhausted(message)
        }
        other => external(other),
    }
}

/// An overflow: the same words whichever processor found it.
pub fn overflow(place: &str, type_name: &str) -> DataFusionError {
    let cause = format!("arithmetic overflow: {place} does not fit {type_name}");
    Told::error(Class::Overflow, cause, None)
}

/// What cannot run although it must.
pub fn forbidden(reason: &WhyNot) -> DataFusionError {
    let cause = format!(
        "headrace.fallback is forbid, and a part of the query cannot run as asked: {reason}"
    );
    Told::error(Class::Fallback, cause, None)
}
