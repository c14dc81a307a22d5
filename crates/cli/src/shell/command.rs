//! Commands of the shell: psql's with a backslash, DuckDB's and SQLite's with a dot.

use clap::ValueEnum;
use datafusion::arrow::datatypes::Field;
use datafusion::common::TableReference;
use headrace_engine::failure::{Failure, nearest, tables};
use headrace_engine::sql::type_name;

use super::entries::{COMMANDS, Kind};
use super::paths::path;
use super::repeat::run_program;
use super::{Go, Origin, Shell};
use crate::error::{CliError, Context, Result};
use crate::output::{
    Expanded, Format, OutFile, separate_by, separator, show_null_as, show_widths, widths,
};
use crate::session::{LEVERS, open_place};

impl Shell {
    /// Runs one command.
    pub(super) async fn command(&mut self, line: &str) -> Result<Go> {
        let (name, argument) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let argument = argument.trim().trim_end_matches(';').trim_end();
        match (find(name)?, argument) {
            (Kind::Describe, "") | (Kind::Tables, _) => self.list_tables().await?,
            (Kind::Describe, table) => self.show(&format!("describe {table}")).await?,
            (Kind::Views, _) => self.list("view").await?,
            (Kind::Schemas, _) => {
                self.show(
                    "select distinct schema_name as name from information_schema.schemata order by 1",
                )
                .await?;
            }
            (Kind::Databases, _) => {
                self.show("select distinct catalog_name as name from information_schema.schemata")
                    .await?;
            }
            (Kind::Users, _) => self.show("select current_user as name").await?,
            (Kind::Open, "") => return Err(CliError::new(format!("{name} needs a path"))),
            (Kind::Open, place) => open_place(&self.session, &path(place)).await?,
            (Kind::Headers, argument) => {
                let is_rows_alone = name == "\\t";
                let shown = switch(name, argument, self.headers != is_rows_alone)?;
                self.headers = shown != is_rows_alone;
                say!("headers are {}", on_or_off(self.headers));
            }
            (Kind::Show, _) => {
                let (mode, headers) = (self.result_format().name(), on_or_off(self.headers));
                let (timing, rows) = (on_or_off(self.timing), self.rows_max);
                let rows = if rows == usize::MAX { "all".to_string() } else { rows.to_string() };
                self.put(&format!(
                    "mode {mode}\nheaders {headers}\ntiming {timing}\nmaxrows {rows}\n"
                ))?;
            }
            (Kind::Aligned, _) => {
                let other = if self.format == Format::List { "table" } else { "list" };
                self.mode(other)?;
                say!("mode is {}", self.result_format().name());
            }
            (Kind::Separator, "") => match separator() {
                Some(text) => say!("between values stands '{}'", text.escape_default()),
                None => say!("between values stands what their format has"),
            },
            (Kind::Separator, text) => separate_by(Some(&separated_by(text)?)),
            (Kind::Width, said) => set_widths(said)?,
            (Kind::Connection, _) => {
                let tables = tables(&self.session).len();
                self.put(&format!(
                    "headrace {} in this process, with no server; tables: {tables}\n",
                    env!("CARGO_PKG_VERSION")
                ))?;
            }
            (Kind::Again, argument) => {
                let text = format!("{} {name} {argument}", self.last);
                if self.last.is_empty() {
                    return Err(CliError::new(format!("{name}: there is no statement yet")));
                }
                return Box::pin(self.run(&text, Origin::Typed)).await;
            }
            (Kind::Print, what) => self.print_setting(what)?,
            (Kind::Schema, table) => self.schema(table).await?,
            (Kind::Timing, argument) => {
                self.timing = switch(name, argument, self.timing)?;
                say!("timing is {}", on_or_off(self.timing));
            }
            (Kind::Expanded, argument) => {
                self.expanded = expanded(name, argument, self.expanded)?;
                let state = self.expanded.to_possible_value();
                say!("expanded is {}", state.map(|s| s.get_name().to_string()).unwrap_or_default());
            }
            (Kind::Output, argument) => self.redirect(argument)?,
            (Kind::Once, "") | (Kind::Unset | Kind::Import | Kind::Copy, "") => {
                return Err(CliError::new(format!("{name} needs more")).hint(usage(name)));
            }
            (Kind::Once, file) => {
                self.redirect(file)?;
                self.once = true;
            }
            (Kind::Functions, part) => self.functions(part).await?,
            (Kind::Edit, file) => return self.edit(file).await,
            (Kind::Watch, every) => return self.watch(every).await,
            (Kind::Copy, what) => self.copy(what).await?,
            (Kind::Import, what) => self.import(what).await?,
            (Kind::Set, "") => {
                let listed = self.variables.listed();
                self.put(&listed)?;
            }
            (Kind::Set, what) => {
                let (name, value) = what.split_once(char::is_whitespace).unwrap_or((what, ""));
                self.variables.set(name, unquoted(value.trim()));
            }
            (Kind::Unset, name) => {
                if !self.variables.unset(name) {
                    return Err(CliError::new(format!("there is no variable {name}"))
                        .hint("\\set lists them"));
                }
            }
            (Kind::Echo, text) => self.put(&format!("{}\n", unquoted(text)))?,
            (Kind::Cd, folder) => {
                let folder = path(if folder.is_empty() { "~" } else { folder });
                std::env::set_current_dir(&folder).at(folder.display())?;
            }
            (Kind::Program, command) => run_program(command)?,
            (Kind::NullValue, text) => show_null_as(unquoted(text)),
            (Kind::Read, "") => return Err(CliError::new(format!("{name} needs a file"))),
            (Kind::Read, file) => return self.run_file(&path(file)).await,
            (Kind::Mode, "") => say!("mode is {}", self.result_format().name()),
            (Kind::Mode, format) => self.mode(format)?,
            (Kind::MaxRows, argument) => self.max_rows(argument)?,
            (Kind::Help, _) => self.put(&help())?,
            (Kind::Quit, _) => return Ok(Go::Quit),
        }
        Ok(Go::On)
    }

    async fn functions(&mut self, part: &str) -> Result<()> {
        let part = part.trim_matches('*').replace('\'', "''");
        self.show(&format!(
            "select distinct routine_name as name, lower(function_type) as type, \
             syntax_example as example, description from information_schema.routines \
             where routine_name like '%{part}%' order by name"
        ))
        .await
    }

    /// Runs an internal statement, without reporting its time.
    pub(super) async fn show(&mut self, sql: &str) -> Result<()> {
        self.answer(sql).await.map(drop)
    }

    async fn list_tables(&mut self) -> Result<()> {
        self.list("").await
    }

    /// Tables of a type, or all.
    async fn list(&mut self, of_type: &str) -> Result<()> {
        self.show(&format!(
            "select table_schema as schema, table_name as name, lower(table_type) as type \
             from information_schema.tables where table_schema <> 'information_schema' \
             and ('{of_type}' = '' or lower(table_type) = '{of_type}') order by schema, name"
        ))
        .await
    }

    /// psql's names of settings with their own commands.
    fn print_setting(&mut self, what: &str) -> Result<()> {
        let (name, value) = what.split_once(char::is_whitespace).unwrap_or((what, ""));
        let value = value.trim();
        match name {
            "null" => show_null_as(unquoted(value)),
            "format" => match value {
                "aligned" | "wrapped" => self.mode("table")?,
                "unaligned" => self.mode("list")?,
                format => self.mode(format)?,
            },
            "fieldsep" => separate_by(Some(&separated_by(value)?)),
            "expanded" | "x" => self.expanded = expanded("\\pset expanded", value, self.expanded)?,
            _ => {
                return Err(CliError::new(format!("\\pset knows no {name}"))
                    .hint("\\pset null TEXT, \\pset format FORMAT, \\pset fieldsep TEXT, \\pset expanded on"));
            }
        }
        Ok(())
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
                    let error = if known { &error } else { &missing };
                    return Err(Failure::of_statement(&self.session, "", error, &LEVERS).into());
                }
            };
            let columns: Vec<String> =
                provider.schema().fields().iter().map(|field| column(field)).collect();
            let text = format!("CREATE TABLE {} (\n{}\n);\n", quoted(&name), columns.join(",\n"));
            self.put(&text)?;
        }
        Ok(())
    }

    pub(super) fn redirect(&mut self, file: &str) -> Result<()> {
        self.once = false;
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
        separate_by(None);
        if name == "line" {
            (self.format, self.file_format, self.expanded) = (Format::Table, None, Expanded::On);
            return Ok(());
        }
        // Those of other shells that differ in their lines alone.
        let format = match name {
            "duckbox" | "unicode" => Ok(Format::Box),
            "column" | "ascii" => Ok(Format::Table),
            "tabs" => Ok(Format::Tsv),
            name => Format::from_str(name, true),
        };
        if let Ok(format) = format {
            (self.format, self.file_format, self.expanded) = (format, None, Expanded::Off);
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
            usize::MAX => say!("a terminal is shown all rows"),
            rows => say!("a terminal is shown {rows} rows"),
        }
        Ok(())
    }
}

/// The command of a name; psql's `+` has no effect here.
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

/// The separator of `.separator`: a text, optionally in quotes, with an escape for the tab.
fn separated_by(text: &str) -> Result<String> {
    let inner = |quote: char| text.strip_prefix(quote)?.strip_suffix(quote);
    let quoted = inner('\'').or_else(|| inner('"'));
    if quoted.is_none() && text.contains(char::is_whitespace) {
        let cause = format!("{text} is more than one separator: rows end with their lines");
        return Err(
            CliError::new(cause).hint(".separator ', ' puts a comma and a blank between values")
        );
    }
    Ok(quoted.unwrap_or(text).replace("\\t", "\t").replace("\\n", "\n"))
}

/// `.width 10 0 -8`.
fn set_widths(said: &str) -> Result<()> {
    let width = |text: &str| {
        text.parse().map_err(|_| {
            CliError::new(format!("{text} is no width"))
                .hint(".width 10 0 -8, or .width alone for none")
        })
    };
    show_widths(said.split_whitespace().map(width).collect::<Result<Vec<i32>>>()?);
    match widths().as_slice() {
        [] => say!("columns take as much as they need"),
        said => {
            say!("widths are {}", said.iter().map(i32::to_string).collect::<Vec<_>>().join(" "))
        }
    }
    Ok(())
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

/// The usage of a command.
pub fn usage(name: &str) -> String {
    let entry = COMMANDS.iter().find(|entry| entry.names.contains(&name));
    entry.map(|entry| format!("{name} {}", entry.argument)).unwrap_or_default()
}

/// A text as typed, optionally in quotes.
fn unquoted(text: &str) -> &str {
    text.strip_prefix('\'').and_then(|text| text.strip_suffix('\'')).unwrap_or(text)
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
    format!("    {} {}{not_null}", quoted(field.name()), type_name(field.data_type()))
}

/// A name as SQL reads it.
pub fn quoted(name: &str) -> String {
    let mut chars = name.chars();
    let plain = chars.next().is_some_and(|c| c.is_ascii_lowercase() || c == '_')
        && chars.all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if plain { name.to_string() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn commands_have_names_of_both_kinds() {
        assert_eq!(find("\\dt").unwrap(), Kind::Tables);
        assert_eq!(find("\\d+").unwrap(), Kind::Describe);
        assert_eq!(find("\\!").unwrap(), Kind::Program);
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
}
