//! Keeps rules of DataFusion from plans that they would change the meaning of, or make worse for pipelines.
//!
//! `eliminate_cross_join` flattens a tree of inner joins into one list of keys, and gives all of
//! them the NULL equality of the outermost join: `a = b` then matches NULLs, or
//! `a IS NOT DISTINCT FROM b` does not. Plans with a join where NULL equals NULL go without the
//! rule. They lose nothing but the order of cross joins: conditions become join keys by later
//! rules.
//!
//! `extract_equijoin_predicate` makes `a = b` a key of whatever join it is asked of, also of one where NULL equals NULL.
//!
//! `single_distinct_aggregation_to_group_by` makes a sum of sums out of a sum beside a DISTINCT: of decimals it has ten digits
//! more than the plan above was made for, and comparing them fails. Nor does it know groups by `x` and by `CAST(x AS INT)` apart.
//!
//! `eliminate_group_by_constant` computes `CAST(x AS INT)` above groups by `x`, as a column of the same name, and refuses what it
//! made.
//!
//! `FilterPushdown`, of physical plans, finds the columns of a condition in the plan below by their names. Where two
//! have the same, as those of a join do, the condition is asked of the wrong one and rows are lost. Plans with
//! such a node go without it: what can be pushed without doubt was pushed before, when columns had tables.
//!
//! `ProjectionPushdown` computes outputs below filters: see [`above_filters`](crate::above_filters).

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{NullEquality, Result};
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::{ApplyOrder, Optimizer, OptimizerConfig, OptimizerRule};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::physical_plan::ExecutionPlan;
use headrace_runner::Processor;

use crate::above_filters::AboveFilters;
use crate::catalog::TableEntry;
use crate::config::settings_of;
use crate::conjunctions::GuardedConjunctions;
use crate::exec::{FalseConstants, NestedLoopsInLittleMemory};
use crate::parts::SimplerInParts;
use crate::semantics::OrdersInShort;
use crate::wide_rows::WideRows;

/// DataFusion's rules, with guards around those that need one, and ours.
pub fn optimizer_rules() -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    type Rule = Arc<dyn OptimizerRule + Send + Sync>;
    let guard = |rule: Rule| match rule.name() {
        "eliminate_cross_join" => Arc::new(Guarded(rule, nulls_are_equal_somewhere)) as Rule,
        "extract_equijoin_predicate" => Arc::new(Guarded(rule, nulls_are_equal)) as Rule,
        "single_distinct_aggregation_to_group_by" => {
            Arc::new(Guarded(rule, takes_distinct_as_it_is)) as Rule
        }
        "eliminate_group_by_constant" => Arc::new(Guarded(rule, has_groups_of_one_name)) as Rule,
        _ => rule,
    };
    let (first, last) = (Arc::new(SimplerInParts) as Rule, Arc::new(OrdersInShort) as Rule);
    let rules = Optimizer::new().rules.into_iter().map(guard);
    [first].into_iter().chain(rules).chain([last]).collect()
}

/// DataFusion's rules for physical plans, with guards around those that need one, and ours that mend what plans mean:
/// for sessions without a limit of the planner's memory, or with one of so many bytes.
pub fn physical_rules(
    planner_bytes: Option<u64>,
) -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
    type Rule = Arc<dyn PhysicalOptimizerRule + Send + Sync>;
    let guard = |rule: Rule| match rule.name() {
        "FilterPushdown" | "FilterPushdown(Post)" => Arc::new(ByName(rule)) as Rule,
        "ProjectionPushdown" => Arc::new(AboveFilters(rule)) as Rule,
        _ => rule,
    };
    let mut rules: Vec<Rule> = PhysicalOptimizer::default().rules.into_iter().map(guard).collect();
    let place = rules.iter().position(|rule| rule.name() == "EnsureRequirements");
    rules.insert(place.unwrap_or_default(), Arc::new(FalseConstants));
    rules.push(Arc::new(GuardedConjunctions));
    if planner_bytes.is_some() {
        rules.push(Arc::new(NestedLoopsInLittleMemory));
    }
    rules.push(Arc::new(WideRows::new(planner_bytes)));
    rules
}

/// A rule that takes columns of one name for the same.
#[derive(Debug)]
struct ByName(Arc<dyn PhysicalOptimizerRule + Send + Sync>);

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

/// A rule, and which plans it is kept from.
#[derive(Debug)]
struct Guarded(Arc<dyn OptimizerRule + Send + Sync>, Exception);

type Exception = fn(&LogicalPlan, &dyn OptimizerConfig) -> Result<bool>;

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
        if (self.1)(&plan, config)? {
            return Ok(Transformed::no(plan));
        }
        self.0.rewrite(plan, config)
    }
}

/// Whether a plan's own node is a join where NULL equals NULL.
fn nulls_are_equal(plan: &LogicalPlan, _: &dyn OptimizerConfig) -> Result<bool> {
    let LogicalPlan::Join(join) = plan else { return Ok(false) };
    Ok(join.null_equality == NullEquality::NullEqualsNull)
}

fn nulls_are_equal_somewhere(plan: &LogicalPlan, config: &dyn OptimizerConfig) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        found |= nulls_are_equal(node, config)?;
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

/// Whether DISTINCT of an aggregate is to stay: where pipelines take it, beside sums whose type would change, and groups that
/// would have one name.
fn takes_distinct_as_it_is(plan: &LogicalPlan, config: &dyn OptimizerConfig) -> Result<bool> {
    Ok(sums_decimals(plan)? || has_groups_of_one_name(plan, config)? || is_ours(plan, config)?)
}

/// Whether a plan's own node has a sum of decimals over all rows: a sum of such sums has more digits.
fn sums_decimals(plan: &LogicalPlan) -> Result<bool> {
    let LogicalPlan::Aggregate(aggregate) = plan else { return Ok(false) };
    let has_sum = aggregate.aggr_expr.iter().any(|expr| {
        matches!(expr, Expr::AggregateFunction(call) if !call.params.distinct && call.func.name() == "sum")
    });
    Ok(has_sum && aggregate.schema.fields().iter().any(|field| field.data_type().is_decimal()))
}

/// Whether a plan's own node groups by two things of one name.
fn has_groups_of_one_name(plan: &LogicalPlan, _: &dyn OptimizerConfig) -> Result<bool> {
    let LogicalPlan::Aggregate(aggregate) = plan else { return Ok(false) };
    let mut names = HashSet::new();
    let is_new = |expr: &Expr| names.insert(expr.schema_name().to_string());
    Ok(!aggregate.group_expr.iter().all(is_new))
}

/// Whether a plan reads tables of ours, and pipelines are wanted: they take DISTINCT as it is.
fn is_ours(plan: &LogicalPlan, config: &dyn OptimizerConfig) -> Result<bool> {
    if settings_of(&config.options()).processor == Processor::Off {
        return Ok(false);
    }
    plan.exists(|node| match node {
        LogicalPlan::TableScan(scan) => Ok(source_as_provider(&scan.source)?.is::<TableEntry>()),
        _ => Ok(false),
    })
}
