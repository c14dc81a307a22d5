//! What the facts mean: a function of them alone.

use headrace_bench::doctor::{Finding, Known};

use super::facts::{Facts, SettingFact, TableFacts};
use super::gb;

/// From this share on nearly all blocks are read from the table's files.
const VISIBLE_SHARE: f64 = 0.95;

/// A table this much beside its heap is told.
const TOAST_SHARE: f64 = 0.1;

/// The versions for which the extension is built.
const VERSIONS: std::ops::Range<i32> = 150_000..160_000;

const OWN_PLAN: &str = "its queries run with PostgreSQL's own plan";
const THROUGH_SERVER: &str =
    "every block goes through shared buffers, instead of files read by threads";

/// All findings, in the order of the question: is it there, is it on, can it read, table by table.
pub(super) fn judge(facts: &Facts) -> Vec<Finding> {
    let mut findings = vec![extension(facts)];
    if facts.extension.is_some() {
        findings.extend(extension_settings(facts));
        findings.push(devices(facts));
    }
    findings.extend(server(facts));
    findings.extend(facts.tables.iter().flat_map(|table| judge_table(facts, table)));
    if facts.small_tables > 0 {
        let smaller = format!("{} smaller than {}", facts.small_tables, gb(facts.threshold_bytes));
        let found =
            format!("{smaller}: PostgreSQL's own (headrace.min_table_size; --all looks at them)");
        findings.push(Finding::ok("tables", found));
    }
    findings
}

fn extension(facts: &Facts) -> Finding {
    let subject = "extension headrace";
    let why = "every query runs with PostgreSQL's own plan";
    match (&facts.extension, &facts.extension_available) {
        (Some(version), _) if !facts.extension_settings.is_empty() => {
            Finding::ok(subject, format!("{version}, loaded by new sessions"))
        }
        (Some(version), _) => {
            let found = format!("{version}, but new sessions do not load its library");
            Finding::broken(subject, found, why, "as a superuser: select headrace.preload(true)")
        }
        (None, Some(version)) => {
            let found =
                format!("{version} is installed, but not created in database {}", facts.database);
            Finding::broken(subject, found, why, "as a superuser: CREATE EXTENSION headrace")
        }
        (None, None) if VERSIONS.contains(&facts.version_number) => {
            let remedy = "on the server's machine, as root: make install-postgres; then CREATE EXTENSION headrace";
            Finding::broken(subject, "not installed", why, remedy)
        }
        (None, None) => {
            let found =
                format!("not installed, and there is none for PostgreSQL {}", facts.version);
            Finding::broken(
                subject,
                found,
                why,
                "headrace pg export, and query the file; or PostgreSQL 15",
            )
        }
    }
}

fn extension_settings(facts: &Facts) -> Vec<Finding> {
    let off = |name: &str| {
        facts.extension_settings.get(name).is_some_and(|setting| setting.value == "off")
    };
    let turned_off = [
        ("headrace.enabled", "every query runs with PostgreSQL's own plan"),
        ("headrace.enable_join", "joins run with PostgreSQL's own plan"),
        ("headrace.enable_direct_read", THROUGH_SERVER),
    ];
    let turned_off = turned_off.into_iter().filter(|(name, _)| off(name));
    turned_off
        .map(|(name, why)| Finding::slow(name, "off", why, format!("SET {name} = on")))
        .collect()
}

fn devices(facts: &Facts) -> Finding {
    // One process has the GPUs and everybody's work: there is nothing to share between processes.
    const NO_MPS: &str = "one process owns them, so MPS would bring nothing";
    match &facts.devices {
        None => Finding::ok("GPU", "this version of the extension runs queries on the CPU's cores"),
        Some(Known::Unknown { unknown }) => Finding::unknown("GPU", unknown),
        Some(Known::Value(devices)) if devices.is_empty() => {
            Finding::ok("GPU", "the server has none: queries run on the CPU's cores")
        }
        Some(Known::Value(devices)) => {
            Finding::ok("GPU", format!("{}; {NO_MPS}", devices.join(", ")))
        }
    }
}

fn server(facts: &Facts) -> Vec<Finding> {
    let mut findings = Vec::new();
    let value = |name: &str| facts.settings.get(name).map(|setting| setting.value.as_str());
    if facts.is_standby {
        let why = "on a standby every query runs with PostgreSQL's own plan";
        findings.push(Finding::slow(
            "server",
            "in recovery",
            why,
            "ask the primary, or export with headrace pg export",
        ));
    }
    if facts.encoding != "UTF8" {
        let found = format!("encoding {}", facts.encoding);
        let why =
            "pipelines take texts of UTF8 alone: queries with them run with PostgreSQL's own plan";
        findings.push(Finding::slow("database", found, why, "a database with ENCODING 'UTF8'"));
    }
    if value("wal_level") == Some("minimal") {
        let why = "tables of the same transaction are read through shared buffers";
        findings.push(Finding::slow(
            "wal_level",
            "minimal",
            why,
            "wal_level = replica, and a restart",
        ));
    }
    if value("old_snapshot_threshold").is_some_and(|threshold| threshold != "-1") {
        findings.push(Finding::slow(
            "old_snapshot_threshold",
            value("old_snapshot_threshold").unwrap_or_default(),
            THROUGH_SERVER,
            "old_snapshot_threshold = -1, and a restart",
        ));
    }
    if value("autovacuum") == Some("off") || value("track_counts") == Some("off") {
        let why =
            "nobody marks blocks as all-visible, and others than those go through shared buffers";
        findings.push(Finding::slow(
            "autovacuum",
            "off",
            why,
            "autovacuum = on, track_counts = on",
        ));
    }
    for transaction in &facts.long_transactions {
        let why = "vacuum cannot mark blocks as all-visible that were written since";
        findings.push(Finding::slow("open transaction", transaction, why, "end it"));
    }
    findings.push(Finding::ok(
        "data checksums",
        match value("data_checksums") {
            Some("on") => "on",
            _ => "off: a query during which vacuum marks blocks of its table is run twice",
        },
    ));
    let amount = |name: &str| {
        facts.settings.get(name).and_then(SettingFact::bytes).map_or("unknown".into(), gb)
    };
    let found = format!(
        "shared_buffers {}, effective_cache_size {}, wal_level {}",
        amount("shared_buffers"),
        amount("effective_cache_size"),
        value("wal_level").unwrap_or("unknown")
    );
    findings.push(Finding::ok("server", found));
    findings
}

/// What stands in the way of one table; if nothing does, that.
fn judge_table(facts: &Facts, table: &TableFacts) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut slow = |found: String, why: &str, remedy: String| {
        findings.push(Finding::slow(&table.name, found, why, remedy));
    };
    let name = &table.name;
    if table.access_method != "heap" {
        slow(
            format!("access method {}", table.access_method),
            OWN_PLAN,
            format!("a copy as heap: CREATE TABLE … USING heap AS TABLE {name}"),
        );
    }
    if table.is_unlogged {
        slow("unlogged".into(), OWN_PLAN, format!("ALTER TABLE {name} SET LOGGED"));
    }
    if table.has_row_security {
        slow(
            "row security for this user".into(),
            OWN_PLAN,
            "a role with BYPASSRLS, where policies allow it".into(),
        );
    }
    if table.has_children {
        slow("it has children".into(), OWN_PLAN, format!("FROM ONLY {name}, or one table"));
    } else if table.is_child {
        slow(
            "it is a partition or a child".into(),
            "queries of its parent run with PostgreSQL's own plan",
            format!("name the partition itself: FROM {name}"),
        );
    }
    visibility(table, &mut slow);
    let cache = facts.settings.get("effective_cache_size").and_then(SettingFact::bytes);
    if let Some(cache) = cache.filter(|cache| table.heap_bytes > *cache) {
        slow(
            format!("{}, and effective_cache_size is {}", gb(table.heap_bytes), gb(cache)),
            "it is read past the page cache: every query at the speed of storage",
            "if the machine's memory holds it: effective_cache_size = three quarters of that memory".into(),
        );
    }
    if !table.columns_not_taken.is_empty() {
        let columns =
            table.columns_not_taken.iter().map(|c| format!("{} ({})", c.name, c.data_type));
        slow(
            format!(
                "columns that pipelines do not take: {}",
                columns.collect::<Vec<_>>().join(", ")
            ),
            "queries that use them run with PostgreSQL's own plan; others are not affected",
            "numeric with digits, as numeric(18, 4); text for enums; or headrace pg export".into(),
        );
    }
    if table.toast_bytes as f64 > TOAST_SHARE * table.heap_bytes as f64
        && table.toast_bytes > 8 << 20
    {
        slow(
            format!(
                "{} lie in its TOAST table, of {}",
                gb(table.toast_bytes),
                table.toastable_columns.join(", ")
            ),
            "rows with such values go through shared buffers when the query uses the column",
            "a column of its own table, if it is seldom read".into(),
        );
    }
    if findings.is_empty() {
        let space = match table.tablespace.as_str() {
            "" => String::new(),
            space => format!(", tablespace {space}"),
        };
        let share = table.visible_share().unwrap_or(1.0) * 100.0;
        findings.push(Finding::ok(
            name,
            format!("{}, {share:.1}% all-visible{space}", gb(table.heap_bytes)),
        ));
    }
    findings
}

fn visibility(table: &TableFacts, slow: &mut impl FnMut(String, &str, String)) {
    let name = &table.name;
    if let Some(share) = table.visible_share().filter(|share| *share < VISIBLE_SHARE) {
        let since = table.vacuumed.as_deref().unwrap_or("never");
        let source = if table.visibility_is_current { "" } else { " as the last vacuum left it" };
        let dead = match table.dead_rows {
            0 => String::new(),
            dead => format!(", about {dead} dead rows"),
        };
        slow(
            format!(
                "{:.1}% of its blocks are all-visible{source}, vacuumed {since}{dead}",
                share * 100.0
            ),
            "the others go through shared buffers, row by row with the query's snapshot",
            format!("VACUUM {name}; CHECKPOINT"),
        );
    }
    if table.autovacuum_is_off {
        slow(
            "autovacuum is off for it".into(),
            "nobody marks what is written as all-visible",
            format!("ALTER TABLE {name} RESET (autovacuum_enabled)"),
        );
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use headrace_bench::doctor::{Counts, Level};

    use super::super::facts::ColumnFact;
    use super::*;

    fn setting(value: &str, unit: &str) -> SettingFact {
        SettingFact { value: value.into(), unit: unit.into() }
    }

    /// A server on which everything is well.
    fn well() -> Facts {
        let own = [("headrace.enabled", setting("on", ""))];
        let settings = [
            ("wal_level", setting("replica", "")),
            ("data_checksums", setting("on", "")),
            ("autovacuum", setting("on", "")),
            ("old_snapshot_threshold", setting("-1", "min")),
            ("effective_cache_size", setting("524288", "8kB")),
            ("shared_buffers", setting("16384", "8kB")),
        ];
        let map = |pairs: &[(&str, SettingFact)]| -> BTreeMap<String, SettingFact> {
            pairs.iter().map(|(name, setting)| (name.to_string(), setting.clone())).collect()
        };
        Facts {
            server: "h:5432".into(),
            version: "15.4".into(),
            version_number: 150_004,
            database: "d".into(),
            encoding: "UTF8".into(),
            is_standby: false,
            extension: Some("0.1.0".into()),
            extension_available: Some("0.1.0".into()),
            extension_settings: map(&own),
            settings: map(&settings),
            devices: None,
            long_transactions: Vec::new(),
            threshold_bytes: 32 << 20,
            small_tables: 3,
            tables: vec![TableFacts {
                name: "t".into(),
                heap_bytes: 800 << 20,
                blocks: 102_400,
                visible_blocks: 102_400,
                access_method: "heap".into(),
                vacuumed: Some("2026-01-01 00:00".into()),
                ..TableFacts::default()
            }],
        }
    }

    fn code(facts: &Facts) -> i32 {
        Counts::of(&judge(facts)).exit_code()
    }

    #[test]
    fn a_server_on_which_all_is_well_gets_no_advice() {
        let findings = judge(&well());
        assert!(findings.iter().all(|finding| finding.level == Level::Ok), "{findings:?}");
    }

    #[test]
    fn without_the_extension_the_rest_is_of_no_use() {
        let without = Facts { extension: None, extension_available: None, ..well() };
        assert!(judge(&without)[0].remedy.contains("make install-postgres"));
        assert!(judge(&Facts { version_number: 170_001, ..without })[0].found.contains("none for"));
        assert!(judge(&Facts { extension: None, ..well() })[0].remedy.contains("CREATE EXTENSION"));
        let not_loaded = Facts { extension_settings: BTreeMap::new(), ..well() };
        assert!(judge(&not_loaded)[0].remedy.contains("headrace.preload"));
        assert_eq!(code(&not_loaded), 2);
    }

    /// Changes one fact of what is well; the remedy must be among the findings, and the exit code 1.
    fn slow(change: impl FnOnce(&mut Facts), remedy: &str) {
        let mut facts = well();
        change(&mut facts);
        let findings = judge(&facts);
        let found = findings.iter().filter(|f| f.level == Level::Slow && f.remedy.contains(remedy));
        assert_eq!((found.count(), code(&facts)), (1, 1), "{remedy}: {findings:?}");
    }

    #[test]
    fn each_obstacle_is_named_with_its_remedy() {
        slow(
            |f| {
                f.extension_settings.insert("headrace.enabled".into(), setting("off", ""));
            },
            "SET headrace.enabled = on",
        );
        slow(|f| f.is_standby = true, "ask the primary");
        slow(|f| f.encoding = "LATIN1".into(), "UTF8");
        slow(
            |f| {
                f.settings.insert("wal_level".into(), setting("minimal", ""));
            },
            "wal_level = replica",
        );
        slow(
            |f| {
                f.settings.insert("old_snapshot_threshold".into(), setting("60", "min"));
            },
            "= -1",
        );
        slow(
            |f| {
                f.settings.insert("autovacuum".into(), setting("off", ""));
            },
            "autovacuum = on",
        );
        slow(|f| f.long_transactions.push("process 7".into()), "end it");
        slow(|f| f.tables[0].visible_blocks = 50_000, "VACUUM t; CHECKPOINT");
        slow(|f| f.tables[0].autovacuum_is_off = true, "RESET (autovacuum_enabled)");
        slow(|f| f.tables[0].is_unlogged = true, "SET LOGGED");
        slow(|f| f.tables[0].access_method = "columnar".into(), "USING heap");
        slow(|f| f.tables[0].has_row_security = true, "BYPASSRLS");
        slow(|f| f.tables[0].is_child = true, "FROM t");
        slow(|f| f.tables[0].has_children = true, "FROM ONLY t");
        slow(|f| f.tables[0].heap_bytes = 5 << 30, "effective_cache_size");
        slow(|f| f.tables[0].toast_bytes = 1 << 30, "seldom read");
        slow(
            |f| {
                f.tables[0]
                    .columns_not_taken
                    .push(ColumnFact { name: "j".into(), data_type: "jsonb".into() })
            },
            "numeric with digits",
        );
    }

    #[test]
    fn settings_have_units() {
        assert_eq!(setting("4096", "8kB").bytes(), Some(32 << 20));
        assert_eq!(setting("64", "kB").bytes(), Some(64 << 10));
        assert_eq!(setting("2", "MB").bytes(), Some(2 << 20));
        assert_eq!(setting("-1", "ms").bytes(), None);
    }
}
