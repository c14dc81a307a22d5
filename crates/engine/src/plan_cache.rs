//! Plans of queries that were asked before.
//!
//! Planning a star join takes longer than running it over a warm table of a few gigabytes. A
//! plan is used again only for the same text, the same settings and the same tables, and only
//! if it is made of nodes that are known to start afresh and of functions whose value does
//! not depend on when they are asked.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, TableReference};
use datafusion::datasource::source_as_provider;
use datafusion::execution::{SessionState, TaskContext};
use datafusion::logical_expr::{Expr, LogicalPlan, Volatility};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::limit::GlobalLimitExec;
use datafusion::physical_plan::placeholder_row::PlaceholderRowExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::scalar_subquery::ScalarSubqueryExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::union::UnionExec;
use datafusion::prelude::SessionContext;
use parking_lot::Mutex;

use crate::catalog::{self, TableEntry};
use crate::exec::{OrderExec, PipelineExec};
use crate::sql::Headers;

/// Plans kept; when there are more, all are forgotten.
const PLANS_MAX: usize = 256;

/// The tables that a plan stands on.
pub type Tables = Vec<(TableReference, Arc<dyn TableProvider>)>;

/// A text, and the address of the settings that it was planned with. Settings that somebody else holds are changed by
/// replacing them, and an entry holds its own: the same address means the same settings.
type Key = (usize, String);

fn key(text: &str, options: &Arc<ConfigOptions>) -> Key {
    (Arc::as_ptr(options) as usize, text.to_string())
}

struct Entry {
    _options: Arc<ConfigOptions>,
    tables: Tables,
    plan: Arc<dyn ExecutionPlan>,
    headers: Headers,
    notes: Vec<String>,
}

#[derive(Default)]
struct Entries {
    by_key: HashMap<Key, Entry>,
    /// How often all were forgotten.
    generation: u64,
}

/// Plans by text and settings, of all sessions over the same tables.
#[derive(Default)]
pub struct PlanCache {
    entries: Arc<Mutex<Entries>>,
}

/// A plan that one query runs at a time, because its runs share the values of subqueries: it goes back to the
/// cache when this is dropped.
pub struct Loan {
    entries: Arc<Mutex<Entries>>,
    generation: u64,
    /// Until then.
    lent: Option<(Key, Entry)>,
}

impl Drop for Loan {
    fn drop(&mut self) {
        let Some((key, entry)) = self.lent.take() else { return };
        let mut entries = self.entries.lock();
        if entries.generation == self.generation {
            entries.insert(key, entry);
        }
    }
}

impl Entries {
    fn insert(&mut self, key: Key, entry: Entry) {
        if self.by_key.len() >= PLANS_MAX {
            self.by_key.clear();
        }
        self.by_key.insert(key, entry);
    }
}

/// A plan that can be run.
pub struct KnownPlan {
    /// The plan.
    pub plan: Arc<dyn ExecutionPlan>,
    /// What its columns are called.
    pub headers: Headers,
    /// What is to be told of its tables.
    pub notes: Vec<String>,
    /// To be held as long as it runs.
    pub loan: Option<Loan>,
}

impl PlanCache {
    /// The plan of a text, ready to run, if it is still the one that would be made now, and nobody
    /// runs it who must be alone.
    /// Files are looked at on a thread `apart`, or here.
    pub async fn get(
        &self,
        text: &str,
        context: &SessionContext,
        apart: bool,
    ) -> Result<Option<KnownPlan>> {
        let key = key(text, context.state_ref().read().config().options());
        let Some((tables, mut known)) = self.find(&key) else { return Ok(None) };
        if !are_current(&tables, context, apart).await {
            self.entries.lock().by_key.remove(&key);
            known.loan.iter_mut().for_each(|loan| loan.lent = None);
            return Ok(None);
        }
        known.plan = reset_plan_states(known.plan)?;
        Ok(Some(known))
    }

    fn find(&self, key: &Key) -> Option<(Tables, KnownPlan)> {
        let mut entries = self.entries.lock();
        let entry = entries.by_key.get(key)?;
        let (plan, headers) = (Arc::clone(&entry.plan), entry.headers.clone());
        let notes = entry.notes.clone();
        let tables = entry.tables.clone();
        let loan = match shares_values(&plan) {
            true => entries.by_key.remove_entry(key).map(|lent| self.lend(&entries, lent)),
            false => None,
        };
        Some((tables, KnownPlan { plan, headers, notes, loan }))
    }

    fn lend(&self, entries: &Entries, lent: (Key, Entry)) -> Loan {
        let (generation, lent) = (entries.generation, Some(lent));
        Loan { entries: Arc::clone(&self.entries), generation, lent }
    }

    /// Keeps a plan if it can be used again, at once or when it was run. `options` are the settings
    /// from before it was made, `tables` those of [`tables_of`].
    pub fn put(
        &self,
        text: &str,
        options: Arc<ConfigOptions>,
        tables: Tables,
        known: &KnownPlan,
    ) -> Option<Loan> {
        let KnownPlan { plan, headers, notes, .. } = known;
        if !starts_afresh(plan) {
            return None;
        }
        let key = key(text, &options);
        let (plan, headers, notes) = (Arc::clone(plan), headers.clone(), notes.clone());
        let is_shared = shares_values(&plan);
        let entry = Entry { _options: options, tables, plan, headers, notes };
        let mut entries = self.entries.lock();
        if is_shared {
            return Some(self.lend(&entries, (key, entry)));
        }
        entries.insert(key, entry);
        None
    }

    /// Forgets all plans: the session has changed.
    pub fn clear(&self) {
        let mut entries = self.entries.lock();
        entries.by_key.clear();
        entries.generation += 1;
    }
}

/// Whether the names of a plan's tables still mean these: the files of all are looked at together.
async fn are_current(tables: &Tables, context: &SessionContext, apart: bool) -> bool {
    let mut own: Option<(Arc<dyn SchemaProvider>, Vec<_>)> = None;
    for (name, table) in tables {
        let Ok(schema) = context.state_ref().read().schema_for_ref(name.clone()) else {
            return false;
        };
        if schema.is::<catalog::Tables>() {
            let (own, known) = own.get_or_insert_with(|| (Arc::clone(&schema), Vec::new()));
            if !Arc::ptr_eq(own, &schema) {
                return false;
            }
            known.push((name.table(), table));
        } else {
            let now = schema.table(name.table()).await;
            if !now.is_ok_and(|now| now.is_some_and(|now| Arc::ptr_eq(&now, table))) {
                return false;
            }
        }
    }
    let Some((schema, known)) = own else { return true };
    match schema.downcast_ref::<catalog::Tables>() {
        Some(tables) => tables.are_current(&known, apart).await,
        None => false,
    }
}

/// The context of a plan that was kept. None of its nodes, and of those that pipelines stand for, asks for functions, of
/// which a session has hundreds: only tables of the catalogue do.
pub fn context_of_known(state: &SessionState) -> TaskContext {
    let (id, config) = (state.session_id().to_string(), state.config().clone());
    let runtime = Arc::clone(state.runtime_env());
    let (scalar, higher_order, aggregate, window) = Default::default();
    TaskContext::new(None, id, config, scalar, higher_order, aggregate, window, runtime)
}

/// Whether nodes of a plan tell each other values in a place that all runs of it have in common.
fn shares_values(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.is::<ScalarSubqueryExec>() || plan.children().into_iter().any(shares_values)
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
    plan.apply_with_subqueries(|node| {
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
    Ok(reusable.then_some(tables))
}

/// Whether an expression's own value depends on nothing but its operands, and the tables of the plan.
fn is_timeless(expr: &Expr) -> bool {
    match expr {
        Expr::ScalarFunction(f) => f.func.signature().volatility == Volatility::Immutable,
        Expr::AggregateFunction(f) => f.func.signature().volatility == Volatility::Immutable,
        Expr::SetComparison(_)
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
        // With a limit it has a filter that it shares with scans below: there are none here.
        || plan.is::<SortExec>()
        || plan.is::<SortPreservingMergeExec>()
        || plan.is::<ScalarSubqueryExec>()
        || plan.is::<RepartitionExec>()
        || plan.is::<UnionExec>()
        || plan.is::<FilterExec>()
        || plan.is::<GlobalLimitExec>()
        || plan.is::<CooperativeExec>()
        || plan.is::<CoalescePartitionsExec>()
        || plan.is::<PlaceholderRowExec>();
    known && plan.children().into_iter().all(starts_afresh)
}
