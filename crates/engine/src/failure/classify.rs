//! The kind of an error.

use std::io;

use datafusion::arrow::error::ArrowError;
use datafusion::common::{DataFusionError, SchemaError};
use headrace_columns::ColumnError;
use headrace_format::FormatError;
use headrace_io::IoError;
use headrace_pipeline::ExecError;
use headrace_runner::{ErrorClass, RunError};

use super::class::Class;
use crate::error::Told;

/// The kind of an error, by its types.
pub(super) fn class_of(error: &DataFusionError) -> Class {
    match error.find_root() {
        DataFusionError::SQL(..) => Class::Syntax,
        DataFusionError::SchemaError(schema, _) => match schema.as_ref() {
            SchemaError::FieldNotFound { .. } => Class::UnknownColumn,
            SchemaError::AmbiguousReference { .. } => Class::AmbiguousColumn,
            SchemaError::DuplicateQualifiedField { .. }
            | SchemaError::DuplicateUnqualifiedField { .. } => Class::DuplicateColumn,
        },
        DataFusionError::NotImplemented(_) => Class::Unsupported,
        DataFusionError::ResourcesExhausted(_) => Class::OutOfMemory,
        DataFusionError::Configuration(_) => Class::Setting,
        DataFusionError::Internal(_) | DataFusionError::ExecutionJoin(_) => Class::Internal,
        DataFusionError::IoError(error) => of_io(error),
        DataFusionError::ArrowError(error, _) => of_arrow(error),
        DataFusionError::ParquetError(_) => Class::Corrupt,
        DataFusionError::External(error) => of_external(error.as_ref()),
        DataFusionError::Plan(_) => Class::Statement,
        _ => Class::Value,
    }
}

fn of_io(error: &io::Error) -> Class {
    match error.kind() {
        io::ErrorKind::NotFound => Class::MissingFile,
        _ => Class::Io,
    }
}

fn of_arrow(error: &ArrowError) -> Class {
    match error {
        ArrowError::ArithmeticOverflow(_) => Class::Overflow,
        ArrowError::DivideByZero => Class::DivisionByZero,
        ArrowError::MemoryError(_) => Class::OutOfMemory,
        ArrowError::IoError(_, error) => of_io(error),
        ArrowError::NotYetImplemented(_) => Class::Unsupported,
        ArrowError::IpcError(_) | ArrowError::ParquetError(_) => Class::Corrupt,
        ArrowError::ExternalError(error) => of_external(error.as_ref()),
        _ => Class::Value,
    }
}

/// Of the errors of the lower crates, and of this one.
fn of_external(error: &(dyn std::error::Error + Send + Sync + 'static)) -> Class {
    if let Some(error) = error.downcast_ref::<Told>() {
        return error.class;
    }
    if let Some(error) = error.downcast_ref::<RunError>() {
        return error.class().into();
    }
    if let Some(error) = error.downcast_ref::<ExecError>() {
        return ErrorClass::from(error).into();
    }
    if let Some(error) = error.downcast_ref::<ColumnError>() {
        return ErrorClass::from(error).into();
    }
    if let Some(error) = error.downcast_ref::<FormatError>() {
        return match error {
            FormatError::Io(IoError::Open { cause, .. }) => of_io(cause),
            error => ErrorClass::from(error).into(),
        };
    }
    if let Some(error) = error.downcast_ref::<IoError>() {
        return match error {
            IoError::Open { cause, .. } => of_io(cause),
            error => ErrorClass::from(error).into(),
        };
    }
    match error.downcast_ref::<DataFusionError>() {
        Some(error) => class_of(error),
        None => Class::Io,
    }
}
