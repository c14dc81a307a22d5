//! The meaning of the facts: a function of them alone.

mod extension;
mod server;
mod table;
#[cfg(test)]
mod tests;

use headrace_doctor::Finding;

use super::facts::{Facts, gb};

/// All findings, in order: the extension exists, is enabled, can read, then table by table.
pub(super) fn judge(facts: &Facts) -> Vec<Finding> {
    let mut findings = extension::judge(facts);
    findings.extend(server::judge(facts));
    findings.extend(facts.tables.iter().flat_map(|table| table::judge(facts, table)));
    if facts.small_tables > 0 {
        let smaller = format!("{} smaller than {}", facts.small_tables, gb(facts.threshold_bytes));
        let found =
            format!("{smaller}: PostgreSQL's own (headrace.min_table_size; --all looks at them)");
        findings.push(Finding::ok("tables", found));
    }
    findings
}
