//! The groups or rows of a run as tuples.

use std::cell::Cell;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Decimal128Type, Float64Type, Int32Type, Int64Type, TimestampMicrosecondType,
};
use arrow_array::{Array, ArrayRef, RecordBatch};
use pgrx::pg_sys::{self, Datum, Oid, TupleTableSlot};

use crate::datum::{check_values, datum};
use crate::nodes::{WhyNot, why_not};
use crate::plan::{ExactSum, FloatSum, Output};
use crate::settings;
use crate::translate::constant as moment;

thread_local! {
    /// What the answers of this session's nodes take.
    static HELD_BYTES: Cell<usize> = const { Cell::new(0) };
}

/// Bytes of `headrace.memory_limit` that no node's answer takes.
pub fn free_bytes() -> usize {
    let limit_bytes = settings::MEMORY_LIMIT_KIB.get() as usize * 1024;
    limit_bytes.saturating_sub(HELD_BYTES.get())
}

/// What the batches of an answer take.
pub fn bytes_of(batch: &RecordBatch) -> usize {
    batch.get_array_memory_size()
}

/// Groups or rows, and how many of them were given out.
pub struct Answer {
    batches: Vec<RecordBatch>,
    held_bytes: usize,
    batch: usize,
    row: usize,
}

impl Answer {
    /// Those of a run.
    ///
    /// # Errors
    /// Floats may have overflowed where PostgreSQL would report it; a value of a file is
    /// none that PostgreSQL has.
    pub fn new(batches: Vec<RecordBatch>, outputs: &[Output]) -> Result<Self, WhyNot> {
        for batch in &batches {
            for output in outputs {
                check(batch, output)?;
            }
        }
        let held_bytes = batches.iter().map(bytes_of).sum();
        HELD_BYTES.set(HELD_BYTES.get() + held_bytes);
        Ok(Self { batches, held_bytes, batch: 0, row: 0 })
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
            let value = value(batch, self.row, output)?;
            *(*slot).tts_isnull.add(place) = value.is_none();
            *(*slot).tts_values.add(place) = value.unwrap_or(Datum::from(0));
        }
        self.row += 1;
        Ok(true)
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        HELD_BYTES.set(HELD_BYTES.get().saturating_sub(self.held_bytes));
    }
}

fn check(batch: &RecordBatch, output: &Output) -> Result<(), WhyNot> {
    match output {
        Output::FloatSum(sum) | Output::FloatMean { sum, .. } => check_sum(batch, *sum),
        Output::Value { column, .. } => check_values(batch.column(*column)),
        Output::Extreme { columns, .. } => check_ties(batch, columns),
        Output::Formatted { column, .. } => check_years(batch.column(*column)),
        Output::Shown { least, most, .. } => {
            let digits = |column: usize| batch.column(column).as_primitive::<Int32Type>();
            match digits(*least) == digits(*most) {
                true => Ok(()),
                false => why_not("equal numbers that show different digits behind the point"),
            }
        }
        Output::FloatDeviation { count, squares, .. } => {
            check_squares(batch.column(*count), batch.column(*squares))
        }
        _ => Ok(()),
    }
}

/// Years before Christ are shown as those after.
fn check_years(moments: &ArrayRef) -> Result<(), WhyNot> {
    /// The beginning of the year 1, in microseconds.
    const FIRST: i64 = -62_135_596_800_000_000;
    let mut moments = moments.as_primitive::<TimestampMicrosecondType>().iter().flatten();
    match moments.all(|moment| moment >= FIRST) {
        true => Ok(()),
        false => why_not("texts of moments before Christ"),
    }
}

/// NaN and infinities come of such values, whatever the order of rows, or of an overflow, which is an error.
fn check_sum(batch: &RecordBatch, sum: FloatSum) -> Result<(), WhyNot> {
    let floats = |column: usize| batch.column(column).as_primitive::<Float64Type>().iter();
    let mut sums = floats(sum.column).zip(floats(sum.largest)).filter_map(|(a, b)| a.zip(b));
    // Infinite sums of parts that overflowed may have come to NaN.
    let is_theirs = |(sum, largest): (f64, f64)| {
        sum.is_finite()
            || (sum.is_nan() && largest.is_nan())
            || (sum.is_infinite() && largest.is_infinite())
    };
    match sums.all(is_theirs) {
        true => Ok(()),
        false => why_not("a sum of floats overflows"),
    }
}

/// Of equal numbers that show different digits PostgreSQL takes the one that it meets last.
fn check_ties(batch: &RecordBatch, columns: &[usize]) -> Result<(), WhyNot> {
    for (place, column) in columns.iter().enumerate() {
        let one = batch.column(*column).as_primitive::<Decimal128Type>();
        for other in &columns[place + 1..] {
            let other = batch.column(*other).as_primitive::<Decimal128Type>();
            if one.iter().zip(other).any(|(one, other)| one.is_some() && one == other) {
                return why_not("equal extremes that show different digits behind the point");
            }
        }
    }
    Ok(())
}

/// PostgreSQL squares differences that are multiplied by the number of values so far, and reports
/// an overflow of that.
fn check_squares(counts: &ArrayRef, squares: &ArrayRef) -> Result<(), WhyNot> {
    for (row, squares) in squares.as_primitive::<Float64Type>().iter().enumerate() {
        let count = number(counts, row)? as f64;
        if squares.is_some_and(|squares| (squares * count * count).is_infinite()) {
            return why_not("squares of floats overflow");
        }
    }
    Ok(())
}

unsafe fn value(batch: &RecordBatch, row: usize, output: &Output) -> Result<Option<Datum>, WhyNot> {
    match *output {
        Output::Value { column, type_oid } | Output::Aggregate { column, type_oid } => {
            datum(batch.column(column), row, Oid::from(type_oid))
        }
        Output::Formatted { column, ref pattern } => formatted(batch.column(column), row, pattern),
        Output::Shown { column, most, .. } => Ok(shown_by(batch, row, column, most, 1)),
        Output::Sum(sum) => exact_sum(batch, row, sum),
        Output::FloatSum(sum) => datum(batch.column(sum.column), row, pg_sys::FLOAT8OID),
        Output::Extreme { ref columns, ref digits, is_max } => {
            Ok(extreme(batch, row, columns.iter().copied().zip(digits.iter().copied()), is_max))
        }
        Output::NumericMean { sum, count } => numeric_mean(batch, row, sum, count),
        Output::Deviation { count, sum, squares, is_sample, is_root } => {
            let count = number(batch.column(count), row)?;
            if count == 0 || (is_sample && count == 1) {
                return Ok(None);
            }
            let (sum, squares) = (exact(batch, row, sum)?, exact(batch, row, squares)?);
            let variance = variance(count, sum, squares, is_sample)?;
            Ok(Some(if is_root { root(variance)? } else { variance }))
        }
        Output::FloatMean { sum, count } => {
            let count = number(batch.column(count), row)?;
            let sum = batch.column(sum.column).as_primitive::<Float64Type>().value(row);
            Ok((count > 0).then(|| float(sum / count as f64)))
        }
        Output::FloatDeviation { count, squares, is_sample, is_root } => {
            let divisor = number(batch.column(count), row)? - i64::from(is_sample);
            let squares = batch.column(squares).as_primitive::<Float64Type>().value(row);
            let variance = squares / divisor as f64;
            Ok((divisor > 0).then(|| float(if is_root { variance.sqrt() } else { variance })))
        }
        Output::IsNotZero { column } => {
            let column = batch.column(column).as_primitive::<Int32Type>();
            Ok(column.is_valid(row).then(|| Datum::from(column.value(row) != 0)))
        }
    }
}

/// The text that the server makes of a moment.
unsafe fn formatted(
    moments: &ArrayRef,
    row: usize,
    pattern: &str,
) -> Result<Option<Datum>, WhyNot> {
    let moment = datum(moments, row, pg_sys::TIMESTAMPOID)?;
    let pattern = pg_sys::cstring_to_text_with_len(pattern.as_ptr().cast(), pattern.len() as i32);
    let arguments = |moment| [Some(moment), Some(Datum::from(pattern))];
    let to_char = pg_sys::timestamp_to_char;
    Ok(moment.and_then(|moment| pgrx::direct_function_call_as_datum(to_char, &arguments(moment))))
}

fn float(value: f64) -> Datum {
    Datum::from(value.to_bits())
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
    sum: ExactSum,
    count: usize,
) -> Result<Option<Datum>, WhyNot> {
    let count = number(batch.column(count), row)?;
    if count == 0 {
        return Ok(None);
    }
    let sum = exact(batch, row, sum)?;
    let count = Datum::from(pg_sys::int64_to_numeric(count));
    numeric(pg_sys::numeric_div, &[sum, count]).map(Some)
}

/// An exact sum, which is not NULL, as the server's `numeric`.
unsafe fn exact(batch: &RecordBatch, row: usize, sum: ExactSum) -> Result<Datum, WhyNot> {
    let value = exact_sum(batch, row, sum)?;
    value.ok_or_else(|| WhyNot("an exact number that is not there".into()))
}

unsafe fn exact_sum(
    batch: &RecordBatch,
    row: usize,
    sum: ExactSum,
) -> Result<Option<Datum>, WhyNot> {
    let column = batch.column(sum.column);
    if let Some(numbers) = column.as_primitive_opt::<Int64Type>() {
        let number = numbers.is_valid(row).then(|| numbers.value(row));
        return Ok(number.map(|number| Datum::from(pg_sys::int64_to_numeric(number))));
    }
    match sum.digits {
        Some(digits) => Ok(shown_by(batch, row, sum.column, digits, sum.times)),
        None => datum(column, row, pg_sys::NUMERICOID),
    }
}

/// A decimal that shows the digits that another column says, so many times.
unsafe fn shown_by(
    batch: &RecordBatch,
    row: usize,
    column: usize,
    digits: usize,
    times: i8,
) -> Option<Datum> {
    let column = batch.column(column);
    let digits = batch.column(digits).as_primitive::<Int32Type>().value(row);
    let digits = i8::try_from(digits).unwrap_or(i8::MAX).saturating_mul(times);
    column.is_valid(row).then(|| shown(column, row, digits)).flatten()
}

/// A decimal, which is not NULL and has no digits beyond those that it shows.
unsafe fn shown(column: &ArrayRef, row: usize, digits: i8) -> Option<Datum> {
    let decimals = column.as_primitive_opt::<Decimal128Type>()?;
    let more = u32::try_from(decimals.scale() - digits).ok()?;
    moment::numeric(decimals.value(row) / 10_i128.checked_pow(more)?, digits)
}

/// The smallest or largest of the columns' numbers, which show so many digits.
unsafe fn extreme(
    batch: &RecordBatch,
    row: usize,
    columns: impl Iterator<Item = (usize, i8)>,
    is_max: bool,
) -> Option<Datum> {
    let found = columns.filter_map(|(column, digits)| {
        let column = batch.column(column);
        let value = column.as_primitive::<Decimal128Type>().value(row);
        column.is_valid(row).then_some((value, column, digits))
    });
    let of_value = |found: &(i128, &ArrayRef, i8)| found.0;
    let found = if is_max { found.max_by_key(of_value) } else { found.min_by_key(of_value) };
    found.and_then(|(_, column, digits)| shown(column, row, digits))
}

type ServerFunction = unsafe fn(pg_sys::FunctionCallInfo) -> Datum;

/// A function of the server that is never NULL.
unsafe fn numeric(function: ServerFunction, arguments: &[Datum]) -> Result<Datum, WhyNot> {
    let arguments: Vec<_> = arguments.iter().copied().map(Some).collect();
    let value = pgrx::direct_function_call_as_datum(function, &arguments);
    value.ok_or_else(|| WhyNot("a number that the server does not compute".into()))
}

/// As `numeric_stddev_internal` computes it: exactly, but for one division.
unsafe fn variance(
    count: i64,
    sum: Datum,
    squares: Datum,
    is_sample: bool,
) -> Result<Datum, WhyNot> {
    use pg_sys::{int64_to_numeric, numeric_div, numeric_gt, numeric_mul, numeric_sub};
    let whole = |number: i64| Datum::from(int64_to_numeric(number));
    let (count_squares, sum_squared) =
        (numeric(numeric_mul, &[whole(count), squares])?, numeric(numeric_mul, &[sum, sum])?);
    let dividend = numeric(numeric_sub, &[count_squares, sum_squared])?;
    if numeric(numeric_gt, &[dividend, whole(0)])?.value() == 0 {
        return Ok(whole(0));
    }
    let divisor = numeric(numeric_mul, &[whole(count), whole(count - i64::from(is_sample))])?;
    numeric(numeric_div, &[dividend, divisor])
}

/// The root with as many digits behind the point as the number has. `numeric_sqrt` shows more at times,
/// which were rounded already.
unsafe fn root(of: Datum) -> Result<Datum, WhyNot> {
    use pg_sys::{
        numeric_gt, numeric_mul, numeric_round, numeric_scale, numeric_sqrt, numeric_sub,
    };
    let scale = numeric(numeric_scale, &[of])?.value() as i32;
    let shown = numeric(numeric_sqrt, &[of])?;
    let rounded = numeric(numeric_round, &[shown, Datum::from(scale)])?;
    let unit = |unscaled, more: i32| {
        let scale = i8::try_from(scale + more).ok();
        let unit = scale.and_then(|scale| moment::numeric(unscaled, scale));
        unit.ok_or_else(|| WhyNot("a deviation of more than 127 digits".into()))
    };
    let below = numeric(numeric_sub, &[rounded, unit(5, 1)?])?;
    let is_over = |one, other| Ok(numeric(numeric_gt, &[one, other])?.value() != 0);
    let is_known_over: bool =
        is_over(below, unit(0, 0)?)? && is_over(numeric(numeric_mul, &[below, below])?, of)?;
    match is_known_over {
        false => Ok(rounded),
        true => numeric(numeric_sub, &[rounded, unit(1, 0)?]),
    }
}
