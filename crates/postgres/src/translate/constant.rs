//! Values of the server as constants of a program.

use std::ops::{Range, RangeInclusive};

use headrace_format::heap;
use headrace_ir::{DataType, Interval, Scalar, Value};
use pgrx::pg_sys::{self, Datum, Oid};
use pgrx::{FromDatum, IntoDatum};

use super::types::{ir_type, stored};
use super::zone;
use crate::nodes::{self, WhyNot, why_not};

/// Days, and microseconds, from 1970, where PostgreSQL's calendar begins.
pub const EPOCH_DAYS: i32 = 10_957;
pub const EPOCH_MICROSECONDS: i64 = 946_684_800_000_000;

/// What PostgreSQL's calendar has: days and microseconds from 2000, and microseconds of a day, whose end
/// is one of its times.
pub const DAYS: Range<i32> = -2_451_545..2_145_031_949;
pub const MICROSECONDS: Range<i64> = -211_813_488_000_000_000..9_223_371_331_200_000_000;
pub const TIMES: RangeInclusive<i64> = 0..=86_400_000_000;

/// A value, which is not NULL, as a constant of a type that has it.
///
/// # Errors
/// It has no counterpart: NaN of `numeric`, infinities of dates.
pub unsafe fn value(datum: Datum, oid: Oid, of: &DataType) -> Result<Scalar, WhyNot> {
    if *of == DataType::Binary {
        // No value of SQL: what functions of moments take.
        return match oid {
            pg_sys::INTERVALOID => Ok(interval(datum)?.scalar()),
            _ => Ok(zone::session()?.scalar()),
        };
    }
    let value = match stored(oid, -1).0 {
        pg_sys::ANYENUMOID => Value::Int((datum.value() as i32).into()),
        pg_sys::BOOLOID => Value::Bool(get(datum)?),
        pg_sys::INT2OID => Value::Int(get::<i16>(datum)?.into()),
        pg_sys::INT4OID => Value::Int(get::<i32>(datum)?.into()),
        pg_sys::INT8OID => Value::Int(get::<i64>(datum)?.into()),
        pg_sys::FLOAT4OID => Value::Float(get::<f32>(datum)?.into()),
        pg_sys::FLOAT8OID => Value::Float(get(datum)?),
        pg_sys::DATEOID => Value::Int(days(datum)?.into()),
        pg_sys::TIMEOID => Value::Int(time(datum)?.into()),
        pg_sys::TIMESTAMPOID | pg_sys::TIMESTAMPTZOID => Value::Int(microseconds(datum)?.into()),
        pg_sys::TEXTOID | pg_sys::VARCHAROID | pg_sys::BPCHAROID => Value::Utf8(text(datum)?),
        pg_sys::UUIDOID => Value::Utf8(uuid(datum)),
        pg_sys::NUMERICOID => {
            let DataType::Decimal128 { scale, .. } = of else { return why_not("numeric") };
            Value::Int(decimal(datum, *scale)?)
        }
        other => return why_not(format!("a value of type {}", super::name_of(other, -1))),
    };
    let scalar = Scalar::new(of.clone(), value);
    match scalar.is_of_its_type() {
        true => Ok(scalar),
        false => why_not(format!("{scalar} is no {of}")),
    }
}

unsafe fn get<T: FromDatum>(datum: Datum) -> Result<T, WhyNot> {
    T::from_datum(datum, false).ok_or_else(|| WhyNot("a value that cannot be read".into()))
}

/// Days from 1970 of a date.
pub unsafe fn days(datum: Datum) -> Result<i32, WhyNot> {
    match datum.value() as i32 {
        i32::MIN | i32::MAX => why_not("an infinite date"),
        days => days.checked_add(EPOCH_DAYS).ok_or_else(|| WhyNot("a date beyond 32 bits".into())),
    }
}

/// Microseconds from 1970 of a timestamp.
pub unsafe fn microseconds(datum: Datum) -> Result<i64, WhyNot> {
    match datum.value() as i64 {
        i64::MIN | i64::MAX => why_not("an infinite timestamp"),
        moment => moment
            .checked_add(EPOCH_MICROSECONDS)
            .ok_or_else(|| WhyNot("a timestamp beyond 64 bits".into())),
    }
}

/// An interval's parts.
pub unsafe fn interval(datum: Datum) -> Result<Interval, WhyNot> {
    let pg_sys::Interval { time, day, month } = *datum.cast_mut_ptr::<pg_sys::Interval>();
    match (month, day, time) {
        (i32::MIN, i32::MIN, i64::MIN) | (i32::MAX, i32::MAX, i64::MAX) => {
            why_not("an infinite interval")
        }
        (months, days, microseconds) => Ok(Interval { months, days, microseconds }),
    }
}

/// Microseconds since midnight.
pub unsafe fn time(datum: Datum) -> Result<i64, WhyNot> {
    const DAY: i64 = 86_400_000_000;
    match datum.value() as i64 {
        time @ 0..DAY => Ok(time),
        _ => why_not("24:00:00"),
    }
}

/// A text in UTF-8, detoasted.
pub unsafe fn text(datum: Datum) -> Result<String, WhyNot> {
    let packed = pg_sys::pg_detoast_datum_packed(datum.cast_mut_ptr());
    let text = std::slice::from_raw_parts(
        pgrx::varlena::vardata_any(packed).cast::<u8>(),
        pgrx::varlena::varsize_any_exhdr(packed),
    );
    let owned = std::str::from_utf8(text).map(str::to_string);
    if packed.cast() != datum.cast_mut_ptr::<std::ffi::c_void>() {
        pg_sys::pfree(packed.cast());
    }
    owned.map_err(|_| WhyNot("a text that is not UTF-8".into()))
}

/// The text of a uuid.
pub unsafe fn uuid(datum: Datum) -> String {
    heap::uuid::text(*datum.cast_mut_ptr()).map(char::from).iter().collect()
}

/// The unscaled value of a decimal with so many digits behind the point: exactly.
pub unsafe fn decimal(datum: Datum, scale: i8) -> Result<i128, WhyNot> {
    let (unscaled, shown) = shown_decimal(datum)?;
    let more = i32::from(scale) - i32::from(shown);
    let fits = || WhyNot("a number of more digits than a decimal of 128 bits has".into());
    if more >= 0 {
        let factor = 10_i128.checked_pow(more as u32).ok_or_else(fits)?;
        return unscaled.checked_mul(factor).ok_or_else(fits);
    }
    let factor = 10_i128.checked_pow(more.unsigned_abs()).ok_or_else(fits)?;
    match unscaled % factor {
        0 => Ok(unscaled / factor),
        _ => why_not("a number with more digits behind the point than its type"),
    }
}

/// A number's digits, and how many of them it shows behind the point.
pub unsafe fn shown_decimal(datum: Datum) -> Result<(i128, u8), WhyNot> {
    let argument = [Some(datum)];
    let text = pgrx::direct_function_call_as_datum(pg_sys::numeric_out, &argument);
    let text = text.ok_or_else(|| WhyNot("a number that cannot be read".into()))?;
    let shown = nodes::owned(text.cast_mut_ptr());
    pg_sys::pfree(text.cast_mut_ptr());
    let digits_behind = shown.split_once('.').map_or(0, |(_, behind)| behind.len());
    let unscaled = shown.replace('.', "").parse::<i128>();
    match (unscaled, u8::try_from(digits_behind)) {
        (Ok(unscaled), Ok(scale)) if scale <= 38 => Ok((unscaled, scale)),
        _ => why_not(format!("the number {shown}")),
    }
}

/// A decimal as PostgreSQL's number that shows all of its digits behind the point.
pub unsafe fn numeric(unscaled: i128, scale: i8) -> Option<Datum> {
    if let (Ok(small), 0..) = (i64::try_from(unscaled), scale) {
        return Some(Datum::from(pg_sys::int64_div_fast_to_numeric(small, scale.into())));
    }
    let digits = unscaled.unsigned_abs().to_string();
    let behind = usize::try_from(scale).unwrap_or(0);
    let digits = format!("{digits:0>width$}", width = behind + 1);
    let (whole, fraction) = digits.split_at(digits.len() - behind);
    let sign = if unscaled < 0 { "-" } else { "" };
    let point = if behind > 0 { "." } else { "" };
    let text = nodes::c_string(&format!("{sign}{whole}{point}{fraction}"));
    let arguments = [Some(Datum::from(text.as_ptr())), 0_i32.into_datum(), (-1_i32).into_datum()];
    pgrx::direct_function_call_as_datum(pg_sys::numeric_in, &arguments)
}

/// A constant; digits behind the point are those that it shows.
pub unsafe fn scalar(constant: &pg_sys::Const) -> Result<Scalar, WhyNot> {
    let (oid, typmod) = (constant.consttype, constant.consttypmod);
    if oid == pg_sys::NUMERICOID && !constant.constisnull {
        let (unscaled, scale) = shown_decimal(constant.constvalue)?;
        let digits = unscaled.unsigned_abs().to_string().len() as u8;
        let precision = digits.max(scale).max(1);
        if precision > 38 {
            return why_not("a number of more than 38 digits");
        }
        let data_type = DataType::Decimal128 { precision, scale: scale as i8 };
        return Ok(Scalar::new(data_type, Value::Int(unscaled)));
    }
    let data_type = match oid {
        pg_sys::NUMERICOID => DataType::Decimal128 { precision: 1, scale: 0 },
        _ => ir_type(oid, typmod)?,
    };
    match constant.constisnull {
        true => Ok(Scalar::null(data_type)),
        false => value(constant.constvalue, oid, &data_type),
    }
}
