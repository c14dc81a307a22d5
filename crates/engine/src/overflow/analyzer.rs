//! Replaces operators that wrap by functions that fail.

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator};
use datafusion::optimizer::AnalyzerRule;

use super::arith::{checked_arithmetic, checked_negate};
use super::can_overflow;

/// The rule; it runs after type coercion, when operands have their final types.
#[derive(Debug, Default)]
pub struct CheckedArithmeticRule;

impl AnalyzerRule for CheckedArithmeticRule {
    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(rewrite_plan).map(|t| t.data)
    }

    fn name(&self) -> &str {
        "headrace_checked_arithmetic"
    }
}

fn rewrite_plan(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let mut schema = merge_schema(&plan.inputs());
    if let LogicalPlan::TableScan(scan) = &plan {
        schema.merge(&DFSchema::try_from_qualified_schema(
            scan.table_name.clone(),
            &scan.source.schema(),
        )?);
    }
    let names = NamePreserver::new(&plan);
    let rewritten = plan.map_expressions(|expr| {
        let name = names.save(&expr);
        // From above: the type of an operator takes a look at its operands, that of a function their names.
        let rewritten = expr.transform_down(|e| rewrite_expr(e, &schema))?;
        Ok(rewritten.update_data(|e| name.restore(e)))
    })?;
    rewritten.map_data(LogicalPlan::recompute_schema)
}

fn rewrite_expr(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right })
            if matches!(op, Operator::Plus | Operator::Minus | Operator::Multiply) =>
        {
            let overflows =
                can_overflow(&left.get_type(schema)?) && can_overflow(&right.get_type(schema)?);
            if overflows {
                return Ok(Transformed::yes(checked_arithmetic(op).call(vec![*left, *right])));
            }
            Ok(Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right })))
        }
        Expr::Negative(value) if can_overflow(&value.get_type(schema)?) => {
            Ok(Transformed::yes(checked_negate().call(vec![*value])))
        }
        other => Ok(Transformed::no(other)),
    }
}
