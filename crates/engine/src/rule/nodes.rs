//! Nodes of the planner's plans.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_expr::window::WindowExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec};
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};

use crate::catalog::reads_row_groups;
use crate::scan::HeadraceScanExec;

/// Whether a plan is a scan that pipelines read themselves.
pub fn is_streamed(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.is::<HeadraceScanExec>()
        || plan.downcast_ref::<DataSourceExec>().is_some_and(reads_row_groups)
}

/// Whether a plan is a join that pipelines may have.
pub fn is_join(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.is::<HashJoinExec>() || plan.is::<CrossJoinExec>() || plan.is::<NestedLoopJoinExec>()
}

/// Window functions, and what they are over.
pub type WindowsOf<'p> = (&'p [Arc<dyn WindowExpr>], &'p Arc<dyn ExecutionPlan>);

/// The window functions of a node.
pub fn windows_of(plan: &Arc<dyn ExecutionPlan>) -> Option<WindowsOf<'_>> {
    if let Some(window) = plan.downcast_ref::<WindowAggExec>() {
        return Some((window.window_expr(), window.input()));
    }
    let window = plan.downcast_ref::<BoundedWindowAggExec>()?;
    Some((window.window_expr(), window.input()))
}

/// Whether a node has window functions.
pub fn is_window(plan: &Arc<dyn ExecutionPlan>) -> bool {
    windows_of(plan).is_some()
}

/// Whether a node puts out the rows of its one input, in whatever partitions.
pub fn passes_rows(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let passes = plan.is::<CoalescePartitionsExec>()
        || plan.is::<RepartitionExec>()
        || plan.is::<CooperativeExec>();
    passes && plan.fetch().is_none()
}

/// A node over other children.
pub fn with_children(
    plan: Arc<dyn ExecutionPlan>,
    children: Vec<Arc<dyn ExecutionPlan>>,
) -> Result<Arc<dyn ExecutionPlan>> {
    plan.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
}
