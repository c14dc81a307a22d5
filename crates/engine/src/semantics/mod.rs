//! Where the planner means something else than SQL: rules that change a plan while it is still logical, before
//! anything is concluded from it, so that pipelines and the planner's own operators both answer as SQL does.
//!
//! - [`casts`]: casts that lose digits round.
//! - [`interval_groups`]: groups by intervals.
//! - [`moment_texts`]: moments and intervals as texts.
//! - [`moments`]: dates and intervals, AT TIME ZONE, texts with an offset.
//! - [`order`]: intervals by their length, and one zero, wherever values are compared.
//!
//! Rules of [`fixes`](crate::fixes) correct the planner's mistakes in the same pass.
//!
//! Each may see a plan that it has changed before: what it makes is not what it looks for.

mod casts;
mod interval_groups;
pub mod moment_texts;
mod moments;
mod order;

pub use casts::Rint;
pub use order::Comparable;

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::{LogicalPlan, ScalarUDF};
use datafusion::optimizer::AnalyzerRule;

use crate::fixes::{
    computed_nans, correlated, in_subqueries, meaningless, nullable_subqueries, order_keys,
    outer_aggregates, repeated_orders, set_operations, similar_to,
};

/// The rules for plans whose types are coerced, in the order in which they are to run.
pub fn rules() -> impl Iterator<Item = Arc<dyn AnalyzerRule + Send + Sync>> {
    [
        each("headrace_refused", meaningless::check),
        each("headrace_outer_aggregates", outer_aggregates::rewrite),
        each("headrace_any_and_all", in_subqueries::rewrite_comparisons),
        Arc::new(correlated::Subqueries) as _,
        each("headrace_nullable_subqueries", nullable_subqueries::rewrite),
        each("headrace_not_in", in_subqueries::rewrite),
        each("headrace_set_operations", set_operations::rewrite),
        each("headrace_casts", casts::rewrite),
        each("headrace_local_times", moments::rewrite_texts),
        each("headrace_order", order::rewrite),
        each("headrace_interval_groups", interval_groups::rewrite),
        each("headrace_similar", similar_to::rewrite),
        each("headrace_ordered_aggregates", repeated_orders::rewrite),
        each("headrace_one_nan", computed_nans::rewrite),
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
