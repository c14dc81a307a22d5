//! Answers from the partial states of several runs.

use headrace_flow::CancelToken;
use headrace_ir::{Program, Scalar};
use headrace_pipeline::bind::bind_merge;
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
        program.validate()?;
        let program = lowered(program, parameters)?;
        let registers = program.answer.registers(&program.stages)?;
        let bound = bind_merge(&program.answer, &registers)?;
        Ok(PartialMerge::new(&bound, &self.group_options(self.groups(), 1, token))?)
    }
}
