//! Errors of the lower crates as DataFusion's, and back.

use datafusion::common::{DataFusionError, Result};
use headrace_columns::ColumnError;
use headrace_pipeline::{ExecError, WhyNot};
use headrace_runner::{ErrorClass, RunError};
use tokio::task::spawn_blocking;

use crate::overflow::arith::overflow_message;
use crate::panics::error_of;

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
            DataFusionError::Execution(overflow_message(&place, &type_name))
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

/// What cannot run although it must.
pub fn forbidden(reason: &WhyNot) -> DataFusionError {
    DataFusionError::Plan(format!(
        "headrace.fallback is forbid, and a part of the query cannot run as asked: {reason}"
    ))
}
