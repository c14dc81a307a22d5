//! Calls of functions of whole tables that users write in CUDA.

use arrow_array::RecordBatch;
use headrace_cuda::{CalledTable, call_table};
use headrace_flow::CancelToken;
use headrace_ir::{CudaTableFunction, Scalar, TableLaunch};
use headrace_pipeline::WhyNot;

use crate::error::{ErrorClass, RunError};
use crate::runner::Runner;
use crate::settings::Devices;
use crate::task::Emit;

impl Runner {
    /// Calls a function of a table with all its rows, on the first GPU.
    ///
    /// # Errors
    /// No GPU, or none that runs code of users; whatever the call fails with.
    pub fn call_table<'f>(
        &self,
        function: &'f CudaTableFunction,
        batches: &[RecordBatch],
        parameters: &[Scalar],
        shape: TableLaunch,
        token: &CancelToken,
    ) -> Result<CalledTable<'f>, RunError> {
        if !self.functions().are_run() {
            let name = &function.name;
            let why = format!("{name}() is CUDA code, which only the GPU service runs");
            return Err(WhyNot::new(why).into());
        }
        let device = self.cuda(&Devices::All)?;
        let called = call_table(&device, function, batches, parameters, shape, token);
        let called = called.map_err(|error| self.functions().with_lost(error.into(), true))?;
        match called.why_incomplete() {
            None => Ok(called),
            Some(why) => {
                Err(RunError::Elsewhere { class: ErrorClass::Overflow, message: why.into() })
            }
        }
    }

    /// Emits the rows that a call has written.
    ///
    /// # Errors
    /// The GPU fails.
    pub fn rows_of_call(&self, called: &CalledTable<'_>, emit: Emit<'_>) -> Result<(), RunError> {
        let emitted = called.batches(&|batch| emit(batch));
        emitted.map_err(|error| self.functions().with_lost(error.into(), true))
    }
}
