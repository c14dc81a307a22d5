//! DataFusion's aggregation nodes as a sink.

use std::sync::Arc;

use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::{ExecutionPlan, PhysicalExpr};
use headrace_format::arrow::ir_type;
use headrace_ir::{AggregateCall, AggregateFunction, DataType, Expr, NamedExpr, OnOverflow};
use headrace_pipeline::WhyNot;

use super::program::SinkSpec;
use super::translate::{InputColumn, Translator};

fn why<T>(reason: impl Into<String>) -> Result<T, WhyNot> {
    Err(WhyNot::new(reason))
}

/// The node that aggregates raw rows, for a plan whose root yields final values: itself, or
/// the partial aggregation below it.
pub fn raw_aggregation(root: &AggregateExec) -> Option<&AggregateExec> {
    match root.mode() {
        AggregateMode::Single | AggregateMode::SinglePartitioned => Some(root),
        AggregateMode::Final | AggregateMode::FinalPartitioned => partial_below(root.input()),
        _ => None,
    }
}

fn partial_below(plan: &Arc<dyn ExecutionPlan>) -> Option<&AggregateExec> {
    if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
        return (*aggregate.mode() == AggregateMode::Partial).then_some(aggregate);
    }
    let passes = plan.is::<CoalescePartitionsExec>() || plan.is::<RepartitionExec>();
    match plan.children().as_slice() {
        [input] if passes => partial_below(input),
        _ => None,
    }
}

/// The sink of an aggregation of raw rows whose input has these columns. `root` tells the
/// result columns.
pub fn sink(
    root: &AggregateExec,
    raw: &AggregateExec,
    columns: &[InputColumn],
) -> Result<SinkSpec, WhyNot> {
    if raw.group_expr().has_grouping_set() {
        return why("GROUPING SETS, ROLLUP and CUBE are not supported");
    }
    if root.limit_options().is_some() || raw.limit_options().is_some() {
        return why("an aggregation with LIMIT is left to the planner");
    }
    let schema = raw.input().schema();
    let translator = Translator { columns, schema: &schema };
    let keys = raw
        .group_expr()
        .expr()
        .iter()
        .map(|(expr, name)| Ok(NamedExpr { name: name.clone(), expr: translator.translate(expr)? }))
        .collect::<Result<_, WhyNot>>()?;
    let calls = raw
        .aggr_expr()
        .iter()
        .zip(raw.filter_expr())
        .map(|(aggregate, filter)| call(aggregate, filter.as_ref(), &translator))
        .collect::<Result<_, WhyNot>>()?;
    Ok(SinkSpec::Aggregate { keys, calls })
}

fn call(
    aggregate: &AggregateFunctionExpr,
    filter: Option<&Arc<dyn PhysicalExpr>>,
    translator: &Translator,
) -> Result<AggregateCall, WhyNot> {
    let name = aggregate.name();
    if aggregate.is_distinct() {
        return why(format!("{name}: DISTINCT is not supported"));
    }
    let function = match aggregate.fun().name() {
        "count" => AggregateFunction::Count,
        "sum" => AggregateFunction::Sum,
        "avg" => AggregateFunction::Avg,
        "min" => AggregateFunction::Min,
        "max" => AggregateFunction::Max,
        other => return why(format!("aggregate function {other} is not supported")),
    };
    let argument = argument(aggregate, function, translator)?;
    let arrow = aggregate.field().data_type().clone();
    let Some(result) = ir_type(&arrow) else {
        return why(format!("{name} has type {arrow}"));
    };
    let filter = filter.map(|f| translator.translate(f)).transpose()?;
    Ok(AggregateCall {
        name: name.to_string(),
        function,
        argument,
        filter,
        distinct: false,
        result,
        on_overflow: OnOverflow::Error,
    })
}

fn argument(
    aggregate: &AggregateFunctionExpr,
    function: AggregateFunction,
    translator: &Translator,
) -> Result<Option<Expr>, WhyNot> {
    let expressions = aggregate.expressions();
    let [expr] = expressions.as_slice() else {
        if expressions.is_empty() && function == AggregateFunction::Count {
            return Ok(None);
        }
        return why(format!("{} has {} arguments", aggregate.name(), expressions.len()));
    };
    if function == AggregateFunction::Count
        && expr.downcast_ref::<Literal>().is_some_and(|l| !l.value().is_null())
    {
        return Ok(None);
    }
    let argument = translator.translate(expr)?;
    if function == AggregateFunction::Count && !argument.nullable() && is_plain(&argument) {
        return Ok(None);
    }
    let sums = matches!(function, AggregateFunction::Sum | AggregateFunction::Avg);
    if sums && !argument.data_type().is_numeric() {
        return why(format!("{} of {}", aggregate.name(), argument.data_type()));
    }
    if function != AggregateFunction::Count && argument.data_type() == DataType::Binary {
        return why(format!("{} of binary", aggregate.name()));
    }
    Ok(Some(argument))
}

/// A register or constant: nothing in it can fail, so counting rows is the same.
fn is_plain(expr: &Expr) -> bool {
    matches!(expr, Expr::Register { .. } | Expr::Literal(_))
}
