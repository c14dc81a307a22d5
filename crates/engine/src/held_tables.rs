//! Tables whose rows a session holds in memory, within its memory limit.
//!
//! ```text
//! CREATE TABLE .. AS query ─► rows of the query ─► reserved, batch by batch ─► HeldTable
//! INSERT ───────────────────► rows of its input ─► reserved, batch by batch ────┘ gives back when it is dropped
//! ```
//!
//! The planner's own tables hold whatever they are given: a limit that all operators heed would be exceeded by the first table.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions};
use datafusion::arrow::compute::concat;
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::catalog::{MemTable, Session, TableProvider};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Constraints, DataFusionError, Result, SchemaExt, not_impl_err};
use datafusion::datasource::TableType;
use datafusion::datasource::sink::{DataSink, DataSinkExec};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{
    CreateMemoryTable, DdlStatement, Expr, LogicalPlan, LogicalPlanBuilder,
};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, execute_stream_partitioned,
};
use datafusion::prelude::SessionContext;
use datafusion_datasource::memory::MemSink;
use futures::{StreamExt, TryStreamExt};
use headrace_io::{MemoryBudget, MemoryUse, OutOfBudget, Reservation};
use parking_lot::Mutex;
use tokio::task::JoinSet;

use crate::copy::nullable;
use crate::fixes::sort_reservations::shared;
use crate::fixes::unread_joins::{Readers, watched};
use crate::planner_memory::batch_bytes;

/// A batch whose buffers hold so many times what its rows take is copied: it is a part of something larger.
const PART_OF_LARGER: usize = 2;

/// Makes the table of a CREATE TABLE, if there is one to be made; what is left of the statement.
///
/// # Errors
/// Those of its query, and rows that the memory limit has no room for: what had the table's name is as it was then.
pub async fn with_table_made(
    session: &SessionContext,
    budget: &Arc<MemoryBudget>,
    readers: &Arc<Readers>,
    logical: LogicalPlan,
) -> Result<LogicalPlan> {
    let LogicalPlan::Ddl(DdlStatement::CreateMemoryTable(create)) = &logical else {
        return Ok(logical);
    };
    let is_there = session.table_exist(create.name.clone())?;
    if !is_made(create, is_there) {
        // The planner says why not, or that there is nothing to do.
        return Ok(logical);
    }
    let input = session.execute_logical_plan(LogicalPlan::clone(&create.input)).await?;
    let plan = watched(input.create_physical_plan().await?, readers)?;
    let context = TaskContext::from(&*session.state_ref().read());
    let context = Arc::new(shared(context, &plan));
    let table = HeldTable::made(create, plan, context, budget).await?;
    if is_there {
        session.deregister_table(create.name.clone())?;
    }
    session.register_table(create.name.clone(), Arc::new(table))?;
    LogicalPlanBuilder::empty(false).build()
}

fn is_made(create: &CreateMemoryTable, is_there: bool) -> bool {
    let mut names = HashSet::new();
    let mut fields = create.input.schema().fields().iter();
    let is_refused = create.temporary || (create.if_not_exists && create.or_replace);
    let is_taken = is_there && !create.or_replace;
    !is_refused && !is_taken && fields.all(|field| names.insert(field.name()))
}

/// A table in memory, and what its rows take.
#[derive(Debug)]
pub struct HeldTable {
    rows: MemTable,
    held: Held,
}

impl HeldTable {
    /// Its rows, as the planner holds them.
    pub fn rows(&self) -> &MemTable {
        &self.rows
    }

    /// A table of the same batches, called otherwise, in this one's place.
    pub fn with_rows(&self, rows: MemTable) -> Self {
        Self { rows, held: self.held.clone() }
    }

    /// The table that a statement makes of the rows of a plan.
    ///
    /// # Errors
    /// The plan's, and rows that the memory limit has no room for.
    async fn made(
        create: &CreateMemoryTable,
        plan: Arc<dyn ExecutionPlan>,
        context: Arc<TaskContext>,
        budget: &Arc<MemoryBudget>,
    ) -> Result<Self> {
        let held = Held::new(create.name.table(), budget);
        let mut partitions = JoinSet::new();
        for (number, stream) in execute_stream_partitioned(plan, context)?.into_iter().enumerate() {
            let batches = held.taken(stream);
            partitions.spawn(async move {
                let batches = batches.try_collect::<Vec<_>>().await;
                batches.map(|batches| (number, batches))
            });
        }
        let schema = match &*create.input {
            LogicalPlan::EmptyRelation(columns) => Arc::clone(columns.schema.inner()),
            query => nullable(query.schema().as_arrow()),
        };
        let mut batches = vec![Vec::new(); partitions.len()];
        while let Some(done) = partitions.join_next().await {
            let done = done.map_err(|e| DataFusionError::ExecutionJoin(Box::new(e)))?;
            let (number, of_partition) = done?;
            let of_table = |batch: RecordBatch| batch.with_schema(Arc::clone(&schema));
            let of_partition = of_partition.into_iter().map(of_table);
            batches[number] = of_partition.collect::<std::result::Result<_, _>>()?;
        }
        let defaults: HashMap<_, _> = create.column_defaults.iter().cloned().collect();
        let rows = MemTable::try_new(schema, batches)?
            .with_constraints(create.constraints.clone())
            .with_column_defaults(defaults);
        Ok(Self { rows, held })
    }

    /// Room for the constants that an update puts into rows: the planner's tables make a column of them for all rows of a
    /// batch, whichever of them it keeps.
    async fn reserved_for(&self, assignments: &[(String, Expr)]) -> Result<Reservation> {
        let mut row_bytes = 0;
        for (_, expr) in assignments {
            expr.apply(|part| {
                row_bytes += if let Expr::Literal(value, _) = part { value.size() } else { 0 };
                Ok(TreeNodeRecursion::Continue)
            })?;
        }
        let mut rows = 0;
        for partition in &self.rows.batches {
            rows += partition.read().await.iter().map(RecordBatch::num_rows).sum::<usize>();
        }
        let reserved = self.held.budget.reserve(MemoryUse::Tables, (rows * row_bytes) as u64);
        reserved.map_err(|refused| self.held.refused(&refused))
    }

    /// Reserves what the rows take now. They are there already: who comes next is refused, if need be.
    async fn settle(&self) -> Result<()> {
        let mut bytes = 0;
        for partition in &self.rows.batches {
            for batch in partition.read().await.iter() {
                bytes += batch_bytes(batch)?;
            }
        }
        self.held.reserved.lock().resize(bytes as u64).ok();
        Ok(())
    }
}

#[async_trait]
impl TableProvider for HeldTable {
    fn schema(&self) -> SchemaRef {
        self.rows.schema()
    }

    fn constraints(&self) -> Option<&Constraints> {
        self.rows.constraints()
    }

    fn table_type(&self) -> TableType {
        self.rows.table_type()
    }

    fn get_column_default(&self, column: &str) -> Option<&Expr> {
        self.rows.get_column_default(column)
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.rows.scan(state, projection, filters, limit).await
    }

    async fn insert_into(
        &self,
        _state: &dyn Session,
        input: Arc<dyn ExecutionPlan>,
        insert_op: InsertOp,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.schema().logically_equivalent_names_and_types(&input.schema())?;
        if insert_op != InsertOp::Append {
            return not_impl_err!("{insert_op} of a table in memory");
        }
        let rows = MemSink::try_new(self.rows.batches.clone(), self.schema())?;
        let sink = HeldSink { rows, held: self.held.clone() };
        Ok(Arc::new(DataSinkExec::new(input, Arc::new(sink), None)))
    }

    async fn delete_from(
        &self,
        state: &dyn Session,
        filters: Vec<Expr>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let done = self.rows.delete_from(state, filters).await;
        self.settle().await?;
        done
    }

    async fn update(
        &self,
        state: &dyn Session,
        assignments: Vec<(String, Expr)>,
        filters: Vec<Expr>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let _made = self.reserved_for(&assignments).await?;
        let done = self.rows.update(state, assignments, filters).await;
        self.settle().await?;
        done
    }

    async fn truncate(&self, state: &dyn Session) -> Result<Arc<dyn ExecutionPlan>> {
        let done = self.rows.truncate(state).await;
        self.settle().await?;
        done
    }
}

/// What a table's rows take of the budget.
#[derive(Clone, Debug)]
struct Held {
    table: Arc<str>,
    budget: Arc<MemoryBudget>,
    reserved: Arc<Mutex<Reservation>>,
}

impl Held {
    fn new(table: &str, budget: &Arc<MemoryBudget>) -> Self {
        let reserved = Arc::new(Mutex::new(budget.reserve_nothing(MemoryUse::Tables)));
        Self { table: table.into(), budget: Arc::clone(budget), reserved }
    }

    /// Batches as a table keeps them, each reserved when it comes.
    fn taken(&self, batches: SendableRecordBatchStream) -> SendableRecordBatchStream {
        let (schema, held) = (batches.schema(), self.clone());
        let batches = batches.map(move |batch| {
            let batch = batch?;
            let bytes = batch_bytes(&batch)?;
            held.grow(bytes as u64)?;
            kept(batch, bytes)
        });
        Box::pin(RecordBatchStreamAdapter::new(schema, batches))
    }

    fn grow(&self, more: u64) -> Result<()> {
        let mut reserved = self.reserved.lock();
        let bytes = reserved.bytes() + more;
        reserved.resize(bytes).map_err(|refused| self.refused(&refused))
    }

    fn refused(&self, refused: &OutOfBudget) -> DataFusionError {
        let OutOfBudget { wanted_bytes, limit_bytes, uses, .. } = refused;
        let [wanted, limit] = [*wanted_bytes, *limit_bytes].map(|bytes| bytes as f64 / 1e6);
        DataFusionError::ResourcesExhausted(format!(
            "out of host memory: the rows of table {} need {wanted:.1} MB more, of a limit of {limit:.1} MB ({uses})\nhint: \
             raise the memory limit, or keep the rows in a file: COPY (SELECT ..) TO 'x.arrow'",
            self.table
        ))
    }
}

/// A batch that holds nothing but its rows.
fn kept(batch: RecordBatch, bytes: usize) -> Result<RecordBatch> {
    if batch.get_array_memory_size() / PART_OF_LARGER <= bytes {
        return Ok(batch);
    }
    let column = |column: &ArrayRef| -> Result<ArrayRef> {
        Ok(match column.data_type() {
            DataType::Utf8View => Arc::new(column.as_string_view().gc()),
            DataType::BinaryView => Arc::new(column.as_binary_view().gc()),
            _ => concat(&[column.as_ref(), column.slice(0, 0).as_ref()])?,
        })
    };
    let columns = batch.columns().iter().map(column).collect::<Result<Vec<_>>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(batch.schema(), columns, &options)?)
}

/// INSERT: the rows are there when all have come.
struct HeldSink {
    rows: MemSink,
    held: Held,
}

impl fmt::Debug for HeldSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HeldSink({})", self.held.table)
    }
}

impl DisplayAs for HeldSink {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.rows.fmt_as(format, f)
    }
}

#[async_trait]
impl DataSink for HeldSink {
    fn schema(&self) -> &SchemaRef {
        self.rows.schema()
    }

    async fn write_all(
        &self,
        data: SendableRecordBatchStream,
        context: &Arc<TaskContext>,
    ) -> Result<u64> {
        // A statement that fails gives back what it took itself.
        let own = Held::new(&self.held.table, &self.held.budget);
        let rows = self.rows.write_all(own.taken(data), context).await?;
        let nothing = self.held.budget.reserve_nothing(MemoryUse::Tables);
        let taken = std::mem::replace(&mut *own.reserved.lock(), nothing);
        self.held.reserved.lock().absorb(taken);
        Ok(rows)
    }
}
