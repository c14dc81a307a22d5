//! The value that doors tell.

use datafusion::common::DataFusionError;
use serde::Serialize;

use super::class::Class;
use super::classify::class_of;
use super::place::Place;
use crate::catalog::shown_text;
use crate::wording::{self, Worded};

/// What a door calls that which helps.
#[derive(Clone, Copy, Debug)]
pub struct Levers {
    /// The limit of host memory: `--memory-limit`.
    pub memory_limit: &'static str,
    /// What makes tables of files.
    pub make_tables: &'static str,
    /// What lists the functions of a name, which stands as NAME in it.
    pub list_functions: &'static str,
}

/// Why a statement, or a file, has no answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// What kind of failure it is.
    pub class: Class,
    /// What is wrong, in one line.
    pub cause: String,
    /// What helps.
    pub hint: Option<String>,
    /// Where in the statement.
    pub place: Option<Place>,
    /// The name or the value in the statement that it is about.
    #[serde(skip)]
    pub(super) subject: Option<String>,
}

impl Failure {
    /// One without a remedy.
    pub fn new(class: Class, cause: impl Into<String>) -> Self {
        Self { class, cause: cause.into(), hint: None, place: None, subject: None }
    }

    /// An error that no statement has made.
    pub fn of(error: &DataFusionError, levers: &Levers) -> Self {
        let Worded { cause, hint, subject } = wording::told(error);
        let said = |text: &str| {
            let named = format!("raise {}", levers.memory_limit);
            shown_text(text).replace("raise the memory limit", &named)
        };
        Self {
            class: class_of(error),
            cause: said(&cause),
            hint: hint.as_deref().map(said),
            place: None,
            subject,
        }
    }

    /// With a remedy.
    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// The failure of what has a name of its own, which stands in front unless the failure says it. What is said of an
    /// address names it, without the signature that may be in it.
    #[must_use]
    pub fn in_place(self, place: &str) -> Self {
        let is_named = place.is_empty() || place.contains("://") || self.cause.contains(place);
        match is_named {
            true => self,
            false => Self { cause: format!("{place}: {}", self.cause), ..self },
        }
    }

    pub(super) fn about(self, subject: &str) -> Self {
        Self { subject: Some(subject.to_string()), ..self }
    }

    pub(super) fn at(self, line: usize, column: usize) -> Self {
        Self { place: Some(Place { line, column, shown: None }), ..self }
    }

    pub(super) fn in_statement(mut self, sql: &str) -> Self {
        if let Some(place) = &mut self.place {
            place.show(sql);
        }
        self
    }

    /// Its code in the SQL standard and in PostgreSQL.
    pub fn sqlstate(&self) -> &'static str {
        self.class.sqlstate()
    }
}
