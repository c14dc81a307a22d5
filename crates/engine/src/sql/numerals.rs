//! `12345678901234567890.5::DECIMAL(21, 1)` has all its digits, and `2.5::INT` is 3.
//!
//! A number with a point is a double to the planner, as it is in most of what engines compute fast. Where it is cast to
//! what is exact, it is read as what is written: a decimal, of which the cast rounds halves away from zero. `'1e2'` is 100 there.

use datafusion::sql::sqlparser::ast::{
    DataType, Expr, Statement, UnaryOperator, Value, VisitorMut,
};

use super::own::parse_expr;
use super::walk::{self, Flow, ON, Stop};

/// Digits of the widest decimal.
const DIGITS_MAX: usize = 76;

/// Reads numbers that are cast to exact types as decimals.
pub fn spell_out(statement: &mut Statement) {
    walk::change_all(statement, &mut SpellOut);
}

struct SpellOut;

impl VisitorMut for SpellOut {
    type Break = Stop;

    fn post_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        if let Expr::Cast { expr: number, data_type, .. } = expr
            && is_exact(data_type)
            && let Some(decimal) = written(number).and_then(|text| decimal(&text))
        {
            **number = decimal;
        }
        if let Expr::Cast { expr: text, data_type, .. } = expr
            && is_exact(data_type)
            && let Expr::Value(value) = text.as_mut()
            && let Value::SingleQuotedString(text) = &mut value.value
            && let Some(plain) = without_exponent(text)
        {
            *text = plain;
        }
        ON
    }
}

fn is_exact(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Decimal(_)
            | DataType::Numeric(_)
            | DataType::Dec(_)
            | DataType::TinyInt(_)
            | DataType::SmallInt(_)
            | DataType::Int(_)
            | DataType::Integer(_)
            | DataType::BigInt(_)
            | DataType::Int2(_)
            | DataType::Int4(_)
            | DataType::Int8(_)
    )
}

/// The text of a number with a point.
fn written(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Nested(inner) => written(inner),
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => {
            written(expr).filter(|text| !text.starts_with('-')).map(|text| format!("-{text}"))
        }
        Expr::Value(value) => match &value.value {
            Value::Number(text, _) if text.contains('.') => Some(text.clone()),
            _ => None,
        },
        _ => None,
    }
}

/// `1.5e2` as `150`: texts of decimals have no exponents.
fn without_exponent(text: &str) -> Option<String> {
    let (number, exponent) = text.trim().split_once(['e', 'E'])?;
    let exponent: i32 = exponent.parse().ok()?;
    let (sign, digits) = match number.strip_prefix(['-', '+']) {
        Some(digits) => (&number[..1], digits),
        None => ("", number),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all = format!("{whole}{fraction}");
    let point = i32::try_from(whole.len()).ok()?.checked_add(exponent)?;
    let is_plain = !all.is_empty() && all.bytes().all(|byte| byte.is_ascii_digit());
    let digits_max = i32::try_from(DIGITS_MAX).ok()?;
    if !is_plain || all.len() > DIGITS_MAX || !(-digits_max..=digits_max).contains(&point) {
        return None;
    }
    Some(match usize::try_from(point) {
        Ok(point) if point >= all.len() => format!("{sign}{all:0<point$}"),
        Ok(point) => format!("{sign}{}.{}", &all[..point], &all[point..]),
        Err(_) => format!("{sign}0.{}{all}", "0".repeat(point.unsigned_abs() as usize)),
    })
}

/// A number of digits and a point, as a decimal of as many digits.
fn decimal(text: &str) -> Option<Expr> {
    let digits = text.trim_start_matches('-');
    let (whole, fraction) = digits.split_once('.')?;
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let (precision, scale) = ((whole.len() + fraction.len()).max(1), fraction.len());
    if !is_plain || precision > DIGITS_MAX {
        return None;
    }
    parse_expr(&format!("cast('{text}' as decimal({precision}, {scale}))")).ok()
}
