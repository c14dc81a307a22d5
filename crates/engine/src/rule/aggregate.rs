//! DataFusion's aggregation nodes as a sink.

use std::sync::Arc;

use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_plan::PhysicalExpr;
use datafusion::physical_plan::aggregates::AggregateExec;
use headrace_format::arrow::ir_type;
use headrace_ir::aggregate::TOTAL_DIGITS_MAX;
use headrace_ir::{
    AggregateCall, AggregateFunction, ArithmeticOp, DataType, Expr, NamedExpr, OnOverflow, Scalar,
    Value,
};
use headrace_pipeline::WhyNot;

use super::program::SinkSpec;
use super::translate::{InputColumn, Subqueries, Translator};
use crate::exec::Output;

fn why<T>(reason: impl Into<String>) -> Result<T, WhyNot> {
    Err(WhyNot::new(reason))
}

/// The sink of an aggregation of raw rows whose input has these columns. `root` tells the
/// result columns. `of_parts`: its groups had best be such as can be made of those of parts of the rows.
pub fn sink(
    (root, raw): (&AggregateExec, &AggregateExec),
    columns: &[InputColumn],
    subqueries: &Subqueries,
    of_parts: bool,
) -> Result<SinkSpec, WhyNot> {
    if root.limit_options().is_some() || raw.limit_options().is_some() {
        return why("an aggregation with LIMIT is left to the planner");
    }
    let schema = raw.input().schema();
    let translator = Translator { columns, schema: &schema, subqueries };
    let keys = raw
        .group_expr()
        .expr()
        .iter()
        .map(|(expr, name)| Ok(NamedExpr { name: name.clone(), expr: translator.translate(expr)? }))
        .collect::<Result<_, WhyNot>>()?;
    let is_distinct = |call: &Arc<AggregateFunctionExpr>| {
        call.is_distinct() && !matches!(call.fun().name(), "min" | "max")
    };
    let any_distinct = raw.aggr_expr().iter().any(is_distinct);
    let mut sink = Calls { any_distinct, of_parts, ..Calls::default() };
    let (sets, grouping_id) = grouping_sets(raw)?;
    let keys_count = raw.group_expr().expr().len();
    let mut outputs: Vec<Output> = (0..keys_count).map(Output::Column).collect();
    outputs.extend(grouping_id);
    sink.first = outputs.len();
    let aggregates: Vec<_> = raw.aggr_expr().iter().zip(raw.filter_expr()).collect();
    let shifted = aggregates.iter().map(|(aggregate, filter)| match filter {
        None => shifted_sum(aggregate, &translator),
        Some(_) => None,
    });
    let shifted: Vec<_> = shifted.collect();
    for ((aggregate, filter), sum) in aggregates.iter().zip(&shifted) {
        let is_same = |other: &&Option<(Expr, i64)>| match (other, sum) {
            (Some((other, _)), Some((value, _))) => other == value,
            _ => false,
        };
        let output = match sum {
            Some(sum) if sum.1 != 0 && shifted.iter().filter(is_same).count() >= SHIFTED_MIN => {
                sink.add_shifted(aggregate, sum)
            }
            _ => sink.add(aggregate, filter.as_ref(), &translator)?,
        };
        outputs.push(output);
    }
    let calls = sink.calls;
    let are_same = outputs.iter().enumerate().all(|(i, output)| *output == Output::Column(i));
    if are_same {
        outputs.clear();
    }
    Ok(SinkSpec::Aggregate { keys, sets, calls, outputs })
}

/// The grouping sets by the positions of their keys, and the column that tells them apart, as the planner numbers
/// them; neither, if there is but one.
fn grouping_sets(raw: &AggregateExec) -> Result<(Vec<Vec<usize>>, Option<Output>), WhyNot> {
    let groups = raw.group_expr().groups();
    if !raw.group_expr().has_grouping_set() {
        return Ok((Vec::new(), None));
    }
    let keys = raw.group_expr().expr().len();
    let mut ids = Vec::with_capacity(groups.len());
    for (number, group) in groups.iter().enumerate() {
        let is_null = group.iter().fold(0u64, |bits, is_null| bits << 1 | u64::from(*is_null));
        // A set that comes again has another number.
        let earlier = groups[..number].iter().filter(|other| *other == group).count() as u64;
        let id = earlier.checked_shl(keys as u32).map(|earlier| earlier | is_null);
        match id.and_then(|id| i64::try_from(id).ok()) {
            Some(id) if keys < 48 => ids.push(id),
            _ => return why(format!("grouping sets of {keys} keys are not supported")),
        }
    }
    let set = |group: &Vec<bool>| (0..keys).filter(|key| !group[*key]).collect();
    let sets = groups.iter().map(set).collect();
    Ok((sets, Some(Output::GroupingId { set: keys, ids })))
}

/// The calls of a sink, as they are gathered.
#[derive(Default)]
struct Calls {
    calls: Vec<AggregateCall>,
    /// The column of the first.
    first: usize,
    /// Whether one of them is of distinct values; the others are then put together of parts.
    any_distinct: bool,
    /// Whether all had best be such as can be put together of parts.
    of_parts: bool,
}

impl Calls {
    /// The column of a call, which is added.
    fn push(&mut self, call: AggregateCall) -> usize {
        self.calls.push(call);
        self.first + self.calls.len() - 1
    }

    /// The column of a call, which is added if there is none like it.
    fn once(&mut self, call: AggregateCall) -> usize {
        let is_same = |other: &AggregateCall| {
            AggregateCall { name: call.name.clone(), ..other.clone() } == call
        };
        match self.calls.iter().position(is_same) {
            Some(place) => self.first + place,
            None => self.push(call),
        }
    }

    /// The sum of a value and a constant, made of the sum of the value.
    fn add_shifted(
        &mut self,
        aggregate: &AggregateFunctionExpr,
        (value, by): &(Expr, i64),
    ) -> Output {
        let call = calls_of(aggregate, None);
        let mut once = |function, argument, result| self.once(call(function, argument, result));
        let exact = DataType::Decimal128 { precision: 38, scale: 0 };
        let total = once(AggregateFunction::Sum, Some(value.clone()), exact);
        let counted = value.nullable().then(|| value.clone());
        let count = once(AggregateFunction::Count, counted, DataType::Int64);
        Output::Shifted { total, count, by: *by, name: aggregate.name().to_string() }
    }

    /// The variance or deviation of integers whose squares fit 64 bits, of exact totals: these can be made of parts, and a
    /// GPU takes them.
    fn add_exact_spread(
        &mut self,
        aggregate: &AggregateFunctionExpr,
        filter: Option<Expr>,
        value: &Expr,
        is_sample: bool,
        is_root: bool,
    ) -> Output {
        let call = calls_of(aggregate, filter);
        let wide = || value.clone().cast(DataType::Int64);
        let square = Expr::Arithmetic {
            op: ArithmeticOp::Multiply,
            left: Box::new(wide()),
            right: Box::new(wide()),
            data_type: DataType::Int64,
            // That of a signed integer of 32 bits has 63.
            on_overflow: OnOverflow::Wrap,
        };
        let exact = || DataType::Decimal128 { precision: 38, scale: 0 };
        let mut once = |function, argument, result| self.once(call(function, argument, result));
        let total = once(AggregateFunction::Sum, Some(wide()), exact());
        let squares = once(AggregateFunction::Sum, Some(square), exact());
        let counted = value.nullable().then(|| value.clone());
        let count = once(AggregateFunction::Count, counted, DataType::Int64);
        Output::ExactSpread { total, squares, count, is_sample, is_root }
    }

    /// The column of an aggregate of the plan.
    fn add(
        &mut self,
        aggregate: &AggregateFunctionExpr,
        filter: Option<&Arc<dyn PhysicalExpr>>,
        translator: &Translator,
    ) -> Result<Output, WhyNot> {
        use AggregateFunction::{Avg, Count, Max, Min, SquaredDeviations, Sum};
        let name = aggregate.name();
        let filter = filter.map(|filter| translator.translate(filter)).transpose()?;
        let call = calls_of(aggregate, filter.clone());
        let plain = match aggregate.fun().name() {
            "count" => Count,
            "sum" => Sum,
            "avg" => Avg,
            "min" => Min,
            "max" => Max,
            function => {
                let (is_sample, is_root) = match function {
                    "var" => (true, false),
                    "var_pop" => (false, false),
                    "stddev" => (true, true),
                    "stddev_pop" => (false, true),
                    "bool_and" | "bool_or" => {
                        let extreme = if function == "bool_and" { Min } else { Max };
                        let argument = as_number(argument(aggregate, extreme, translator)?)?;
                        let call = call(extreme, Some(argument), DataType::Int32);
                        return Ok(Output::IsTrue(self.push(call)));
                    }
                    other => return why(format!("aggregate function {other} is not supported")),
                };
                if aggregate.is_distinct() {
                    return why(format!("{name}: DISTINCT is not supported"));
                }
                let argument = argument(aggregate, SquaredDeviations, translator)?;
                let squared = |value: &&Expr| value.data_type() != DataType::UInt32;
                let value = argument.as_ref();
                let value = value.and_then(|it| narrow_integer(it, &DataType::Float64));
                if let Some(value) = value.filter(squared) {
                    return Ok(self.add_exact_spread(aggregate, filter, value, is_sample, is_root));
                }
                let squares =
                    self.push(call(SquaredDeviations, argument.clone(), DataType::Float64));
                let count = self.push(call(Count, argument, DataType::Int64));
                return Ok(Output::Spread { squares, count, is_sample, is_root });
            }
        };
        let argument = argument(aggregate, plain, translator)?;
        // There are no means of means.
        if let (Avg, Some(of), false) = (plain, &argument, aggregate.is_distinct())
            && (self.any_distinct || self.of_parts)
        {
            if let Some(total) = total_type(&of.data_type()) {
                let total = self.once(call(Sum, argument.clone(), total));
                let count = self.once(call(Count, argument, DataType::Int64));
                let result = aggregate.field().data_type().clone();
                return Ok(Output::Mean { total, count, result });
            }
            if self.any_distinct {
                return why(format!("{name} of {} beside DISTINCT", of.data_type()));
            }
        }
        let arrow = aggregate.field().data_type().clone();
        let Some(result) = ir_type(&arrow) else {
            return why(format!("{name} has type {arrow}"));
        };
        Ok(Output::Column(self.push(call(plain, argument, result))))
    }
}

/// The calls that an aggregate of the plan is made of, by their functions, arguments and results.
fn calls_of(
    aggregate: &AggregateFunctionExpr,
    filter: Option<Expr>,
) -> impl Fn(AggregateFunction, Option<Expr>, DataType) -> AggregateCall {
    let (name, distinct) = (aggregate.name().to_string(), aggregate.is_distinct());
    move |function, argument, result| AggregateCall {
        name: name.clone(),
        function,
        argument,
        filter: filter.clone(),
        distinct,
        result,
        on_overflow: OnOverflow::Error,
    }
}

/// Sums of one value and constants, from so many on, are made of one sum: what is made here, no other pipeline can read.
const SHIFTED_MIN: usize = 3;

/// The value and the constant of a sum of both, if no addition can overflow: the value is of fewer than 64 bits.
fn shifted_sum(aggregate: &AggregateFunctionExpr, translator: &Translator) -> Option<(Expr, i64)> {
    if aggregate.fun().name() != "sum" || aggregate.is_distinct() {
        return None;
    }
    let argument = argument(aggregate, AggregateFunction::Sum, translator).ok()??;
    let (value, by) = match argument {
        Expr::Arithmetic { op: ArithmeticOp::Add, left, right, .. } => match (*left, *right) {
            (value, Expr::Literal(by)) | (Expr::Literal(by), value) => (value, integer(&by)?),
            _ => return None,
        },
        Expr::Arithmetic { op: ArithmeticOp::Subtract, left, right, .. } => match *right {
            Expr::Literal(by) => (*left, integer(&by)?.checked_neg()?),
            _ => return None,
        },
        value => (value, 0),
    };
    let is_narrow = narrow_integer(&value, &DataType::Int64).is_some();
    (is_narrow && by.unsigned_abs() < 1 << 62).then_some((value, by))
}

/// The integer of at most 32 bits that an expression is as a larger type.
fn narrow_integer<'e>(cast: &'e Expr, as_type: &DataType) -> Option<&'e Expr> {
    let Expr::Cast { value, to, .. } = cast else { return None };
    if to != as_type {
        return None;
    }
    let is_narrow = matches!(
        value.data_type(),
        DataType::Int8
            | DataType::Int16
            | DataType::Int32
            | DataType::UInt8
            | DataType::UInt16
            | DataType::UInt32
    );
    is_narrow.then_some(value)
}

fn integer(constant: &Scalar) -> Option<i64> {
    match (&constant.data_type, &constant.value) {
        (DataType::Int64, Value::Int(value)) => i64::try_from(*value).ok(),
        _ => None,
    }
}

/// What totals of a type are, if they can be told. Any total of integers has at most 38 digits.
fn total_type(of: &DataType) -> Option<DataType> {
    let scale = match of {
        DataType::Decimal128 { precision, .. } if *precision > TOTAL_DIGITS_MAX => return None,
        DataType::Decimal128 { scale, .. } => *scale,
        of if of.is_float() => return Some(DataType::Float64),
        _ => 0,
    };
    Some(DataType::Decimal128 { precision: 38, scale })
}

/// A truth value as 1 or 0.
fn as_number(value: Option<Expr>) -> Result<Expr, WhyNot> {
    let value = value.filter(|value| value.data_type() == DataType::Bool);
    let Some(value) = value else { return why("a truth value of another type") };
    let number = |number| Expr::Literal(Scalar::int(DataType::Int32, number));
    let is_false = Expr::Not(Box::new(value.clone()));
    let branches = vec![(value, number(1)), (is_false, number(0))];
    Ok(Expr::Case { branches, otherwise: None, data_type: DataType::Int32 })
}

pub(super) fn argument(
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
        && !aggregate.is_distinct()
        && expr.downcast_ref::<Literal>().is_some_and(|l| !l.value().is_null())
    {
        return Ok(None);
    }
    let argument = translator.translate(expr)?;
    let counts_rows = function == AggregateFunction::Count && !aggregate.is_distinct();
    if counts_rows && !argument.nullable() && is_plain(&argument) {
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
