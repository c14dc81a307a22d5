//! Splits a text into statements and commands, verbatim.

use datafusion::sql::sqlparser::dialect::Dialect;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};
use headrace_engine::sql::Places;

use super::ending::ends_statement;

/// One statement or command.
#[derive(Debug, PartialEq, Eq)]
pub struct Piece {
    /// Without its semicolon.
    pub text: String,
    /// Its start; lines and columns count from 1.
    pub line: usize,
    pub column: usize,
    /// Whether it is a command of the shell, not SQL.
    pub is_command: bool,
    /// The command in place of its semicolon, up to the end of its line: `\gx`.
    pub ending: String,
}

/// The pieces of a text.
#[derive(Debug, Default)]
pub struct Split {
    pub pieces: Vec<Piece>,
    /// Whether the last statement has no semicolon.
    pub open: bool,
    /// Text that is not SQL at all, such as an unterminated string, with its line.
    pub error: Option<(String, usize)>,
}

/// Splits a text at the semicolons between tokens. A command (`\d`, `.tables`) is allowed where a
/// statement may begin, and ends with its line.
pub fn split(text: &str, dialect: &dyn Dialect) -> Split {
    let mut found = Split::default();
    let places = Places::of(text);
    let mut at = 0;
    while at < text.len() {
        let begin = at + blank_bytes(&text[at..]);
        if is_command(&text[begin..]) {
            let end = text[begin..].find('\n').map_or(text.len(), |line| begin + line);
            found.push(text, &places, begin, end, true);
            at = end;
        } else {
            at = statements(text, begin, dialect, &places, &mut found);
        }
    }
    found
}

/// Whether a text begins with a command.
pub fn is_command(text: &str) -> bool {
    let mut chars = text.chars();
    match (chars.next(), chars.next()) {
        (Some('\\'), Some(c)) => c.is_alphabetic() || c == '?' || c == '!',
        (Some('.'), Some(c)) => c.is_alphabetic(),
        _ => false,
    }
}

impl Split {
    fn push(&mut self, text: &str, places: &Places, begin: usize, end: usize, is_command: bool) {
        let (line, column) = (places.line(begin), places.column(begin));
        let text = text[begin..end].trim_end().to_string();
        self.pieces.push(Piece { text, line, column, is_command, ending: String::new() });
    }
}

fn blank_bytes(text: &str) -> usize {
    text.len() - text.trim_start().len()
}

/// The statements from `begin` up to a command or the end; returns where they end.
fn statements(
    text: &str,
    begin: usize,
    dialect: &dyn Dialect,
    places: &Places,
    found: &mut Split,
) -> usize {
    let rest = &text[begin..];
    let inner = Places::of(rest);
    let mut tokens: Vec<TokenWithSpan> = Vec::new();
    let error = Tokenizer::new(dialect, rest).tokenize_with_location_into_buf(&mut tokens).err();
    // Begin and end of the statement so far.
    let mut statement: Option<(usize, usize)> = None;
    for (number, token) in tokens.iter().enumerate() {
        match token.token {
            Token::Backslash if is_ending(&tokens[number..]) && statement.is_some() => {
                let command = inner.offset(token.span.start);
                let end = rest[command..].find('\n').map_or(rest.len(), |line| command + line);
                if let Some((from, to)) = statement {
                    found.push(text, places, begin + from, begin + to, false);
                }
                if let Some(piece) = found.pieces.last_mut() {
                    piece.ending = rest[command..end].trim().trim_end_matches(';').to_string();
                }
                return begin + end;
            }
            Token::SemiColon => {
                if let Some((from, to)) = statement.take() {
                    found.push(text, places, begin + from, begin + to, false);
                }
            }
            Token::EOF => break,
            Token::Whitespace(_) => {}
            _ => {
                let (from, to) = (token.span.start, token.span.end);
                let from = statement.map_or_else(|| inner.offset(from), |(from, _)| from);
                statement = Some((from, inner.offset(to)));
                continue;
            }
        }
        if statement.is_none() {
            let behind = begin + inner.offset(token.span.end);
            let next = behind + blank_bytes(&text[behind..]);
            if is_command(&text[next..]) {
                return next;
            }
        }
    }
    if let Some(error) = error {
        found.error = Some((error.message, places.line(begin + inner.offset(error.location))));
        found.open = true;
    } else if let Some((from, to)) = statement {
        found.push(text, places, begin + from, begin + to, false);
        found.open = true;
    }
    text.len()
}

/// Whether tokens begin with a command that ends a statement.
fn is_ending(tokens: &[TokenWithSpan]) -> bool {
    match tokens {
        [mark, word, ..] => {
            let is_near = mark.span.end == word.span.start;
            matches!(&word.token, Token::Word(word) if is_near && ends_statement(&word.value))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::sql::sqlparser::dialect::GenericDialect;

    fn texts(text: &str) -> Vec<(String, usize, bool)> {
        let split = split(text, &GenericDialect {});
        assert_eq!(split.error, None, "{text}");
        split.pieces.into_iter().map(|p| (p.text, p.line, p.is_command)).collect()
    }

    fn sql(text: &str, line: usize) -> (String, usize, bool) {
        (text.to_string(), line, false)
    }

    #[test]
    fn statements_stay_as_they_were_written() {
        assert_eq!(
            texts("select - -1; SELECT 2;;\n ; select 'a;b' -- c;d\n, 3"),
            [sql("select - -1", 1), sql("SELECT 2", 1), sql("select 'a;b' -- c;d\n, 3", 2)]
        );
        assert_eq!(
            texts("/* a; /* b; */ c; */ select $$ x; $$;\n\nselect \"é;\", 'é' ; select 1"),
            [sql("select $$ x; $$", 1), sql("select \"é;\", 'é'", 3), sql("select 1", 3)]
        );
        assert_eq!(texts(" -- nothing\n"), []);
        assert_eq!(texts("copy t to 'a.csv';"), [sql("copy t to 'a.csv'", 1)]);
    }

    #[test]
    fn commands_stand_between_statements() {
        let command = |text: &str, line| (text.to_string(), line, true);
        assert_eq!(
            texts("\\timing on\nselect 1; \\d it's\n.mode csv\nselect 2"),
            [
                command("\\timing on", 1),
                sql("select 1", 2),
                command("\\d it's", 2),
                command(".mode csv", 3),
                sql("select 2", 4)
            ]
        );
        assert_eq!(texts("select\n.5"), [sql("select\n.5", 1)]);
        assert_eq!(texts("-- a\n\\q"), [command("\\q", 2)]);
    }

    #[test]
    fn a_command_may_stand_in_a_semicolons_place() {
        let found =
            split("select 1 as a\n\\gx\nselect '\\g' \\g out.csv\nselect 2;", &GenericDialect {});
        let pieces: Vec<_> =
            found.pieces.iter().map(|p| (p.text.as_str(), p.ending.as_str())).collect();
        assert_eq!(
            pieces,
            [("select 1 as a", "\\gx"), ("select '\\g'", "\\g out.csv"), ("select 2", "")]
        );
        assert!(!split("select 5 \\g", &GenericDialect {}).open);
    }

    #[test]
    fn what_has_no_end_is_said_to_be_open() {
        let open = |text: &str| split(text, &GenericDialect {}).open;
        assert!(
            open("select 1") && open("select 'a;") && open("select /* ;") && open("select $$;")
        );
        assert!(!open("select 1;") && !open("\\d") && !open("select 1; -- end") && !open(""));
        let error = split("select 1;\nselect 'a", &GenericDialect {}).error;
        assert_eq!(error.map(|(_, line)| line), Some(2));
    }
}
