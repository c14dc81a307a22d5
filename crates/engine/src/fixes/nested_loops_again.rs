//! What the planner's nested loop joins do in little memory, mended.
//!
//! ```sql
//! SELECT count(*) FROM l LEFT JOIN r ON l.v < r.w  -- `l` larger than the memory, `r` of several partitions
//! ```
//!
//! - DataFusion: Rows too many, rows too few, or a panic: the left side is executed a second time, and each partition of the
//!   right side has left rows of its own; right is as with more memory.
//! - Upstream: apache/datafusion#24676 and apache/datafusion#22641; apache/datafusion#24677 and apache/datafusion#24675 mend
//!   them, which no release has yet.
//! - This can go when its canary finds the fault mended.
//!
//! Where its left side does not fit, such a join asks for that side's rows once more. Joins and exchanges below have
//! handed over what they had, and give too few rows or none the second time: [`ReexecutableExec`] lets them begin anew. And each
//! partition of the right side then takes the left rows that it has no partner for as rows without any: joins that
//! put out left rows get a right side of one partition.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use datafusion::common::JoinType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::{
    ChildrenPropertiesMode, ReplaceChildrenOptions, reset_plan_states,
};
use datafusion::physical_plan::joins::NestedLoopJoinExec;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
};
use parking_lot::Mutex;

/// The rule, for sessions with a memory limit.
#[derive(Debug, Default)]
pub struct NestedLoopsInLittleMemory;

impl PhysicalOptimizerRule for NestedLoopsInLittleMemory {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(mend).map(|t| t.data)
    }

    fn name(&self) -> &str {
        "headrace_nested_loops"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

fn mend(plan: Arc<dyn ExecutionPlan>) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
    let Some(join) = plan.downcast_ref::<NestedLoopJoinExec>() else {
        return Ok(Transformed::no(plan));
    };
    let left: Arc<dyn ExecutionPlan> = Arc::new(ReexecutableExec::new(Arc::clone(join.left())));
    let mut right = Arc::clone(join.right());
    if puts_out_left_rows(*join.join_type()) && right.output_partitioning().partition_count() > 1 {
        right = Arc::new(CoalescePartitionsExec::new(right));
    }
    let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
    plan.replace_children(vec![left, right], options).map(Transformed::yes)
}

/// Whether a join puts out left rows by what they have on the whole right side.
fn puts_out_left_rows(join_type: JoinType) -> bool {
    use JoinType::{Full, Left, LeftAnti, LeftMark, LeftSemi};
    matches!(join_type, Full | Left | LeftAnti | LeftMark | LeftSemi)
}

/// A plan that may be executed more than once: it begins anew when a partition is asked for again. Its partitions share one
/// execution: an exchange below deals its rows to all of them. Rules move nothing through it.
#[derive(Debug)]
pub struct ReexecutableExec {
    input: Arc<dyn ExecutionPlan>,
    current: Mutex<Execution>,
}

/// A plan and those of its partitions that were executed.
#[derive(Debug)]
struct Execution {
    plan: Arc<dyn ExecutionPlan>,
    executed: HashSet<usize>,
}

impl ReexecutableExec {
    /// Of a plan that was not executed yet.
    pub fn new(input: Arc<dyn ExecutionPlan>) -> Self {
        let execution = Execution { plan: Arc::clone(&input), executed: HashSet::new() };
        Self { input, current: Mutex::new(execution) }
    }
}

impl DisplayAs for ReexecutableExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReexecutableExec")
    }
}

impl ExecutionPlan for ReexecutableExec {
    fn name(&self) -> &str {
        "ReexecutableExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
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
            _ => internal_err!("ReexecutableExec has one child"),
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
        let mut current = self.current.lock();
        if !current.executed.insert(partition) {
            let plan = reset_plan_states(Arc::clone(&self.input))?;
            *current = Execution { plan, executed: HashSet::from([partition]) };
        }
        let plan = Arc::clone(&current.plan);
        drop(current);
        plan.execute(partition, context)
    }
}
