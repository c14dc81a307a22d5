//! Why a statement has no answer: one value that every door tells in its own way.
//!
//! ```text
//! DataFusionError ─ classify, wording ─► class, cause, hint ┐
//! session ───────── names ─────────────► what was meant     ├─► Failure ─► text with a caret, exception,
//! statement ─────── place ─────────────► line, column       ┘              SQLSTATE, JSON
//! ```
//!
//! The lower crates' errors have a class. The planner's have what type its library gives them; where that is a text alone,
//! `names` and `wording` know its sentences, and tests notice when they change.
//!
//! It must never know which door tells: what a door calls its levers, it brings along ([`Levers`]).

mod class;
mod classify;
mod names;
mod nearest;
mod place;
mod value;

use datafusion::common::DataFusionError;

use crate::session::Session;
use crate::wording;

pub use class::Class;
pub use names::{functions, tables};
pub use nearest::nearest;
pub use place::Place;
pub use value::{Failure, Levers};

impl Failure {
    /// The error of a statement, with what was probably meant and its place.
    pub fn of_statement(
        session: &Session,
        sql: &str,
        error: &DataFusionError,
        levers: &Levers,
    ) -> Self {
        let failure = names::meant(session, error, levers);
        if failure.place.is_some() {
            return failure.in_statement(sql);
        }
        let Some(subject) = failure.subject.as_deref() else { return failure };
        // A value that the statement does not have is a column's, and is the cast's that it has.
        let cast = || wording::told(error).subject.and_then(|_| place::only_cast(sql));
        match place::of_word(sql, subject).or_else(cast) {
            Some((line, column)) => failure.at(line, column).in_statement(sql),
            None => failure,
        }
    }
}
