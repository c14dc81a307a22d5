//! Tables that last: in a session with a home, `CREATE TABLE t AS ..` writes `t.arrow` there, which streams into pipelines and
//! is a table again when the folder is opened the next time. `CREATE TABLE t (..)` makes a folder `t.arrow`, to which INSERT adds
//! files. Without a home such tables live in memory, as long as the session.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::common::{Result, plan_err};
use datafusion::datasource::sink::DataSinkExec;
use datafusion::execution::TaskContext;
use datafusion::logical_expr::{CreateMemoryTable, DdlStatement, LogicalPlan};
use datafusion::physical_plan::{ExecutionPlan, collect};

use crate::copy::ArrowSink;
use crate::error::blocking;
use crate::fixes::sort_reservations::shared;
use crate::fixes::unread_joins::{Readers, watched};
use crate::home_folder::{begun, check_file_name, locked, put};
use crate::session::Session;

impl Session {
    /// From now on, tables that are made of queries, and views, are files of this folder.
    pub fn keep_tables_in(&self, folder: impl Into<PathBuf>) {
        self.home.set(folder.into());
    }

    /// Runs a CREATE TABLE that is to become a file, or a folder of files; whether it was one.
    ///
    /// # Errors
    /// A name that is taken or names no file, constraints, the query's own.
    pub(crate) async fn create_file(
        &self,
        logical: &LogicalPlan,
        readers: &Arc<Readers>,
    ) -> Result<bool> {
        let LogicalPlan::Ddl(DdlStatement::CreateMemoryTable(create)) = logical else {
            return Ok(false);
        };
        let Some(folder) = self.home.folder() else { return Ok(false) };
        let Some(path) = self.file_to_be(create, &folder)? else { return Ok(true) };
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
        blocking(move || {
            let _alone = locked(&folder)?;
            put(&staging)
        })
        .await?;
        self.register_as(create.name.table(), &path).await?;
        Ok(true)
    }

    /// The file that a table is to be written to; `None` if it is there and may be.
    fn file_to_be(&self, create: &CreateMemoryTable, folder: &Path) -> Result<Option<PathBuf>> {
        let name = create.name.table();
        check_file_name(name)?;
        if create.constraints.iter().next().is_some() || !create.column_defaults.is_empty() {
            return plan_err!(
                "a file has no constraints and no defaults\nhint: make {name} without them, or in a session that has no folder opened"
            );
        }
        let path = folder.join(format!("{name}.arrow"));
        match (self.has_table(name) || path.exists(), create.or_replace) {
            (false, _) => Ok(Some(path)),
            (true, true) if path.exists() => Ok(Some(path)),
            (true, true) => plan_err!(
                "the table {name} is not the file {}, and is not replaced by it",
                path.display()
            ),
            (true, false) if create.if_not_exists => Ok(None),
            (true, false) => plan_err!(
                "there is a table {name}\nhint: CREATE OR REPLACE TABLE {name} writes its file anew"
            ),
        }
    }
}
