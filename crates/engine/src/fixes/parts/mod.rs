//! Long lists are planned in parts.
//!
//! ```sql
//! SELECT c0 + 1, c1 + 1, .. FROM t  -- of thousands of columns
//! ```
//!
//! - DataFusion: Planned in the square of their number: each rule looks each column up among all; right is a time that grows
//!   as they do.
//! - Upstream: apache/datafusion#7698, apache/datafusion#5637.
//! - This can go when its canary finds the fault mended.
//!
//! Each rule of the planner looks up each column that a list names, compares it with each column that the rows have, and makes
//! the list's schema anew in the same way: some twenty times the square of the columns, half a minute for twenty thousand
//! expressions. So a long list is taken out of the rules' sight: what they do with expressions they do to a few at a time,
//! beside the columns that these name, and the whole stands in the plan as a [`Listed`], which becomes what it stands
//! for when the physical plan is made.
//!
//! ```text
//! Projection: c0 + 1, c1 + 1, ..    InParts      Listed    the other rules    Listed    Restoring    Projection
//!   TableScan: t                   -------->       TableScan: t   -------->      ..    -------->       ..
//! ```
//!
//! Only lists of which everything is wanted are taken: outputs that nobody asks for are the rules' to leave out.

mod columns;
mod listed;

pub use columns::Columns;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::FieldRef;
use datafusion::catalog::Session;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, DFSchemaRef, Result, TableReference};
use datafusion::execution::context::QueryPlanner;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{Aggregate, Distinct, EmptyRelation, Expr, LogicalPlan, Projection};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::optimizer::{AnalyzerRule, ApplyOrder, OptimizerConfig, OptimizerRule};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_planner::{DefaultPhysicalPlanner, ExtensionPlanner, PhysicalPlanner};

use listed::Listed;

/// Shorter lists take no time that anybody sees.
pub const ITEMS_MIN: usize = 500;

/// Expressions that are planned together.
const PART_ITEMS: usize = 64;

type Rules = Vec<Arc<dyn AnalyzerRule + Send + Sync>>;

/// Does to long lists, in parts, what the analyzer's rules do, and puts them out of the rules' sight. It comes first.
#[derive(Debug)]
pub struct InParts {
    rules: Rules,
}

impl InParts {
    /// Before these rules.
    pub fn before(rules: &Rules) -> Self {
        Self { rules: rules.clone() }
    }

    fn analyzed(&self, plan: LogicalPlan, config: &ConfigOptions) -> Result<LogicalPlan> {
        self.rules.iter().try_fold(plan, |plan, rule| rule.analyze(plan, config))
    }

    /// A plan all of whose columns are wanted.
    fn apart(&self, plan: LogicalPlan, config: &ConfigOptions) -> Result<Transformed<LogicalPlan>> {
        if is_long(&plan) {
            return match self.listed(&plan, config)? {
                Some(listed) => Ok(Transformed::yes(listed.node())),
                None => Ok(Transformed::no(plan)),
            };
        }
        if !wants_all(&plan) {
            return Ok(Transformed::no(plan));
        }
        let below = plan.map_children(|child| self.apart(child, config))?;
        match below.transformed {
            true => below.map_data(LogicalPlan::recompute_schema),
            false => Ok(below),
        }
    }

    /// What stands for a long list; `None` if the rules make something else of it than a list.
    fn listed(&self, plan: &LogicalPlan, config: &ConfigOptions) -> Result<Option<Listed>> {
        let (keys, exprs, input) = match plan {
            LogicalPlan::Projection(list) => (None, &list.expr, &list.input),
            LogicalPlan::Aggregate(of) => (Some(&of.group_expr), &of.aggr_expr, &of.input),
            _ => return Ok(None),
        };
        let input = self.apart(LogicalPlan::clone(input), config)?.data;
        let input = self.analyzed(input, config)?;
        let columns = Columns::of(input.schema());
        let mut whole = Part::default();
        for exprs in exprs.chunks(PART_ITEMS) {
            let part = self.part(keys, exprs, &columns, config)?;
            let Some(part) = part else { return Ok(None) };
            whole.extend(part);
        }
        let metadata = plan.schema().metadata().clone();
        let Ok(schema) = DFSchema::new_with_metadata(whole.fields, metadata) else {
            return Ok(None);
        };
        let keys = keys.and(whole.keys);
        Listed::new(keys, whole.exprs, Arc::new(input), Arc::new(schema)).map(Some)
    }

    /// A few expressions of a list, beside the columns that they name.
    fn part(
        &self,
        keys: Option<&Vec<Expr>>,
        exprs: &[Expr],
        columns: &Columns<'_>,
        config: &ConfigOptions,
    ) -> Result<Option<Part>> {
        let Some(places) = columns.places(keys.into_iter().flatten().chain(exprs)) else {
            return Ok(None);
        };
        let schema: DFSchemaRef = Arc::new(columns.at(places)?);
        let rows = LogicalPlan::EmptyRelation(EmptyRelation {
            produce_one_row: false,
            schema: Arc::clone(&schema),
        });
        let exprs = exprs.to_vec();
        let part = match keys {
            None => LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(rows))?),
            Some(keys) => {
                LogicalPlan::Aggregate(Aggregate::try_new(Arc::new(rows), keys.clone(), exprs)?)
            }
        };
        let is_of_rows = |input: &LogicalPlan| matches!(input, LogicalPlan::EmptyRelation(rows) if rows.schema == schema);
        Ok(match (self.analyzed(part, config)?, keys) {
            (LogicalPlan::Projection(list), None) if is_of_rows(&list.input) => {
                Some(Part { keys: None, fields: fields(&list.schema), exprs: list.expr })
            }
            (LogicalPlan::Aggregate(of), Some(_)) if is_of_rows(&of.input) => Some(Part {
                fields: fields(&of.schema),
                keys: Some(of.group_expr),
                exprs: of.aggr_expr,
            }),
            _ => None,
        })
    }
}

impl AnalyzerRule for InParts {
    fn analyze(&self, plan: LogicalPlan, config: &ConfigOptions) -> Result<LogicalPlan> {
        self.apart(plan, config).map(|apart| apart.data)
    }

    fn name(&self) -> &str {
        "headrace_in_parts"
    }
}

type Fields = Vec<(Option<TableReference>, FieldRef)>;

fn fields(schema: &DFSchema) -> Fields {
    schema.iter().map(|(table, field)| (table.cloned(), Arc::clone(field))).collect()
}

/// Some expressions of a list with their types.
#[derive(Default)]
struct Part {
    keys: Option<Vec<Expr>>,
    /// Of the keys, then of the expressions.
    fields: Fields,
    exprs: Vec<Expr>,
}

impl Part {
    fn extend(&mut self, part: Part) {
        let known = if self.fields.is_empty() { 0 } else { part.keys.as_ref().map_or(0, Vec::len) };
        self.fields.extend(part.fields.into_iter().skip(known));
        self.exprs.extend(part.exprs);
        self.keys = self.keys.take().or(part.keys);
    }
}

/// Whether a plan's own node is a long list of what its rows' columns make.
fn is_long(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(list) => {
            list.expr.len() >= ITEMS_MIN && list.expr.iter().all(is_of_row)
        }
        LogicalPlan::Aggregate(of) => {
            of.aggr_expr.len() >= ITEMS_MIN
                && of.group_expr.iter().chain(&of.aggr_expr).all(is_of_row)
        }
        _ => false,
    }
}

fn is_of_row(expr: &Expr) -> bool {
    let more = expr.exists(|expr| {
        Ok(matches!(
            expr,
            Expr::ScalarSubquery(_)
                | Expr::Exists(_)
                | Expr::InSubquery(_)
                | Expr::SetComparison(_)
                | Expr::OuterReferenceColumn(..)
                | Expr::GroupingSet(_)
                | Expr::WindowFunction(_)
                | Expr::Unnest(_)
                | Expr::Placeholder(_)
        ))
    });
    !more.unwrap_or(true)
}

/// Whether a node of one input wants all its columns.
fn wants_all(plan: &LogicalPlan) -> bool {
    matches!(
        plan,
        LogicalPlan::Sort(_)
            | LogicalPlan::Limit(_)
            | LogicalPlan::Filter(_)
            | LogicalPlan::SubqueryAlias(_)
            | LogicalPlan::Distinct(Distinct::All(_))
            | LogicalPlan::Copy(_)
    )
}

/// Simplifies the expressions of long lists, as the optimizer does those of others: `now()` has no value before.
#[derive(Debug)]
pub struct SimplerInParts;

impl OptimizerRule for SimplerInParts {
    fn name(&self) -> &str {
        "headrace_simpler_in_parts"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        match Listed::of(&plan) {
            Some(list) if !list.is_simple => {
                let exprs = simpler(list, config)?;
                Ok(Transformed::yes(list.simplified(exprs).node()))
            }
            _ => Ok(Transformed::no(plan)),
        }
    }
}

fn simpler(list: &Listed, config: &dyn OptimizerConfig) -> Result<Vec<Expr>> {
    let columns = Columns::of(list.input.schema());
    let names = NamePreserver::new_for_projection();
    let mut simple = Vec::with_capacity(list.exprs.len());
    for exprs in list.exprs.chunks(PART_ITEMS) {
        let schema = columns.at(columns.places(exprs).unwrap_or_default())?;
        let context = SimplifyContext::builder()
            .with_schema(Arc::new(schema))
            .with_config_options(config.options())
            .with_query_execution_start_time(config.query_execution_start_time())
            .build();
        let simplifier = ExprSimplifier::new(context);
        for expr in exprs {
            let name = names.save(expr);
            let made = name.restore(simplifier.simplify(expr.clone())?);
            // An aggregate may not become something else of aggregates where it stands.
            let stays = list.keys.is_none() || is_aggregate(&made);
            simple.push(if stays { made } else { expr.clone() });
        }
    }
    Ok(simple)
}

fn is_aggregate(expr: &Expr) -> bool {
    match expr {
        Expr::Alias(alias) => is_aggregate(&alias.expr),
        other => matches!(other, Expr::AggregateFunction(_)),
    }
}

/// Makes physical plans, in which long lists are what they stand for.
pub struct Restoring {
    planner: DefaultPhysicalPlanner,
}

impl Restoring {
    /// One that knows these planners of nodes.
    pub fn with(planners: Vec<Arc<dyn ExtensionPlanner + Send + Sync>>) -> Self {
        Self { planner: DefaultPhysicalPlanner::with_extension_planners(planners) }
    }
}

impl fmt::Debug for Restoring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Restoring")
    }
}

#[async_trait]
impl QueryPlanner for Restoring {
    async fn create_physical_plan(
        &self,
        plan: &LogicalPlan,
        session: &dyn Session,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let planner = &self.planner;
        if !plan.exists(|node| Ok(Listed::of(node).is_some()))? {
            return planner.create_physical_plan(plan, session).await;
        }
        let restored = plan.clone().transform_down(|node| match Listed::of(&node) {
            Some(list) => list.restored().map(Transformed::yes),
            None => Ok(Transformed::no(node)),
        });
        planner.create_physical_plan(&restored?.data, session).await
    }
}
