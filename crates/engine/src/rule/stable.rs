//! Plans that give the same rows whenever they are run.

use std::sync::Arc;

use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::{ExecutionPlan, PhysicalExpr};

use super::nodes::is_streamed;

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
    } else {
        is_streamed(plan)
            || plan.is::<CrossJoinExec>()
            || plan.is::<CoalescePartitionsExec>()
            || plan.is::<RepartitionExec>()
    };
    is_stable && plan.fetch().is_none() && plan.children().into_iter().all(is_same_each_time)
}

/// Whether groups have the same values in whatever order their rows come.
fn are_stable(groups: &AggregateExec) -> bool {
    let keys = groups.group_expr().expr().iter().map(|(key, _)| key);
    let filters = groups.filter_expr().iter().flatten();
    let arguments = groups.aggr_expr().iter().flat_map(|call| call.expressions());
    let is_call_stable = groups.aggr_expr().iter().all(|call| match call.fun().name() {
        "count" | "min" | "max" | "bool_and" | "bool_or" => true,
        "sum" | "avg" => {
            let schema = groups.input_schema();
            let mut of = call.expressions().into_iter();
            of.all(|it| it.data_type(&schema).is_ok_and(|of| !of.is_floating()))
        }
        _ => false,
    });
    let mut all = keys.chain(filters).cloned().chain(arguments);
    is_call_stable && !all.any(|expr: Arc<dyn PhysicalExpr>| is_volatile(&expr))
}
