//! What can fail is asked of no row that the other side of its AND or OR decides.
//!
//! ```sql
//! SELECT x FROM t WHERE x <> 0 AND 10 / x > 1  -- x: 0, 2, 3, 4, 5, 20
//! ```
//!
//! - DataFusion: A division by zero: both sides are computed for all rows unless one decides nearly all of them; right is 2,
//!   3, 4 and 5.
//! - Upstream: apache/datafusion#8927.
//! - This can go when its canary finds the fault mended.
//!
//! The planner's AND and OR compute both sides for all rows, unless one side decides nearly all of them; and it makes
//! `CASE WHEN a <> 0 THEN 10 / a > 1 END` a conjunction, too. So a condition that guards another guarded it for some data, and
//! for other data the query failed. The side that can fail is put behind a CASE, which asks only the rows that are left;
//! of two sides, whichever cannot fail is the guard, as it is in pipelines. This comes last: it is
//! for what no pipeline took.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{
    BinaryExpr, Column, InListExpr, IsNotNullExpr, IsNullExpr, LikeExpr, Literal, NotExpr, case,
    lit,
};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::{FilterExec, FilterExecBuilder};
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};

/// The rule.
#[derive(Debug, Default)]
pub struct GuardedConjunctions;

impl PhysicalOptimizerRule for GuardedConjunctions {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(guard_node).map(|t| t.data)
    }

    fn name(&self) -> &str {
        "headrace_guarded_conjunctions"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

type Plan = Arc<dyn ExecutionPlan>;

fn guard_node(plan: Plan) -> Result<Transformed<Plan>> {
    if let Some(filter) = plan.downcast_ref::<FilterExec>() {
        let guarded = guard(filter.predicate())?;
        if guarded.transformed {
            let builder = FilterExecBuilder::from(filter).with_predicate(guarded.data);
            return Ok(Transformed::yes(Arc::new(builder.build()?)));
        }
    } else if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        let mut transformed = false;
        let mut exprs = Vec::with_capacity(projection.expr().len());
        for ProjectionExpr { expr, alias } in projection.expr() {
            let guarded = guard(expr)?;
            transformed |= guarded.transformed;
            exprs.push(ProjectionExpr { expr: guarded.data, alias: alias.clone() });
        }
        if transformed {
            let input = Arc::clone(projection.input());
            return Ok(Transformed::yes(Arc::new(ProjectionExec::try_new(exprs, input)?)));
        }
    }
    Ok(Transformed::no(plan))
}

type Expr = Arc<dyn PhysicalExpr>;

/// An expression whose conjunctions and disjunctions are guarded.
fn guard(expr: &Expr) -> Result<Transformed<Expr>> {
    Arc::clone(expr).transform_up(|expr| {
        let Some(binary) = expr.downcast_ref::<BinaryExpr>() else {
            return Ok(Transformed::no(expr));
        };
        // What decides: false does for AND, true for OR.
        let decides = match binary.op() {
            Operator::And => false,
            Operator::Or => true,
            _ => return Ok(Transformed::no(expr)),
        };
        let (left, right) = (binary.left(), binary.right());
        let (guard, guarded) = match (can_fail(left)?, can_fail(right)?) {
            (_, true) => (left, right),
            (true, false) => (right, left),
            (false, false) => return Ok(Transformed::no(expr)),
        };
        let (guard, guarded, op) = (Arc::clone(guard), Arc::clone(guarded), *binary.op());
        let decided: Expr = Arc::new(BinaryExpr::new(
            Arc::clone(&guard),
            Operator::IsNotDistinctFrom,
            lit(ScalarValue::from(decides)),
        ));
        let both: Expr = Arc::new(BinaryExpr::new(guard, op, guarded));
        let value = lit(ScalarValue::from(decides));
        Ok(Transformed::yes(case(None, vec![(decided, value)], Some(both))?))
    })
}

/// Whether an expression may fail for some row: all but what is known not to.
fn can_fail(expr: &Expr) -> Result<bool> {
    let mut found = false;
    expr.apply(|expr| {
        found |= !never_fails(expr);
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

/// Whether an expression fails for no row where its operands do not.
fn never_fails(expr: &Expr) -> bool {
    if let Some(binary) = expr.downcast_ref::<BinaryExpr>() {
        use Operator::*;
        let comparison = matches!(
            binary.op(),
            Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom
        );
        return comparison || binary.op().is_logic_operator();
    }
    expr.is::<Column>()
        || expr.is::<Literal>()
        || expr.is::<NotExpr>()
        || expr.is::<IsNullExpr>()
        || expr.is::<IsNotNullExpr>()
        || expr.is::<InListExpr>()
        || expr.is::<LikeExpr>()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use datafusion::arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch};
    use datafusion::physical_expr::expressions::col;

    use super::*;

    fn binary(left: Expr, op: Operator, right: Expr) -> Expr {
        Arc::new(BinaryExpr::new(left, op, right))
    }

    /// Rows of which one is zero, one NULL, and most make 10 / v > 1 true.
    fn batch() -> RecordBatch {
        let values = [Some(0), Some(2), None, Some(3), Some(20), Some(4), Some(5)];
        let column: ArrayRef = Arc::new(Int64Array::from_iter(values));
        RecordBatch::try_from_iter_with_nullable([("v", column, true)]).unwrap()
    }

    fn answer(expr: &Expr, batch: &RecordBatch) -> Result<Vec<Option<bool>>> {
        let array = expr.evaluate(batch)?.into_array(batch.num_rows())?;
        Ok(array.as_boolean().iter().collect())
    }

    #[test]
    fn a_side_that_fails_is_asked_only_where_the_other_does_not_decide() {
        let batch = batch();
        let v = || col("v", &batch.schema()).unwrap();
        let quotient = || binary(lit(10i64), Operator::Divide, v());
        let fails = || binary(quotient(), Operator::Gt, lit(1i64));
        let nonzero = || binary(v(), Operator::NotEq, lit(0i64));
        let zero = || binary(v(), Operator::Eq, lit(0i64));
        let conjunction = [false, true, false, true, false, true, true].map(Some);
        let disjunction = [true, true, false, true, false, true, true].map(Some);
        let with_null = |mut rows: [Option<bool>; 7]| {
            rows[2] = None;
            rows.to_vec()
        };
        for (written, expected) in [
            (binary(nonzero(), Operator::And, fails()), with_null(conjunction)),
            (binary(fails(), Operator::And, nonzero()), with_null(conjunction)),
            (binary(zero(), Operator::Or, fails()), with_null(disjunction)),
            (binary(fails(), Operator::Or, zero()), with_null(disjunction)),
        ] {
            assert!(answer(&written, &batch).is_err(), "{written} does not fail by itself");
            let guarded = guard(&written).unwrap();
            assert_eq!(answer(&guarded.data, &batch).unwrap(), expected, "{written}");
        }
    }

    #[test]
    fn what_cannot_fail_stays_as_it_is() {
        let batch = batch();
        let v = || col("v", &batch.schema()).unwrap();
        let small = binary(v(), Operator::Lt, lit(3i64));
        let both = binary(small, Operator::And, binary(v(), Operator::NotEq, lit(0i64)));
        assert!(!guard(&both).unwrap().transformed);
    }
}
