//! Commands of the shell: psql's with a backslash, DuckDB's and SQLite's with a dot.

use std::path::PathBuf;

use clap::ValueEnum;
use datafusion::arrow::datatypes::{DataType, Field, TimeUnit};
use datafusion::common::TableReference;

use super::mistake::{explain, tables};
use super::{Go, Shell, nearest};
use crate::args::Format;
use crate::error::{CliError, Result};
use crate::output::{Expanded, OutFile};

/// A command's names, what comes behind it, and what it does.
pub struct Entry {
    pub names: &'static [&'static str],
    pub argument: &'static str,
    help: &'static str,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Describe,
    Tables,
    Schema,
    Timing,
    Expanded,
    Output,
    Read,
    Mode,
    MaxRows,
    Help,
    Quit,
}

/// All commands.
pub const COMMANDS: &[Entry] = &[
    Entry {
        names: &["\\d"],
        argument: "[TABLE]",
        help: "tables, or the columns of one",
        kind: Kind::Describe,
    },
    Entry { names: &["\\dt", ".tables"], argument: "", help: "tables", kind: Kind::Tables },
    Entry {
        names: &[".schema"],
        argument: "[TABLE]",
        help: "tables as CREATE TABLE",
        kind: Kind::Schema,
    },
    Entry {
        names: &[".mode"],
        argument: "[FORMAT]",
        help: "how results are written: table, csv, tsv, json, ndjson, markdown, arrow, parquet",
        kind: Kind::Mode,
    },
    Entry {
        names: &["\\x"],
        argument: "[on|off|auto]",
        help: "a line for each value (auto: where the terminal is too narrow)",
        kind: Kind::Expanded,
    },
    Entry {
        names: &[".maxrows"],
        argument: "[N|all]",
        help: "rows that a terminal is shown",
        kind: Kind::MaxRows,
    },
    Entry {
        names: &["\\timing", ".timer"],
        argument: "[on|off]",
        help: "rows, time, speed and limit behind each statement",
        kind: Kind::Timing,
    },
    Entry {
        names: &["\\o", ".output"],
        argument: "[FILE]",
        help: "results go to FILE; without FILE here again",
        kind: Kind::Output,
    },
    Entry {
        names: &["\\i", ".read"],
        argument: "FILE",
        help: "run a file of statements and commands",
        kind: Kind::Read,
    },
    Entry { names: &["\\?", ".help"], argument: "", help: "this", kind: Kind::Help },
    Entry {
        names: &["\\q", ".quit", ".exit"],
        argument: "",
        help: "leave (Ctrl-D, exit and quit do too)",
        kind: Kind::Quit,
    },
];

impl Shell {
    /// Runs one command.
    pub(super) async fn command(&mut self, line: &str) -> Result<Go> {
        let (name, argument) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let argument = argument.trim().trim_end_matches(';').trim_end();
        match (find(name)?, argument) {
            (Kind::Describe, "") | (Kind::Tables, _) => self.list_tables().await?,
            (Kind::Describe, table) => self.show(&format!("describe {table}")).await?,
            (Kind::Schema, table) => self.schema(table).await?,
            (Kind::Timing, argument) => {
                self.timing = switch(name, argument, self.timing)?;
                eprintln!("timing is {}", on_or_off(self.timing));
            }
            (Kind::Expanded, argument) => {
                self.expanded = expanded(name, argument, self.expanded)?;
                let state = self.expanded.to_possible_value();
                eprintln!(
                    "expanded is {}",
                    state.map(|s| s.get_name().to_string()).unwrap_or_default()
                );
            }
            (Kind::Output, argument) => self.redirect(argument)?,
            (Kind::Read, "") => return Err(CliError::new(format!("{name} needs a file"))),
            (Kind::Read, file) => return self.run_file(&path(file)).await,
            (Kind::Mode, "") => eprintln!("mode is {}", self.result_format().name()),
            (Kind::Mode, format) => self.mode(format)?,
            (Kind::MaxRows, argument) => self.max_rows(argument)?,
            (Kind::Help, _) => self.put(&help())?,
            (Kind::Quit, _) => return Ok(Go::Quit),
        }
        Ok(Go::On)
    }

    /// Runs a statement that the user did not write: nothing is said of the time it takes.
    async fn show(&mut self, sql: &str) -> Result<()> {
        self.answer(sql).await.map(drop)
    }

    async fn list_tables(&mut self) -> Result<()> {
        self.show(
            "select table_schema as schema, table_name as name, lower(table_type) as type \
             from information_schema.tables where table_schema <> 'information_schema' \
             order by schema, name",
        )
        .await
    }

    async fn schema(&mut self, table: &str) -> Result<()> {
        let names = if table.is_empty() { tables(&self.session) } else { vec![table.to_string()] };
        for name in names {
            let reference = match table.is_empty() {
                true => TableReference::bare(name.as_str()),
                false => TableReference::from(name.as_str()),
            };
            let provider = self.session.context().table_provider(reference).await;
            let provider = match provider {
                Ok(provider) => provider,
                Err(error) => {
                    let missing =
                        datafusion::common::plan_datafusion_err!("table '{name}' not found");
                    let known = tables(&self.session).contains(&name);
                    return Err(explain(&self.session, if known { &error } else { &missing }));
                }
            };
            let columns: Vec<String> =
                provider.schema().fields().iter().map(|field| column(field)).collect();
            let text = format!("CREATE TABLE {} (\n{}\n);\n", quoted(&name), columns.join(",\n"));
            self.put(&text)?;
        }
        Ok(())
    }

    fn redirect(&mut self, file: &str) -> Result<()> {
        let (next, format) = match file {
            "" | "stdout" => (None, None),
            file => {
                let (path, format) = (path(file), Format::of_file(&path(file))?);
                let next = match format.is_some_and(Format::is_one_result) {
                    true => OutFile::whole(&path)?,
                    false => OutFile::growing(&path)?,
                };
                (Some(next), format)
            }
        };
        self.file_format = format;
        match std::mem::replace(&mut self.out, next) {
            Some(before) => before.keep(),
            None => Ok(()),
        }
    }

    fn mode(&mut self, name: &str) -> Result<()> {
        if let Ok(format) = Format::from_str(name, true) {
            (self.format, self.file_format) = (format, None);
            return Ok(());
        }
        let formats: Vec<String> = Format::value_variants().iter().map(|f| f.name()).collect();
        let error = CliError::new(format!("there is no format {name}"));
        let all = format!("formats: {}", formats.join(", "));
        Err(match nearest(name, formats.iter().map(String::as_str)) {
            Some(near) => error.hint(format!("did you mean {near}? {all}")),
            None => error.hint(all),
        })
    }

    fn max_rows(&mut self, argument: &str) -> Result<()> {
        self.rows_max = match argument {
            "" => self.rows_max,
            "all" | "0" => usize::MAX,
            number => number.parse().map_err(|_| {
                CliError::new(format!("{number} is no number of rows"))
                    .hint(".maxrows 100, or .maxrows all")
            })?,
        };
        match self.rows_max {
            usize::MAX => eprintln!("a terminal is shown all rows"),
            rows => eprintln!("a terminal is shown {rows} rows"),
        }
        Ok(())
    }
}

/// The command of a name; psql's `+` says nothing more here.
fn find(name: &str) -> Result<Kind> {
    let name = if name.len() > 2 { name.trim_end_matches('+') } else { name };
    if let Some(entry) = COMMANDS.iter().find(|entry| entry.names.contains(&name)) {
        return Ok(entry.kind);
    }
    let names = COMMANDS.iter().flat_map(|entry| entry.names.iter().copied());
    // One with the same letters behind the other mark is meant before one with other letters.
    let bare = &name[1..];
    let same = names.clone().find(|n| n[1..] == *bare);
    let error = CliError::new(format!("there is no command {name}"));
    Err(match same.or_else(|| nearest(name, names)) {
        Some(near) => error.hint(format!("did you mean {near}? \\? lists the commands")),
        None => error.hint("\\? lists the commands"),
    })
}

fn switch(name: &str, argument: &str, now: bool) -> Result<bool> {
    match argument.to_lowercase().as_str() {
        "" => Ok(!now),
        "on" | "true" | "1" => Ok(true),
        "off" | "false" | "0" => Ok(false),
        _ => {
            Err(CliError::new(format!("{argument} is neither on nor off"))
                .hint(format!("{name} on")))
        }
    }
}

fn expanded(name: &str, argument: &str, now: Expanded) -> Result<Expanded> {
    if argument == "auto" {
        return Ok(Expanded::Auto);
    }
    let on = switch(name, argument, now == Expanded::On)?;
    Ok(if on { Expanded::On } else { Expanded::Off })
}

fn on_or_off(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

/// A file as it was typed, perhaps in quotes or below the home folder.
fn path(text: &str) -> PathBuf {
    let inner = ['\'', '"'].iter().find_map(|&quote| text.strip_prefix(quote)?.strip_suffix(quote));
    let text = inner.unwrap_or(text);
    match (text.strip_prefix("~/"), std::env::home_dir()) {
        (Some(below), Some(home)) => home.join(below),
        _ => PathBuf::from(text),
    }
}

fn help() -> String {
    let heads: Vec<String> =
        COMMANDS.iter().map(|e| format!("{} {}", e.names.join(", "), e.argument)).collect();
    let widest = heads.iter().map(String::len).max().unwrap_or(0);
    let mut text = String::new();
    for (head, entry) in heads.iter().zip(COMMANDS) {
        text += &format!("{head:widest$}  {}\n", entry.help);
    }
    text + "Statements end with a semicolon; Ctrl-C ends a running one. SUMMARIZE t, DESCRIBE t, FROM t, \
            EXPLAIN ANALYZE ..\n"
}

fn column(field: &Field) -> String {
    let not_null = if field.is_nullable() { "" } else { " NOT NULL" };
    format!("    {} {}{not_null}", quoted(field.name()), sql_type(field.data_type()))
}

/// A name as SQL takes it.
pub fn quoted(name: &str) -> String {
    let mut chars = name.chars();
    let plain = chars.next().is_some_and(|c| c.is_ascii_lowercase() || c == '_')
        && chars.all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if plain { name.to_string() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

fn sql_type(data_type: &DataType) -> String {
    match data_type {
        DataType::Boolean => "BOOLEAN".into(),
        DataType::Int8 => "TINYINT".into(),
        DataType::Int16 => "SMALLINT".into(),
        DataType::Int32 => "INT".into(),
        DataType::Int64 => "BIGINT".into(),
        DataType::UInt8 => "TINYINT UNSIGNED".into(),
        DataType::UInt16 => "SMALLINT UNSIGNED".into(),
        DataType::UInt32 => "INT UNSIGNED".into(),
        DataType::UInt64 => "BIGINT UNSIGNED".into(),
        DataType::Float32 => "REAL".into(),
        DataType::Float64 => "DOUBLE".into(),
        DataType::Decimal128(digits, scale) | DataType::Decimal256(digits, scale) => {
            format!("DECIMAL({digits}, {scale})")
        }
        DataType::Date32 | DataType::Date64 => "DATE".into(),
        DataType::Time32(_) | DataType::Time64(_) => "TIME".into(),
        DataType::Timestamp(unit, None) => format!("TIMESTAMP({})", digits(*unit)),
        DataType::Timestamp(unit, Some(_)) => {
            format!("TIMESTAMP({}) WITH TIME ZONE", digits(*unit))
        }
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "VARCHAR".into(),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => "BYTEA".into(),
        DataType::Dictionary(_, value) => sql_type(value),
        DataType::List(item) | DataType::LargeList(item) => {
            format!("{}[]", sql_type(item.data_type()))
        }
        other => other.to_string(),
    }
}

fn digits(unit: TimeUnit) -> u8 {
    match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 3,
        TimeUnit::Microsecond => 6,
        TimeUnit::Nanosecond => 9,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn commands_have_names_of_both_kinds() {
        assert_eq!(find("\\dt").unwrap(), Kind::Tables);
        assert_eq!(find("\\d+").unwrap(), Kind::Describe);
        assert_eq!(find(".exit").unwrap(), Kind::Quit);
        assert!(find("\\quit").unwrap_err().to_string().contains(".quit"));
        assert!(find(".table").unwrap_err().to_string().contains("did you mean .tables?"));
        assert!(!find("\\copyright").unwrap_err().to_string().contains("did you mean"));
    }

    #[test]
    fn names_are_quoted_where_sql_needs_it() {
        assert_eq!(quoted("fare_2"), "fare_2");
        assert_eq!(quoted("Fare"), "\"Fare\"");
        assert_eq!(quoted("2 \"x\""), "\"2 \"\"x\"\"\"");
    }

    #[test]
    fn files_may_be_quoted() {
        assert_eq!(path("'a b.sql'"), PathBuf::from("a b.sql"));
        assert_eq!(path("'a"), PathBuf::from("'a"));
    }
}
