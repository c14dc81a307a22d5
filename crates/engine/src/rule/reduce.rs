//! Groups that a join asks for, instead of all.
//!
//! A correlated subquery becomes a grouping by the columns that it is correlated by, joined with the rows
//! around it. Where these are few because of a filter, so are the groups that anybody asks for:
//!
//! ```text
//! lineitem ⋈ σ(part) ⋈ γ(l_partkey, lineitem)
//!                      └─ becomes γ(l_partkey, lineitem ⋉ σ(part))
//! ```
//!
//! A group is left out whole or not at all, since it is the group's key that is looked up; and one that
//! is left out could not have been part of the answer: every row of it has an equal key in the filtered table.
//! (Known as magic sets: Mumick, Finkelstein, Pirahesh, Ramakrishnan, "Magic is relevant", SIGMOD 1990.)

use std::sync::Arc;

use datafusion::common::{JoinType, NullEquality};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateInputMode};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{HashJoinExecBuilder, PartitionMode};
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use datafusion::physical_plan::repartition::RepartitionExec;
use headrace_ir::{Expr, ProbeKind, Register};

use super::builds::REDUCER_ROW_BYTES;
use super::graph::{Filtered, Graph, Leaf};
use super::nodes::with_children;
use super::sizes::scanned_bytes;

/// Leaves out groups that cannot be part of the answer, where a table of keys takes at most so many bytes.
pub fn reduce_groups(graph: &mut Graph, keys_bytes_max: u64) {
    for leaf in 0..graph.leaves.len() {
        if let Some(plan) = reduced(graph, leaf, keys_bytes_max) {
            graph.leaves[leaf].plan = plan;
        }
    }
}

fn reduced(graph: &Graph, leaf: usize, keys_bytes_max: u64) -> Option<Arc<dyn ExecutionPlan>> {
    let groups = &graph.leaves[leaf];
    groups.rows.as_ref().err()?;
    let read_bytes = scanned_bytes(&groups.plan);
    let registers = looked_up(graph, leaf);
    let reduce = |&register: &Register| {
        let same = equal_registers(graph, register);
        let keys = same.iter().filter_map(|&key| keys_of(graph, key));
        let few = |(table, _): &(&Leaf, _)| is_small(table, keys_bytes_max, read_bytes);
        let (_, keys) = keys.filter(few).min_by_key(|(table, _)| rows(table))?;
        only_groups_of(&groups.plan, register - groups.first, &keys)
    };
    registers.iter().find_map(reduce)
}

/// The columns of a leaf by which its rows are looked up, so that those without an equal are of no use.
fn looked_up(graph: &Graph, leaf: usize) -> Vec<Register> {
    let owned = |expr: &Expr| plain(expr).filter(|&register| graph.leaves[leaf].owns(register));
    let edges = graph.edges.iter().filter(|edge| !edge.null_equal);
    let joined = edges.flat_map(|edge| [&edge.left, &edge.right]).filter_map(owned);
    let sides = graph.side_joins.iter().filter(|side| {
        use ProbeKind::{Anti, Left, Semi};
        let is_exact = matches!(side.kind, Semi | Anti | Left);
        side.leaf == leaf && is_exact && !side.null_equal
    });
    let hung = sides.flat_map(|side| &side.keys);
    // What preserved rows look for must be plain as well, to have equals.
    let hung = hung.filter(|(kept, _)| plain(kept).is_some());
    joined.chain(hung.filter_map(|(_, key)| owned(key))).collect()
}

/// The registers that are equal to one in every row of the answer that needs its leaf's row.
fn equal_registers(graph: &Graph, register: Register) -> Vec<Register> {
    let edges = graph.edges.iter().filter(|edge| !edge.null_equal);
    let edges = edges.map(|edge| (&edge.left, &edge.right));
    let semis = graph.side_joins.iter().filter(|side| !side.null_equal);
    let semis = semis.filter(|side| {
        // Of other joins it is the leaf itself whose rows may be left out.
        side.kind == ProbeKind::Semi || graph.leaves[side.leaf].owns(register)
    });
    let semis = semis.flat_map(|side| side.keys.iter().map(|(kept, key)| (kept, key)));
    let pairs: Vec<_> =
        edges.chain(semis).filter_map(|(a, b)| Some((plain(a)?, plain(b)?))).collect();
    let mut same = vec![register];
    while let Some(next) =
        pairs.iter().find_map(|&(a, b)| match (same.contains(&a), same.contains(&b)) {
            (true, false) => Some(b),
            (false, true) => Some(a),
            _ => None,
        })
    {
        same.push(next);
    }
    same
}

/// A register whose equal values are the same.
pub(super) fn plain(expr: &Expr) -> Option<Register> {
    expr.as_register().filter(|_| !expr.data_type().is_float())
}

/// Rows of a scanned table.
pub(super) fn rows(table: &Leaf) -> u64 {
    table.table_rows().unwrap_or(u64::MAX)
}

fn is_small(table: &Leaf, keys_bytes_max: u64, read_bytes: u64) -> bool {
    let bytes = rows(table).saturating_mul(REDUCER_ROW_BYTES);
    let table_bytes = scanned_bytes(&table.plan);
    bytes <= keys_bytes_max && table_bytes < read_bytes
}

/// A filtered table and the values of one of its columns, as a plan.
fn keys_of(graph: &Graph, register: Register) -> Option<(&Leaf, Arc<dyn ExecutionPlan>)> {
    let leaf = &graph.leaves[graph.leaf_of(register)?];
    leaf.table()?;
    let Filtered { plan, columns } = leaf.filtered.as_ref()?;
    let is_wanted =
        |column: &Result<Expr, _>| column.as_ref().ok().and_then(plain) == Some(register);
    let index = columns.iter().position(is_wanted)?;
    let alias = plan.schema().field(index).name().clone();
    let expr: Arc<dyn PhysicalExpr> = Arc::new(Column::new(&alias, index));
    let keys = ProjectionExec::try_new(vec![ProjectionExpr { expr, alias }], Arc::clone(plan));
    Some((leaf, Arc::new(keys.ok()?)))
}

/// A plan of groups whose output column `column` is among some keys; `None` where that is no column that
/// they are grouped by.
fn only_groups_of(
    plan: &Arc<dyn ExecutionPlan>,
    column: usize,
    keys: &Arc<dyn ExecutionPlan>,
) -> Option<Arc<dyn ExecutionPlan>> {
    if plan.fetch().is_some() {
        return None;
    }
    let (input, column) = if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        let input = projection.expr().get(column)?.expr.downcast_ref::<Column>()?.index();
        (projection.input(), input)
    } else if let Some(filter) = plan.downcast_ref::<FilterExec>() {
        let projection = filter.projection().as_deref();
        (filter.input(), projection.map_or(Some(column), |kept| kept.get(column).copied())?)
    } else if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
        let group = aggregate.group_expr();
        if group.has_grouping_set() || aggregate.limit_options().is_some() {
            return None;
        }
        let key = group.expr().get(column)?.0.downcast_ref::<Column>()?.index();
        if aggregate.mode().input_mode() == AggregateInputMode::Raw {
            let only = only_rows_of(aggregate.input(), key, keys)?;
            return with_children(Arc::clone(plan), vec![only]).ok();
        }
        (aggregate.input(), key)
    } else if plan.is::<CoalescePartitionsExec>() || plan.is::<RepartitionExec>() {
        (*plan.children().first()?, column)
    } else {
        return None;
    };
    let only = only_groups_of(input, column, keys)?;
    with_children(Arc::clone(plan), vec![only]).ok()
}

/// The rows whose column is among some keys.
fn only_rows_of(
    plan: &Arc<dyn ExecutionPlan>,
    column: usize,
    keys: &Arc<dyn ExecutionPlan>,
) -> Option<Arc<dyn ExecutionPlan>> {
    let (schema, keys_schema) = (plan.schema(), keys.schema());
    let (field, key) = (schema.field(column), keys_schema.field(0));
    if field.data_type() != key.data_type() {
        return None;
    }
    let of_plan: Arc<dyn PhysicalExpr> = Arc::new(Column::new(field.name(), column));
    let of_keys: Arc<dyn PhysicalExpr> = Arc::new(Column::new(key.name(), 0));
    let on = vec![(of_keys, of_plan)];
    let (keys, plan) = (Arc::clone(keys), Arc::clone(plan));
    let join = HashJoinExecBuilder::new(keys, plan, on, JoinType::RightSemi)
        .with_null_equality(NullEquality::NullEqualsNothing)
        .with_partition_mode(PartitionMode::Auto);
    join.build_exec().ok()
}
