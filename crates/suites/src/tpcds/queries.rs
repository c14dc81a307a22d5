//! The 99 queries, each in its own file: the specification's texts with its qualification parameters, which are those
//! of scale 1. They ask what the published ones ask, in words that more systems understand:
//!
//! - Of the four queries with two statements (14, 23, 24, 39) it is the first.
//! - Every order is total: tie-breaking columns follow the published ones, and a descending order
//!   states the place of NULLs, which come last.
//! - Answers of one row (28, 32, 38, 97) have no LIMIT. Output names are words without spaces. Days are added as
//!   intervals.
//! - Ranks of subtotals (36, 70, 86) are computed over a query that has computed the subtotals.
//! - A division by 0, at a small scale, is NULL (2, 12, 20, 36, 59, 98). Quotients that are ordered by
//!   (36) or summed (66) are floats, since systems differ in the digits of decimal ones.
//! - Standard deviations (17, 39) are rounded to six digits: the last ones depend on the order of rows.

use crate::Query;

/// The benchmark's queries in order.
pub static QUERIES: [Query; 99] = [
    query("1", include_str!("queries/01.sql")),
    query("2", include_str!("queries/02.sql")),
    query("3", include_str!("queries/03.sql")),
    query("4", include_str!("queries/04.sql")),
    query("5", include_str!("queries/05.sql")),
    query("6", include_str!("queries/06.sql")),
    query("7", include_str!("queries/07.sql")),
    query("8", include_str!("queries/08.sql")),
    query("9", include_str!("queries/09.sql")),
    query("10", include_str!("queries/10.sql")),
    query("11", include_str!("queries/11.sql")),
    query("12", include_str!("queries/12.sql")),
    query("13", include_str!("queries/13.sql")),
    query("14", include_str!("queries/14.sql")),
    query("15", include_str!("queries/15.sql")),
    query("16", include_str!("queries/16.sql")),
    query("17", include_str!("queries/17.sql")),
    query("18", include_str!("queries/18.sql")),
    query("19", include_str!("queries/19.sql")),
    query("20", include_str!("queries/20.sql")),
    query("21", include_str!("queries/21.sql")),
    query("22", include_str!("queries/22.sql")),
    query("23", include_str!("queries/23.sql")),
    query("24", include_str!("queries/24.sql")),
    query("25", include_str!("queries/25.sql")),
    query("26", include_str!("queries/26.sql")),
    query("27", include_str!("queries/27.sql")),
    query("28", include_str!("queries/28.sql")),
    query("29", include_str!("queries/29.sql")),
    query("30", include_str!("queries/30.sql")),
    query("31", include_str!("queries/31.sql")),
    query("32", include_str!("queries/32.sql")),
    query("33", include_str!("queries/33.sql")),
    query("34", include_str!("queries/34.sql")),
    query("35", include_str!("queries/35.sql")),
    query("36", include_str!("queries/36.sql")),
    query("37", include_str!("queries/37.sql")),
    query("38", include_str!("queries/38.sql")),
    query("39", include_str!("queries/39.sql")),
    query("40", include_str!("queries/40.sql")),
    query("41", include_str!("queries/41.sql")),
    query("42", include_str!("queries/42.sql")),
    query("43", include_str!("queries/43.sql")),
    query("44", include_str!("queries/44.sql")),
    query("45", include_str!("queries/45.sql")),
    query("46", include_str!("queries/46.sql")),
    query("47", include_str!("queries/47.sql")),
    query("48", include_str!("queries/48.sql")),
    query("49", include_str!("queries/49.sql")),
    query("50", include_str!("queries/50.sql")),
    query("51", include_str!("queries/51.sql")),
    query("52", include_str!("queries/52.sql")),
    query("53", include_str!("queries/53.sql")),
    query("54", include_str!("queries/54.sql")),
    query("55", include_str!("queries/55.sql")),
    query("56", include_str!("queries/56.sql")),
    query("57", include_str!("queries/57.sql")),
    query("58", include_str!("queries/58.sql")),
    query("59", include_str!("queries/59.sql")),
    query("60", include_str!("queries/60.sql")),
    query("61", include_str!("queries/61.sql")),
    query("62", include_str!("queries/62.sql")),
    query("63", include_str!("queries/63.sql")),
    query("64", include_str!("queries/64.sql")),
    query("65", include_str!("queries/65.sql")),
    query("66", include_str!("queries/66.sql")),
    query("67", include_str!("queries/67.sql")),
    query("68", include_str!("queries/68.sql")),
    query("69", include_str!("queries/69.sql")),
    query("70", include_str!("queries/70.sql")),
    query("71", include_str!("queries/71.sql")),
    query("72", include_str!("queries/72.sql")),
    query("73", include_str!("queries/73.sql")),
    query("74", include_str!("queries/74.sql")),
    query("75", include_str!("queries/75.sql")),
    query("76", include_str!("queries/76.sql")),
    query("77", include_str!("queries/77.sql")),
    query("78", include_str!("queries/78.sql")),
    query("79", include_str!("queries/79.sql")),
    query("80", include_str!("queries/80.sql")),
    query("81", include_str!("queries/81.sql")),
    query("82", include_str!("queries/82.sql")),
    query("83", include_str!("queries/83.sql")),
    query("84", include_str!("queries/84.sql")),
    query("85", include_str!("queries/85.sql")),
    query("86", include_str!("queries/86.sql")),
    query("87", include_str!("queries/87.sql")),
    query("88", include_str!("queries/88.sql")),
    query("89", include_str!("queries/89.sql")),
    query("90", include_str!("queries/90.sql")),
    query("91", include_str!("queries/91.sql")),
    query("92", include_str!("queries/92.sql")),
    query("93", include_str!("queries/93.sql")),
    query("94", include_str!("queries/94.sql")),
    query("95", include_str!("queries/95.sql")),
    query("96", include_str!("queries/96.sql")),
    query("97", include_str!("queries/97.sql")),
    query("98", include_str!("queries/98.sql")),
    query("99", include_str!("queries/99.sql")),
];

/// Orders are total, so that a LIMIT leaves the same rows in every system.
const fn query(id: &'static str, sql: &'static str) -> Query {
    Query { id, sql, limit: None }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use sqlparser::{
        dialect::{DuckDbDialect, GenericDialect, PostgreSqlDialect},
        parser::Parser,
    };

    use super::*;

    #[test]
    fn every_query_is_one_statement_and_what_is_limited_is_ordered() {
        for (query, number) in QUERIES.iter().zip(1..) {
            assert_eq!(query.id, format!("{number}"));
            for statements in [
                Parser::parse_sql(&GenericDialect {}, query.sql).unwrap(),
                Parser::parse_sql(&PostgreSqlDialect {}, query.sql).unwrap(),
                Parser::parse_sql(&DuckDbDialect {}, query.sql).unwrap(),
            ] {
                assert_eq!(statements.len(), 1, "{}", query.id);
            }
            let lines = |begin| query.sql.lines().any(|line: &str| line.starts_with(begin));
            assert!(!lines("limit ") || lines("order by"), "{}", query.id);
        }
    }
}
