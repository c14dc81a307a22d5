//! The groups or rows of a run as tuples.

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int32Type, Int64Type};
use arrow_array::{Array, ArrayRef, RecordBatch};
use pgrx::pg_sys::{self, Datum, Oid, TupleTableSlot};

use crate::datum::{check_values, datum};
use crate::nodes::{WhyNot, why_not};
use crate::plan::Output;

/// Groups or rows, and how many of them were given out.
pub struct Answer {
    batches: Vec<RecordBatch>,
    batch: usize,
    row: usize,
}

impl Answer {
    /// Those of a run.
    ///
    /// # Errors
    /// A float is infinite, which may be an overflow that PostgreSQL would report; a value of a file is
    /// none that PostgreSQL has.
    pub fn new(batches: Vec<RecordBatch>, outputs: &[Output]) -> Result<Self, WhyNot> {
        for batch in &batches {
            for output in outputs {
                check(batch, *output)?;
            }
        }
        Ok(Self { batches, batch: 0, row: 0 })
    }

    /// From the first on again.
    pub fn rewind(&mut self) {
        (self.batch, self.row) = (0, 0);
    }

    /// Puts the next one into a slot's values; `false` after the last.
    pub unsafe fn store_next(
        &mut self,
        outputs: &[Output],
        slot: *mut TupleTableSlot,
    ) -> Result<bool, WhyNot> {
        while self.batches.get(self.batch).is_some_and(|batch| self.row >= batch.num_rows()) {
            (self.batch, self.row) = (self.batch + 1, 0);
        }
        let Some(batch) = self.batches.get(self.batch) else { return Ok(false) };
        for (place, output) in outputs.iter().enumerate() {
            let value = value(batch, self.row, *output)?;
            *(*slot).tts_isnull.add(place) = value.is_none();
            *(*slot).tts_values.add(place) = value.unwrap_or(Datum::from(0));
        }
        self.row += 1;
        Ok(true)
    }
}

fn check(batch: &RecordBatch, output: Output) -> Result<(), WhyNot> {
    let sum = match output {
        Output::FloatMean { sum, .. } => sum,
        Output::Aggregate { column, .. } => column,
        Output::Value { column, .. } => return check_values(batch.column(column)),
        _ => return Ok(()),
    };
    check_values(batch.column(sum))?;
    let infinite = match batch.column(sum).as_primitive_opt::<Float64Type>() {
        Some(floats) => floats.iter().flatten().any(f64::is_infinite),
        None => false,
    };
    match infinite {
        true => why_not("a sum or an extreme of floats is infinite"),
        false => Ok(()),
    }
}

unsafe fn value(batch: &RecordBatch, row: usize, output: Output) -> Result<Option<Datum>, WhyNot> {
    match output {
        Output::Value { column, type_oid } | Output::Aggregate { column, type_oid } => {
            datum(batch.column(column), row, Oid::from(type_oid))
        }
        Output::NumericMean { sum, count } => numeric_mean(batch, row, sum, count),
        Output::FloatMean { sum, count } => {
            let count = number(batch.column(count), row)?;
            let sum = batch.column(sum).as_primitive::<Float64Type>().value(row);
            Ok((count > 0).then(|| Datum::from((sum / count as f64).to_bits())))
        }
        Output::IsNotZero { column } => {
            let column = batch.column(column).as_primitive::<Int32Type>();
            Ok(column.is_valid(row).then(|| Datum::from(column.value(row) != 0)))
        }
    }
}

fn number(column: &ArrayRef, row: usize) -> Result<i64, WhyNot> {
    match column.as_primitive_opt::<Int64Type>() {
        Some(numbers) => Ok(numbers.value(row)),
        None => why_not(format!("a number of values as {}", column.data_type())),
    }
}

/// As the server divides, so that the quotient has the digits that it gives it.
unsafe fn numeric_mean(
    batch: &RecordBatch,
    row: usize,
    sum: usize,
    count: usize,
) -> Result<Option<Datum>, WhyNot> {
    let count = number(batch.column(count), row)?;
    if count == 0 {
        return Ok(None);
    }
    let column = batch.column(sum);
    let sum = match column.as_primitive_opt::<Int64Type>() {
        Some(sums) => Some(Datum::from(pg_sys::int64_to_numeric(sums.value(row)))),
        None => datum(column, row, pg_sys::NUMERICOID)?,
    };
    let count = Some(Datum::from(pg_sys::int64_to_numeric(count)));
    let mean = pgrx::direct_function_call_as_datum(pg_sys::numeric_div, &[sum, count]);
    Ok(mean)
}
