//! Whole numbers near to others, and other functions of numbers.

use headrace_ir::{ArithmeticOp, CompareOp, DataType, Expr, Function, OnOverflow, Scalar, Value};
use pgrx::pg_sys::{self, Node, NodeTag};

use super::call::{call, decimal_operation};
use super::expr::{Translated, Translator, operands};
use super::types::declared_digits;
use crate::nodes::{WhyNot, cast, why_not};

impl Translator {
    /// A function of numbers; `None` for others.
    pub(super) unsafe fn number_call(
        &mut self,
        function: u32,
        arguments: &[*mut Node],
    ) -> Result<Option<Expr>, WhyNot> {
        let translated = match (function, arguments) {
            (pg_sys::F_ROUND_NUMERIC_INT4, &[value, digits]) => {
                let digits = self.digits(digits)?;
                cut_at(Function::Round, self.value(value)?, digits)
            }
            (pg_sys::F_TRUNC_NUMERIC_INT4, &[value, digits]) => {
                let digits = self.digits(digits)?;
                cut_at(Function::Trunc, self.value(value)?, digits)
            }
            (pg_sys::F_ROUND_NUMERIC, &[value]) => cut(Function::Round, self.value(value)?, 0),
            (pg_sys::F_TRUNC_NUMERIC, &[value]) => cut(Function::Trunc, self.value(value)?, 0),
            (pg_sys::F_CEIL_NUMERIC | pg_sys::F_CEILING_NUMERIC, &[value]) => {
                whole_decimal(Function::Ceil, self.value(value)?)
            }
            (pg_sys::F_FLOOR_NUMERIC, &[value]) => {
                whole_decimal(Function::Floor, self.value(value)?)
            }
            // Halves go to the even number.
            (pg_sys::F_ROUND_FLOAT8, &[value]) => call(Function::RoundEven, self.expr(value)?),
            (pg_sys::F_TRUNC_FLOAT8, &[value]) => call(Function::Trunc(0), self.expr(value)?),
            (pg_sys::F_CEIL_FLOAT8 | pg_sys::F_CEILING_FLOAT8, &[value]) => {
                call(Function::Ceil, self.expr(value)?)
            }
            (pg_sys::F_FLOOR_FLOAT8, &[value]) => call(Function::Floor, self.expr(value)?),
            (pg_sys::F_BIT_COUNT_BIT, &[bits]) => {
                call(Function::BitCount, self.integer_of_bits(bits)?)
            }
            (pg_sys::F_SIGN_NUMERIC, &[value]) => sign(self.value(value)?),
            (pg_sys::F_NUMERIC_NUMERIC_INT4, &[value, modifier]) => {
                declared(self.value(value)?, self.constant(modifier))
            }
            _ => return Ok(None),
        };
        translated.map(Some)
    }

    /// The integer whose bits a value is, all of them and no more.
    unsafe fn integer_of_bits(&mut self, bits: *mut Node) -> Translated {
        let Some(cast) = cast::<pg_sys::FuncExpr>(bits, NodeTag::T_FuncExpr) else {
            return why_not("bit_count of bits that are not those of an integer");
        };
        let width = match (*cast).funcid.to_u32() {
            pg_sys::F_BIT_INT4_INT4 => 32,
            pg_sys::F_BIT_INT8_INT4 => 64,
            _ => return why_not("bit_count of bits that are not those of an integer"),
        };
        match operands((*cast).args)[..] {
            [value, declared] if is_width(self.constant(declared), width) => self.expr(value),
            _ => why_not("bit_count of some of an integer's bits"),
        }
    }

    unsafe fn digits(&self, digits: *mut Node) -> Result<i8, WhyNot> {
        match self.constant(digits) {
            Some(Ok(Scalar { value: Value::Int(digits @ -18..=38), .. })) => Ok(digits as i8),
            _ => why_not("rounding to digits that are not constant, or very many"),
        }
    }
}

fn is_width(declared: Option<Result<Scalar, WhyNot>>, width: i128) -> bool {
    matches!(declared, Some(Ok(Scalar { value: Value::Int(declared), .. })) if declared == width)
}

/// A decimal cut at so many digits behind the point, or, below 0, before it: as a whole number of these units.
fn cut_at(function: fn(u8) -> Function, value: Expr, digits: i8) -> Translated {
    if digits >= 0 {
        return cut(function, value, digits.unsigned_abs());
    }
    let places = digits.unsigned_abs();
    let number = |unscaled, precision, scale| {
        let data_type = DataType::Decimal128 { precision, scale };
        Expr::Literal(Scalar::new(data_type, Value::Int(unscaled)))
    };
    let unit = number(10_i128.pow(places.into()), places + 1, 0);
    let share = number(1, places, places as i8);
    let units = cut(function, decimal_operation(ArithmeticOp::Multiply, value, share)?, 0)?;
    decimal_operation(ArithmeticOp::Multiply, units, unit)
}

/// A decimal that shows so many digits behind the point, however many it had.
fn cut(function: fn(u8) -> Function, value: Expr, digits: u8) -> Translated {
    let DataType::Decimal128 { precision, scale } = value.data_type() else {
        return why_not(format!("rounding of {}", value.data_type()));
    };
    let wanted = digits as i8;
    if wanted <= scale {
        return call(function(digits), value);
    }
    let precision = (precision + (wanted - scale) as u8).min(38);
    Ok(value.cast(DataType::Decimal128 { precision, scale: wanted }))
}

/// A decimal with so many digits as are declared: halves go away from 0, and what has more before the point fails.
fn declared(value: Expr, modifier: Option<Result<Scalar, WhyNot>>) -> Translated {
    let Some(Ok(Scalar { value: Value::Int(modifier), .. })) = modifier else {
        return why_not("a cast to numeric of digits that are not constant");
    };
    let declared = i32::try_from(modifier).ok().and_then(declared_digits);
    let Some((precision, scale)) = declared else {
        return why_not("a cast to numeric of digits that a pipeline does not have");
    };
    Ok(cut(Function::Round, value, scale as u8)?.cast(DataType::Decimal128 { precision, scale }))
}

fn whole_decimal(function: Function, value: Expr) -> Translated {
    let DataType::Decimal128 { precision, scale } = value.data_type() else {
        return why_not(format!("{} of {}", function.name(), value.data_type()));
    };
    // The next whole number may have one digit more.
    let wide = DataType::Decimal128 { precision: (precision + 1).min(38), scale };
    call(Function::Round(0), call(function, value.cast(wide))?)
}

fn sign(value: Expr) -> Translated {
    let data_type = value.data_type();
    if !matches!(data_type, DataType::Decimal128 { .. }) {
        return why_not(format!("sign of {data_type}"));
    }
    let unit = |n| {
        let one = DataType::Decimal128 { precision: 1, scale: 0 };
        Expr::Literal(Scalar::new(one, Value::Int(n)))
    };
    let is = |op| Expr::compare(op, value.clone(), unit(0));
    Ok(Expr::Case {
        branches: vec![
            (is(CompareOp::Gt), unit(1)),
            (is(CompareOp::Lt), unit(-1)),
            (is(CompareOp::Eq), unit(0)),
        ],
        otherwise: None,
        data_type: DataType::Decimal128 { precision: 1, scale: 0 },
    })
}

pub(super) fn remainder(left: Expr, right: Expr) -> Translated {
    let (
        DataType::Decimal128 { precision: p, scale: s },
        DataType::Decimal128 { precision: q, scale: t },
    ) = (left.data_type(), right.data_type())
    else {
        return why_not(format!("{} % {}", left.data_type(), right.data_type()));
    };
    let scale = s.max(t);
    // Both are brought to one scale on the way.
    if (p as i8 - s).max(q as i8 - t) + scale > 38 {
        return why_not(format!(
            "{} % {}: more than 38 digits",
            left.data_type(),
            right.data_type()
        ));
    }
    let precision = ((p as i8 - s).max(q as i8 - t) + scale).clamp(1, 38) as u8;
    Ok(Expr::Arithmetic {
        op: ArithmeticOp::Modulo,
        left: Box::new(left),
        right: Box::new(right),
        data_type: DataType::Decimal128 { precision, scale },
        on_overflow: OnOverflow::Error,
    })
}
