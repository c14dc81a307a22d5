//! A plan's columns, made of those that its pipeline puts out.
//!
//! Columns that no sink can express are computed here, when batches become the plan's: deviations, and the
//! planner's number of a grouping set.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Float64Array, Int64Array, new_null_array,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    DataType, Decimal128Type, Field as ArrowField, Float64Type, Int64Type, Schema, UInt64Type,
};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::{Result, internal_err};
use headrace_columns::column::arrow_field;
use headrace_columns::mean::mean_f64;
use headrace_ir::pipeline::GROUPING_SET;
use headrace_ir::{AggregateCall, AggregateFunction, Field, Sink};

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
    /// The mean of integers whose exact total and number are columns of the pipeline's.
    Mean {
        /// Decimals without digits after the point.
        total: usize,
        /// Values.
        count: usize,
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
            &Self::Mean { total, count } => {
                let counts = cast(&column(count), &DataType::UInt64)?;
                let totals = column(total);
                let Some(totals) = totals.as_primitive_opt::<Decimal128Type>() else {
                    return internal_err!("a total of integers of type {}", totals.data_type());
                };
                let mean = |(total, count): (Option<i128>, Option<u64>)| {
                    let count = count.filter(|count| *count > 0)?;
                    Some(mean_f64(total?, count))
                };
                let counts = counts.as_primitive::<UInt64Type>();
                Arc::new(totals.iter().zip(counts).map(mean).collect::<Float64Array>())
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

/// Of a pipeline without any group: those of its grouping sets without keys, which are totals of no rows.
pub fn totals_of_nothing(sink: &Sink) -> Result<Vec<RecordBatch>> {
    let Sink::Aggregate { keys, sets, calls, .. } = sink else { return Ok(Vec::new()) };
    let null = |name: &str, data_type: &headrace_ir::DataType| {
        let field = arrow_field(&Field::new(name, data_type.clone(), true));
        let array = new_null_array(field.data_type(), 1);
        (field, array)
    };
    let empty = sets.iter().enumerate().filter(|(_, set)| set.is_empty());
    let total = |(number, _): (usize, &Vec<usize>)| {
        let number: ArrayRef = Arc::new(Int64Array::from(vec![number as i64]));
        let number = (ArrowField::new(GROUPING_SET, DataType::Int64, false), number);
        let of_call = |call: &AggregateCall| match call.function {
            AggregateFunction::Count => {
                let none: ArrayRef = Arc::new(Int64Array::from(vec![0]));
                (ArrowField::new(&call.name, DataType::Int64, false), none)
            }
            _ => null(&call.name, &call.result),
        };
        let keys = keys.iter().map(|key| null(&key.name, &key.expr.data_type()));
        let (fields, columns): (Vec<_>, Vec<_>) =
            keys.chain([number]).chain(calls.iter().map(of_call)).unzip();
        Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?)
    };
    empty.map(total).collect()
}
