//! Places in the text of a statement.

use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};
use serde::Serialize;
use unicode_width::UnicodeWidthStr;

/// Columns of a line that are shown on each side of a place.
const SHOWN_COLUMNS: usize = 60;

/// A place in a statement; both counted from 1.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Place {
    /// Line.
    pub line: usize,
    /// Character in the line.
    pub column: usize,
    /// The line, and a caret below the column.
    pub shown: Option<String>,
}

impl Place {
    pub(super) fn show(&mut self, sql: &str) {
        let line = self.line.checked_sub(1).and_then(|line| sql.lines().nth(line));
        self.shown = line.and_then(|line| pointed(line, self.column));
    }

    /// The same place where the statement begins at this line and column of a longer text.
    #[must_use]
    pub fn within(self, line: usize, column: usize) -> Self {
        let first = self.line == 1;
        let column = if first { column + self.column - 1 } else { self.column };
        Self { line: line + self.line - 1, column, ..self }
    }
}

/// A line of a statement with a caret under one of its columns, counted from 1.
fn pointed(line: &str, column: usize) -> Option<String> {
    let chars: Vec<char> = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let at = column.checked_sub(1).filter(|&at| at <= chars.len())?;
    let (begin, end) = (at.saturating_sub(SHOWN_COLUMNS), (at + SHOWN_COLUMNS).min(chars.len()));
    let text: String = chars[begin..end].iter().collect();
    let before: String = chars[begin..at].iter().collect();
    Some(format!("  {}\n  {}^", text.trim_end(), " ".repeat(before.width())))
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
pub(super) fn of_word(sql: &str, word: &str) -> Option<(usize, usize)> {
    let tokens = tokens(sql);
    let last = word.rsplit('.').next().unwrap_or(word);
    let is_it = |token: &&TokenWithSpan| match &token.token {
        Token::Word(found) => found.value.eq_ignore_ascii_case(last),
        Token::SingleQuotedString(found) | Token::Number(found, _) => found == word,
        _ => false,
    };
    begin(tokens.iter().find(is_it)?)
}

/// The place of the only cast of a statement.
pub(super) fn only_cast(sql: &str) -> Option<(usize, usize)> {
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

/// A message of the parser's and the place at its end.
pub(super) fn placed(text: &str) -> (&str, Option<(usize, usize)>) {
    let parse = || {
        let (cause, place) = text.rsplit_once(" at Line: ")?;
        let (line, column) = place.split_once(", Column: ")?;
        Some((cause, Some((line.parse().ok()?, column.parse().ok()?))))
    };
    parse().unwrap_or((text, None))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_a_place_in_their_statement() {
        let sql = "select 'd_yaer', -- d_yaer\n  D_YAER from t";
        assert_eq!(of_word(sql, "d_yaer"), Some((1, 8)));
        assert_eq!(of_word("select 1,\n  D_YAER from t", "t.d_yaer"), Some((2, 3)));
        assert_eq!(of_word("select 1 from 'a.csv'", "a.csv"), Some((1, 15)));
        assert_eq!(of_word("select 1", "t"), None);
        assert_eq!(of_word("select 300::tinyint", "300"), Some((1, 8)));
        assert_eq!(only_cast("select 'cast', a::int"), Some((1, 17)));
        assert_eq!(only_cast("select cast(a as int), b::int"), None);
        assert_eq!(placed("at Line: x, Column: 7").1, None);
        assert_eq!(placed("found: selec at Line: 1, Column: 7"), ("found: selec", Some((1, 7))));
    }

    #[test]
    fn a_place_is_pointed_at() {
        let shown = |sql: &str, line, column| {
            let mut place = Place { line, column, shown: None };
            place.show(sql);
            place.shown
        };
        assert_eq!(shown("select\n  x,", 2, 3).as_deref(), Some("    x,\n    ^"));
        let wide = shown("select é日 +", 1, 10);
        assert_eq!(wide.as_deref(), Some("  select é日 +\n            ^"));
        let long = shown(&format!("select {} from", "x".repeat(500)), 1, 400).unwrap_or_default();
        assert_eq!(long.lines().map(str::len).max(), Some(2 + 2 * SHOWN_COLUMNS));
        assert_eq!((shown("x", 1, 9), shown("x", 0, 1), shown("x", 2, 1)), (None, None, None));
        let place = Place { line: 1, column: 10, shown: None };
        assert_eq!(place.clone().within(1, 3), Place { column: 12, ..place.clone() });
        let second = Place { line: 2, ..place };
        assert_eq!(second.clone().within(5, 9), Place { line: 6, ..second });
    }
}
