//! Calls in physical plans.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::Schema;
use datafusion::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::catalog::Session;
use datafusion::common::{DFSchema, Result, ScalarValue, internal_err, plan_err};
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{LogicalPlan, UserDefinedLogicalNode};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_planner::{ExtensionPlanner, PhysicalPlanner};
use headrace_runner::{Fallback, Processor};

use super::node::TableCall;
use crate::config::settings_of;
use crate::exec::TableCallExec;

/// Plans calls of functions of tables.
#[derive(Debug)]
pub struct TableCallPlanner;

#[async_trait]
impl ExtensionPlanner for TableCallPlanner {
    async fn plan_extension(
        &self,
        _planner: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        _logical_inputs: &[&LogicalPlan],
        inputs: &[Arc<dyn ExecutionPlan>],
        session: &dyn Session,
        _context: &PhysicalPlanningContext,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let Some(call) = node.as_any().downcast_ref::<TableCall>() else { return Ok(None) };
        let (rows, twin) = match inputs {
            [rows] => (rows, None),
            [rows, twin] => (rows, Some(twin)),
            _ => return internal_err!("a call of a table has its rows, and those of its twin"),
        };
        let settings = settings_of(session.config_options());
        // What must run on a GPU has no other way: its twin need not be one that pipelines run.
        let must = settings.fallback == Fallback::Forbid && settings.processor == Processor::Cuda;
        let twin = twin.filter(|_| !must).cloned();
        let values = values(call, session)?;
        let function = Arc::clone(&call.function);
        Ok(Some(Arc::new(TableCallExec::new(settings, function, values, Arc::clone(rows), twin))))
    }
}

/// The values of the parameters.
fn values(call: &TableCall, session: &dyn Session) -> Result<Vec<ScalarValue>> {
    let (name, schema) = (&call.function.function.name, DFSchema::empty());
    let options = RecordBatchOptions::new().with_row_count(Some(1));
    let row = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &options)?;
    let mut values = Vec::new();
    for (expr, field) in call.parameters.iter().zip(call.function.parameters.fields()) {
        let value = session.create_physical_expr(expr.clone(), &schema)?.evaluate(&row)?;
        let value = ScalarValue::try_from_array(&value.into_array(1)?, 0)?;
        if value.is_null() {
            return plan_err!("{name}() is given NULL as {}, and has no answer", field.name());
        }
        values.push(value);
    }
    Ok(values)
}
