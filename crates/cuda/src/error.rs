//! What can go wrong on the way through a GPU.

use headrace_columns::ColumnError;
use headrace_gpu::GpuError;
use headrace_pipeline::{ExecError, WhyNot};

/// A failure while a pipeline runs on a GPU.
#[derive(Debug, thiserror::Error)]
pub enum CudaError {
    /// The pipeline failed, as it would on the CPU processor.
    #[error(transparent)]
    Exec(#[from] ExecError),
    /// The GPU failed.
    #[error(transparent)]
    Gpu(#[from] GpuError),
}

impl From<WhyNot> for CudaError {
    fn from(why: WhyNot) -> Self {
        Self::Exec(why.into())
    }
}

impl CudaError {
    /// Whether there was too little memory of whatever tier.
    pub fn is_out_of_memory(&self) -> bool {
        match self {
            Self::Exec(error) => matches!(error, ExecError::Column(ColumnError::Memory { .. })),
            Self::Gpu(error) => error.is_out_of_memory(),
        }
    }
}
