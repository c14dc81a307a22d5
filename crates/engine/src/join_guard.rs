//! Keeps a rule of DataFusion from plans that it would change the meaning of.
//!
//! `eliminate_cross_join` flattens a tree of inner joins into one list of keys, and gives all of
//! them the NULL equality of the outermost join: `a = b` then matches NULLs, or
//! `a IS NOT DISTINCT FROM b` does not. Plans with a join where NULL equals NULL go without the
//! rule. They lose nothing but the order of cross joins: conditions become join keys by later
//! rules.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{NullEquality, Result};
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::{ApplyOrder, Optimizer, OptimizerConfig, OptimizerRule};

/// DataFusion's rules, with the guard around the one that needs it.
pub fn optimizer_rules() -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    let guard = |rule: Arc<dyn OptimizerRule + Send + Sync>| match rule.name() {
        "eliminate_cross_join" => Arc::new(Guarded(rule)) as Arc<dyn OptimizerRule + Send + Sync>,
        _ => rule,
    };
    Optimizer::new().rules.into_iter().map(guard).collect()
}

#[derive(Debug)]
struct Guarded(Arc<dyn OptimizerRule + Send + Sync>);

impl OptimizerRule for Guarded {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        if nulls_are_equal_somewhere(&plan)? {
            return Ok(Transformed::no(plan));
        }
        self.0.rewrite(plan, config)
    }
}

fn nulls_are_equal_somewhere(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        found |= matches!(
            node,
            LogicalPlan::Join(join) if join.null_equality == NullEquality::NullEqualsNull
        );
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}
