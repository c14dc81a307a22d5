//! Decimal arithmetic on unscaled 128-bit values, through 256 bits where a step on the way
//! may need them.

use arrow_buffer::i256;
use headrace_ir::ArithmeticOp;

use crate::fault::Fault;

/// Scales of a decimal operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scales {
    /// Of the left operand.
    pub left: i8,
    /// Of the right operand.
    pub right: i8,
    /// Of the result.
    pub result: i8,
}

/// The powers of ten that 128 bits hold, by their exponent.
const POWERS_OF_TEN: [i128; 39] = {
    let mut powers = [1; 39];
    let mut exponent = 1;
    while exponent < powers.len() {
        powers[exponent] = powers[exponent - 1] * 10;
        exponent += 1;
    }
    powers
};

/// 10^precision: every decimal of that precision is smaller in magnitude.
pub fn magnitude_limit(precision: u8) -> i128 {
    POWERS_OF_TEN.get(usize::from(precision)).copied().unwrap_or(i128::MAX)
}

/// 10^digits in 256 bits, for digits up to 76.
fn power_of_ten(digits: u32) -> Option<i256> {
    i256::from_i128(10).checked_pow(digits)
}

/// `left op right`. `limit`: overflow beyond this magnitude is a fault; `None`: it wraps.
pub(crate) fn compute(
    op: ArithmeticOp,
    left: i128,
    right: i128,
    scales: Scales,
    limit: Option<i128>,
) -> Result<i128, Fault> {
    let exact = match op {
        ArithmeticOp::Add | ArithmeticOp::Subtract => match sum(op, left, right, scales) {
            Some(sum) => return within(sum, limit),
            None => add(op, left, right, scales)?,
        },
        ArithmeticOp::Multiply => match product(left, right) {
            Some(product) => return within(product, limit),
            None => i256::from_i128(left).wrapping_mul(i256::from_i128(right)),
        },
        ArithmeticOp::Divide => return within(divide(left, right, scales)?, limit),
        ArithmeticOp::Modulo => return within(modulo(left, right, scales)?, limit),
    };
    narrow(exact, limit)
}

/// A product that fits 128 bits. Of two values of 64 bits it always does, and takes one instruction.
#[inline(always)]
fn product(left: i128, right: i128) -> Option<i128> {
    match (i64::try_from(left), i64::try_from(right)) {
        (Ok(left), Ok(right)) => Some(i128::from(left) * i128::from(right)),
        _ => left.checked_mul(right),
    }
}

/// A sum or difference in the scale of the result, if that and what is on the way to it fit 128 bits.
#[inline(always)]
fn sum(op: ArithmeticOp, left: i128, right: i128, scales: Scales) -> Option<i128> {
    let left = scaled_up(left, difference(scales.result, scales.left))?;
    let right = scaled_up(right, difference(scales.result, scales.right))?;
    match op {
        ArithmeticOp::Add => left.checked_add(right),
        _ => left.checked_sub(right),
    }
}

#[inline(always)]
fn scaled_up(value: i128, digits: i32) -> Option<i128> {
    match digits {
        0 => Some(value),
        _ => product(value, *POWERS_OF_TEN.get(usize::try_from(digits).ok()?)?),
    }
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

/// The value with `digits` more digits after the point.
fn rescaled(value: i128, digits: i32) -> Result<i256, Fault> {
    let digits = u32::try_from(digits).map_err(|_| Fault::Overflow)?;
    let factor = power_of_ten(digits).ok_or(Fault::Overflow)?;
    i256::from_i128(value).checked_mul(factor).ok_or(Fault::Overflow)
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

/// Truncates towards zero; fails where an operand takes more than 128 bits with the digits that the result asks for, as
/// Arrow does, which does not look whether the quotient has more digits than its type.
fn divide(left: i128, right: i128, scales: Scales) -> Result<i128, Fault> {
    let digits = difference(scales.result, scales.left) + i32::from(scales.right);
    let dividend = scaled_up(left, digits.max(0)).ok_or(Fault::Overflow)?;
    let divisor = scaled_up(right, (-digits).max(0)).ok_or(Fault::Overflow)?;
    if divisor == 0 {
        return Err(Fault::DivisionByZero);
    }
    dividend.checked_div(divisor).ok_or(Fault::Overflow)
}

/// Of operands in the scale of the result, which is the larger of theirs.
fn modulo(left: i128, right: i128, scales: Scales) -> Result<i128, Fault> {
    let left = scaled_up(left, difference(scales.result, scales.left)).ok_or(Fault::Overflow)?;
    let right = scaled_up(right, difference(scales.result, scales.right)).ok_or(Fault::Overflow)?;
    if right == 0 {
        return Err(Fault::DivisionByZero);
    }
    Ok(left.wrapping_rem(right))
}

/// To another scale, half away from zero when digits are dropped; `None` if it has more than
/// `precision` digits.
pub(crate) fn change_scale(value: i128, from: i8, to: i8, precision: u8) -> Option<i128> {
    let digits = difference(to, from);
    let result = if digits >= 0 {
        scaled_up(value, digits)?
    } else {
        match POWERS_OF_TEN.get(digits.unsigned_abs() as usize) {
            None => 0,
            Some(&divisor) => round_divide(value, divisor),
        }
    };
    (result.unsigned_abs() < magnitude_limit(precision).unsigned_abs()).then_some(result)
}

/// The quotient by a power of ten, half away from zero.
pub(crate) fn round_divide(value: i128, divisor: i128) -> i128 {
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// The same through 256 bits alone.
    fn slowly(op: ArithmeticOp, left: i128, right: i128, scales: Scales) -> Result<i256, Fault> {
        match op {
            ArithmeticOp::Multiply => {
                Ok(i256::from_i128(left).wrapping_mul(i256::from_i128(right)))
            }
            _ => add(op, left, right, scales),
        }
    }

    #[test]
    fn short_ways_have_the_same_results_and_faults() {
        let mut values: Vec<i128> = vec![0, 1, -1, 7, i128::MAX, i128::MIN];
        for bits in [20, 62, 63, 64, 65, 90, 120, 126] {
            let edge = 1i128 << bits;
            values.extend([edge - 1, edge, edge + 1, -edge - 1, -edge, -edge + 1]);
        }
        let operations = [ArithmeticOp::Add, ArithmeticOp::Subtract, ArithmeticOp::Multiply];
        let is_same = |a: &Result<i128, Fault>, b: &Result<i128, Fault>| match (a, b) {
            (Ok(a), Ok(b)) => a == b,
            (Err(_), Err(_)) => true,
            _ => false,
        };
        for (left_scale, right_scale) in [(2, 2), (0, 2), (3, 1), (0, 30), (37, 0)] {
            let result = left_scale.max(right_scale);
            let scales = Scales { left: left_scale, right: right_scale, result };
            for op in operations {
                for (&left, &right) in
                    values.iter().flat_map(|a| values.iter().map(move |b| (a, b)))
                {
                    for limit in [None, Some(magnitude_limit(38)), Some(magnitude_limit(9))] {
                        let quick = compute(op, left, right, scales, limit);
                        let slow = slowly(op, left, right, scales).and_then(|v| narrow(v, limit));
                        assert!(
                            is_same(&quick, &slow),
                            "{left} {op:?} {right} {scales:?} {limit:?}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn limits_are_powers_of_ten() {
        for precision in 0..=38u8 {
            assert_eq!(magnitude_limit(precision), 10i128.pow(precision.into()));
        }
        assert_eq!(magnitude_limit(39), i128::MAX);
    }
}
