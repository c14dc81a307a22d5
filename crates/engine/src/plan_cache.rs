//! Plans of queries that were asked before.
//!
//! Planning a star join takes longer than running it over a warm table of a few gigabytes. A
//! plan is used again only for the same text, the same settings and the same tables, and only
//! if it is made of nodes that are known to start afresh and of functions whose value does
//! not depend on when they are asked.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, TableReference};
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::{Expr, LogicalPlan, Volatility};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::limit::GlobalLimitExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::prelude::SessionContext;
use parking_lot::Mutex;

use crate::catalog::TableEntry;
use crate::exec::{OrderExec, PipelineExec};
use crate::sql::Headers;

/// Plans kept; when there are more, all are forgotten.
const PLANS_MAX: usize = 256;

/// The tables that a plan stands on.
pub type Tables = Vec<(TableReference, Arc<dyn TableProvider>)>;

struct Entry {
    /// Settings are changed by replacing them as long as someone else holds them: the same
    /// address means the same settings.
    options: Arc<ConfigOptions>,
    tables: Tables,
    plan: Arc<dyn ExecutionPlan>,
    headers: Headers,
}

/// Plans by text.
#[derive(Default)]
pub struct PlanCache {
    entries: Mutex<HashMap<String, Entry>>,
}

impl PlanCache {
    /// The plan of a text, ready to run, if it is still the one that would be made now.
    pub async fn get(
        &self,
        text: &str,
        context: &SessionContext,
    ) -> Result<Option<(Arc<dyn ExecutionPlan>, Headers)>> {
        let Some((tables, plan, headers)) = self.find(text, context) else { return Ok(None) };
        for (name, known) in tables {
            let now = context.table_provider(name).await;
            if !now.is_ok_and(|now| Arc::ptr_eq(&now, &known)) {
                self.entries.lock().remove(text);
                return Ok(None);
            }
        }
        Ok(Some((reset_plan_states(plan)?, headers)))
    }

    fn find(
        &self,
        text: &str,
        context: &SessionContext,
    ) -> Option<(Tables, Arc<dyn ExecutionPlan>, Headers)> {
        let entries = self.entries.lock();
        let entry = entries.get(text)?;
        let state = context.state_ref();
        let same = Arc::ptr_eq(&entry.options, state.read().config().options());
        same.then(|| (entry.tables.clone(), Arc::clone(&entry.plan), entry.headers.clone()))
    }

    /// Keeps a plan if it can be used again. `options` are the settings from before it was
    /// made, `tables` those of [`tables_of`].
    pub fn put(
        &self,
        text: &str,
        options: Arc<ConfigOptions>,
        tables: Tables,
        plan: &Arc<dyn ExecutionPlan>,
        headers: Headers,
    ) {
        if !starts_afresh(plan) {
            return;
        }
        let mut entries = self.entries.lock();
        if entries.len() >= PLANS_MAX {
            entries.clear();
        }
        let entry = Entry { options, tables, plan: Arc::clone(plan), headers };
        entries.insert(text.to_string(), entry);
    }

    /// Forgets all plans: the session has changed.
    pub fn clear(&self) {
        self.entries.lock().clear();
    }
}

/// Whether a statement changes the session.
pub fn changes_session(plan: &LogicalPlan) -> bool {
    matches!(
        plan,
        LogicalPlan::Ddl(_)
            | LogicalPlan::Dml(_)
            | LogicalPlan::Statement(_)
            | LogicalPlan::Copy(_)
    )
}

/// The tables of a query; `None` if its plan must not be used again.
pub fn tables_of(plan: &LogicalPlan) -> Result<Option<Tables>> {
    if changes_session(plan) {
        return Ok(None);
    }
    let mut tables = Tables::new();
    let mut reusable = true;
    plan.apply(|node| {
        reusable &= !matches!(
            node,
            LogicalPlan::Explain(_) | LogicalPlan::Analyze(_) | LogicalPlan::Extension(_)
        );
        if let LogicalPlan::TableScan(scan) = node {
            let provider = source_as_provider(&scan.source)?;
            reusable &= provider.is::<TableEntry>();
            tables.push((scan.table_name.clone(), provider));
        }
        node.apply_expressions(|expr| {
            expr.apply(|e| {
                reusable &= is_timeless(e);
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok((reusable && !tables.is_empty()).then_some(tables))
}

/// Whether an expression's own value depends on nothing but its operands. Subqueries have
/// tables of their own, which would have to be found as well.
fn is_timeless(expr: &Expr) -> bool {
    match expr {
        Expr::ScalarFunction(f) => f.func.signature().volatility == Volatility::Immutable,
        Expr::AggregateFunction(f) => f.func.signature().volatility == Volatility::Immutable,
        Expr::ScalarSubquery(_)
        | Expr::Exists(_)
        | Expr::InSubquery(_)
        | Expr::SetComparison(_)
        | Expr::Placeholder(_)
        | Expr::ScalarVariable(..)
        | Expr::WindowFunction(_) => false,
        _ => true,
    }
}

/// Whether a plan consists of nodes that keep nothing of an earlier run once their state is
/// reset.
fn starts_afresh(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let known = plan.is::<PipelineExec>()
        || plan.is::<OrderExec>()
        || plan.is::<ProjectionExec>()
        // With a limit it has a filter that it shares with nodes below.
        || plan.downcast_ref::<SortExec>().is_some_and(|sort| sort.fetch().is_none())
        || plan.is::<FilterExec>()
        || plan.is::<GlobalLimitExec>()
        || plan.is::<CooperativeExec>()
        || plan.is::<CoalescePartitionsExec>();
    known && plan.children().into_iter().all(starts_afresh)
}
