//! The exported data: columns, and the statements that return their rows.

use std::sync::atomic::AtomicBool;

use tokio_postgres::Row;

use super::columns::{Column, NumericAs, quoted, select};
use super::relation::{self, Part, Relation};
use crate::error::{PgError, Result};
use crate::session::Session;

/// A column with fewer distinct values should be a dictionary.
const DICTIONARY_VALUES_MAX: f32 = 10_000.0;

/// From version 18 on old rows may have NULLs where NOT NULL is declared and not yet validated.
const NOT_NULL: &str = "select attname::text from pg_catalog.pg_attribute
    where attrelid = $1 and attnotnull and attnum > 0 and not exists (select from pg_catalog.pg_constraint
        where conrelid = $1 and contype = 'n' and not convalidated and attnum = any (conkey))";

/// All of it.
#[derive(Debug)]
pub(super) struct Source {
    /// The table's name alone, empty for a query.
    pub own_name: String,
    pub columns: Vec<Column>,
    pub parts: Vec<Part>,
    /// Why it is one part, where several would have been possible.
    pub whole_because: Option<&'static str>,
    /// Text columns of few values that are not dictionaries.
    pub could_be_dictionaries: Vec<String>,
    /// The text after FROM for all rows.
    pub from: String,
}

impl Source {
    /// A table, by its name in a query. The session has begun its transaction.
    pub fn table(
        session: &Session,
        name: &str,
        numeric: NumericAs,
        cancel: &AtomicBool,
    ) -> Result<Source> {
        let no_table = |cause: String| {
            PgError::new(cause)
                .remedy("psql's \\d lists tables; capitals need quotes: --table '\"Sales\"'")
        };
        let found = session.query(
            cancel,
            "select oid, oid::regclass::text, relname::text from pg_catalog.pg_class
             where oid = pg_catalog.to_regclass($1)",
            &[&name],
        );
        let found = found.map_err(|error| no_table(error.cause))?;
        let found = found
            .first()
            .ok_or_else(|| no_table(format!("{}: no table {name}", session.place())))?;
        let (oid, name, own_name): (u32, String, String) =
            (found.get(0), found.get(1), found.get(2));
        // Takes the locks of a reader on it and its leaves: nobody rewrites or drops them meanwhile.
        session.execute(cancel, &format!("select from {name} limit 0"))?;
        let one = |sql: &str| session.query(cancel, sql, &[&oid]);
        let leaves: Vec<Relation> = one(&relation::leaves())?.iter().map(Relation::of).collect();
        let described = session.describe(cancel, &name, &format!("select * from {name}"))?;
        let mut columns = columns(&described, numeric);
        let is_partitioned = !leaves.iter().any(|leaf| leaf.is_root);
        let has_children = !is_partitioned && leaves.len() > 1;
        let version = session.version(cancel)?;
        if !has_children {
            declare_not_null(&mut columns, &one(NOT_NULL)?);
        }
        let security = one("select pg_catalog.row_security_active($1::oid)")?;
        let has_row_security = security.first().is_some_and(|row| row.get(0));
        let whole_because =
            relation::whole_because(version, has_row_security, is_partitioned, &leaves);
        let parts = match whole_because {
            Some(_) => {
                let bytes = leaves.iter().map(|leaf| leaf.all_bytes).sum();
                vec![Part { sql: select(&columns, &name), place: name.clone(), bytes }]
            }
            None => relation::parts(&leaves, &columns, session.block_bytes(cancel)?),
        };
        let could_be_dictionaries = few_values(session, oid, cancel)?;
        Ok(Source { own_name, columns, parts, whole_because, could_be_dictionaries, from: name })
    }

    /// A query.
    pub fn query(
        session: &Session,
        sql: &str,
        numeric: NumericAs,
        cancel: &AtomicBool,
    ) -> Result<Source> {
        let sql = sql.trim().trim_end_matches(';');
        let described = session.describe(cancel, "--query", sql)?;
        if !described.params().is_empty() {
            return Err(
                PgError::usage("--query: it has parameters").remedy("write their values into it")
            );
        }
        if described.columns().is_empty() {
            return Err(
                PgError::usage("--query: it returns no columns").remedy("--query 'select …'")
            );
        }
        let columns = columns(&described, numeric);
        let names: Vec<String> = columns.iter().map(|column| quoted(&column.name)).collect();
        let from = format!("(\n{sql}\n) as query ({})", names.join(", "));
        // A query that needs no casts is left alone.
        let is_plain = columns.iter().all(|column| column.cast.is_none());
        let wanted = if is_plain { sql.to_string() } else { select(&columns, &from) };
        let part = Part { sql: wanted, place: "--query".into(), bytes: 0 };
        let (whole_because, could_be_dictionaries) = (None, Vec::new());
        let (own_name, parts) = (String::new(), vec![part]);
        Ok(Source { own_name, columns, parts, whole_because, could_be_dictionaries, from })
    }

    /// Makes dictionaries of the named columns.
    pub fn make_dictionaries(&mut self, names: &[String]) -> Result<()> {
        for name in names {
            let column =
                self.columns.iter_mut().find(|column| column.name == *name && column.is_text());
            match column {
                Some(column) => column.is_dictionary = true,
                None => {
                    let texts = self.columns.iter().filter(|column| column.is_text());
                    let texts: Vec<&str> = texts.map(|column| column.name.as_str()).collect();
                    return Err(PgError::usage(format!(
                        "--dictionary {name}: no such column of texts"
                    ))
                    .remedy(format!("columns of texts: {}", texts.join(", "))));
                }
            }
        }
        let columns = &self.columns;
        self.could_be_dictionaries.retain(|name| {
            columns.iter().any(|c| c.name == *name && c.is_text() && !c.is_dictionary)
        });
        Ok(())
    }

    /// Duplicate names would be one column for readers of the file.
    pub fn check_names(&self) -> Result<()> {
        for (index, column) in self.columns.iter().enumerate() {
            if self.columns[..index].iter().any(|other| other.name == column.name) {
                return Err(PgError::usage(format!(
                    "--query: two columns are named {}",
                    column.name
                ))
                .remedy("name them apart: … as another"));
            }
        }
        Ok(())
    }

    /// Server bytes of all parts.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.bytes).sum()
    }
}

fn columns(described: &tokio_postgres::Statement, numeric: NumericAs) -> Vec<Column> {
    described.columns().iter().map(|column| Column::new(column, numeric)).collect()
}

fn declare_not_null(columns: &mut [Column], names: &[Row]) {
    let names: Vec<&str> = names.iter().map(|row| row.get(0)).collect();
    for column in columns {
        column.is_nullable = !names.contains(&column.name.as_str());
    }
}

/// Text columns with few distinct values, according to ANALYZE.
fn few_values(session: &Session, oid: u32, cancel: &AtomicBool) -> Result<Vec<String>> {
    let rows = session.query(
        cancel,
        "select distinct s.attname::text from pg_catalog.pg_stats s
         join pg_catalog.pg_class c on c.relname = s.tablename
         join pg_catalog.pg_namespace n on n.oid = c.relnamespace and n.nspname = s.schemaname
         where c.oid = $1 and s.n_distinct between 1 and $2 order by 1",
        &[&oid, &DICTIONARY_VALUES_MAX],
    )?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}
