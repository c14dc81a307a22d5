//! The tables that a session knows by name, and those that are named by their path.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::common::{Result, exec_err, plan_err};
use datafusion::datasource::TableType;
use parking_lot::{Mutex, RwLock};

use super::files::Files;
use super::format::Format;
use super::formats::format_of;
use super::listing::{files_of, table_name};
use super::planned::PlannedTable;
use super::reach::Reach;
use super::remote::{is_address, shown_path, shown_text};
use super::table::TableEntry;
use super::{Call, FoundTable};
use crate::error::blocking;

/// Tables by the names of their schemas.
pub type Schemas = RwLock<BTreeMap<String, Arc<Tables>>>;

tokio::task_local! {
    /// The tables of the statement that is planned: what it opened is not looked at again meanwhile.
    static OPENED: HashMap<String, Arc<dyn TableProvider>>;
}

/// Plans with tables that were just opened, by their names.
pub(crate) async fn with_opened<F: Future>(
    opened: HashMap<String, Arc<dyn TableProvider>>,
    planning: F,
) -> F::Output {
    OPENED.scope(opened, planning).await
}

/// What was told of a table's files and could be otherwise, or was left out.
pub fn table_notes(name: &str, table: &Arc<dyn TableProvider>) -> Vec<String> {
    let entry = table.downcast_ref::<TableEntry>();
    let skipped = entry.and_then(|entry| entry.0.stream().skipped_note());
    let name = name.replace('\0', ".");
    let told = table.downcast_ref::<PlannedTable>().map(PlannedTable::notes).unwrap_or_default();
    let told = told.iter().map(|note| format!("table {name}: {note}"));
    skipped.into_iter().chain(told).collect()
}

/// How often files that others change meanwhile are opened again.
const OPENED_AGAIN_MAX: usize = 4;

/// Tables named by a path that are kept open.
const PATHS_MAX: usize = 256;

/// What one name means.
enum Of {
    /// A table that somebody made.
    Given(Arc<dyn TableProvider>),
    /// Files.
    Files(Arc<FileTable>),
}

/// Files and folders as tables. Each is opened when it is first named, and anew when its files have changed
/// since. What is wrong with one is its own error.
#[derive(Debug, Default)]
pub struct Tables {
    /// The name of the schema, if it is another than the one that is always there.
    schema: String,
    by_name: RwLock<BTreeMap<String, Slot>>,
    by_path: Mutex<BTreeMap<String, Arc<FileTable>>>,
    /// Of the calls of functions, by their texts, those made last at the end.
    by_call: Mutex<Vec<Arc<FileTable>>>,
    /// Folder for what opening tables of files reads.
    kept: OnceLock<PathBuf>,
    /// The paths that statements may name, where these are not all.
    reach: OnceLock<Reach>,
}

#[derive(Clone, Debug)]
enum Slot {
    /// Somebody made it.
    Given(Arc<dyn TableProvider>),
    /// Of one path, unless several claim the name.
    Files(Vec<Arc<FileTable>>),
}

impl Tables {
    /// An empty schema. Statements name its tables, and never paths, in it.
    pub(crate) fn schema(&self, schema: &str) -> Self {
        let (kept, reach) = (self.kept.clone(), self.reach.clone());
        Self { schema: schema.to_string(), kept, reach, ..Self::default() }
    }

    /// What a table is called among those that were opened for a statement.
    pub(crate) fn key(&self, name: &str) -> String {
        match self.schema.is_empty() {
            true => name.to_string(),
            false => format!("{}\0{name}", self.schema),
        }
    }

    /// Makes the files of another schema known here, too: each is the same table in both.
    pub(crate) fn share(&self, other: &Self) {
        let theirs = other.by_name.read();
        let mut by_name = self.by_name.write();
        for (name, slot) in theirs.iter() {
            let Slot::Files(files) = slot else { continue };
            match by_name.get_mut(name) {
                Some(Slot::Files(same)) => same.extend(files.iter().cloned()),
                _ => {
                    by_name.insert(name.clone(), slot.clone());
                }
            }
        }
    }

    /// Has what opening tables of many files reads kept in a folder.
    pub fn keep_metadata_in(&self, folder: PathBuf) {
        // The first one named stays.
        let _ = self.kept.set(folder);
    }

    /// From now on statements may only name paths within reach; tables by name are there as before.
    pub fn restrict_to(&self, reach: Reach) {
        let _ = self.reach.set(reach);
    }

    /// Whether a statement may write there: into a folder, or beside what is in one, that is within reach.
    pub fn check_target(&self, target: &Path) -> Result<()> {
        let Some(reach) = self.reach.get() else { return Ok(()) };
        // A link leads to where it says, whether or not that is there.
        let is_there = target.symlink_metadata();
        let place = match is_there {
            Ok(found) if found.is_symlink() && !target.exists() => Path::new("/"),
            Ok(_) => target,
            Err(_) => target.parent().unwrap_or(Path::new("/")),
        };
        reach.check([place])
    }

    /// Makes tables known, in place of what has their names.
    pub fn add(&self, found: &[FoundTable]) {
        let mut by_name = self.by_name.write();
        for table in found {
            let files = Arc::new(FileTable::new(&table.name, &table.path));
            match by_name.get_mut(&table.name) {
                Some(Slot::Files(same)) if same.iter().any(|f| f.given.is_at(&table.path)) => {}
                Some(Slot::Files(same)) => same.push(files),
                _ => {
                    by_name.insert(table.name.clone(), Slot::Files(vec![files]));
                }
            }
        }
    }

    /// Makes a table known, in place of what has its name.
    pub fn give(&self, name: &str, table: Arc<dyn TableProvider>) {
        self.by_name.write().insert(name.to_string(), Slot::Given(table));
    }

    /// Makes the calls of a statement tables, by their texts.
    pub(crate) fn add_calls(&self, calls: Vec<(String, Call)>) {
        let mut by_call = self.by_call.lock();
        let kept_max = PATHS_MAX.max(calls.len());
        for (text, call) in calls {
            let known = by_call.iter().position(|table| table.name == text);
            let table = match known {
                Some(known) => by_call.remove(known),
                None => Arc::new(FileTable::of_call(&text, call)),
            };
            by_call.push(table);
        }
        // Other statements may be about to open theirs: the oldest leave.
        let too_many = by_call.len().saturating_sub(kept_max);
        by_call.drain(..too_many);
    }

    /// The table of a name or path, as its files are now; `None`: there is none.
    ///
    /// # Errors
    /// What keeps its files from being a table.
    pub async fn open(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let files = match self.of(name)? {
            Some(Of::Given(table)) => return Ok(Some(table)),
            Some(Of::Files(files)) => files,
            None => return Ok(None),
        };
        let kept = self.kept.get().cloned();
        blocking(move || files.current(kept.as_deref())).await.map(Some)
    }

    /// Whether these tables are still those of their names, as their files are now: looked at on a thread `apart`, or here.
    pub(crate) async fn are_current(
        &self,
        known: &[(&str, &Arc<dyn TableProvider>)],
        apart: bool,
    ) -> bool {
        let mut of_files = Vec::with_capacity(known.len());
        for (name, known) in known {
            match self.of(name) {
                Ok(Some(Of::Given(table))) if Arc::ptr_eq(&table, known) => {}
                Ok(Some(Of::Files(files))) => of_files.push((files, Arc::clone(known))),
                _ => return false,
            }
        }
        let kept = self.kept.get().cloned();
        let is_current = move |(files, known): &(Arc<FileTable>, Arc<dyn TableProvider>)| {
            files.current(kept.as_deref()).is_ok_and(|now| Arc::ptr_eq(&now, known))
        };
        match apart {
            true => blocking(move || Ok(of_files.iter().all(is_current))).await.unwrap_or(false),
            false => of_files.iter().all(is_current),
        }
    }

    /// What a name or path means; `None`: nothing.
    fn of(&self, name: &str) -> Result<Option<Of>> {
        let slot = self.by_name.read().get(name).cloned();
        Ok(match slot {
            Some(Slot::Given(table)) => Some(Of::Given(table)),
            Some(Slot::Files(same)) => match same.as_slice() {
                [one] => Some(Of::Files(Arc::clone(one))),
                several => {
                    let paths: Vec<_> = several
                        .iter()
                        .map(|f| shown_path(f.given.place()).display().to_string())
                        .collect();
                    return exec_err!(
                        "table {name} could be {}\nhint: name one by its path: select .. from '{}'",
                        paths.join(" or "),
                        paths.first().map_or("", String::as_str)
                    );
                }
            },
            None => {
                let Some(files) = self.by_path(name) else { return Ok(None) };
                self.reach.get().map_or(Ok(()), |reach| reach.check(files.given.paths()))?;
                Some(Of::Files(files))
            }
        })
    }

    /// The file or folder of this machine that a name is of; `None`: it is no such name, or of several.
    pub(crate) fn place(&self, name: &str) -> Option<PathBuf> {
        match self.by_name.read().get(name)? {
            Slot::Files(same) => match same.as_slice() {
                [one] if !is_address(one.given.place()) => Some(one.given.place().to_path_buf()),
                _ => None,
            },
            Slot::Given(_) => None,
        }
    }

    /// Whether a name is one that was given, and no path.
    pub(crate) fn is_named(&self, name: &str) -> bool {
        self.by_name.read().contains_key(name)
    }

    /// Calls a table otherwise.
    ///
    /// # Errors
    /// A name that another has, and views, whose statements name them.
    pub(crate) fn rename(&self, from: &str, to: &str) -> Result<()> {
        let mut by_name = self.by_name.write();
        if by_name.contains_key(to) {
            return plan_err!("there is a table {to} already\nhint: DROP TABLE {to}");
        }
        match by_name.remove(from) {
            Some(Slot::Given(view)) if view.table_type() == TableType::View => {
                by_name.insert(from.to_string(), Slot::Given(view));
                plan_err!("{from} is a view\nhint: CREATE VIEW {to} AS SELECT * FROM {from}")
            }
            Some(slot) => {
                by_name.insert(to.to_string(), slot);
                Ok(())
            }
            None => plan_err!("there is no table {from}"),
        }
    }

    /// Puts another table in the place of one.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn replace(&self, name: &str, table: Arc<dyn TableProvider>) -> Result<()> {
        match self.by_name.write().get_mut(name) {
            Some(slot) => {
                *slot = Slot::Given(table);
                Ok(())
            }
            None => plan_err!("there is no table {name}"),
        }
    }

    fn by_path(&self, name: &str) -> Option<Arc<FileTable>> {
        if let Some(called) = self.by_call.lock().iter().find(|table| table.name == name) {
            return Some(Arc::clone(called));
        }
        if !self.schema.is_empty() {
            return None;
        }
        let path = Path::new(name);
        let could_be = name.contains('/') || format_of(path).is_some();
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
        let key = self.key(name);
        if let Ok(Some(opened)) = OPENED.try_with(|opened| opened.get(&key).cloned()) {
            return Ok(Some(opened));
        }
        Ok(self.open(name).await.unwrap_or_default())
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

/// Where the files of a table are.
#[derive(Debug)]
enum Given {
    Path(PathBuf),
    Call(Box<Call>),
}

impl Given {
    fn is_at(&self, path: &Path) -> bool {
        matches!(self, Self::Path(own) if own == path)
    }

    fn place(&self) -> &Path {
        match self {
            Self::Path(path) => path,
            Self::Call(call) => call.paths.first().map_or(Path::new(""), Path::new),
        }
    }

    fn paths(&self) -> Vec<&Path> {
        match self {
            Self::Path(path) => vec![path],
            Self::Call(call) => call.paths.iter().map(Path::new).collect(),
        }
    }

    fn files(&self) -> Result<(Format, Files)> {
        match self {
            Self::Path(path) => files_of(path),
            Self::Call(call) => Ok((call.format, call.files()?)),
        }
    }
}

/// A table of files.
#[derive(Debug)]
struct FileTable {
    name: String,
    given: Given,
    opened: Mutex<Option<(Files, Arc<dyn TableProvider>)>>,
}

impl FileTable {
    fn new(name: &str, path: &Path) -> Self {
        let given = Given::Path(path.to_path_buf());
        Self { name: name.to_string(), given, opened: Mutex::default() }
    }

    fn of_call(text: &str, call: Call) -> Self {
        Self {
            name: text.to_string(),
            given: Given::Call(Box::new(call)),
            opened: Mutex::default(),
        }
    }

    fn last(&self) -> Option<Arc<dyn TableProvider>> {
        self.opened.lock().as_ref().map(|(_, table)| Arc::clone(table))
    }

    /// The table of the files that there are now: the same as before if nothing has changed. Files that became others while
    /// they were opened, as a table's one file does when rows are added, are looked for again.
    fn current(&self, kept: Option<&Path>) -> Result<Arc<dyn TableProvider>> {
        let mut opened = self.opened.lock();
        let (mut format, mut files) = self.given.files()?;
        let mut again_max = OPENED_AGAIN_MAX;
        loop {
            if let Some((known, table)) = opened.as_ref()
                && *known == files
            {
                return Ok(Arc::clone(table));
            }
            let error = match self.open(format, &files, kept) {
                Ok(table) => {
                    *opened = Some((files, Arc::clone(&table)));
                    return Ok(table);
                }
                Err(error) => error,
            };
            let (format_now, files_now) = self.given.files()?;
            if again_max == 0 || files_now == files {
                return Err(error);
            }
            (format, files, again_max) = (format_now, files_now, again_max - 1);
        }
    }

    fn open(
        &self,
        format: Format,
        files: &Files,
        kept: Option<&Path>,
    ) -> Result<Arc<dyn TableProvider>> {
        match format.streamed(&shown_text(&self.name), self.given.place(), files, kept)? {
            Some(table) => Ok(table),
            None => PlannedTable::open(format, files),
        }
    }
}
