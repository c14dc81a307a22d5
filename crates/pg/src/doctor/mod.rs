//! Explains from outside why a server's table is not read faster.
//!
//! ```text
//! look: catalogs, settings, statistics ──► Facts ──judge──► findings ──► Report (text, JSON, exit code)
//! ```
//!
//! Observation and judgement are separate, as in the doctor of paths, whose findings and report
//! these are. The session is new and like the user's own, so what it lacks, the user's lacks.

mod facts;
mod judge;
mod look;

use std::fmt::Write;
use std::sync::atomic::AtomicBool;

use facts::gb;
pub use facts::{ColumnFact, Facts, SettingFact, TableFacts};

use crate::dsn;
use crate::error::Result;
use crate::session::Session;

/// The facts and findings about a server.
pub type Report = headrace_doctor::Report<Facts>;

/// Examines the server of a DSN, and its tables from `headrace.min_table_size` on, or `all`.
///
/// # Errors
/// The server cannot be reached, or denies access to its catalogs.
pub fn examine(dsn: &str, all: bool, cancel: &AtomicBool) -> Result<Report> {
    let server = dsn::resolve(dsn, &|name| std::env::var(name).ok())?;
    let session = Session::connect(&server, cancel)?;
    let facts = look::look(&session, all, cancel)?;
    let findings = judge::judge(&facts);
    Ok(Report::judged(facts, findings))
}

/// The readable report: the tables, then findings, worst first.
pub fn render(report: &Report) -> String {
    let facts = &report.facts;
    let mut text =
        format!("{}, PostgreSQL {}, database {}\n", facts.server, facts.version, facts.database);
    let width = facts.tables.iter().map(|table| table.name.chars().count()).max().unwrap_or(0);
    for table in &facts.tables {
        let visible =
            table.visible_share().map_or("-".into(), |share| format!("{:.1}%", share * 100.0));
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "  {:<width$}  {:>9}  {visible:>6} all-visible, vacuumed {}",
            table.name,
            gb(table.heap_bytes),
            table.vacuumed.as_deref().unwrap_or("never")
        );
    }
    text + "\n" + &headrace_doctor::render_judged(report)
}
