//! Answers from the partial states of several runs.

use std::sync::Arc;

use headrace_flow::CancelToken;
use headrace_ir::{Program, Scalar};
use headrace_pipeline::ExecError;
use headrace_pipeline::bind::bind_merge;
use headrace_pipeline::cpu::WorkerOptions;
use headrace_pipeline::partial::PartialMerge;

use crate::error::RunError;
use crate::run::lowered;
use crate::runner::Runner;

impl Runner {
    /// What merges the batches that runs of a program with
    /// [`AggregateOutput::Partial`](headrace_ir::AggregateOutput::Partial) emitted: in any order,
    /// from any number of runs over parts of its table, wherever they ran. The groups count
    /// against this runner's memory, and spill as those of a run do.
    ///
    /// # Errors
    /// The program is not valid, does not aggregate, or does not take the parameters.
    pub fn merge(
        &self,
        program: &Program,
        parameters: &[Scalar],
        token: &CancelToken,
    ) -> Result<PartialMerge, RunError> {
        let internal = |error: headrace_ir::IrError| ExecError::Internal(error.to_string());
        program.validate().map_err(internal)?;
        let program = lowered(program, parameters)?;
        let registers = program.pipeline.registers(&program.builds).map_err(internal)?;
        let bound = bind_merge(&program.pipeline, &registers)?;
        Ok(PartialMerge::new(&bound, &self.group_options(1, token))?)
    }

    /// How groups are held. All runs share the account, so that their number does not multiply
    /// the limit.
    pub(crate) fn group_options(&self, threads: usize, token: &CancelToken) -> WorkerOptions {
        let mut options = WorkerOptions::with_memory(Arc::clone(self.groups()));
        options.workers = threads;
        options.spill = Some(Arc::clone(self.spills()) as _);
        options.cancel = token.clone();
        options
    }
}
