//! A full join as a left join, and the rows of the other side that have no match.
//!
//! ```text
//! L full join R   =   L left join R   union all   NULLs, R where no row of L matches
//! ```
//!
//! Both are pipelines of their own, with builds that may be of any size. Both sides are read twice, so
//! this is only done where they give the same rows each time. Groups and windows are made twice, unless both halves are
//! stages of one program (see [`super::unions`]).

use std::sync::Arc;

use datafusion::common::{JoinType, Result, ScalarValue};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{Column, Literal};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::joins::{HashJoinExec, HashJoinExecBuilder};
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use datafusion::physical_plan::union::UnionExec;

use super::nodes::is_window;
use super::stable::is_same_each_time;
use crate::fixes::nested_loops_again::ReexecutableExec;

/// The two halves of a full join.
pub struct Halves {
    /// All rows of the left side.
    pub left: Arc<dyn ExecutionPlan>,
    /// The rows of the right side without a match.
    pub right: Arc<dyn ExecutionPlan>,
    /// The join's columns, of those of the right half.
    columns: Vec<ProjectionExpr>,
}

/// The halves of a join; `None` for one that is not full, or whose sides may differ from time to time, or have groups where
/// these would be made twice.
pub fn halves(join: &HashJoinExec, groups_are_shared: bool) -> Result<Option<Halves>> {
    let sides = [join.left(), join.right()];
    let is_full = *join.join_type() == JoinType::Full && join.fetch().is_none();
    let may_be_twice = |side| is_same_each_time(side) && (groups_are_shared || !is_made(side));
    if !is_full || !sides.into_iter().all(may_be_twice) {
        return Ok(None);
    }
    let half = |join_type| {
        let (left, right) = (Arc::clone(join.left()), Arc::clone(join.right()));
        HashJoinExecBuilder::new(left, right, join.on().to_vec(), join_type)
            .with_filter(join.filter().cloned())
            .with_null_equality(join.null_equality())
            .with_partition_mode(*join.partition_mode())
    };
    let wanted: Vec<usize> = match join.projection.as_deref() {
        Some(wanted) => wanted.to_vec(),
        None => (0..join.join_schema().fields().len()).collect(),
    };
    let left_fields = join.left().schema().fields().len();
    let column = |&index: &usize| {
        let field = join.join_schema().field(index);
        let expr: Arc<dyn PhysicalExpr> = match index.checked_sub(left_fields) {
            Some(index) => Arc::new(Column::new(field.name(), index)),
            None => Arc::new(Literal::new(ScalarValue::try_from(field.data_type())?)),
        };
        Ok(ProjectionExpr { expr, alias: field.name().clone() })
    };
    let columns = wanted.iter().map(column).collect::<Result<Vec<_>>>()?;
    let left = half(JoinType::Left).with_projection(Some(wanted)).build_exec()?;
    let right = half(JoinType::RightAnti).build_exec()?;
    Ok(Some(Halves { left, right, columns }))
}

impl Halves {
    /// Plans whose rows, one after the other, are those of the join.
    pub fn members(self) -> Result<[Arc<dyn ExecutionPlan>; 2]> {
        let right = ProjectionExec::try_new(self.columns, self.right)?;
        Ok([self.left, Arc::new(right)])
    }

    /// The join again, of what its halves have become.
    pub fn joined(
        self,
        left: Arc<dyn ExecutionPlan>,
        right: Arc<dyn ExecutionPlan>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let members = Self { left, right, ..self }.members()?;
        let union = UnionExec::try_new(members.into())?;
        // A projection that the planner moves below a union tells of equal columns, of which the union knows nothing, and an
        // order by both loses one. It moves none below this node.
        Ok(Arc::new(ReexecutableExec::new(union)))
    }
}

/// Whether a plan has groups or window functions, which would be made twice.
fn is_made(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.is::<AggregateExec>() || is_window(plan) || plan.children().into_iter().any(is_made)
}
