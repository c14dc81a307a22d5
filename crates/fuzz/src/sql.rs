//! Statements: whatever parses is rewritten; queries are planned, bound and run by both sessions.

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement as DFStatement;
use datafusion::sql::sqlparser::ast::{Query, Select, SetExpr, Statement, Visit, Visitor};
use headrace_engine::OnLargeStack;
use headrace_engine::sql::Parsed;

use crate::sessions::Sessions;

#[path = "../../engine/tests/sql/tables.rs"]
#[allow(clippy::unwrap_used, missing_docs)]
mod tables;

/// Longer texts say nothing that shorter ones do not.
const TEXT_BYTES_MAX: usize = 16 << 10;

/// Functions that give as many rows or bytes as they are asked for.
const NEVER_RUN: &[&str] = &[
    "generate_series", "range", "repeat", "lpad", "rpad", "recursive", "array_resize",
    "list_resize", "array_repeat", "list_repeat",
];

/// Answers that depend on the order of rows, on the time, on chance, or on settings.
const NEVER_COMPARED: &[&str] = &[
    "limit", "offset", "fetch", "top", "over", "array_agg", "string_agg", "first_value",
    "last_value", "nth_value", "any_value", "within", "explain", "information_schema", "now",
    "current_date", "current_time", "current_timestamp", "today", "version", "summarize",
    "tablesample", "random", "rand", "uuid", "approx_distinct", "approx_median",
    "approx_percentile_cont",
];

thread_local! {
    static SESSIONS: Sessions = with_tables();
}

fn with_tables() -> Sessions {
    let sessions = Sessions::new();
    let registered = sessions.both(async |session| {
        tables::register(session, sessions.folder()).await;
        Ok::<_, ()>(())
    });
    assert!(registered, "the tables of the tests");
    sessions
}

/// Feeds a statement.
pub fn run(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else { return false };
    if text.len() > TEXT_BYTES_MAX {
        return false;
    }
    SESSIONS.with(|sessions| {
        let lower = text.to_ascii_lowercase();
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let has = |words: &[&str]| lower.split(|c| !is_word(c)).any(|found| words.contains(&found));
        // Files that somebody else has are none of the fixed tables.
        let names_file = lower.contains("'/") || lower.contains("\"/");
        if names_file || has(NEVER_RUN) || !is_query(sessions, text) {
            rewrite(sessions, text);
            return false;
        }
        sessions.compare(text, !has(NEVER_COMPARED) && !lower.contains("distinct on"))
    })
}

/// What other statements than queries get.
fn rewrite(sessions: &Sessions, text: &str) {
    let state = sessions.cpu().context().state();
    let work = async { Parsed::of(text, &state).map(|parsed| parsed.tables(&state).is_ok()) };
    if let Err(error) = sessions.runtime().block_on(OnLargeStack::new(work)) {
        let _ = error.to_string();
    }
}

/// Whether a text is a statement that changes nothing.
fn is_query(sessions: &Sessions, text: &str) -> bool {
    let state = sessions.cpu().context().state();
    let dialect = state.config().options().sql_parser.dialect;
    let work = async {
        let Ok(mut statement) = state.sql_to_statement(text, &dialect) else { return false };
        while let DFStatement::Explain(explain) = statement {
            statement = *explain.statement;
        }
        let DFStatement::Statement(inner) = statement else { return false };
        matches!(*inner, Statement::Query(_)) && inner.visit(&mut Harmless).is_continue()
    };
    sessions.runtime().block_on(OnLargeStack::new(work))
}

/// Breaks where a query makes or changes a table.
struct Harmless;

impl Visitor for Harmless {
    type Break = ();

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        if select.into.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        match *query.body {
            SetExpr::Select(_)
            | SetExpr::Query(_)
            | SetExpr::SetOperation { .. }
            | SetExpr::Values(_) => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        }
    }
}
