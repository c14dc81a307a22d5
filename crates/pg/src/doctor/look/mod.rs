//! The queries. Nothing here judges.

mod plans;
mod tables;

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::facts::{DeviceFact, Devices, Facts, SettingFact};
use crate::error::{PgError, Result};
use crate::session::Session;

/// The extension's own default of `headrace.min_table_size`.
const THRESHOLD_BYTES: u64 = 32 << 20;

const SETTINGS: &str = "select name, setting, coalesce(unit, '') from pg_catalog.pg_settings";

const SERVER: &str = "select pg_catalog.current_setting('server_version'),
    pg_catalog.current_setting('server_version_num')::int4, pg_catalog.current_database()::text,
    pg_catalog.current_setting('server_encoding'), pg_catalog.pg_is_in_recovery(),
    (select extversion from pg_catalog.pg_extension where extname = 'headrace'),
    (select default_version::text from pg_catalog.pg_available_extensions where name = 'headrace')";

const DEVICES: &str = "select name, memory_bytes, memory_used_bytes from headrace.devices";

/// Transactions that hold back vacuum: open for an hour or more.
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

const OF_INTEREST: [&str; 8] = [
    "autovacuum", "data_checksums", "effective_cache_size", "old_snapshot_threshold",
    "shared_buffers", "track_counts", "wal_level", "block_size",
];

/// A connection for questions, until it is cancelled.
struct Look<'a> {
    session: &'a Session,
    cancel: &'a AtomicBool,
}

impl Look<'_> {
    fn ask(&self, sql: &str, parameters: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>> {
        self.session.query(self.cancel, sql, parameters)
    }

    fn settings(&self, which: &str) -> Result<BTreeMap<String, SettingFact>> {
        let rows = self.ask(&format!("{SETTINGS} where {which}"), &[])?;
        let fact = |row: &Row| SettingFact { value: row.get(1), unit: row.get(2) };
        Ok(rows.iter().map(|row| (row.get(0), fact(row))).collect())
    }

    fn devices(&self) -> Result<Devices> {
        self.session.take_notices();
        let device = |row: &Row| DeviceFact {
            name: row.get(0),
            memory_bytes: row.get(1),
            memory_used_bytes: row.get(2),
        };
        let devices = self.ask(DEVICES, &[])?.iter().map(device).collect();
        Ok(Devices { devices, notices: self.session.take_notices() })
    }
}

/// Everything.
pub(super) fn look(session: &Session, all: bool, cancel: &AtomicBool) -> Result<Facts> {
    let look = Look { session, cancel };
    let found = look.ask(SERVER, &[])?;
    let Some(server) = found.first() else {
        return Err(PgError::new(format!("{}: no answer", session.place())));
    };
    let extension: Option<String> = server.get(5);
    let extension_settings = look.settings("name like 'headrace.%'")?;
    let settings = look.settings(&format!("name in ('{}')", OF_INTEREST.join("', '")))?;
    let threshold = extension_settings.get("headrace.min_table_size").and_then(SettingFact::bytes);
    let threshold_bytes = if all { 0 } else { threshold.unwrap_or(THRESHOLD_BYTES) };
    let is_loaded = extension.is_some() && !extension_settings.is_empty();
    let (tables, small_tables) = look.tables(threshold_bytes, is_loaded)?;
    Ok(Facts {
        server: session.place().to_string(),
        version: server.get(0),
        version_number: server.get(1),
        database: server.get(2),
        encoding: server.get(3),
        is_standby: server.get(4),
        extension,
        extension_available: server.get(6),
        extension_settings,
        settings,
        devices: is_loaded.then(|| look.devices().map_err(|error| error.cause).into()),
        long_transactions: look.ask(LONG_TRANSACTIONS, &[])?.iter().map(|r| r.get(0)).collect(),
        threshold_bytes,
        small_tables,
        tables,
    })
}
