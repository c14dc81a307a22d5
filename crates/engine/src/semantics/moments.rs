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
use datafusion::logical_expr::expr::{Between, InList};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    BinaryExpr, Cast, ColumnarValue, Expr, ExprSchemable, LogicalPlan, Operator, ReturnFieldArgs,
    ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, cast as cast_to, lit,
};

use super::map_expressions;
use crate::strict;

/// What AT TIME ZONE gives a moment; a column of a table keeps its own.
const UTC: &str = "UTC";

/// Lets dates and intervals be timestamps, and refuses dates that are compared with numbers, before types are coerced.
pub fn rewrite_sums(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let schema = merge_schema(&plan.inputs());
    map_expressions(plan, |expr| expr.transform_up(|part| sum(part, &schema)))
}

fn sum(part: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    check_comparison(&part, schema)?;
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

/// A timestamp of microseconds and a text that it is compared with: the planner reads the text as nanoseconds, which end in 2262.
fn compared_with_text(part: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = part else {
        return Ok(Transformed::no(part));
    };
    let is_text = |expr: &Expr| matches!(expr, Expr::Literal(value, _) if value.try_as_str().flatten().is_some());
    let as_other = |text: Box<Expr>, other: &Expr| match other.get_type(schema) {
        Ok(moment @ DataType::Timestamp(TimeUnit::Microsecond, _)) if is_text(&text) => {
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

/// `day > 2024-06-01` without quotes: the planner takes 2017 for a number of days since 1970.
fn check_comparison(part: &Expr, schema: &DFSchema) -> Result<()> {
    let check = |one: &Expr, other: &Expr| {
        let (Ok(one_type), Ok(other_type)) = (one.get_type(schema), other.get_type(schema)) else {
            return Ok(());
        };
        let is_moment = matches!(one_type, DataType::Date32 | DataType::Timestamp(..));
        if is_moment && other_type.is_numeric() {
            return plan_err!(
                "{one} is a {}, and {other} is a number\nhint: dates stand between quotes: '2024-06-01'",
                if one_type == DataType::Date32 { "date" } else { "timestamp" }
            );
        }
        Ok(())
    };
    match part {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if op.supports_propagation() => {
            check(left, right)?;
            check(right, left)
        }
        Expr::Between(Between { expr, low, high, .. }) => {
            check(expr, low)?;
            check(expr, high)
        }
        Expr::InList(InList { expr, list, .. }) => {
            list.iter().try_for_each(|item| check(expr, item))
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
