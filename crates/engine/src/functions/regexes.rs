//! Functions of regular expressions.

use std::cell::RefCell;
use std::sync::Arc;

use datafusion::common::{Result, exec_datafusion_err, exec_err};
use regex::{Regex, RegexBuilder};

use super::rows::Kind::{Int, Text, Texts};
use super::rows::{Definition, Row, Value, strict, text};

/// The functions.
pub const FUNCTIONS: &[Definition] = &[
    strict(
        "regexp_extract",
        &[&[Text, Text], &[Text, Text, Int], &[Text, Text, Int, Text]],
        Text,
        |row| text(extract(row)?.unwrap_or_default()),
    ),
    strict(
        "regexp_substr",
        &[&[Text, Text], &[Text, Text, Int], &[Text, Text, Int, Int]],
        Text,
        substr,
    ),
    strict(
        "regexp_extract_all",
        &[&[Text, Text], &[Text, Text, Int], &[Text, Text, Int, Text]],
        Texts,
        extract_all,
    ),
    strict("regexp_split_to_array", &[&[Text, Text], &[Text, Text, Text]], Texts, split),
    strict("regexp_escape", &[&[Text]], Text, |row| text(regex::escape(row.text(0)))),
];

thread_local! {
    /// The expression of the last row: it is the next one's nearly always.
    static LAST: RefCell<Option<(String, String, Arc<Regex>)>> = const { RefCell::new(None) };
}

/// A regular expression with PostgreSQL's flags.
fn regex(pattern: &str, flags: &str) -> Result<Arc<Regex>> {
    LAST.with_borrow_mut(|last| {
        if let Some((known, with, regex)) = last
            && known == pattern
            && with == flags
        {
            return Ok(Arc::clone(regex));
        }
        let mut builder = RegexBuilder::new(pattern);
        for flag in flags.chars() {
            match flag {
                'i' => builder.case_insensitive(true),
                'c' => builder.case_insensitive(false),
                's' => builder.dot_matches_new_line(true),
                'm' | 'n' => builder.multi_line(true),
                'x' => builder.ignore_whitespace(true),
                'g' => &mut builder,
                other => {
                    return exec_err!(
                        "'{other}' is no flag of regular expressions\nhint: i, c, s, m, n, x, g"
                    );
                }
            };
        }
        let regex = builder.build();
        let regex = regex.map_err(|cause| {
            exec_datafusion_err!("'{pattern}' is no regular expression: {cause}")
        })?;
        let regex = Arc::new(regex);
        *last = Some((pattern.to_string(), flags.to_string(), Arc::clone(&regex)));
        Ok(regex)
    })
}

/// The group that a row asks for.
fn group(row: &Row, regex: &Regex) -> Result<usize> {
    let group = row.int_or(2, 0);
    match usize::try_from(group).ok().filter(|group| *group < regex.captures_len()) {
        Some(group) => Ok(group),
        None => exec_err!("'{}' has no group {group}\nhint: groups stand in ( and )", row.text(1)),
    }
}

fn extract(row: &Row) -> Result<Option<String>> {
    let regex = regex(row.text(1), row.text(3))?;
    let group = group(row, &regex)?;
    let found = regex
        .captures(row.text(0))
        .and_then(|found| found.get(group).map(|m| m.as_str().to_string()));
    Ok(found)
}

/// PostgreSQL's: the third argument is the character to begin at, the fourth which match it is to be.
fn substr(row: &Row) -> Result<Option<Value>> {
    let regex = regex(row.text(1), "")?;
    let (Ok(skipped), Ok(before)) =
        (usize::try_from(row.int_or(2, 1) - 1), usize::try_from(row.int_or(3, 1) - 1))
    else {
        return exec_err!("regexp_substr() begins at a character and match of 1 at least");
    };
    let start = row.text(0).char_indices().nth(skipped).map_or(row.text(0).len(), |(at, _)| at);
    let found = regex.find_iter(&row.text(0)[start..]).nth(before);
    Ok(found.map(|found| Value::Text(found.as_str().to_string())))
}

fn extract_all(row: &Row) -> Result<Option<Value>> {
    let regex = regex(row.text(1), row.text(3))?;
    let group = group(row, &regex)?;
    let found = regex.captures_iter(row.text(0));
    let found = found.map(|found| Some(found.get(group).map_or("", |m| m.as_str()).to_string()));
    Ok(Some(Value::Texts(found.collect())))
}

fn split(row: &Row) -> Result<Option<Value>> {
    let regex = regex(row.text(1), row.text(2))?;
    let parts = regex.split(row.text(0)).map(|part| Some(part.to_string()));
    Ok(Some(Value::Texts(parts.collect())))
}
