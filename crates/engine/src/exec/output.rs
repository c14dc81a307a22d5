//! A plan's columns, made of those that its pipeline puts out.
//!
//! Columns that no sink can express are computed here, when batches become the plan's: deviations, and the
//! planner's number of a grouping set.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Decimal128Array, Float64Array, Int64Array,
    PrimitiveArray,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    DataType, Decimal128Type, Float64Type, Int64Type, UInt64Type, i256,
};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::{Result, exec_datafusion_err, internal_err};
use headrace_columns::decimal;
use headrace_columns::mean::mean_f64;

use crate::error::overflow;

/// What a column is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// One of the pipeline's.
    Column(usize),
    /// The variance or deviation of values whose squared deviations and number are columns of the pipeline's.
    Spread {
        /// Squared deviations.
        squares: usize,
        /// Values.
        count: usize,
        /// Whether the values are a sample, not all there are.
        is_sample: bool,
        /// Whether it is the deviation: the variance's root.
        is_root: bool,
    },
    /// The same of integers whose total, total of squares and number are columns of the pipeline's: all of them are exact.
    ExactSpread {
        /// Of 38 digits.
        total: usize,
        /// Of 38 digits.
        squares: usize,
        /// Values.
        count: usize,
        /// As of `Spread`.
        is_sample: bool,
        /// As of `Spread`.
        is_root: bool,
    },
    /// The mean of values whose total and number are columns of the pipeline's.
    Mean {
        /// Decimals, which are exact, or floats.
        total: usize,
        /// Values.
        count: usize,
        /// Its type: a float, or a decimal where values are.
        result: DataType,
    },
    /// The total of values each of which is larger by a constant than those whose total and number are columns of the
    /// pipeline's.
    Shifted {
        /// Of 38 digits, which is exact.
        total: usize,
        /// Values.
        count: usize,
        /// The constant.
        by: i64,
        /// What it is called where it overflows.
        name: String,
    },
    /// Whether one of the pipeline's is not 0.
    IsTrue(usize),
    /// The planner's numbers of grouping sets, by those of the pipeline in a column.
    GroupingId {
        /// The column.
        set: usize,
        /// By set.
        ids: Vec<i64>,
    },
}

impl Output {
    /// The column of a batch of the pipeline's.
    pub fn of(&self, batch: &RecordBatch) -> Result<ArrayRef> {
        let column = |index: usize| Arc::clone(batch.column(index));
        Ok(match self {
            Self::Column(index) => column(*index),
            &Self::Spread { squares, count, is_sample, is_root } => {
                let count = cast(&column(count), &DataType::Int64)?;
                let counts = count.as_primitive::<Int64Type>();
                let squares = column(squares);
                let Some(squares) = squares.as_primitive_opt::<Float64Type>() else {
                    return internal_err!("squared deviations of type {}", squares.data_type());
                };
                let spread = |(squares, count): (Option<f64>, Option<i64>)| {
                    let degrees = count? - i64::from(is_sample);
                    let variance = (degrees > 0).then(|| Some(squares? / degrees as f64))??;
                    Some(if is_root { variance.sqrt() } else { variance })
                };
                Arc::new(squares.iter().zip(counts).map(spread).collect::<Float64Array>())
            }
            &Self::ExactSpread { total, squares, count, is_sample, is_root } => {
                let counts = cast(&column(count), &DataType::Int64)?;
                let (totals, squares) = (column(total), column(squares));
                let (Some(totals), Some(squares)) = (
                    totals.as_primitive_opt::<Decimal128Type>(),
                    squares.as_primitive_opt::<Decimal128Type>(),
                ) else {
                    return internal_err!("totals of type {}", totals.data_type());
                };
                let counts = counts.as_primitive::<Int64Type>().iter();
                let rows = totals.iter().zip(squares).zip(counts);
                let spread = |((total, squares), count): ((Option<i128>, Option<i128>), _)| {
                    let variance = exact_variance(total?, squares?, count?, is_sample)?;
                    Some(if is_root { variance.sqrt() } else { variance })
                };
                Arc::new(rows.map(spread).collect::<Float64Array>())
            }
            Self::Mean { total, count, result } => {
                let counts = cast(&column(*count), &DataType::UInt64)?;
                means(&column(*total), counts.as_primitive(), result)?
            }
            Self::Shifted { total, count, by, name } => {
                let counts = cast(&column(*count), &DataType::Int64)?;
                let counts = counts.as_primitive::<Int64Type>();
                let totals = column(*total);
                let Some(totals) = totals.as_primitive_opt::<Decimal128Type>() else {
                    return internal_err!("totals of type {}", totals.data_type());
                };
                let result = headrace_ir::DataType::Int64.to_string();
                let shifted = |(total, count): (Option<i128>, Option<i64>)| {
                    let (Some(total), Some(count)) = (total, count) else { return Ok(None) };
                    let shifted = i64::try_from(total + i128::from(count) * i128::from(*by));
                    shifted.map(Some).map_err(|_| overflow(name, &result))
                };
                let totals = totals.iter().zip(counts).map(shifted);
                Arc::new(totals.collect::<Result<Int64Array>>()?)
            }
            Self::IsTrue(index) => {
                let numbers = cast(&column(*index), &DataType::Int64)?;
                let numbers = numbers.as_primitive::<Int64Type>();
                Arc::new(numbers.iter().map(|n| n.map(|n| n != 0)).collect::<BooleanArray>())
            }
            Self::GroupingId { set, ids } => {
                let sets = cast(&column(*set), &DataType::Int64)?;
                let sets = sets.as_primitive::<Int64Type>();
                let id = |set: Option<i64>| ids.get(usize::try_from(set?).ok()?).copied();
                let ids: Int64Array = sets.iter().map(id).collect();
                if ids.null_count() > 0 {
                    return internal_err!("a group of no grouping set");
                }
                Arc::new(ids)
            }
        })
    }
}

/// Totals of floats, integers or decimals divided by the numbers of their values; none of no values.
fn means(
    totals: &ArrayRef,
    counts: &PrimitiveArray<UInt64Type>,
    result: &DataType,
) -> Result<ArrayRef> {
    let counts = counts.iter().map(|count| count.filter(|count| *count > 0));
    if let Some(totals) = totals.as_primitive_opt::<Float64Type>() {
        let mean = |(total, count): (Option<f64>, Option<u64>)| Some(total? / count? as f64);
        return Ok(Arc::new(totals.iter().zip(counts).map(mean).collect::<Float64Array>()));
    }
    let DataType::Decimal128(_, from) = *totals.data_type() else {
        return internal_err!("totals of type {}", totals.data_type());
    };
    let totals = totals.as_primitive::<Decimal128Type>().iter().zip(counts);
    let DataType::Decimal128(precision, scale) = *result else {
        let mean = |(total, count): (Option<i128>, Option<u64>)| Some(mean_f64(total?, count?));
        return Ok(Arc::new(totals.map(mean).collect::<Float64Array>()));
    };
    let mean = |(total, count): (Option<i128>, Option<u64>)| {
        let (Some(total), Some(count)) = (total, count) else { return Ok(None) };
        let mean = decimal::mean(i256::from_i128(total), count, from, scale, precision);
        let too_large = || exec_datafusion_err!("overflow: a mean does not fit {result}");
        mean.map(Some).ok_or_else(too_large)
    };
    let means = totals.map(mean).collect::<Result<Decimal128Array>>()?;
    Ok(Arc::new(means.with_precision_and_scale(precision, scale)?))
}

/// The variance of integers from their total, the total of their squares and their number; `None` of too few. Nothing is
/// rounded before the division, so that no digits cancel out.
fn exact_variance(total: i128, squares: i128, count: i64, is_sample: bool) -> Option<f64> {
    let degrees = count - i64::from(is_sample);
    if degrees <= 0 {
        return None;
    }
    let [count, total, squares, degrees] =
        [count.into(), total, squares, degrees.into()].map(i256::from_i128);
    // Totals of 64-bit counts of 62-bit squares: the products have fewer than 256 bits.
    let deviations = squares.wrapping_mul(count).wrapping_sub(total.wrapping_mul(total));
    Some(float(deviations) / float(count.wrapping_mul(degrees)))
}

fn float(of: i256) -> f64 {
    let (low, high) = of.to_parts();
    high as f64 * 2f64.powi(128) + low as f64
}
