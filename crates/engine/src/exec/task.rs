//! One pipeline about to run, and what comes of it.

use std::sync::Arc;

use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::DataFusionError;
use headrace_flow::{CancelToken, RaceError, RaceReport};
use headrace_format::FormatError;
use headrace_ir::Pipeline;
use headrace_pipeline::{BuildTable, ExecError, WhyNot, build::BuildOptions, state::Output};

use super::Engine;
use super::chunks::Chunks;
use crate::config::HeadraceConfig;
use crate::error::{execution, external};
use crate::rule::TableUse;

/// Takes finished rows while the race still runs; `false`: nobody wants more.
pub type Emit<'a> = &'a (dyn Fn(RecordBatch) -> bool + Send + Sync);

/// A pipeline with everything that it runs on.
pub struct Task<'a> {
    /// The pipeline.
    pub pipeline: &'a Pipeline,
    /// The streamed table.
    pub table: &'a TableUse,
    /// What it probes.
    pub builds: &'a [Arc<BuildTable>],
    /// How its own build is made, if it ends in one.
    pub build_options: BuildOptions,
    /// Settings.
    pub config: &'a HeadraceConfig,
    /// Caches and devices.
    pub engine: &'a Engine,
    /// Threads that may execute it.
    pub threads: usize,
    /// Ends it early.
    pub token: &'a CancelToken,
    /// Takes rows as they come.
    pub emit: Emit<'a>,
}

/// What a task brought.
pub struct Done {
    /// Its output, rows that went to `emit` aside.
    pub output: Output,
    /// What was read, and what was not.
    pub chunks: Chunks,
    /// The race.
    pub race: RaceReport,
    /// Lowering and compiling, in milliseconds.
    pub bind_ms: f64,
    /// Merging states, in milliseconds.
    pub finish_ms: f64,
}

/// Why a pipeline has no answer.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The processor does not take it. Nothing has been emitted yet.
    #[error("{0}")]
    WhyNot(#[from] WhyNot),
    /// It failed.
    #[error(transparent)]
    Exec(#[from] ExecError),
    /// Its table could not be planned.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// Its race failed.
    #[error(transparent)]
    Race(RaceError),
    /// A thread could not be had, or ended by a panic.
    #[error("{0}")]
    Thread(String),
}

impl From<RaceError> for RunError {
    /// A consumer's own error is the better explanation.
    fn from(error: RaceError) -> Self {
        match error {
            RaceError::Consumer { chunk, source } => match source.downcast::<ExecError>() {
                Ok(error) => Self::Exec(*error),
                Err(source) => Self::Race(RaceError::Consumer { chunk, source }),
            },
            other => Self::Race(other),
        }
    }
}

impl From<RunError> for DataFusionError {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Exec(error) => execution(error),
            other => external(other),
        }
    }
}
