//! The 22 queries, each in its own file: the specification's texts with its validation parameters
//! and numbers of rows. Query 15 has its view as a WITH query, which is one of the variants that
//! the specification approves. The fraction of query 11 is that of scale 1 at every scale.

use crate::{Limit, Query};

/// The benchmark's queries in order.
pub static QUERIES: [Query; 22] = [
    Query { id: "1", sql: include_str!("queries/01.sql"), limit: None },
    Query {
        id: "2",
        sql: include_str!("queries/02.sql"),
        limit: Some(Limit { rows: 100, keys: &[0, 2, 1, 3] }),
    },
    Query {
        id: "3",
        sql: include_str!("queries/03.sql"),
        limit: Some(Limit { rows: 10, keys: &[1, 2] }),
    },
    Query { id: "4", sql: include_str!("queries/04.sql"), limit: None },
    Query { id: "5", sql: include_str!("queries/05.sql"), limit: None },
    Query { id: "6", sql: include_str!("queries/06.sql"), limit: None },
    Query { id: "7", sql: include_str!("queries/07.sql"), limit: None },
    Query { id: "8", sql: include_str!("queries/08.sql"), limit: None },
    Query { id: "9", sql: include_str!("queries/09.sql"), limit: None },
    Query {
        id: "10",
        sql: include_str!("queries/10.sql"),
        limit: Some(Limit { rows: 20, keys: &[2] }),
    },
    Query { id: "11", sql: include_str!("queries/11.sql"), limit: None },
    Query { id: "12", sql: include_str!("queries/12.sql"), limit: None },
    Query { id: "13", sql: include_str!("queries/13.sql"), limit: None },
    Query { id: "14", sql: include_str!("queries/14.sql"), limit: None },
    Query { id: "15", sql: include_str!("queries/15.sql"), limit: None },
    Query { id: "16", sql: include_str!("queries/16.sql"), limit: None },
    Query { id: "17", sql: include_str!("queries/17.sql"), limit: None },
    Query {
        id: "18",
        sql: include_str!("queries/18.sql"),
        limit: Some(Limit { rows: 100, keys: &[4, 3] }),
    },
    Query { id: "19", sql: include_str!("queries/19.sql"), limit: None },
    Query { id: "20", sql: include_str!("queries/20.sql"), limit: None },
    Query {
        id: "21",
        sql: include_str!("queries/21.sql"),
        limit: Some(Limit { rows: 100, keys: &[1, 0] }),
    },
    Query { id: "22", sql: include_str!("queries/22.sql"), limit: None },
];

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use sqlparser::{
        dialect::{DuckDbDialect, GenericDialect, PostgreSqlDialect},
        parser::Parser,
    };

    use super::*;

    #[test]
    fn every_query_is_one_statement_with_its_limit() {
        for (query, number) in QUERIES.iter().zip(1..) {
            assert_eq!(query.id, format!("{number}"));
            for statements in [
                Parser::parse_sql(&GenericDialect {}, query.sql).unwrap(),
                Parser::parse_sql(&PostgreSqlDialect {}, query.sql).unwrap(),
                Parser::parse_sql(&DuckDbDialect {}, query.sql).unwrap(),
            ] {
                assert_eq!(statements.len(), 1, "{}", query.id);
            }
            let limit =
                query.sql.trim_end().rsplit_once("\nlimit ").map(|(_, n)| n.parse().unwrap());
            assert_eq!(limit, query.limit.map(|limit| limit.rows), "{}", query.id);
        }
    }
}
