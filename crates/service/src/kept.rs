//! Tables that are kept in the memory of a GPU, by name: their columns do not leave, and other processes map them.
//!
//! ```text
//! ALTER TABLE t SET (residence = 'gpu') ──Keep──► columns are brought, the name and the files are written down
//! a reader ───────────────────────Map──► handles of the columns' memory; its connection is its lease
//! the service starts ───────────────────► what was written down is brought again, unless files have changed
//! ```
//!
//! A column's memory is freed when neither its table nor any lease has it. A reader that dies loses its connection, and so
//! its lease. Files that change make the table stale: queries read the files then, and nobody maps what was kept.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use headrace_flow::CancelToken;
use headrace_runner::{HeldColumns, RunError, Runner, StreamTable};

use crate::process::say;
use crate::protocol::{Files, KeptTable, Mapped, MappedColumn};
use crate::tables::OpenTables;

/// What is kept, in the folder of the service.
const LIST_NAME: &str = "headrace-service.tables";

/// A table that is kept.
#[derive(Clone)]
struct Kept {
    files: Files,
    table: Arc<StreamTable>,
    held: Arc<HeldColumns>,
    /// One for each reader.
    lease: Arc<()>,
}

/// The tables that are kept, by their names.
#[derive(Default)]
pub(crate) struct KeptTables {
    tables: Mutex<BTreeMap<String, Kept>>,
    /// Held while the list is changed on disk.
    list: Mutex<()>,
}

/// What brings columns, and what opens tables.
type With<'a> = (&'a Runner, &'a OpenTables);

/// What keeps a reader's columns where they are.
pub(crate) struct Lease {
    _held: Arc<HeldColumns>,
    _one: Arc<()>,
}

impl KeptTables {
    fn tables(&self) -> MutexGuard<'_, BTreeMap<String, Kept>> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a table, in place of one of its name, unless that is this one.
    pub fn keep(&self, files: Files, with: With<'_>, token: &CancelToken) -> Result<(), RunError> {
        let name = files.name.clone();
        let known = self.tables().get(&name).cloned();
        let is_this =
            |kept: Kept| kept.files == files && kept.table.source().check_unchanged().is_ok();
        if known.is_some_and(is_this) {
            return Ok(());
        }
        // There need not be room for both.
        drop(self.tables().remove(&name));
        let kept = held(files, with, token)?;
        self.tables().insert(name, kept);
        self.write_list();
        Ok(())
    }

    /// Lets a table go; whether it was there. Readers keep what they have mapped.
    pub fn release(&self, name: &str) -> bool {
        let released = self.tables().remove(name);
        if released.is_some() {
            self.write_list();
        }
        released.is_some()
    }

    /// What is kept.
    pub fn list(&self) -> Vec<KeptTable> {
        let tables: Vec<_> = self.tables().values().cloned().collect();
        tables.iter().map(Kept::told).collect()
    }

    /// How a reader maps columns of a table, all if it names none, and what keeps them there.
    pub fn map(&self, name: &str, columns: &[String]) -> Result<(Mapped, Lease), String> {
        let kept = self.tables().get(name).cloned();
        let Some(Kept { held, table, lease, .. }) = kept else {
            let names: Vec<_> = self.tables().keys().cloned().collect();
            let there = if names.is_empty() { "none".into() } else { names.join(", ") };
            return Err(format!(
                "no table {name} is kept on a GPU\n\
                 hint: ALTER TABLE {name} SET (residence = 'gpu'); there are: {there}"
            ));
        };
        if let Err(why) = table.source().check_unchanged() {
            return Err(format!(
                "{why}\nhint: ALTER TABLE {name} SET (residence = 'gpu') brings it again"
            ));
        }
        let is_wanted = |name: &String| columns.is_empty() || columns.contains(name);
        let known = || held.columns.iter().map(|column| &column.field.name);
        if let Some(missing) = columns.iter().find(|&wanted| !known().any(|name| name == wanted)) {
            let known: Vec<_> = known().cloned().collect();
            return Err(format!(
                "table {name} keeps no column {missing} on the GPU; it keeps {}",
                known.join(", ")
            ));
        }
        let wanted = held.columns.iter().filter(|column| is_wanted(&column.field.name));
        let mapped = wanted.map(|column| {
            let parts = column.mapped().map_err(|error| error.to_string())?;
            Ok(MappedColumn { field: column.field.clone(), parts })
        });
        let columns = mapped.collect::<Result<_, String>>()?;
        let mapped = Mapped { gpu: held.gpu.uuid.clone(), columns };
        Ok((mapped, Lease { _held: Arc::clone(&held), _one: lease }))
    }

    /// Brings what was kept when the service ended.
    pub fn bring_again(&self, with: With<'_>, token: &CancelToken) {
        let listed: Vec<Files> = match std::fs::read(LIST_NAME) {
            Ok(text) => serde_json::from_slice(&text).unwrap_or_else(|cause| {
                say(&format!("{LIST_NAME} is left alone: {cause}"));
                Vec::new()
            }),
            Err(_) => return,
        };
        for files in listed {
            let name = files.name.clone();
            // Somebody was faster.
            if self.tables().contains_key(&name) {
                continue;
            }
            match held(files, with, token) {
                Ok(kept) => {
                    self.tables().entry(name.clone()).or_insert(kept);
                    say(&format!("table {name} is on the GPU again"));
                }
                Err(cause) => say(&format!("table {name} is not on the GPU again: {cause}")),
            }
        }
    }

    /// Writes down what is kept.
    fn write_list(&self) {
        let _alone = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        let files: Vec<Files> = self.tables().values().map(|kept| kept.files.clone()).collect();
        if let Err(cause) = write_whole(Path::new(LIST_NAME), &files) {
            say(&format!(
                "{LIST_NAME} cannot be written, and a new service will know less: {cause}"
            ));
        }
    }
}

/// Puts a list in a file's place.
fn write_whole(path: &Path, files: &[Files]) -> io::Result<()> {
    let beside = path.with_extension("tables.partial");
    std::fs::write(&beside, serde_json::to_vec(files)?)?;
    std::fs::rename(beside, path)
}

/// Brings the columns of a table that can be held.
fn held(files: Files, (runner, tables): With<'_>, token: &CancelToken) -> Result<Kept, RunError> {
    let table = tables.get(&files)?;
    let columns = runner.holdable(&table);
    let held = Arc::new(runner.hold(&table, &columns, token)?);
    Ok(Kept { files, table, held, lease: Arc::default() })
}

impl Kept {
    fn told(&self) -> KeptTable {
        let schema = self.table.source().schema();
        let held = |name: &str| self.held.columns.iter().any(|column| column.field.name == name);
        let others = schema.fields().iter().map(|field| field.name()).filter(|name| !held(name));
        KeptTable {
            name: self.files.name.clone(),
            columns: self.held.columns.iter().map(|column| column.field.name.clone()).collect(),
            others: others.cloned().collect(),
            rows: self.held.columns.first().map_or(0, |column| column.rows()),
            bytes: self.held.columns.iter().map(|column| column.bytes()).sum(),
            // The table has one, and this copy of it.
            readers: Arc::strong_count(&self.lease).saturating_sub(2) as u64,
            stale: self.table.source().check_unchanged().err().map(|cause| cause.to_string()),
        }
    }
}
