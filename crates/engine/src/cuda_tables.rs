//! `CREATE FUNCTION .. RETURNS TABLE .. LANGUAGE cuda`: functions of whole tables of a session.
//!
//! The twin is planned once, when the function is made, over a table of its columns; a call puts its rows and values in.

use std::any::Any;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::catalog::TableProvider;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, internal_err, plan_datafusion_err, plan_err};
use datafusion::datasource::empty::EmptyTable;
use datafusion::datasource::source_as_provider;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::sql::sqlparser::ast::DataType as SqlType;
use headrace_ir::CudaTableFunction;
use headrace_runner::check_table_function;

use crate::catalog::with_opened;
use crate::cuda_functions::{compiled, known};
use crate::functions::cuda::{coerced, schema_of};
use crate::functions::cuda_table::{CudaTable, Known, TwinRows, counts_schema};
use crate::session::Session;
use crate::sql::cuda_function::{Definition, Named, Returns};
use crate::sql::filled::Parameter;
use crate::sql::{Parsed, type_name};

impl Session {
    /// Makes a function of a table.
    ///
    /// # Errors
    /// One that cannot be made.
    pub(crate) async fn create_table_function(
        &self,
        made: Definition,
        state: &SessionState,
    ) -> Result<()> {
        let Definition { name, parameters, returns, body, first_line, twin, .. } = made;
        let Returns::Table(table) = returns else {
            return internal_err!("{name}() returns a value");
        };
        let schema = |columns| self.schema_of(columns, state);
        let columns = schema(&table.columns).await?;
        let values = schema(&parameters).await?;
        let outputs = schema(&table.outputs).await?;
        let function = CudaTableFunction {
            name: name.clone(),
            table: table.table,
            columns: ir_columns(&columns)?,
            parameters: ir_columns(&values)?,
            outputs: ir_columns(&outputs)?,
            emits: table.rows.is_some(),
            block_threads: table.block_threads,
            body,
        };
        if let Some(cause) = function.error() {
            return plan_err!("{name}(): {cause}");
        }
        let rows = self.count("ROWS", &name, table.rows, &values, state).await?;
        let blocks = self.count("GRID", &name, table.blocks, &values, state).await?;
        let twin = match twin {
            None => None,
            Some(text) => {
                let twin = self.table_twin(&text, &function, (&columns, &outputs), &parameters);
                let twin = twin.await.map_err(|error| {
                    plan_datafusion_err!("the TWIN of {name}(): {}", error.strip_backtrace())
                })?;
                Some(twin)
            }
        };
        compiled(&name, &first_line, {
            let function = function.clone();
            move || check_table_function(&function)
        })
        .await?;
        let function = Arc::new(function);
        let parameters = values;
        let made = CudaTable { function, columns, parameters, outputs, rows, blocks, twin };
        // One of the name may have been of values.
        self.drop_function(&name);
        self.register_table_function(&name, Arc::new(Known(Arc::new(made))));
        Ok(())
    }

    /// The Arrow types of columns as they are written.
    async fn schema_of(&self, columns: &Named, state: &SessionState) -> Result<SchemaRef> {
        let mut fields = Vec::with_capacity(columns.len());
        for (name, written) in columns {
            fields.push((name.clone(), self.arrow_type(written, state).await?));
        }
        Ok(schema_of(fields))
    }

    /// A number of rows or blocks.
    async fn count(
        &self,
        clause: &str,
        name: &str,
        text: Option<String>,
        parameters: &SchemaRef,
        state: &SessionState,
    ) -> Result<Option<Arc<dyn PhysicalExpr>>> {
        let Some(text) = text else { return Ok(None) };
        let table = Arc::new(EmptyTable::new(counts_schema(parameters)));
        let expr = self.twin(&text, table, &SqlType::BigInt(None), state).await;
        expr.map(Some).map_err(|error| {
            plan_datafusion_err!(
                "{clause} of {name}() is no number over its parameters and rows: {}",
                error.strip_backtrace()
            )
        })
    }

    /// A twin over a table of the function's columns.
    async fn table_twin(
        &self,
        text: &str,
        function: &CudaTableFunction,
        (columns, outputs): (&SchemaRef, &SchemaRef),
        parameters: &Named,
    ) -> Result<LogicalPlan> {
        let state = &self.context().state();
        let typed = self.filled(text, |parameter| match parameter {
            Parameter::Named(wanted) => {
                let known = parameters.iter().find(|(name, _)| name == wanted);
                known
                    .map(|(name, written)| format!("cast(${name} as {written})"))
                    .ok_or_else(|| plan_datafusion_err!("there is no parameter {wanted}"))
            }
            Parameter::Nth(_) => plan_err!("parameters are called by their names, as $k"),
        })?;
        let rows: Arc<dyn TableProvider> = Arc::new(TwinRows(Arc::clone(columns)));
        let given = [(function.table.clone(), rows)].into_iter().collect();
        let parsed = Parsed::of(&typed, state)?;
        if !parsed.is_query() {
            return plan_err!("it is no query over {}", function.table);
        }
        let planned = with_opened(given, parsed.plan(state)).await?;
        check_scans(&planned.logical, &function.table)?;
        let schema = planned.logical.schema();
        let types = |schema: &SchemaRef| {
            schema.fields().iter().map(|f| f.data_type().clone()).collect::<Vec<DataType>>()
        };
        let given: Vec<_> = schema.fields().iter().map(|f| f.data_type().clone()).collect();
        coerced(&function.name, &given, types(outputs)).map_err(|_| {
            let shown =
                |types: &[DataType]| types.iter().map(type_name).collect::<Vec<_>>().join(", ");
            plan_datafusion_err!(
                "its columns are ({}), and not ({})",
                shown(&given),
                shown(&types(outputs))
            )
        })?;
        Ok(planned.logical)
    }
}

/// A twin is planned once, and other tables change: it reads its own alone, and functions of the planner.
fn check_scans(twin: &LogicalPlan, table: &str) -> Result<()> {
    twin.apply_with_subqueries(|node| {
        let LogicalPlan::TableScan(scan) = node else { return Ok(TreeNodeRecursion::Continue) };
        let provider = source_as_provider(&scan.source)?;
        let provider: &dyn Any = provider.as_ref();
        let name = scan.table_name.table();
        match provider.is::<TwinRows>() || name.ends_with("()") {
            true => Ok(TreeNodeRecursion::Continue),
            false => plan_err!("it reads {name}, and is to be a query over {table} alone"),
        }
    })?;
    Ok(())
}

fn ir_columns(schema: &SchemaRef) -> Result<Vec<(String, headrace_ir::DataType)>> {
    let columns = schema.fields().iter();
    columns.map(|field| Ok((field.name().clone(), known(field.data_type())?))).collect()
}
