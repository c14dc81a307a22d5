//! Keeps expressions above filters, so that they see only the rows that a filter keeps.
//!
//! ```sql
//! SELECT a / c, b FROM t WHERE b <> 0  -- c is 0 where b is
//! ```
//!
//! - DataFusion: A division by zero: `ProjectionPushdown` computes outputs below the filter where that makes rows narrower;
//!   right is the quotient of the rows that are left.
//! - Upstream: no upstream issue known.
//! - This can go when its canary finds the fault mended.
//!
//! The planner's `ProjectionPushdown` moves a projection below a filter where that makes rows narrower: `SELECT a / b
//! .. WHERE b <> 0` then divides by the zeros that WHERE drops. This rule lets only plain columns move below a filter.

use std::fmt::{self, Formatter};
use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::{
    ProjectionExec, remove_unnecessary_projections, try_embed_projection,
};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};

/// Wraps a rule that pushes projections down, and hides filters from it.
#[derive(Debug)]
pub struct AboveFilters(pub Arc<dyn PhysicalOptimizerRule + Send + Sync>);

impl PhysicalOptimizerRule for AboveFilters {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let fenced = plan.transform_up(|node| match node.is::<FilterExec>() {
            true => Ok(Transformed::yes(Arc::new(Fence(node)) as _)),
            false => Ok(Transformed::no(node)),
        })?;
        let moved = self.0.optimize(fenced.data, config)?;
        let open = moved.transform_up(|node| match node.downcast_ref::<Fence>() {
            Some(Fence(filter)) => Ok(Transformed::yes(Arc::clone(filter))),
            None => Ok(Transformed::no(node)),
        })?;
        open.data.transform_down(below_filters).data()
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn schema_check(&self) -> bool {
        self.0.schema_check()
    }
}

/// Pushes a projection down as the planner does, but an expression never below a filter.
fn below_filters(plan: Arc<dyn ExecutionPlan>) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
    if let Some(list) = plan.downcast_ref::<ProjectionExec>()
        && let Some(filter) = list.input().downcast_ref::<FilterExec>()
        && !list.expr().iter().all(|output| output.expr.is::<Column>())
    {
        let embedded = try_embed_projection(list, filter)?;
        return Ok(embedded.map_or_else(|| Transformed::no(Arc::clone(&plan)), Transformed::yes));
    }
    remove_unnecessary_projections(plan)
}

/// Stands in for a filter while the wrapped rule runs: the rule pushes no projection through it.
#[derive(Debug)]
struct Fence(Arc<dyn ExecutionPlan>);

impl DisplayAs for Fence {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut Formatter) -> fmt::Result {
        self.0.fmt_as(format, f)
    }
}

impl ExecutionPlan for Fence {
    fn name(&self) -> &str {
        "Fence"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.0.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.0.children()
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.0.apply_expressions(f)
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self(Arc::clone(&self.0).replace_children(children, options)?)))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        self.replace_children(children, options)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        self.0.execute(partition, context)
    }
}
