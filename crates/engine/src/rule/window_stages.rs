//! DataFusion's window functions as a sink.
//!
//! Frames begin with the partition and end with it, with the row or with its peers. Others are left to the planner, and so are
//! aggregates with FILTER or DISTINCT, and rows of which neither partitions nor an order are asked for.

use std::sync::Arc;

use datafusion::common::ScalarValue;
use datafusion::logical_expr::{WindowFrame, WindowFrameBound, WindowFrameUnits};
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_expr::window::{
    PlainAggregateWindowExpr, SlidingAggregateWindowExpr, StandardWindowExpr, WindowExpr,
};
use datafusion::physical_plan::PhysicalExpr;
use datafusion::physical_plan::windows::WindowUDFExpr;
use headrace_format::arrow::ir_type;
use headrace_ir::{
    AggregateFunction, ColumnCall, Expr, Field, FrameEnd, NamedExpr, OnOverflow, OrderKey, RowOf,
    WindowCall, WindowFunction, Windows,
};
use headrace_pipeline::WhyNot;
use headrace_runner::check_windows;

use super::aggregate::argument;
use super::program::SinkSpec;
use super::translate::Translator;
use crate::exec::Output;

fn why<T>(reason: impl Into<String>) -> Result<T, WhyNot> {
    Err(WhyNot::new(reason))
}

/// The sink of window functions over rows of some columns.
pub fn sink(
    exprs: &[Arc<dyn WindowExpr>],
    columns: Vec<NamedExpr>,
    translator: &Translator,
) -> Result<SinkSpec, WhyNot> {
    let Some(first) = exprs.first() else { return why("a window without functions") };
    let is_alike = |other: &Arc<dyn WindowExpr>| {
        (other.partition_by(), other.order_by()) == (first.partition_by(), first.order_by())
    };
    if !exprs.iter().all(is_alike) {
        return why("windows of several partitions or orders in one node");
    }
    let own = columns.len();
    let mut rows = Rows { columns, translator };
    let partition = first.partition_by().iter().map(|key| rows.column(key));
    let mut partition = partition.collect::<Result<Vec<_>, _>>()?;
    partition.sort_unstable();
    partition.dedup();
    let order = first.order_by().iter().map(|key| {
        let (descending, nulls_first) = (key.options.descending, key.options.nulls_first);
        Ok(OrderKey { column: rows.column(&key.expr)?, descending, nulls_first })
    });
    let mut order = order.collect::<Result<Vec<_>, WhyNot>>()?;
    order.retain(|key| !partition.contains(&key.column));
    if partition.is_empty() && order.is_empty() {
        return why("windows without partitions and without an order are left to the planner");
    }
    let calls = exprs.iter().map(|expr| rows.call(expr.as_ref()));
    let calls = calls.collect::<Result<Vec<_>, _>>()?;
    let columns = rows.columns;
    let calls_at = columns.len();
    let outputs = match calls_at == own {
        true => Vec::new(),
        false => (0..own).chain(calls_at..calls_at + calls.len()).map(Output::Column).collect(),
    };
    let windows = Windows { columns, partition, order, calls, first: None };
    for (call, expr) in windows.calls.iter().zip(exprs) {
        let Field { data_type, .. } = call.field(&windows.columns);
        let planned = expr.field().map_err(|error| WhyNot::new(error.to_string()))?;
        if ir_type(planned.data_type()).as_ref() != Some(&data_type) {
            return why(format!("{} is {}, not {data_type}", call.name, planned.data_type()));
        }
    }
    check_windows(&windows)?;
    Ok(SinkSpec::Windows { windows, outputs })
}

/// The rows, with what the functions read of them.
struct Rows<'a> {
    columns: Vec<NamedExpr>,
    translator: &'a Translator<'a>,
}

impl Rows<'_> {
    /// The column of an expression, which is added if there is none.
    fn column(&mut self, expr: &Arc<dyn PhysicalExpr>) -> Result<usize, WhyNot> {
        let value = self.translator.translate(expr)?;
        Ok(self.column_of(value, || expr.to_string()))
    }

    fn column_of(&mut self, expr: Expr, name: impl FnOnce() -> String) -> usize {
        let known = self.columns.iter().position(|column| column.expr == expr);
        known.unwrap_or_else(|| {
            self.columns.push(NamedExpr { name: name(), expr });
            self.columns.len() - 1
        })
    }

    fn call(&mut self, expr: &dyn WindowExpr) -> Result<WindowCall, WhyNot> {
        let name = expr.name().to_string();
        let function = match (aggregate_of(expr), function_of(expr)) {
            (Some(_), _) if is_filtered(expr) => return why(format!("{name} has a FILTER")),
            (Some(aggregate), _) => {
                let until = frame_end(expr)?;
                WindowFunction::Aggregate { call: self.aggregate(aggregate)?, until }
            }
            (None, Some(function)) => self.function(function, expr)?,
            (None, None) => return why(format!("window function {name} is not supported")),
        };
        Ok(WindowCall { name, function })
    }

    fn aggregate(&mut self, aggregate: &AggregateFunctionExpr) -> Result<ColumnCall, WhyNot> {
        let name = aggregate.name();
        let function = match aggregate.fun().name() {
            "count" => AggregateFunction::Count,
            "sum" => AggregateFunction::Sum,
            "avg" => AggregateFunction::Avg,
            "min" => AggregateFunction::Min,
            "max" => AggregateFunction::Max,
            other => return why(format!("{other} over a window is not supported")),
        };
        let is_extreme = matches!(function, AggregateFunction::Min | AggregateFunction::Max);
        if aggregate.is_distinct() && !is_extreme {
            return why(format!("{name}: DISTINCT over a window is not supported"));
        }
        let argument = argument(aggregate, function, self.translator)?;
        let argument = argument.map(|value| {
            let text = value.to_string();
            self.column_of(value, || text)
        });
        let arrow = aggregate.field().data_type().clone();
        let Some(result) = ir_type(&arrow) else { return why(format!("{name} has type {arrow}")) };
        let on_overflow = OnOverflow::Error;
        Ok(ColumnCall { function, argument, filter: None, result, on_overflow })
    }

    fn function(
        &mut self,
        function: &WindowUDFExpr,
        expr: &dyn WindowExpr,
    ) -> Result<WindowFunction, WhyNot> {
        let (name, args) = (function.fun().name(), function.args());
        // The planner tells neither in another way.
        let text = format!("{function:?}");
        if text.contains("ignore_nulls: true") || text.contains("is_reversed: true") {
            return why(format!("{name} that ignores NULLs is not supported"));
        }
        let of = match name {
            "row_number" => return Ok(WindowFunction::RowNumber),
            "rank" => return Ok(WindowFunction::Rank),
            "dense_rank" => return Ok(WindowFunction::DenseRank),
            "first_value" => {
                frame_end(expr)?;
                RowOf::First
            }
            "last_value" => RowOf::Last(frame_end(expr)?),
            "lag" | "lead" => row_beside(name == "lag", args)?,
            other => return why(format!("window function {other} is not supported")),
        };
        let Some(value) = args.first() else { return why(format!("{name} of nothing")) };
        Ok(WindowFunction::Value { column: self.column(value)?, of })
    }
}

/// The row that lag or lead is of: NULL where there is none.
fn row_beside(is_before: bool, args: &[Arc<dyn PhysicalExpr>]) -> Result<RowOf, WhyNot> {
    let constant = |at: usize| match args.get(at) {
        None => Ok(None),
        Some(arg) => match arg.downcast_ref::<Literal>() {
            Some(literal) => Ok(Some(literal.value().clone())),
            None => why("lag or lead by what is no constant"),
        },
    };
    if constant(2)?.is_some_and(|default| !default.is_null()) {
        return why("lag or lead with a default");
    }
    let rows = match constant(1)? {
        None => 1,
        Some(ScalarValue::Int64(Some(rows))) => rows,
        Some(other) => return why(format!("lag or lead by {other}")),
    };
    let by = rows.unsigned_abs();
    Ok(if is_before == (rows >= 0) { RowOf::Before(by) } else { RowOf::After(by) })
}

/// Where a frame that begins with the partition ends.
pub fn frame_end(expr: &dyn WindowExpr) -> Result<FrameEnd, WhyNot> {
    let frame: &WindowFrame = expr.get_window_frame();
    let is_of_rows = frame.units == WindowFrameUnits::Rows;
    let are_all_peers = !is_of_rows && expr.order_by().is_empty();
    let begins = match &frame.start_bound {
        WindowFrameBound::Preceding(by) => by.is_null(),
        WindowFrameBound::CurrentRow => are_all_peers,
        WindowFrameBound::Following(_) => false,
    };
    match &frame.end_bound {
        WindowFrameBound::Following(by) if begins && by.is_null() => Ok(FrameEnd::Partition),
        WindowFrameBound::CurrentRow if begins && are_all_peers => Ok(FrameEnd::Partition),
        WindowFrameBound::CurrentRow if begins && is_of_rows => Ok(FrameEnd::Row),
        WindowFrameBound::CurrentRow if begins => Ok(FrameEnd::Peers),
        _ => why(format!("{}: a frame {frame} is left to the planner", expr.name())),
    }
}

/// The aggregate of a window function that is one.
pub fn aggregate_of(expr: &dyn WindowExpr) -> Option<&AggregateFunctionExpr> {
    let any = expr.as_any();
    let plain = any.downcast_ref().map(PlainAggregateWindowExpr::get_aggregate_expr);
    plain.or_else(|| any.downcast_ref().map(SlidingAggregateWindowExpr::get_aggregate_expr))
}

/// A window function that is no aggregate.
pub fn function_of(expr: &dyn WindowExpr) -> Option<&WindowUDFExpr> {
    let standard = expr.as_any().downcast_ref::<StandardWindowExpr>()?;
    standard.get_standard_func_expr().as_any().downcast_ref()
}

/// Whether an aggregate has a FILTER, of which the planner tells nothing but in this way.
pub fn is_filtered(aggregate: &dyn WindowExpr) -> bool {
    !format!("{aggregate:?}").ends_with("filter: None }")
}
