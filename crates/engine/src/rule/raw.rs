//! Aggregations of raw rows among the planner's partial and final ones.

use std::sync::Arc;

use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::repartition::RepartitionExec;

/// The node that aggregates raw rows, for a plan whose root yields final values: itself, or
/// the partial aggregation below it.
pub fn raw_aggregation(root: &AggregateExec) -> Option<&AggregateExec> {
    match root.mode() {
        AggregateMode::Single | AggregateMode::SinglePartitioned => Some(root),
        AggregateMode::Final | AggregateMode::FinalPartitioned => partial_below(root.input()),
        _ => None,
    }
}

fn partial_below(plan: &Arc<dyn ExecutionPlan>) -> Option<&AggregateExec> {
    if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
        return (*aggregate.mode() == AggregateMode::Partial).then_some(aggregate);
    }
    let passes = plan.is::<CoalescePartitionsExec>() || plan.is::<RepartitionExec>();
    match plan.children().as_slice() {
        [input] if passes => partial_below(input),
        _ => None,
    }
}
