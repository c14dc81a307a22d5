//! Tables, each with all of its parts.

use tokio_postgres::Row;

use super::super::facts::TableFacts;
use super::Look;
use crate::error::Result;

/// Tables and materialized views that are not parts of others, with their parts, largest first.
const TABLES: &str = "with recursive tree (root, oid) as (
        select c.oid, c.oid from pg_catalog.pg_class c
        where c.relkind in ('r', 'm', 'p') and c.relpersistence <> 't' and c.oid >= 16384
            and c.relnamespace::regnamespace::text !~ '^(pg_toast|information_schema)'
            and not exists (select from pg_catalog.pg_inherits where inhrelid = c.oid)
        union select tree.root, inhrelid from tree join pg_catalog.pg_inherits on inhparent = tree.oid),
    part as (
        select root, c.oid, reltoastrelid, c.relallvisible, c.reloptions, a.amname, t.spcname,
            n_dead_tup, coalesce(pg_catalog.pg_relation_size(c.oid), 0) as bytes,
            greatest(last_vacuum, last_autovacuum) as vacuumed
        from tree join pg_catalog.pg_class c on c.oid = tree.oid left join pg_catalog.pg_am a on a.oid = c.relam
        left join pg_catalog.pg_tablespace t on t.oid = c.reltablespace
        left join pg_catalog.pg_stat_all_tables s on s.relid = c.oid where c.relkind in ('r', 'm'))
    select root::regclass::text, pg_catalog.count(*), pg_catalog.sum(bytes)::int8,
        pg_catalog.sum(coalesce(pg_catalog.pg_relation_size(reltoastrelid), 0))::int8,
        pg_catalog.sum(bytes / pg_catalog.current_setting('block_size')::int8)::int8,
        pg_catalog.sum(relallvisible)::int8,
        coalesce(pg_catalog.min(amname::text) filter (where amname <> 'heap'), 'heap'),
        coalesce(pg_catalog.min(spcname::text), ''),
        pg_catalog.row_security_active(root),
        pg_catalog.bool_or(coalesce(reloptions::text like '%autovacuum_enabled=%f%', false)),
        case when pg_catalog.bool_and(vacuumed is not null or bytes = 0)
            then pg_catalog.to_char(pg_catalog.min(vacuumed), 'YYYY-MM-DD HH24:MI') end,
        case when pg_catalog.bool_or(part.oid = root) then pg_catalog.string_agg(part.oid::regclass::text, ', ')
            else root::regclass::text end,
        coalesce(pg_catalog.sum(n_dead_tup), 0)::int8, pg_catalog.array_agg(part.oid), root
    from part group by root order by 3 desc, 1";

/// Columns whose values may lie outside of the heap.
const TOASTABLE: &str = "select attname::text from pg_catalog.pg_attribute
    where attrelid = $1 and attnum > 0 and not attisdropped and attlen = -1 and attstorage in ('x', 'e')
    order by attnum";

const HAS_VISIBILITY: &str = "select from pg_catalog.pg_extension where extname = 'pg_visibility'";

/// All-visible blocks of tables by their visibility maps.
const VISIBLE: &str = "select pg_catalog.sum(all_visible)::int8
    from pg_catalog.unnest($1::oid[]) t, pg_visibility_map_summary(t::regclass)";

impl Look<'_> {
    /// Those of at least this many bytes, and the number of others. If the extension is loaded, it is
    /// asked too.
    pub fn tables(&self, min_bytes: u64, is_loaded: bool) -> Result<(Vec<TableFacts>, i64)> {
        let rows = self.ask(TABLES, &[])?;
        let has_visibility = !self.ask(HAS_VISIBILITY, &[])?.is_empty();
        let mut tables = Vec::new();
        for row in rows.iter().filter(|row| amount(row, 2) >= min_bytes) {
            let mut table = table(row);
            let (parts, root): (Vec<u32>, u32) = (row.get(13), row.get(14));
            table.toastable_columns =
                self.ask(TOASTABLE, &[&root])?.iter().map(|row| row.get(0)).collect();
            // Without the right to call it, what vacuum left in the catalog has to do.
            if has_visibility && let Ok(rows) = self.ask(VISIBLE, &[&parts]) {
                table.visible_blocks = rows.first().map_or(0, |row| amount(row, 0));
                table.visibility_is_current = true;
            }
            if is_loaded {
                let planned = self.planned(&table.name, root);
                table.planned = Some(planned.map_err(|error| error.cause).into());
            }
            tables.push(table);
        }
        let others = (rows.len() - tables.len()) as i64;
        Ok((tables, others))
    }
}

fn amount(row: &Row, column: usize) -> u64 {
    row.get::<_, Option<i64>>(column).and_then(|value| u64::try_from(value).ok()).unwrap_or(0)
}

fn table(row: &Row) -> TableFacts {
    TableFacts {
        name: row.get(0),
        parts: row.get(1),
        heap_bytes: amount(row, 2),
        toast_bytes: amount(row, 3),
        blocks: amount(row, 4),
        visible_blocks: amount(row, 5),
        access_method: row.get(6),
        tablespace: row.get(7),
        has_row_security: row.get(8),
        autovacuum_is_off: row.get(9),
        vacuumed: row.get(10),
        names_to_vacuum: row.get(11),
        dead_rows: row.get(12),
        ..TableFacts::default()
    }
}
