//! The output clause of a statement: psql's `\g`, `\gx` and `\G` in place of the semicolon, ClickHouse's FORMAT
//! after it.

use clap::ValueEnum;
use datafusion::sql::sqlparser::dialect::Dialect;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer, Word};
use headrace_engine::sql::Places;

use crate::error::{CliError, Result};
use crate::output::{Expanded, Format};

/// Statements that may end in FORMAT.
const ANSWERING: [&str; 8] =
    ["select", "with", "from", "values", "table", "show", "describe", "summarize"];

/// ClickHouse's format names that differ from ours.
const FORMATS: [(&str, Format); 16] = [
    ("pretty", Format::Box),
    ("prettycompact", Format::Box),
    ("prettyspace", Format::Table),
    ("csvwithnames", Format::Csv),
    ("tabseparated", Format::Tsv),
    ("tabseparatedwithnames", Format::Tsv),
    ("tsvwithnames", Format::Tsv),
    ("jsoneachrow", Format::Ndjson),
    ("jsonlines", Format::Ndjson),
    ("markdown", Format::Markdown),
    ("csv", Format::Csv),
    ("tsv", Format::Tsv),
    ("json", Format::Json),
    ("ndjson", Format::Ndjson),
    ("arrow", Format::Arrow),
    ("parquet", Format::Parquet),
];

/// The output clause of a statement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ending {
    pub format: Option<Format>,
    pub expanded: Option<Expanded>,
    /// The destination of this answer.
    pub file: Option<String>,
}

/// Whether a word after a backslash ends a statement.
pub fn ends_statement(word: &str) -> bool {
    matches!(word, "g" | "gx" | "G")
}

/// The word before a format.
const FORMAT: &[u8] = b"format";

impl Ending {
    /// The text in place of a semicolon: `\gx`, `\g FILE`.
    pub fn of_command(command: &str) -> Self {
        let (name, file) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
        let file = Some(file.trim()).filter(|file| !file.is_empty()).map(str::to_string);
        let expanded = matches!(name, "\\gx" | "\\G").then_some(Expanded::On);
        Self { format: None, expanded, file }
    }

    /// Removes the FORMAT from a statement's end.
    ///
    /// # Errors
    /// An unknown format.
    pub fn take_format(&mut self, sql: &str, dialect: &dyn Dialect) -> Result<Option<String>> {
        // A long statement is not read once more for what it does not have.
        if !sql.as_bytes().windows(FORMAT.len()).any(|word| word.eq_ignore_ascii_case(FORMAT)) {
            return Ok(None);
        }
        let mut tokens: Vec<TokenWithSpan> = Vec::new();
        // What is no SQL the parser tells better.
        let _ = Tokenizer::new(dialect, sql).tokenize_with_location_into_buf(&mut tokens);
        tokens.retain(|token| !matches!(token.token, Token::Whitespace(_) | Token::EOF));
        let [first, .., clause, name] = tokens.as_slice() else { return Ok(None) };
        let is_answering = word(first).is_some_and(|word| ANSWERING.contains(&word.as_str()));
        let (Some("format"), Some(name)) = (word(clause).as_deref(), word(name)) else {
            return Ok(None);
        };
        if !is_answering {
            return Ok(None);
        }
        if name == "vertical" {
            (self.format, self.expanded) = (Some(Format::Table), Some(Expanded::On));
        } else if let Some((_, format)) = FORMATS.iter().find(|(known, _)| *known == name) {
            (self.format, self.expanded) = (Some(*format), Some(Expanded::Off));
        } else {
            let all: Vec<String> = Format::value_variants().iter().map(|f| f.name()).collect();
            return Err(CliError::new(format!("there is no format {name}"))
                .hint(format!("formats: vertical, {}", all.join(", "))));
        }
        let end = Places::of(sql).offset(clause.span.start);
        Ok(Some(sql[..end].trim_end().to_string()))
    }
}

/// An unquoted word in lower case.
fn word(token: &TokenWithSpan) -> Option<String> {
    match &token.token {
        Token::Word(Word { value, quote_style: None, .. }) => Some(value.to_lowercase()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use datafusion::sql::sqlparser::dialect::GenericDialect;

    fn taken(sql: &str) -> (Option<String>, Ending) {
        let mut ending = Ending::default();
        (ending.take_format(sql, &GenericDialect {}).unwrap(), ending)
    }

    #[test]
    fn a_format_is_taken_off_what_answers_alone() {
        let (sql, ending) = taken("select 'é', 2 -- two\n FORMAT JSONEachRow");
        assert_eq!(sql.as_deref(), Some("select 'é', 2 -- two"));
        assert_eq!((ending.format, ending.expanded), (Some(Format::Ndjson), Some(Expanded::Off)));
        assert_eq!(taken("from t format vertical").1.expanded, Some(Expanded::On));
        for whole in ["select format from t", "copy t to 'x' format csv", "select \"format\" csv"] {
            assert_eq!(taken(whole), (None, Ending::default()), "{whole}");
        }
        let wrong = Ending::default().take_format("select 1 format xml", &GenericDialect {});
        assert!(wrong.unwrap_err().to_string().contains("no format xml"));
    }

    #[test]
    fn what_stands_for_a_semicolon_says_how_and_where() {
        assert_eq!(Ending::of_command("\\g"), Ending::default());
        assert_eq!(Ending::of_command("\\gx").expanded, Some(Expanded::On));
        assert_eq!(Ending::of_command("\\g  out.csv ").file.as_deref(), Some("out.csv"));
    }
}
