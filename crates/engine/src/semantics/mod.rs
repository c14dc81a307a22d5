//! Where the planner means something else than SQL: rules that change a plan while it is still logical, before
//! anything is concluded from it, so that pipelines and the planner's own operators both answer as SQL does.
//!
//! - [`correlated`]: subqueries that look at the outer row, wherever they stand.
//! - [`subqueries`]: a subquery of one value may be NULL.
//! - [`not_in`]: NOT IN of a subquery that looks at the outer row.
//! - [`set_operations`]: EXCEPT ALL and INTERSECT ALL count rows.
//! - [`order`]: intervals by their length, and one zero, wherever values are compared.
//! - [`similar`]: patterns of SIMILAR TO.
//! - [`ordered`]: aggregates are ordered by what orders something.
//! - [`crate::floats::computed`]: one NaN.
//!
//! Each may see a plan that it has changed before: what it makes is not what it looks for.

mod correlated;
mod dependent;
mod not_in;
mod only;
mod order;
mod ordered;
mod outer;
mod set_operations;
mod similar;
mod subqueries;

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;

use crate::floats::computed;

/// The rules, in the order in which they are to run.
pub fn rules() -> impl Iterator<Item = Arc<dyn AnalyzerRule + Send + Sync>> {
    let rules: [(&'static str, Rewrite); 8] = [
        ("headrace_correlated_subqueries", correlated::rewrite),
        ("headrace_nullable_subqueries", subqueries::rewrite),
        ("headrace_not_in", not_in::rewrite),
        ("headrace_set_operations", set_operations::rewrite),
        ("headrace_order", order::rewrite),
        ("headrace_similar", similar::rewrite),
        ("headrace_ordered_aggregates", ordered::rewrite),
        ("headrace_one_nan", computed::rewrite),
    ];
    rules.into_iter().map(|(name, rewrite)| Arc::new(EachNode { name, rewrite }) as _)
}

type Rewrite = fn(LogicalPlan) -> Result<Transformed<LogicalPlan>>;

/// Changes each node of a plan, those of subqueries too, after the nodes below it.
#[derive(Debug)]
struct EachNode {
    name: &'static str,
    rewrite: Rewrite,
}

impl AnalyzerRule for EachNode {
    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(self.rewrite).map(|t| t.data)
    }

    fn name(&self) -> &str {
        self.name
    }
}

/// Changes the expressions of a node; what they are called stays.
pub(crate) fn map_expressions(
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
