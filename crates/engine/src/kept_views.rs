//! Views that last: in a session with a home, `CREATE VIEW v AS ..` is the file `v.view.sql` there, whose text is that
//! statement. A folder that is opened has its views again; DROP VIEW removes the file.
//!
//! A view is planned whenever a query names it. What is wrong with its file, or with the tables that it names, is the error of
//! that query.

use std::collections::HashSet;
use std::io::Write;
use std::sync::Arc;

use datafusion::common::{Result, TableReference, plan_err};
use datafusion::datasource::ViewTable;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{DdlStatement, LogicalPlan, LogicalPlanBuilder};
use headrace_io::write::Appended;

use crate::catalog::{Found, FoundTable, view_file};
use crate::error::blocking;
use crate::fixes::deep_expressions::OnLargeStack;
use crate::home_folder::check_file_name;
use crate::panics::caught;
use crate::session::Session;
use crate::sql::{Change, View, is_own};
use crate::view_files::{Kept, Step, TEXT_BYTES_MAX, failed, text_of};

impl Session {
    /// Prepares what a statement does to the file of a view, where views last. `is_alone`: it names no table that is there for it
    /// alone.
    ///
    /// # Errors
    /// A view that could not be made again of its text, a name that another has, a folder that cannot be written.
    pub(crate) async fn keep_view(
        &self,
        logical: &LogicalPlan,
        text: &str,
        is_alone: bool,
        state: &SessionState,
    ) -> Result<Option<Kept>> {
        let Some(folder) = self.home.folder() else { return Ok(None) };
        match logical {
            LogicalPlan::Ddl(DdlStatement::CreateView(view))
                if !view.temporary && is_own(&view.name, state.config_options()) =>
            {
                let name = view.name.table();
                check_file_name(name)?;
                let is_written_out = !text.trim_start().to_lowercase().starts_with("execute");
                if !is_alone || !is_written_out || text.len() > TEXT_BYTES_MAX {
                    return plan_err!(
                        "the view {name} would not last: its text is too long, is that of an EXECUTE, or names tables of this \
                         statement alone\nhint: write them to files first, such as by COPY"
                    );
                }
                let changing = self.home.change_views().await;
                let old = self.tables.open(name).await?;
                let is_view = old.as_ref().map(|table| table.is::<ViewTable>());
                match (is_view, view.or_replace) {
                    // The planner says so.
                    (Some(_), false) => return Ok(None),
                    (Some(false), true) => {
                        return plan_err!("{name} is a table, and is not replaced by a view");
                    }
                    _ => {}
                }
                if self.reads(text, name, state, &mut HashSet::new())? {
                    return plan_err!("the view {name} would read itself");
                }
                let known = self.remembered.view(name).and_then(|view| view.file);
                let path = known.unwrap_or_else(|| view_file(&folder, name));
                if !view.or_replace && path.symlink_metadata().is_ok() {
                    return plan_err!(
                        "there is a file {}\nhint: CREATE OR REPLACE VIEW writes it anew",
                        path.display()
                    );
                }
                let text = format!("{}\n", text.trim());
                let step = blocking(move || {
                    let mut file =
                        Appended::create(&path).map_err(|error| failed(&path, &error))?;
                    file.write_all(text.as_bytes()).map_err(|error| failed(&path, &error))?;
                    Ok(Step::Put(file, path))
                });
                Ok(Some(Kept { name: name.to_string(), step: step.await?, old, changing }))
            }
            LogicalPlan::Ddl(DdlStatement::DropView(dropped))
                if is_own(&dropped.name, state.config_options()) =>
            {
                let name = dropped.name.table().to_string();
                let changing = self.home.change_views().await;
                let Some(path) = self.remembered.view(&name).and_then(|view| view.file) else {
                    return Ok(None);
                };
                let old = self.tables.open(&name).await?;
                Ok(Some(Kept { name, step: Step::Remove(path), old, changing }))
            }
            _ => Ok(None),
        }
    }

    /// Does what is left. If that fails, what the session knew of the name before, `earlier`, is so again.
    ///
    /// # Errors
    /// The file cannot be put in place, or removed.
    pub(crate) async fn settle_view(&self, kept: Kept, earlier: Option<View>) -> Result<()> {
        let Kept { name, step, old, changing } = kept;
        // It goes on when nobody waits any more.
        let taken = blocking(move || {
            let _changing = changing;
            step.take()
        });
        let Err(error) = taken.await else { return Ok(()) };
        match old {
            Some(table) => self.give(&name, table),
            None => drop(self.context().deregister_table(TableReference::bare(name.as_str()))?),
        }
        self.remembered.put_back(&name, earlier);
        Err(error)
    }

    /// Whether the text of a view names another, itself or through others.
    fn reads(
        &self,
        text: &str,
        name: &str,
        state: &SessionState,
        seen: &mut HashSet<String>,
    ) -> Result<bool> {
        let (_, references) = self.named(text, state)?;
        for reference in references.iter().filter(|it| is_own(it, state.config_options())) {
            let table = reference.table();
            if table == name {
                return Ok(true);
            }
            if seen.insert(table.to_string())
                && let Some(view) = self.remembered.view(table)
                && self.reads(&view.text, name, state, seen)?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Makes the views of a folder known; files that are none after all are unknown ones.
    pub(crate) async fn take_views(&self, found: &mut Found) {
        let (mut views, mut added) = (Vec::new(), Vec::new());
        for FoundTable { name, path } in std::mem::take(&mut found.views) {
            let known = self.remembered.view(&name);
            let is_taken = match &known {
                Some(view) => view.file.as_ref() != Some(&path),
                None => self.has_table(&name),
            };
            let file = path.clone();
            let text = blocking(move || Ok(text_of(&file))).await.ok().flatten();
            match (text.filter(|_| !is_taken), LogicalPlanBuilder::empty(false).build()) {
                (Some(text), Ok(nothing)) => {
                    self.give(&name, Arc::new(ViewTable::new(nothing, Some(text.clone()))));
                    self.remembered.apply(Change::View(name.clone()), &text, Some(path.clone()));
                    added.push(name.clone());
                    views.push(FoundTable { name, path });
                }
                _ => found.unknown.push(path),
            }
        }
        found.views = views;
        // Now that all are known: one may name another. One that has no plan yet says why when it is queried.
        let options = Arc::clone(self.context().state().config().options());
        for name in added {
            let references = [TableReference::bare(name.as_str())];
            let opened = caught(OnLargeStack::new(self.open_now(&references, &options, &[]))).await;
            for (name, table) in opened.into_iter().flatten() {
                self.give(&name, table);
            }
        }
    }
}
