//! Nodes of logical plans as rules change them: their columns, and their expressions.

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, Result};
use datafusion::functions::core::expr_fn::coalesce;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{
    Aggregate, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, lit,
};

/// The value of an aggregate where no row was found may be none, or a number.
pub fn with_default(value: Expr, call: &Expr, aggregate: &Aggregate) -> Result<Expr> {
    let Expr::AggregateFunction(function) = call.clone().unalias() else { return Ok(value) };
    let default = function.func.default_value(&call.get_type(aggregate.input.schema())?)?;
    Ok(if default.is_null() { value } else { coalesce(vec![value, lit(default)]) })
}

/// Expressions with the names of columns.
pub fn renamed(
    exprs: impl IntoIterator<Item = Expr>,
    names: Vec<Column>,
) -> impl Iterator<Item = Expr> {
    exprs.into_iter().zip(names).map(|(expr, name)| match expr {
        Expr::Column(column) if column == name => Expr::Column(column),
        other => other.unalias().alias_qualified(name.relation, name.name),
    })
}

/// The columns of a plan.
pub fn columns_of(plan: &LogicalPlan) -> Vec<Expr> {
    plan.schema().columns().into_iter().map(Expr::Column).collect()
}

/// Expressions of columns as ones of what these are made of.
pub fn through(exprs: Vec<Expr>, columns: &[Column], made_of: &[Expr]) -> Result<Vec<Expr>> {
    let made = |part: Expr| {
        let Expr::Column(column) = &part else { return Ok(Transformed::no(part)) };
        let nth = columns.iter().position(|own| own == column);
        Ok(nth
            .map_or(Transformed::no(part), |nth| Transformed::yes(made_of[nth].clone().unalias())))
    };
    exprs.into_iter().map(|expr| Ok(expr.transform_up(made)?.data)).collect()
}

/// Rows for which all of some conditions are true.
pub fn with_filter(rows: LogicalPlan, conditions: Vec<Expr>) -> Result<LogicalPlan> {
    match conjunction(conditions) {
        Some(condition) => LogicalPlanBuilder::from(rows).filter(condition)?.build(),
        None => Ok(rows),
    }
}

/// Changes the expressions of a node; what they are called stays.
pub fn map_expressions(
    plan: LogicalPlan,
    mut rewrite: impl FnMut(Expr) -> Result<Transformed<Expr>>,
) -> Result<Transformed<LogicalPlan>> {
    let names = NamePreserver::new(&plan);
    let rewritten = plan.map_expressions(|expr| {
        let name = names.save(&expr);
        Ok(rewrite(expr)?.update_data(|e| name.restore(e)))
    })?;
    match rewritten.transformed {
        true => rewritten.map_data(LogicalPlan::recompute_schema),
        false => Ok(rewritten),
    }
}
