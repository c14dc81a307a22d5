//! Answers from the partial states of several runs.

use std::sync::Arc;

use arrow_schema::SchemaRef;
use headrace_flow::CancelToken;
use headrace_ir::{Program, Scalar};
use headrace_pipeline::Bound;
use headrace_pipeline::bind::bind_merge;
use headrace_pipeline::partial::{PartialMerge, PartialSchema};

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
        let bound = bound(program, parameters)?;
        Ok(PartialMerge::new(&bound, &self.group_options(self.groups(), 1, token))?)
    }
}

/// The columns of the batches that [`Runner::merge`] takes: those that runs of the program emit, wherever they run.
///
/// # Errors
/// As there.
pub fn partial_schema(program: &Program, parameters: &[Scalar]) -> Result<SchemaRef, RunError> {
    Ok(Arc::clone(PartialSchema::portable(&bound(program, parameters)?)?.arrow()))
}

fn bound(program: &Program, parameters: &[Scalar]) -> Result<Bound, RunError> {
    program.validate()?;
    let program = lowered(program, parameters)?;
    let registers = program.answer.registers(&program.stages)?;
    Ok(bind_merge(&program.answer, &registers)?)
}
