//! What an executor runs tasks with: one runner, with one memory budget, and the tables that are open.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use datafusion::common::Result;
use headrace_engine::Session;
use headrace_engine::catalog::open_portable;
use headrace_runner::{Runner, Settings, StreamTable};
use parking_lot::Mutex;

use crate::message::NamedTable;

/// Open tables at most; the one used longest ago leaves.
const TABLES_MAX: usize = 256;

/// An executor's own.
pub struct Place {
    runner: Arc<Runner>,
    /// Where others reach it.
    address: String,
    settings: Settings,
    /// The ones used last are the last.
    tables: Mutex<Vec<(NamedTable, Arc<StreamTable>)>>,
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Place({} tables)", self.tables.lock().len())
    }
}

impl Place {
    /// With the runner and the settings of a session; others reach it at an address.
    pub fn of(session: &Session, address: SocketAddr) -> Self {
        let (runner, settings) = (Arc::clone(session.runner()), session.settings());
        Self { runner, address: address.to_string(), settings, tables: Mutex::default() }
    }

    /// What runs programs.
    pub fn runner(&self) -> &Runner {
        &self.runner
    }

    /// Where others reach it.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// How a program is run here: whoever sent it says on which processor, and how its bytes reach that; threads and devices
    /// are this machine's.
    pub fn settings(&self, sent: &Settings) -> Settings {
        let Settings { processor, fallback, access, .. } = *sent;
        Settings { processor, fallback, access, ..self.settings.clone() }
    }

    /// A table: the open one if its files are still what they were, else one that is opened now.
    ///
    /// # Errors
    /// Its files are not those that were seen where the query came from, or cannot be read.
    pub fn table(&self, named: &NamedTable) -> Result<Arc<StreamTable>> {
        let known = self.known(named);
        let table = match known {
            Some(table) if table.source().check_unchanged().is_ok() => table,
            _ => open_portable(&named.name, &named.table)?,
        };
        let mut tables = self.tables.lock();
        // Two tasks may have opened the same at the same time.
        tables.retain(|(other, _)| other != named);
        if tables.len() >= TABLES_MAX {
            tables.remove(0);
        }
        tables.push((named.clone(), Arc::clone(&table)));
        Ok(table)
    }

    fn known(&self, named: &NamedTable) -> Option<Arc<StreamTable>> {
        let tables = self.tables.lock();
        tables.iter().find(|(other, _)| other == named).map(|(_, table)| Arc::clone(table))
    }
}
