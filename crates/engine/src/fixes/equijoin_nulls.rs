//! `a IS NOT DISTINCT FROM b` beside `a = b` in one join.
//!
//! ```sql
//! SELECT * FROM a JOIN b ON a.x IS NOT DISTINCT FROM b.y WHERE a.x = b.y  -- 1 and NULL each
//! ```
//!
//! - DataFusion: The row of NULLs is found, because `extract_equijoin_predicate` makes `a.x = b.y` a key of a join where NULL
//!   equals NULL; right is the row of 1 alone.
//! - Upstream: no upstream issue known; apache/datafusion#12458 speaks of it.
//! - This can go when its canary finds the fault mended.
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
