//! The fragment that a pipeline stood for, run by the planner's own operators after all.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::ConfigOnlyContext;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;

use crate::planner_rules::physical_rules;

/// Applies the rules that the fragment missed when it was replaced, and makes it one partition.
pub fn finish_plan(
    fragment: Arc<dyn ExecutionPlan>,
    options: &ConfigOptions,
    planner_bytes: Option<u64>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let context = ConfigOnlyContext::new(options);
    let mut plan = fragment;
    for rule in missed_rules(planner_bytes) {
        plan = rule.optimize_with_context(plan, &context)?;
    }
    if plan.properties().partitioning.partition_count() > 1 {
        plan = Arc::new(CoalescePartitionsExec::new(plan));
    }
    Ok(plan)
}

fn missed_rules(planner_bytes: Option<u64>) -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
    let rules = physical_rules(planner_bytes);
    let first = rules.iter().position(|r| r.name() == "join_selection").unwrap_or_default();
    rules.into_iter().skip(first).collect()
}
