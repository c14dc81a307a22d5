//! What was probably meant by a name that is not there.

use std::path::Path;

use datafusion::common::{Column, DataFusionError, SchemaError};

use super::class::Class;
use super::nearest::nearest;
use super::place::placed;
use super::value::{Failure, Levers};
use crate::catalog::is_file_name;
use crate::session::Session;
use crate::sql::keywords::KEYWORDS;
use crate::wording::with_sql_types;

/// Names listed in a hint.
const LISTED_MAX: usize = 20;

/// An error of a statement, and what helps where a name in it is not there.
pub(super) fn meant(session: &Session, error: &DataFusionError, levers: &Levers) -> Failure {
    if let DataFusionError::SchemaError(schema, _) = error.find_root() {
        match schema.as_ref() {
            SchemaError::FieldNotFound { field, valid_fields } => {
                return unknown_column(field, valid_fields);
            }
            SchemaError::AmbiguousReference { field } => {
                let cause = format!("several tables have a column {}", field.name);
                return Failure::new(Class::AmbiguousColumn, cause)
                    .hint(format!("write table.{}", field.name))
                    .about(&field.name);
            }
            _ => {}
        }
    }
    let plain = Failure::of(error, levers);
    let text = plain.cause.as_str();
    if let Some(name) = missing_table(text) {
        return unknown_table(name, session, levers);
    }
    if let Some(name) = missing_function(text) {
        return unknown_function(name, session, levers);
    }
    if let Some(column) = ungrouped(text) {
        let cause = format!("{column} is neither in GROUP BY nor in an aggregate function");
        return Failure::new(Class::Ungrouped, cause)
            .about(&column)
            .hint("GROUP BY ALL groups by every column that is in none");
    }
    let root = error.find_root().message();
    if let Some((cause, hint)) = told_by_function(&root) {
        return Failure::new(Class::Types, cause).hint(hint);
    }
    if let Some((call, candidates)) = mismatched(&root) {
        let name = call.split('(').next().unwrap_or_default();
        let cause = format!("no function takes these types: {call}");
        let error = Failure::new(Class::Types, cause).about(name);
        return match candidates.as_str() {
            "" => error.hint(format!(
                "{} tells what it takes",
                levers.list_functions.replace("NAME", name)
            )),
            candidates => error.hint(format!("candidates: {candidates}")),
        };
    }
    if text.contains("require unique expression names") {
        let cause = "two columns of a subquery, a view or a table have the same name";
        return Failure::new(Class::DuplicateColumn, cause)
            .hint("name one of them otherwise: .. AS name");
    }
    // Of a path that was read, as the system says it.
    if let Some((path, _)) = text.split_once(": No such file or directory")
        && is_file_name(path)
    {
        return missing_file(path).about(path);
    }
    let (cause, place) = placed(text);
    let word = word_instead_of_statement(cause);
    let near = word.and_then(|word| nearest(word, KEYWORDS.iter().copied()));
    let cause = cause.to_string();
    let hint = plain.hint.clone().or_else(|| near.map(|word| format!("did you mean {word}?")));
    let failure = Failure { cause, hint, ..plain };
    match place {
        Some((line, column)) => failure.at(line, column),
        None => failure,
    }
}

fn unknown_column(missing: &Column, valid: &[Column]) -> Failure {
    let mut names: Vec<&str> = Vec::new();
    for column in valid {
        if !names.contains(&column.name.as_str()) {
            names.push(&column.name);
        }
    }
    let error =
        Failure::new(Class::UnknownColumn, format!("there is no column {}", missing.flat_name()));
    let error = error.about(&missing.name);
    let listed = listed("columns", &names);
    // It is there, in a table that is not the one in front of the dot.
    let elsewhere = valid.iter().filter(|column| column.name == missing.name && *column != missing);
    let elsewhere: Vec<String> = elsewhere.map(Column::flat_name).collect();
    if !elsewhere.is_empty() {
        return error.hint(format!("did you mean {}?", elsewhere.join(" or ")));
    }
    match nearest(&missing.name, names.iter().copied()) {
        Some(name) => error.hint(format!("did you mean {name}? {listed}")),
        None if names.is_empty() => error.hint("no table is named behind FROM that has columns"),
        None => error.hint(listed),
    }
}

fn unknown_table(name: &str, session: &Session, levers: &Levers) -> Failure {
    let tables = tables(session);
    let names: Vec<&str> = tables.iter().map(String::as_str).collect();
    let error = Failure::new(Class::UnknownTable, format!("there is no table {name}"));
    let error = error.about(name);
    if name == "-" {
        return error.hint(
            "what comes through a pipe is read_csv('/dev/stdin') or read_json('/dev/stdin')",
        );
    }
    if Path::new(name).is_file() {
        return error.hint(format!("a file stands in quotes: from '{name}'"));
    }
    if is_file_name(name) {
        return missing_file(name).about(name);
    }
    if names.is_empty() {
        return error.hint(format!("there are no tables; {}", levers.make_tables));
    }
    let listed = listed("tables", &names);
    match nearest(name, names.iter().copied()) {
        Some(near) => error.hint(format!("did you mean {near}? {listed}")),
        None => error.hint(listed),
    }
}

/// A missing file, with the neighbour that was probably meant.
fn missing_file(name: &str) -> Failure {
    let error = Failure::new(Class::MissingFile, format!("there is no file {name}"));
    let folder = name.rsplit_once('/').map_or("", |(folder, _)| &name[..=folder.len()]);
    let files = files_of(folder);
    let names: Vec<&str> = files.iter().map(String::as_str).collect();
    match nearest(name, names.iter().copied()) {
        Some(near) => error.hint(format!("did you mean '{near}'?")),
        None if !folder.is_empty() && !Path::new(folder).is_dir() => {
            error.hint(format!("there is no folder {folder}"))
        }
        None if names.is_empty() => error.hint("its folder is empty"),
        None => error.hint(listed("there are", &names)),
    }
}

/// The files and folders of a folder, which ends with a slash or is the present one, as they would be typed.
fn files_of(folder: &str) -> Vec<String> {
    let place = if folder.is_empty() { "." } else { folder };
    let Ok(entries) = std::fs::read_dir(place) else { return Vec::new() };
    let named = entries.flatten().filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let slash = if entry.path().is_dir() { "/" } else { "" };
        (!name.starts_with('.')).then(|| format!("{folder}{name}{slash}"))
    });
    let mut names: Vec<String> = named.collect();
    names.sort();
    names
}

/// Functions with other names in other databases, and their names here.
const MEANT: &[(&str, &str)] = &[
    ("ucase", "upper"),
    ("lcase", "lower"),
    ("substring_index", "split_part"),
    ("charindex", "strpos"),
    ("locate", "strpos"),
    ("isnull", "x IS NULL"),
    ("iif", "CASE WHEN .. THEN .. ELSE .. END"),
    ("getdate", "now"),
    ("sysdate", "now"),
    ("curdate", "current_date"),
    ("group_concat", "string_agg"),
    ("average", "avg"),
    ("mean", "avg"),
    ("std", "stddev"),
    ("variance", "var_samp"),
    ("pow", "power"),
    ("mod", "x % y"),
    ("uniq", "approx_distinct"),
    ("countdistinct", "count(distinct x)"),
    ("todate", "to_date"),
    ("tostring", "cast(x as varchar)"),
    ("toint", "cast(x as int)"),
];

fn unknown_function(name: &str, session: &Session, levers: &Levers) -> Failure {
    let cause = format!("there is no function {name}");
    let error = Failure::new(Class::UnknownFunction, cause).about(name);
    let known = functions(session);
    let plain = name.to_lowercase();
    let meant = MEANT.iter().find(|(other, _)| *other == plain).map(|(_, meant)| *meant);
    // Short names are near to many: the more usual one is meant.
    let usual = ["count", "sum", "avg", "min", "max", "round", "coalesce"];
    let near = || nearest(name, usual).or_else(|| nearest(name, known.iter().map(String::as_str)));
    // It is one that has a window.
    if known.contains(&plain) {
        return error.hint(format!("{plain} needs OVER (..) behind it"));
    }
    match meant.or_else(near) {
        Some(near) => error.hint(format!("did you mean {near}?")),
        None => error.hint(format!("{} lists functions", levers.list_functions)),
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

/// The tables of a session, sorted, without those of the catalog.
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
    // Those of schemas are known without their schema, too.
    names.dedup();
    names
}

/// The name in the planner's "table 'datafusion.public.trips' not found".
fn missing_table(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("table '")?;
    let (name, _) = rest.split_once("' not found")?;
    let own = ["datafusion.public.", "datafusion."].iter().find_map(|own| name.strip_prefix(own));
    Some(own.unwrap_or(name))
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
/// and the accepted types.
fn mismatched(text: &str) -> Option<(String, String)> {
    let (_, rest) = text.split_once("argument types '")?;
    let (call, rest) = rest.split_once("'.")?;
    let (_, candidates) = rest.split_once("Candidate functions:")?;
    // Those that choose their types themselves say nothing of them.
    let tells = |line: &&str| !line.is_empty() && !line.ends_with("(UserDefined)");
    let candidates: Vec<&str> = candidates.lines().map(str::trim).filter(tells).collect();
    Some((with_sql_types(call), with_sql_types(&candidates.join(", "))))
}

/// What one of our functions says of its arguments: "there is no f(BIGINT)", and what it takes.
fn told_by_function(text: &str) -> Option<(&str, &str)> {
    let (_, rest) = text.split_once("user-defined coercion failed with: ")?;
    let (_, own) = rest.split_once("Error during planning: ")?;
    let (cause, rest) = own.split_once("\nhint: ")?;
    let hint = rest.split(" No function matches").next().unwrap_or(rest);
    Some((cause, hint.lines().next().unwrap_or(hint)))
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
        let text = "column \"t.a\" must appear in the GROUP BY clause or";
        assert_eq!(ungrouped(text).as_deref(), Some("t.a"));
        let text = "Function 'f' user-defined coercion failed with: Error during planning: there is no f(INT)\n\
                    hint: f(text) No function matches the given name";
        assert_eq!(told_by_function(text), Some(("there is no f(INT)", "f(text)")));
        assert_eq!(told_by_function(&text.replace("\nhint: ", " ")), None);
        let text = "No function matches the given name and argument types 'sum(Utf8)'. You\n\
                    \tCandidate functions:\n\tsum(Int64)\n\tsum(Float64)";
        assert_eq!(
            mismatched(text),
            Some(("sum(VARCHAR)".into(), "sum(BIGINT), sum(DOUBLE)".into()))
        );
        assert_eq!(missing_function("Invalid function 'cuont'."), Some("cuont"));
        assert_eq!(missing_table("table 'datafusion.public.a b' not found"), Some("a b"));
        assert_eq!(missing_table("table 'datafusion.a.csv' not found"), Some("a.csv"));
    }
}
