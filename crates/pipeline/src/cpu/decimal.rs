//! Decimal arithmetic on unscaled 128-bit values, through 256 bits where a step on the way
//! may need them.

use arrow_buffer::i256;
use headrace_ir::ArithmeticOp;

use crate::cpu::arithmetic::Fault;

/// Scales of a decimal operation.
#[derive(Clone, Copy, Debug)]
pub struct Scales {
    /// Of the left operand.
    pub left: i8,
    /// Of the right operand.
    pub right: i8,
    /// Of the result.
    pub result: i8,
}

/// 10^precision: every decimal of that precision is smaller in magnitude.
pub fn magnitude_limit(precision: u8) -> i128 {
    10i128.saturating_pow(u32::from(precision))
}

/// 10^digits in 256 bits, for digits up to 76.
fn power_of_ten(digits: u32) -> Option<i256> {
    i256::from_i128(10).checked_pow(digits)
}

/// `left op right`. `limit`: overflow beyond this magnitude is a fault; `None`: it wraps.
pub fn compute(
    op: ArithmeticOp,
    left: i128,
    right: i128,
    scales: Scales,
    limit: Option<i128>,
) -> Result<i128, Fault> {
    let exact = match op {
        ArithmeticOp::Add | ArithmeticOp::Subtract if same_scale(scales) => {
            let sum = match op {
                ArithmeticOp::Add => left.checked_add(right),
                _ => left.checked_sub(right),
            };
            match sum {
                Some(sum) => return within(sum, limit),
                None => add(op, left, right, scales)?,
            }
        }
        ArithmeticOp::Add | ArithmeticOp::Subtract => add(op, left, right, scales)?,
        ArithmeticOp::Multiply => match left.checked_mul(right) {
            Some(product) => return within(product, limit),
            None => i256::from_i128(left).wrapping_mul(i256::from_i128(right)),
        },
        ArithmeticOp::Divide => divide(left, right, scales)?,
        ArithmeticOp::Modulo => modulo(left, right, scales)?,
    };
    narrow(exact, limit)
}

fn same_scale(scales: Scales) -> bool {
    scales.left == scales.result && scales.right == scales.result
}

fn within(value: i128, limit: Option<i128>) -> Result<i128, Fault> {
    match limit {
        Some(limit) if value.unsigned_abs() >= limit.unsigned_abs() => Err(Fault::Overflow),
        _ => Ok(value),
    }
}

fn narrow(value: i256, limit: Option<i128>) -> Result<i128, Fault> {
    match (value.to_i128(), limit) {
        (Some(value), limit) => within(value, limit),
        (None, Some(_)) => Err(Fault::Overflow),
        (None, None) => Ok(value.as_i128()),
    }
}

/// The value with `digits` more digits after the point (fewer, truncated, if negative).
fn rescaled(value: i128, digits: i32) -> Result<i256, Fault> {
    let factor = power_of_ten(digits.unsigned_abs()).ok_or(Fault::Overflow)?;
    let value = i256::from_i128(value);
    if digits >= 0 {
        value.checked_mul(factor).ok_or(Fault::Overflow)
    } else {
        Ok(value.wrapping_div(factor))
    }
}

fn difference(to: i8, from: i8) -> i32 {
    i32::from(to) - i32::from(from)
}

fn add(op: ArithmeticOp, left: i128, right: i128, scales: Scales) -> Result<i256, Fault> {
    let left = rescaled(left, difference(scales.result, scales.left))?;
    let right = rescaled(right, difference(scales.result, scales.right))?;
    let sum = match op {
        ArithmeticOp::Add => left.checked_add(right),
        _ => left.checked_sub(right),
    };
    sum.ok_or(Fault::Overflow)
}

/// Truncates towards zero, as Arrow does.
fn divide(left: i128, right: i128, scales: Scales) -> Result<i256, Fault> {
    if right == 0 {
        return Err(Fault::DivisionByZero);
    }
    let digits = difference(scales.result, scales.left) + i32::from(scales.right);
    let (dividend, divisor) = if digits >= 0 {
        (rescaled(left, digits)?, i256::from_i128(right))
    } else {
        (i256::from_i128(left), rescaled(right, -digits)?)
    };
    dividend.checked_div(divisor).ok_or(Fault::Overflow)
}

fn modulo(left: i128, right: i128, scales: Scales) -> Result<i256, Fault> {
    if right == 0 {
        return Err(Fault::DivisionByZero);
    }
    let common = scales.left.max(scales.right);
    let left = rescaled(left, difference(common, scales.left))?;
    let right = rescaled(right, difference(common, scales.right))?;
    let rest = left.checked_rem(right).ok_or(Fault::Overflow)?;
    let digits = difference(scales.result, common);
    let factor = power_of_ten(digits.unsigned_abs()).ok_or(Fault::Overflow)?;
    if digits >= 0 {
        rest.checked_mul(factor).ok_or(Fault::Overflow)
    } else {
        Ok(rest.wrapping_div(factor))
    }
}

/// To another scale, half away from zero when digits are dropped; `None` if it has more than
/// `precision` digits.
pub fn change_scale(value: i128, from: i8, to: i8, precision: u8) -> Option<i128> {
    let digits = difference(to, from);
    let result = if digits >= 0 {
        value.checked_mul(10i128.checked_pow(digits.unsigned_abs())?)?
    } else {
        match 10i128.checked_pow(digits.unsigned_abs()) {
            None => 0,
            Some(divisor) => round_divide(value, divisor),
        }
    };
    (result.unsigned_abs() < magnitude_limit(precision).unsigned_abs()).then_some(result)
}

/// The quotient by a power of ten, half away from zero.
pub fn round_divide(value: i128, divisor: i128) -> i128 {
    let (quotient, rest) = (value / divisor, value % divisor);
    if rest.unsigned_abs() >= divisor.unsigned_abs().div_ceil(2) {
        quotient + value.signum()
    } else {
        quotient
    }
}

/// Mean as DataFusion computes it: the total is scaled up to the result's scale first, then
/// divided by the count, truncating. `None` if it does not fit `precision` digits.
pub fn mean(total: i256, count: u64, total_scale: i8, scale: i8, precision: u8) -> Option<i128> {
    let digits = u32::try_from(difference(scale, total_scale)).ok()?;
    let scaled = total.checked_mul(power_of_ten(digits)?)?;
    let mean = scaled.checked_div(i256::from_i128(i128::from(count)))?.to_i128()?;
    (mean.unsigned_abs() < magnitude_limit(precision).unsigned_abs()).then_some(mean)
}
