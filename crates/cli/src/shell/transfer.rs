//! Rows to and from files in other shells' syntax: `\copy`, `.import`.

use std::path::Path;

use super::Shell;
use super::command::{quoted, usage};
use super::paths::path;
use crate::error::{CliError, Result};
use headrace_engine::failure::tables;

impl Shell {
    /// psql's \copy, whose file is on the client; all files are local here.
    pub(super) async fn copy(&mut self, what: &str) -> Result<()> {
        let wrong = || CliError::new("\\copy is not understood").hint(usage("\\copy"));
        let end = match what.starts_with('(') {
            true => closing(what).map(|at| at + 1),
            false => what.find(char::is_whitespace),
        };
        let (rows, rest) = what.split_at(end.ok_or_else(wrong)?);
        let (word, target) = rest.trim_start().split_once(char::is_whitespace).ok_or_else(wrong)?;
        let target = target.trim_start();
        match word.to_lowercase().as_str() {
            "to" => {}
            "from" => return self.import_into(rows, &path(target)).await,
            _ => return Err(wrong()),
        }
        let end = match target.chars().next() {
            Some('\'') => target[1..].find('\'').map_or(target.len(), |at| at + 2),
            _ => target.find(char::is_whitespace).unwrap_or(target.len()),
        };
        let (file, options) = target.split_at(end);
        let options = options.trim();
        let options = options.strip_prefix("with ").unwrap_or(options).trim();
        // psql writes `csv header`, SQL `(format csv, header)`; the file's name says as much.
        let options = match options.to_lowercase().as_str() {
            "csv" | "csv header" | "(format csv)" | "(format csv, header)" => " stored as csv",
            "" => "",
            _ => return Err(wrong()),
        };
        let file = path(file).display().to_string().replace('\'', "''");
        self.show(&format!("copy {rows} to '{file}'{options}")).await
    }

    pub(super) async fn import(&mut self, what: &str) -> Result<()> {
        let needs = || CliError::new(".import needs a file and a table").hint(usage(".import"));
        let (file, table) = what.rsplit_once(char::is_whitespace).ok_or_else(needs)?;
        self.import_into(table.trim(), &path(file.trim())).await
    }

    async fn import_into(&mut self, table: &str, file: &Path) -> Result<()> {
        let file = file.display().to_string().replace('\'', "''");
        let is_there = tables(&self.session).iter().any(|name| {
            *name == table || name.eq_ignore_ascii_case(table) || quoted(name) == table
        });
        let into = if is_there { "insert into" } else { "create table" };
        let rows = if is_there { "select" } else { "as select" };
        self.answer(&format!("{into} {table} {rows} * from '{file}'")).await.map(drop)
    }
}

/// The position of the closing parenthesis of a text that begins with one, ignoring quotes.
fn closing(text: &str) -> Option<usize> {
    let (mut depth, mut quote) = (0_usize, None);
    for (at, c) in text.char_indices() {
        match (c, quote) {
            (c, Some(open)) if c == open => quote = None,
            (_, Some(_)) => {}
            ('\'' | '"', None) => quote = Some(c),
            ('(', None) => depth += 1,
            (')', None) if depth == 1 => return Some(at),
            (')', None) => depth = depth.checked_sub(1)?,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parentheses_are_closed_outside_of_quotes() {
        assert_eq!(closing("(select ')', (1)) to 'x' (format csv)"), Some(16));
        assert_eq!(closing("(select 1"), None);
    }
}
