//! Where the planner means something else than SQL: rules that change a plan while it is still logical, before
//! anything is concluded from it, so that pipelines and the planner's own operators both answer as SQL does.
//!
//! - [`correlated`]: subqueries that look at the outer row, wherever they stand.
//! - [`outer_aggregates`]: aggregates of outer columns are the outer query's.
//! - [`subqueries`]: a subquery of one value may be NULL.
//! - [`not_in`]: IN, ANY and ALL of a subquery.
//! - [`casts`]: casts that lose digits round.
//! - [`digits`]: types of decimals.
//! - [`interval_groups`]: groups by intervals.
//! - [`moment_texts`]: moments and intervals as texts.
//! - [`moments`]: dates and intervals, AT TIME ZONE, texts with an offset.
//! - [`set_operations`]: EXCEPT ALL and INTERSECT ALL count rows.
//! - [`order`]: intervals by their length, and one zero, wherever values are compared.
//! - [`refused`]: what the planner takes, and means nothing by.
//! - [`similar`]: patterns of SIMILAR TO.
//! - [`ordered`]: aggregates are ordered by what orders something.
//! - [`crate::floats::computed`]: one NaN.
//!
//! Each may see a plan that it has changed before: what it makes is not what it looks for.

mod casts;
mod correlated;
mod dependent;
mod digits;
mod interval_groups;
mod moment_texts;
mod moments;
mod not_in;
mod only;
mod order;
mod ordered;
mod outer;
mod outer_aggregates;
mod refused;
mod set_operations;
mod similar;
mod subqueries;

pub use casts::Rint;
pub use order::Comparable;

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, LogicalPlan, ScalarUDF};
use datafusion::optimizer::AnalyzerRule;

use crate::floats::computed;

/// The rules for plans whose types are coerced, in the order in which they are to run.
pub fn rules() -> impl Iterator<Item = Arc<dyn AnalyzerRule + Send + Sync>> {
    let rules: [(&'static str, Rewrite); 14] = [
        ("headrace_refused", refused::check),
        ("headrace_outer_aggregates", outer_aggregates::rewrite),
        ("headrace_any_and_all", not_in::rewrite_comparisons),
        ("headrace_correlated_subqueries", correlated::rewrite),
        ("headrace_nullable_subqueries", subqueries::rewrite),
        ("headrace_not_in", not_in::rewrite),
        ("headrace_set_operations", set_operations::rewrite),
        ("headrace_casts", casts::rewrite),
        ("headrace_local_times", moments::rewrite_texts),
        ("headrace_order", order::rewrite),
        ("headrace_interval_groups", interval_groups::rewrite),
        ("headrace_similar", similar::rewrite),
        ("headrace_ordered_aggregates", ordered::rewrite),
        ("headrace_one_nan", computed::rewrite),
    ];
    rules.into_iter().map(|(name, rewrite)| Arc::new(EachNode { name, rewrite }) as _)
}

/// The rule that is to run before types are coerced.
pub fn untyped_rule() -> Arc<dyn AnalyzerRule + Send + Sync> {
    Arc::new(EachNode { name: "headrace_dates_and_intervals", rewrite: moments::rewrite_sums })
}

/// Functions that the rules, and what users write, ask for.
pub fn functions() -> [ScalarUDF; 2] {
    [casts::rint(), moments::timezone()]
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
