//! Texts that the parser refuses, in its words, and what is written in place of those that nobody here reads.
//!
//! ```text
//! TABLE t                                            SELECT * FROM t
//! WITH a AS [NOT] MATERIALIZED (..)                  WITH a AS (..)
//! COPY t TO 'f' (FORMAT csv, HEADER, DELIMITER ';')  COPY t TO 'f' STORED AS csv OPTIONS ('format.has_header' 'true', ..)
//! UNPIVOT t ON a, b INTO NAME n VALUE v              SELECT * FROM t UNPIVOT (v FOR n IN (a, b))
//! PIVOT t ON k IN ('a', 'b') USING sum(v)            SELECT * FROM t PIVOT (sum(v) FOR k IN ('a', 'b'))
//! EXPLAIN (ANALYZE, BUFFERS), (FORMAT JSON)          EXPLAIN (ANALYZE), (FORMAT PGJSON)
//! x GLOB 'a*'                                        x ~ '^a.*$'
//! a ASOF LEFT JOIN b ON ..                           a ASOF JOIN b MATCH_CONDITION ('left') ON ..
//! x::STRUCT(a INT, b STRUCT(c TEXT))                 x::STRUCT<a INT, b STRUCT<c TEXT>>
//! ```

use std::collections::HashMap;

use datafusion::common::{Result, plan_err};
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};

use super::asof;
use super::dialect::HeadraceDialect;

/// The text in the parser's words; `None` if there is nothing to change.
///
/// # Errors
/// Options of a COPY that are not offered.
pub fn spelled(text: &str) -> Result<Option<String>> {
    let Some(words) = Words::of(text) else { return Ok(None) };
    let statement = match words.word(0).as_deref() {
        Some("table") => Some(words.joined(&[(0, "SELECT * FROM".into())])),
        Some("unpivot") => words.unpivot(),
        Some("pivot") => words.pivot(),
        Some("copy") => words.copy()?,
        Some("explain") => words.explain(),
        _ => None,
    };
    let within = [Words::materialized, Words::globs, Words::asof, Words::structs];
    Ok(within.into_iter().fold(statement, |spelled, respell| {
        let again = Words::of(spelled.as_deref().unwrap_or(text)).and_then(|words| respell(&words));
        again.or(spelled)
    }))
}

/// What is to be written in the place of something that no one here reads.
pub fn instead(text: &str) -> Option<&'static str> {
    let words = Words::of(text)?;
    let word = |nth: usize| words.word(nth);
    let has = |first: &str, second: &[&str]| {
        (0..words.places.len()).any(|nth| {
            word(nth).as_deref() == Some(first)
                && (second.is_empty()
                    || word(nth + 1).is_some_and(|next| second.contains(&next.as_str())))
        })
    };
    Some(match word(0).as_deref() {
        Some("pivot") => {
            "PIVOT needs its values: SELECT * FROM t PIVOT (sum(v) FOR k IN ('a', 'b'))"
        }
        Some("unpivot") => "write SELECT * FROM t UNPIVOT (v FOR n IN (a, b))",
        _ if has("exclude", &["current", "group", "ties", "no"]) => {
            "EXCLUDE of a window's frame is not offered: take the row's own value off the sum"
        }
        _ if has("asof", &["right", "full"]) => {
            "ASOF JOIN and ASOF LEFT JOIN are there: for the other side's rows, write its table first"
        }
        _ => return None,
    })
}

/// The tokens of a text.
struct Words {
    tokens: Vec<Token>,
    /// The places of tokens that are no space.
    places: Vec<usize>,
}

impl Words {
    fn of(text: &str) -> Option<Self> {
        let tokens = Tokenizer::new(&HeadraceDialect, text).tokenize().ok()?;
        let is_said = |token: &Token| !matches!(token, Token::Whitespace(_));
        let places = (0..tokens.len()).filter(|at| is_said(&tokens[*at])).collect();
        Some(Self { tokens, places })
    }

    /// A token by its place among what is no space.
    fn token(&self, nth: usize) -> Option<&Token> {
        self.places.get(nth).map(|place| &self.tokens[*place])
    }

    /// A word without quotes, in lower case, by its place among what is no space.
    fn word(&self, nth: usize) -> Option<String> {
        match self.token(nth)? {
            Token::Word(word) if word.quote_style.is_none() => Some(word.value.to_lowercase()),
            _ => None,
        }
    }

    /// The place of a word that stands outside parentheses.
    fn find(&self, wanted: &str, from: usize) -> Option<usize> {
        let mut depth = 0_i32;
        for (nth, place) in self.places.iter().enumerate() {
            match &self.tokens[*place] {
                Token::LParen => depth += 1,
                Token::RParen => depth -= 1,
                _ if depth == 0 && nth >= from && self.word(nth).as_deref() == Some(wanted) => {
                    return Some(nth);
                }
                _ => {}
            }
        }
        None
    }

    /// The text between two places.
    fn text(&self, from: usize, to: usize) -> String {
        let place = |nth: usize| self.places.get(nth).copied().unwrap_or(self.tokens.len());
        let (from, to) = (place(from), place(to));
        let text: String =
            self.tokens[from..to.max(from)].iter().map(ToString::to_string).collect();
        text.trim().trim_end_matches(';').trim_end().to_string()
    }

    /// The whole text with others in some places.
    fn joined(&self, others: &[(usize, String)]) -> String {
        let other = |(nth, text): &(usize, String)| Some((*self.places.get(*nth)?, text.clone()));
        let others: HashMap<usize, String> = others.iter().filter_map(other).collect();
        let texts = self.tokens.iter().enumerate().map(|(at, token)| match others.get(&at) {
            Some(text) => text.clone(),
            None => token.to_string(),
        });
        texts.collect()
    }

    /// Without MATERIALIZED: the planner reads the query of a WITH where it is named.
    fn materialized(&self) -> Option<String> {
        let mut others = Vec::new();
        for nth in 0..self.places.len() {
            let blank = |nth: usize| (nth, " ".repeat(self.word(nth).map_or(0, |word| word.len())));
            let is = |nth: usize, wanted: &str| self.word(nth).as_deref() == Some(wanted);
            if is(nth, "as") && is(nth + 1, "materialized") {
                others.push(blank(nth + 1));
            }
            if is(nth, "as") && is(nth + 1, "not") && is(nth + 2, "materialized") {
                others.extend([blank(nth + 1), blank(nth + 2)]);
            }
        }
        (!others.is_empty()).then(|| self.joined(&others))
    }

    fn unpivot(&self) -> Option<String> {
        let on = self.find("on", 1)?;
        let into = self.find("into", on)?;
        let name = self.find("name", into)?;
        let value = self.find("value", name)?;
        Some(format!(
            "SELECT * FROM {} UNPIVOT ({} FOR {} IN ({})) {}",
            self.text(1, on),
            self.text(value + 1, value + 2),
            self.text(name + 1, value),
            self.text(on + 1, into),
            self.text(value + 2, usize::MAX),
        ))
    }

    fn pivot(&self) -> Option<String> {
        let on = self.find("on", 1)?;
        let values = self.find("in", on)?;
        let using = self.find("using", values)?;
        if self.find("group", using).is_some() {
            return None;
        }
        let order = self.find("order", using).or(self.find("limit", using));
        let end = order.unwrap_or(usize::MAX);
        Some(format!(
            "SELECT * FROM {} PIVOT ({} FOR {} IN {}) {}",
            self.text(1, on),
            self.text(using + 1, end),
            self.text(on + 1, values),
            self.text(values + 1, using),
            order.map_or_else(String::new, |order| self.text(order, usize::MAX)),
        ))
    }

    fn copy(&self) -> Result<Option<String>> {
        let Some(to) = self.find("to", 1) else { return Ok(None) };
        let behind = to + 2;
        let open = behind + usize::from(self.word(behind).as_deref() == Some("with"));
        let token = |nth: usize| self.token(nth);
        if token(open) != Some(&Token::LParen) {
            return Ok(None);
        }
        let mut options = Options::default();
        let mut option = Vec::new();
        let (mut nth, mut depth) = (open + 1, 0_usize);
        loop {
            match token(nth) {
                None => return Ok(None),
                Some(Token::RParen) if depth == 0 => break,
                Some(Token::Comma) if depth == 0 => options.add(&std::mem::take(&mut option))?,
                Some(other) => {
                    depth += usize::from(*other == Token::LParen);
                    depth -= usize::from(*other == Token::RParen);
                    option.push(other.clone());
                }
            }
            nth += 1;
        }
        options.add(&option)?;
        Ok(Some(format!("{} {}", self.text(0, behind), options.spelled())))
    }

    /// Options of EXPLAIN that PostgreSQL has. What BUFFERS, WAL, SETTINGS and MEMORY would add, no plan here has.
    fn explain(&self) -> Option<String> {
        const NONE: [&str; 5] = ["buffers", "wal", "settings", "memory", "generic_plan"];
        let token = |nth: usize| self.token(nth);
        if token(1) != Some(&Token::LParen) {
            return None;
        }
        let end = (2..self.places.len()).find(|nth| token(*nth) == Some(&Token::RParen))?;
        let (mut options, mut from) = (Vec::new(), 2);
        for nth in 2..=end {
            if nth == end || token(nth) == Some(&Token::Comma) {
                let is_json = self.word(from).as_deref() == Some("format")
                    && self.word(from + 1).as_deref() == Some("json");
                if is_json {
                    options.push("format pgjson".to_string());
                } else if !self.word(from).is_some_and(|word| NONE.contains(&word.as_str())) {
                    options.push(self.text(from, nth));
                }
                from = nth + 1;
            }
        }
        let options = match options.is_empty() {
            true => String::new(),
            false => format!("({}) ", options.join(", ")),
        };
        Some(format!("EXPLAIN {options}{}", self.text(end + 1, usize::MAX)))
    }

    /// GLOB of a pattern as a regular expression.
    fn globs(&self) -> Option<String> {
        let pattern = |nth: usize| match self.token(nth) {
            Some(Token::SingleQuotedString(pattern)) => Some(pattern),
            _ => None,
        };
        let mut others = Vec::new();
        for nth in 1..self.places.len() {
            let is_glob = self.word(nth).as_deref() == Some("glob");
            if let Some(pattern) = pattern(nth + 1).filter(|_| is_glob) {
                let regex = glob(pattern).replace('\'', "''");
                others.extend([(nth, "~".to_string()), (nth + 1, format!("'{regex}'"))]);
            }
        }
        (!others.is_empty()).then(|| self.joined(&others))
    }
}

impl Words {
    /// ASOF joins as the parser knows them.
    fn asof(&self) -> Option<String> {
        let mut others: HashMap<usize, String> = HashMap::new();
        for nth in 0..self.places.len() {
            let is = |at: usize, wanted: &str| self.word(at).as_deref() == Some(wanted);
            if !is(nth, "asof") {
                continue;
            }
            let kind = usize::from(is(nth + 1, "left") || is(nth + 1, "inner"));
            let outer = usize::from(kind == 1 && is(nth + 2, "outer"));
            if !is(nth + 1 + kind + outer, "join") {
                continue;
            }
            let condition = self.condition(nth + 2 + kind + outer)?;
            let condition_word = self.token(condition)?.to_string();
            let mark = asof::mark(is(nth + 1, "left"));
            others.insert(condition, format!("{mark}{condition_word}"));
            others.extend((nth + 1..=nth + kind + outer).map(|at| (at, String::new())));
        }
        let others: Vec<_> = others.into_iter().collect();
        (!others.is_empty()).then(|| self.joined(&others))
    }

    /// The place of the ON or USING of a join whose second table begins at a place.
    fn condition(&self, from: usize) -> Option<usize> {
        let mut depth = 0_i32;
        for nth in from..self.places.len() {
            match self.token(nth)? {
                Token::LParen => depth += 1,
                Token::RParen => depth -= 1,
                _ if depth > 0 => {}
                _ => match self.word(nth).as_deref() {
                    Some("on" | "using") => return Some(nth),
                    Some("join" | "where") => return None,
                    _ => {}
                },
            }
        }
        None
    }

    /// Types of structs between the brackets that the parser knows them by.
    fn structs(&self) -> Option<String> {
        let mut others = Vec::new();
        for nth in 0..self.places.len() {
            let is_type = self.word(nth).as_deref() == Some("struct")
                && self.token(nth + 1) == Some(&Token::LParen)
                && matches!(self.token(nth + 2), Some(Token::Word(_)))
                // In a call, a comma, an operator or the end would follow the name.
                && self.word(nth + 3).is_some_and(|word| !NO_TYPES.contains(&word.as_str()));
            if is_type {
                others.push((nth + 1, "<".to_string()));
                others.push((self.closing(nth + 1)?, "> ".to_string()));
            }
        }
        (!others.is_empty()).then(|| self.joined(&others))
    }

    /// The place of the parenthesis that closes the one at a place.
    fn closing(&self, open: usize) -> Option<usize> {
        let mut depth = 0_i32;
        (open..self.places.len()).find(|nth| {
            match self.token(*nth) {
                Some(Token::LParen) => depth += 1,
                Some(Token::RParen) => depth -= 1,
                _ => {}
            }
            depth == 0
        })
    }
}

/// Words that follow a column in an expression.
const NO_TYPES: [&str; 12] =
    ["as", "is", "in", "not", "and", "or", "between", "like", "ilike", "similar", "at", "collate"];

/// A pattern of GLOB as a regular expression: `*`, `?` and `[..]`.
fn glob(pattern: &str) -> String {
    let (mut regex, mut in_set) = ("(?s)^".to_string(), false);
    for character in pattern.chars() {
        match character {
            ']' if in_set => in_set = false,
            '!' if regex.ends_with('[') => {
                regex.push('^');
                continue;
            }
            _ if in_set && character != '\\' => {}
            '*' => regex.push('.'),
            '?' => {
                regex.push('.');
                continue;
            }
            '[' => in_set = true,
            _ if character.is_alphanumeric() || character.is_whitespace() => {}
            _ => regex.push('\\'),
        }
        regex.push(character);
    }
    regex.push('$');
    regex
}

/// The options of a COPY.
#[derive(Default)]
struct Options {
    format: Option<String>,
    folders: Option<String>,
    of_format: Vec<(&'static str, String)>,
}

impl Options {
    fn add(&mut self, tokens: &[Token]) -> Result<()> {
        let Some((Token::Word(name), value)) = tokens.split_first() else { return Ok(()) };
        let text = |token: &Token| match token {
            Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text) => text.clone(),
            other => other.to_string(),
        };
        let value: String = value.iter().map(text).collect();
        let name = name.value.to_lowercase();
        let key = match name.as_str() {
            "format" => {
                self.format = Some(value);
                return Ok(());
            }
            "partition_by" | "partitioned_by" => {
                let names = value.trim_start_matches('(').trim_end_matches(')');
                self.folders = Some(names.replace(',', ", "));
                return Ok(());
            }
            "header" => "format.has_header",
            "delimiter" | "delim" | "sep" => "format.delimiter",
            "quote" => "format.quote",
            "escape" => "format.escape",
            "null" | "nullstr" => "format.null_value",
            "compression" | "codec" => "format.compression",
            _ => {
                return plan_err!(
                    "COPY has no option {name}\nhint: FORMAT, HEADER, DELIMITER, QUOTE, ESCAPE, NULL, COMPRESSION, PARTITION_BY"
                );
            }
        };
        let value = match (key, value.to_lowercase().as_str()) {
            ("format.has_header", "" | "true" | "1" | "on" | "match") => "true".to_string(),
            ("format.has_header", "false" | "0" | "off") => "false".to_string(),
            _ => value,
        };
        self.of_format.push((key, value));
        Ok(())
    }

    fn spelled(&self) -> String {
        let mut spelled = String::new();
        if let Some(format) = &self.format {
            spelled += &format!("STORED AS {format} ");
        }
        if let Some(folders) = &self.folders {
            spelled += &format!("PARTITIONED BY ({folders}) ");
        }
        if !self.of_format.is_empty() {
            let option =
                |(key, value): &(&str, String)| format!("'{key}' '{}'", value.replace('\'', "''"));
            let options: Vec<_> = self.of_format.iter().map(option).collect();
            spelled += &format!("OPTIONS ({})", options.join(", "));
        }
        spelled
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn texts_in_the_words_of_the_parser() {
        let of = |text: &str| spelled(text).unwrap();
        let cases = [
            ("table t order by a", "SELECT * FROM t order by a"),
            (
                "with a as materialized (select 1) from a",
                "with a as              (select 1) from a",
            ),
            (
                "copy t to 'f' (format csv, header, delimiter ';')",
                "copy t to 'f' STORED AS csv OPTIONS ('format.has_header' 'true', 'format.delimiter' ';')",
            ),
            (
                "COPY (select 1, (2)) TO 'f' WITH (FORMAT 'parquet', PARTITION_BY (a, b));",
                "COPY (select 1, (2)) TO 'f' STORED AS parquet PARTITIONED BY (a, b) ",
            ),
            (
                "unpivot t on a, b into name n value v order by n",
                "SELECT * FROM t UNPIVOT (v FOR n IN (a, b)) order by n",
            ),
            (
                "pivot t on k in ('a', 'b') using sum(v) limit 1",
                "SELECT * FROM t PIVOT (sum(v) FOR k IN ('a', 'b')) limit 1",
            ),
        ];
        let cases = cases.into_iter().chain([
            ("explain (analyze, buffers) select (1)", "EXPLAIN (analyze) select (1)"),
            ("explain (buffers) select 1;", "EXPLAIN select 1"),
            (
                "EXPLAIN (format json, analyze false) select 1",
                "EXPLAIN (format pgjson, analyze false) select 1",
            ),
            ("select 'x' glob 'a*.?[!b-d]'", "select 'x' ~ '(?s)^a.*\\..[^b-d]$'"),
        ]);
        for (text, wanted) in cases {
            assert_eq!(of(text).as_deref(), Some(wanted));
        }
        assert_eq!(of("select as"), None);
        assert!(spelled("copy t to 'f' (colour)").is_err());
        assert!(instead("select * from a asof right join b on a.t >= b.t").is_some());
        assert!(instead("select 1").is_none());
    }
}
