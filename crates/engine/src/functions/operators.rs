//! Operators that the planner does not have: intervals times numbers, parts of JSON, and texts beside what is none.

use datafusion::arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DataType, IntervalMonthDayNano, IntervalUnit,
};
use datafusion::common::{DFSchema, Result, exec_datafusion_err, exec_err};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{Expr, ExprSchemable, cast};
use datafusion::sql::sqlparser::ast::BinaryOperator;

use super::json;
use super::rows::Kind::{Float, Int, Interval, Text};
use super::rows::{Definition, Row, Value, strict};

/// The functions that operators are.
pub const FUNCTIONS: &[Definition] = &[
    strict("interval_multiply", &[&[Interval, Float]], Interval, |row| times(row, row.float(1))),
    strict("interval_divide", &[&[Interval, Float]], Interval, |row| match row.float(1) {
        0.0 => exec_err!("an interval divided by zero"),
        by => times(row, 1.0 / by),
    }),
    strict("json_part", &[&[Text, Text], &[Text, Int]], Text, json::PART),
    strict("json_part_text", &[&[Text, Text], &[Text, Int]], Text, json::STRING),
];

/// What is left of a month is 30 days to it, and what is left of a day 24 hours, as in PostgreSQL.
fn times(row: &Row, by: f64) -> Result<Option<Value>> {
    let interval = row.interval(0);
    let months = f64::from(interval.months) * by;
    let days = f64::from(interval.days) * by;
    let spilled_days = rounded(months.fract() * 30.0);
    let nanoseconds = interval.nanoseconds as f64 * by
        + rounded(days.fract() * 86_400.0) * 1e9
        + rounded(spilled_days.fract() * 86_400.0) * 1e9;
    let days = days.trunc() + spilled_days.trunc();
    let in_range = [months, days].iter().all(|part| part.abs() < f64::from(i32::MAX));
    if !in_range || nanoseconds.abs() >= i64::MAX as f64 {
        return Err(exec_datafusion_err!(
            "an interval times {by} is beyond what an interval can be"
        ));
    }
    let interval = IntervalMonthDayNano::new(
        months.trunc() as i32,
        days as i32,
        (nanoseconds / 1e3).round() as i64 * 1_000,
    );
    Ok(Some(Value::Interval(interval)))
}

/// Without what floats add to the sixth digit.
fn rounded(number: f64) -> f64 {
    (number * 1e6).round() / 1e6
}

/// Plans them.
#[derive(Debug)]
pub struct Operators;

impl ExprPlanner for Operators {
    fn plan_binary_op(
        &self,
        mut expr: RawBinaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        read_text(&mut expr.left, &expr.op, &expr.right, schema);
        read_text(&mut expr.right, &expr.op, &expr.left, schema);
        let is_ours = matches!(
            expr.op,
            BinaryOperator::Multiply
                | BinaryOperator::Divide
                | BinaryOperator::Arrow
                | BinaryOperator::LongArrow
        );
        if !is_ours {
            return Ok(PlannerResult::Original(expr));
        }
        let (left, right) = (expr.left.get_type(schema)?, expr.right.get_type(schema)?);
        let is_interval = |data_type: &DataType| matches!(data_type, DataType::Interval(_));
        let (name, swapped) = match expr.op {
            BinaryOperator::Multiply if is_interval(&left) && right.is_numeric() => {
                ("interval_multiply", false)
            }
            BinaryOperator::Multiply if is_interval(&right) && left.is_numeric() => {
                ("interval_multiply", true)
            }
            BinaryOperator::Divide if is_interval(&left) && right.is_numeric() => {
                ("interval_divide", false)
            }
            BinaryOperator::Arrow if is_text(&left) => ("json_part", false),
            BinaryOperator::LongArrow if is_text(&left) => ("json_part_text", false),
            _ => return Ok(PlannerResult::Original(expr)),
        };
        let args = if swapped { vec![expr.right, expr.left] } else { vec![expr.left, expr.right] };
        Ok(PlannerResult::Planned(call(name, args)?))
    }
}

/// A text that is written beside a truth value, an interval or in a sum of numbers is a value of that type: `remote = 'true'`, `1 + '2'`.
fn read_text(text: &mut Expr, op: &BinaryOperator, other: &Expr, schema: &DFSchema) {
    use BinaryOperator::{Divide, Eq, Gt, GtEq, Lt, LtEq, Minus, Modulo, Multiply, NotEq, Plus};
    let Expr::Literal(value, _) = &*text else { return };
    let Some(written) = value.try_as_str().flatten() else { return };
    let Ok(other) = other.get_type(schema) else { return };
    let compares = matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq);
    let computes = matches!(op, Plus | Minus | Multiply | Divide | Modulo);
    let to = match other {
        DataType::Boolean if compares => DataType::Boolean,
        DataType::Interval(_) if compares => DataType::Interval(IntervalUnit::MonthDayNano),
        own if computes && own.is_decimal() => match decimal_of(written) {
            Some(decimal) => decimal,
            None => return,
        },
        own if computes && own.is_numeric() => own,
        _ => return,
    };
    *text = cast(std::mem::take(text), to);
}

/// The decimals that have the digits of a text.
fn decimal_of(text: &str) -> Option<DataType> {
    let digits = text.trim().trim_start_matches(['-', '+']);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let mut bytes = whole.bytes().chain(fraction.bytes());
    let is_plain = !digits.is_empty() && bytes.all(|byte| byte.is_ascii_digit());
    let precision = u8::try_from((whole.len() + fraction.len()).max(1)).ok()?;
    let scale = i8::try_from(fraction.len()).ok()?;
    (is_plain && precision <= DECIMAL128_MAX_PRECISION)
        .then_some(DataType::Decimal128(precision, scale))
}

fn is_text(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, values) => values.is_string(),
        other => other.is_string(),
    }
}

fn call(name: &str, args: Vec<Expr>) -> Result<Expr> {
    match FUNCTIONS.iter().find(|function| function.name == name) {
        Some(function) => Ok(function.function().call(args)),
        None => exec_err!("there is no {name}()"),
    }
}
