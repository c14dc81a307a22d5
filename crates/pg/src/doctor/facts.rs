//! The observed facts, before any judgement.

use std::collections::BTreeMap;

use headrace_doctor::Known;
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
    /// The extension's settings; empty if new sessions do not load its library.
    pub extension_settings: BTreeMap<String, SettingFact>,
    /// Some of the server's own.
    pub settings: BTreeMap<String, SettingFact>,
    /// The content of `headrace.devices`; absent if new sessions do not load the extension's
    /// library.
    pub devices: Option<Known<Devices>>,
    /// Long-running transactions that hold back vacuum, in words.
    pub long_transactions: Vec<String>,
    /// Minimum bytes of an examined table.
    pub threshold_bytes: u64,
    /// Smaller tables.
    pub small_tables: i64,
    /// The others, largest first.
    pub tables: Vec<TableFacts>,
}

/// A setting, in the unit of its description.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SettingFact {
    /// Its value without unit.
    pub value: String,
    /// Its unit: kB, 8kB, ms, or empty.
    pub unit: String,
}

impl SettingFact {
    /// The value in bytes; `None` if it is not an amount of memory.
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

/// The GPUs of the server's machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Devices {
    /// Each GPU.
    pub devices: Vec<DeviceFact>,
    /// The notice beside them: why there are none.
    pub notices: Vec<String>,
}

/// A GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeviceFact {
    /// Its name.
    pub name: String,
    /// Its memory.
    pub memory_bytes: i64,
    /// Memory in use by any process.
    pub memory_used_bytes: Option<i64>,
}

/// A table with all of its partitions or children.
#[derive(Debug, Clone, Default, Serialize)]
pub struct TableFacts {
    /// Its name as in a query.
    pub name: String,
    /// Number of tables with its rows: 1, or its partitions or children.
    pub parts: i64,
    /// Bytes of their heaps.
    pub heap_bytes: u64,
    /// Bytes of values outside of them.
    pub toast_bytes: u64,
    /// Blocks of the heaps.
    pub blocks: u64,
    /// All-visible blocks, by the visibility map, or as of the last vacuum.
    pub visible_blocks: u64,
    /// Whether the map itself was read (pg_visibility).
    pub visibility_is_current: bool,
    /// Access method; of parts one other than heap, if there is one.
    pub access_method: String,
    /// Tablespace other than the database's; empty for that.
    pub tablespace: String,
    /// Whether row security applies to this user.
    pub has_row_security: bool,
    /// Whether at least one part needs a manual vacuum.
    pub autovacuum_is_off: bool,
    /// When it, and each part of it, was last vacuumed; absent if one never was.
    pub vacuumed: Option<String>,
    /// The arguments of VACUUM for all parts.
    pub names_to_vacuum: String,
    /// Estimated rows that vacuum would remove.
    pub dead_rows: i64,
    /// The extension's view; absent if new sessions do not load its library.
    pub planned: Option<Known<Planned>>,
    /// Columns whose values may lie outside of the heap.
    pub toastable_columns: Vec<String>,
}

impl TableFacts {
    /// Share of all-visible blocks; `None` without blocks.
    pub fn visible_share(&self) -> Option<f64> {
        (self.blocks > 0).then(|| (self.visible_blocks as f64 / self.blocks as f64).min(1.0))
    }
}

/// EXPLAIN's information on a query that reads all of a table's rows.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Planned {
    /// Why no pipeline streams it, whatever its size and cost, in the extension's words.
    pub obstacles: Vec<String>,
    /// Columns that pipelines do not take, with the reason.
    pub columns_not_taken: Vec<ColumnFact>,
    /// Whether the planner uses a pipeline with the current settings.
    pub is_taken: bool,
    /// The cost of PostgreSQL's own plan, in the planner's units.
    pub own_cost: f64,
}

/// A column that pipelines do not take.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ColumnFact {
    /// Its name.
    pub name: String,
    /// The reason.
    pub why_not: String,
}

/// Human-readable bytes.
pub(super) fn gb(bytes: u64) -> String {
    match bytes {
        0..100_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.2} GB", bytes as f64 / 1e9),
    }
}
