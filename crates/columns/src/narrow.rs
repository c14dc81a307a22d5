//! Decimals whose values fit 64 bits, batch by batch, which nearly all do: sums and products of them take one
//! instruction where those of 128 bits take many.
//!
//! Each vector carries a bound of its magnitudes. If the bounds prove that a result fits, no single value is
//! checked; otherwise the caller computes in 128 bits. Bounds come from the values themselves, never from
//! a file's statistics.

use std::borrow::Cow;
use std::rc::Rc;

use headrace_ir::{ArithmeticOp, DataType};

use crate::arithmetic::map2;
use crate::convert::integers;
use crate::vector::{Data, Vector, both_valid};

/// Unscaled decimals of 64 bits.
#[derive(Clone, Debug)]
pub struct Narrow<'a> {
    /// As [`Data::I64`].
    pub vector: Rc<Vector<'a>>,
    /// None is larger in magnitude, whatever lies where validity says NULL included.
    pub bound: u64,
}

impl<'a> Narrow<'a> {
    /// Of values of 128 bits; `None`: they do not fit.
    pub(crate) fn of(
        values: impl ExactSizeIterator<Item = i128>,
        validity: Option<Cow<'a, [u8]>>,
    ) -> Option<Self> {
        let (mut lost, mut bits) = (0u64, 0u64);
        let mut narrow: Vec<i64> = Vec::with_capacity(values.len());
        narrow.extend(values.map(|value| {
            let low = value as i64;
            let sign = low >> 63;
            lost |= ((value >> 64) as i64 ^ sign) as u64;
            bits |= (low ^ sign) as u64;
            low
        }));
        (lost == 0).then(|| Self::bounded(narrow.into(), validity, bits))
    }

    /// Of values of 64 bits.
    pub(crate) fn of_64(values: Cow<'a, [i64]>, validity: Option<Cow<'a, [u8]>>) -> Self {
        let bits = values.iter().fold(0, |bits, value| bits | (value ^ (value >> 63)) as u64);
        Self::bounded(values, validity, bits)
    }

    /// Of values whose magnitudes have no other bits.
    fn bounded(values: Cow<'a, [i64]>, validity: Option<Cow<'a, [u8]>>, bits: u64) -> Self {
        let vector = Vector { data: Data::I64(values), validity, constant: false };
        // A negative value is larger in magnitude by one than its inverted bits.
        let bound = u64::MAX.checked_shr(bits.leading_zeros()).unwrap_or(0) + 1;
        Self { vector: Rc::new(vector), bound }
    }

    /// The same values as a column of 64 bits; `None`: they do not fit, or are no integers.
    pub fn of_vector(vector: &Vector<'a>) -> Option<Self> {
        let constant = vector.constant;
        let mut narrow = match &vector.data {
            Data::I128(values) => Self::of(values.iter().copied(), vector.validity.clone())?,
            Data::U64(_) => return None,
            data => {
                let values = integers(data)?;
                Self::of(values.iter().map(|&value| value.into()), vector.validity.clone())?
            }
        };
        if constant {
            Rc::make_mut(&mut narrow.vector).constant = true;
        }
        Some(narrow)
    }

    /// One value for all rows.
    pub fn constant(value: i64) -> Self {
        let vector = Vector::constant(Data::I64(vec![value].into()), false);
        Self { vector: Rc::new(vector), bound: value.unsigned_abs() }
    }

    /// Whether all values are smaller in magnitude.
    pub fn is_within(&self, limit: i128) -> bool {
        i128::from(self.bound) < limit
    }

    /// The values by a power of ten, which is `factor`.
    pub fn scaled(self, factor: i64) -> Option<Self> {
        if factor == 1 {
            return Some(self);
        }
        let bound = fitting(u128::from(self.bound) * u128::from(factor.unsigned_abs()))?;
        let Data::I64(values) = &self.vector.data else { return None };
        let data = Data::I64(values.iter().map(|value| value.wrapping_mul(factor)).collect());
        let Vector { validity, constant, .. } = &*self.vector;
        let vector = Vector { data, validity: validity.clone(), constant: *constant };
        Some(Self { vector: Rc::new(vector), bound })
    }
}

/// A magnitude that 64 bits with a sign hold.
fn fitting(magnitude: u128) -> Option<u64> {
    i64::try_from(magnitude).ok().map(i64::unsigned_abs)
}

/// Digits that an operand has fewer after the point than a result; `None`: it has more, or is no number of digits.
pub fn digits(operand: &DataType, scale: i8) -> Option<u32> {
    match *operand {
        DataType::Decimal128 { scale: own, .. } => u32::try_from(scale.checked_sub(own)?).ok(),
        ref other if other.is_integer() => u32::try_from(scale).ok(),
        _ => None,
    }
}

/// `left op right`, of operands that have so many digits fewer after the point than the result; `None`: it may not fit.
pub fn arithmetic<'a>(
    op: ArithmeticOp,
    [left, right]: [Narrow<'a>; 2],
    digits: [Option<u32>; 2],
    rows: usize,
) -> Option<Narrow<'a>> {
    let (left, right) = match op {
        // A product has the digits of both.
        ArithmeticOp::Multiply => (left, right),
        ArithmeticOp::Add | ArithmeticOp::Subtract => {
            let [l, r] = digits.map(|digits| 10i64.checked_pow(digits?));
            (left.scaled(l?)?, right.scaled(r?)?)
        }
        ArithmeticOp::Divide | ArithmeticOp::Modulo => return None,
    };
    let (a, b) = (u128::from(left.bound), u128::from(right.bound));
    let bound = fitting(if op == ArithmeticOp::Multiply { a * b } else { a + b })?;
    if left.vector.is_null_constant() || right.vector.is_null_constant() {
        return None;
    }
    let (l, r) = (left.vector.operand::<i64>()?, right.vector.operand::<i64>()?);
    let is_constant = left.vector.constant && right.vector.constant;
    let rows = if is_constant { 1 } else { rows };
    // The bound proves that none of these wraps.
    let values = match op {
        ArithmeticOp::Add => map2(l, r, rows, i64::wrapping_add),
        ArithmeticOp::Subtract => map2(l, r, rows, i64::wrapping_sub),
        _ => map2(l, r, rows, i64::wrapping_mul),
    };
    let validity = both_valid(&left.vector, &right.vector, rows).map(Cow::Owned);
    let vector = Vector { data: Data::I64(values.into()), validity, constant: is_constant };
    Some(Narrow { vector: Rc::new(vector), bound })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn of(values: &[i128]) -> Option<Narrow<'static>> {
        Narrow::of(values.iter().copied(), None)
    }

    #[test]
    fn bounds_hold_for_what_fits_and_nothing_else_does() {
        let (min, max) = (i128::from(i64::MIN), i128::from(i64::MAX));
        for values in [vec![], vec![0], vec![-1, 1], vec![min], vec![max], vec![7, -1 << 40, 99]] {
            let narrow = of(&values).unwrap();
            let Data::I64(found) = &narrow.vector.data else { panic!() };
            assert!(found.iter().map(|&v| i128::from(v)).eq(values.iter().copied()));
            assert!(values.iter().all(|v| v.unsigned_abs() <= u128::from(narrow.bound)));
        }
        assert_eq!(of(&[100, -3]).unwrap().bound, 128);
        for value in [min - 1, max + 1, i128::MIN, i128::MAX, 1 << 64, -(1 << 64), (1 << 64) + 5] {
            assert!(of(&[5, value]).is_none(), "{value}");
        }
    }

    #[test]
    fn what_may_not_fit_is_not_computed() {
        let (large, small) = (of(&[1 << 61, -(1 << 61)]).unwrap(), of(&[9, -9]).unwrap());
        for op in [ArithmeticOp::Add, ArithmeticOp::Subtract, ArithmeticOp::Multiply] {
            let sides = || [large.clone(), large.clone()];
            assert!(arithmetic(op, sides(), [Some(0); 2], 2).is_none(), "{op:?}");
        }
        let scaled = arithmetic(ArithmeticOp::Add, [large, small.clone()], [Some(0), Some(17)], 2);
        assert!(scaled.is_some());
        assert!(small.clone().scaled(10i64.pow(18)).is_none());
        assert!(
            arithmetic(ArithmeticOp::Divide, [small.clone(), small], [Some(0); 2], 2).is_none()
        );
    }
}
