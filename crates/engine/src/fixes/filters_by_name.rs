//! Conditions are asked of the columns that they name.
//!
//! ```sql
//! SELECT * FROM x RIGHT JOIN y ON x.c = y.c WHERE y.b AND x.b IS NOT true
//! ```
//!
//! - DataFusion: Rows are lost: `FilterPushdown` looks for `x.b` by its name, and asks the condition of `y.b`; right is every
//!   row that the condition is true of.
//! - Upstream: apache/datafusion#25296 and apache/datafusion#25244, mended by apache/datafusion#25259, which no release has
//!   yet.
//! - This can go when its canary finds the fault mended.
//!
//! `FilterPushdown`, of physical plans, finds the columns of a condition in the plan below by their names. Where two
//! have the same, as those of a join do, the condition is asked of the wrong one and rows are lost. Plans with
//! such a node go without it: what can be pushed without doubt was pushed before, when columns had tables.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;

/// A rule that takes columns of one name for the same.
#[derive(Debug)]
pub struct ByName(pub Arc<dyn PhysicalOptimizerRule + Send + Sync>);

impl PhysicalOptimizerRule for ByName {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if has_equal_names(&plan) { Ok(plan) } else { self.0.optimize(plan, config) }
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn schema_check(&self) -> bool {
        self.0.schema_check()
    }
}

/// Whether two columns of some node have the same name.
fn has_equal_names(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let schema = plan.schema();
    let mut names = HashSet::with_capacity(schema.fields().len());
    schema.fields().iter().any(|field| !names.insert(field.name()))
        || plan.children().into_iter().any(has_equal_names)
}
