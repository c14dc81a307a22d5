//! Syntax colours.

use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer, Whitespace};
use headrace_engine::sql::Places;
use reedline::{Color, Highlighter, StyledText};

use super::split::is_command;
use headrace_engine::sql::keywords::is_keyword;

/// Colours keywords, texts, numbers, comments and commands.
pub struct SqlColours;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Plain,
    Keyword,
    Text,
    Number,
    Comment,
    Command,
}

impl Part {
    fn of(token: &Token) -> Self {
        match token {
            Token::Word(word) if word.quote_style.is_none() && is_keyword(&word.value) => {
                Self::Keyword
            }
            Token::Number(..) => Self::Number,
            Token::SingleQuotedString(_)
            | Token::DollarQuotedString(_)
            | Token::EscapedStringLiteral(_)
            | Token::NationalStringLiteral(_)
            | Token::HexStringLiteral(_)
            | Token::UnicodeStringLiteral(_) => Self::Text,
            Token::Whitespace(
                Whitespace::SingleLineComment { .. } | Whitespace::MultiLineComment(_),
            ) => Self::Comment,
            _ => Self::Plain,
        }
    }
}

/// The parts of a line, in order and without gaps.
fn parts(line: &str) -> Vec<(Part, &str)> {
    if is_command(line.trim_start()) {
        return vec![(Part::Command, line)];
    }
    let mut tokens: Vec<TokenWithSpan> = Vec::new();
    let ended =
        Tokenizer::new(&GenericDialect {}, line).tokenize_with_location_into_buf(&mut tokens);
    let places = Places::of(line);
    let mut parts = Vec::new();
    let mut at = 0;
    for token in tokens.iter().filter(|token| token.token != Token::EOF) {
        let end = places.offset(token.span.end);
        if end > at {
            parts.push((Part::of(&token.token), &line[at..end]));
            at = end;
        }
    }
    // What has no end yet is a text or a comment.
    if at < line.len() {
        let rest = &line[at..];
        let part = match (ended.is_err(), rest.starts_with("/*")) {
            (true, true) => Part::Comment,
            (true, false) => Part::Text,
            (false, _) => Part::Plain,
        };
        parts.push((part, rest));
    }
    parts
}

impl Highlighter for SqlColours {
    fn highlight(&self, line: &str, _cursor: usize) -> StyledText {
        let mut styled = StyledText::new();
        for (part, text) in parts(line) {
            let style = match part {
                Part::Plain => Color::Default.normal(),
                Part::Keyword => Color::Blue.bold(),
                Part::Text => Color::Green.normal(),
                Part::Number => Color::Purple.normal(),
                Part::Comment => Color::DarkGray.normal(),
                Part::Command => Color::Cyan.normal(),
            };
            styled.push((style, text.to_string()));
        }
        styled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_character_has_a_colour() {
        for line in
            ["select 'é;' -- c", "select 'open", "/* open", "\\d trips", "a+1.5", "", "$$ é"]
        {
            let whole: String = parts(line).iter().map(|(_, text)| *text).collect();
            assert_eq!(whole, line);
        }
        let of = |line, text| parts(line).iter().find(|(_, t)| *t == text).map(|(part, _)| *part);
        assert_eq!(of("select x, 'y', 12 -- z", "select"), Some(Part::Keyword));
        assert_eq!(of("select x, 'y', 12 -- z", "'y'"), Some(Part::Text));
        assert_eq!(of("select x, 'y', 12 -- z", "12"), Some(Part::Number));
        assert_eq!(of("select x, 'y', 12 -- z", "-- z"), Some(Part::Comment));
        assert_eq!(of("select 'open", "'open"), Some(Part::Text));
    }
}
