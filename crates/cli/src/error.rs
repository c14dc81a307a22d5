//! The text of a failure: one line of cause, a blank line, `hint:` with the remedy.

use std::any::Any;
use std::fmt;

use unicode_width::UnicodeWidthStr;

/// A failure with its exit code.
#[derive(Debug, Default)]
pub struct CliError {
    cause: String,
    hint: Option<String>,
    /// Line and column of the failed statement, from 1.
    at: Option<(usize, usize)>,
    /// The line at that place, with a mark under it.
    shown: Option<Box<str>>,
    /// The name in the statement that the failure is about.
    subject: Option<Box<str>>,
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

    /// Points at a place in the statement.
    pub fn pointing_at(self, line: usize, column: usize) -> Self {
        Self { at: Some((line, column)), ..self }
    }

    /// The statement, which begins at this line and column of its text; the place is shown in it.
    pub fn in_text(self, sql: &str, line: usize, column: usize) -> Self {
        let Some((l, c)) = self.at else { return self };
        let at = (line + l - 1, if l == 1 { column + c - 1 } else { c });
        let shown = sql.lines().nth(l - 1).and_then(|text| pointed(text, c)).map(String::into);
        Self { at: Some(at), shown, ..self }
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
    pub fn cause(&self) -> &str {
        &self.cause
    }

    /// The same with another cause.
    pub fn with_cause(&self, cause: &str) -> Self {
        Self {
            cause: cause.to_string(),
            hint: self.hint.clone(),
            shown: None,
            subject: self.subject.clone(),
            ..*self
        }
    }

    /// Takes a name that occurs in the statement as the subject.
    pub fn about(self, name: &str) -> Self {
        Self { subject: Some(name.into()), ..self }
    }

    /// The subject.
    pub fn subject(&self) -> Option<&str> {
        self.subject.as_deref()
    }

    /// Whether it has a place.
    pub fn has_place(&self) -> bool {
        self.at.is_some()
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

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.cause)?;
        if let Some((line, column)) = self.at {
            write!(f, " at line {line}, column {column}")?;
        }
        if let Some(shown) = &self.shown {
            write!(f, "\n{shown}")?;
        }
        match &self.hint {
            Some(hint) => write!(f, "\n\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

/// Columns of a statement's line that are shown on each side of a place.
const SHOWN_COLUMNS: usize = 60;

/// A line of a statement with a caret under one of its columns, counted from 1.
fn pointed(line: &str, column: usize) -> Option<String> {
    let chars: Vec<char> = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let at = column.checked_sub(1).filter(|&at| at <= chars.len())?;
    let (begin, end) = (at.saturating_sub(SHOWN_COLUMNS), (at + SHOWN_COLUMNS).min(chars.len()));
    let text: String = chars[begin..end].iter().collect();
    let before: String = chars[begin..at].iter().collect();
    Some(format!("  {}\n  {}^", text.trim_end(), " ".repeat(before.width())))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_points_at_its_place() {
        let error = CliError::new("wrong").pointing_at(2, 3).in_text("select\n  x,", 5, 9);
        assert_eq!(error.to_string(), "error: wrong at line 6, column 3\n    x,\n    ^");
        let error =
            CliError::new("wrong").pointing_at(1, 10).in_text("select é日 +", 1, 3).hint("less");
        let shown = error.to_string();
        assert_eq!(
            shown,
            "error: wrong at line 1, column 12\n  select é日 +\n            ^\n\nhint: less"
        );
        let long = format!("select {} from", "x".repeat(500));
        let shown = CliError::new("wrong").pointing_at(1, 400).in_text(&long, 1, 1).to_string();
        assert_eq!(shown.lines().map(str::len).max(), Some(2 + 2 * SHOWN_COLUMNS));
        assert_eq!(pointed("x", 9), None);
    }
}
