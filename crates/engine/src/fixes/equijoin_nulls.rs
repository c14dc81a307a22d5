//! `a IS NOT DISTINCT FROM b` beside `a = b` in one join.
//!
//! `extract_equijoin_predicate` makes `a = b` a key of whatever join it is asked of, also of one where NULL equals NULL. Such joins
//! go without it.

use datafusion::common::{NullEquality, Result};
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::OptimizerConfig;

/// Whether a plan's own node is a join where NULL equals NULL.
///
/// # Errors
/// None.
pub fn are_equal(plan: &LogicalPlan, _: &dyn OptimizerConfig) -> Result<bool> {
    let LogicalPlan::Join(join) = plan else { return Ok(false) };
    Ok(join.null_equality == NullEquality::NullEqualsNull)
}
