//! Server-wide obstacles to reading blocks from files.

use headrace_doctor::Finding;

use super::super::facts::{Facts, SettingFact, gb};

pub(super) const THROUGH_SERVER: &str =
    "every block goes through shared buffers, instead of files read by threads";

pub(super) fn judge(facts: &Facts) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut slow = |subject: &str, found: &str, why: &str, remedy: &str| {
        findings.push(Finding::slow(subject, found, why, remedy));
    };
    let value = |name: &str| facts.settings.get(name).map(|setting| setting.value.as_str());
    if facts.is_standby {
        let remedy = "ask the primary, or export with headrace pg export";
        slow("server", "in recovery", THROUGH_SERVER, remedy);
    }
    if facts.encoding != "UTF8" {
        let found = format!("encoding {}", facts.encoding);
        let why =
            "pipelines take texts of UTF8 alone: queries with them run with PostgreSQL's own plan";
        slow("database", &found, why, "a database with ENCODING 'UTF8'");
    }
    if value("wal_level") == Some("minimal") {
        let why = "tables of the same transaction are read through shared buffers";
        slow("wal_level", "minimal", why, "wal_level = replica, and a restart");
    }
    // Servers from 17 on have no such setting.
    if let Some(threshold) = value("old_snapshot_threshold").filter(|value| *value != "-1") {
        let remedy = "old_snapshot_threshold = -1, and a restart";
        slow("old_snapshot_threshold", threshold, THROUGH_SERVER, remedy);
    }
    if value("autovacuum") == Some("off") || value("track_counts") == Some("off") {
        let why =
            "nobody marks blocks as all-visible, and others than those go through shared buffers";
        slow("autovacuum", "off", why, "autovacuum = on, track_counts = on");
    }
    for transaction in &facts.long_transactions {
        let why = "vacuum cannot mark blocks as all-visible that were written since";
        slow("open transaction", transaction, why, "end it");
    }
    let checksums = match value("data_checksums") {
        Some("on") => "on",
        _ => "off: a query during which vacuum marks blocks of its table is run twice",
    };
    findings.push(Finding::ok("data checksums", checksums));
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
