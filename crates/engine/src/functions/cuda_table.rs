//! Functions of whole tables in CUDA, made by CREATE FUNCTION: what a session knows of them.
//!
//! The planner finds one by its name among table functions. Its calls are planned elsewhere (`table_calls`): a table function of
//! the planner has no table as an argument.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use datafusion::catalog::{Session, TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::{Result, ScalarValue, internal_err, plan_err};
use datafusion::logical_expr::{Expr, LogicalPlan, TableType};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::ExecutionPlan;
use headrace_ir::{CudaTableFunction, TableLaunch};

/// What the rows of the table are called in expressions of ROWS and GRID.
pub const ROWS: &str = "rows";

/// A function of a table.
#[derive(Debug)]
pub struct CudaTable {
    /// What a GPU runs.
    pub function: Arc<CudaTableFunction>,
    /// The columns of its table.
    pub columns: SchemaRef,
    /// Its other parameters.
    pub parameters: SchemaRef,
    /// The columns that it returns.
    pub outputs: SchemaRef,
    /// Most rows that it emits, over [`counts_schema`].
    pub rows: Option<Arc<dyn PhysicalExpr>>,
    /// Blocks of its grid, likewise.
    pub blocks: Option<Arc<dyn PhysicalExpr>>,
    /// A query that means the same, over [`TwinRows`], with the parameters as placeholders.
    pub twin: Option<LogicalPlan>,
}

impl CudaTable {
    /// How its code is launched over so many rows.
    ///
    /// # Errors
    /// A number of rows or blocks that is none.
    pub fn launch(&self, rows: u64, parameters: &[ScalarValue]) -> Result<TableLaunch> {
        let name = &self.function.name;
        let counted = |clause: &str, expr: &Arc<dyn PhysicalExpr>, max: u64| match self
            .count(expr, rows, parameters)?
            .map(u64::try_from)
        {
            Some(Ok(count)) if count <= max => Ok(count),
            Some(Ok(count)) => plan_err!("{clause} of {name}() is {count}, of at most {max}"),
            _ => plan_err!("{clause} of {name}() is below 0, or NULL"),
        };
        let rows_max = self.rows.as_ref().map(|expr| counted("ROWS", expr, i64::MAX as u64));
        let blocks = self.blocks.as_ref().map(|expr| counted("GRID", expr, i32::MAX as u64));
        let blocks = blocks.transpose()?.map(|blocks| blocks as u32);
        if blocks == Some(0) {
            return plan_err!("GRID of {name}() is 0: a grid has a block");
        }
        Ok(TableLaunch { rows_max: rows_max.transpose()?.unwrap_or(rows), blocks })
    }

    fn count(
        &self,
        expr: &Arc<dyn PhysicalExpr>,
        rows: u64,
        parameters: &[ScalarValue],
    ) -> Result<Option<i64>> {
        let columns = parameters.iter().map(|value| value.to_array_of_size(1));
        let mut columns = columns.collect::<Result<Vec<ArrayRef>>>()?;
        columns.push(Arc::new(Int64Array::from(vec![i64::try_from(rows).unwrap_or(i64::MAX)])));
        let batch = RecordBatch::try_new(counts_schema(&self.parameters), columns)?;
        let value = expr.evaluate(&batch)?.into_array(1)?;
        Ok(value.as_primitive::<Int64Type>().iter().next().flatten())
    }
}

/// What expressions of ROWS and GRID are over: the parameters, and the number of rows.
pub fn counts_schema(parameters: &SchemaRef) -> SchemaRef {
    let rows = Arc::new(Field::new(ROWS, DataType::Int64, false));
    Arc::new(Schema::new(parameters.fields().iter().cloned().chain([rows]).collect::<Vec<_>>()))
}

/// A function as the planner has it.
#[derive(Debug)]
pub struct Known(pub Arc<CudaTable>);

impl TableFunctionImpl for Known {
    fn call_with_args(&self, args: TableFunctionArgs) -> Result<Arc<dyn TableProvider>> {
        // Without arguments it is asked what it is.
        match args.exprs() {
            [] => Ok(Arc::new(KnownTable(Arc::clone(&self.0)))),
            _ => plan_err!("{}() is a function of a table", self.0.function.name),
        }
    }
}

/// What a function is, in the form of a table: the planner hands on nothing else. It has no rows.
#[derive(Debug)]
pub struct KnownTable(pub Arc<CudaTable>);

#[async_trait]
impl TableProvider for KnownTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.0.outputs)
    }

    fn table_type(&self) -> TableType {
        TableType::Temporary
    }

    async fn scan(
        &self,
        _state: &dyn Session,
        _projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        internal_err!("{}() is scanned as a table", self.0.function.name)
    }
}

/// The rows of a call, as a twin's plan has them until there is one.
#[derive(Debug)]
pub struct TwinRows(pub SchemaRef);

#[async_trait]
impl TableProvider for TwinRows {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.0)
    }

    fn table_type(&self) -> TableType {
        TableType::Temporary
    }

    async fn scan(
        &self,
        _state: &dyn Session,
        _projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        internal_err!("a twin is scanned without a call")
    }
}
