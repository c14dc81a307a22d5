//! Where the planner means something else than SQL: rules that change a plan while it is still logical, before
//! anything is concluded from it, so that pipelines and the planner's own operators both answer as SQL does.
//!
//! - [`correlated`], by [`one`], [`dependent`] and [`stable`]: subqueries that look at the outer row, wherever they stand.
//! - [`outer_aggregates`]: aggregates of outer columns are the outer query's.
//! - [`subqueries`]: a subquery of one value may be NULL.
//! - [`unnested`]: unnest of an outer column in FROM.
//! - [`not_in`]: IN, ANY and ALL of a subquery.
//! - [`casts`]: casts that lose digits round.
//! - [`digits`]: types of decimals.
//! - [`interval_groups`]: groups by intervals.
//! - [`moment_texts`]: moments and intervals as texts.
//! - [`moments`]: dates and intervals, AT TIME ZONE, texts with an offset.
//! - [`struct_orders`]: windows that are ordered by structs.
//! - [`together`]: dates beside timestamps.
//! - [`set_operations`]: EXCEPT ALL and INTERSECT ALL count rows.
//! - [`order`]: intervals by their length, and one zero, wherever values are compared.
//! - [`refused`]: what the planner takes, and means nothing by.
//! - [`similar`]: patterns of SIMILAR TO.
//! - [`ordered`]: aggregates are ordered by what orders something.
//! - [`order_keys`]: functions within what orders rows are computed first.
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
mod one;
mod only;
mod order;
mod order_keys;
mod ordered;
mod outer;
mod outer_aggregates;
mod refused;
mod set_operations;
mod similar;
mod stable;
mod struct_orders;
mod subqueries;
mod together;
mod unnested;

pub use casts::Rint;
pub use order::Comparable;
pub use ordered::OrdersInShort;

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::{LogicalPlan, ScalarUDF};
use datafusion::optimizer::AnalyzerRule;

use crate::floats::computed;

/// The rules for plans whose types are coerced, in the order in which they are to run.
pub fn rules() -> impl Iterator<Item = Arc<dyn AnalyzerRule + Send + Sync>> {
    [
        each("headrace_refused", refused::check),
        each("headrace_outer_aggregates", outer_aggregates::rewrite),
        each("headrace_any_and_all", not_in::rewrite_comparisons),
        Arc::new(correlated::Subqueries) as _,
        each("headrace_nullable_subqueries", subqueries::rewrite),
        each("headrace_not_in", not_in::rewrite),
        each("headrace_set_operations", set_operations::rewrite),
        each("headrace_casts", casts::rewrite),
        each("headrace_local_times", moments::rewrite_texts),
        each("headrace_order", order::rewrite),
        each("headrace_interval_groups", interval_groups::rewrite),
        each("headrace_similar", similar::rewrite),
        each("headrace_ordered_aggregates", ordered::rewrite),
        each("headrace_one_nan", computed::rewrite),
        each("headrace_order_keys", order_keys::rewrite),
    ]
    .into_iter()
}

fn each(name: &'static str, rewrite: Rewrite) -> Arc<dyn AnalyzerRule + Send + Sync> {
    Arc::new(EachNode { name, rewrite })
}

/// The rule that is to run before types are coerced.
pub fn untyped_rule() -> Arc<dyn AnalyzerRule + Send + Sync> {
    each("headrace_dates_and_intervals", moments::rewrite_sums)
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
