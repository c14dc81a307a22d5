//! The obstacles of one table.

use headrace_doctor::{Finding, Known};

use super::super::facts::{Facts, Planned, SettingFact, TableFacts, gb};

const OWN_PLAN: &str = "its queries run with PostgreSQL's own plan";

/// From this share on nearly all blocks are read from the table's files.
const VISIBLE_SHARE: f64 = 0.95;

/// A table with this much beside its heap is reported.
const TOAST_SHARE: f64 = 0.1;
const TOAST_BYTES: u64 = 8 << 20;

/// If there is no obstacle, that.
pub(super) fn judge(facts: &Facts, table: &TableFacts) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut slow = |found: String, why: &str, remedy: String| {
        findings.push(Finding::slow(&table.name, found, why, remedy));
    };
    if let Some(Known::Value(planned)) = &table.planned {
        plan(facts, table, planned, &mut slow);
    }
    visibility(table, &mut slow);
    storage(facts, table, &mut slow);
    if let Some(Known::Unknown { unknown }) = &table.planned {
        findings.push(Finding::unknown(&table.name, unknown));
    }
    if findings.is_empty() {
        findings.push(Finding::ok(&table.name, summary(table)));
    }
    findings
}

fn summary(table: &TableFacts) -> String {
    let parts = match table.parts {
        1 => String::new(),
        parts => format!(" in {parts} parts"),
    };
    let space = match table.tablespace.as_str() {
        "" => String::new(),
        space => format!(", tablespace {space}"),
    };
    let share = table.visible_share().unwrap_or(1.0) * 100.0;
    format!("{}{parts}, {share:.1}% all-visible{space}", gb(table.heap_bytes))
}

/// The extension's reasons.
fn plan(
    facts: &Facts,
    table: &TableFacts,
    planned: &Planned,
    slow: &mut impl FnMut(String, &str, String),
) {
    for obstacle in &planned.obstacles {
        slow(obstacle.clone(), OWN_PLAN, way_around(table));
    }
    if !planned.columns_not_taken.is_empty() {
        let columns = planned.columns_not_taken.iter();
        let columns: Vec<_> = columns.map(|c| format!("{} ({})", c.name, c.why_not)).collect();
        slow(
            format!("columns that pipelines do not take: {}", columns.join(", ")),
            "queries that use them run with PostgreSQL's own plan; others are not affected",
            "numeric with digits, as numeric(18, 4); or headrace pg export".into(),
        );
    }
    costs(facts, table, planned, slow);
}

fn way_around(table: &TableFacts) -> String {
    let name = &table.name;
    if table.has_row_security {
        "a role with BYPASSRLS, where policies allow it".into()
    } else if table.access_method != "heap" {
        format!("a copy as heap: CREATE TABLE … USING heap AS TABLE {name}")
    } else {
        format!("headrace pg export --table {name}, and query the file")
    }
}

/// A table that could be streamed but costs more by the planner's estimate.
fn costs(
    facts: &Facts,
    table: &TableFacts,
    planned: &Planned,
    slow: &mut impl FnMut(String, &str, String),
) {
    let setting = |name: &str| facts.extension_settings.get(name);
    let threshold = setting("headrace.min_table_size").and_then(SettingFact::bytes).unwrap_or(0);
    let is_off = setting("headrace.enabled").is_some_and(|setting| setting.value == "off");
    let is_possible = planned.obstacles.is_empty() && table.heap_bytes >= threshold;
    if !is_possible || planned.is_taken || is_off {
        return;
    }
    let startup_cost = setting("headrace.startup_cost").map_or("unknown", |cost| &cost.value);
    slow(
        format!(
            "to read all of it costs {:.0} with PostgreSQL's own plan, which the planner takes; \
             headrace.startup_cost is {startup_cost}",
            planned.own_cost
        ),
        OWN_PLAN,
        format!("ANALYZE {}; if it stays so, a smaller headrace.startup_cost", table.name),
    );
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
            format!("VACUUM {}; CHECKPOINT", table.names_to_vacuum),
        );
    }
    if table.autovacuum_is_off {
        slow(
            "autovacuum is off for it".into(),
            "nobody marks what is written as all-visible",
            match table.parts {
                1 => format!("ALTER TABLE {name} RESET (autovacuum_enabled)"),
                _ => "ALTER TABLE … RESET (autovacuum_enabled), of each part".into(),
            },
        );
    }
}

fn storage(facts: &Facts, table: &TableFacts, slow: &mut impl FnMut(String, &str, String)) {
    let cache = facts.settings.get("effective_cache_size").and_then(SettingFact::bytes);
    if let Some(cache) = cache.filter(|cache| table.heap_bytes > *cache) {
        slow(
            format!("{}, and effective_cache_size is {}", gb(table.heap_bytes), gb(cache)),
            "it is read past the page cache: every query at the speed of storage",
            "if the machine's memory holds it: effective_cache_size = three quarters of that memory".into(),
        );
    }
    let toast_bytes_max = (TOAST_SHARE * table.heap_bytes as f64).max(TOAST_BYTES as f64);
    if table.toast_bytes as f64 > toast_bytes_max {
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
}
