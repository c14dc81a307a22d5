//! Constants that are none, mended.
//!
//! ```sql
//! SELECT x.tag, t.id FROM (SELECT id, 'top' AS tag FROM t WHERE id = 3) AS x RIGHT JOIN t ON t.id = x.id AND t.id > 1
//! ORDER BY tag, t.id LIMIT 2
//! ```
//!
//! - DataFusion: The row with the tag is missing, since `tag` is taken for a constant above the join, where it is NULL in
//!   some rows; right is that row first.
//! - Upstream: no upstream issue known.
//! - This can go when its canary finds the fault mended.
//!
//! The planner takes a constant column of an outer join's second side, or a constant among the keys of grouping sets, for one
//! above the join or the grouping, too, where it is NULL in some rows. What is ordered by such a column is then not ordered at
//! all, or of its first rows some are left out. [`ForgetOrderingExec`] stands above these nodes, and claims nothing.

use std::fmt;
use std::sync::Arc;

use datafusion::common::JoinType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::joins::{HashJoinExec, NestedLoopJoinExec};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
};

/// The rule. It comes before orders are planned.
#[derive(Debug, Default)]
pub struct FalseConstants;

impl PhysicalOptimizerRule for FalseConstants {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mend = |plan: Arc<dyn ExecutionPlan>| {
            if !makes_nulls(&plan) || plan.equivalence_properties().constants().is_empty() {
                return Ok(Transformed::no(plan));
            }
            let plan: Arc<dyn ExecutionPlan> = Arc::new(ForgetOrderingExec::new(plan));
            Ok(Transformed::yes(plan))
        };
        plan.transform_up(mend).map(|t| t.data)
    }

    fn name(&self) -> &str {
        "headrace_false_constants"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Whether a node has NULLs where its input has a constant.
fn makes_nulls(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let is_outer = |join_type: &JoinType| {
        matches!(join_type, JoinType::Left | JoinType::Right | JoinType::Full)
    };
    if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
        return is_outer(join.join_type());
    }
    if let Some(join) = plan.downcast_ref::<NestedLoopJoinExec>() {
        return is_outer(join.join_type());
    }
    plan.downcast_ref::<AggregateExec>()
        .is_some_and(|aggregate| aggregate.group_expr().has_grouping_set())
}

/// The rows of a plan, of whose columns nothing is known.
#[derive(Debug)]
pub struct ForgetOrderingExec {
    input: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
}

impl ForgetOrderingExec {
    /// Of a plan.
    pub fn new(input: Arc<dyn ExecutionPlan>) -> Self {
        let of = input.properties();
        let properties = PlanProperties::new(
            EquivalenceProperties::new(input.schema()),
            of.output_partitioning().clone(),
            of.emission_type,
            of.boundedness,
        );
        Self { properties: Arc::new(properties), input }
    }
}

impl DisplayAs for ForgetOrderingExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ForgetOrderingExec")
    }
}

impl ExecutionPlan for ForgetOrderingExec {
    fn name(&self) -> &str {
        "ForgetOrderingExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match (children.pop(), children.pop()) {
            (Some(input), None) => Ok(Arc::new(Self::new(input))),
            _ => internal_err!("ForgetOrderingExec has one child"),
        }
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
        self.input.execute(partition, context)
    }
}
