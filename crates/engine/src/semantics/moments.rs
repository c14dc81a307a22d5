//! Dates, timestamps and zones as SQL means them.
//!
//! - A date and an interval are a timestamp: the planner keeps the date and drops the hours. Where an interval is a constant of
//!   whole days or months, the sum is a date (as SQL's standard has it; PostgreSQL's is a timestamp at midnight), so that
//!   conditions on dates stay ones of dates.
//! - `t AT TIME ZONE z` is `timezone(z, t)`: of a local time the moment, of a moment the local time.
//! - A timestamp without a zone has the time that is written: the planner converts `08:00+08` to midnight, and drops the zone.

use std::str::FromStr;
use std::sync::Arc;

use chrono::{DateTime, LocalResult, NaiveDateTime, Offset, TimeDelta, TimeZone};
use datafusion::arrow::array::timezone::Tz;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, FieldRef, IntervalMonthDayNano, TimeUnit};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result, ScalarValue, exec_datafusion_err, plan_err};
use datafusion::functions_nested::expr_fn::cardinality;
use datafusion::logical_expr::expr::{Between, Case, InList, InSubquery};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    BinaryExpr, Cast, ColumnarValue, Expr, ExprSchemable, LogicalPlan, Operator, ReturnFieldArgs,
    ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, cast as cast_to, lit,
};

use crate::fixes::far_dates::{self, CHOICES, far_constant, is_moment};
use crate::fixes::{decimal_digits, struct_orders};
use crate::plans::map_expressions;
use crate::strict;

/// What AT TIME ZONE gives a moment; a column of a table keeps its own.
const UTC: &str = "UTC";

/// Lets dates and intervals be timestamps, and refuses dates that are compared with numbers, before types are coerced.
pub fn rewrite_sums(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let schema = merge_schema(&plan.inputs());
    check_rows(&plan, &schema)?;
    if let LogicalPlan::Union(union) = &plan {
        let united = far_dates::united(union)?;
        return Ok(united.map_or_else(|| Transformed::no(plan), Transformed::yes));
    }
    map_expressions(plan, |expr| expr.transform_up(|part| sum(part, &schema)))
}

/// What is one column of several queries, or compared by a join.
fn check_rows(plan: &LogicalPlan, schema: &DFSchema) -> Result<()> {
    match plan {
        LogicalPlan::Union(union) => {
            let Some((first, others)) = union.inputs.split_first() else { return Ok(()) };
            let columns = |plan: &LogicalPlan| {
                let of = |column| Expr::Column(column);
                plan.schema().columns().into_iter().map(of).collect::<Vec<_>>()
            };
            for other in others {
                for (one, another) in columns(first).iter().zip(&columns(other)) {
                    let types = (one.get_type(first.schema()), another.get_type(other.schema()));
                    check_types((one, types.0), (another, types.1))?;
                }
            }
            Ok(())
        }
        LogicalPlan::Join(join) => join
            .on
            .iter()
            .try_for_each(|(one, other)| check_together([one, other].into_iter(), schema)),
        _ => Ok(()),
    }
}

/// Whether no date is beside a number.
fn check_together<'a>(exprs: impl Iterator<Item = &'a Expr>, schema: &DFSchema) -> Result<()> {
    let exprs: Vec<&Expr> = exprs.collect();
    let Some((first, others)) = exprs.split_first() else { return Ok(()) };
    others.iter().try_for_each(|other| {
        check_types((first, first.get_type(schema)), (other, other.get_type(schema)))
    })
}

fn check_types(one: (&Expr, Result<DataType>), other: (&Expr, Result<DataType>)) -> Result<()> {
    let ((one, Ok(one_type)), (other, Ok(other_type))) = (one, other) else { return Ok(()) };
    let ((moment, data_type), number) = if is_moment(&one_type) && other_type.is_numeric() {
        ((one, one_type), other)
    } else if is_moment(&other_type) && one_type.is_numeric() {
        ((other, other_type), one)
    } else {
        return Ok(());
    };
    plan_err!(
        "{moment} is a {}, and {number} is a number\nhint: dates stand between quotes: '2024-06-01'",
        if data_type == DataType::Date32 { "date" } else { "timestamp" }
    )
}

fn sum(part: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    check_comparison(&part, schema)?;
    let part = match far_dates::meet(part, schema)? {
        changed @ Transformed { transformed: true, .. } => return Ok(changed),
        same => same.data,
    };
    let part = match struct_orders::expanded(part, schema)? {
        changed @ Transformed { transformed: true, .. } => return Ok(changed),
        same => same.data,
    };
    if let Some(meant) = beyond_ns(&part, schema) {
        return Ok(Transformed::yes(meant));
    }
    let meant = length_of_list(&part, schema)
        .or_else(|| decimal_digits::known(&part, schema))
        .or_else(|| number_of_dictionary(&part, schema));
    if let Some(meant) = meant {
        return Ok(Transformed::yes(meant));
    }
    let part = match compared_with_text(part, schema)? {
        changed @ Transformed { transformed: true, .. } => return Ok(changed),
        same => same.data,
    };
    let Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::Plus | Operator::Minus), right }) =
        part
    else {
        return Ok(Transformed::no(part));
    };
    let is_date = |expr: &Expr| matches!(expr.get_type(schema), Ok(DataType::Date32));
    // The planner knows days between dates as such, but takes them for a duration where it looks for what a filter leaves.
    if op == Operator::Minus && is_date(&left) && is_date(&right) {
        let days = |date: Box<Expr>| cast_to(cast_to(*date, DataType::Int32), DataType::Int64);
        return Ok(Transformed::yes(days(left) - days(right)));
    }
    let has_time = |expr: &Expr| {
        matches!(expr.get_type(schema), Ok(DataType::Interval(_))) && !is_whole_days(expr)
    };
    let as_timestamp = |date: Box<Expr>| {
        Box::new(cast_to(*date, DataType::Timestamp(TimeUnit::Microsecond, None)))
    };
    let (left, right, is_changed) = if is_date(&left) && has_time(&right) {
        (as_timestamp(left), right, true)
    } else if op == Operator::Plus && is_date(&right) && has_time(&left) {
        (left, as_timestamp(right), true)
    } else {
        (left, right, false)
    };
    let sum = Expr::BinaryExpr(BinaryExpr { left, op, right });
    Ok(if is_changed { Transformed::yes(sum) } else { Transformed::no(sum) })
}

/// A timestamp and a text or date that it is compared with: the planner makes both nanoseconds, which end in 2262.
fn compared_with_text(part: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = part else {
        return Ok(Transformed::no(part));
    };
    let is_text = |expr: &Expr| matches!(expr, Expr::Literal(value, _) if value.try_as_str().flatten().is_some());
    let as_other = |text: Box<Expr>, other: &Expr| match other.get_type(schema) {
        Ok(DataType::Timestamp(unit, zone))
            if unit != TimeUnit::Nanosecond
                && (is_text(&text) || matches!(text.get_type(schema), Ok(DataType::Date32))) =>
        {
            let moment = DataType::Timestamp(TimeUnit::Microsecond, zone);
            (Box::new(cast_to(*text, moment)), true)
        }
        _ => (text, false),
    };
    let (right, is_right) =
        if op.supports_propagation() { as_other(right, &left) } else { (right, false) };
    let (left, is_left) =
        if op.supports_propagation() && !is_right { as_other(left, &right) } else { (left, false) };
    let expr = Expr::BinaryExpr(BinaryExpr { left, op, right });
    Ok(if is_right || is_left { Transformed::yes(expr) } else { Transformed::no(expr) })
}

/// `length(w)` of a dictionary of texts: to the planner it is a dictionary of numbers, and no join takes such keys.
fn number_of_dictionary(part: &Expr, schema: &DFSchema) -> Option<Expr> {
    let Expr::ScalarFunction(_) = part else { return None };
    match part.get_type(schema) {
        Ok(DataType::Dictionary(_, value)) if value.is_numeric() => {
            Some(cast_to(part.clone(), *value))
        }
        _ => None,
    }
}

/// `length(list)`: the planner makes a text of the list, and counts its letters.
fn length_of_list(part: &Expr, schema: &DFSchema) -> Option<Expr> {
    let Expr::ScalarFunction(call) = part else { return None };
    let [list] = call.args.as_slice() else { return None };
    let is_meant = call.func.name() == "character_length"
        && list.get_type(schema).is_ok_and(|data_type| data_type.is_list());
    is_meant.then(|| cast_to(cardinality(list.clone()), DataType::Int64))
}

/// Timestamps of nanoseconds end in 2262: compared with a later constant, or one before 1677, they are ones of microseconds, which the
/// planner would make of nanoseconds, too.
fn beyond_ns(part: &Expr, schema: &DFSchema) -> Option<Expr> {
    let zone = |expr: &Expr| match expr.get_type(schema) {
        Ok(DataType::Timestamp(TimeUnit::Nanosecond, zone)) => Some(zone),
        _ => None,
    };
    match part {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if op.supports_propagation() => {
            let (left, right) = if let Some(zone) = zone(left) {
                let moment = DataType::Timestamp(TimeUnit::Microsecond, zone);
                let constant = far_constant(right, &moment)?;
                (cast_to(left.as_ref().clone(), moment), constant)
            } else {
                let moment = DataType::Timestamp(TimeUnit::Microsecond, zone(right)?);
                let constant = far_constant(left, &moment)?;
                (constant, cast_to(right.as_ref().clone(), moment))
            };
            let (left, right) = (Box::new(left), Box::new(right));
            Some(Expr::BinaryExpr(BinaryExpr { left, op: *op, right }))
        }
        Expr::Between(Between { expr, negated, low, high }) => {
            let moment = DataType::Timestamp(TimeUnit::Microsecond, zone(expr)?);
            let far = [low, high].map(|bound| far_constant(bound, &moment));
            if far.iter().all(Option::is_none) {
                return None;
            }
            let compared = |op, bound: &Expr| {
                let (left, right) = (expr.clone(), Box::new(bound.clone()));
                let compared = Expr::BinaryExpr(BinaryExpr { left, op, right });
                beyond_ns(&compared, schema).unwrap_or(compared)
            };
            let both = compared(Operator::GtEq, low).and(compared(Operator::LtEq, high));
            Some(if *negated { !both } else { both })
        }
        _ => None,
    }
}

/// `day > 2024-06-01` without quotes: the planner takes 2017 for a number of days since 1970.
fn check_comparison(part: &Expr, schema: &DFSchema) -> Result<()> {
    let check = |exprs: &mut dyn Iterator<Item = &Expr>| check_together(exprs, schema);
    match part {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if op.supports_propagation() => {
            check(&mut [left.as_ref(), right.as_ref()].into_iter())
        }
        Expr::Between(Between { expr, low, high, .. }) => {
            check(&mut [expr.as_ref(), low.as_ref(), high.as_ref()].into_iter())
        }
        Expr::InList(InList { expr, list, .. }) => {
            check(&mut std::iter::once(expr.as_ref()).chain(list))
        }
        Expr::InSubquery(InSubquery { expr, subquery, .. }) => {
            let rows = subquery.subquery.schema();
            let Some(column) = rows.columns().into_iter().next().map(Expr::Column) else {
                return Ok(());
            };
            let types = (expr.get_type(schema), column.get_type(rows));
            check_types((expr, types.0), (&column, types.1))
        }
        Expr::Case(Case { expr, when_then_expr, else_expr }) => {
            let results = when_then_expr.iter().map(|(_, then)| then.as_ref());
            check(&mut results.chain(else_expr.as_deref()))?;
            let compared = when_then_expr.iter().map(|(when, _)| when.as_ref());
            match expr {
                Some(expr) => check(&mut std::iter::once(expr.as_ref()).chain(compared)),
                None => Ok(()),
            }
        }
        Expr::ScalarFunction(call) if CHOICES.contains(&call.func.name()) => {
            check(&mut call.args.iter())
        }
        _ => Ok(()),
    }
}

/// Whether an interval is a constant without hours.
fn is_whole_days(interval: &Expr) -> bool {
    match interval {
        Expr::Literal(value, _) => match value {
            ScalarValue::IntervalMonthDayNano(Some(IntervalMonthDayNano {
                nanoseconds, ..
            })) => *nanoseconds == 0,
            ScalarValue::IntervalDayTime(Some(days)) => days.milliseconds == 0,
            ScalarValue::IntervalYearMonth(_) => true,
            null => null.is_null(),
        },
        Expr::Negative(inner) => is_whole_days(inner),
        Expr::Cast(Cast { expr, .. }) => is_whole_days(expr),
        _ => false,
    }
}

/// Reads the time of texts that are cast to timestamps without a zone as it is written.
pub fn rewrite_texts(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    map_expressions(plan, |expr| expr.transform_up(|part| Ok(local(part))))
}

fn local(part: Expr) -> Transformed<Expr> {
    let Expr::Cast(Cast { expr, field }) = &part else { return Transformed::no(part) };
    let is_local = matches!(field.data_type(), DataType::Timestamp(_, None));
    let Expr::Literal(value, _) = expr.as_ref() else { return Transformed::no(part) };
    let text = value.try_as_str().flatten().filter(|_| is_local);
    match text.and_then(without_zone) {
        Some(local) => {
            let expr = Box::new(lit(local));
            Transformed::yes(Expr::Cast(Cast { expr, field: Arc::clone(field) }))
        }
        None => Transformed::no(part),
    }
}

/// A text of a date and a time without the offset, or the Z, behind them.
fn without_zone(text: &str) -> Option<&str> {
    let text = text.trim_end();
    let time = text.find(':')?;
    let end = match text.strip_suffix(['Z', 'z']) {
        Some(local) => local.len(),
        None => time + text[time..].find(['+', '-'])?,
    };
    Some(text[..end].trim_end())
}

/// `timezone(zone, moment)`, which AT TIME ZONE stands for.
pub fn timezone() -> ScalarUDF {
    ScalarUDF::from(Timezone { signature: Signature::any(2, Volatility::Immutable) })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Timezone {
    signature: Signature,
}

impl ScalarUDFImpl for Timezone {
    fn name(&self) -> &str {
        "timezone"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [zone, _] if !(zone.is_string() || zone.is_null()) => {
                plan_err!("a time zone is a text, such as 'Europe/Berlin' or '+01:00'")
            }
            [_, DataType::Timestamp(unit, None)] => {
                Ok(DataType::Timestamp(*unit, Some(UTC.into())))
            }
            [_, DataType::Timestamp(unit, Some(_))] => Ok(DataType::Timestamp(*unit, None)),
            [_, DataType::Date32 | DataType::Date64] => {
                Ok(DataType::Timestamp(TimeUnit::Microsecond, Some(UTC.into())))
            }
            // A text that says its offset is a moment.
            [_, text] if text.is_string() || text.is_null() => {
                Ok(DataType::Timestamp(TimeUnit::Microsecond, None))
            }
            [_, other] => plan_err!("{other} has no time zone\nhint: it is of timestamps"),
            _ => plan_err!("timezone takes a zone and a timestamp"),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        strict::return_field(self, &args)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let result = args.return_field.data_type().clone();
        let DataType::Timestamp(unit, zone) = &result else {
            return plan_err!("timezone makes timestamps");
        };
        let is_scalar = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let [zones, moments] = arrays.as_slice() else {
            return plan_err!("timezone takes a zone and a timestamp");
        };
        // What is given without a zone is a local time, and the other way round.
        let given = DataType::Timestamp(*unit, zone.is_none().then(|| UTC.into()));
        let moments = cast(&cast(moments, &given)?, &DataType::Int64)?;
        let zones = cast(zones, &DataType::Utf8)?;
        let moved = moved(&zones, moments.as_primitive(), *unit, zone.is_some())?;
        let moved = cast(&(Arc::new(moved) as ArrayRef), &result)?;
        Ok(match is_scalar {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&moved, 0)?),
            false => ColumnarValue::Array(moved),
        })
    }
}

fn moved(
    zones: &ArrayRef,
    times: &Int64Array,
    unit: TimeUnit,
    is_local: bool,
) -> Result<Int64Array> {
    let zones = zones.as_string::<i32>();
    let per_second: i64 = match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    };
    let mut known: Option<(&str, Tz)> = None;
    let mut row = |row: usize| {
        if zones.is_null(row) || times.is_null(row) {
            return Ok(None);
        }
        let (name, time) = (zones.value(row), times.value(row));
        let zone = match known {
            Some((same, zone)) if same == name => zone,
            _ => {
                let zone = Tz::from_str(name).map_err(|_| {
                    exec_datafusion_err!(
                        "there is no time zone '{name}'\nhint: such as 'Europe/Berlin', 'UTC' or '+01:00'"
                    )
                })?;
                known = Some((name, zone));
                zone
            }
        };
        let beyond = || exec_datafusion_err!("a timestamp beyond the calendar has no time zone");
        let seconds = time.div_euclid(per_second);
        let at = DateTime::from_timestamp(seconds, 0).ok_or_else(beyond)?.naive_utc();
        let offset = offset_seconds(zone, at, is_local);
        let offset = if is_local { -offset } else { offset };
        time.checked_add(offset * per_second).map(Some).ok_or_else(beyond)
    };
    (0..times.len()).map(&mut row).collect()
}

/// How far local time is ahead of UTC. A local time that is there twice is the later one, and one that is left out is counted on
/// from before, as PostgreSQL takes them.
fn offset_seconds(zone: Tz, at: NaiveDateTime, is_local: bool) -> i64 {
    let offset = match is_local {
        false => zone.offset_from_utc_datetime(&at),
        true => match zone.offset_from_local_datetime(&at) {
            LocalResult::Single(offset) => offset,
            LocalResult::Ambiguous(a, b) => {
                if a.fix().local_minus_utc() < b.fix().local_minus_utc() { a } else { b }
            }
            LocalResult::None => {
                let before = at.checked_sub_signed(TimeDelta::days(1)).unwrap_or(at);
                zone.offset_from_utc_datetime(&before)
            }
        },
    };
    offset.fix().local_minus_utc().into()
}

#[cfg(test)]
mod tests {
    use super::without_zone;

    #[test]
    fn offsets_are_told_from_dates() {
        assert_eq!(without_zone("2025-01-01T08:00:00+08"), Some("2025-01-01T08:00:00"));
        assert_eq!(without_zone("2025-01-01 08:00:00.5 -05:30"), Some("2025-01-01 08:00:00.5"));
        assert_eq!(without_zone("2025-01-01 08:00:00Z"), Some("2025-01-01 08:00:00"));
        assert_eq!(without_zone("2025-01-01 08:00:00"), None);
        assert_eq!(without_zone("2025-01-01"), None);
    }
}
