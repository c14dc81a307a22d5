//! What a statement is to this protocol: its sessions have transactions, cursors and settings that queries have no part in.

use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};
use headrace_engine::sql::lines::Lines;

/// A statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// For the engine. Its first word, in capitals.
    Engine(String),
    Begin {
        is_read_only: Option<bool>,
    },
    /// Says of the transaction, or of all that come, whether they only read.
    ReadOnly {
        is_read_only: Option<bool>,
        of_session: bool,
    },
    Commit,
    Rollback,
    Savepoint(String),
    Release(String),
    RollbackTo(String),
    /// A setting: its name, and its value; `None` is its default.
    Set {
        name: String,
        value: Option<String>,
    },
    Show(String),
    ResetAll,
    DiscardAll,
    /// A cursor: its name, where its query begins, and whether it stays behind its transaction.
    Declare {
        name: String,
        query_at: usize,
        is_held: bool,
    },
    /// Rows of a cursor, or where its place moves; `None` is all that are left.
    Fetch {
        name: String,
        rows: Option<usize>,
        is_move: bool,
    },
    /// `None` closes all.
    Close(Option<String>),
    /// `None` forgets all prepared statements.
    Deallocate(Option<String>),
    CopyOut {
        query: String,
        options: CopyOptions,
    },
    /// What needs nothing to be done, by its tag.
    Nothing(&'static str),
    /// What there is not.
    Refused(&'static str),
}

/// How rows are copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyOptions {
    pub format: CopyFormat,
    pub delimiter: u8,
    pub null: String,
    pub quote: u8,
    pub has_header: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyFormat {
    Text,
    Csv,
    Binary,
}

/// The tokens of a statement, with where they begin and end.
struct Words<'a> {
    sql: &'a str,
    tokens: Vec<(Token, usize, usize)>,
    at: usize,
}

impl Command {
    /// What a statement is.
    pub fn of(sql: &str) -> Self {
        let mut words = Words::of(sql);
        let first = words.word().unwrap_or_default();
        let known = match first.as_str() {
            "BEGIN" => Some(Self::Begin { is_read_only: words.read_only() }),
            "START" if words.is("TRANSACTION") => {
                Some(Self::Begin { is_read_only: words.read_only() })
            }
            "COMMIT" | "END" | "ABORT" | "ROLLBACK" if words.has("PREPARED") => {
                Some(Self::Refused("a transaction is its session's, and is not prepared"))
            }
            "COMMIT" | "END" | "ABORT" | "ROLLBACK" if words.has("CHAIN") && !words.has("NO") => {
                Some(Self::Refused("AND CHAIN: begin the next transaction by BEGIN"))
            }
            "COMMIT" | "END" => Some(Self::Commit),
            "ABORT" => Some(Self::Rollback),
            "ROLLBACK" => {
                let _ = words.is("WORK") || words.is("TRANSACTION");
                if words.is("TO") {
                    let _ = words.is("SAVEPOINT");
                    words.name().map(Self::RollbackTo)
                } else {
                    Some(Self::Rollback)
                }
            }
            "SAVEPOINT" => words.name().map(Self::Savepoint),
            "RELEASE" => {
                let _ = words.is("SAVEPOINT");
                words.name().map(Self::Release)
            }
            "SET" => words.set(),
            "SHOW" => words.show(),
            "RESET" if words.is("ALL") => Some(Self::ResetAll),
            "RESET" => words.name().map(|name| Self::Set { name, value: None }),
            "DISCARD" => Some(match words.is("ALL") {
                true => Self::DiscardAll,
                false => Self::Nothing("DISCARD"),
            }),
            "DECLARE" => words.declare(),
            "FETCH" => words.fetch(false),
            "MOVE" => words.fetch(true),
            "CLOSE" if words.is("ALL") => Some(Self::Close(None)),
            "CLOSE" => words.name().map(|name| Self::Close(Some(name))),
            "DEALLOCATE" => {
                let _ = words.is("PREPARE");
                match words.is("ALL") {
                    true => Some(Self::Deallocate(None)),
                    false => words.name().map(|name| Self::Deallocate(Some(name))),
                }
            }
            "LISTEN" => Some(Self::Nothing("LISTEN")),
            "UNLISTEN" => Some(Self::Nothing("UNLISTEN")),
            "NOTIFY" => Some(Self::Refused("NOTIFY: sessions tell each other nothing here")),
            "LOCK" => Some(Self::Refused("LOCK: tables are files, which nobody locks here")),
            // What asyncpg has done with each connection that it takes back.
            "DO" if sql.contains("pg_listening_channels") => Some(Self::Nothing("DO")),
            "DO" => Some(Self::Refused("DO: there is no language for blocks of statements")),
            "COPY" => words.copy(),
            _ => None,
        };
        known.unwrap_or(Self::Engine(first))
    }

    /// The tag of a statement that the engine has done, with its rows where PostgreSQL tells them.
    pub fn tag(&self, sql: &str, rows: Option<u64>) -> String {
        let Self::Engine(first) = self else { return "OK".to_string() };
        let count = rows.unwrap_or_default();
        match first.as_str() {
            "INSERT" => format!("INSERT 0 {count}"),
            "UPDATE" | "DELETE" | "MERGE" | "COPY" => format!("{first} {count}"),
            "CREATE" | "DROP" | "ALTER" | "TRUNCATE" => {
                let mut words = Words::of(sql);
                let _ = words.word();
                let skipped = ["OR", "REPLACE", "EXTERNAL", "TEMP", "TEMPORARY", "MATERIALIZED"];
                while skipped.iter().any(|word| words.is(word)) {}
                format!("{first} {}", words.word().unwrap_or_else(|| "TABLE".to_string()))
            }
            _ => first.clone(),
        }
    }

    /// Whether the engine answers with rows.
    pub fn has_rows(&self) -> bool {
        match self {
            Self::Engine(first) => !matches!(
                first.as_str(),
                "INSERT"
                    | "UPDATE"
                    | "DELETE"
                    | "MERGE"
                    | "COPY"
                    | "CREATE"
                    | "DROP"
                    | "ALTER"
                    | "TRUNCATE"
                    | "PREPARE"
                    | "SET"
            ),
            Self::Show(_) => true,
            Self::Fetch { is_move, .. } => !is_move,
            _ => false,
        }
    }

    /// The word before the number of rows.
    pub fn rows_tag(&self) -> &'static str {
        match self {
            Self::Engine(first) if first == "EXPLAIN" => "EXPLAIN",
            Self::Engine(first) if first == "SHOW" => "SHOW",
            Self::Show(_) => "SHOW",
            Self::Fetch { .. } => "FETCH",
            _ => "SELECT",
        }
    }
}

impl<'a> Words<'a> {
    fn of(sql: &'a str) -> Self {
        let mut found: Vec<TokenWithSpan> = Vec::new();
        // What cannot be read is for the engine, which says why.
        let _ =
            Tokenizer::new(&PostgreSqlDialect {}, sql).tokenize_with_location_into_buf(&mut found);
        let lines = Lines::of(sql);
        let is_blank = |token: &Token| matches!(token, Token::Whitespace(_) | Token::EOF);
        let tokens = found.into_iter().filter(|token| !is_blank(&token.token));
        let tokens = tokens.map(|token| {
            let (begin, end) = (token.span.start, token.span.end);
            (
                token.token,
                lines.offset(begin.line, begin.column),
                lines.offset(end.line, end.column),
            )
        });
        Self { sql, tokens: tokens.collect(), at: 0 }
    }

    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at).map(|(token, ..)| token)
    }

    /// Where the next token begins.
    fn place(&self) -> usize {
        self.tokens.get(self.at).map_or(self.sql.len(), |(_, begin, _)| *begin)
    }

    /// The next word without quotes, in capitals.
    fn word(&mut self) -> Option<String> {
        let Some(Token::Word(word)) = self.peek() else { return None };
        let word = word.quote_style.is_none().then(|| word.value.to_uppercase());
        self.at += usize::from(word.is_some());
        word
    }

    /// Steps over a word, if it is the next.
    fn is(&mut self, word: &str) -> bool {
        let before = self.at;
        let found = self.word().is_some_and(|found| found == word);
        if !found {
            self.at = before;
        }
        found
    }

    /// Whether a word stands in the rest.
    fn has(&self, word: &str) -> bool {
        self.tokens[self.at.min(self.tokens.len())..].iter().any(|(token, ..)| {
            matches!(token, Token::Word(found) if found.quote_style.is_none() && found.value.eq_ignore_ascii_case(word))
        })
    }

    /// What a transaction's modes say of reading and writing.
    fn read_only(&self) -> Option<bool> {
        let pairs = self.tokens.windows(2);
        let is = |token: &Token, word: &str| matches!(token, Token::Word(found) if found.value.eq_ignore_ascii_case(word));
        pairs.filter(|pair| is(&pair[0].0, "READ")).find_map(|pair| match &pair[1].0 {
            token if is(token, "ONLY") => Some(true),
            token if is(token, "WRITE") => Some(false),
            _ => None,
        })
    }

    fn is_token(&mut self, token: &Token) -> bool {
        let found = self.peek() == Some(token);
        self.at += usize::from(found);
        found
    }

    /// A name; parts of one are joined by points.
    fn name(&mut self) -> Option<String> {
        let mut name = String::new();
        loop {
            let Some(Token::Word(word)) = self.peek() else { return None };
            match word.quote_style {
                Some(_) => name += &word.value,
                None => name += &word.value.to_lowercase(),
            }
            self.at += 1;
            if !self.is_token(&Token::Period) {
                return Some(name);
            }
            name.push('.');
        }
    }

    fn set(&mut self) -> Option<Command> {
        if self.is("LOCAL") {
            let refused = "SET LOCAL: settings are the session's; SET and RESET change them";
            return Some(Command::Refused(refused));
        }
        let is_sessions = self.is("SESSION");
        let of = |name: &str, value| Some(Command::Set { name: name.to_string(), value });
        if self.is("CHARACTERISTICS") || self.is("TRANSACTION") {
            let is_read_only = self.read_only();
            return Some(Command::ReadOnly { is_read_only, of_session: is_sessions });
        }
        if self.is("CONSTRAINTS") {
            return Some(Command::Nothing("SET CONSTRAINTS"));
        }
        if self.is("NAMES") {
            return of("client_encoding", self.value());
        }
        if self.is("TIME") {
            let _ = self.is("ZONE");
            return of(
                "timezone",
                self.value().filter(|value| !value.eq_ignore_ascii_case("local")),
            );
        }
        if self.is("AUTHORIZATION") || self.is("ROLE") {
            return Some(Command::Refused("SET ROLE: a session is its user's"));
        }
        let name = self.name()?;
        (self.is("TO") || self.is_token(&Token::Eq)).then_some(())?;
        Some(Command::Set { name, value: self.value() })
    }

    /// A setting's value; `None` is DEFAULT.
    fn value(&mut self) -> Option<String> {
        let mut values = Vec::new();
        while let Some((token, begin, end)) = self.tokens.get(self.at) {
            match token {
                Token::SingleQuotedString(text) => values.push(text.clone()),
                Token::Word(word) if word.quote_style.is_some() => values.push(word.value.clone()),
                Token::Word(word) if word.value.eq_ignore_ascii_case("default") => return None,
                Token::Comma => {}
                // A minus belongs to its number.
                Token::Minus => {
                    let number = self.tokens.get(self.at + 1).map_or(*end, |(.., end)| *end);
                    values.push(self.sql[*begin..number].to_string());
                    self.at += 1;
                }
                _ => values.push(self.sql[*begin..*end].to_string()),
            }
            self.at += 1;
        }
        Some(values.join(", "))
    }

    fn show(&mut self) -> Option<Command> {
        if self.is("TRANSACTION") {
            return Some(Command::Show("transaction_isolation".to_string()));
        }
        if self.is("TIME") {
            return Some(Command::Show("timezone".to_string()));
        }
        let name = self.name()?;
        // SHOW TABLES LIKE .. and the like are the engine's.
        self.peek().is_none().then_some(Command::Show(name))
    }

    fn declare(&mut self) -> Option<Command> {
        let (name, mut is_held) = (self.name()?, false);
        loop {
            match self.word()?.as_str() {
                "FOR" => return Some(Command::Declare { name, query_at: self.place(), is_held }),
                "WITH" => is_held = self.is("HOLD"),
                "BINARY" => {
                    return Some(Command::Refused(
                        "a BINARY cursor: ask for binary results by the extended protocol",
                    ));
                }
                _ => {}
            }
        }
    }

    fn fetch(&mut self, is_move: bool) -> Option<Command> {
        let back = Command::Refused("a cursor goes forward only");
        let _ = self.is("FORWARD");
        let rows = match self.peek().cloned() {
            Some(Token::Number(digits, _)) => {
                self.at += 1;
                Some(digits.parse::<usize>().ok()?)
            }
            Some(Token::Minus) => return Some(back),
            Some(Token::Word(word)) if word.quote_style.is_none() => {
                match word.value.to_uppercase().as_str() {
                    "ALL" => {
                        self.at += 1;
                        None
                    }
                    "NEXT" => {
                        self.at += 1;
                        Some(1)
                    }
                    "BACKWARD" | "PRIOR" | "FIRST" | "LAST" | "ABSOLUTE" | "RELATIVE" => {
                        return Some(back);
                    }
                    _ => Some(1),
                }
            }
            _ => Some(1),
        };
        let _ = self.is("FROM") || self.is("IN");
        Some(Command::Fetch { name: self.name()?, rows, is_move })
    }

    /// COPY of a table or a query to the client; to a file it is the engine's.
    fn copy(&mut self) -> Option<Command> {
        let query = match self.is_token(&Token::LParen) {
            true => {
                let begin = self.place();
                let end = self.closing()?;
                self.sql[begin..end].to_string()
            }
            false => {
                let begin = self.place();
                self.name()?;
                let table = self.sql[begin..self.end_before()].to_string();
                let columns = match self.is_token(&Token::LParen) {
                    true => {
                        let begin = self.place();
                        let end = self.closing()?;
                        self.sql[begin..end].to_string()
                    }
                    false => "*".to_string(),
                };
                format!("SELECT {columns} FROM {table}")
            }
        };
        if self.is("FROM") {
            let refused = "COPY FROM the client: write a file, which is a table here";
            return self.is("STDIN").then_some(Command::Refused(refused));
        }
        (self.is("TO") && self.is("STDOUT")).then_some(())?;
        let _ = self.is("WITH");
        match self.copy_options() {
            Ok(options) => Some(Command::CopyOut { query, options }),
            Err(why) => Some(Command::Refused(why)),
        }
    }

    /// Where the token before this one ends.
    fn end_before(&self) -> usize {
        self.at.checked_sub(1).and_then(|at| self.tokens.get(at)).map_or(0, |(.., end)| *end)
    }

    /// Steps behind the parenthesis that closes, and tells where that stands.
    fn closing(&mut self) -> Option<usize> {
        let mut depth = 1;
        while let Some((token, begin, _)) = self.tokens.get(self.at) {
            self.at += 1;
            match token {
                Token::LParen => depth += 1,
                Token::RParen => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return Some(*begin);
            }
        }
        None
    }

    fn copy_options(&mut self) -> Result<CopyOptions, &'static str> {
        const UNKNOWN: &str =
            "COPY TO STDOUT takes FORMAT (text, csv, binary), HEADER, DELIMITER, NULL and QUOTE";
        let (mut format, mut header) = (CopyFormat::Text, false);
        let (mut delimiter, mut null, mut quote) = (None, None, b'"');
        let one_byte = |text: String| match text.as_bytes() {
            [byte] => Ok(*byte),
            _ => Err("DELIMITER and QUOTE are one byte each"),
        };
        while let Some(token) = self.peek() {
            if matches!(token, Token::LParen | Token::RParen | Token::Comma) {
                self.at += 1;
                continue;
            }
            let word = self.word().ok_or(UNKNOWN)?;
            match word.as_str() {
                "FORMAT" => {}
                "TEXT" => format = CopyFormat::Text,
                "CSV" => format = CopyFormat::Csv,
                "BINARY" => format = CopyFormat::Binary,
                "HEADER" => {
                    let no = self.is("FALSE") || self.is("OFF");
                    let _ = self.is("TRUE") || self.is("ON");
                    header = !no;
                }
                "DELIMITER" | "DELIMITERS" => {
                    let _ = self.is("AS");
                    delimiter = Some(one_byte(self.text().ok_or(UNKNOWN)?)?);
                }
                "NULL" => {
                    let _ = self.is("AS");
                    null = Some(self.text().ok_or(UNKNOWN)?);
                }
                "QUOTE" => {
                    let _ = self.is("AS");
                    quote = one_byte(self.text().ok_or(UNKNOWN)?)?;
                }
                "ENCODING" => match self.text() {
                    Some(name) if super::settings::is_utf8(&name) => {}
                    _ => return Err("texts are UTF-8"),
                },
                _ => return Err(UNKNOWN),
            }
        }
        let is_csv = format == CopyFormat::Csv;
        let is_taken = |byte: u8| {
            byte.is_ascii() && !byte.is_ascii_alphanumeric() && !b"\\\r\n.".contains(&byte)
        };
        if delimiter.is_some_and(|byte| !is_taken(byte))
            || !is_taken(quote)
            || delimiter == Some(quote)
        {
            return Err("DELIMITER and QUOTE are two signs that no value is made of");
        }
        let null = null.unwrap_or_else(|| if is_csv { "" } else { "\\N" }.to_string());
        let delimiter = delimiter.unwrap_or(if is_csv { b',' } else { b'\t' });
        Ok(CopyOptions { format, delimiter, null, quote, has_header: header })
    }

    fn text(&mut self) -> Option<String> {
        let text = match self.peek()? {
            Token::SingleQuotedString(text) => text.clone(),
            // E'\t'
            Token::EscapedStringLiteral(text) => text.clone(),
            Token::Word(word) => word.value.clone(),
            _ => return None,
        };
        self.at += 1;
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn engine(first: &str) -> Command {
        Command::Engine(first.to_string())
    }

    fn set(name: &str, value: Option<&str>) -> Command {
        Command::Set { name: name.to_string(), value: value.map(str::to_string) }
    }

    #[test]
    fn statements_of_the_protocol_are_known() {
        for (sql, command) in [
            ("select 1", engine("SELECT")),
            ("/* a */ -- b\n SELECT 1", engine("SELECT")),
            ("begin; ", Command::Begin { is_read_only: None }),
            ("START TRANSACTION READ ONLY", Command::Begin { is_read_only: Some(true) }),
            (
                "BEGIN ISOLATION LEVEL SERIALIZABLE, READ WRITE",
                Command::Begin { is_read_only: Some(false) },
            ),
            ("rollback to savepoint a", Command::RollbackTo("a".into())),
            ("savepoint \"A\"", Command::Savepoint("A".into())),
            ("release a", Command::Release("a".into())),
            ("commit and no chain", Command::Commit),
            ("ROLLBACK", Command::Rollback),
            ("set extra_float_digits = 3", set("extra_float_digits", Some("3"))),
            ("SET DateStyle TO ISO, MDY", set("datestyle", Some("ISO, MDY"))),
            ("set session application_name to 'it''s'", set("application_name", Some("it's"))),
            ("set x = -1", set("x", Some("-1"))),
            ("set headrace.threads to default", set("headrace.threads", None)),
            ("SET TIME ZONE 'UTC'", set("timezone", Some("UTC"))),
            ("set names 'utf8'", set("client_encoding", Some("utf8"))),
            (
                "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
                Command::ReadOnly { is_read_only: Some(true), of_session: true },
            ),
            (
                "set transaction isolation level read committed",
                Command::ReadOnly { is_read_only: None, of_session: false },
            ),
            ("show transaction isolation level", Command::Show("transaction_isolation".into())),
            ("SHOW server_version", Command::Show("server_version".into())),
            ("show tables like 'a'", engine("SHOW")),
            ("reset all", Command::ResetAll),
            ("discard all", Command::DiscardAll),
            (
                "fetch 100 from c",
                Command::Fetch { name: "c".into(), rows: Some(100), is_move: false },
            ),
            (
                "FETCH FORWARD ALL FROM \"C\"",
                Command::Fetch { name: "C".into(), rows: None, is_move: false },
            ),
            ("fetch c", Command::Fetch { name: "c".into(), rows: Some(1), is_move: false }),
            ("close all", Command::Close(None)),
            ("deallocate prepare p", Command::Deallocate(Some("p".into()))),
            ("copy t to 'x.csv'", engine("COPY")),
            ("copy t from 'x.csv'", engine("COPY")),
        ] {
            assert_eq!(Command::of(sql), command, "{sql}");
        }
        assert!(matches!(Command::of("fetch backward 1 from c"), Command::Refused(_)));
        for refused in [
            "copy t from stdin", "commit and chain", "rollback prepared 'x'", "set local x = 1",
            "lock table t",
        ] {
            assert!(matches!(Command::of(refused), Command::Refused(_)), "{refused}");
        }
    }

    #[test]
    fn cursors_have_the_text_of_their_query() {
        let sql = "DECLARE \"é\" NO SCROLL CURSOR WITHOUT HOLD FOR\n SELECT 'for'";
        let Command::Declare { name, query_at, is_held: false } = Command::of(sql) else {
            panic!("{sql}")
        };
        assert_eq!((name.as_str(), &sql[query_at..]), ("é", "SELECT 'for'"));
    }

    #[test]
    fn what_is_copied_is_a_query() {
        let of = |sql: &str| match Command::of(sql) {
            Command::CopyOut { query, options } => (query, options.format, options.has_header),
            other => panic!("{sql}: {other:?}"),
        };
        let select = |columns: &str| format!("SELECT {columns} FROM s.\"T\"");
        assert_eq!(of("copy s.\"T\" to stdout"), (select("*"), CopyFormat::Text, false));
        assert_eq!(
            of("COPY s.\"T\" (a, b) TO STDOUT WITH (FORMAT csv, HEADER)"),
            (select("a, b"), CopyFormat::Csv, true)
        );
        assert_eq!(
            of("COPY (select (1), ')' from t) TO STDOUT (FORMAT binary)"),
            ("select (1), ')' from t".to_string(), CopyFormat::Binary, false)
        );
        assert_eq!(of("copy s.\"T\" to stdout csv header").1, CopyFormat::Csv);
        assert!(matches!(Command::of("copy t to stdout (format parquet)"), Command::Refused(_)));
    }

    #[test]
    fn tags_are_postgresqls() {
        let tag = |sql: &str| Command::of(sql).tag(sql, Some(3));
        assert_eq!(tag("insert into t values (1)"), "INSERT 0 3");
        assert_eq!(tag("create or replace view v as select 1"), "CREATE VIEW");
        assert_eq!(tag("create external table t stored as csv location 'x'"), "CREATE TABLE");
        assert_eq!(tag("drop table if exists t"), "DROP TABLE");
        assert_eq!(tag("copy t to 'x'"), "COPY 3");
    }
}
