//! What is exported, cut into parts that can be read one beside the other.
//!
//! A table is cut by ctid: each part is a range of blocks, which the server reads with a TID range
//! scan. A partitioned or inherited table is cut leaf by leaf. Everything else is one part: a query, a
//! view, a foreign table, a table with row security or leaves that the user may not read by themselves,
//! a server before version 14.

use std::sync::atomic::AtomicBool;

use tokio_postgres::Row;

use super::columns::{Column, NumericAs, Values, quoted};
use crate::error::{PgError, Result};
use crate::session::Session;

/// Bytes of a part as the server stores them, TOASTed values included.
const PART_BYTES: u64 = 16 << 20;

/// The first version with TID range scans.
const TID_RANGE_SCANS: i32 = 140_000;

/// The first version in which NOT NULL may be declared but not yet hold for rows of old.
const NOT_NULL_MAY_BE_INVALID: i32 = 180_000;

/// Fewer distinct values make a column one to keep as a dictionary.
const DICTIONARY_VALUES_MAX: f32 = 10_000.0;

/// One statement's worth of rows.
#[derive(Debug)]
pub(super) struct Part {
    /// The query.
    pub sql: String,
    /// For messages.
    pub place: String,
    /// Bytes in the server; 0 if nobody knows.
    pub bytes: u64,
}

/// All of it.
#[derive(Debug)]
pub(super) struct Source {
    /// The table as a query names it.
    name: String,
    /// The table's name alone, empty for a query.
    pub own_name: String,
    pub columns: Vec<Column>,
    pub parts: Vec<Part>,
    /// Why it is one part, where it could have been several.
    pub whole_because: Option<&'static str>,
    /// Text columns of few values that are not dictionaries.
    pub could_be_dictionaries: Vec<String>,
    /// What stands after FROM to have all rows.
    from: String,
}

/// A table, or a leaf of one.
struct Relation {
    name: String,
    kind: i8,
    is_heap: bool,
    may_read: bool,
    has_row_security: bool,
    heap_bytes: u64,
    all_bytes: u64,
}

const RELATION: &str = "pg_catalog.format('%I.%I', n.nspname, c.relname), c.relkind,
    coalesce(a.amname = 'heap', false), pg_catalog.has_table_privilege(c.oid, 'select'),
    pg_catalog.row_security_active(c.oid), coalesce(pg_catalog.pg_relation_size(c.oid), 0),
    coalesce(pg_catalog.pg_table_size(c.oid), 0)
    from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    left join pg_catalog.pg_am a on a.oid = c.relam";

const NOT_NULL: &str = "select attname::text from pg_catalog.pg_attribute
    where attrelid = $1 and attnotnull and attnum > 0";

impl Relation {
    fn of(row: &Row) -> Relation {
        let bytes = |column: usize| u64::try_from(row.get::<_, i64>(column)).unwrap_or(0);
        Relation {
            name: row.get(0),
            kind: row.get(1),
            is_heap: row.get(2),
            may_read: row.get(3),
            has_row_security: row.get(4),
            heap_bytes: bytes(5),
            all_bytes: bytes(6),
        }
    }

    fn has_blocks(&self) -> bool {
        matches!(self.kind as u8, b'r' | b'm') && self.is_heap
    }
}

impl Source {
    /// A table, by the name that a query would give it. The session has begun its transaction.
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
        let relation = one(&format!("select {RELATION} where c.oid = $1"))?;
        let relation = relation
            .first()
            .map(Relation::of)
            .ok_or_else(|| no_table(format!("no table {name}")))?;
        let leaves: Vec<Relation> = one(&format!(
            "with recursive tree as (select $1::oid as oid union
                 select inhrelid from pg_catalog.pg_inherits join tree on inhparent = tree.oid)
             select {RELATION} where c.oid in (select oid from tree) and c.relkind <> 'p'
             order by c.oid <> $1, n.nspname collate \"C\", c.relname collate \"C\""
        ))?
        .iter()
        .map(Relation::of)
        .collect();
        let described = session.describe(cancel, &name, &format!("select * from {name}"))?;
        let mut columns = columns(&described, numeric);
        let has_children = relation.kind as u8 != b'p' && leaves.len() > 1;
        let version = session.version(cancel)?;
        if !has_children && version < NOT_NULL_MAY_BE_INVALID {
            declare_not_null(&mut columns, &one(NOT_NULL)?);
        }
        let mut source = Source {
            columns,
            parts: Vec::new(),
            whole_because: whole_because(version, &relation, &leaves),
            could_be_dictionaries: few_values(session, oid, cancel)?,
            own_name,
            from: name.clone(),
            name,
        };
        source.cut(session, &leaves, cancel)?;
        Ok(source)
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
        Ok(Source {
            name: String::new(),
            own_name: String::new(),
            columns,
            parts: vec![part],
            whole_because,
            could_be_dictionaries,
            from,
        })
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

    /// Gives numerics without declared digits those that their values need; which columns these were.
    pub fn measure_numerics(
        &mut self,
        session: &Session,
        cancel: &AtomicBool,
    ) -> Result<Vec<String>> {
        let measured: Vec<&mut Column> =
            self.columns.iter_mut().filter(|column| column.values == Values::Numeric).collect();
        if measured.is_empty() {
            return Ok(Vec::new());
        }
        // NaN and infinities have no scale.
        let digits = measured.iter().map(|column| {
            let name = quoted(&column.name);
            format!(
                "pg_catalog.max(pg_catalog.scale({name})), pg_catalog.max(case when pg_catalog.abs({name}) < 1 then 0
                 else pg_catalog.length(pg_catalog.trunc(pg_catalog.abs({name}))::text) end)
                 filter (where pg_catalog.scale({name}) is not null)"
            )
        });
        let sql = format!("select {} from {}", digits.collect::<Vec<_>>().join(", "), self.from);
        let found = session.query(cancel, &sql, &[])?;
        let mut names = Vec::new();
        for (index, column) in measured.into_iter().enumerate() {
            let get = |at: usize| {
                found.first().and_then(|row| row.get::<_, Option<i32>>(at)).unwrap_or(0)
            };
            let (scale, whole) = (get(2 * index), get(2 * index + 1));
            column.values = match (u8::try_from((scale + whole).max(1)), i8::try_from(scale)) {
                (Ok(precision @ 1..=38), Ok(scale)) => Values::Decimal { precision, scale },
                _ => {
                    let cause = format!(
                        "column {}: its values have {whole} digits before the point and {scale} behind it, \
                         a decimal has 38 in all",
                        column.name
                    );
                    return Err(PgError::new(cause)
                        .remedy("--numeric text keeps them exact, --numeric float8 rounds them"));
                }
            };
            names.push(column.name.clone());
        }
        Ok(names)
    }

    /// Two columns of one name would be one column for whoever reads the file.
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

    /// Bytes in the server of all parts.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.bytes).sum()
    }

    fn cut(&mut self, session: &Session, leaves: &[Relation], cancel: &AtomicBool) -> Result<()> {
        if self.whole_because.is_some() {
            let bytes = leaves.iter().map(|leaf| leaf.all_bytes).sum();
            self.parts.push(Part {
                sql: select(&self.columns, &self.from),
                place: self.name.clone(),
                bytes,
            });
            return Ok(());
        }
        let block_bytes = session.block_bytes(cancel)?;
        for leaf in leaves {
            let all = select(&self.columns, &format!("only {}", leaf.name));
            if !leaf.has_blocks() {
                let sql = select(&self.columns, &leaf.name);
                self.parts.push(Part { sql, place: leaf.name.clone(), bytes: leaf.all_bytes });
                continue;
            }
            self.parts.extend(ranges(leaf, block_bytes).map(|(first, end, bytes)| {
                let name = &leaf.name;
                let (within, place) = match (first, end) {
                    (0, None) => (String::new(), name.clone()),
                    (_, None) => (
                        format!(" where ctid >= '({first},0)'"),
                        format!("{name}, blocks from {first}"),
                    ),
                    (_, Some(end)) => (
                        format!(" where ctid >= '({first},0)' and ctid < '({end},0)'"),
                        format!("{name}, blocks {first} to {}", end - 1),
                    ),
                };
                Part { sql: all.clone() + &within, place, bytes }
            }));
        }
        Ok(())
    }
}

/// Ranges of blocks: the first, the one after the last, and about how many bytes they are. The last one is open:
/// what was appended since is not visible.
fn ranges(
    leaf: &Relation,
    block_bytes: u64,
) -> impl Iterator<Item = (u64, Option<u64>, u64)> + use<> {
    let blocks = leaf.heap_bytes.div_ceil(block_bytes.max(1));
    let bytes_a_block = (leaf.all_bytes / blocks.max(1)).max(block_bytes);
    let step = (PART_BYTES / bytes_a_block.max(1)).max(1);
    let parts = blocks.div_ceil(step).max(1);
    (0..parts).map(move |part| {
        let (first, end) = (part * step, (part + 1) * step);
        let is_last = part + 1 == parts;
        let here = end.min(blocks).saturating_sub(first);
        (first, (!is_last).then_some(end), here * bytes_a_block)
    })
}

fn select(columns: &[Column], from: &str) -> String {
    let selected: Vec<String> = columns.iter().map(Column::selected).collect();
    format!("select {} from {from}", selected.join(", "))
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

fn whole_because(version: i32, relation: &Relation, leaves: &[Relation]) -> Option<&'static str> {
    if version < TID_RANGE_SCANS {
        return Some("servers before version 14 cannot read ranges of blocks");
    }
    if relation.has_row_security || leaves.iter().any(|leaf| leaf.has_row_security) {
        return Some("it has row security");
    }
    if !leaves.iter().all(|leaf| leaf.may_read) {
        return Some("its partitions may not be read by themselves");
    }
    (!leaves.iter().any(Relation::has_blocks) && relation.kind as u8 != b'p')
        .then_some("it is no plain table")
}

/// Text columns that hold few distinct values, as ANALYZE saw them.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(heap_bytes: u64, all_bytes: u64) -> Relation {
        Relation {
            name: "t".into(),
            kind: b'r' as i8,
            is_heap: true,
            may_read: true,
            has_row_security: false,
            heap_bytes,
            all_bytes,
        }
    }

    #[test]
    fn ranges_cover_every_block_once_and_the_last_is_open() {
        for (heap, all) in [
            (0, 0),
            (8192, 8192),
            (100 << 20, 100 << 20),
            (1 << 20, 10 << 30),
            (16 << 20, 16 << 20),
        ] {
            let ranges: Vec<_> = ranges(&leaf(heap, all), 8192).collect();
            let mut next = 0;
            for (i, (first, end, bytes)) in ranges.iter().enumerate() {
                assert_eq!(*first, next);
                assert_eq!(end.is_none(), i + 1 == ranges.len());
                next = end.unwrap_or(heap / 8192);
                assert!(*bytes <= PART_BYTES.max(all));
            }
            assert_eq!(next.max(1), (heap / 8192).max(1));
        }
        assert_eq!(ranges(&leaf(100 << 20, 100 << 20), 8192).count(), 7);
        // Values outside of the heap count.
        assert_eq!(ranges(&leaf(1 << 20, 10 << 30), 8192).count(), 128);
    }
}
