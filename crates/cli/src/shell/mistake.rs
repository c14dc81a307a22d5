//! What is wrong with a statement, and what was probably meant.

use datafusion::common::{Column, DataFusionError, SchemaError};
use headrace_engine::Session;

use super::keywords::KEYWORDS;
use super::nearest;
use crate::error::CliError;
use crate::session::failure;

/// Names that a hint lists.
const LISTED_MAX: usize = 20;

/// An error of a statement as its user reads it.
pub fn explain(session: &Session, error: &DataFusionError) -> CliError {
    if let DataFusionError::SchemaError(schema, _) = error.find_root() {
        match schema.as_ref() {
            SchemaError::FieldNotFound { field, valid_fields } => {
                return unknown_column(field, valid_fields);
            }
            SchemaError::AmbiguousReference { field } => {
                return CliError::new(format!("several tables have a column {}", field.name))
                    .hint(format!("write table.{}", field.name));
            }
            _ => {}
        }
    }
    let plain = failure("", error);
    let text = plain.cause();
    if let Some(name) = missing_table(text) {
        return unknown_table(name, session);
    }
    if let Some(name) = missing_function(text) {
        return unknown_function(name, session);
    }
    if let Some(column) = ungrouped(text) {
        return CliError::new(format!(
            "{column} is neither in GROUP BY nor in an aggregate function"
        ))
        .hint("GROUP BY ALL groups by every column that is in none");
    }
    if let Some((call, candidates)) = mismatched(&error.find_root().message()) {
        return CliError::new(format!("no function takes these types: {call}"))
            .hint(format!("candidates: {candidates}"));
    }
    if text.contains("require unique expression names") {
        return CliError::new("two columns of a subquery, a view or a table have the same name")
            .hint("name one of them otherwise: .. AS name");
    }
    let (cause, place) = placed(text);
    let meant =
        word_instead_of_statement(cause).and_then(|word| nearest(word, KEYWORDS.iter().copied()));
    let error = match (plain.has_hint(), meant) {
        (false, Some(word)) => CliError::new(cause).hint(format!("did you mean {word}?")),
        _ => plain.with_cause(cause),
    };
    match place {
        Some((line, column)) => error.pointing_at(line, column),
        None => error,
    }
}

fn unknown_column(missing: &Column, valid: &[Column]) -> CliError {
    let names: Vec<&str> = valid.iter().map(|column| column.name.as_str()).collect();
    let error = CliError::new(format!("there is no column {}", missing.flat_name()));
    let listed = listed("columns", &names);
    match nearest(&missing.name, names.iter().copied()) {
        // It is there, in a table that is not the one in front of the dot.
        Some(name) if name == missing.name => {
            let whole: Vec<String> = valid
                .iter()
                .filter(|column| column.name == missing.name)
                .map(Column::flat_name)
                .collect();
            error.hint(format!("did you mean {}?", whole.join(" or ")))
        }
        Some(name) => error.hint(format!("did you mean {name}? {listed}")),
        None if names.is_empty() => error.hint("no table is named behind FROM that has columns"),
        None => error.hint(listed),
    }
}

fn unknown_table(name: &str, session: &Session) -> CliError {
    let tables = tables(session);
    let names: Vec<&str> = tables.iter().map(String::as_str).collect();
    let error = CliError::new(format!("there is no table {name}"));
    if names.is_empty() {
        return error.hint("there are no tables; --data DIR makes tables of the files below DIR");
    }
    let listed = listed("tables", &names);
    match nearest(name, names.iter().copied()) {
        Some(near) => error.hint(format!("did you mean {near}? {listed}")),
        None => error.hint(listed),
    }
}

fn unknown_function(name: &str, session: &Session) -> CliError {
    let error = CliError::new(format!("there is no function {name}"));
    let known = functions(session);
    // Short names are near to many: the more usual one is meant.
    let usual = ["count", "sum", "avg", "min", "max", "round", "coalesce"];
    let near = nearest(name, usual).or_else(|| nearest(name, known.iter().map(String::as_str)));
    match near {
        Some(near) => error.hint(format!("did you mean {near}?")),
        None => {
            error.hint("select distinct routine_name from information_schema.routines lists them")
        }
    }
}

/// The functions of a session, sorted.
pub fn functions(session: &Session) -> Vec<String> {
    let state = session.context().state_ref();
    let state = state.read();
    let scalars = state.scalar_functions().keys();
    let aggregates = state.aggregate_functions().keys();
    let mut names: Vec<String> =
        scalars.chain(aggregates).chain(state.window_functions().keys()).cloned().collect();
    names.sort();
    names.dedup();
    names
}

fn listed(what: &str, names: &[&str]) -> String {
    let more = match names.len().saturating_sub(LISTED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{what}: {}{more}", names[..names.len().min(LISTED_MAX)].join(", "))
}

/// The tables of a session, sorted, without those about the session itself.
pub fn tables(session: &Session) -> Vec<String> {
    let context = session.context();
    let mut names: Vec<String> = context
        .catalog_names()
        .into_iter()
        .filter_map(|name| context.catalog(&name))
        .flat_map(|catalog| {
            let schemas = catalog.schema_names().into_iter();
            schemas
                .filter(|name| name != "information_schema")
                .filter_map(|name| catalog.schema(&name))
                .collect::<Vec<_>>()
        })
        .flat_map(|schema| schema.table_names())
        .collect();
    names.sort();
    names
}

/// The name in the planner's "table 'datafusion.public.trips' not found".
fn missing_table(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("table '")?;
    let (name, _) = rest.split_once("' not found")?;
    Some(name.strip_prefix("datafusion.public.").unwrap_or(name))
}

/// The name in the planner's "Invalid function 'cuont'.".
fn missing_function(text: &str) -> Option<&str> {
    text.strip_prefix("Invalid function '")?.split('\'').next()
}

/// The column in the planner's "column "t.a" must appear in the GROUP BY clause".
fn ungrouped(text: &str) -> Option<String> {
    let (before, _) = text.split_once(" must appear in the GROUP BY clause")?;
    let (_, column) = before.rsplit_once("column ")?;
    Some(column.replace('"', ""))
}

/// The call in the planner's "No function matches the given name and argument types 'sum(Utf8)'",
/// and the types that would do.
fn mismatched(text: &str) -> Option<(String, String)> {
    let (_, rest) = text.split_once("argument types '")?;
    let (call, rest) = rest.split_once("'.")?;
    let (_, candidates) = rest.split_once("Candidate functions:")?;
    let candidates: Vec<&str> =
        candidates.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    Some((call.to_string(), candidates.join(", ")))
}

/// A message and the place that it ends with.
fn placed(text: &str) -> (&str, Option<(usize, usize)>) {
    let parse = || {
        let (cause, place) = text.rsplit_once(" at Line: ")?;
        let (line, column) = place.split_once(", Column: ")?;
        Some((cause, Some((line.parse().ok()?, column.parse().ok()?))))
    };
    parse().unwrap_or((text, None))
}

/// The word in "Expected: an SQL statement, found: selec".
fn word_instead_of_statement(cause: &str) -> Option<&str> {
    cause.split_once("Expected: an SQL statement, found: ").map(|(_, word)| word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parsers_words_are_understood() {
        let text = "Expected: an SQL statement, found: selec at Line: 1, Column: 7";
        let (cause, place) = placed(text);
        assert_eq!(place, Some((1, 7)));
        assert_eq!(word_instead_of_statement(cause), Some("selec"));
        assert_eq!(placed("at Line: x, Column: 7").1, None);
        let text = "column \"t.a\" must appear in the GROUP BY clause or";
        assert_eq!(ungrouped(text).as_deref(), Some("t.a"));
        let text = "No function matches the given name and argument types 'sum(Utf8)'. You\n\
                    \tCandidate functions:\n\tsum(Int64)\n\tsum(Float64)";
        assert_eq!(mismatched(text), Some(("sum(Utf8)".into(), "sum(Int64), sum(Float64)".into())));
        assert_eq!(missing_function("Invalid function 'cuont'."), Some("cuont"));
        assert_eq!(missing_table("table 'datafusion.public.a b' not found"), Some("a b"));
    }
}
