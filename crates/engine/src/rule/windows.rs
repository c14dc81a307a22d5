//! Totals of whole partitions as groups that are joined.
//!
//! ```text
//! sum(x) over (partition by k) of S   =   S join (select k, sum(x) from S group by k) on k, where NULL equals NULL
//! ```
//!
//! Rows are not sorted for that, and pipelines can do it. S is read once more for each window: this pays where it is the rows of
//! one table, or groups that are made once for all (`headrace_ir::Program::with_shared_groups`). Whether they are is known when
//! the plan is rewritten: windows are tried, with those below them.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{NullEquality, Result};
use datafusion::logical_expr::JoinType;
use datafusion::physical_expr::aggregate::{AggregateExprBuilder, AggregateFunctionExpr};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::window::{PlainAggregateWindowExpr, WindowExpr};
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy};
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExecBuilder, PartitionMode};
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use datafusion::physical_plan::windows::WindowAggExec;
use datafusion::physical_plan::{ExecutionPlan, PhysicalExpr};
use headrace_ir::{FrameEnd, Pipeline, Sink};

use super::nodes::{is_join, is_streamed, is_window, with_children};
use super::stable::is_same_each_time;
use super::window_stages::{frame_end, is_filtered};
use crate::exec::PipelineExec;

/// A plan with some of its windows, one above the other, as joins.
pub struct Tried {
    /// The plan.
    pub plan: Arc<dyn ExecutionPlan>,
    /// Whether the rows that are read several times are those of one table.
    pub is_of_table: bool,
}

/// The plan with the windows of a number as joins; those above others have smaller numbers.
pub fn tried(plan: &Arc<dyn ExecutionPlan>, mut number: usize) -> Result<Option<Tried>> {
    try_at(plan, &mut number)
}

fn try_at(plan: &Arc<dyn ExecutionPlan>, number: &mut usize) -> Result<Option<Tried>> {
    if let Some(joined) = joined(plan) {
        if *number == 0 {
            return Ok(Some(joined));
        }
        *number -= 1;
    }
    let children = plan.children();
    for (place, child) in children.iter().enumerate() {
        if let Some(tried) = try_at(child, number)? {
            let mut children: Vec<_> = children.iter().map(|child| Arc::clone(child)).collect();
            children[place] = tried.plan;
            let plan = with_children(Arc::clone(plan), children)?;
            return Ok(Some(Tried { plan, ..tried }));
        }
    }
    Ok(None)
}

/// Windows, joins that no pipeline has, and stages that pipelines make once for several readers.
#[derive(Clone, Copy, Default)]
pub struct Reading {
    windows: usize,
    joins: usize,
    shared: usize,
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
            self.shared += (0..program.stages.len()).filter(|&s| program.is_shared(s)).count();
            let is_window = |stage: &&Pipeline| matches!(stage.sink, Sink::Windows(_));
            self.windows += program.all().filter(is_window).count();
        }
        self.joins += usize::from(is_join(plan));
        self.windows += usize::from(is_window(plan));
        plan.children().into_iter().for_each(|child| self.add(child));
    }

    /// Whether joins in place of windows pay, by the plan that was rewritten with them.
    pub fn pays(&self, with_joins: &Self, is_of_table: bool) -> bool {
        let are_pipelines = with_joins.joins <= self.joins && with_joins.windows < self.windows;
        are_pipelines && (is_of_table || with_joins.shared > self.shared)
    }
}

fn has_window(plan: &Arc<dyn ExecutionPlan>) -> bool {
    is_window(plan) || plan.children().into_iter().any(has_window)
}

/// Windows one above the other as joins.
struct Chain<'a> {
    /// The rows below all windows.
    rows: &'a Arc<dyn ExecutionPlan>,
    /// These with the totals of the windows so far beside them.
    all: Arc<dyn ExecutionPlan>,
    /// Of each column of `all`, which of `rows` it is.
    origins: Vec<Option<usize>>,
}

/// A window, with those below it, as joins of the rows below all, if they may be.
fn joined(plan: &Arc<dyn ExecutionPlan>) -> Option<Tried> {
    if !plan.is::<WindowAggExec>() {
        return None;
    }
    let Chain { rows, all, .. } = chain(plan)?;
    let may_be_read_again = !has_window(rows) && is_same_each_time(rows);
    (may_be_read_again && all.schema() == plan.schema())
        .then(|| Tried { plan: all, is_of_table: is_of_table(rows) })
}

fn chain(plan: &Arc<dyn ExecutionPlan>) -> Option<Chain<'_>> {
    if let Some(window) = plan.downcast_ref::<WindowAggExec>() {
        return chain(window.input())?.with_totals(window);
    }
    if let Some(projection) = plan.downcast_ref::<ProjectionExec>()
        && is_above_window(projection)
    {
        return chain(projection.input())?.projected(projection);
    }
    let origins = (0..plan.schema().fields().len()).map(Some).collect();
    Some(Chain { rows: plan, all: Arc::clone(plan), origins })
}

fn is_above_window(projection: &ProjectionExec) -> bool {
    let below = projection.input();
    let above = |projection: &ProjectionExec| is_above_window(projection);
    below.is::<WindowAggExec>() || below.downcast_ref::<ProjectionExec>().is_some_and(above)
}

impl Chain<'_> {
    /// The same columns, fewer or in another order.
    fn projected(self, projection: &ProjectionExec) -> Option<Self> {
        let origin = |column: &ProjectionExpr| {
            let column = column.expr.downcast_ref::<Column>()?;
            self.origins.get(column.index()).copied()
        };
        let origins = projection.expr().iter().map(origin).collect::<Option<Vec<_>>>()?;
        let all = ProjectionExec::try_new(projection.expr().to_vec(), self.all).ok()?;
        Some(Self { all: Arc::new(all), origins, ..self })
    }

    /// Beside them the totals of a window over their columns.
    fn with_totals(self, window: &WindowAggExec) -> Option<Self> {
        let exprs = window.window_expr();
        let keys = exprs.first()?.partition_by();
        let schema = self.rows.schema();
        let calls = exprs.iter().map(|expr| {
            let call = whole_total(expr, keys)?.get_aggregate_expr();
            let arguments = call.expressions().into_iter().map(|of| self.over_rows(of));
            let arguments = arguments.collect::<Option<Vec<_>>>()?;
            AggregateExprBuilder::new(Arc::new(call.fun().clone()), arguments)
                .schema(Arc::clone(&schema))
                .alias(call.name())
                .with_distinct(call.is_distinct())
                .with_ignore_nulls(call.ignore_nulls())
                .build()
                .map(Arc::new)
                .ok()
        });
        let calls = calls.collect::<Option<Vec<_>>>()?;
        let of_rows = keys.iter().map(|key| self.over_rows(Arc::clone(key)));
        let of_rows = of_rows.collect::<Option<Vec<_>>>()?;
        // The planner tells floats apart that are equal as keys of groups.
        let may_be_key =
            |key: &Arc<dyn PhysicalExpr>| key.data_type(&schema).is_ok_and(|of| !of.is_floating());
        if !of_rows.iter().all(may_be_key) {
            return None;
        }
        let Self { rows, all, mut origins } = self;
        origins.resize(origins.len() + calls.len(), None);
        let all = join(all, keys, (rows, of_rows, calls)).ok()?;
        Some(Self { rows, all, origins })
    }

    /// An expression as one over the rows below all windows, if it reads no totals and gives the same each time.
    fn over_rows(&self, expr: Arc<dyn PhysicalExpr>) -> Option<Arc<dyn PhysicalExpr>> {
        if is_volatile(&expr) {
            return None;
        }
        let columns = collect_columns(&expr);
        let origin = |column: &Column| self.origins.get(column.index()).copied().flatten();
        if !columns.iter().all(|column| origin(column).is_some()) {
            return None;
        }
        let moved = expr.transform(|expr| {
            let moved = expr.downcast_ref::<Column>().and_then(|column| {
                Some(Arc::new(Column::new(column.name(), origin(column)?)) as Arc<dyn PhysicalExpr>)
            });
            Ok(moved.map_or_else(|| Transformed::no(expr), Transformed::yes))
        });
        moved.ok().map(|moved| moved.data)
    }
}

/// Rows, the expressions that they are grouped by, and totals of these groups.
type Grouped<'a> =
    (&'a Arc<dyn ExecutionPlan>, Vec<Arc<dyn PhysicalExpr>>, Vec<Arc<AggregateFunctionExpr>>);

/// Joins rows with totals by keys.
fn join(
    all: Arc<dyn ExecutionPlan>,
    keys: &[Arc<dyn PhysicalExpr>],
    (rows, of_rows, calls): Grouped<'_>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let name = |key: usize| format!("partition {key}");
    let named = of_rows.into_iter().enumerate().map(|(at, key)| (key, name(at))).collect();
    let (by, filters) = (PhysicalGroupBy::new_single(named), vec![None; calls.len()]);
    let (mode, first) = (AggregateMode::Single, keys.len() + calls.len());
    let groups = AggregateExec::try_new(mode, by, calls, filters, Arc::clone(rows), rows.schema())?;
    let groups: Arc<dyn ExecutionPlan> = Arc::new(groups);
    let joined: Arc<dyn ExecutionPlan> = match keys {
        [] => Arc::new(CrossJoinExec::new(groups, all)),
        _ => {
            let key = |at: usize| Arc::new(Column::new(&name(at), at)) as Arc<dyn PhysicalExpr>;
            let on = keys.iter().enumerate().map(|(at, of)| (key(at), Arc::clone(of))).collect();
            HashJoinExecBuilder::new(groups, all, on, JoinType::Inner)
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

/// Aggregates for which the order of rows is nothing.
const UNORDERED: [&str; 11] = [
    "count", "sum", "avg", "min", "max", "var", "var_pop", "stddev", "stddev_pop", "bool_and",
    "bool_or",
];

/// A window expression as the aggregate of all rows of its partition, if it is that of these keys.
fn whole_total<'a>(
    expr: &'a Arc<dyn WindowExpr>,
    keys: &[Arc<dyn PhysicalExpr>],
) -> Option<&'a PlainAggregateWindowExpr> {
    let total = expr.as_any().downcast_ref::<PlainAggregateWindowExpr>()?;
    let is_whole = frame_end(expr.as_ref()) == Ok(FrameEnd::Partition);
    let is_unordered = UNORDERED.contains(&total.get_aggregate_expr().fun().name());
    let is_of_keys = expr.partition_by() == keys;
    (is_whole && is_unordered && is_of_keys && !is_filtered(total)).then_some(total)
}

/// Whether a plan gives the rows of one table.
fn is_of_table(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let passes = plan.is::<FilterExec>() || plan.is::<ProjectionExec>();
    is_streamed(plan) || passes && plan.children().into_iter().all(is_of_table)
}
