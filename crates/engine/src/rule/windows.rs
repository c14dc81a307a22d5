//! Totals of whole partitions as groups that are joined.
//!
//! ```text
//! sum(x) over (partition by k) of S   =   S join (select k, sum(x) from S group by k) on k, where NULL equals NULL
//! ```
//!
//! Rows are not sorted for that, and pipelines can do it. S is read twice: this pays where it is the rows of one table, or groups
//! that are made once for both (`headrace_ir::Program::with_shared_groups`). Whether they are is known when the plan is
//! rewritten: each window is tried.

use std::sync::Arc;

use datafusion::common::{NullEquality, Result};
use datafusion::logical_expr::{JoinType, WindowFrame, WindowFrameBound, WindowFrameUnits};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::window::{PlainAggregateWindowExpr, WindowExpr};
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy};
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{
    CrossJoinExec, HashJoinExec, HashJoinExecBuilder, NestedLoopJoinExec, PartitionMode,
};
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use datafusion::physical_plan::windows::WindowAggExec;
use datafusion::physical_plan::{ExecutionPlan, PhysicalExpr};

use super::with_children;
use crate::exec::PipelineExec;
use crate::scan::HeadraceScanExec;

/// A plan with one of its windows as a join.
pub struct Tried {
    /// The plan.
    pub plan: Arc<dyn ExecutionPlan>,
    /// Whether the rows that are read twice are those of one table.
    pub is_of_table: bool,
}

/// How many windows could be joins.
pub fn candidates(plan: &Arc<dyn ExecutionPlan>) -> usize {
    let below: usize = plan.children().into_iter().map(candidates).sum();
    below + usize::from(joined(plan).is_some())
}

/// The plan with the window of a number as a join; those below others have smaller numbers.
pub fn tried(plan: &Arc<dyn ExecutionPlan>, number: usize) -> Result<Option<Tried>> {
    let mut before = 0;
    let children = plan.children();
    for (place, child) in children.iter().enumerate() {
        let own = candidates(child);
        if number < before + own {
            let Some(tried) = tried(child, number - before)? else { return Ok(None) };
            let mut children: Vec<_> = children.iter().map(|child| Arc::clone(child)).collect();
            children[place] = tried.plan;
            let plan = with_children(Arc::clone(plan), children)?;
            return Ok(Some(Tried { plan, ..tried }));
        }
        before += own;
    }
    Ok(joined(plan).filter(|_| number == before))
}

/// Joins that no pipeline has, and readers of groups that are made once.
#[derive(Clone, Copy, Default)]
pub struct Reading {
    joins: usize,
    readers: usize,
}

impl Reading {
    /// Of a plan that was rewritten.
    pub fn of(plan: &Arc<dyn ExecutionPlan>) -> Self {
        let mut reading = Self::default();
        reading.add(plan);
        reading
    }

    fn add(&mut self, plan: &Arc<dyn ExecutionPlan>) {
        if let Some(pipeline) = plan.downcast_ref::<PipelineExec>() {
            let program = &pipeline.planned().program;
            self.readers += (0..program.stages.len()).filter(|&s| program.is_shared(s)).count();
        }
        let is_join = plan.is::<HashJoinExec>()
            || plan.is::<CrossJoinExec>()
            || plan.is::<NestedLoopJoinExec>();
        self.joins += usize::from(is_join);
        plan.children().into_iter().for_each(|child| self.add(child));
    }

    /// Whether a join in place of a window pays, by the plan that was rewritten with it.
    pub fn pays(&self, with_join: &Self, is_of_table: bool) -> bool {
        with_join.joins <= self.joins && (is_of_table || with_join.readers > self.readers)
    }
}

/// A window as a join, if it may be one.
fn joined(plan: &Arc<dyn ExecutionPlan>) -> Option<Tried> {
    let window = plan.downcast_ref::<WindowAggExec>()?;
    let (input, exprs) = (window.input(), window.window_expr());
    let keys = exprs.first()?.partition_by();
    let totals = exprs.iter().map(|expr| whole_total(expr, keys)).collect::<Option<Vec<_>>>()?;
    let schema = input.schema();
    let may_be_key = |key: &Arc<dyn PhysicalExpr>| {
        // The planner tells floats apart that are equal as keys of groups.
        !is_volatile(key) && key.data_type(&schema).is_ok_and(|of| !of.is_floating())
    };
    if !keys.iter().all(may_be_key) {
        return None;
    }
    let plan = join(input, keys, totals).ok()?;
    (plan.schema() == window.schema()).then(|| Tried { plan, is_of_table: is_of_table(input) })
}

fn join(
    input: &Arc<dyn ExecutionPlan>,
    keys: &[Arc<dyn PhysicalExpr>],
    totals: Vec<&PlainAggregateWindowExpr>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let name = |key: usize| format!("partition {key}");
    let named = keys.iter().enumerate().map(|(at, key)| (Arc::clone(key), name(at))).collect();
    let calls: Vec<_> = totals.iter().map(|it| Arc::new(it.get_aggregate_expr().clone())).collect();
    let (by, filters) = (PhysicalGroupBy::new_single(named), vec![None; calls.len()]);
    let mode = AggregateMode::Single;
    let groups =
        AggregateExec::try_new(mode, by, calls, filters, Arc::clone(input), input.schema())?;
    let (groups, first) = (Arc::new(groups) as Arc<dyn ExecutionPlan>, keys.len() + totals.len());
    let joined: Arc<dyn ExecutionPlan> = match keys {
        [] => Arc::new(CrossJoinExec::new(groups, Arc::clone(input))),
        _ => {
            let key = |at: usize| Arc::new(Column::new(&name(at), at)) as Arc<dyn PhysicalExpr>;
            let on = keys.iter().enumerate().map(|(at, of)| (key(at), Arc::clone(of))).collect();
            HashJoinExecBuilder::new(groups, Arc::clone(input), on, JoinType::Inner)
                .with_null_equality(NullEquality::NullEqualsNull)
                .with_partition_mode(PartitionMode::Auto)
                .build_exec()?
        }
    };
    let schema = joined.schema();
    let own = first..schema.fields().len();
    let columns = own.chain(keys.len()..first).map(|at| {
        let alias = schema.field(at).name().clone();
        ProjectionExpr { expr: Arc::new(Column::new(&alias, at)), alias }
    });
    Ok(Arc::new(ProjectionExec::try_new(columns.collect::<Vec<_>>(), joined)?))
}

/// A window expression as the aggregate of all rows of its partition, if it is that of these keys.
fn whole_total<'a>(
    expr: &'a Arc<dyn WindowExpr>,
    keys: &[Arc<dyn PhysicalExpr>],
) -> Option<&'a PlainAggregateWindowExpr> {
    let total = expr.as_any().downcast_ref::<PlainAggregateWindowExpr>()?;
    let is_whole = is_whole(expr.get_window_frame(), expr.order_by().is_empty());
    (is_whole && expr.partition_by() == keys && !is_filtered(total)).then_some(total)
}

fn is_whole(frame: &WindowFrame, is_unordered: bool) -> bool {
    let is_open = |bound: &WindowFrameBound, is_start: bool| match bound {
        WindowFrameBound::Preceding(by) => is_start && by.is_null(),
        WindowFrameBound::Following(by) => !is_start && by.is_null(),
        // All rows are peers.
        WindowFrameBound::CurrentRow => is_unordered && frame.units != WindowFrameUnits::Rows,
    };
    is_open(&frame.start_bound, true) && is_open(&frame.end_bound, false)
}

/// Whether it has a FILTER, of which the planner tells nothing but in this way.
fn is_filtered(total: &PlainAggregateWindowExpr) -> bool {
    !format!("{total:?}").ends_with("filter: None }")
}

/// Whether a plan gives the rows of one table, the same ones each time.
fn is_of_table(plan: &Arc<dyn ExecutionPlan>) -> bool {
    if plan.fetch().is_some() {
        return false;
    }
    if let Some(filter) = plan.downcast_ref::<FilterExec>() {
        return !is_volatile(filter.predicate()) && is_of_table(filter.input());
    }
    if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        let is_stable = !projection.expr().iter().any(|column| is_volatile(&column.expr));
        return is_stable && is_of_table(projection.input());
    }
    plan.is::<HeadraceScanExec>()
}
