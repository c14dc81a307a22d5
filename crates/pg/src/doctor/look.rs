//! The questions. Nothing here says what is good.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::facts::{ColumnFact, Facts, SettingFact, TableFacts};
use crate::error::Result;
use crate::session::Session;

/// The extension's own default of `headrace.min_table_size`.
const THRESHOLD_BYTES: u64 = 32 << 20;

const SETTINGS: &str = "select name, setting, coalesce(unit, '') from pg_catalog.pg_settings";

const SERVER: &str = "select pg_catalog.current_setting('server_version'),
    pg_catalog.current_setting('server_version_num')::int4, pg_catalog.current_database()::text,
    pg_catalog.current_setting('server_encoding'), pg_catalog.pg_is_in_recovery(),
    (select extversion from pg_catalog.pg_extension where extname = 'headrace'),
    (select default_version::text from pg_catalog.pg_available_extensions where name = 'headrace'),
    exists (select from pg_catalog.pg_extension where extname = 'pg_visibility'),
    pg_catalog.to_regclass('headrace.devices') is not null";

/// Own tables and materialized views with their sizes; $1 is the smallest size.
const TABLES: &str = "select c.oid, c.oid::regclass::text, pg_catalog.pg_relation_size(c.oid),
    coalesce(pg_catalog.pg_relation_size(c.reltoastrelid), 0), c.relallvisible::int8,
    coalesce(a.amname::text, ''), coalesce(t.spcname::text, ''), c.relpersistence = 'u',
    exists (select from pg_catalog.pg_inherits where inhrelid = c.oid),
    exists (select from pg_catalog.pg_inherits where inhparent = c.oid),
    pg_catalog.row_security_active(c.oid),
    coalesce(c.reloptions::text like '%autovacuum_enabled=%f%', false),
    pg_catalog.to_char(greatest(s.last_vacuum, s.last_autovacuum), 'YYYY-MM-DD HH24:MI'), coalesce(s.n_dead_tup, 0)
    from pg_catalog.pg_class c left join pg_catalog.pg_am a on a.oid = c.relam
    left join pg_catalog.pg_tablespace t on t.oid = c.reltablespace
    left join pg_catalog.pg_stat_all_tables s on s.relid = c.oid
    where c.relkind in ('r', 'm') and c.relpersistence <> 't' and c.oid >= 16384
    and c.relnamespace::regnamespace::text !~ '^(pg_toast|information_schema)'
    and pg_catalog.pg_relation_size(c.oid) >= $1
    order by pg_catalog.pg_relation_size(c.oid) desc, 2";

/// Columns with what decides whether pipelines take them. Types by OID: bool, int8, int2, int4, text, float4,
/// float8, bpchar, varchar, date, time, timestamp, timestamptz, uuid; and numeric whose digits are declared.
const COLUMNS: &str = "select attname::text, pg_catalog.format_type(atttypid, atttypmod),
    atttypid = any ('{16,20,21,23,25,700,701,1042,1043,1082,1083,1114,1184,2950}') or atttypid = 1700 and atttypmod >= 4
        and (atttypmod - 4) >> 16 between 1 and 38
        and ((((atttypmod - 4) & 2047) # 1024) - 1024) between 0 and (atttypmod - 4) >> 16,
    attlen = -1 and attstorage in ('x', 'e')
    from pg_catalog.pg_attribute where attrelid = $1 and attnum > 0 and not attisdropped order by attnum";

/// Who holds vacuum back: open for an hour or more.
const LONG_TRANSACTIONS: &str = "(select pg_catalog.format('process %s of %s, open since %s', pid, usename,
        pg_catalog.to_char(xact_start, 'YYYY-MM-DD HH24:MI'))
    from pg_catalog.pg_stat_activity
    where backend_xmin is not null and xact_start < pg_catalog.now() - interval '1 hour' order by xact_start)
    union all
    select pg_catalog.format('prepared transaction %s of %s, since %s', gid, owner,
        pg_catalog.to_char(prepared, 'YYYY-MM-DD HH24:MI'))
    from pg_catalog.pg_prepared_xacts where prepared < pg_catalog.now() - interval '1 hour'
    union all
    select pg_catalog.format('replication slot %s', slot_name) from pg_catalog.pg_replication_slots
    where pg_catalog.age(xmin) > 10000000";

const OF_INTEREST: [&str; 9] = [
    "autovacuum",
    "data_checksums",
    "effective_cache_size",
    "fsync",
    "old_snapshot_threshold",
    "shared_buffers",
    "track_counts",
    "wal_level",
    "block_size",
];

/// Everything.
pub(super) fn look(session: &Session, all: bool, cancel: &AtomicBool) -> Result<Facts> {
    let ask =
        |sql: &str, parameters: &[&(dyn ToSql + Sync)]| session.query(cancel, sql, parameters);
    let found = ask(SERVER, &[])?;
    let Some(server) = found.first() else {
        return Err(crate::PgError::new(format!("{}: no answer", session.place())));
    };
    let extension_settings =
        settings(&ask(&format!("{SETTINGS} where name like 'headrace.%'"), &[])?);
    let wanted = OF_INTEREST.map(String::from).to_vec();
    let settings = settings(&ask(&format!("{SETTINGS} where name = any ($1)"), &[&wanted])?);
    let threshold = extension_settings.get("headrace.min_table_size").and_then(SettingFact::bytes);
    let threshold_bytes = if all { 0 } else { threshold.unwrap_or(THRESHOLD_BYTES) };
    let block_bytes = settings.get("block_size").and_then(|s| s.value.parse().ok()).unwrap_or(8192);
    let (has_visibility, has_devices): (bool, bool) = (server.get(7), server.get(8));
    let smallest = i64::try_from(threshold_bytes).unwrap_or(i64::MAX);
    let every: usize = ask(TABLES, &[&0_i64])?.len();
    let mut tables = Vec::new();
    for row in ask(TABLES, &[&smallest])? {
        let (oid, mut table): (u32, _) = (row.get(0), table(&row, block_bytes));
        look_at_columns(&mut table, &ask(COLUMNS, &[&oid])?);
        // Without the right to call it, what vacuum left in the catalog has to do.
        let map = "select all_visible from pg_visibility_map_summary($1::oid::regclass)";
        if has_visibility && let Ok(rows) = ask(map, &[&oid]) {
            table.visible_blocks = rows.first().map_or(0, |row| amount(row.get(0)));
            table.visibility_is_current = true;
        }
        tables.push(table);
    }
    Ok(Facts {
        server: session.place().to_string(),
        version: server.get(0),
        version_number: server.get(1),
        database: server.get(2),
        encoding: server.get(3),
        is_standby: server.get(4),
        extension: server.get(5),
        extension_available: server.get(6),
        extension_settings,
        settings,
        devices: has_devices.then(|| {
            let rows = ask("select pg_catalog.row_to_json(d)::text from headrace.devices d", &[]);
            rows.map(|rows| rows.iter().map(|row| row.get(0)).collect())
                .map_err(|error| error.cause)
                .into()
        }),
        long_transactions: ask(LONG_TRANSACTIONS, &[])?.iter().map(|row| row.get(0)).collect(),
        threshold_bytes,
        small_tables: every.saturating_sub(tables.len()) as i64,
        tables,
    })
}

fn settings(rows: &[Row]) -> BTreeMap<String, SettingFact> {
    rows.iter()
        .map(|row| (row.get(0), SettingFact { value: row.get(1), unit: row.get(2) }))
        .collect()
}

fn amount(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

fn table(row: &Row, block_bytes: u64) -> TableFacts {
    let heap_bytes = amount(row.get(2));
    TableFacts {
        name: row.get(1),
        heap_bytes,
        toast_bytes: amount(row.get(3)),
        blocks: heap_bytes / block_bytes.max(1),
        visible_blocks: amount(row.get(4)),
        visibility_is_current: false,
        access_method: row.get(5),
        tablespace: row.get(6),
        is_unlogged: row.get(7),
        is_child: row.get(8),
        has_children: row.get(9),
        has_row_security: row.get(10),
        autovacuum_is_off: row.get(11),
        vacuumed: row.get(12),
        dead_rows: row.get(13),
        ..TableFacts::default()
    }
}

fn look_at_columns(table: &mut TableFacts, rows: &[Row]) {
    for row in rows {
        let (name, data_type, is_taken, may_be_outside): (String, String, bool, bool) =
            (row.get(0), row.get(1), row.get(2), row.get(3));
        if may_be_outside {
            table.toastable_columns.push(name.clone());
        }
        if !is_taken {
            table.columns_not_taken.push(ColumnFact { name, data_type });
        }
    }
}
