//! The rule that turns fragments of a physical plan into pipelines.
//!
//! It runs before the rules that distribute and order data, while the plan is still what the
//! query says:
//!
//! ```text
//! Aggregate(Final) <- Aggregate(Partial) <- Filter / Projection / HashJoin ... <- scans
//!        └───────────── sink ───────────┘└────────── flatten: a graph ───────────────┘
//!                                   assemble: a program
//! ```
//!
//! From the root downwards, the first node whose whole fragment can be expressed is replaced;
//! where it cannot, the reason travels down to the scans (or to the smaller fragments) below,
//! and EXPLAIN shows it there.

mod aggregate;
mod builds;
mod eager;
mod expr_util;
mod flatten;
mod full;
mod functions;
mod fuse;
mod graph;
mod nodes;
mod order;
mod program;
mod raw;
mod reduce;
mod regex;
mod sizes;
mod stable;
mod translate;
pub mod types;
mod unions;
mod window_stages;
mod windows;

pub use program::Planned;

use std::sync::Arc;

use datafusion::arrow::compute::SortOptions;
use datafusion::arrow::datatypes::Schema;
use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::datasource::physical_plan::FileScanConfig;
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_expr::PhysicalSortExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use headrace_ir::{FirstGroups, NamedExpr, OrderKey};
use headrace_pipeline::WhyNot;
use headrace_runner::{Fallback, Processor, Runner, Settings};

use crate::config::settings_of;
use crate::error::forbidden;
use crate::exec::{OrderExec, Output, PipelineExec};
use crate::planner_rules::physical_rules;
use crate::scan::HeadraceScanExec;
use full::Halves;
use graph::Graph;
use nodes::{is_join, is_streamed, with_children};
use program::{SinkSpec, assemble};
use translate::{InputColumn, Translator};
use windows::Reading;

/// Of an order's first rows workers hold as many each, and as many again.
const FIRST_ROWS_MAX: usize = 1 << 16;

/// The rule.
#[derive(Debug)]
pub struct PipelineRule {
    runner: Arc<Runner>,
}

impl PipelineRule {
    /// A rule whose pipelines run on a runner.
    pub fn new(runner: Arc<Runner>) -> Self {
        Self { runner }
    }

    /// DataFusion's rules with this one before the first that looks at join sides,
    /// distribution or order.
    pub fn rules(runner: Arc<Runner>) -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
        let mut rules = physical_rules(runner.memory().planner_bytes);
        let place =
            rules.iter().position(|rule| rule.name() == "join_selection").unwrap_or_default();
        rules.insert(place, Arc::new(Self::new(runner)));
        rules
    }
}

impl PhysicalOptimizerRule for PipelineRule {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if !has_scan(&plan) {
            return Ok(plan);
        }
        let rewriter = Rewriter { settings: settings_of(config), runner: &self.runner };
        rewriter.rewrite_windows(plan)
    }

    fn name(&self) -> &str {
        "headrace_pipelines"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Whether a plan reads files: our own, or those of the planner.
fn has_scan(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let is_file =
        |scan: &DataSourceExec| scan.data_source().downcast_ref::<FileScanConfig>().is_some();
    plan.is::<HeadraceScanExec>()
        || plan.downcast_ref::<DataSourceExec>().is_some_and(is_file)
        || plan.children().into_iter().any(has_scan)
}

struct Rewriter<'a> {
    settings: Settings,
    runner: &'a Arc<Runner>,
}

impl Rewriter<'_> {
    /// A plan rewritten, with windows as joins where that pays.
    fn rewrite_windows(&self, mut plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        let mut rewritten = self.rewrite(Arc::clone(&plan), &[]);
        if self.settings.processor == Processor::Off {
            return rewritten;
        }
        let mut number = 0;
        while let Some(tried) = windows::tried(&plan, number)? {
            let with_join = self.rewrite(Arc::clone(&tried.plan), &[]);
            let pays = match (&rewritten, &with_join) {
                (_, Err(_)) => false,
                // Pipelines must run it, and do.
                (Err(_), Ok(_)) => true,
                (Ok(rewritten), Ok(with_join)) => {
                    let with_join = Reading::of(with_join);
                    Reading::of(rewritten).pays(&with_join, tried.is_of_table)
                }
            };
            if pays {
                // The next one has its number: there are no windows below.
                (plan, rewritten) = (tried.plan, with_join);
            } else {
                number += 1;
            }
        }
        rewritten
    }

    fn rewrite(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        reasons: &[WhyNot],
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.rewrite_as(plan, reasons, false)
    }

    /// As [`rewrite`](Self::rewrite). `is_stage`: a pipeline reads the plan, and has it as a stage if it is one itself.
    fn rewrite_as(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        reasons: &[WhyNot],
        is_stage: bool,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if !has_scan(&plan) {
            return Ok(plan);
        }
        let mut reasons = reasons.to_vec();
        match self.fragment(&plan) {
            None => {}
            Some(Ok(planned)) if self.settings.processor == Processor::Off => {
                drop(planned);
                note(&mut reasons, WhyNot::new("headrace.processor is off"));
                return self.tag_scans(plan, &reasons);
            }
            Some(Ok(planned)) => return self.pipeline(plan, planned, reasons, is_stage),
            Some(Err(reason)) => note(&mut reasons, reason),
        }
        if let Some(scan) = plan.downcast_ref::<HeadraceScanExec>() {
            return self.leave_scan(scan, reasons);
        }
        if let Some(joined) = self.full_join(&plan)? {
            return Ok(joined);
        }
        let children = plan.children().into_iter().cloned();
        let children =
            children.map(|child| self.rewrite(child, &reasons)).collect::<Result<Vec<_>>>()?;
        self.ordered(with_children(plan, children)?)
    }

    /// What a pipeline reads, which is a stage of it if it is a pipeline. Of a member of a union a scan of all rows is, too.
    fn rewrite_child(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        is_member: bool,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if is_member
            && has_scan(&plan)
            && let Some(Ok(planned)) = self.rows_fragment(&plan, true)
        {
            return self.pipeline(plan, planned, vec![], true);
        }
        self.rewrite_as(plan, &[], true)
    }

    /// Whether both halves of a full join become stages of one program, and the groups that they read.
    fn are_stages(&self, halves: &Halves) -> bool {
        let is_pipeline = |half| matches!(self.rows_fragment(half, true), Some(Ok(_)));
        [&halves.left, &halves.right]
            .into_iter()
            .all(|half| is_pipeline(half) && self.groups_are_stages(half))
    }

    /// Whether all groups that a plan reads can be those of a stage: none of their columns is made of several.
    fn groups_are_stages(&self, plan: &Arc<dyn ExecutionPlan>) -> bool {
        if self.windows_fragment(plan).is_some_and(|windows| windows.is_err()) {
            return false;
        }
        if !plan.is::<AggregateExec>() {
            return plan.children().into_iter().all(|child| self.groups_are_stages(child));
        }
        let Some(Ok(Planned { outputs, subqueries, .. })) = self.fragment(plan) else {
            return false;
        };
        let is_column =
            |output: &Output| matches!(output, Output::Column(_) | Output::GroupingId { .. });
        outputs.iter().all(is_column) && subqueries.is_empty()
    }

    /// A full join as two pipelines, if both halves can be.
    fn full_join(&self, plan: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let Some(join) = plan.downcast_ref::<HashJoinExec>() else { return Ok(None) };
        let Some(halves) = full::halves(join, false)? else { return Ok(None) };
        let half = |half: &Arc<dyn ExecutionPlan>| match self.fragment(half) {
            Some(Ok(planned)) if self.settings.processor != Processor::Off => {
                self.pipeline(Arc::clone(half), planned, vec![], false).map(Some)
            }
            _ => Ok(None),
        };
        let (Some(left), Some(right)) = (half(&halves.left)?, half(&halves.right)?) else {
            return Ok(None);
        };
        halves.joined(left, right).map(Some)
    }

    /// A sort of all rows as our own; where that cannot be, and of a few first ones, the planner's.
    fn ordered(&self, plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        let Some(sort) = plan.downcast_ref::<SortExec>() else { return Ok(plan) };
        if self.settings.processor == Processor::Off || sort.preserve_partitioning() {
            return Ok(plan);
        }
        if let Some(rows) = sort.fetch() {
            return of_first_groups(sort, rows).unwrap_or(Ok(plan));
        }
        let node = OrderExec::in_place_of(sort, Arc::clone(self.runner), self.settings.threads);
        Ok(node.map_or_else(|_| Arc::clone(&plan), |node| Arc::new(node)))
    }

    /// A scan that stays the planner's.
    fn leave_scan(
        &self,
        scan: &HeadraceScanExec,
        mut reasons: Vec<WhyNot>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if reasons.is_empty() {
            reasons.extend(flatten::decoded_by_scan(scan));
        }
        if self.must_run() {
            let unknown = WhyNot::new("the scan is not part of a pipeline");
            return Err(forbidden(reasons.last().unwrap_or(&unknown)));
        }
        Ok(Arc::new(scan.with_why_not(reasons)))
    }

    fn must_run(&self) -> bool {
        self.settings.fallback == Fallback::Forbid && self.settings.processor != Processor::Off
    }

    fn tag_scans(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        reasons: &[WhyNot],
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if let Some(scan) = plan.downcast_ref::<HeadraceScanExec>() {
            return Ok(Arc::new(scan.with_why_not(reasons.to_vec())));
        }
        let children = plan.children().into_iter().cloned();
        let children =
            children.map(|child| self.tag_scans(child, reasons)).collect::<Result<Vec<_>>>()?;
        with_children(plan, children)
    }

    /// The pipeline for the fragment rooted here; `None` if no fragment begins here.
    fn fragment(&self, plan: &Arc<dyn ExecutionPlan>) -> Option<Result<Planned, WhyNot>> {
        if let Some(root) = plan.downcast_ref::<AggregateExec>() {
            let raw = raw::raw_aggregation(root)?;
            return Some(self.aggregate_fragment(root, raw));
        }
        if let Some(sort) = plan.downcast_ref::<SortExec>() {
            return self.first_rows(sort);
        }
        if let Some(windows) = self.windows_fragment(plan) {
            return Some(windows);
        }
        let must = self.must_run();
        self.begins_rows(plan).then(|| self.rows_fragment(plan, must)).flatten()
    }

    fn graph(&self) -> Graph {
        Graph::new(match self.settings.processor {
            Processor::Off => 0,
            _ => self.runner.memory().slots_bytes,
        })
    }

    /// Rows of a filter, join or scan. A scan that yields all its rows gains nothing, and is left where it need not be one.
    fn rows_fragment(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        must: bool,
    ) -> Option<Result<Planned, WhyNot>> {
        let mut graph = self.graph();
        let columns = match flatten::flatten(plan, &mut graph) {
            Ok(columns) => columns,
            Err(reason) => return Some(Err(reason)),
        };
        if columns.is_empty() {
            return Some(Err(WhyNot::new("rows without columns are left to the planner")));
        }
        let worth = graph.leaves.len() > 1
            || !graph.conjuncts.is_empty()
            || graph.leaves.iter().any(|leaf| !leaf.filters.is_empty());
        if !worth && !must {
            return None;
        }
        if let (false, Some(reason)) =
            (worth, graph.leaves.iter().find_map(|l| l.rows.clone().err()))
        {
            return Some(Err(reason));
        }
        let named = named(columns, &plan.schema());
        Some(named.and_then(|columns| self.assemble(graph, SinkSpec::Rows { columns })))
    }

    /// The first rows of an order, of what rows may begin with; `None` for all rows, or for very many.
    fn first_rows(&self, sort: &SortExec) -> Option<Result<Planned, WhyNot>> {
        let rows = sort.fetch().filter(|rows| *rows <= FIRST_ROWS_MAX)? as u64;
        if sort.preserve_partitioning() || !self.begins_rows(sort.input()) {
            return None;
        }
        let order = sort.expr().iter().map(order_key).collect::<Option<Vec<_>>>()?;
        let mut graph = self.graph();
        let columns = flatten::flatten(sort.input(), &mut graph);
        let columns = columns.and_then(|columns| named(columns, &sort.input().schema()));
        Some(
            columns
                .and_then(|columns| self.assemble(graph, SinkSpec::First { columns, order, rows })),
        )
    }

    /// Window functions, over the rows of whatever plan.
    fn windows_fragment(&self, plan: &Arc<dyn ExecutionPlan>) -> Option<Result<Planned, WhyNot>> {
        let (exprs, input) = nodes::windows_of(plan)?;
        let mut graph = self.graph();
        let columns = flatten::flatten_or_opaque(input, &mut graph);
        let schema = input.schema();
        let (columns, subqueries) = (&columns[..], &graph.subqueries);
        let translator = Translator { columns, schema: &schema, subqueries };
        let sink = named(columns.to_vec(), &schema)
            .and_then(|named| window_stages::sink(exprs, named, &translator));
        Some(sink.and_then(|sink| self.assemble(graph, sink)))
    }

    /// Whether projections and filters at most stand between a node and a join, a scan or windows that are a stage. What
    /// stands above an aggregation, a sort or another window was never meant for a pipeline.
    fn begins_rows(&self, plan: &Arc<dyn ExecutionPlan>) -> bool {
        if is_join(plan) || is_streamed(plan) {
            return true;
        }
        if let Some(windows) = self.windows_fragment(plan) {
            return windows.is_ok();
        }
        let passes = plan.is::<FilterExec>() || plan.is::<ProjectionExec>();
        passes && plan.children().into_iter().all(|child| self.begins_rows(child))
    }

    fn aggregate_fragment(
        &self,
        root: &AggregateExec,
        raw: &AggregateExec,
    ) -> Result<Planned, WhyNot> {
        let mut graph = self.graph();
        let columns = flatten::flatten_or_opaque(raw.input(), &mut graph);
        let of_parts = raw.group_expr().has_grouping_set()
            || graph.leaves.iter().any(|leaf| unions::is_union(&leaf.plan));
        let mut sink = aggregate::sink((root, raw), &columns, &graph.subqueries, of_parts)?;
        eager::count_before_join(&mut graph, &mut sink);
        self.assemble(graph, sink)
    }

    fn assemble(&self, graph: Graph, sink: SinkSpec) -> Result<Planned, WhyNot> {
        if let Some(why) = graph.for_planner {
            return Err(why);
        }
        assemble(graph, sink, self.runner.memory().groups_bytes / 2)
    }

    fn pipeline(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        mut planned: Planned,
        reasons: Vec<WhyNot>,
        is_stage: bool,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let are_stages = |halves: &Halves| self.are_stages(halves);
        let are_members = unions::split(&mut planned, is_stage, &are_stages);
        let children = std::mem::take(&mut planned.children).into_iter().zip(are_members);
        let rewritten = children.map(|(child, is_member)| self.rewrite_child(child, is_member));
        planned.children = rewritten.collect::<Result<_>>()?;
        let (planned, runner) = (fuse::fused(planned), Arc::clone(self.runner));
        Ok(Arc::new(PipelineExec::new(runner, self.settings.clone(), planned, plan, reasons)))
    }
}

/// A sort of a few first rows above an aggregation that gives no more groups than it needs.
fn of_first_groups(sort: &SortExec, rows: usize) -> Option<Result<Arc<dyn ExecutionPlan>>> {
    let by: Vec<OrderKey> = sort.expr().iter().map_while(order_key).collect();
    let with_ties = by.len() < sort.expr().len();
    let input = asked_for_first(sort.input(), FirstGroups { by, groups: rows as u64, with_ties })?;
    Some(with_children(Arc::new(sort.clone()), vec![input]))
}

fn asked_for_first(
    plan: &Arc<dyn ExecutionPlan>,
    first: FirstGroups,
) -> Option<Arc<dyn ExecutionPlan>> {
    if let Some(pipeline) = plan.downcast_ref::<PipelineExec>() {
        return Some(Arc::new(pipeline.of_first_groups(first)?));
    }
    let projection = plan.downcast_ref::<ProjectionExec>()?;
    let below =
        |column: usize| Some(projection.expr().get(column)?.expr.downcast_ref::<Column>()?.index());
    let input = asked_for_first(projection.input(), first.by_others(below)?)?;
    with_children(Arc::clone(plan), vec![input]).ok()
}

fn order_key(key: &PhysicalSortExpr) -> Option<OrderKey> {
    let column = key.expr.downcast_ref::<Column>()?.index();
    let SortOptions { descending, nulls_first } = key.options;
    Some(OrderKey { column, descending, nulls_first })
}

/// The columns of a plan by their names.
fn named(columns: Vec<InputColumn>, schema: &Schema) -> Result<Vec<NamedExpr>, WhyNot> {
    let named = columns.into_iter().zip(schema.fields());
    named.map(|(expr, field)| Ok(NamedExpr { name: field.name().clone(), expr: expr? })).collect()
}

fn note(reasons: &mut Vec<WhyNot>, reason: WhyNot) {
    if !reasons.contains(&reason) {
        reasons.push(reason);
    }
}
