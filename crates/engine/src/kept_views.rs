//! Views that last: in a session with a home, `CREATE VIEW v AS ..` is the file `v.view.sql` there, whose text is that
//! statement. A folder that is opened has its views again; DROP VIEW removes the file.
//!
//! A view is planned whenever a query names it. What is wrong with its file, or with the tables that it names, is the error of
//! that query.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::common::{Result, TableReference};
use datafusion::datasource::ViewTable;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{DdlStatement, LogicalPlan, LogicalPlanBuilder};
use headrace_io::write::Appended;

use crate::catalog::{FoundTable, view_file};
use crate::error::blocking;
use crate::home::check_file_name;
use crate::session::Session;
use crate::sql::Change;

/// The longest text of a view.
const TEXT_BYTES_MAX: u64 = 1 << 20;

/// What a statement changes among the files of views, once it has taken effect.
pub enum Kept {
    /// Nothing.
    Nothing,
    /// The file is written, but for its last step.
    Made(Appended),
    /// The file is to go.
    Dropped(PathBuf),
}

impl Kept {
    /// What had to be done before the statement is done: the file has its name, or has gone.
    ///
    /// # Errors
    /// The file cannot be put in place, or removed.
    pub async fn settle(self) -> Result<()> {
        let place = |path: &Path, error: &dyn std::fmt::Display| {
            DataFusionError::Execution(format!("{}: {error}", path.display()))
        };
        blocking(move || match self {
            Self::Nothing => Ok(()),
            Self::Made(file) => {
                file.commit().map_err(|error| DataFusionError::External(error.into()))
            }
            Self::Dropped(path) => match std::fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    Err(place(&path, &error))
                }
                _ => Ok(()),
            },
        })
        .await
    }
}

impl Session {
    /// Prepares the file of a view that a statement makes, where views last.
    ///
    /// # Errors
    /// A name that no file can have, and a folder that cannot be written.
    pub(crate) async fn keep_view(&self, logical: &LogicalPlan, text: &str) -> Result<Kept> {
        let Some(folder) = self.home.folder() else { return Ok(Kept::Nothing) };
        match logical {
            LogicalPlan::Ddl(DdlStatement::CreateView(view)) if !view.temporary => {
                let name = view.name.table();
                check_file_name(name)?;
                let (path, text) = (view_file(&folder, name), format!("{}\n", text.trim()));
                let written = move || {
                    let refused = |error: &dyn std::fmt::Display| {
                        DataFusionError::Execution(format!("{}: {error}", path.display()))
                    };
                    let mut file = Appended::create(&path).map_err(|error| refused(&error))?;
                    file.write_all(text.as_bytes()).map_err(|error| refused(&error))?;
                    Ok(Kept::Made(file))
                };
                blocking(written).await
            }
            LogicalPlan::Ddl(DdlStatement::DropView(dropped))
                if self.remembered.view(dropped.name.table()).is_some() =>
            {
                Ok(Kept::Dropped(view_file(&folder, dropped.name.table())))
            }
            _ => Ok(Kept::Nothing),
        }
    }

    /// Makes the views of a folder known; those whose files cannot be read.
    pub(crate) async fn add_views(&self, found: &[FoundTable]) -> Vec<PathBuf> {
        let mut unread = Vec::new();
        let mut added = Vec::new();
        for FoundTable { name, path } in found {
            let is_taken = self.has_table(name) && self.remembered.view(name).is_none();
            let text = match is_taken {
                true => None,
                false => {
                    let path = path.clone();
                    blocking(move || Ok(text_of(&path))).await.ok().flatten()
                }
            };
            let Some(text) = text else {
                unread.push(path.clone());
                continue;
            };
            let Ok(nothing) = LogicalPlanBuilder::empty(false).build() else { continue };
            self.give(name, Arc::new(ViewTable::new(nothing, Some(text.clone()))));
            self.remembered.apply(Change::View(name.clone()), &text);
            added.push(name);
        }
        // Now that all are known: one may name another. One that has no plan yet says why when it is queried.
        let options = Arc::clone(self.context().state().config().options());
        for name in added {
            let opened = self.open_now(&[TableReference::bare(name.as_str())], &options, &[]).await;
            for (name, table) in opened.into_iter().flatten() {
                self.give(&name, table);
            }
        }
        unread
    }
}

/// The text of a view's file; `None`: it has none.
fn text_of(path: &Path) -> Option<String> {
    let is_small = path.metadata().is_ok_and(|file| file.len() <= TEXT_BYTES_MAX);
    is_small.then(|| std::fs::read_to_string(path).ok()).flatten()
}
