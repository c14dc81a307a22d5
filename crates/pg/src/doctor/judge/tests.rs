use std::collections::BTreeMap;

use headrace_doctor::{Counts, Known, Level};

use super::super::facts::{ColumnFact, DeviceFact, Devices, Planned, SettingFact, TableFacts};
use super::*;

fn setting(value: &str, unit: &str) -> SettingFact {
    SettingFact { value: value.into(), unit: unit.into() }
}

/// A server without any problem.
fn well() -> Facts {
    let own = [
        ("headrace.enabled", setting("on", "")),
        ("headrace.min_table_size", setting("4096", "8kB")),
        ("headrace.min_gpu_table_size", setting("32768", "8kB")),
        ("headrace.processor", setting("auto", "")),
        ("headrace.startup_cost", setting("500", "")),
    ];
    let settings = [
        ("wal_level", setting("replica", "")),
        ("data_checksums", setting("on", "")),
        ("autovacuum", setting("on", "")),
        ("effective_cache_size", setting("524288", "8kB")),
        ("shared_buffers", setting("16384", "8kB")),
    ];
    let map = |pairs: &[(&str, SettingFact)]| -> BTreeMap<String, SettingFact> {
        pairs.iter().map(|(name, setting)| (name.to_string(), setting.clone())).collect()
    };
    let gpu = DeviceFact {
        name: "NVIDIA H200".into(),
        memory_bytes: 150_000_000_000,
        memory_used_bytes: Some(0),
    };
    Facts {
        server: "h:5432".into(),
        version: "18.1".into(),
        version_number: 180_001,
        database: "d".into(),
        encoding: "UTF8".into(),
        is_standby: false,
        extension: Some("0.1.0".into()),
        extension_available: Some("0.1.0".into()),
        extension_settings: map(&own),
        settings: map(&settings),
        devices: Some(Known::Value(Devices { devices: vec![gpu], notices: Vec::new() })),
        long_transactions: Vec::new(),
        threshold_bytes: 32 << 20,
        small_tables: 3,
        tables: vec![TableFacts {
            name: "t".into(),
            parts: 1,
            heap_bytes: 800 << 20,
            blocks: 102_400,
            visible_blocks: 102_400,
            access_method: "heap".into(),
            vacuumed: Some("2026-01-01 00:00".into()),
            names_to_vacuum: "t".into(),
            planned: Some(Known::Value(Planned { is_taken: true, ..Planned::default() })),
            ..TableFacts::default()
        }],
    }
}

fn code(facts: &Facts) -> i32 {
    Counts::of(&judge(facts)).exit_code()
}

fn planned(facts: &mut Facts, change: impl FnOnce(&mut Planned)) {
    let mut planned = Planned { is_taken: true, ..Planned::default() };
    change(&mut planned);
    facts.tables[0].planned = Some(Known::Value(planned));
}

#[test]
fn a_server_on_which_all_is_well_gets_no_advice() {
    let findings = judge(&well());
    assert!(findings.iter().all(|finding| finding.level == Level::Ok), "{findings:?}");
    let said = |subject: &str| findings.iter().find(|f| f.subject == subject).map(|f| &*f.found);
    assert!(said("GPU").is_some_and(|found| found.contains("H200, 150.00 GB")), "{findings:?}");
    assert!(said("GPU service").is_some_and(|found| found.contains("MPS")));
    let auto = said("headrace.processor");
    assert!(auto.is_some_and(|found| found.contains("268.44 MB") || found.contains("0.27 GB")));
}

#[test]
fn without_the_extension_the_rest_is_of_no_use() {
    let without = Facts { extension: None, extension_available: None, ..well() };
    for (version_number, remedy) in [
        (140_011, "PostgreSQL 15 to 18"),
        (150_004, "make install-postgres"),
        (160_000, "make install-postgres"),
        (180_001, "make install-postgres"),
        (190_000, "PostgreSQL 15 to 18"),
    ] {
        let facts = Facts { version_number, ..without.clone() };
        assert!(judge(&facts)[0].remedy.contains(remedy), "{version_number}");
    }
    assert!(judge(&Facts { extension: None, ..well() })[0].remedy.contains("CREATE EXTENSION"));
    let not_loaded = Facts { extension_settings: BTreeMap::new(), devices: None, ..well() };
    assert!(judge(&not_loaded)[0].remedy.contains("headrace.preload"));
    assert_eq!(code(&not_loaded), 2);
}

/// Breaks one fact; the remedy must be among the findings, and the exit code 1.
fn slow(change: impl FnOnce(&mut Facts), remedy: &str) {
    let mut facts = well();
    change(&mut facts);
    let findings = judge(&facts);
    let found = findings.iter().filter(|f| f.level == Level::Slow && f.remedy.contains(remedy));
    assert_eq!((found.count(), code(&facts)), (1, 1), "{remedy}: {findings:?}");
}

#[test]
fn each_obstacle_of_the_server_is_named_with_its_remedy() {
    for (name, value, remedy) in [
        ("headrace.enabled", "off", "SET headrace.enabled = on"),
        ("headrace.enable_direct_read", "off", "SET headrace.enable_direct_read = on"),
        ("headrace.enable_of_tomorrow", "off", "SET headrace.enable_of_tomorrow = on"),
        ("headrace.processor", "cpu", "headrace.processor = auto"),
    ] {
        let set = |f: &mut Facts| f.extension_settings.insert(name.into(), setting(value, ""));
        slow(|f| drop(set(f)), remedy);
    }
    for (name, value, remedy) in [
        ("wal_level", "minimal", "wal_level = replica"),
        ("old_snapshot_threshold", "60", "= -1"),
        ("autovacuum", "off", "autovacuum = on"),
    ] {
        slow(|f| drop(f.settings.insert(name.into(), setting(value, ""))), remedy);
    }
    slow(|f| f.is_standby = true, "ask the primary");
    slow(|f| f.encoding = "LATIN1".into(), "UTF8");
    slow(|f| f.long_transactions.push("process 7".into()), "end it");
}

#[test]
fn each_obstacle_of_a_table_is_named_with_its_remedy() {
    slow(|f| f.tables[0].visible_blocks = 50_000, "VACUUM t; CHECKPOINT");
    slow(|f| f.tables[0].autovacuum_is_off = true, "RESET (autovacuum_enabled)");
    slow(|f| f.tables[0].heap_bytes = 5 << 30, "effective_cache_size");
    slow(|f| f.tables[0].toast_bytes = 1 << 30, "seldom read");
    // What the extension says decides; what is known of the table says what to do about it.
    for (change, remedy) in [
        ((|t| t.access_method = "columnar".into()) as fn(&mut TableFacts), "USING heap"),
        (|t| t.has_row_security = true, "BYPASSRLS"),
        (|_| (), "headrace pg export --table t"),
    ] {
        let refused = |f: &mut Facts| {
            change(&mut f.tables[0]);
            planned(f, |p| p.obstacles.push("t is not taken".into()));
        };
        slow(refused, remedy);
        let mut taken = well();
        change(&mut taken.tables[0]);
        assert_eq!(code(&taken), 0, "{remedy}");
    }
    let column = ColumnFact { name: "j".into(), why_not: "type jsonb".into() };
    slow(|f| planned(f, |p| p.columns_not_taken.push(column)), "numeric with digits");
}

#[test]
fn a_plan_that_costs_less_is_told_above_the_threshold_alone() {
    let dear = |f: &mut Facts| {
        planned(f, |p| {
            p.is_taken = false;
            p.own_cost = 123.4;
        });
    };
    slow(dear, "headrace.startup_cost");
    let mut small = well();
    dear(&mut small);
    small.tables[0].heap_bytes = 1 << 20;
    assert_eq!(code(&small), 0);
}

#[test]
fn a_machine_without_a_gpu_says_why() {
    let notices = vec!["no GPU: no driver".into()];
    let none = Some(Known::Value(Devices { devices: Vec::new(), notices }));
    let facts = Facts { devices: none.clone(), ..well() };
    assert!(judge(&facts).iter().any(|f| f.level == Level::Ok && f.found.contains("no driver")));
    slow(
        |f| {
            f.devices = none;
            f.extension_settings.insert("headrace.processor".into(), setting("cuda", ""));
        },
        "headrace.processor = auto",
    );
}

#[test]
fn settings_have_units() {
    assert_eq!(setting("4096", "8kB").bytes(), Some(32 << 20));
    assert_eq!(setting("64", "kB").bytes(), Some(64 << 10));
    assert_eq!(setting("2", "MB").bytes(), Some(2 << 20));
    assert_eq!(setting("-1", "ms").bytes(), None);
}
