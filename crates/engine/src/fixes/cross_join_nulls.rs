//! Chained joins where NULL equals NULL in one of them.
//!
//! ```sql
//! SELECT * FROM a JOIN b ON a.x = b.y JOIN c ON b.y IS NOT DISTINCT FROM c.z  -- 1 and NULL each
//! ```
//!
//! - DataFusion: Rows of NULL are found, because `eliminate_cross_join` gives all keys the NULL equality of the outermost
//!   join; right is the row of 1 alone.
//! - Upstream: no upstream issue known; since apache/datafusion#16356 the rule takes one join's equality for all.
//! - This can go when its canary finds the fault mended.
//!
//! `eliminate_cross_join` flattens a tree of inner joins into one list of keys, and gives all of
//! them the NULL equality of the outermost join: `a = b` then matches NULLs, or
//! `a IS NOT DISTINCT FROM b` does not. Plans with a join where NULL equals NULL go without the
//! rule. They lose nothing but the order of cross joins: conditions become join keys by later
//! rules.

use datafusion::common::Result;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::OptimizerConfig;

use super::equijoin_nulls::are_equal;

/// Whether a plan has a join where NULL equals NULL.
///
/// # Errors
/// None.
pub fn are_equal_somewhere(plan: &LogicalPlan, config: &dyn OptimizerConfig) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        found |= are_equal(node, config)?;
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}
