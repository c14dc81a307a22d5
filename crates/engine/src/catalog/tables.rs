//! The tables that a session knows by name, and those that are named by their path.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::common::{DataFusionError, Result, exec_err};
use datafusion::datasource::TableType;
use headrace_io::{ReadAt, SourceFile};
use parking_lot::{Mutex, RwLock};
use tokio::task::spawn_blocking;

use super::files::{Files, TableKind, kind_of, refused, table_name};
use super::planned::PlannedTable;
use super::remote::{is_address, shown_path};
use super::{FoundTable, HeadraceTable, TableEntry};

/// Tables named by a path that are kept open.
const PATHS_MAX: usize = 256;

/// How long the planner takes a table that lies elsewhere as it was opened for its query: another version found in
/// between would be another round trip, and the error of nobody.
const REOPENED_AFTER: Duration = Duration::from_secs(5);

/// Files and folders as tables. Each is opened when it is first named, and anew when its files have changed
/// since. What is wrong with one is its own error.
#[derive(Debug, Default)]
pub struct Tables {
    by_name: RwLock<BTreeMap<String, Slot>>,
    by_path: Mutex<BTreeMap<String, Arc<FileTable>>>,
}

#[derive(Clone, Debug)]
enum Slot {
    /// Somebody made it.
    Given(Arc<dyn TableProvider>),
    /// Of one path, unless several claim the name.
    Files(Vec<Arc<FileTable>>),
}

enum Named {
    Given(Arc<dyn TableProvider>),
    File(Arc<FileTable>),
}

async fn opened(files: Arc<FileTable>) -> Result<Arc<dyn TableProvider>> {
    let opened = spawn_blocking(move || files.current()).await;
    opened.map_err(|e| DataFusionError::ExecutionJoin(Box::new(e)))?
}

impl Tables {
    /// Makes tables known, in place of what has their names.
    pub fn add(&self, found: &[FoundTable]) {
        let mut by_name = self.by_name.write();
        for table in found {
            let files = Arc::new(FileTable::new(&table.name, &table.path));
            match by_name.get_mut(&table.name) {
                Some(Slot::Files(same)) if same.iter().any(|f| f.path == table.path) => {}
                Some(Slot::Files(same)) => same.push(files),
                _ => {
                    by_name.insert(table.name.clone(), Slot::Files(vec![files]));
                }
            }
        }
    }

    /// The table of a name or path, as its files are now; `None`: there is none.
    ///
    /// # Errors
    /// What keeps its files from being a table.
    pub async fn open(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        match self.slot(name)? {
            None => Ok(None),
            Some(Named::Given(table)) => Ok(Some(table)),
            Some(Named::File(files)) => opened(files).await.map(Some),
        }
    }

    /// What a name or path stands for.
    fn slot(&self, name: &str) -> Result<Option<Named>> {
        let slot = self.by_name.read().get(name).cloned();
        let files = match slot {
            Some(Slot::Given(table)) => Some(Named::Given(table)),
            Some(Slot::Files(same)) => match same.as_slice() {
                [one] => Some(Named::File(Arc::clone(one))),
                several => {
                    let paths: Vec<_> =
                        several.iter().map(|f| shown_path(&f.path).display().to_string()).collect();
                    return exec_err!(
                        "table {name} could be {}\nhint: name one by its path: select .. from '{}'",
                        paths.join(" or "),
                        paths.first().map_or("", String::as_str)
                    );
                }
            },
            None => self.by_path(name).map(Named::File),
        };
        Ok(files)
    }

    fn by_path(&self, name: &str) -> Option<Arc<FileTable>> {
        let path = Path::new(name);
        let could_be = name.contains('/') || kind_of(path).is_some();
        // What an address names is told by opening it.
        if !could_be || (!is_address(path) && std::fs::symlink_metadata(path).is_err()) {
            return None;
        }
        let mut by_path = self.by_path.lock();
        if by_path.len() >= PATHS_MAX {
            by_path.clear();
        }
        let new = || Arc::new(FileTable::new(&table_name(path), path));
        Some(Arc::clone(by_path.entry(name.to_string()).or_insert_with(new)))
    }
}

#[async_trait]
impl SchemaProvider for Tables {
    fn table_names(&self) -> Vec<String> {
        self.by_name.read().keys().cloned().collect()
    }

    /// `None` for one that cannot be opened, lest it spoil lists of all tables: queries ask
    /// [`open`](Tables::open) first.
    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        Ok(match self.slot(name) {
            Ok(Some(Named::Given(table))) => Some(table),
            Ok(Some(Named::File(files))) => match files.recent() {
                Some(table) => Some(table),
                None => opened(files).await.ok(),
            },
            Ok(None) | Err(_) => None,
        })
    }

    async fn table_type(&self, name: &str) -> Result<Option<TableType>> {
        Ok(self.by_name.read().get(name).map(|slot| match slot {
            Slot::Given(table) => table.table_type(),
            Slot::Files(_) => TableType::Base,
        }))
    }

    fn register_table(
        &self,
        name: String,
        table: Arc<dyn TableProvider>,
    ) -> Result<Option<Arc<dyn TableProvider>>> {
        let mut by_name = self.by_name.write();
        if by_name.contains_key(&name) {
            return exec_err!("The table {name} already exists");
        }
        by_name.insert(name, Slot::Given(table));
        Ok(None)
    }

    fn deregister_table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        Ok(match self.by_name.write().remove(name) {
            Some(Slot::Given(table)) => Some(table),
            Some(Slot::Files(files)) => files.first().and_then(|file| file.last()),
            None => None,
        })
    }

    fn table_exist(&self, name: &str) -> bool {
        self.by_name.read().contains_key(name) || self.by_path(name).is_some()
    }
}

/// A table of a file or folder.
#[derive(Debug)]
struct FileTable {
    name: String,
    path: PathBuf,
    opened: Mutex<Option<Opened>>,
}

#[derive(Debug)]
struct Opened {
    files: Files,
    table: Arc<dyn TableProvider>,
    /// When its files were last listed.
    listed: Instant,
}

impl FileTable {
    fn new(name: &str, path: &Path) -> Self {
        Self { name: name.to_string(), path: path.to_path_buf(), opened: Mutex::default() }
    }

    fn last(&self) -> Option<Arc<dyn TableProvider>> {
        self.opened.lock().as_ref().map(|opened| Arc::clone(&opened.table))
    }

    /// The table as it was opened for the query that is being planned, if it lies elsewhere.
    fn recent(&self) -> Option<Arc<dyn TableProvider>> {
        // Whoever holds it waits for a server.
        let opened = self.opened.try_lock()?;
        let is_recent = |opened: &&Opened| opened.listed.elapsed() < REOPENED_AFTER;
        let recent = opened.as_ref().filter(is_recent).filter(|_| is_address(&self.path));
        recent.map(|opened| Arc::clone(&opened.table))
    }

    /// The table of the files that there are now: the same as before if nothing has changed.
    fn current(&self) -> Result<Arc<dyn TableProvider>> {
        let mut opened = self.opened.lock();
        let (files, listed) = (Files::of(&self.path)?, Instant::now());
        if let Some(known) = opened.as_mut()
            && known.files == files
        {
            known.listed = listed;
            return Ok(Arc::clone(&known.table));
        }
        let table = open(&self.name, &self.path, &files)?;
        *opened = Some(Opened { files, table: Arc::clone(&table), listed });
        Ok(table)
    }
}

fn open(name: &str, path: &Path, files: &Files) -> Result<Arc<dyn TableProvider>> {
    if files.kind != TableKind::Arrow {
        return PlannedTable::open(files);
    }
    if !files.keys.is_empty() {
        let cause = "Arrow files in folders of partitions are not read";
        return Err(refused(
            path,
            cause,
            "put the column into the files, and these into one folder",
        ));
    }
    let sources: Vec<_> = files.files.iter().map(|file| Arc::clone(&file.source)).collect();
    match HeadraceTable::open_sources(name, &sources) {
        Ok(table) => Ok(Arc::new(TableEntry(table))),
        Err(_) if sources.iter().all(|file| is_stream(file)) => PlannedTable::open(files),
        Err(error) => {
            let remedy = "write it again, or move it out of its table's folder";
            Err(refused(path, error.find_root().message(), remedy))
        }
    }
}

/// Whether a file begins with a message, as streams of batches do; files begin with their own name.
fn is_stream(file: &SourceFile) -> bool {
    let mut start = [0; 4];
    file.read_exact_at(0, &mut start).is_ok() && start == [0xFF; 4]
}
