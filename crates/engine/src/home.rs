//! Tables that last: in a session with a home, `CREATE TABLE t AS ..` writes `t.arrow` there, which streams into pipelines and
//! is a table again when the folder is opened the next time. `CREATE TABLE t (..)` makes a folder `t.arrow`, to which INSERT adds
//! files. Without a home such tables live in memory, as long as the session.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::common::{Result, plan_err};
use datafusion::datasource::sink::DataSinkExec;
use datafusion::execution::TaskContext;
use datafusion::logical_expr::{CreateMemoryTable, DdlStatement, LogicalPlan};
use datafusion::physical_plan::{ExecutionPlan, collect};

use crate::catalog::partition_of;
use crate::copy::ArrowSink;
use crate::error::blocking;
use crate::fixes::sort_reservations::shared;
use crate::fixes::unread_joins::{Readers, watched};
use crate::home_folder::{begun, check_file_name, put, put_alone};
use crate::session::Session;
use crate::sql::is_own;

impl Session {
    /// From now on, tables that are made of queries, and views, are files of this folder.
    pub fn keep_tables_in(&self, folder: impl Into<PathBuf>) {
        self.home.set(folder.into());
    }

    /// Runs a CREATE TABLE that is to become a file, or a folder of files; whether it was one. `opened` are the tables that the
    /// statement reads.
    ///
    /// # Errors
    /// A name that is taken or names no file, constraints, the query's own.
    pub(crate) async fn create_file(
        &self,
        logical: &LogicalPlan,
        opened: &HashMap<String, Arc<dyn TableProvider>>,
        readers: &Arc<Readers>,
    ) -> Result<bool> {
        let LogicalPlan::Ddl(DdlStatement::CreateMemoryTable(create)) = logical else {
            return Ok(false);
        };
        let is_own = is_own(&create.name, self.context().state_ref().read().config_options());
        let Some(folder) = self.home.folder().filter(|_| is_own) else { return Ok(false) };
        let (name, path) = (create.name.table(), self.file_to_be(create, &folder)?);
        if self.is_taken(create, &path)? {
            if !self.has_table(name) {
                self.register_as(name, &path).await?;
            }
            return Ok(true);
        }
        // The table in whose place it is put, as the statement reads it.
        let old = match opened.get(&self.tables.key(name)) {
            Some(old) => Some(Arc::clone(old)),
            None => self.tables.open(name).await.unwrap_or_default(),
        };
        // A table of columns alone is there to be filled by and by.
        let has_rows = !matches!(&*create.input, LogicalPlan::EmptyRelation(_));
        let place = path.clone();
        let (staging, file) = blocking(move || begun(&place, !has_rows)).await?;
        let input = self.one_stream(LogicalPlan::clone(&create.input)).await?;
        let sink = ArrowSink::new(file, input.schema());
        let sink = if has_rows { sink.nullable() } else { sink };
        let plan: Arc<dyn ExecutionPlan> = Arc::new(DataSinkExec::new(input, Arc::new(sink), None));
        let plan = watched(plan, readers)?;
        let context = TaskContext::from(&*self.context().state_ref().read());
        collect(Arc::clone(&plan), Arc::new(shared(context, &plan))).await?;
        let is_as_it_was = async {
            Ok(match &old {
                Some(old) => self.tables.are_current(&[(name, old)], true).await,
                None => create.or_replace || !path.exists(),
            })
        };
        put_alone(&folder, name, is_as_it_was, move || put(&staging)).await?;
        self.register_as(name, &path).await?;
        Ok(true)
    }

    /// The file that a table is to be written to.
    fn file_to_be(&self, create: &CreateMemoryTable, folder: &Path) -> Result<PathBuf> {
        let name = create.name.table();
        check_file_name(name)?;
        let path = folder.join(format!("{name}.arrow"));
        if partition_of(&path).is_some() {
            return plan_err!(
                "no table of a folder can be called {name}: {name}.arrow is a partition"
            );
        }
        if create.constraints.iter().next().is_some() || !create.column_defaults.is_empty() {
            return plan_err!(
                "a file has no constraints and no defaults\nhint: leave them out, or keep {name} in memory: CREATE TEMP TABLE {name}"
            );
        }
        self.tables.check_target(&path)?;
        Ok(path)
    }

    /// Whether a table is there and may be; an error if it must not.
    fn is_taken(&self, create: &CreateMemoryTable, path: &Path) -> Result<bool> {
        let name = create.name.table();
        match (self.has_table(name), path.exists(), create.or_replace) {
            (false, false, _) | (_, true, true) => Ok(false),
            (true, false, true) => plan_err!(
                "the table {name} is not the file {}, and is not replaced by it",
                path.display()
            ),
            (_, _, false) if create.if_not_exists => Ok(true),
            (true, _, false) => plan_err!(
                "there is a table {name}\nhint: CREATE OR REPLACE TABLE {name} writes its file anew"
            ),
            (false, true, false) => plan_err!(
                "there is a file {}, which DROP TABLE keeps\nhint: CREATE OR REPLACE TABLE {name} writes it anew",
                path.display()
            ),
        }
    }
}
