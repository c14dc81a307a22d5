//! What the planner takes, and means nothing by:
//!
//! ```sql
//! SELECT count(*) OVER (ORDER BY x RANGE BETWEEN 1 PRECEDING AND CURRENT ROW) FROM t  -- x: texts
//! ```
//!
//! - DataFusion: Numbers that mean nothing; right is an error. So it is with `nth_value(x, 0)` and with aggregates of what a
//!   recursive query has found.
//! - Upstream: no upstream issue known.
//! - This can go when its canary finds the fault mended.
//!
//! - Groups by structs without fields, of which its groups lose their number.
//! - RANGE with a distance over what has no distances, such as texts.
//! - `nth_value(x, 0)`.
//! - Aggregates of the rows that a recursive query has found so far: it sees those of the last step alone.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result, ScalarValue, plan_err};
use datafusion::logical_expr::expr::WindowFunction;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    Distinct, Expr, ExprSchemable, LogicalPlan, RecursiveQuery, WindowFrameBound, WindowFrameUnits,
};

/// Refuses them.
pub fn check(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    match &plan {
        LogicalPlan::Aggregate(aggregate) => {
            check_keys(aggregate.schema.as_ref(), aggregate.group_expr_len()?)?;
        }
        LogicalPlan::Distinct(Distinct::All(input)) => {
            check_keys(input.schema(), input.schema().fields().len())?;
        }
        LogicalPlan::Window(window) => {
            let schema = merge_schema(&plan.inputs());
            for expr in &window.window_expr {
                if let Expr::WindowFunction(function) = expr.clone().unalias() {
                    check_window(&function, &schema)?;
                }
            }
        }
        LogicalPlan::RecursiveQuery(query) => check_recursion(query)?,
        _ => {}
    }
    Ok(Transformed::no(plan))
}

fn check_keys(schema: &DFSchema, keys: usize) -> Result<()> {
    match schema.fields().iter().take(keys).find(|field| is_empty(field.data_type())) {
        Some(field) => plan_err!(
            "rows are not grouped by {}, a struct without fields\n\
             hint: group by whether it is NULL: ({}) IS NULL",
            field.name(),
            field.name()
        ),
        None => Ok(()),
    }
}

fn check_window(window: &WindowFunction, schema: &DFSchema) -> Result<()> {
    let params = &window.params;
    let frame = &params.window_frame;
    let is_distance = |bound: &WindowFrameBound| match bound {
        WindowFrameBound::Preceding(distance) | WindowFrameBound::Following(distance) => {
            !distance.is_null()
        }
        WindowFrameBound::CurrentRow => false,
    };
    let is_by_distance = frame.units == WindowFrameUnits::Range
        && (is_distance(&frame.start_bound) || is_distance(&frame.end_bound));
    if let (true, [by]) = (is_by_distance, params.order_by.as_slice()) {
        let data_type = by.expr.get_type(schema)?;
        if !has_distances(&data_type) {
            return plan_err!(
                "RANGE with a distance is of numbers and moments, and {} has none\nhint: ROWS counts rows",
                by.expr
            );
        }
    }
    if let ("nth_value", [_, Expr::Literal(place, _)]) = (window.fun.name(), params.args.as_slice())
        && let Ok(ScalarValue::Int64(Some(place))) = place.cast_to(&DataType::Int64)
        && place <= 0
    {
        return plan_err!("nth_value counts rows from 1, and {place} is none");
    }
    Ok(())
}

fn has_distances(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, value) => has_distances(value),
        DataType::Boolean => false,
        other => other.is_numeric() || other.is_temporal() || other.is_null(),
    }
}

fn check_recursion(query: &RecursiveQuery) -> Result<()> {
    let reads_itself = |plan: &LogicalPlan| {
        plan.exists(|node| match node {
            LogicalPlan::TableScan(scan) => Ok(scan.table_name.table() == query.name),
            _ => Ok(false),
        })
    };
    query.recursive_term.apply(|node| {
        if let LogicalPlan::Aggregate(aggregate) = node
            && !aggregate.aggr_expr.is_empty()
            && reads_itself(&aggregate.input)?
        {
            return plan_err!(
                "the recursive part of {} aggregates what it has found so far\n\
                 hint: aggregate outside: WITH RECURSIVE .. SELECT sum(x) FROM {}",
                query.name,
                query.name
            );
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

/// Whether values of a type have, at some depth, structs without fields.
fn is_empty(data_type: &DataType) -> bool {
    match data_type {
        DataType::Struct(fields) => {
            fields.is_empty() || fields.iter().any(|field| is_empty(field.data_type()))
        }
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _) => is_empty(item.data_type()),
        DataType::Dictionary(_, value) => is_empty(value),
        _ => false,
    }
}
