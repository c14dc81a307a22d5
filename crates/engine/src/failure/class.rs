//! Kinds of failures.

use headrace_runner::ErrorClass;
use serde::Serialize;

/// What kind of failure it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// A text that is no statement.
    Syntax,
    /// A table that is not there.
    UnknownTable,
    /// A column that is not there.
    UnknownColumn,
    /// A function that is not there.
    UnknownFunction,
    /// A column that several tables have.
    AmbiguousColumn,
    /// Two columns of one name where each needs its own.
    DuplicateColumn,
    /// A column that is neither grouped nor aggregated.
    Ungrouped,
    /// Values of types that an operator or a function does not take.
    Types,
    /// A statement that is wrong in another way.
    Statement,
    /// What is not offered.
    Unsupported,
    /// A part of the query would run elsewhere than it must.
    Fallback,
    /// What this session may not do.
    Forbidden,
    /// Too much runs at a time.
    Busy,
    /// A setting or a parameter of a value that it does not take.
    Setting,
    /// A value that cannot be converted.
    Value,
    /// A value that does not fit its type.
    Overflow,
    /// Division or modulo by zero.
    DivisionByZero,
    /// A limit of memory, or of temporary files.
    OutOfMemory,
    /// A file that is not there.
    MissingFile,
    /// What cannot be read or written.
    Io,
    /// Bytes that contradict their layout.
    Corrupt,
    /// A file that is not what it was when its table was opened.
    FileChanged,
    /// Nobody wants the answer any more.
    Cancelled,
    /// It took longer than it may.
    TimedOut,
    /// The device failed.
    Device,
    /// A function that a user wrote in CUDA faulted, or did not end.
    Function,
    /// A fault of the program.
    Internal,
}

impl Class {
    /// Its code in the SQL standard and in PostgreSQL.
    pub fn sqlstate(self) -> &'static str {
        match self {
            Self::Syntax => "42601",
            Self::UnknownTable => "42P01",
            Self::UnknownColumn => "42703",
            Self::UnknownFunction => "42883",
            Self::AmbiguousColumn => "42702",
            Self::DuplicateColumn => "42701",
            Self::Ungrouped => "42803",
            Self::Types => "42804",
            Self::Statement => "42000",
            Self::Unsupported | Self::Fallback => "0A000",
            Self::Forbidden => "42501",
            Self::Busy => "53300",
            Self::Setting => "22023",
            Self::Value => "22P02",
            Self::Overflow => "22003",
            Self::DivisionByZero => "22012",
            Self::OutOfMemory => "53200",
            Self::MissingFile => "58P01",
            Self::Io => "58030",
            Self::Corrupt => "XX001",
            Self::FileChanged => "55000",
            Self::Cancelled | Self::TimedOut => "57014",
            Self::Device => "58000",
            Self::Function => "38000",
            Self::Internal => "XX000",
        }
    }
}

impl From<ErrorClass> for Class {
    fn from(class: ErrorClass) -> Self {
        match class {
            ErrorClass::Overflow => Self::Overflow,
            ErrorClass::DivisionByZero => Self::DivisionByZero,
            ErrorClass::Cast => Self::Value,
            ErrorClass::Corrupt => Self::Corrupt,
            ErrorClass::OutOfMemory => Self::OutOfMemory,
            ErrorClass::FileChanged => Self::FileChanged,
            ErrorClass::Io => Self::Io,
            ErrorClass::Cancelled => Self::Cancelled,
            ErrorClass::Parameter => Self::Setting,
            ErrorClass::Unsupported => Self::Unsupported,
            ErrorClass::Device => Self::Device,
            ErrorClass::Function => Self::Function,
            ErrorClass::Internal => Self::Internal,
        }
    }
}
