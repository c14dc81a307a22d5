//! The text of a failure: one line of cause, a blank line, `hint:` with the remedy.

use std::any::Any;
use std::fmt;

use headrace_engine::failure::{Failure, Place};

/// A failure with its exit code.
#[derive(Debug, Default)]
pub struct CliError {
    cause: String,
    hint: Option<String>,
    /// In the failed statement.
    place: Option<Place>,
    usage: bool,
}

pub type Result<T> = std::result::Result<T, CliError>;

impl CliError {
    /// A query or a file failed.
    pub fn new(cause: impl fmt::Display) -> Self {
        Self { cause: cause.to_string(), ..Self::default() }
    }

    /// The command line is wrong.
    pub fn usage(cause: impl fmt::Display) -> Self {
        Self { usage: true, ..Self::new(cause) }
    }

    /// The error of a lower crate, with its remedy after the cause.
    pub fn carrying_hint(error: impl fmt::Display) -> Self {
        let text = error.to_string();
        match text.split_once("\nhint: ") {
            Some((cause, hint)) => Self::new(cause.trim_end()).hint(hint),
            None => Self::new(text),
        }
    }

    /// The message of a panic: a fault of the program, wherever it was.
    pub fn fault(panic: &(dyn Any + Send)) -> Self {
        Self::carrying_hint(headrace_engine::fault(panic))
    }

    /// The statement begins at this line and column of a longer text.
    pub fn within(self, line: usize, column: usize) -> Self {
        Self { place: self.place.map(|place| place.within(line, column)), ..self }
    }

    /// Puts the place before the cause.
    pub fn in_place(self, place: &str) -> Self {
        Self { cause: format!("{place}: {}", self.cause), ..self }
    }

    /// The same for a wrong command line.
    pub fn into_usage(self) -> Self {
        Self { usage: true, ..self }
    }

    /// Adds the remedy.
    pub fn hint(mut self, hint: impl fmt::Display) -> Self {
        self.hint = Some(hint.to_string());
        self
    }

    /// The cause alone.
    pub fn into_cause(self) -> String {
        self.cause
    }

    /// Whether it has a remedy.
    pub fn has_hint(&self) -> bool {
        self.hint.is_some()
    }

    /// 1, or 2 for a wrong command line.
    pub fn exit_code(&self) -> i32 {
        if self.usage { 2 } else { 1 }
    }
}

impl From<Failure> for CliError {
    fn from(failure: Failure) -> Self {
        let Failure { cause, hint, place, .. } = failure;
        Self { cause, hint, place, usage: false }
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.cause)?;
        if let Some(Place { line, column, shown }) = &self.place {
            write!(f, " at line {line}, column {column}")?;
            shown.iter().try_for_each(|shown| write!(f, "\n{shown}"))?;
        }
        match &self.hint {
            Some(hint) => write!(f, "\n\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

/// Adds the place to an error of any kind.
pub trait Context<T> {
    /// `place: cause`.
    fn at(self, place: impl fmt::Display) -> Result<T>;
}

impl<T, E: fmt::Display> Context<T> for std::result::Result<T, E> {
    fn at(self, place: impl fmt::Display) -> Result<T> {
        self.map_err(|e| CliError::new(format!("{place}: {e}")))
    }
}
