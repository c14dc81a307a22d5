//! Nodes of the planner's plans.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};

use crate::catalog::reads_row_groups;
use crate::scan::HeadraceScanExec;

/// Whether a plan is a scan that pipelines read themselves.
pub fn is_streamed(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.is::<HeadraceScanExec>()
        || plan.downcast_ref::<DataSourceExec>().is_some_and(reads_row_groups)
}

/// A node over other children.
pub fn with_children(
    plan: Arc<dyn ExecutionPlan>,
    children: Vec<Arc<dyn ExecutionPlan>>,
) -> Result<Arc<dyn ExecutionPlan>> {
    plan.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
}
