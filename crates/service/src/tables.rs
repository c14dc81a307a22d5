//! Tables of files that clients have asked about. They stay open from run to run: what a GPU keeps of a table, and
//! what was learned of its runs, belong to the open table.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use headrace_format::FormatError;
use headrace_format::arrow::ArrowTable;
use headrace_runner::StreamTable;

use crate::protocol::Files;

/// Open tables; the one used longest ago leaves.
const TABLES_MAX: usize = 256;

/// The open tables. The ones used last are the last.
#[derive(Debug, Default)]
pub struct OpenTables(Mutex<Vec<(Files, Arc<StreamTable>)>>);

impl OpenTables {
    fn open(&self) -> MutexGuard<'_, Vec<(Files, Arc<StreamTable>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.open().len()
    }

    /// A table: the open one if its files are still what they were, else one that is opened now.
    ///
    /// # Errors
    /// Its files are not those that the client has seen, or cannot be read.
    pub fn get(&self, files: &Files) -> Result<Arc<StreamTable>, FormatError> {
        let known = self.take(files);
        let table = match known {
            Some(table) if table.source().check_unchanged().is_ok() => table,
            _ => {
                self.leave_out_changed();
                let table = Arc::new(ArrowTable::open_described(&files.description)?);
                Arc::new(StreamTable::new(&files.name, table))
            }
        };
        let mut open = self.open();
        // Two sessions may have opened the same at the same time.
        open.retain(|(other, _)| other != files);
        if open.len() >= TABLES_MAX {
            open.remove(0);
        }
        open.push((files.clone(), Arc::clone(&table)));
        Ok(table)
    }

    fn take(&self, files: &Files) -> Option<Arc<StreamTable>> {
        let open = self.open();
        open.iter().find(|(other, _)| other == files).map(|(_, table)| Arc::clone(table))
    }

    /// Tables of files that are gone hold memory for nobody.
    fn leave_out_changed(&self) {
        let all = self.open().clone();
        let is_changed = |table: &Arc<StreamTable>| table.source().check_unchanged().is_err();
        let changed: Vec<_> =
            all.iter().map(|(_, table)| table).filter(|table| is_changed(table)).collect();
        self.open().retain(|(_, table)| !changed.iter().any(|other| Arc::ptr_eq(other, table)));
    }
}
