//! The system tables and functions of PostgreSQL that clients ask for: `psql`'s `\d`, drivers that look for types, tools that list
//! tables. They are made for the statement that names them, of the tables that there are.
//!
//! ```text
//! statement ─ names one? ─no─► the engine, untouched
//!                 │ yes
//!                 ▼
//!            rewrite: pg_catalog.pg_class ─► "~pg_class", a given table ([`tables`])
//!                     format_type(..)     ─► an expression               ([`calls`])
//!                     x::regclass, OPERATOR(..), COLLATE ─► what the engine knows
//! ```
//!
//! Tables of indexes, triggers and the like have no rows, and subqueries over them are NULL.

mod about;
mod calls;
mod oids;
mod rewrite;
mod tables;

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{Statement, Value, ValueWithSpan, VisitMut, VisitorMut};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};
use headrace_engine::failure::Failure;
use headrace_engine::{GivenTables, Session};

pub use about::{About, DATABASE};
use rewrite::Rewrite;

/// A statement that asks the catalog, in the engine's words, with the tables that it names; `None`: it does not.
pub async fn rewritten(
    session: &Session,
    about: &About,
    sql: &str,
) -> Result<Option<(String, GivenTables)>, Failure> {
    let Some((sql, names)) = rewrite(session, about, sql) else { return Ok(None) };
    let given = tables::given(session, &names, &about.settings.all(), &about.user).await?;
    Ok(Some((sql, given)))
}

/// Has texts printed as they are: the parser's own printing takes quotes in them, behind backslashes or doubled, for ones that are
/// written so already.
fn keep_texts(statement: &mut Statement) {
    struct Keep;
    impl VisitorMut for Keep {
        type Break = ();

        fn pre_visit_value(&mut self, value: &mut ValueWithSpan) -> ControlFlow<()> {
            if let Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text) =
                &value.value
            {
                value.value = Value::Placeholder(format!("'{}'", text.replace('\'', "''")));
            }
            ControlFlow::Continue(())
        }
    }
    let _ = statement.visit(&mut Keep);
}

/// Whether a statement has a word that only the catalog knows. One with quotes or backslashes in names is left as it is: they
/// would not be printed as they were.
pub fn may_ask(sql: &str) -> bool {
    let tokens = Tokenizer::new(&PostgreSqlDialect {}, sql).tokenize().unwrap_or_default();
    let is_odd = |token: &Token| match token {
        Token::Word(word) => word.quote_style.is_some() && word.value.contains(['"', '\\']),
        _ => false,
    };
    names_catalog(&tokens) && !tokens.iter().any(is_odd)
}

fn names_catalog(tokens: &[Token]) -> bool {
    tokens.iter().any(|token| match token {
        Token::Word(word) => {
            let name = word.value.to_lowercase();
            name.starts_with("pg_") || name == "information_schema" || calls::is_known(&name)
        }
        _ => false,
    })
}

/// The statement in other words, and the tables that it names. What PostgreSQL's parser does not read is the engine's.
fn rewrite(session: &Session, about: &About, sql: &str) -> Option<(String, Vec<&'static str>)> {
    let mut statements = Parser::parse_sql(&PostgreSqlDialect {}, sql).ok()?;
    let [statement] = statements.as_mut_slice() else { return None };
    keep_texts(statement);
    let mut rewrite = Rewrite::new(session, about);
    rewrite.change(statement);
    keep_texts(statement);
    rewrite.is_changed().then(|| (statement.to_string(), rewrite.names()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn texts_stay_what_they_are() {
        for text in ["'\\'' OR 1=1 --'", "'a''''b'", "'it''s'", "'\\'", "''", "'\\\\'", "'é'"] {
            let sql = format!("SELECT {text}");
            let mut statements = Parser::parse_sql(&PostgreSqlDialect {}, &sql).unwrap();
            keep_texts(&mut statements[0]);
            assert_eq!(statements[0].to_string(), sql);
            // Once more, as what is put in for a call is.
            keep_texts(&mut statements[0]);
            assert_eq!(statements[0].to_string(), sql);
        }
    }

    #[test]
    fn only_statements_that_name_it_are_looked_at() {
        for (sql, names) in [
            ("select * from pg_class", true),
            ("select relname from pg_catalog.pg_class", true),
            ("select version()", true),
            ("select 't'::regclass", true),
            ("select 'pg_class' from t -- pg_class", false),
            ("select a, b from orders", false),
            ("select \"a\"\"b\" from pg_class", false),
        ] {
            assert_eq!(may_ask(sql), names, "{sql}");
        }
    }
}
