//! One NaN, and one zero, for the planner's operators.
//!
//! SQL has one NaN, which equals itself and is greater than every other value; pipelines compare
//! so. DataFusion compares and hashes NaNs by their bits: one with its sign set is smaller than
//! everything, and two of other bits differ. What it reads from us has one pattern of bits, and so has what it
//! computes ([`computed_nans`](crate::fixes::computed_nans)).

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, PrimitiveArray};
use datafusion::arrow::datatypes::{ArrowPrimitiveType, DataType, Float32Type, Float64Type};

/// The column with one pattern of bits for all its NaNs.
pub fn one_nan(column: &ArrayRef) -> ArrayRef {
    match column.data_type() {
        DataType::Float32 => {
            one_nan_of::<Float32Type>(column, |v| v.is_nan() && v.to_bits() != f32::NAN.to_bits())
        }
        DataType::Float64 => {
            one_nan_of::<Float64Type>(column, |v| v.is_nan() && v.to_bits() != f64::NAN.to_bits())
        }
        _ => None,
    }
    .unwrap_or_else(|| Arc::clone(column))
}

/// The column with one zero, which is equal to itself in an order, too.
pub fn one_zero(column: &ArrayRef) -> ArrayRef {
    // Minus zero and zero are zero.
    match column.data_type() {
        DataType::Float32 => {
            Arc::new(column.as_primitive::<Float32Type>().unary::<_, Float32Type>(|v| v + 0.0))
        }
        DataType::Float64 => {
            Arc::new(column.as_primitive::<Float64Type>().unary::<_, Float64Type>(|v| v + 0.0))
        }
        _ => Arc::clone(column),
    }
}

/// `None` where there is nothing to change.
fn one_nan_of<T: ArrowPrimitiveType>(
    column: &ArrayRef,
    is_other_nan: impl Fn(T::Native) -> bool,
) -> Option<ArrayRef>
where
    T::Native: From<f32>,
{
    let column = column.as_primitive::<T>();
    if !column.values().iter().any(|&v| is_other_nan(v)) {
        return None;
    }
    let canonical = |v| if is_other_nan(v) { T::Native::from(f32::NAN) } else { v };
    Some(Arc::new(column.unary::<_, T>(canonical) as PrimitiveArray<T>))
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{Float32Array, Float64Array};

    use super::*;

    #[test]
    fn nans_become_one_and_nothing_else_changes() {
        let other = f64::from_bits(0xfff8_0000_0000_0001);
        let values = [Some(1.0), None, Some(-0.0), Some(f64::NAN), Some(other), Some(-f64::NAN)];
        let column: ArrayRef = Arc::new(Float64Array::from_iter(values));
        let bits = |a: &ArrayRef| {
            a.as_primitive::<Float64Type>().iter().map(|v| v.map(f64::to_bits)).collect::<Vec<_>>()
        };
        let nan = Some(f64::NAN.to_bits());
        let one = Some(1f64.to_bits());
        assert_eq!(bits(&one_nan(&column)), [one, None, Some(1 << 63), nan, nan, nan]);
        let column: ArrayRef = Arc::new(Float32Array::from(vec![-f32::NAN, 2.0]));
        let found = one_nan(&column);
        assert_eq!(found.as_primitive::<Float32Type>().value(0).to_bits(), f32::NAN.to_bits());
        assert_eq!(found.as_primitive::<Float32Type>().value(1), 2.0);
    }
}
