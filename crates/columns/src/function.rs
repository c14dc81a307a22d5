//! Calls of named functions.

use std::borrow::Cow;

use headrace_ir::DataType;
use headrace_ir::function::{DatePart, Function};

use crate::ColumnError;
use crate::calendar::{
    CALENDAR_DAYS, DAY_SECONDS, inner_calendar, part_of_day, part_of_time, timestamp_ticks,
    truncated,
};
use crate::convert::empty_data;
use crate::decimal::{magnitude_limit, round_divide};
use crate::distance;
use crate::fault::{Fault, Target};
use crate::repr::Repr;
use crate::text::{self, Texts};
use crate::vector::Shared;
use crate::vector::{Data, Vector};

/// Runs one expression for whichever part it is, known where the expression is compiled.
macro_rules! with_part {
    ($part:expr, [$($known:ident)*], $constant:ident => $body:expr) => {
        match $part {
            $(DatePart::$known => {
                const $constant: DatePart = DatePart::$known;
                $body
            })*
            _ => return None,
        }
    };
}

/// The value of a call; `vectors` are those of its arguments, `of` is the type of the first.
pub fn call<'a>(
    target: Target<'_>,
    function: Function,
    of: Option<&DataType>,
    vectors: &[Shared<'a>],
    rows: usize,
    texts: &'a Texts,
) -> Result<Vector<'a>, ColumnError> {
    if vectors.iter().any(|vector| vector.is_null_constant()) {
        return Ok(Vector::constant(empty_data(target.repr, 1)?, true));
    }
    let constant = vectors.iter().all(|vector| vector.constant);
    let rows = if constant { 1 } else { rows };
    let unknown = || ColumnError::Internal(format!("{} is no call of a function", target.text));
    let valid = all_valid(vectors, rows);
    let computed = match (vectors, of) {
        ([left, right], Some(of)) if matches!(left.data, Data::Bytes(_)) => {
            distance::of_columns(function, of, left, right, rows).map(|data| Ok((data, None)))
        }
        ([vector], Some(of)) if !matches!(target.repr, Repr::Str) => {
            compute(target, function, of, &vector.data, valid.as_deref())
        }
        _ => {
            let call = text::Call { vectors, rows, valid: valid.as_deref(), made: texts };
            text::compute(function, &call)?.map(|done| done.map(|data| (data, None)))
        }
    };
    let (data, known) = computed.ok_or_else(unknown)?.map_err(|fault| fault.at(target))?;
    let valid = match (valid, known) {
        (None, known) => known,
        (valid, None) => valid,
        (Some(valid), Some(known)) => Some(valid.iter().zip(known).map(|(&v, k)| v & k).collect()),
    };
    let mut result = Vector::with_validity(data, valid);
    result.constant = constant;
    Ok(result)
}

/// Which rows have no NULL among the arguments; `None`: all.
fn all_valid(vectors: &[Shared<'_>], rows: usize) -> Option<Vec<u8>> {
    let mut all: Option<Vec<u8>> = None;
    for valid in vectors.iter().filter_map(|vector| vector.validity_bytes(rows)) {
        match &mut all {
            None => all = Some(valid.into_owned()),
            Some(all) => all.iter_mut().zip(&*valid).for_each(|(a, &v)| *a &= v),
        }
    }
    all
}

/// Values, and which of them are not NULL though their arguments are not either. `None`: no
/// function of such an argument.
type Computed<'a> = Option<Result<(Data<'a>, Option<Vec<u8>>), Fault>>;

fn compute(
    target: Target<'_>,
    function: Function,
    argument: &DataType,
    data: &Data<'_>,
    valid: Option<&[u8]>,
) -> Computed<'static> {
    let all = |data: Data<'static>| Some(Ok((data, None)));
    match (function, data) {
        (Function::DatePart(DatePart::Epoch), data) => {
            all(Data::F64(epoch(argument, data)?.into()))
        }
        (Function::DatePart(part), Data::I32(days)) if part.is_of_day() => {
            let known = in_calendar(days);
            Some(Ok((Data::I32(parts_of_days(part, days)?.into()), known)))
        }
        (Function::DatePart(_), Data::I32(days)) => all(Data::I32(vec![0; days.len()].into())),
        (Function::DatePart(part), Data::I64(moments)) => {
            let ticks = timestamp_ticks(argument)?;
            // A day that 32 bits cannot say lies outside the calendar as their last one does.
            let day = |moment: &i64| {
                let day = moment.div_euclid(ticks * DAY_SECONDS);
                day.clamp(i32::MIN.into(), i32::MAX.into()) as i32
            };
            let days: Vec<i32> = moments.iter().map(day).collect();
            let known = in_calendar(&days);
            let values = if part.is_of_day() {
                parts_of_days(part, &days)?
            } else {
                with_part!(part, [Hour Minute Second Millisecond Microsecond], PART => {
                    moments.iter().map(|&m| part_of_time(PART, m, ticks)).collect()
                })
            };
            Some(Ok((Data::I32(values.into()), known)))
        }
        (Function::InCalendar, data) => {
            let (first, last) = inner_calendar(argument);
            let inside = |moment: i64| first <= moment && moment <= last;
            Some(match data {
                Data::I32(days) => checked(days, valid, |d| inside(d.into()).then_some(d))
                    .map(|days| (Data::I32(days.into()), None)),
                Data::I64(moments) => checked(moments, valid, |m| inside(m).then_some(m))
                    .map(|moments| (Data::I64(moments.into()), None)),
                _ => return None,
            })
        }
        (Function::DateTrunc(part), Data::I64(moments)) => {
            let ticks = timestamp_ticks(argument)?;
            let began = with_part!(
                part,
                [Year Quarter Month Week Day Hour Minute Second Millisecond Microsecond],
                PART => checked(moments, valid, |m| truncated(PART, m, ticks))
            );
            Some(began.map(|values| (Data::I64(values.into()), None)))
        }
        (Function::CharacterLength, Data::Str(texts)) => {
            all(Data::I32(texts.iter().map(|text| text.chars().count() as i32).collect()))
        }
        (Function::OctetLength, Data::Str(texts)) => {
            all(Data::I32(texts.iter().map(|text| text.len() as i32).collect()))
        }
        (Function::Abs, data) => Some(absolute(data, valid)?.map(|data| (data, None))),
        (Function::BitCount, Data::Bytes(values)) => {
            all(Data::I64(distance::ones_of(values).into()))
        }
        (Function::BitCount, data) => all(Data::I64(ones(data)?.into())),
        (Function::Floor | Function::Ceil, Data::I128(values)) => {
            let DataType::Decimal128 { precision, scale } = *target.data_type else { return None };
            let unit = 10i128.checked_pow(u32::try_from(scale).ok()?)?;
            let up = function == Function::Ceil;
            let limit = magnitude_limit(precision).unsigned_abs();
            let whole = |v: i128| {
                let below = v.wrapping_sub(v.rem_euclid(unit));
                let whole = if up && below != v { below.wrapping_add(unit) } else { below };
                (whole.unsigned_abs() < limit).then_some(whole)
            };
            Some(checked(values, valid, whole).map(|v| (Data::I128(v.into()), None)))
        }
        (Function::Floor, data) => all(floats(data, f64::floor, f32::floor)?),
        (Function::Ceil, data) => all(floats(data, f64::ceil, f32::ceil)?),
        (Function::Round(_), Data::I128(values)) => {
            let unit = 10i128.checked_pow(lost_digits(argument, target.data_type)?)?;
            all(Data::I128(values.iter().map(|&v| round_divide(v, unit)).collect()))
        }
        (Function::RoundEven, data) => {
            all(floats(data, f64::round_ties_even, f32::round_ties_even)?)
        }
        (Function::Trunc(_), Data::I128(values)) => {
            let unit = 10i128.checked_pow(lost_digits(argument, target.data_type)?)?;
            all(Data::I128(values.iter().map(|&v| v / unit).collect()))
        }
        (Function::Trunc(_), data) => all(floats(data, f64::trunc, f32::trunc)?),
        (Function::Round(digits), data) => {
            let unit = round_unit(digits);
            let narrow = unit as f32;
            let wide = |v: f64| (v * unit).round() / unit;
            all(floats(data, wide, |v| (v * narrow).round() / narrow)?)
        }
        _ => None,
    }
}

/// Digits after the point that rounding takes from a decimal.
fn lost_digits(from: &DataType, to: &DataType) -> Option<u32> {
    match (from, to) {
        (DataType::Decimal128 { scale: a, .. }, DataType::Decimal128 { scale: b, .. }) => {
            u32::try_from(i32::from(*a) - i32::from(*b)).ok()
        }
        _ => None,
    }
}

/// Which days lie in the calendar; `None`: all.
fn in_calendar(days: &[i32]) -> Option<Vec<u8>> {
    let (first, last) = CALENDAR_DAYS;
    let inside = |&day: &i32| first <= day && day <= last;
    let all = days.iter().fold(true, |all, day| all & inside(day));
    (!all).then(|| days.iter().map(|day| u8::from(inside(day))).collect())
}

/// Parts of days; of those outside the calendar any value.
fn parts_of_days(part: DatePart, days: &[i32]) -> Option<Vec<i32>> {
    let (first, last) = CALENDAR_DAYS;
    Some(with_part!(part, [Year Quarter Month Week Day Dow Isodow Doy Isoyear], PART => {
        days.iter().map(|&day| part_of_day(PART, day.clamp(first, last))).collect()
    }))
}

fn epoch(argument: &DataType, data: &Data<'_>) -> Option<Vec<f64>> {
    Some(match data {
        Data::I32(days) => days.iter().map(|&d| f64::from(d) * DAY_SECONDS as f64).collect(),
        Data::I64(moments) => {
            let ticks = timestamp_ticks(argument)? as f64;
            moments.iter().map(|&moment| moment as f64 / ticks).collect()
        }
        _ => return None,
    })
}

fn floats(
    data: &Data<'_>,
    wide: impl Fn(f64) -> f64,
    narrow: impl Fn(f32) -> f32,
) -> Option<Data<'static>> {
    match data {
        Data::F64(values) => Some(Data::F64(values.iter().map(|&v| wide(v)).collect())),
        Data::F32(values) => Some(Data::F32(values.iter().map(|&v| narrow(v)).collect())),
        _ => None,
    }
}

fn absolute(data: &Data<'_>, valid: Option<&[u8]>) -> Option<Result<Data<'static>, Fault>> {
    macro_rules! signed {
        ($values:expr, $type:ty, $variant:ident) => {
            checked($values, valid, <$type>::checked_abs)
                .map(|values| Data::$variant(Cow::Owned(values)))
        };
    }
    Some(match data {
        Data::I8(values) => signed!(values, i8, I8),
        Data::I16(values) => signed!(values, i16, I16),
        Data::I32(values) => signed!(values, i32, I32),
        Data::I64(values) => signed!(values, i64, I64),
        // Decimals are symmetric.
        Data::I128(values) => Ok(Data::I128(values.iter().map(|v| v.wrapping_abs()).collect())),
        data => Ok(floats(data, f64::abs, f32::abs)?),
    })
}

/// Ones among the bits of integers.
fn ones(data: &Data<'_>) -> Option<Vec<i64>> {
    macro_rules! ones_of {
        ($($variant:ident),*) => {
            match data {
                $(Data::$variant(values) => values.iter().map(|v| v.count_ones().into()).collect(),)*
                _ => return None,
            }
        };
    }
    Some(ones_of!(I8, I16, I32, I64, U8, U16, U32, U64))
}

/// What floats are multiplied by before they are rounded to whole numbers.
pub fn round_unit(digits: u8) -> f64 {
    10f64.powi(digits.into())
}

/// Computes valid rows; `None` of any of them is a fault.
pub(crate) fn checked<T: Copy, U: Default>(
    values: &[T],
    valid: Option<&[u8]>,
    mut f: impl FnMut(T) -> Option<U>,
) -> Result<Vec<U>, Fault> {
    let mut failed = false;
    let computed = values.iter().enumerate().map(|(row, &value)| {
        let result = f(value);
        failed |= result.is_none() && valid.is_none_or(|valid| valid[row] != 0);
        result.unwrap_or_default()
    });
    let computed = computed.collect();
    if failed { Err(Fault::Overflow) } else { Ok(computed) }
}
