//! Why a program has no answer, and of what kind that is.

use headrace_columns::ColumnError;
use headrace_cuda::CudaError;
use headrace_flow::{BoxError, RaceError};
use headrace_format::FormatError;
use headrace_gpu::GpuError;
use headrace_io::{IoError, OutOfBudget};
use headrace_ir::{IrError, ParameterError};
use headrace_pipeline::{ExecError, WhyNot};
use headrace_spill::SpillError;
use serde::{Deserialize, Serialize};

/// What kind of failure an error is: what a door turns into its own codes (an SQLSTATE, an exit
/// code), whatever path the failure took.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ErrorClass {
    /// A value did not fit its type.
    Overflow,
    /// Division or modulo by zero.
    DivisionByZero,
    /// A value cannot be converted.
    Cast,
    /// Bytes that contradict their layout.
    Corrupt,
    /// A memory budget, or the memory of a tier, was exceeded; the text names both.
    OutOfMemory,
    /// A file is not what it was when its table was opened.
    FileChanged,
    /// Reading failed.
    Io,
    /// Whoever asked does not want the answer any more.
    Cancelled,
    /// A value that was given with a program does not fit its parameter.
    Parameter,
    /// Neither processor, or not the wanted one, can do what was asked.
    Unsupported,
    /// The device failed.
    Device,
    /// A function that a user wrote in CUDA faulted, or did not end.
    Function,
    /// An invariant of ours is broken.
    Internal,
}

/// Why a program has no answer.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The processor does not take it. Nothing has been emitted yet.
    #[error("{0}")]
    WhyNot(#[from] WhyNot),
    /// It failed.
    #[error(transparent)]
    Exec(#[from] ExecError),
    /// The GPU failed.
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// Its table could not be planned.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// Its race failed.
    #[error(transparent)]
    Race(RaceError),
    /// The memory budget has no room for what it needs.
    #[error(transparent)]
    Memory(#[from] OutOfBudget),
    /// The values that were given do not fit its parameters. Nothing has been read yet.
    #[error(transparent)]
    Parameter(#[from] ParameterError),
    /// A thread could not be had, or ended by a panic.
    #[error("{0}")]
    Thread(String),
    /// A function that a user wrote in CUDA faulted.
    #[error("a function in CUDA faulted: {0}")]
    Function(Box<GpuError>),
    /// It failed in the process that ran it for this one.
    #[error("{message}")]
    Elsewhere {
        /// What kind of failure it is.
        class: ErrorClass,
        /// In that process's words.
        message: String,
    },
}

impl From<RaceError> for RunError {
    /// What the processor itself says is the better explanation, whichever lane it came through:
    /// the same mistake is the same error.
    fn from(error: RaceError) -> Self {
        match error {
            RaceError::Consumer { chunk, source } => unwrapped(source)
                .unwrap_or_else(|source| Self::Race(RaceError::Consumer { chunk, source })),
            RaceError::Device { chunk, stage, source } => unwrapped(source)
                .unwrap_or_else(|source| Self::Race(RaceError::Device { chunk, stage, source })),
            RaceError::Feed { source } => {
                unwrapped(source).unwrap_or_else(|source| Self::Race(RaceError::Feed { source }))
            }
            RaceError::OutOfMemory(refused) => Self::Memory(refused),
            other => Self::Race(other),
        }
    }
}

impl From<SpillError> for RunError {
    fn from(error: SpillError) -> Self {
        Self::Exec(error.into())
    }
}

impl From<CudaError> for RunError {
    /// What both processors say of a row is the same error.
    fn from(error: CudaError) -> Self {
        match error {
            CudaError::Exec(error) => Self::Exec(error),
            CudaError::Gpu(error) => Self::Gpu(error),
        }
    }
}

impl From<IrError> for RunError {
    /// Whoever makes programs makes valid ones.
    fn from(error: IrError) -> Self {
        Self::Exec(ExecError::Internal(error.to_string()))
    }
}

fn unwrapped(source: BoxError) -> Result<RunError, BoxError> {
    let source = match source.downcast::<ExecError>() {
        Ok(error) => return Ok(RunError::Exec(*error)),
        Err(source) => source,
    };
    let source = match source.downcast::<CudaError>() {
        Ok(error) => return Ok((*error).into()),
        Err(source) => source,
    };
    // The lane's own calls of the driver: a kernel that faults is often seen there.
    match source.downcast::<GpuError>() {
        Ok(error) => Ok(RunError::Gpu(*error)),
        Err(source) => source.downcast::<FormatError>().map(|error| RunError::Format(*error)),
    }
}

impl RunError {
    /// What kind of failure it is.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::WhyNot(_) => ErrorClass::Unsupported,
            Self::Exec(error) => error.into(),
            Self::Gpu(error) if error.is_out_of_memory() => ErrorClass::OutOfMemory,
            Self::Gpu(_) => ErrorClass::Device,
            Self::Format(error) => error.into(),
            Self::Race(error) => race_class(error),
            Self::Memory(_) => ErrorClass::OutOfMemory,
            Self::Parameter(_) => ErrorClass::Parameter,
            Self::Thread(_) => ErrorClass::Internal,
            Self::Function(_) => ErrorClass::Function,
            Self::Elsewhere { class, .. } => *class,
        }
    }
}

impl From<&ExecError> for ErrorClass {
    fn from(error: &ExecError) -> Self {
        match error {
            ExecError::Column(error) => error.into(),
            ExecError::Spill(error) => spill_class(error),
            ExecError::Partial(_) => Self::Corrupt,
            ExecError::WhyNot(_) => Self::Unsupported,
            ExecError::Cancelled => Self::Cancelled,
            ExecError::Internal(_) => Self::Internal,
        }
    }
}

impl From<&ColumnError> for ErrorClass {
    fn from(error: &ColumnError) -> Self {
        match error {
            ColumnError::Overflow { .. } => Self::Overflow,
            ColumnError::DivisionByZero { .. } => Self::DivisionByZero,
            ColumnError::Cast { .. } => Self::Cast,
            ColumnError::Corrupt { .. } => Self::Corrupt,
            ColumnError::Memory { .. } => Self::OutOfMemory,
            ColumnError::Internal(_) => Self::Internal,
        }
    }
}

fn spill_class(error: &SpillError) -> ErrorClass {
    match error {
        SpillError::Io { .. } | SpillError::Limit { .. } => ErrorClass::Io,
        SpillError::Corrupt { .. } => ErrorClass::Corrupt,
        SpillError::Memory(_) => ErrorClass::OutOfMemory,
        SpillError::Internal(_) => ErrorClass::Internal,
    }
}

impl From<&FormatError> for ErrorClass {
    fn from(error: &FormatError) -> Self {
        match error {
            FormatError::Io(error) => error.into(),
            FormatError::List { .. }
            | FormatError::Write { .. }
            | FormatError::Producer { .. }
            | FormatError::NoFiles { .. } => Self::Io,
            FormatError::Argument(_) => Self::Internal,
            _ => Self::Corrupt,
        }
    }
}

fn race_class(error: &RaceError) -> ErrorClass {
    match error {
        RaceError::Changed(_) => ErrorClass::FileChanged,
        RaceError::OutOfMemory(_) => ErrorClass::OutOfMemory,
        RaceError::Read { source, .. }
        | RaceError::Write { source, .. }
        | RaceError::StartUp(source) => source.into(),
        RaceError::PathUnavailable { .. } | RaceError::WriteUnavailable { .. } => {
            ErrorClass::Unsupported
        }
        RaceError::Device { .. } => ErrorClass::Device,
        RaceError::Cancelled => ErrorClass::Cancelled,
        _ => ErrorClass::Internal,
    }
}

impl From<&IoError> for ErrorClass {
    fn from(error: &IoError) -> Self {
        match error {
            IoError::Changed { .. } => Self::FileChanged,
            IoError::Memory { .. } => Self::OutOfMemory,
            IoError::Cancelled { .. } => Self::Cancelled,
            _ => Self::Io,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overflow() -> ExecError {
        ColumnError::Overflow { type_name: "Int32".into(), place: "a + b".into() }.into()
    }

    #[test]
    fn a_failing_row_is_the_same_error_whatever_carried_it() {
        let direct = RunError::Exec(overflow());
        let consumer = RunError::from(RaceError::Consumer { chunk: 3, source: overflow().into() });
        let source = CudaError::from(overflow()).into();
        let device = RunError::from(RaceError::Device { chunk: Some(3), stage: "retire", source });
        for error in [consumer, device] {
            assert_eq!(error.to_string(), direct.to_string());
            assert_eq!(error.class(), ErrorClass::Overflow);
        }
    }

    #[test]
    fn classes_follow_the_cause_not_the_carrier() {
        let cancelled = RunError::from(RaceError::Cancelled);
        assert_eq!(cancelled.class(), ErrorClass::Cancelled);
        let batch = || FormatError::Argument("a batch".into()).into();
        let consumer = RaceError::Consumer { chunk: 0, source: batch() };
        for error in [consumer, RaceError::Feed { source: batch() }].map(RunError::from) {
            assert!(matches!(error, RunError::Format(_)), "{error}");
        }
        let lost = GpuError::NotPresent { reason: "no driver".into(), remedy: String::new() };
        let source = CudaError::from(lost).into();
        let lost = RunError::from(RaceError::Device { chunk: None, stage: "start", source });
        assert!(matches!(lost, RunError::Gpu(_)) && lost.class() == ErrorClass::Device, "{lost}");
        let faulted = GpuError::Driver {
            call: "cuEventSynchronize",
            code: 700,
            name: "CUDA_ERROR_ILLEGAL_ADDRESS".into(),
            text: "an illegal memory access was encountered".into(),
            place: "device 0".into(),
            remedy: None,
        };
        let source = faulted.into();
        let device = RaceError::Device { chunk: Some(0), stage: "execution", source };
        let faulted = RunError::from(device);
        let is_lost = matches!(&faulted, RunError::Gpu(error) if error.loses_context());
        assert!(is_lost && faulted.class() == ErrorClass::Device, "{faulted}");
        let foreign = RaceError::Consumer { chunk: 0, source: "a consumer of someone else".into() };
        assert_eq!(RunError::from(foreign).class(), ErrorClass::Internal);
    }
}
