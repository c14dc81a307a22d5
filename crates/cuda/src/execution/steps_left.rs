//! The rows that the steps of an execution left, as its kernels count them (`codegen/steps.rs`).

use headrace_pipeline::bound::BoundStep;

use crate::error::CudaError;
use crate::execution::CudaExecution;
use crate::fields::Param;
use crate::program::CudaProgram;

/// How many rows the steps of a pipeline left, in the order in which they ran.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepsLeft {
    /// Their places in the pipeline.
    pub places: Vec<usize>,
    /// The rows that each left; `None` for a step that ran together with a later one, and for a computation
    /// that comes first.
    pub rows: Vec<Option<u64>>,
}

impl StepsLeft {
    /// What a kernel counted; `rows` of a step by its index in the kernel.
    pub fn new(program: &CudaProgram, rows: impl Fn(usize) -> u64) -> Self {
        let bound = &program.bound;
        let mut left: Vec<Option<u64>> = Vec::with_capacity(bound.steps.len());
        for (at, step) in bound.steps.iter().enumerate() {
            let is_counted = program.params.contains(&Param::RowsLeft(at));
            left.push(match step {
                // It keeps the rows that come to it.
                BoundStep::Compute { .. } => left.last().copied().flatten(),
                _ => is_counted.then(|| rows(at)),
            });
        }
        Self { places: bound.places.clone(), rows: left }
    }
}

impl CudaExecution {
    /// Waits for all launches; what each step left: nothing if no kernel was needed, `None` where kernels
    /// for several layouts ordered the steps differently.
    ///
    /// # Errors
    /// [`CudaError::Gpu`] when the device fails.
    pub fn steps_left(&self) -> Result<Option<StepsLeft>, CudaError> {
        let mut programs = self.kernels().map(|kernel| &kernel.program);
        let (Some(program), Some(state)) = (programs.next(), &self.state) else {
            return Ok(Some(StepsLeft::default()));
        };
        let places = &program.bound.places;
        if programs.any(|other| other.bound.places != *places) {
            return Ok(None);
        }
        let left = state.take_rows_left(&self.stream, self.is_fetched)?;
        Ok(Some(StepsLeft::new(program, |at| left[places[at]])))
    }
}
