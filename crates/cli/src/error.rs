//! How a failure reads: one line of cause, a blank line, `hint:` with the remedy.

use std::fmt;

/// A failure with its exit code.
#[derive(Debug)]
pub struct CliError {
    cause: String,
    hint: Option<String>,
    /// Line and column of the statement that is meant; the first are 1.
    at: Option<(usize, usize)>,
    usage: bool,
}

pub type Result<T> = std::result::Result<T, CliError>;

impl CliError {
    /// A query or a file failed.
    pub fn new(cause: impl fmt::Display) -> Self {
        Self { cause: cause.to_string(), hint: None, at: None, usage: false }
    }

    /// The command line is wrong.
    pub fn usage(cause: impl fmt::Display) -> Self {
        Self { usage: true, ..Self::new(cause) }
    }

    /// The error of a lower crate, which carries its remedy behind the cause.
    pub fn carrying_hint(error: impl fmt::Display) -> Self {
        let text = error.to_string();
        match text.split_once("\nhint: ") {
            Some((cause, hint)) => Self::new(cause.trim_end()).hint(hint),
            None => Self::new(text),
        }
    }

    /// Points at a place in the statement.
    pub fn pointing_at(self, line: usize, column: usize) -> Self {
        Self { at: Some((line, column)), ..self }
    }

    /// The statement begins at this line and column of its text.
    pub fn in_text(self, line: usize, column: usize) -> Self {
        let at = self.at.map(|(l, c)| (line + l - 1, if l == 1 { column + c - 1 } else { c }));
        Self { at, ..self }
    }

    /// Names the place in front of the cause.
    pub fn in_place(self, place: &str) -> Self {
        Self { cause: format!("{place}: {}", self.cause), ..self }
    }

    /// The same, of a wrong command line.
    pub fn into_usage(self) -> Self {
        Self { usage: true, ..self }
    }

    /// Adds the remedy.
    pub fn hint(mut self, hint: impl fmt::Display) -> Self {
        self.hint = Some(hint.to_string());
        self
    }

    /// The cause alone.
    pub fn cause(&self) -> &str {
        &self.cause
    }

    /// The same with another cause.
    pub fn with_cause(&self, cause: &str) -> Self {
        Self { cause: cause.to_string(), hint: self.hint.clone(), ..*self }
    }

    /// Whether it says what helps.
    pub fn has_hint(&self) -> bool {
        self.hint.is_some()
    }

    /// 1, or 2 for a wrong command line.
    pub fn exit_code(&self) -> i32 {
        if self.usage { 2 } else { 1 }
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.cause)?;
        if let Some((line, column)) = self.at {
            write!(f, " at line {line}, column {column}")?;
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
