//! What the planner and its readers say of an error, in the words of SQL: types as SQL calls them, and what helps.

use std::str::FromStr;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::DataFusionError;
use datafusion::sql::sqlparser::parser::ParserError;

use crate::error::Told;
use crate::sql::type_name;

/// Names of error classes that stand in front of a message.
const CLASSES: [&str; 5] = [
    "Cast error: ", "Parser error: ", "Compute error: ", "Invalid argument error: ", "Csv error: ",
];

/// Characters of a value that are shown.
const SHOWN_MAX: usize = 80;

/// A message in SQL's words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Worded {
    /// What is wrong.
    pub cause: String,
    /// What helps, where the message tells.
    pub hint: Option<String>,
    /// What of the statement it is about: a value that is none of another type.
    pub subject: Option<String>,
}

/// An error as its reader needs it.
pub fn told(error: &DataFusionError) -> Worded {
    if let Some(Told { cause, hint, .. }) = Told::of(error) {
        return Worded { cause: with_sql_types(cause), hint: hint.clone(), subject: None };
    }
    let message = message(error);
    if let Some(worded) = pattern(&message) {
        return worded;
    }
    // Errors of the lower crates carry their remedy behind the cause; of the planner's own, which
    // may have several lines, the first says what is wrong.
    let (cause, hint) = match message.split_once("\nhint: ") {
        Some((cause, hint)) => (cause, Some(hint.to_string())),
        None => match (message.strip_suffix("; run the query again"), message.split_once('\n')) {
            (Some(cause), _) => (cause, Some("run the query again".to_string())),
            (None, Some((cause, more))) => (cause, Some(in_one_line(more))),
            (None, None) => (message.as_str(), None),
        },
    };
    let worded = worded(cause);
    Worded { hint: hint.or(worded.hint), ..worded }
}

/// The innermost cause, without the names of the planner's error classes.
pub fn message(error: &DataFusionError) -> String {
    let text = match error.find_root() {
        DataFusionError::SQL(error, _) => match error.as_ref() {
            ParserError::ParserError(text) | ParserError::TokenizerError(text) => text.clone(),
            ParserError::RecursionLimitExceeded => "expressions are nested too deeply".to_string(),
        },
        root => root.message().to_string(),
    };
    // The planner asks its users to report what it takes for a bug of its own.
    let text = text.split("\nThis issue was likely caused by a bug").next().unwrap_or_default();
    without_syntax_tree(text.trim())
}

/// What stands in front of a tree of the planner's or the parser's, which is written as in their source: nobody reads
/// that.
fn without_syntax_tree(text: &str) -> String {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let is_tree = |at: &usize| {
        let name = &text[text[..*at].trim_end_matches(is_word).len()..*at];
        let behind = &text[*at..];
        let is_type = name.starts_with(|c: char| c.is_ascii_uppercase())
            && name.contains(|c: char| c.is_ascii_lowercase());
        is_type
            && (behind.starts_with(" { ") && behind.contains(": ")
                || behind.starts_with('(')
                    && behind[1..].split(['(', '{', '"']).next().is_some_and(|word| {
                        let word = word.trim_end();
                        word.starts_with(|c: char| c.is_ascii_uppercase())
                            && word.chars().all(is_word)
                            && behind.contains('{')
                    }))
    };
    let begins = text.char_indices().map(|(at, _)| at).find(is_tree);
    let Some(at) = begins else { return text.to_string() };
    let before = text[..at].trim_end_matches(is_word);
    let name = &text[before.len()..at];
    // Nothing is left of a message that is a tree alone.
    match before.trim_end_matches([':', '(', '[', ' ']) {
        "" => format!("the planner does not know such an expression: {name}"),
        before => format!("{before}: {name}"),
    }
}

fn in_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A message of the planner's in SQL's words.
fn worded(message: &str) -> Worded {
    let text = CLASSES.iter().find_map(|class| message.strip_prefix(class)).unwrap_or(message);
    if let Some(cast) = cast(text) {
        return cast;
    }
    if let Some(statement) = text.strip_prefix("Unsupported SQL statement: ") {
        let is_attach = statement.to_lowercase().starts_with("attach");
        return Worded {
            cause: format!("this statement is not offered: {}", shown(statement)),
            hint: is_attach.then(|| ".open DIR makes tables of the files in a folder".into()),
            subject: None,
        };
    }
    if let Some((verb, instead)) = change_of_files(text) {
        return Worded {
            cause: format!("{verb} is not offered: the files of a table are written once"),
            hint: Some(instead.to_string()),
            subject: None,
        };
    }
    Worded { cause: with_sql_types(text), ..Worded::default() }
}

/// A pattern that is none, as the library of regular expressions draws it: the pattern, a line that points, the cause.
fn pattern(message: &str) -> Option<Worded> {
    let (_, drawn) = message.split_once("regex parse error:\n")?;
    let (drawn, cause) = drawn.rsplit_once("\nerror: ")?;
    let pattern = drawn.lines().next()?.trim();
    let hint = r"a backslash before ( [ . * + ? takes them as they are: \(";
    Some(Worded {
        cause: format!("'{}' is no regular expression: {}", shown(pattern), in_one_line(cause)),
        hint: Some(hint.to_string()),
        subject: Some(pattern.to_string()),
    })
}

/// What would change the files of a table, and what does the same.
fn change_of_files(text: &str) -> Option<(&str, &'static str)> {
    if text == "Insert into not implemented for this table" {
        let both = "write both: CREATE OR REPLACE TABLE t AS SELECT * FROM t UNION ALL SELECT ..";
        return Some(("INSERT", both));
    }
    let (verb, _) = text.split_once(" not supported for Base table")?;
    let rest = "make a table of the rows that stay: CREATE TABLE new AS SELECT ..";
    matches!(verb, "DELETE" | "UPDATE" | "TRUNCATE").then_some((verb, rest))
}

/// A value that is none of the type that it was cast to.
fn cast(text: &str) -> Option<Worded> {
    let failed = |value: &str, cause: String, name: &str| {
        let hint = Some(format!("TRY_CAST(.. AS {name}) gives NULL instead"));
        Some(Worded { cause, hint, subject: Some(value.to_string()) })
    };
    let none =
        |value: &str, name: &str| failed(value, format!("'{}' is no {name}", shown(value)), name);
    if let Some(rest) = text.strip_prefix("Cannot cast string '") {
        let (value, to) = rest.rsplit_once("' to value of ")?;
        return none(value, &sql_type(to.strip_suffix(" type").unwrap_or(to)));
    }
    if let Some(rest) = text.strip_prefix("Error parsing timestamp from '") {
        let (value, _) = rest.rsplit_once("': ")?;
        return none(value, "TIMESTAMP");
    }
    if let Some(rest) = text.strip_prefix("Invalid input syntax for type interval: ") {
        return none(rest.trim_matches('"'), "INTERVAL");
    }
    let rest = text.strip_prefix("Can't cast value ")?;
    let (value, to) = rest.rsplit_once(" to type ")?;
    let name = sql_type(to.trim_end_matches('.'));
    failed(value, format!("{} is out of the range of {name}", shown(value)), &name)
}

/// The beginning of a value.
fn shown(value: &str) -> String {
    match value.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}..", &value[..end]),
        None => value.to_string(),
    }
}

fn sql_type(name: &str) -> String {
    DataType::from_str(name).map_or_else(|_| name.to_string(), |data_type| type_name(&data_type))
}

/// A message whose types of arrays have SQL's names, but for what it quotes.
pub fn with_sql_types(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut before = ' ';
    while let Some(first) = rest.chars().next() {
        let taken = if matches!(first, '\'' | '"' | '`') && !is_of_name(before) {
            rest[1..].find(first).map_or(rest.len(), |end| end + 2)
        } else if first.is_ascii_uppercase() && !is_of_name(before) {
            let named = type_at(rest);
            if let Some((bytes, data_type)) = named {
                out.push_str(&type_name(&data_type));
                before = ')';
                rest = &rest[bytes..];
                continue;
            }
            rest.find(|c| !is_of_name(c)).unwrap_or(rest.len())
        } else {
            first.len_utf8()
        };
        out.push_str(&rest[..taken]);
        before = rest[..taken].chars().next_back().unwrap_or(' ');
        rest = &rest[taken..];
    }
    out
}

fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The type that a text begins with, and its bytes there.
fn type_at(text: &str) -> Option<(usize, DataType)> {
    let word = text.find(|c| !is_of_name(c)).unwrap_or(text.len());
    let end = match text[word..].starts_with('(') {
        true => word + closed(&text[word..])?,
        false => word,
    };
    // What has no parentheses may be a word of the message.
    let is_plain = word == end && !text[..word].ends_with(|c: char| c.is_ascii_digit());
    if is_plain && !matches!(&text[..word], "Boolean" | "Utf8View" | "LargeUtf8" | "Binary") {
        return None;
    }
    DataType::from_str(&text[..end]).ok().map(|data_type| (end, data_type))
}

/// Bytes up to the parenthesis that closes the first.
fn closed(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' if depth == 1 => return Some(at + 1),
            ')' => depth -= 1,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Class;

    #[test]
    fn types_have_the_names_of_sql() {
        let cases = [
            ("cannot add Utf8 + Int64", "cannot add VARCHAR + BIGINT"),
            ("coalesce(Timestamp(µs), Utf8View)", "coalesce(TIMESTAMP, VARCHAR)"),
            ("sum(Decimal128(9, 2))", "sum(DECIMAL(9, 2))"),
            ("a Timestamp(ns, \"UTC\") there", "a TIMESTAMP(9) WITH TIME ZONE there"),
            ("Interval(MonthDayNano)", "INTERVAL"),
            ("'Utf8' and \"Int64\" of myInt64, x_Utf8", "'Utf8' and \"Int64\" of myInt64, x_Utf8"),
            ("the planner's Null is a Date", "the planner's Null is a Date"),
            ("open ( Decimal128(9", "open ( Decimal128(9"),
        ];
        for (message, wanted) in cases {
            assert_eq!(worded(message).cause, wanted);
        }
    }

    #[test]
    fn changes_of_files_are_told_with_what_does_the_same() {
        for (message, verb) in [
            ("Insert into not implemented for this table", "INSERT"),
            ("UPDATE not supported for Base table", "UPDATE"),
        ] {
            let worded = worded(message);
            assert!(worded.cause.starts_with(verb) && worded.hint.is_some(), "{worded:?}");
        }
        assert_eq!(worded("SORT not supported for Base table").hint, None);
    }

    #[test]
    fn casts_that_fail_name_value_type_and_remedy() {
        let cases = [
            (
                "Cast error: Cannot cast string 'it's' to value of Int32 type",
                "'it's' is no INT",
                "it's",
            ),
            (
                "Cast error: Can't cast value 300 to type Int8",
                "300 is out of the range of TINYINT",
                "300",
            ),
            (
                "Parser error: Error parsing timestamp from 'a': b': timestamp must contain at least 10 characters",
                "'a': b' is no TIMESTAMP",
                "a': b",
            ),
            (
                "Parser error: Invalid input syntax for type interval: \"x\"",
                "'x' is no INTERVAL",
                "x",
            ),
        ];
        for (message, cause, value) in cases {
            let worded = worded(message);
            assert_eq!((worded.cause.as_str(), worded.subject.as_deref()), (cause, Some(value)));
            assert!(worded.hint.is_some_and(|hint| hint.starts_with("TRY_CAST(.. AS ")));
        }
        let long = format!("Cannot cast string '{}' to value of Date32 type", "ä".repeat(1000));
        assert!(worded(&long).cause.len() < 200);
    }

    #[test]
    fn what_this_crate_tells_has_sqls_words_too() {
        let error = Told::error(Class::Fallback, "column pair has type List(Int64)", Some("none"));
        let worded = told(&error);
        assert_eq!(worded.cause, "column pair has type BIGINT[]");
        assert_eq!(worded.hint.as_deref(), Some("none"));
    }

    #[test]
    fn patterns_that_are_none_are_named_with_the_cause() {
        let text = "regex parse error:\n    a(b\n     ^\nerror: unclosed group";
        let error = DataFusionError::Execution(text.into());
        let worded = told(&error);
        assert_eq!(worded.cause, "'a(b' is no regular expression: unclosed group");
        assert_eq!(worded.subject.as_deref(), Some("a(b"));
        assert!(worded.hint.is_some());
    }

    #[test]
    fn trees_are_left_out() {
        let without = without_syntax_tree;
        let pivot = "Unsupported ast node Pivot { table: Table { name: ObjectName([Identifier(Ident { value: \"t\"";
        assert_eq!(without(pivot), "Unsupported ast node: Pivot");
        assert_eq!(
            without("Unsupported: Value(ValueWithSpan { value: Null })"),
            "Unsupported: Value"
        );
        assert_eq!(
            without("Field { name: \"a\" }"),
            "the planner does not know such an expression: Field"
        );
        let plain = "there is no column A { b }, Decimal(3, 2), cast(Utf8) or f(Int64)";
        assert_eq!(without(plain), plain);
    }
}
