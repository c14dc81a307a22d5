//! Groups by `x` and by `CAST(x AS INT)`, which have one name.
//!
//! ```sql
//! SELECT count(*) FROM t GROUP BY x, CAST(x AS INT)
//! ```
//!
//! - DataFusion: `eliminate_group_by_constant` refuses the projection that it has made, of two columns of one name; right is
//!   an answer.
//! - Upstream: no upstream issue known of the rule; apache/datafusion#4478 tells of the names.
//! - This can go when its canary finds the fault mended.
//!
//! `eliminate_group_by_constant` computes the cast above groups by `x`, as a column of the same name, and refuses what it
//! made; `single_distinct_aggregation_to_group_by` does so, too. Such groups go without both.

use std::collections::HashSet;

use datafusion::common::Result;
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::OptimizerConfig;

/// Whether a plan's own node groups by two things of one name.
///
/// # Errors
/// None.
pub fn have_one_name(plan: &LogicalPlan, _: &dyn OptimizerConfig) -> Result<bool> {
    let LogicalPlan::Aggregate(aggregate) = plan else { return Ok(false) };
    let mut names = HashSet::new();
    let mut is_new = |name: String| names.insert(name);
    Ok(!aggregate.group_expr.iter().all(|expr| is_new(expr.schema_name().to_string())))
}
