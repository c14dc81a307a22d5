//! INSERT, DELETE, UPDATE and TRUNCATE of tables that last: Arrow files of a session's home.
//!
//! ```text
//! INSERT ─────────► its rows ────────────────────► a file more in the table's folder
//! DELETE, UPDATE ─► all rows that the table keeps ─► one file in the table's place
//! ```
//!
//! A table that is one file, `t.arrow`, becomes a folder of that name, with the file in it, when rows are added. What is written
//! takes its place at once, while nobody else changes tables of the folder. Rows that were read to be written again must still be
//! those of the table then: otherwise the change fails, and changes nothing.

use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use chrono::Utc;
use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::TableProvider;
use datafusion::common::{Column, Result, plan_err};
use datafusion::datasource::sink::{DataSink, DataSinkExec};
use datafusion::datasource::source_as_provider;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{
    Analyze, DmlStatement, Explain, Expr, LogicalPlan, LogicalPlanBuilder, WriteOp, lit, when,
};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan};
use futures::StreamExt;

use crate::catalog::{TableEntry, Tables, refused};
use crate::copy::{Staging, batch_bytes_max_of, streamed_schema, write_arrow};
use crate::error::blocking;
use crate::home_folder::{FIRST_FILE, begun, begun_folder, keep_mode, put, put_alone};
use crate::session::Session;
use crate::sql::is_own;

/// What keeps a file from becoming a folder, most likely.
const NO_EXCHANGE: &str = "a file system that exchanges no names, such as NFS, has tables that take rows by CREATE TABLE u (..)";

/// The column behind those of an updated table: whether the row is changed.
const IS_CHANGED: &str = "\0is changed";

impl Session {
    /// The plan of a statement that changes rows of a table of the home; `None`: it does not.
    ///
    /// # Errors
    /// A table in partitions, and what it would read beside the table.
    pub(crate) async fn plan_change(
        &self,
        logical: &LogicalPlan,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let (dml, is_explained) = match logical {
            LogicalPlan::Dml(dml) => (dml, false),
            LogicalPlan::Explain(Explain { plan, .. })
            | LogicalPlan::Analyze(Analyze { input: plan, .. }) => match plan.as_ref() {
                LogicalPlan::Dml(dml) => (dml, true),
                _ => return Ok(None),
            },
            _ => return Ok(None),
        };
        let Some(table) = self.lasting(dml)? else { return Ok(None) };
        if is_explained {
            return plan_err!(
                "EXPLAIN of a change of files is not available\nhint: EXPLAIN the SELECT that reads the same rows"
            );
        }
        let rows = LogicalPlan::clone(&dml.input);
        if !matches!(dml.op, WriteOp::Insert(_)) {
            table.is_all_there()?;
        }
        let (rows, kind) = match &dml.op {
            WriteOp::Insert(InsertOp::Append) => {
                table.takes_files()?;
                (rows, Kind::Added)
            }
            WriteOp::Delete => (kept_by_delete(rows)?, Kind::Kept),
            WriteOp::Update => (kept_by_update(rows)?, Kind::Changed),
            WriteOp::Truncate => (rows, Kind::Kept),
            // The planner says why not.
            _ => return Ok(None),
        };
        let input = self.one_stream(rows).await?;
        let sink = ChangeSink { given: input.schema(), table, kind };
        Ok(Some(Arc::new(DataSinkExec::new(input, Arc::new(sink), None))))
    }

    /// The table that a statement changes, if it is one of the home.
    fn lasting(&self, dml: &DmlStatement) -> Result<Option<Lasting>> {
        let name = dml.table_name.table();
        if !is_own(&dml.table_name, self.context.state_ref().read().config_options()) {
            return Ok(None);
        }
        let (Some(home), Some(place)) = (self.home.folder(), self.tables.place(name)) else {
            return Ok(None);
        };
        let provider = source_as_provider(&dml.target)?;
        let Some(entry) = provider.downcast_ref::<TableEntry>() else { return Ok(None) };
        if place.parent() != Some(&home) {
            return Ok(None);
        }
        // A link may lead out of reach.
        self.tables.check_target(&place)?;
        let arrow = entry.0.arrow();
        if entry.0.is_partitioned() {
            return plan_err!(
                "the rows of {name} lie in folders that are named by values\nhint: COPY .. PARTITIONED BY writes them anew"
            );
        }
        let rows = arrow.rows();
        let skipped = arrow.skipped().first().map(|skipped| skipped.path.clone());
        let schema = streamed_schema(&entry.0.arrow_schema(), &[]);
        let (name, tables) = (name.to_string(), Arc::clone(&self.tables));
        Ok(Some(Lasting { name, home, place, schema, rows, skipped, provider, tables }))
    }
}

/// The rows that a DELETE leaves.
fn kept_by_delete(found: LogicalPlan) -> Result<LogicalPlan> {
    match found {
        LogicalPlan::Filter(filter) => LogicalPlanBuilder::from(filter.input)
            .filter(Expr::IsNotTrue(Box::new(filter.predicate)))?
            .build(),
        LogicalPlan::TableScan(_) => LogicalPlanBuilder::from(found).filter(lit(false))?.build(),
        _ => plan_err!("a DELETE has a condition, and no LIMIT"),
    }
}

/// All rows, those that an UPDATE finds with its values, and which they are.
fn kept_by_update(found: LogicalPlan) -> Result<LogicalPlan> {
    let LogicalPlan::Projection(values) = found else {
        return plan_err!("an UPDATE that sets no columns");
    };
    let (all, is_found) = match LogicalPlan::clone(&values.input) {
        LogicalPlan::Filter(filter) => (filter.input, filter.predicate),
        _ => (Arc::clone(&values.input), lit(true)),
    };
    if !is_one_table(&all) {
        return plan_err!(
            "an UPDATE of a table that lasts reads that table alone\nhint: CREATE OR REPLACE TABLE t AS SELECT .. FROM t LEFT JOIN .."
        );
    }
    // It is asked once a row: what is random is another answer each time.
    let old = all.schema().columns().into_iter().map(Expr::Column);
    let is_asked = Expr::IsTrue(Box::new(is_found)).alias(IS_CHANGED);
    let all = LogicalPlanBuilder::from(all).project(old.chain([is_asked]))?.build()?;
    let is_found = Expr::Column(Column::from_name(IS_CHANGED));
    let mut columns = Vec::with_capacity(values.expr.len() + 1);
    for (value, (of, field)) in values.expr.iter().zip(all.schema().iter()) {
        let old = Expr::Column(Column::new(of.cloned(), field.name()));
        let value = value.clone().unalias();
        let column = match value == old {
            true => old,
            false => when(is_found.clone(), value).otherwise(old)?,
        };
        columns.push(column.alias(field.name()));
    }
    columns.push(is_found);
    LogicalPlanBuilder::from(all).project(columns)?.build()
}

fn is_one_table(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::TableScan(_) => true,
        LogicalPlan::SubqueryAlias(alias) => is_one_table(&alias.input),
        _ => false,
    }
}

/// What rows mean to the table that they are written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// They come to those that it has.
    Added,
    /// It has them and no others.
    Kept,
    /// The same, and a last column tells which rows are changed.
    Changed,
}

/// A table of the home as a statement found it.
#[derive(Debug)]
struct Lasting {
    name: String,
    home: PathBuf,
    /// Its file or folder.
    place: PathBuf,
    /// What its files have.
    schema: SchemaRef,
    rows: u64,
    /// A file in its folder that is no part of it.
    skipped: Option<PathBuf>,
    provider: Arc<dyn TableProvider>,
    tables: Arc<Tables>,
}

impl Lasting {
    /// Refuses to put another table in its place where its folder has more than its rows.
    fn is_all_there(&self) -> Result<()> {
        match &self.skipped {
            None => Ok(()),
            Some(skipped) => plan_err!(
                "{} is no part of {} yet, and would be lost\nhint: wait until it is written, or move it away",
                skipped.display(),
                self.name
            ),
        }
    }

    /// Refuses rows that would be another type in their file than in the others.
    fn takes_files(&self) -> Result<()> {
        let (all, name) = (self.provider.schema(), &self.name);
        let mut columns = all.fields().iter().zip(self.schema.fields());
        let other = columns.find(|(own, written)| own.data_type() != written.data_type());
        let Some((own, written)) = other else { return Ok(()) };
        plan_err!(
            "{} of {name} is {}, which is written as {}\nhint: CREATE OR REPLACE TABLE {name} AS FROM {name} writes it so",
            own.name(),
            own.data_type(),
            written.data_type()
        )
    }

    /// Puts an addition into the table, unless that has other columns by now.
    async fn add(&self, staging: Staging, file: PathBuf) -> Result<()> {
        let has_its_columns = async {
            let now = self.tables.open(&self.name).await?;
            Ok(now.is_some_and(|now| now.schema() == self.provider.schema()))
        };
        let put = move || put_addition(&staging, &file);
        put_alone(&self.home, &self.name, has_its_columns, put).await
    }

    /// Puts a file of all its rows in the table's place, unless they are others by now.
    async fn replace(&self, staging: Staging) -> Result<()> {
        let has_its_rows =
            async { Ok(self.tables.are_current(&[(&self.name, &self.provider)], true).await) };
        put_alone(&self.home, &self.name, has_its_rows, move || put(&staging)).await
    }
}

/// Adds a file to a folder; or puts the folder that it lies in, and what lies there as its first file, in the place of that.
fn put_addition(staging: &Staging, file: &Path) -> Result<()> {
    let place = staging.target();
    keep_mode(staging)?;
    if place.is_dir() {
        return std::fs::rename(file, place.join(file.file_name().unwrap_or_default()))
            .and_then(|()| File::open(place)?.sync_all())
            .map_err(|error| refused(place, error, "see whether its folder may be written"));
    }
    std::fs::hard_link(place, staging.content().join(FIRST_FILE))
        .and_then(|()| File::open(staging.content())?.sync_all())
        .map_err(|error| refused(place, error, NO_EXCHANGE))?;
    staging.exchange(NO_EXCHANGE)
}

/// Names sort in the order of time, and are nobody else's.
fn added_name() -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let now = Utc::now().format("%Y%m%d-%H%M%S-%9f");
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    format!("{now}-{}-{number}.arrow", std::process::id())
}

/// Rows that change a table.
#[derive(Debug)]
struct ChangeSink {
    given: SchemaRef,
    table: Lasting,
    kind: Kind,
}

impl DisplayAs for ChangeSink {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "HeadraceArrow({}, {:?})", self.table.place.display(), self.kind)
    }
}

#[async_trait]
impl DataSink for ChangeSink {
    fn schema(&self) -> &SchemaRef {
        &self.given
    }

    async fn write_all(
        &self,
        data: SendableRecordBatchStream,
        context: &Arc<TaskContext>,
    ) -> Result<u64> {
        let (table, bytes_max) = (&self.table, batch_bytes_max_of(context));
        let place = table.place.clone();
        if self.kind == Kind::Added {
            let (staging, file) = blocking(move || begun_folder(&place, &added_name())).await?;
            let added = write_arrow(&file, &table.schema, bytes_max, data, |_| Ok(())).await?;
            // A file of no rows would be read for nothing.
            if added.rows > 0 {
                table.add(staging, file).await?;
            }
            return Ok(added.rows);
        }
        let (staging, file) = blocking(move || begun(&place, false)).await?;
        let changed = Arc::new(AtomicU64::new(0));
        let data = match self.kind {
            Kind::Changed => counted(data, &table.schema, Arc::clone(&changed)),
            _ => data,
        };
        let kept = write_arrow(&file, &table.schema, bytes_max, data, |_| Ok(())).await?;
        let changed = match self.kind {
            Kind::Changed => changed.load(Ordering::Relaxed),
            _ => table.rows - kept.rows,
        };
        if changed > 0 {
            table.replace(staging).await?;
        }
        Ok(changed)
    }
}

/// Rows without the column that tells which of them are changed, and how many are.
fn counted(
    data: SendableRecordBatchStream,
    schema: &SchemaRef,
    changed: Arc<AtomicU64>,
) -> SendableRecordBatchStream {
    let rows = data.map(move |batch| {
        let mut batch = batch?;
        let is_changed = batch.remove_column(batch.num_columns() - 1);
        changed.fetch_add(is_changed.as_boolean().true_count() as u64, Ordering::Relaxed);
        Ok(batch)
    });
    Box::pin(RecordBatchStreamAdapter::new(Arc::clone(schema), rows))
}
