//! A row-at-a-time interpreter of IR expressions: as plain as can be, written from the IR's
//! documentation, and sharing nothing with the processor.

use std::cmp::Ordering;

use headrace_ir::{ArithmeticOp, CastFailure, CompareOp, DataType, Expr, OnOverflow, Value};

/// Evaluation failed for this row.
#[derive(Debug, PartialEq, Eq)]
pub struct Failed;

pub type Outcome = Result<Value, Failed>;

pub fn eval(expr: &Expr, row: &[Value]) -> Outcome {
    match expr {
        Expr::Register { index, .. } => Ok(row[*index].clone()),
        Expr::Parameter { .. } | Expr::Call { .. } | Expr::Cuda { .. } => {
            panic!("random expressions have no {expr}")
        }
        Expr::Literal(scalar) => Ok(scalar.value.clone()),
        Expr::Arithmetic { op, left, right, data_type, on_overflow } => {
            let (l, r) = (eval(left, row)?, eval(right, row)?);
            let scales = (scale(&left.data_type()), scale(&right.data_type()), scale(data_type));
            arithmetic(*op, l, r, scales, data_type, *on_overflow)
        }
        Expr::Negate { value, on_overflow } => {
            let data_type = value.data_type();
            match eval(value, row)? {
                Value::Int(v) => fit(-v, &data_type, *on_overflow),
                Value::Float(v) => Ok(Value::Float(-v)),
                other => Ok(other),
            }
        }
        Expr::Compare { op, left, right } => {
            let (l, r) = (eval(left, row)?, eval(right, row)?);
            Ok(match order(&l, scale(&left.data_type()), &r, scale(&right.data_type())) {
                None => Value::Null,
                Some(order) => Value::Bool(match op {
                    CompareOp::Eq => order.is_eq(),
                    CompareOp::Ne => order.is_ne(),
                    CompareOp::Lt => order.is_lt(),
                    CompareOp::Le => order.is_le(),
                    CompareOp::Gt => order.is_gt(),
                    CompareOp::Ge => order.is_ge(),
                }),
            })
        }
        Expr::And(operands) => connect(operands, row, false),
        Expr::Or(operands) => connect(operands, row, true),
        Expr::Not(value) => Ok(match eval(value, row)? {
            Value::Bool(b) => Value::Bool(!b),
            other => other,
        }),
        Expr::IsNull(value) => Ok(Value::Bool(eval(value, row)? == Value::Null)),
        Expr::InList { value, list, negated } => {
            let value = eval(value, row)?;
            let mut unknown = false;
            for constant in list {
                match order(&value, 0, &constant.value, 0) {
                    None => unknown = true,
                    Some(Ordering::Equal) => return Ok(Value::Bool(!negated)),
                    Some(_) => {}
                }
            }
            Ok(if unknown { Value::Null } else { Value::Bool(*negated) })
        }
        Expr::Like { value, pattern, escape, negated, .. } => Ok(match eval(value, row)? {
            Value::Utf8(text) => {
                let text: Vec<char> = text.chars().collect();
                let pattern: Vec<char> = pattern.chars().collect();
                Value::Bool(like(&text, &pattern, escape.unwrap_or('\\')) != *negated)
            }
            other => other,
        }),
        Expr::Case { branches, otherwise, .. } => {
            for (condition, value) in branches {
                if eval(condition, row)? == Value::Bool(true) {
                    return eval(value, row);
                }
            }
            otherwise.as_ref().map_or(Ok(Value::Null), |e| eval(e, row))
        }
        Expr::Cast { value, to, on_failure } => {
            let from = value.data_type();
            match cast(eval(value, row)?, &from, to) {
                Some(value) => Ok(value),
                None if *on_failure == CastFailure::Null => Ok(Value::Null),
                None => Err(Failed),
            }
        }
    }
}

fn scale(data_type: &DataType) -> i32 {
    match data_type {
        DataType::Decimal128 { scale, .. } => i32::from(*scale),
        _ => 0,
    }
}

fn connect(operands: &[Expr], row: &[Value], deciding: bool) -> Outcome {
    let mut unknown = false;
    for operand in operands {
        match eval(operand, row)? {
            Value::Bool(b) if b == deciding => return Ok(Value::Bool(deciding)),
            Value::Null => unknown = true,
            _ => {}
        }
    }
    Ok(if unknown { Value::Null } else { Value::Bool(!deciding) })
}

fn order(l: &Value, l_scale: i32, r: &Value, r_scale: i32) -> Option<Ordering> {
    Some(match (l, r) {
        (Value::Null, _) | (_, Value::Null) => return None,
        (Value::Int(l), Value::Int(r)) => {
            let common = l_scale.max(r_scale);
            let up = |v: i128, s: i32| v * 10i128.pow((common - s) as u32);
            up(*l, l_scale).cmp(&up(*r, r_scale))
        }
        (Value::Float(l), Value::Float(r)) => match (l.is_nan(), r.is_nan()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) => l.partial_cmp(r).unwrap(),
        },
        (Value::Bool(l), Value::Bool(r)) => l.cmp(r),
        (Value::Utf8(l), Value::Utf8(r)) => l.as_bytes().cmp(r.as_bytes()),
        other => panic!("{other:?}"),
    })
}

fn bounds(data_type: &DataType) -> (i128, i128) {
    match data_type {
        DataType::UInt64 => (0, u64::MAX.into()),
        DataType::Decimal128 { precision, .. } => {
            let limit = 10i128.pow(u32::from(*precision)) - 1;
            (-limit, limit)
        }
        other => {
            let (min, max) = other.integer_range().unwrap();
            (min.into(), max.into())
        }
    }
}

fn fit(value: i128, data_type: &DataType, on_overflow: OnOverflow) -> Outcome {
    let (min, max) = bounds(data_type);
    if (min..=max).contains(&value) {
        return Ok(Value::Int(value));
    }
    if on_overflow != OnOverflow::Wrap {
        return Err(Failed);
    }
    if matches!(data_type, DataType::Decimal128 { .. }) {
        return Ok(Value::Int(value));
    }
    Ok(Value::Int((value - min).rem_euclid(max - min + 1) + min))
}

fn arithmetic(
    op: ArithmeticOp,
    l: Value,
    r: Value,
    (l_scale, r_scale, scale): (i32, i32, i32),
    data_type: &DataType,
    on_overflow: OnOverflow,
) -> Outcome {
    match (l, r) {
        (Value::Int(l), Value::Int(r)) => {
            let power = |digits: i32| 10i128.pow(digits as u32);
            let divides = matches!(op, ArithmeticOp::Divide | ArithmeticOp::Modulo);
            if divides && r == 0 {
                return Err(Failed);
            }
            let value = match op {
                ArithmeticOp::Add => l * power(scale - l_scale) + r * power(scale - r_scale),
                ArithmeticOp::Subtract => l * power(scale - l_scale) - r * power(scale - r_scale),
                ArithmeticOp::Multiply => match l.checked_mul(r) {
                    Some(product) => product,
                    None if on_overflow != OnOverflow::Wrap => return Err(Failed),
                    // Only products of two UInt64 are that large.
                    None => return Ok(Value::Int(((l as u64).wrapping_mul(r as u64)).into())),
                },
                ArithmeticOp::Divide => l * power(scale - l_scale + r_scale) / r,
                ArithmeticOp::Modulo => {
                    let common = l_scale.max(r_scale);
                    (l * power(common - l_scale)) % (r * power(common - r_scale))
                }
            };
            fit(value, data_type, on_overflow)
        }
        (Value::Float(l), Value::Float(r)) => {
            let value = match data_type {
                DataType::Float32 => f64::from(float(op, l as f32, r as f32)),
                _ => float(op, l, r),
            };
            let is_lost = on_overflow == OnOverflow::Strict && is_lost(op, l, r, value);
            if is_lost { Err(Failed) } else { Ok(Value::Float(value)) }
        }
        (Value::Null, _) | (_, Value::Null) => Ok(Value::Null),
        other => panic!("{other:?}"),
    }
}

/// As PostgreSQL's `float8_pl` and its kin fail.
fn is_lost(op: ArithmeticOp, l: f64, r: f64, value: f64) -> bool {
    use ArithmeticOp::{Add, Divide, Modulo, Multiply, Subtract};
    let endless = value.is_infinite() && !l.is_infinite();
    match op {
        Add | Subtract => endless && !r.is_infinite(),
        Multiply => (endless && !r.is_infinite()) || (value == 0.0 && l != 0.0 && r != 0.0),
        Divide if r == 0.0 => !l.is_nan(),
        Divide => endless || (value == 0.0 && l != 0.0 && !r.is_infinite()),
        Modulo => r == 0.0 && !l.is_nan(),
    }
}

fn float<T>(op: ArithmeticOp, l: T, r: T) -> T
where
    T: std::ops::Add<Output = T>
        + std::ops::Sub<Output = T>
        + std::ops::Mul<Output = T>
        + std::ops::Div<Output = T>
        + std::ops::Rem<Output = T>,
{
    match op {
        ArithmeticOp::Add => l + r,
        ArithmeticOp::Subtract => l - r,
        ArithmeticOp::Multiply => l * r,
        ArithmeticOp::Divide => l / r,
        ArithmeticOp::Modulo => l % r,
    }
}

fn like(text: &[char], pattern: &[char], escape: char) -> bool {
    match pattern {
        [] => text.is_empty(),
        ['%', rest @ ..] => (0..=text.len()).any(|skip| like(&text[skip..], rest, escape)),
        ['_', rest @ ..] => !text.is_empty() && like(&text[1..], rest, escape),
        [e, c, rest @ ..] if *e == escape => {
            text.first() == Some(c) && like(&text[1..], rest, escape)
        }
        [c, rest @ ..] => text.first() == Some(c) && like(&text[1..], rest, escape),
    }
}

fn cast(value: Value, from: &DataType, to: &DataType) -> Option<Value> {
    let number = |value: i128| {
        let (min, max) = bounds(to);
        (min..=max).contains(&value).then_some(Value::Int(value))
    };
    let (from_scale, to_scale) = (scale(from), scale(to));
    match (value, to) {
        (Value::Null, _) => Some(Value::Null),
        (Value::Bool(b), to) if to.is_float() => Some(Value::Float(f64::from(u8::from(b)))),
        (Value::Bool(b), _) => Some(Value::Int(i128::from(b))),
        (Value::Int(v), DataType::Bool) => Some(Value::Bool(v != 0)),
        (Value::Int(v), DataType::Float64) => Some(Value::Float(v as f64 / 10f64.powi(from_scale))),
        (Value::Int(v), DataType::Float32) => {
            let wide = v as f64 / 10f64.powi(from_scale);
            // Integers go to binary32 in one rounding.
            let narrow = if from_scale == 0 && from.is_integer() { v as f32 } else { wide as f32 };
            Some(Value::Float(f64::from(narrow)))
        }
        (Value::Int(v), DataType::Decimal128 { .. }) if to_scale >= from_scale => {
            number(v.checked_mul(10i128.pow((to_scale - from_scale) as u32))?)
        }
        (Value::Int(v), DataType::Decimal128 { .. }) => {
            let divisor = 10i128.pow((from_scale - to_scale) as u32);
            // Half away from zero.
            number((v + v.signum() * divisor / 2) / divisor)
        }
        (Value::Int(v), _) => number(v / 10i128.pow(from_scale as u32)),
        (Value::Float(v), DataType::Bool) => Some(Value::Bool(v != 0.0)),
        (Value::Float(v), DataType::Float32) => Some(Value::Float(f64::from(v as f32))),
        (Value::Float(v), DataType::Float64) => Some(Value::Float(v)),
        (Value::Float(v), _) => {
            if !v.is_finite() || v.abs() > 1e30 {
                return None;
            }
            number((v * 10f64.powi(to_scale)).trunc() as i128)
        }
        other => panic!("{other:?}"),
    }
}

/// A value as the tests print output cells.
pub fn show(value: &Value, data_type: &DataType) -> String {
    match (value, data_type) {
        (Value::Null, _) => "NULL".into(),
        (Value::Bool(v), _) => v.to_string(),
        (Value::Int(v), _) => v.to_string(),
        (Value::Float(v), DataType::Float32) => format!("{:?}", *v as f32),
        (Value::Float(v), _) => format!("{v:?}"),
        (Value::Utf8(v), _) => v.clone(),
        (Value::Binary(v), _) => format!("{v:?}"),
    }
}
