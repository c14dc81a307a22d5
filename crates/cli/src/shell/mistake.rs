//! Diagnosis of a failed statement, with suggestions.

use std::path::Path;

use datafusion::common::{Column, DataFusionError, SchemaError};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};
use headrace_engine::Session;
use headrace_engine::catalog::is_file_name;
use headrace_engine::wording::{told, with_sql_types};

use super::keywords::KEYWORDS;
use super::nearest;
use super::paths::completions;
use crate::error::CliError;
use crate::session::failure;

/// Names listed in a hint.
const LISTED_MAX: usize = 20;

/// An error of a statement for its user, with its place in the statement.
pub fn explain(session: &Session, sql: &str, error: &DataFusionError) -> CliError {
    let explained = explained(session, error);
    match (explained.has_place(), explained.subject()) {
        (false, Some(subject)) => {
            // A value that the statement does not have is a column's, and is the cast's that it has.
            let cast = || told(error).subject.and_then(|_| only_cast(sql));
            match place_of(sql, subject).or_else(cast) {
                Some((line, column)) => explained.pointing_at(line, column),
                None => explained,
            }
        }
        _ => explained,
    }
}

fn explained(session: &Session, error: &DataFusionError) -> CliError {
    if let DataFusionError::SchemaError(schema, _) = error.find_root() {
        match schema.as_ref() {
            SchemaError::FieldNotFound { field, valid_fields } => {
                return unknown_column(field, valid_fields);
            }
            SchemaError::AmbiguousReference { field } => {
                return CliError::new(format!("several tables have a column {}", field.name))
                    .hint(format!("write table.{}", field.name))
                    .about(&field.name);
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
        .about(&column)
        .hint("GROUP BY ALL groups by every column that is in none");
    }
    if let Some((call, candidates)) = mismatched(&error.find_root().message()) {
        let name = call.split('(').next().unwrap_or_default();
        let error = CliError::new(format!("no function takes these types: {call}")).about(name);
        return match candidates.as_str() {
            "" => error.hint(format!("\\df {name} tells what it takes")),
            candidates => error.hint(format!("candidates: {candidates}")),
        };
    }
    if text.contains("require unique expression names") {
        return CliError::new("two columns of a subquery, a view or a table have the same name")
            .hint("name one of them otherwise: .. AS name");
    }
    // Of a path that was read, as the system says it.
    if let Some((path, _)) = text.split_once(": No such file or directory")
        && is_file_name(path)
    {
        return missing_file(path).about(path);
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
    let mut names: Vec<&str> = Vec::new();
    for column in valid {
        if !names.contains(&column.name.as_str()) {
            names.push(&column.name);
        }
    }
    let error = CliError::new(format!("there is no column {}", missing.flat_name()));
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

fn unknown_table(name: &str, session: &Session) -> CliError {
    let tables = tables(session);
    let names: Vec<&str> = tables.iter().map(String::as_str).collect();
    let error = CliError::new(format!("there is no table {name}"));
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
        return error.hint("there are no tables; --data DIR makes tables of the files below DIR");
    }
    let listed = listed("tables", &names);
    match nearest(name, names.iter().copied()) {
        Some(near) => error.hint(format!("did you mean {near}? {listed}")),
        None => error.hint(listed),
    }
}

/// A missing file, with the neighbour that was probably meant.
fn missing_file(name: &str) -> CliError {
    let error = CliError::new(format!("there is no file {name}"));
    let folder = name.rsplit_once('/').map_or("", |(folder, _)| &name[..=folder.len()]);
    let files = completions(folder);
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

fn unknown_function(name: &str, session: &Session) -> CliError {
    let error = CliError::new(format!("there is no function {name}")).about(name);
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
        None => error.hint("\\df NAME lists functions"),
    }
}

/// The place of the only cast of a statement.
fn only_cast(sql: &str) -> Option<(usize, usize)> {
    let tokens = tokens(sql);
    let is_cast = |token: &&TokenWithSpan| match &token.token {
        Token::Word(word) => word.quote_style.is_none() && word.value.eq_ignore_ascii_case("cast"),
        token => *token == Token::DoubleColon,
    };
    let mut casts = tokens.iter().filter(is_cast);
    match (casts.next(), casts.next()) {
        (Some(cast), None) => begin(cast),
        _ => None,
    }
}

fn tokens(sql: &str) -> Vec<TokenWithSpan> {
    let mut tokens = Vec::new();
    // What could not be read to its end has no names behind that.
    let _ = Tokenizer::new(&GenericDialect {}, sql).tokenize_with_location_into_buf(&mut tokens);
    tokens
}

/// Line and column.
fn begin(token: &TokenWithSpan) -> Option<(usize, usize)> {
    let place = token.span.start;
    Some((usize::try_from(place.line).ok()?, usize::try_from(place.column).ok()?))
}

/// The place of a word or a value in a statement, outside of other texts and comments.
fn place_of(sql: &str, word: &str) -> Option<(usize, usize)> {
    let tokens = tokens(sql);
    let last = word.rsplit('.').next().unwrap_or(word);
    let is_it = |token: &&TokenWithSpan| match &token.token {
        Token::Word(found) => found.value.eq_ignore_ascii_case(last),
        Token::SingleQuotedString(found) | Token::Number(found, _) => found == word,
        _ => false,
    };
    begin(tokens.iter().find(is_it)?)
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

/// A message and the place at its end.
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
    fn names_have_a_place_in_their_statement() {
        let sql = "select 'd_yaer', -- d_yaer\n  D_YAER from t";
        assert_eq!(place_of(sql, "d_yaer"), Some((1, 8)));
        assert_eq!(place_of("select 1,\n  D_YAER from t", "t.d_yaer"), Some((2, 3)));
        assert_eq!(place_of("select 1 from 'a.csv'", "a.csv"), Some((1, 15)));
        assert_eq!(place_of("select 1", "t"), None);
        assert_eq!(place_of("select 300::tinyint", "300"), Some((1, 8)));
        assert_eq!(only_cast("select 'cast', a::int"), Some((1, 17)));
        assert_eq!(only_cast("select cast(a as int), b::int"), None);
    }

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
        assert_eq!(
            mismatched(text),
            Some(("sum(VARCHAR)".into(), "sum(BIGINT), sum(DOUBLE)".into()))
        );
        assert_eq!(missing_function("Invalid function 'cuont'."), Some("cuont"));
        assert_eq!(missing_table("table 'datafusion.public.a b' not found"), Some("a b"));
        assert_eq!(missing_table("table 'datafusion.a.csv' not found"), Some("a.csv"));
    }
}
