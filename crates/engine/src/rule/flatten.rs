//! From a tree of joins, filters and projections to a [`Graph`].

use std::sync::Arc;

use datafusion::arrow::datatypes::Schema;
use datafusion::common::{JoinSide, JoinType, NullEquality};
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_expr::expressions::lit;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec};
use datafusion::physical_plan::placeholder_row::PlaceholderRowExec;
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use headrace_format::arrow::ir_type;
use headrace_ir::{CompareOp, Expr, Field, ProbeKind};
use headrace_pipeline::WhyNot;

use super::graph::{Edge, Filtered, Graph, LeafTable, Paired, SideJoin};
use super::nodes::{is_window, passes_rows};
use super::translate::{InputColumn, Subqueries, Translator, compare};
use crate::catalog::{NotStreamed, Streamed, streamed};
use crate::exec::PipelineExec;
use crate::scan::HeadraceScanExec;

type Columns = Vec<InputColumn>;

fn why<T>(reason: impl Into<String>) -> Result<T, WhyNot> {
    Err(WhyNot::new(reason))
}

/// Adds `plan` to the graph and returns its output columns over graph registers.
pub fn flatten(plan: &Arc<dyn ExecutionPlan>, graph: &mut Graph) -> Result<Columns, WhyNot> {
    if let Some(scan) = plan.downcast_ref::<HeadraceScanExec>() {
        return flatten_scan(plan, scan, graph);
    }
    if let Some(scan) = plan.downcast_ref::<DataSourceExec>()
        && let Some(streamed) = streamed(scan, graph.slots_bytes)
    {
        return match streamed {
            Ok(streamed) => flatten_streamed(plan, streamed, graph),
            Err(NotStreamed { why, is_for_planner }) => {
                if is_for_planner {
                    graph.for_planner = Some(why.clone());
                }
                Err(why)
            }
        };
    }
    // Child plans are planned before their parent is fused with them: see [`super::fuse`].
    if plan.is::<PipelineExec>() {
        let why = WhyNot::new("its rows are another pipeline's");
        return Ok(graph.add_leaf(Arc::clone(plan), Err(why), fields_of(&plan.schema())));
    }
    if is_window(plan) {
        let why = WhyNot::new("window functions are a stage of their own");
        return Ok(graph.add_leaf(Arc::clone(plan), Err(why), fields_of(&plan.schema())));
    }
    if let Some(filter) = plan.downcast_ref::<FilterExec>() {
        return flatten_filter(plan, filter, graph);
    }
    if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        let input = flatten(projection.input(), graph)?;
        let schema = projection.input().schema();
        let subqueries = &graph.subqueries;
        let translator = Translator { columns: &input, schema: &schema, subqueries };
        return Ok(projection.expr().iter().map(|e| translator.translate(&e.expr)).collect());
    }
    if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
        return flatten_join(join, graph);
    }
    if let Some(join) = plan.downcast_ref::<CrossJoinExec>() {
        return flatten_product((join.left(), join.right()), None, graph);
    }
    if let Some(join) = plan.downcast_ref::<NestedLoopJoinExec>()
        && *join.join_type() == JoinType::Inner
    {
        let columns = flatten_product((join.left(), join.right()), join.filter(), graph)?;
        return Ok(project(columns, join.projection().as_deref()));
    }
    match plan.children().as_slice() {
        [input] if passes_rows(plan) => flatten(input, graph),
        _ => why(format!("{} is not part of a pipeline", plan.name())),
    }
}

/// As [`flatten`], but a plan that cannot be flattened becomes a leaf of its own.
pub fn flatten_or_opaque(plan: &Arc<dyn ExecutionPlan>, graph: &mut Graph) -> Columns {
    let mark = graph.mark();
    match flatten(plan, graph) {
        Ok(columns) => columns,
        Err(reason) => {
            graph.reset(&mark);
            let is_empty = plan.schema().fields().is_empty();
            let counted = if is_empty { with_a_column(plan) } else { None };
            let leaf = counted.unwrap_or_else(|| Arc::clone(plan));
            let columns = fields_of(&leaf.schema());
            let columns = graph.add_leaf(leaf, Err(reason), columns);
            if is_empty { Vec::new() } else { columns }
        }
    }
}

/// A plan of the same rows with a column, by which they can be counted.
fn with_a_column(plan: &Arc<dyn ExecutionPlan>) -> Option<Arc<dyn ExecutionPlan>> {
    let column = ProjectionExpr { expr: lit(true), alias: "row".into() };
    Some(Arc::new(ProjectionExec::try_new([column], Arc::clone(plan)).ok()?))
}

pub(super) fn fields_of(schema: &Schema) -> Vec<Result<Field, WhyNot>> {
    let field_of = |field: &Arc<datafusion::arrow::datatypes::Field>| {
        let name = field.name();
        match ir_type(field.data_type()) {
            Some(data_type) => Ok(Field::new(name, data_type, field.is_nullable())),
            None => why(format!("column {name} has type {}", field.data_type())),
        }
    };
    schema.fields().iter().map(field_of).collect()
}

fn flatten_scan(
    plan: &Arc<dyn ExecutionPlan>,
    scan: &HeadraceScanExec,
    graph: &mut Graph,
) -> Result<Columns, WhyNot> {
    if scan.fetch().is_some() {
        return why("a scan with LIMIT is left to the planner");
    }
    let rows = match decoded_by_scan(scan) {
        Some(why) => Err(why),
        None => {
            let (table, projection) = (Arc::clone(scan.table().stream()), scan.projection());
            Ok(LeafTable { table, projection: projection.to_vec() })
        }
    };
    Ok(graph.add_leaf(Arc::clone(plan), rows, fields_of(&scan.schema())))
}

/// A scan of the planner's that pipelines read themselves, with what it computes of its columns.
fn flatten_streamed(
    plan: &Arc<dyn ExecutionPlan>,
    streamed: Streamed,
    graph: &mut Graph,
) -> Result<Columns, WhyNot> {
    let Streamed { table, columns, schema, projection } = streamed;
    let fields = fields_of(table.source().schema());
    let rows = LeafTable { table, projection: (0..columns.len()).collect() };
    let read = graph.add_leaf(Arc::clone(plan), Ok(rows), fields);
    let mut all: Columns =
        schema.fields().iter().map(|_| why("a column that is not read")).collect();
    for (column, read) in columns.into_iter().zip(read) {
        all[column] = read;
    }
    let translator = Translator { columns: &all, schema: &schema, subqueries: &graph.subqueries };
    Ok(projection.iter().map(|column| translator.translate(&column.expr)).collect())
}

/// Why a scan decodes columns itself, whose rows then stream: they do not lie in the files as pipelines take them.
pub(super) fn decoded_by_scan(scan: &HeadraceScanExec) -> Option<WhyNot> {
    let schema = scan.schema();
    schema.fields().iter().zip(scan.projection()).find_map(|(field, &index)| {
        ir_type(field.data_type())?;
        let reason = scan.table().column_support(index).err()?;
        Some(WhyNot::new(format!("column {}: {reason}", field.name())))
    })
}

fn flatten_filter(
    plan: &Arc<dyn ExecutionPlan>,
    filter: &FilterExec,
    graph: &mut Graph,
) -> Result<Columns, WhyNot> {
    if filter.fetch().is_some() {
        return why("a filter with LIMIT is left to the planner");
    }
    let mark = graph.mark();
    let columns = flatten(filter.input(), graph)?;
    let schema = filter.input().schema();
    let subqueries = &graph.subqueries;
    let translator = Translator { columns: &columns, schema: &schema, subqueries };
    let predicate = translator.translate(filter.predicate())?;
    let columns = project(columns, filter.projection().as_deref());
    match graph.only_leaf_since(&mark) {
        Some(leaf) => {
            let leaf = &mut graph.leaves[leaf];
            leaf.filters.extend(predicate.conjuncts());
            leaf.filtered = Some(Filtered { plan: Arc::clone(plan), columns: columns.clone() });
        }
        None => graph.add_condition(predicate, mark.next_part()),
    }
    Ok(columns)
}

fn project(columns: Columns, projection: Option<&[usize]>) -> Columns {
    match projection {
        Some(indices) => indices.iter().map(|&i| columns[i].clone()).collect(),
        None => columns,
    }
}

fn flatten_join(join: &HashJoinExec, graph: &mut Graph) -> Result<Columns, WhyNot> {
    if join.fetch().is_some() {
        return why("a join with LIMIT is left to the planner");
    }
    let columns = match join.join_type() {
        JoinType::Inner => flatten_inner(join, graph)?,
        JoinType::LeftSemi => flatten_side_join(join, JoinSide::Left, ProbeKind::Semi, graph)?,
        JoinType::RightSemi => flatten_side_join(join, JoinSide::Right, ProbeKind::Semi, graph)?,
        JoinType::LeftAnti if join.null_aware => {
            flatten_side_join(join, JoinSide::Left, ProbeKind::NullAwareAnti, graph)?
        }
        JoinType::LeftAnti => flatten_side_join(join, JoinSide::Left, ProbeKind::Anti, graph)?,
        JoinType::RightAnti => flatten_side_join(join, JoinSide::Right, ProbeKind::Anti, graph)?,
        JoinType::Left => flatten_side_join(join, JoinSide::Left, ProbeKind::Left, graph)?,
        JoinType::Right => flatten_side_join(join, JoinSide::Right, ProbeKind::Left, graph)?,
        JoinType::LeftMark => flatten_side_join(join, JoinSide::Left, ProbeKind::Mark, graph)?,
        JoinType::RightMark => flatten_side_join(join, JoinSide::Right, ProbeKind::Mark, graph)?,
        JoinType::Full => return why("a full join that is not two of rows that may be read twice"),
    };
    Ok(project(columns, join.projection.as_deref()))
}

fn null_equal(join: &HashJoinExec) -> bool {
    join.null_equality() == NullEquality::NullEqualsNull
}

fn translate_pairs(
    join: &HashJoinExec,
    left: &Columns,
    right: &Columns,
    subqueries: &Subqueries,
) -> Result<Vec<(Expr, Expr)>, WhyNot> {
    let (left_schema, right_schema) = (join.left().schema(), join.right().schema());
    let left = Translator { columns: left, schema: &left_schema, subqueries };
    let right = Translator { columns: right, schema: &right_schema, subqueries };
    join.on()
        .iter()
        .map(|(l, r)| {
            let (l, r) = (left.translate(l)?, right.translate(r)?);
            // Types that cannot be compared cannot be looked up either.
            compare(CompareOp::Eq, l.clone(), r.clone())?;
            if l.data_type() != r.data_type() {
                return why(format!("a join of {} with {}", l.data_type(), r.data_type()));
            }
            Ok((l, r))
        })
        .collect()
}

fn translate_filter(
    filter: Option<&JoinFilter>,
    left: &Columns,
    right: &Columns,
    subqueries: &Subqueries,
) -> Result<Option<Expr>, WhyNot> {
    let Some(filter) = filter else { return Ok(None) };
    let columns: Columns = filter
        .column_indices()
        .iter()
        .map(|column| match column.side {
            JoinSide::Left => left[column.index].clone(),
            JoinSide::Right => right[column.index].clone(),
            JoinSide::None => why("a join condition on a mark"),
        })
        .collect();
    let translator = Translator { columns: &columns, schema: filter.schema(), subqueries };
    translator.translate(filter.expression()).map(Some)
}

fn flatten_inner(join: &HashJoinExec, graph: &mut Graph) -> Result<Columns, WhyNot> {
    let first = graph.next_part();
    let left = flatten_or_opaque(join.left(), graph);
    let middle = graph.next_part();
    let right = flatten_or_opaque(join.right(), graph);
    let end = graph.next_part();
    let null_equal = null_equal(join);
    for (l, r) in translate_pairs(join, &left, &right, &graph.subqueries)? {
        let (part, left_below, right_below) = (graph.add_part(), first..middle, middle..end);
        graph.edges.push(Edge { left: l, right: r, null_equal, part, left_below, right_below });
    }
    if let Some(condition) = translate_filter(join.filter(), &left, &right, &graph.subqueries)? {
        graph.add_condition(condition, first);
    }
    Ok(left.into_iter().chain(right).collect())
}

/// All pairs of rows of two sides, one of which is one leaf: its rows are looked up by a constant.
fn flatten_product(
    (left, right): (&Arc<dyn ExecutionPlan>, &Arc<dyn ExecutionPlan>),
    filter: Option<&JoinFilter>,
    graph: &mut Graph,
) -> Result<Columns, WhyNot> {
    let first = graph.next_part();
    let mut is_paired = false;
    let mut side = |plan: &Arc<dyn ExecutionPlan>| {
        let mark = graph.mark();
        let columns = flatten_or_opaque(plan, graph);
        // What a side is a product of says itself which of its leaves are paired.
        if let Some(leaf) = graph.only_leaf_since(&mark) {
            let part = graph.add_part();
            graph.leaves[leaf].paired = Some(Paired { part, is_one_row: is_one_row(plan) });
            is_paired = true;
        }
        columns
    };
    let (left, right) = (side(left), side(right));
    if !is_paired {
        return why("a join without an equality, both of whose sides are joins themselves");
    }
    if let Some(condition) = translate_filter(filter, &left, &right, &graph.subqueries)? {
        graph.add_condition(condition, first);
    }
    Ok(left.into_iter().chain(right).collect())
}

/// Whether a plan has one row at most, whatever is in the tables.
fn is_one_row(plan: &Arc<dyn ExecutionPlan>) -> bool {
    if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
        return aggregate.group_expr().is_true_no_grouping()
            && !matches!(aggregate.mode(), AggregateMode::Partial | AggregateMode::PartialReduce);
    }
    if plan.is::<PlaceholderRowExec>() {
        return plan.output_partitioning().partition_count() == 1;
    }
    if plan.is::<CrossJoinExec>() {
        return plan.children().into_iter().all(is_one_row);
    }
    let passes = plan.is::<ProjectionExec>()
        || plan.is::<FilterExec>()
        || plan.is::<CoalescePartitionsExec>()
        || plan.is::<CooperativeExec>();
    passes && plan.children().into_iter().all(is_one_row)
}

/// A join that preserves the rows of one side: the other hangs from it.
fn flatten_side_join(
    join: &HashJoinExec,
    preserved: JoinSide,
    kind: ProbeKind,
    graph: &mut Graph,
) -> Result<Columns, WhyNot> {
    let preserves_left = preserved == JoinSide::Left;
    let (kept_plan, hung_plan) =
        if preserves_left { (join.left(), join.right()) } else { (join.right(), join.left()) };
    let first = graph.next_part();
    let kept = flatten_or_opaque(kept_plan, graph);
    let (leaf, hung) = flatten_single(hung_plan, graph);
    let (left, right) = if preserves_left { (&kept, &hung) } else { (&hung, &kept) };
    let keys = translate_pairs(join, left, right, &graph.subqueries)?
        .into_iter()
        .map(|(l, r)| if preserves_left { (l, r) } else { (r, l) })
        .collect();
    let residual = translate_filter(join.filter(), left, right, &graph.subqueries)?;
    if kind == ProbeKind::NullAwareAnti && (join.on().len() != 1 || residual.is_some()) {
        return why("NOT IN with several keys or another condition is left to the planner");
    }
    graph.leaves[leaf].is_side = true;
    let null_equal = null_equal(join);
    let part = graph.add_part();
    let below = first..part;
    graph.side_joins.push(SideJoin { leaf, kind, keys, null_equal, residual, part, below });
    match kind {
        ProbeKind::Left => {}
        ProbeKind::Mark => {
            let mark = graph.add_mark(leaf);
            return Ok(kept.into_iter().chain([Ok(mark)]).collect());
        }
        _ => return Ok(kept),
    }
    let hung: Columns = hung.into_iter().map(|column| column.and_then(nullable)).collect();
    let (left, right) = if preserves_left { (kept, hung) } else { (hung, kept) };
    Ok(left.into_iter().chain(right).collect())
}

/// Adds a plan as exactly one leaf: a filtered scan as itself, all else as opaque.
fn flatten_single(plan: &Arc<dyn ExecutionPlan>, graph: &mut Graph) -> (usize, Columns) {
    let mark = graph.mark();
    let reason = match flatten(plan, graph) {
        Ok(columns) => match graph.only_leaf_since(&mark) {
            Some(leaf) => return (leaf, columns),
            None => WhyNot::new("the inner side of a semi, anti or outer join is itself a join"),
        },
        Err(reason) => reason,
    };
    graph.reset(&mark);
    let columns = graph.add_leaf(Arc::clone(plan), Err(reason), fields_of(&plan.schema()));
    (graph.leaves.len() - 1, columns)
}

/// An outer join's columns may be NULL though the table's are not. Plain columns, and casts that cannot fail, keep
/// their meaning: NULL for a row without a match, where other expressions might not be NULL.
fn nullable(expr: Expr) -> InputColumn {
    match expr {
        Expr::Register { index, data_type, name, .. } => {
            Ok(Expr::Register { index, data_type, nullable: true, name })
        }
        Expr::Cast { value, to, on_failure } if !value.data_type().cast_can_fail(&to) => {
            Ok(Expr::Cast { value: Box::new(nullable(*value)?), to, on_failure })
        }
        other => why(format!("{other} is computed on the inner side of an outer join")),
    }
}
