//! A text with values in the places of its parameters.
//!
//! Doors that have values and no protocol for them (bindings of languages, relations that are texts) write them into the
//! statement, as literals that they make: each parameter outside of texts, names and comments is replaced.

use datafusion::common::{Result, plan_datafusion_err, plan_err};
use datafusion::execution::session_state::SessionState;
use datafusion::sql::sqlparser::dialect::Dialect;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};

use super::dialect;
use super::lines::Lines;

/// A parameter in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parameter<'a> {
    /// `$1`, or a `?`; counted from 0.
    Nth(usize),
    /// `$name`.
    Named(&'a str),
}

/// The text with what `value` makes of each parameter.
///
/// # Errors
/// A text that has no tokens; both `?` and `$1`; those of `value`.
pub fn filled(
    text: &str,
    dialect: &dyn Dialect,
    mut value: impl FnMut(Parameter<'_>) -> Result<String>,
) -> Result<String> {
    let tokens = Tokenizer::new(dialect, text).tokenize_with_location();
    let tokens = tokens.map_err(|error| plan_datafusion_err!("{error}"))?;
    let lines = Lines::of(text);
    let (mut out, mut done, mut questions, mut has_numbers) = (String::new(), 0, 0, false);
    for token in &tokens {
        let parameter = match &token.token {
            Token::Placeholder(name) => name.as_str(),
            Token::Question => "?",
            _ => continue,
        };
        let numbered = parameter.strip_prefix('?').filter(|digits| !digits.is_empty());
        let filler = match parameter.strip_prefix('$').or(numbered) {
            Some(name) => match name.parse::<usize>() {
                Ok(number) => {
                    has_numbers = true;
                    let nth = number.checked_sub(1);
                    value(Parameter::Nth(nth.ok_or_else(|| {
                        plan_datafusion_err!("{parameter}: parameters are counted from $1")
                    })?))?
                }
                Err(_) => value(Parameter::Named(name))?,
            },
            None => {
                questions += 1;
                value(Parameter::Nth(questions - 1))?
            }
        };
        let begin = lines.offset(token.span.start.line, token.span.start.column);
        out += &text[done..begin];
        out += &filler;
        done = begin + parameter.len();
    }
    if questions > 0 && has_numbers {
        return plan_err!("a statement has ? or $1, not both");
    }
    out += &text[done..];
    Ok(out)
}

/// The statements of a text, which semicolons part: each with where it begins. None of them is blank.
///
/// # Errors
/// A text that has no tokens.
pub fn statements<'a>(text: &'a str, state: &SessionState) -> Result<Vec<(usize, &'a str)>> {
    let dialect = dialect::of(state);
    let tokens = Tokenizer::new(dialect.as_ref(), text).tokenize_with_location();
    let tokens = tokens.map_err(|error| plan_datafusion_err!("{error}"))?;
    let lines = Lines::of(text);
    let (mut found, mut begin, mut is_blank) = (Vec::new(), 0, true);
    for token in &tokens {
        match &token.token {
            Token::SemiColon => {
                let end = lines.offset(token.span.start.line, token.span.start.column);
                found.extend((!is_blank).then(|| (begin, &text[begin..end])));
                (begin, is_blank) = (end + 1, true);
            }
            Token::Whitespace(_) | Token::EOF => {}
            _ => is_blank = false,
        }
    }
    found.extend((!is_blank).then(|| (begin, &text[begin..])));
    Ok(found)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use datafusion::prelude::SessionContext;

    use super::*;
    use crate::sql::HeadraceDialect;

    fn fill(text: &str) -> Result<String> {
        filled(text, &HeadraceDialect, |parameter| match parameter {
            Parameter::Nth(nth) if nth < 2 => Ok(["'ä'", "(-5)"][nth].to_string()),
            Parameter::Named("name") => Ok("NULL".into()),
            other => plan_err!("no value for {other:?}"),
        })
    }

    #[test]
    fn semicolons_part_statements() {
        let state = SessionContext::new().state();
        let parts = |text| statements(text, &state).unwrap();
        assert_eq!(parts("select 1"), [(0, "select 1")]);
        assert_eq!(
            parts("select ';'; -- é;\nselect 2 ; ;"),
            [(0, "select ';'"), (11, " -- é;\nselect 2 ")]
        );
        assert_eq!(parts(" ; -- nothing\n"), []);
        assert!(statements("select 'open", &state).is_err());
    }

    #[test]
    fn parameters_are_replaced_outside_of_texts_names_and_comments() {
        let cases = [
            ("select ?, ?", "select 'ä', (-5)"),
            ("select $2, $1, $2", "select (-5), 'ä', (-5)"),
            ("select 'é?', \"?\", -- ?\n  ? /* ? */", "select 'é?', \"?\", -- ?\n  'ä' /* ? */"),
            ("select x + $name from t", "select x + NULL from t"),
            ("select 'é' , ?, 'ü'", "select 'é' , 'ä', 'ü'"),
            ("select ?2, ?1", "select (-5), 'ä'"),
            ("", ""),
        ];
        for (text, expected) in cases {
            assert_eq!(fill(text).unwrap(), expected);
        }
        for wrong in ["select ?, ?, ?", "select $0", "select $other", "select ?, $1"] {
            assert!(fill(wrong).is_err(), "{wrong}");
        }
    }
}
