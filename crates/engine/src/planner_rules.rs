//! DataFusion's rules for plans, and ours among them: one list for logical plans, one for physical ones.
//!
//! Rules that get plans wrong are kept from those ([`fixes`](crate::fixes) says which, and why), and DISTINCT of tables
//! that pipelines read stays as it is: they take it so.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::{ApplyOrder, Optimizer, OptimizerConfig, OptimizerRule};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use headrace_runner::Processor;

use crate::catalog::TableEntry;
use crate::config::settings_of;
use crate::fixes::false_constants::FalseConstants;
use crate::fixes::filters_by_name::ByName;
use crate::fixes::guarded_conjunctions::GuardedConjunctions;
use crate::fixes::nested_loops_again::NestedLoopsInLittleMemory;
use crate::fixes::parts::SimplerInParts;
use crate::fixes::projections_below_filters::AboveFilters;
use crate::fixes::repeated_orders::OrdersInShort;
use crate::fixes::wide_rows::WideRows;
use crate::fixes::{constant_groups, cross_join_nulls, distinct_sums, equijoin_nulls};

/// DataFusion's rules, with guards around those that need one, and ours.
pub fn optimizer_rules() -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    type Rule = Arc<dyn OptimizerRule + Send + Sync>;
    let guard = |rule: Rule| match rule.name() {
        "eliminate_cross_join" => {
            Arc::new(Guarded(rule, cross_join_nulls::are_equal_somewhere)) as Rule
        }
        "extract_equijoin_predicate" => Arc::new(Guarded(rule, equijoin_nulls::are_equal)) as Rule,
        "single_distinct_aggregation_to_group_by" => {
            Arc::new(Guarded(rule, takes_distinct_as_it_is)) as Rule
        }
        "eliminate_group_by_constant" => {
            Arc::new(Guarded(rule, constant_groups::have_one_name)) as Rule
        }
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

/// Whether DISTINCT of an aggregate is to stay.
fn takes_distinct_as_it_is(plan: &LogicalPlan, config: &dyn OptimizerConfig) -> Result<bool> {
    Ok(distinct_sums::are_of_decimals(plan)
        || constant_groups::have_one_name(plan, config)?
        || is_ours(plan, config)?)
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
