//! Conversions between representations.

use headrace_columns::calendar::{DAY_SECONDS, ticks};
use headrace_columns::repr::Repr;
use headrace_ir::{CastFailure, DataType};
use headrace_pipeline::bound::BoundExpr;

use crate::codegen::arithmetic::{digit_limit, power_of_ten};
use crate::codegen::generator::Generator;
use crate::codegen::refusal::{Result, refuse};
use crate::codegen::text::{
    c_type, float_literal, i64_literal, i128_literal, is_float, is_integer,
};
use crate::codegen::value::Value;
use crate::place::Place;

/// What a conversion does to the value, types aside.
enum Conversion {
    /// Every value fits; the C++ cast does it.
    Always(String),
    /// `call` sets `*result` and says whether the value fits.
    Sometimes(String),
}

impl Generator<'_> {
    pub(super) fn cast(
        &mut self,
        expr: &BoundExpr,
        value: &BoundExpr,
        on_failure: CastFailure,
    ) -> Result<Value> {
        let from = self.value(value)?;
        let kind = c_type(&expr.repr)?;
        let result = self.names.unique("converted");
        match self.conversion(expr, value, &from.code, &result)? {
            Conversion::Always(code) => Ok(Value { code, null: from.null }),
            Conversion::Sometimes(call) => {
                self.body.line(format!("{kind} {result};"));
                let fits = self.named("bool", "fits", call);
                if on_failure == CastFailure::Error {
                    let place = Place::Cast { place: expr.text.to_string() };
                    self.fail_if(&from.null, &format!("!{fits}"), place);
                    return Ok(Value { code: result, null: from.null });
                }
                let null = match from.null {
                    None => format!("!{fits}"),
                    Some(null) => format!("({null}) || !{fits}"),
                };
                Ok(Value { code: result, null: Some(null) })
            }
        }
    }

    fn conversion(
        &mut self,
        expr: &BoundExpr,
        value: &BoundExpr,
        code: &str,
        result: &str,
    ) -> Result<Conversion> {
        let (from, to) = (&value.repr, &expr.repr);
        let (from_type, to_type) = (&value.data_type, &expr.data_type);
        let refused =
            || refuse(format!("cast of {from_type} to {to_type} is not on the CUDA processor"));
        if from_type == to_type {
            return Ok(Conversion::Always(code.to_string()));
        }
        let kind = c_type(to)?;
        if let Some(factor) = time_factor(from_type, to_type) {
            return Ok(Conversion::Sometimes(format!(
                "hr::multiply_checked<i64>(i64({code}), {}, &{result})",
                i64_literal(factor)
            )));
        }
        let calendar = |t: &DataType| {
            matches!(t, DataType::Date32 | DataType::Time64(_) | DataType::Timestamp { .. })
        };
        let number = |t: &DataType| t.is_numeric() || *t == DataType::Bool;
        let same_bits = matches!(
            (from_type, to_type),
            (DataType::Date32, DataType::Int32)
                | (DataType::Int32, DataType::Date32)
                | (DataType::Timestamp { .. } | DataType::Time64(_), DataType::Int64)
        );
        if same_bits {
            return Ok(Conversion::Always(format!("{kind}({code})")));
        }
        if calendar(from_type) || calendar(to_type) || !number(from_type) || !number(to_type) {
            return refused();
        }
        match (from, to) {
            (Repr::Bool, Repr::I128) => refused(),
            (Repr::Bool, _) => Ok(Conversion::Always(format!("{kind}({code})"))),
            (Repr::I128, Repr::Bool) => refused(),
            (_, Repr::Bool) => Ok(Conversion::Always(format!("({code} != 0)"))),
            (from, Repr::I128) if is_integer(from) => {
                self.integer_to_decimal(to_type, code, result)
            }
            (Repr::I128, Repr::I128) => decimal_to_decimal(from_type, to_type, code, result),
            (Repr::I128, Repr::F64) => decimal_to_float(from_type, code),
            (from, Repr::I128) if is_float(from) => float_to_decimal(to_type, code, result),
            (from, to) if is_integer(from) && is_integer(to) => {
                let source = c_type(from)?;
                if fits_always(from, to) {
                    return Ok(Conversion::Always(format!("{kind}({code})")));
                }
                Ok(Conversion::Sometimes(format!(
                    "hr::convert_integer<{kind}, {source}>({code}, &{result})"
                )))
            }
            (from, to) if (is_integer(from) || is_float(from)) && is_float(to) => {
                Ok(Conversion::Always(format!("{kind}({code})")))
            }
            (from, to) if is_float(from) && is_integer(to) => {
                let source = c_type(from)?;
                let (low, high) = float_bounds(to);
                Ok(Conversion::Sometimes(format!(
                    "hr::convert_float<{kind}, {source}>({code}, {source}({low}), {source}({high}), &{result})"
                )))
            }
            _ => refused(),
        }
    }

    fn integer_to_decimal(
        &mut self,
        to: &DataType,
        code: &str,
        result: &str,
    ) -> Result<Conversion> {
        let (DataType::Decimal128 { scale, .. }, Some(limit)) = (to, digit_limit(to)) else {
            return refuse(format!("cast to {to}"));
        };
        let factor = i128_literal(power_of_ten(i32::from(*scale))?);
        let limit = i128_literal(limit);
        Ok(Conversion::Sometimes(format!(
            "hr::multiply_checked<i128>(i128({code}), {factor}, &{result}) && hr::has_digits({result}, {limit})"
        )))
    }
}

fn decimal_to_decimal(
    from: &DataType,
    to: &DataType,
    code: &str,
    result: &str,
) -> Result<Conversion> {
    let (DataType::Decimal128 { scale: a, .. }, DataType::Decimal128 { scale: b, .. }) = (from, to)
    else {
        return refuse(format!("cast of {from} to {to}"));
    };
    let Some(limit) = digit_limit(to) else {
        return refuse(format!("cast to {to}"));
    };
    let limit = i128_literal(limit);
    let by = i32::from(*b) - i32::from(*a);
    let factor = i128_literal(power_of_ten(by.abs())?);
    Ok(Conversion::Sometimes(if by >= 0 {
        format!(
            "hr::multiply_checked<i128>({code}, {factor}, &{result}) && hr::has_digits({result}, {limit})"
        )
    } else {
        format!("hr::has_digits({result} = hr::divide_rounding({code}, {factor}), {limit})")
    }))
}

/// Halves away from zero, as on the cores.
fn float_to_decimal(to: &DataType, code: &str, result: &str) -> Result<Conversion> {
    let (DataType::Decimal128 { scale, .. }, Some(limit)) = (to, digit_limit(to)) else {
        return refuse(format!("cast to {to}"));
    };
    let factor = float_literal(10f64.powi(i32::from(*scale)), &Repr::F64);
    let limit = i128_literal(limit);
    Ok(Conversion::Sometimes(format!(
        "hr::float_to_decimal(f64({code}), {factor}, {limit}, &{result})"
    )))
}

fn decimal_to_float(from: &DataType, code: &str) -> Result<Conversion> {
    let DataType::Decimal128 { scale, .. } = from else {
        return refuse(format!("cast of {from}"));
    };
    if *scale < 0 {
        return refuse(format!("cast of {from}"));
    }
    let divisor = float_literal(10f64.powi(i32::from(*scale)), &Repr::F64);
    Ok(Conversion::Always(format!("(f64({code}) / {divisor})")))
}

/// Whether every value of one integer representation fits another.
fn fits_always(from: &Repr, to: &Repr) -> bool {
    let shape = |repr: &Repr| match repr {
        Repr::I8 => (true, 8),
        Repr::I16 => (true, 16),
        Repr::I32 => (true, 32),
        Repr::U8 => (false, 8),
        Repr::U16 => (false, 16),
        Repr::U32 => (false, 32),
        Repr::U64 => (false, 64),
        _ => (true, 64),
    };
    let ((from_signed, from_bits), (to_signed, to_bits)) = (shape(from), shape(to));
    match (from_signed, to_signed) {
        (true, false) => false,
        (false, true) => from_bits < to_bits,
        _ => from_bits <= to_bits,
    }
}

/// Smallest value, and the first above the largest, as float literals.
fn float_bounds(to: &Repr) -> (&'static str, &'static str) {
    match to {
        Repr::I8 => ("-128.0", "128.0"),
        Repr::I16 => ("-32768.0", "32768.0"),
        Repr::I32 | Repr::Code(_) => ("-2147483648.0", "2147483648.0"),
        Repr::U8 => ("0.0", "256.0"),
        Repr::U16 => ("0.0", "65536.0"),
        Repr::U32 => ("0.0", "4294967296.0"),
        Repr::U64 => ("0.0", "18446744073709551616.0"),
        _ => ("-9223372036854775808.0", "9223372036854775808.0"),
    }
}

/// What a date or timestamp is multiplied by to become a timestamp at least as fine.
fn time_factor(from: &DataType, to: &DataType) -> Option<i64> {
    match (from, to) {
        (DataType::Date32, DataType::Timestamp { unit, timezone: None }) => {
            Some(DAY_SECONDS * ticks(*unit))
        }
        (
            DataType::Timestamp { unit: a, timezone: x },
            DataType::Timestamp { unit: b, timezone: y },
        ) if x == y && ticks(*b) >= ticks(*a) => Some(ticks(*b) / ticks(*a)),
        _ => None,
    }
}
