//! Plans that give the same rows whenever they are run.

use std::sync::Arc;

use datafusion::arrow::datatypes::Schema;
use datafusion::logical_expr::WindowFrameUnits;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::window::WindowExpr;
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::{ExecutionPlan, PhysicalExpr};

use super::nodes::{is_streamed, windows_of};
use super::window_stages::{aggregate_of, function_of, is_filtered};

/// Whether a plan gives the same rows whenever it is run: whatever is computed of the rows of files, but
/// no first ones in whatever order they come, no sums of floats, and nothing random.
pub fn is_same_each_time(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let is_stable = if let Some(filter) = plan.downcast_ref::<FilterExec>() {
        !is_volatile(filter.predicate())
    } else if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        !projection.expr().iter().any(|column| is_volatile(&column.expr))
    } else if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
        !join.filter().is_some_and(|filter| is_volatile(filter.expression()))
    } else if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
        are_stable(aggregate)
    } else if let Some((windows, input)) = windows_of(plan) {
        windows.iter().all(|window| is_window_stable(window.as_ref(), input))
    } else {
        is_streamed(plan)
            || plan.is::<CrossJoinExec>()
            || plan.is::<CoalescePartitionsExec>()
            || plan.is::<RepartitionExec>()
    };
    is_stable && plan.fetch().is_none() && plan.children().into_iter().all(is_same_each_time)
}

/// The columns of a window's partitions and order, as far as they are columns.
fn keys_of(window: &dyn WindowExpr) -> Vec<usize> {
    let order = window.order_by().iter().map(|key| &key.expr);
    let keys = window.partition_by().iter().chain(order);
    keys.filter_map(|key| Some(key.downcast_ref::<Column>()?.index())).collect()
}

/// Whether no two rows of a plan are equal in some of its columns.
fn are_unique(plan: &Arc<dyn ExecutionPlan>, columns: Vec<usize>) -> bool {
    if let Some(groups) = plan.downcast_ref::<AggregateExec>() {
        let keys = groups.group_expr();
        return !keys.has_grouping_set() && (0..keys.expr().len()).all(|it| columns.contains(&it));
    }
    let Some(projection) = plan.downcast_ref::<ProjectionExec>() else { return false };
    let below =
        |column: usize| Some(projection.expr().get(column)?.expr.downcast_ref::<Column>()?.index());
    are_unique(projection.input(), columns.into_iter().filter_map(below).collect())
}

/// Whether a window function has the same results in whatever order rows of a plan that tie come.
fn is_window_stable(window: &dyn WindowExpr, input: &Arc<dyn ExecutionPlan>) -> bool {
    let order = window.order_by().iter().map(|key| &key.expr);
    let mut read = window.partition_by().iter().chain(order).cloned().chain(window.expressions());
    if read.any(|expr| is_volatile(&expr)) {
        return false;
    }
    let aggregate = aggregate_of(window);
    let takes_ties = match aggregate {
        Some(_) => window.get_window_frame().units != WindowFrameUnits::Rows,
        None => {
            let name = function_of(window).map(|function| function.fun().name());
            matches!(name, Some("rank" | "dense_rank"))
        }
    };
    // A FILTER is not among what is read.
    let is_stable = |call| is_call_stable(call, &input.schema()) && !is_filtered(window);
    aggregate.is_none_or(is_stable) && (takes_ties || are_unique(input, keys_of(window)))
}

/// Whether groups have the same values in whatever order their rows come.
fn are_stable(groups: &AggregateExec) -> bool {
    let keys = groups.group_expr().expr().iter().map(|(key, _)| key);
    let filters = groups.filter_expr().iter().flatten();
    let arguments = groups.aggr_expr().iter().flat_map(|call| call.expressions());
    let schema = groups.input_schema();
    let are_calls_stable = groups.aggr_expr().iter().all(|call| is_call_stable(call, &schema));
    let mut all = keys.chain(filters).cloned().chain(arguments);
    are_calls_stable && !all.any(|expr: Arc<dyn PhysicalExpr>| is_volatile(&expr))
}

fn is_call_stable(call: &AggregateFunctionExpr, schema: &Schema) -> bool {
    match call.fun().name() {
        "count" | "min" | "max" | "bool_and" | "bool_or" => true,
        "sum" | "avg" => {
            let mut of = call.expressions().into_iter();
            of.all(|it| it.data_type(schema).is_ok_and(|of| !of.is_floating()))
        }
        _ => false,
    }
}
