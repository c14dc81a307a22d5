//! Functions within what orders rows are columns of their own: `ORDER BY length(w) > 3`.
//!
//! ```sql
//! SELECT array_agg(x ORDER BY length(x) > 3, x) FROM t
//! ```
//!
//! - DataFusion: SanityCheckPlan refuses the plan: bounds of a function have no type, so that the order that was made is not
//!   found again; right is the list.
//! - Upstream: no upstream issue known.
//! - This can go when its canary finds the fault mended.
//!
//! The planner asks each function for bounds of its values. Most know none, not even of what type they are, and whoever compares
//! with them fails; then the planner does not find again the order that it has made, and refuses its own plan. So such keys of
//! orders and windows are computed below, and columns order the rows:
//!
//! ```text
//! Sort: length(w) > 3, id        Projection: id, w
//!                                  Sort: sort key 0, id
//!                                    Projection: id, w, length(w) > 3 AS sort key 0
//! ```

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result};
use datafusion::logical_expr::{
    Aggregate, Distinct, DistinctOn, Expr, LogicalPlan, LogicalPlanBuilder, Sort, SortExpr, Window,
};

use crate::plans::{columns_of, renamed};

/// Computes such keys below what asks for them.
pub fn rewrite(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let rewritten = match &plan {
        LogicalPlan::Sort(sort) => sorted(sort)?,
        LogicalPlan::Window(window) => windows(window)?,
        LogicalPlan::Aggregate(aggregate) => aggregated(aggregate)?,
        LogicalPlan::Distinct(Distinct::On(distinct)) => first_rows(distinct)?,
        _ => None,
    };
    Ok(rewritten.map_or_else(|| Transformed::no(plan), Transformed::yes))
}

/// Keys that are computed.
#[derive(Default)]
struct Keys(Vec<Expr>);

impl Keys {
    /// A key, or the column that it is computed as.
    fn column(&mut self, key: Expr) -> Expr {
        if !is_of_function(&key) {
            return key;
        }
        let nth = self.0.iter().position(|known| *known == key).unwrap_or_else(|| {
            self.0.push(key);
            self.0.len() - 1
        });
        Self::name(nth)
    }

    fn name(nth: usize) -> Expr {
        Expr::Column(Column::new_unqualified(format!("sort key {nth}")))
    }

    fn order(&mut self, order: Vec<SortExpr>) -> Vec<SortExpr> {
        let by = |sort: SortExpr| SortExpr { expr: self.column(sort.expr), ..sort };
        order.into_iter().map(by).collect()
    }

    /// Rows with all of them; `None`, if there are none.
    fn computed(self, rows: &LogicalPlan) -> Result<Option<LogicalPlan>> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let named = |(nth, key): (usize, Expr)| match Self::name(nth) {
            Expr::Column(column) => key.unalias().alias(column.name),
            other => other,
        };
        let keys = self.0.into_iter().enumerate().map(named);
        let columns = columns_of(rows).into_iter().chain(keys);
        LogicalPlanBuilder::from(rows.clone()).project(columns)?.build().map(Some)
    }
}

/// Whether an expression is made of what a function gives.
fn is_of_function(key: &Expr) -> bool {
    if let Expr::Alias(alias) = key {
        return is_of_function(&alias.expr);
    }
    let mut found = false;
    let is_function =
        |part: &Expr| Ok(matches!(part, Expr::ScalarFunction(_) | Expr::HigherOrderFunction(_)));
    let asked = key.apply_children(|part| {
        found |= part.exists(is_function)?;
        Ok(TreeNodeRecursion::Continue)
    });
    found && asked.is_ok()
}

fn sorted(sort: &Sort) -> Result<Option<LogicalPlan>> {
    let mut keys = Keys::default();
    let order = keys.order(sort.expr.clone());
    let Some(rows) = keys.computed(&sort.input)? else { return Ok(None) };
    let sorted = LogicalPlanBuilder::from(rows).sort_with_limit(order, sort.fetch)?;
    sorted.project(columns_of(&sort.input))?.build().map(Some)
}

fn windows(window: &Window) -> Result<Option<LogicalPlan>> {
    let mut keys = Keys::default();
    let calls = window.window_expr.iter().map(|expr| {
        let by_columns = expr.clone().transform_up(|part| match part {
            Expr::WindowFunction(mut call) => {
                let params = &mut call.params;
                params.order_by = keys.order(std::mem::take(&mut params.order_by));
                let parts = std::mem::take(&mut params.partition_by);
                params.partition_by = parts.into_iter().map(|part| keys.column(part)).collect();
                Ok(Transformed::yes(Expr::WindowFunction(call)))
            }
            other => Ok(Transformed::no(other)),
        })?;
        Ok(by_columns.data)
    });
    let calls = calls.collect::<Result<Vec<_>>>()?;
    let rows = keys.computed(&window.input)?;
    rows.map(|rows| window_of(window, rows, calls)).transpose()
}

/// A window's calls, made anew over its rows with more columns, under their names.
pub fn window_of(window: &Window, rows: LogicalPlan, calls: Vec<Expr>) -> Result<LogicalPlan> {
    let count = calls.len();
    let of_all = LogicalPlan::Window(Window::try_new(calls, Arc::new(rows))?);
    let mut columns = of_all.schema().columns();
    let calls = columns.split_off(columns.len() - count);
    let own = window.input.schema().columns().into_iter().chain(calls).map(Expr::Column);
    LogicalPlanBuilder::from(of_all).project(renamed(own, window.schema.columns()))?.build()
}

fn aggregated(aggregate: &Aggregate) -> Result<Option<LogicalPlan>> {
    let mut keys = Keys::default();
    let calls = aggregate.aggr_expr.iter().map(|expr| {
        let name = expr.schema_name().to_string();
        let by_columns = expr.clone().transform_up(|part| match part {
            // What is computed of an order has it as its argument.
            Expr::AggregateFunction(mut call) if !call.func.supports_within_group_clause() => {
                let params = &mut call.params;
                params.order_by = keys.order(std::mem::take(&mut params.order_by));
                // DISTINCT is ordered by its arguments alone.
                if params.distinct && !params.order_by.is_empty() {
                    let args = std::mem::take(&mut params.args);
                    params.args = args.into_iter().map(|arg| keys.column(arg)).collect();
                }
                Ok(Transformed::yes(Expr::AggregateFunction(call)))
            }
            other => Ok(Transformed::no(other)),
        })?;
        by_columns.data.alias_if_changed(name)
    });
    let calls = calls.collect::<Result<Vec<_>>>()?;
    let Some(rows) = keys.computed(&aggregate.input)? else { return Ok(None) };
    let grouped = Aggregate::try_new(Arc::new(rows), aggregate.group_expr.clone(), calls)?;
    Ok(Some(LogicalPlan::Aggregate(grouped)))
}

fn first_rows(distinct: &DistinctOn) -> Result<Option<LogicalPlan>> {
    let mut keys = Keys::default();
    let on: Vec<Expr> = distinct.on_expr.iter().map(|key| keys.column(key.clone())).collect();
    let order = distinct.sort_expr.clone().map(|order| keys.order(order));
    let Some(rows) = keys.computed(&distinct.input)? else { return Ok(None) };
    let outputs = distinct.select_expr.clone();
    let first = DistinctOn::try_new(on, outputs, order, Arc::new(rows))?;
    Ok(Some(LogicalPlan::Distinct(Distinct::On(first))))
}
