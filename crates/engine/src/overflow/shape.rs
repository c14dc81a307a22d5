//! The input of a sum: the values that it adds, and the type of its total.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, Decimal128Builder, Int64Builder, UInt64Builder,
};
use datafusion::arrow::datatypes::{DataType, Decimal128Type, Int64Type, UInt64Type, i256};
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::function::AccumulatorArgs;

use crate::error::overflow;

/// What is summed.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    argument: DataType,
    result: DataType,
    /// Digits behind the point of the exact state.
    pub scale: i8,
    name: String,
}

impl Shape {
    /// `None` for types whose sum cannot overflow.
    pub fn of(args: &AccumulatorArgs) -> Option<Self> {
        let result = args.return_field.data_type().clone();
        let argument = args.expr_fields.first()?.data_type().clone();
        let scale = checked_scale(&result)?;
        Some(Self { argument, result, scale, name: args.name.to_string() })
    }

    /// Type of the values.
    pub fn argument(&self) -> &DataType {
        &self.argument
    }

    fn overflow<T>(&self) -> Result<T> {
        Err(overflow(&self.name, &self.result.to_string()))
    }
}

/// Scale of the exact state of a sum with this result; `None` if it is left to DataFusion.
pub fn checked_scale(result: &DataType) -> Option<i8> {
    match result {
        DataType::Int64 | DataType::UInt64 => Some(0),
        DataType::Decimal128(_, scale) => Some(*scale),
        _ => None,
    }
}

/// Calls `f(row, value)` for every value that is not NULL.
pub fn for_each_value(array: &ArrayRef, f: impl FnMut(usize, i128)) -> Result<()> {
    fn run<T: ArrowPrimitiveType>(
        array: &ArrayRef,
        to_i128: impl Fn(T::Native) -> i128,
        mut f: impl FnMut(usize, i128),
    ) {
        let array = array.as_primitive::<T>();
        match array.nulls().filter(|nulls| nulls.null_count() > 0) {
            None => {
                array.values().iter().enumerate().for_each(|(row, value)| f(row, to_i128(*value)));
            }
            Some(nulls) => {
                nulls.valid_indices().for_each(|row| f(row, to_i128(array.value(row))));
            }
        }
    }
    match array.data_type() {
        DataType::Int64 => run::<Int64Type>(array, i128::from, f),
        DataType::UInt64 => run::<UInt64Type>(array, i128::from, f),
        DataType::Decimal128(..) => run::<Decimal128Type>(array, |v| v, f),
        other => return internal_err!("checked sum of {other}"),
    }
    Ok(())
}

/// Totals in the type of the result.
///
/// # Errors
/// A total that does not fit.
pub fn result_array(totals: &[Option<i256>], shape: &Shape) -> Result<ArrayRef> {
    macro_rules! integers {
        ($builder:ident, $native:ty) => {{
            let mut builder = $builder::with_capacity(totals.len());
            for total in totals {
                match total.map(|t| t.to_i128().and_then(|t| <$native>::try_from(t).ok())) {
                    None => builder.append_null(),
                    Some(Some(value)) => builder.append_value(value),
                    Some(None) => return shape.overflow(),
                }
            }
            Ok(Arc::new(builder.finish()))
        }};
    }
    match &shape.result {
        DataType::Int64 => integers!(Int64Builder, i64),
        DataType::UInt64 => integers!(UInt64Builder, u64),
        DataType::Decimal128(precision, scale) => {
            let limit = 10_i128.pow(u32::from(*precision));
            let mut builder = Decimal128Builder::with_capacity(totals.len());
            for total in totals {
                match total.map(|t| t.to_i128().filter(|t| *t > -limit && *t < limit)) {
                    None => builder.append_null(),
                    Some(Some(value)) => builder.append_value(value),
                    Some(None) => return shape.overflow(),
                }
            }
            Ok(Arc::new(builder.finish().with_precision_and_scale(*precision, *scale)?))
        }
        other => internal_err!("checked sum as {other}"),
    }
}
