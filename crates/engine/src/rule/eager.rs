//! Rows of the other side of a left join are counted before they are joined, where they are many.
//!
//! ```text
//! γ(c_custkey; count(o_orderkey); customer ⟕ orders)
//! └─ becomes γ(c_custkey; sum(coalesce(n, 0)); customer ⟕ γ(o_custkey; count(o_orderkey) as n; orders))
//! ```
//!
//! Then what is looked up is a number a key instead of a chain of rows. A row without a match counts as none, or as
//! one of `count(*)`. (Yan, Larson, "Eager Aggregation and Lazy Aggregation", VLDB 1995.)

use std::sync::Arc;

use datafusion::functions_aggregate::count::count_udaf;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateExprBuilder;
use datafusion::physical_expr::expressions::{Column, lit};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy};
use headrace_ir::{
    AggregateCall, AggregateFunction, DataType, Expr, Field, ProbeKind, Register, Scalar,
};
use headrace_pipeline::WhyNot;

use super::flatten::fields_of;
use super::graph::{Filtered, Graph, Leaf, SideJoin, register};
use super::program::SinkSpec;
use super::reduce::{plain, rows};
use super::translate::InputColumn;

/// As many rows at least shall have a key on the average.
const KEY_ROWS_MIN: u64 = 4;

/// Counts the rows of the leaf of a side join by its keys, if counts are all that a sink wants of it.
pub fn count_before_join(graph: &mut Graph, sink: &mut SinkSpec) {
    let Some((leaf, plan, fields)) = counts(graph, sink) else { return };
    let reason = WhyNot::new("its rows are counted before they are joined");
    let first = graph.replace_leaf(leaf, plan, reason, fields.clone());
    let mut columns = fields.iter().enumerate().map(|(i, field)| register(first + i, field));
    let keys = graph.side_joins.iter_mut().flat_map(|side| &mut side.keys);
    keys.zip(&mut columns).for_each(|((_, key), column)| *key = column);
    let SinkSpec::Aggregate { calls, .. } = sink else { return };
    for (call, count) in calls.iter_mut().zip(columns) {
        let of_no_match = i128::from(call.argument.is_none());
        let literal = Expr::Literal(Scalar::int(DataType::Int64, of_no_match));
        let branches = vec![(Expr::IsNull(Box::new(count.clone())), literal)];
        let (otherwise, data_type) = (Some(Box::new(count)), DataType::Int64);
        call.function = AggregateFunction::Sum;
        call.argument = Some(Expr::Case { branches, otherwise, data_type });
    }
}

/// The leaf, and the plan of its keys and counts with its columns.
fn counts(graph: &Graph, sink: &SinkSpec) -> Option<(usize, Arc<dyn ExecutionPlan>, Vec<Field>)> {
    let SinkSpec::Aggregate { keys, sets, calls, .. } = sink else { return None };
    let [SideJoin { leaf: hung, kind: ProbeKind::Left, keys: pairs, residual: None, .. }] =
        graph.side_joins.as_slice()
    else {
        return None;
    };
    let is_plain = graph.edges.is_empty() && graph.conjuncts.is_empty();
    let ([a, b], true) = (graph.leaves.as_slice(), is_plain) else { return None };
    let (kept, leaf) = if *hung == 1 { (a, b) } else { (b, a) };
    // Without keys there is a group even of no rows, whose count is not NULL.
    let by_kept = |expr: &Expr| !expr.registers().into_iter().any(|r| leaf.owns(r));
    let groups_kept = !keys.is_empty() && keys.iter().all(|key| by_kept(&key.expr));
    let is_worth = rows(leaf) >= rows(kept).saturating_mul(KEY_ROWS_MIN);
    let are_scans = kept.table().is_some() && leaf.table().is_some() && kept.filters.is_empty();
    if !(groups_kept && sets.is_empty() && is_worth && are_scans) {
        return None;
    }
    let Filtered { plan: input, columns } = rows_of(leaf)?;
    let schema = input.schema();
    let column = |register: Register| -> Option<(Arc<dyn PhysicalExpr>, String)> {
        let of = |column: &InputColumn| column.as_ref().ok().and_then(Expr::as_register);
        let place = columns.iter().position(|column| of(column) == Some(register))?;
        let name = schema.field(place).name();
        Some((Arc::new(Column::new(name, place)), name.clone()))
    };
    let groups = pairs.iter().map(|(_, key)| column(plain(key)?)).collect::<Option<_>>()?;
    let count = |(number, call): (usize, &AggregateCall)| {
        let is_count = call.function == AggregateFunction::Count && !call.distinct;
        let argument = match &call.argument {
            None => lit(1),
            Some(argument) => column(argument.as_register()?)?.0,
        };
        let count = AggregateExprBuilder::new(count_udaf(), vec![argument])
            .schema(Arc::clone(&schema))
            .alias(format!("count {number}"));
        (is_count && call.filter.is_none()).then(|| count.build().ok().map(Arc::new)).flatten()
    };
    let counts = calls.iter().enumerate().map(count).collect::<Option<Vec<_>>>()?;
    let (by, filters) = (PhysicalGroupBy::new_single(groups), vec![None; counts.len()]);
    let plan =
        AggregateExec::try_new(AggregateMode::Single, by, counts, filters, input, schema).ok()?;
    let fields = fields_of(&plan.schema()).into_iter().collect::<Result<_, _>>().ok()?;
    Some((*hung, Arc::new(plan), fields))
}

/// The plan of a leaf's rows.
fn rows_of(leaf: &Leaf) -> Option<Filtered> {
    let columns = || {
        let fields = leaf.columns.iter().zip(leaf.first..);
        fields.map(|(field, index)| field.clone().map(|field| register(index, &field))).collect()
    };
    match &leaf.filtered {
        Some(filtered) => Some(filtered.clone()),
        None if leaf.filters.is_empty() => {
            Some(Filtered { plan: Arc::clone(&leaf.plan), columns: columns() })
        }
        None => None,
    }
}
