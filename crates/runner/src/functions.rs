//! Functions that users write in CUDA: who may run them, and what becomes of the GPUs if one faults.

use headrace_gpu::GpuError;
use headrace_ir::{CudaFunction, CudaTableFunction, Pipeline};
use headrace_pipeline::WhyNot;
use parking_lot::Mutex;

use crate::error::RunError;

/// Compiles a function alone, where there is a compiler: without one there is no GPU that could run it.
///
/// # Errors
/// The compiler's words, with the lines that they are about.
pub fn check_function(function: &CudaFunction) -> Result<(), WhyNot> {
    told(headrace_cuda::check_function(function))
}

/// As [`check_function`], of a function of a table.
///
/// # Errors
/// The compiler's words, with the lines that they are about.
pub fn check_table_function(function: &CudaTableFunction) -> Result<(), WhyNot> {
    told(headrace_cuda::check_table_function(function))
}

fn told(checked: Result<(), GpuError>) -> Result<(), WhyNot> {
    match checked {
        Ok(()) | Err(GpuError::NvrtcNotPresent { .. }) => Ok(()),
        Err(GpuError::Compile { log, .. }) => Err(WhyNot::new(log)),
        Err(error) => Err(WhyNot::new(error.to_string())),
    }
}

/// Whether functions run here, and why no GPU is left to this process, if none is.
#[derive(Debug, Default)]
pub struct Functions {
    are_run: bool,
    lost: Mutex<Option<String>>,
}

impl Functions {
    pub fn new(are_run: bool) -> Self {
        Self { are_run, lost: Mutex::default() }
    }

    /// Whether a GPU of this process may run a pipeline, as far as functions of users go.
    ///
    /// # Errors
    /// The function that it may not.
    pub fn check(&self, pipeline: &Pipeline) -> Result<(), WhyNot> {
        match pipeline.cuda_functions().first() {
            Some((function, _)) if !self.are_run => Err(WhyNot::new(format!(
                "{function}() is CUDA code, which only the GPU service runs (headrace gpu-service start)"
            ))),
            _ => Ok(()),
        }
    }

    /// Whether they run here.
    pub fn are_run(&self) -> bool {
        self.are_run
    }

    /// Why a GPU is lost to this process, if one is: nothing runs there any more.
    pub fn lost_gpus(&self) -> Option<String> {
        self.lost.lock().clone()
    }

    /// An error of a pipeline on a GPU.
    pub fn with_gpus_lost(&self, error: RunError, pipeline: &Pipeline) -> RunError {
        self.with_lost(error, !pipeline.cuda_functions().is_empty())
    }

    /// An error on a GPU. If it has cost the GPU, that is kept; what a user's function may have done is no reason to run
    /// anything elsewhere.
    pub fn with_lost(&self, error: RunError, has_functions: bool) -> RunError {
        match error {
            RunError::Gpu(cause) if cause.loses_context() => {
                let text = cause.to_string();
                let first = text.lines().next().unwrap_or_default();
                self.lost.lock().get_or_insert(first.to_string());
                match has_functions {
                    false => RunError::Gpu(cause),
                    true => RunError::Function(Box::new(cause)),
                }
            }
            other => other,
        }
    }
}
