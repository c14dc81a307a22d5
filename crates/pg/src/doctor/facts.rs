//! What was seen, before anybody judged it.

use std::collections::BTreeMap;

use headrace_bench::doctor::Known;
use serde::Serialize;

/// A server, one of its databases, and that database's tables.
#[derive(Debug, Clone, Serialize)]
pub struct Facts {
    /// Host and port, or the socket's folder.
    pub server: String,
    /// Such as 15.4.
    pub version: String,
    /// The same as a number: 150004.
    pub version_number: i32,
    /// The database.
    pub database: String,
    /// Encoding of its texts.
    pub encoding: String,
    /// Whether it replays another server's log.
    pub is_standby: bool,
    /// Version of the extension in this database; absent if it is not created.
    pub extension: Option<String>,
    /// Version that could be created; absent if its files are not on the server.
    pub extension_available: Option<String>,
    /// The extension's settings; empty where new sessions do not load its library.
    pub extension_settings: BTreeMap<String, SettingFact>,
    /// Some of the server's own.
    pub settings: BTreeMap<String, SettingFact>,
    /// What `headrace.devices` says, one JSON object a row; absent without that view.
    pub devices: Option<Known<Vec<String>>>,
    /// Transactions that have been open for long and hold vacuum back, in words.
    pub long_transactions: Vec<String>,
    /// Bytes from which on a table is looked at.
    pub threshold_bytes: u64,
    /// Tables below it.
    pub small_tables: i64,
    /// The others, the largest first.
    pub tables: Vec<TableFacts>,
}

/// A setting, in the unit of its description.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SettingFact {
    /// Its value, without unit.
    pub value: String,
    /// Its unit: kB, 8kB, ms, or empty.
    pub unit: String,
}

impl SettingFact {
    /// The value in bytes; `None` if it is no amount of memory.
    pub fn bytes(&self) -> Option<u64> {
        let value: u64 = self.value.parse().ok()?;
        let unit = match self.unit.as_str() {
            "B" => 1,
            "MB" => 1 << 20,
            unit => unit.strip_suffix("kB")?.parse().unwrap_or(1) * 1024,
        };
        value.checked_mul(unit)
    }
}

/// A table with rows of its own.
#[derive(Debug, Clone, Default, Serialize)]
pub struct TableFacts {
    /// As a query names it.
    pub name: String,
    /// Bytes of its heap.
    pub heap_bytes: u64,
    /// Bytes of values that lie outside of it.
    pub toast_bytes: u64,
    /// Blocks of its heap.
    pub blocks: u64,
    /// Blocks that are visible to everybody, by the visibility map, or as the last vacuum left it.
    pub visible_blocks: u64,
    /// Whether the map itself was read (pg_visibility).
    pub visibility_is_current: bool,
    /// Access method.
    pub access_method: String,
    /// Tablespace other than the database's; empty for that.
    pub tablespace: String,
    /// Whether it survives a crash.
    pub is_unlogged: bool,
    /// Whether it is a partition, or a child of another table.
    pub is_child: bool,
    /// Whether other tables are its children.
    pub has_children: bool,
    /// Whether policies hold for this user.
    pub has_row_security: bool,
    /// Whether vacuum has to be run by hand.
    pub autovacuum_is_off: bool,
    /// When it was last vacuumed; absent if never.
    pub vacuumed: Option<String>,
    /// Rows that vacuum would remove, estimated.
    pub dead_rows: i64,
    /// Columns that pipelines do not take.
    pub columns_not_taken: Vec<ColumnFact>,
    /// Columns whose values may lie outside of the heap.
    pub toastable_columns: Vec<String>,
}

impl TableFacts {
    /// Share of its blocks that are visible to everybody; `None` without blocks.
    pub fn visible_share(&self) -> Option<f64> {
        (self.blocks > 0).then(|| (self.visible_blocks as f64 / self.blocks as f64).min(1.0))
    }
}

/// A column and its type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ColumnFact {
    /// Its name.
    pub name: String,
    /// Its type.
    pub data_type: String,
}
