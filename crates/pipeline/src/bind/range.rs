//! Interval arithmetic on integer-like values: what proves that nothing overflows.

use headrace_ir::{ArithmeticOp, DataType, Scalar, Value, ValueRange};

/// All values of a type.
pub fn type_range(data_type: &DataType) -> Option<ValueRange> {
    if *data_type == DataType::Bool {
        return Some(ValueRange { min: 0, max: 1 });
    }
    data_type.integer_range().map(|(min, max)| ValueRange { min, max })
}

/// The one value of a constant.
pub fn of_scalar(scalar: &Scalar) -> Option<ValueRange> {
    let value = match scalar.value {
        Value::Int(value) => i64::try_from(value).ok()?,
        Value::Bool(value) => i64::from(value),
        _ => return None,
    };
    type_range(&scalar.data_type)?;
    Some(ValueRange { min: value, max: value })
}

/// Bounds of a result before it is fitted into its type.
pub fn arithmetic(
    op: ArithmeticOp,
    left: Option<ValueRange>,
    right: Option<ValueRange>,
) -> Option<(i128, i128)> {
    let (left, right) = (left?, right?);
    let (a, b) = (i128::from(left.min), i128::from(left.max));
    let (c, d) = (i128::from(right.min), i128::from(right.max));
    Some(match op {
        ArithmeticOp::Add => (a + c, b + d),
        ArithmeticOp::Subtract => (a - d, b - c),
        ArithmeticOp::Multiply => {
            let products = [a * c, a * d, b * c, b * d];
            let min = products.iter().copied().fold(i128::MAX, i128::min);
            (min, products.iter().copied().fold(i128::MIN, i128::max))
        }
        // A quotient is no larger in magnitude than the dividend.
        ArithmeticOp::Divide => {
            let largest = a.abs().max(b.abs());
            (if a >= 0 && c >= 0 { 0 } else { -largest }, largest)
        }
        // A remainder has the sign of the dividend and is smaller than the divisor.
        ArithmeticOp::Modulo => {
            let largest = (c.abs().max(d.abs()) - 1).max(0).min(a.abs().max(b.abs()));
            (if a < 0 { -largest } else { 0 }, if b > 0 { largest } else { 0 })
        }
    })
}

/// Whether bounds fit a type, and the bounds of the result in that type.
pub fn fitted(bounds: Option<(i128, i128)>, data_type: &DataType) -> (bool, Option<ValueRange>) {
    let Some(all) = type_range(data_type) else {
        let fits = *data_type == DataType::UInt64
            && bounds.is_some_and(|(min, max)| min >= 0 && max <= i128::from(u64::MAX));
        return (fits, None);
    };
    match bounds {
        Some((min, max)) if min >= i128::from(all.min) && max <= i128::from(all.max) => {
            (true, Some(ValueRange { min: min as i64, max: max as i64 }))
        }
        _ => (false, Some(all)),
    }
}

/// The smallest range that holds both.
pub fn union(left: Option<ValueRange>, right: Option<ValueRange>) -> Option<ValueRange> {
    let (left, right) = (left?, right?);
    Some(ValueRange { min: left.min.min(right.min), max: left.max.max(right.max) })
}

/// Whether digits alone prove that decimal arithmetic cannot overflow its result type.
pub fn decimal_fits(
    op: ArithmeticOp,
    left: &DataType,
    right: &DataType,
    result: &DataType,
) -> bool {
    use DataType::Decimal128;
    let (
        Decimal128 { precision: p1, scale: s1 },
        Decimal128 { precision: p2, scale: s2 },
        Decimal128 { precision, scale },
    ) = (left, right, result)
    else {
        return false;
    };
    let whole = |p: &u8, s: &i8| i32::from(*p) - i32::from(*s);
    match op {
        ArithmeticOp::Add | ArithmeticOp::Subtract => {
            whole(p1, s1).max(whole(p2, s2)) + 1 + i32::from(*scale) <= i32::from(*precision)
        }
        ArithmeticOp::Multiply => p1 + p2 <= *precision,
        ArithmeticOp::Divide | ArithmeticOp::Modulo => false,
    }
}
