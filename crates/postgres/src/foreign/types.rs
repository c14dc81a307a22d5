//! Which types of Arrow are which of PostgreSQL.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{TimestampMicrosecondType, TimestampNanosecondType};
use arrow_array::{Array, ArrayRef, make_array};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_data::transform::MutableArrayData;
use arrow_schema::{DataType, Field, TimeUnit};
use headrace_columns::column::arrow_type;
use headrace_format::arrow::ir_type as pipeline_type;
use pgrx::pg_sys::{self, Oid};

use crate::nodes::{WhyNot, why_not};
use crate::translate::{ir_type, name_of};

/// Digits of the second that PostgreSQL has at most.
const SECOND_DIGITS_MAX: i32 = 6;

/// The SQL type that a file's column is imported as.
///
/// # Errors
/// PostgreSQL has none for it.
pub fn sql_type(field: &Field) -> Result<String, WhyNot> {
    let is_uuid = field.metadata().get("ARROW:extension:name").is_some_and(|n| n == "arrow.uuid");
    Ok(match field.data_type() {
        DataType::Boolean => "boolean",
        DataType::Int8 | DataType::UInt8 | DataType::Int16 => "smallint",
        DataType::UInt16 | DataType::Int32 => "integer",
        DataType::UInt32 | DataType::Int64 => "bigint",
        DataType::UInt64 => "numeric(20,0)",
        DataType::Float16 | DataType::Float32 => "real",
        DataType::Float64 => "double precision",
        DataType::Decimal128(precision, scale) if (0..=*precision as i8).contains(scale) => {
            return Ok(format!("numeric({precision},{scale})"));
        }
        DataType::Date32 | DataType::Date64 => "date",
        DataType::Time32(_) | DataType::Time64(_) => "time",
        DataType::Timestamp(_, None) => "timestamp",
        DataType::Timestamp(_, Some(_)) => "timestamptz",
        DataType::FixedSizeBinary(16) if is_uuid => "uuid",
        DataType::FixedSizeBinary(_)
        | DataType::Binary
        | DataType::LargeBinary
        | DataType::BinaryView => "bytea",
        other if is_text(other) => "text",
        other => return why_not(format!("type {other} has no counterpart in PostgreSQL")),
    }
    .into())
}

fn is_text(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, values) => is_text(values),
        other => matches!(other, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View),
    }
}

/// The one type of Arrow that values of a declared type are read as.
///
/// # Errors
/// There is none.
pub unsafe fn read_as(oid: Oid, typmod: i32) -> Result<DataType, WhyNot> {
    let is_moment = matches!(oid, pg_sys::TIMEOID | pg_sys::TIMESTAMPOID | pg_sys::TIMESTAMPTZOID);
    if oid == pg_sys::BPCHAROID || (oid == pg_sys::VARCHAROID && typmod >= 0) {
        return why_not("texts of files have no declared length: declare it text");
    }
    if oid.to_u32() >= pg_sys::FirstNormalObjectId {
        return why_not(format!("type {}", name_of(oid, typmod)));
    }
    if is_moment && (0..SECOND_DIGITS_MAX).contains(&typmod) {
        return why_not("moments of files have microseconds: declare it without digits");
    }
    match oid {
        pg_sys::BYTEAOID => Ok(DataType::Binary),
        pg_sys::UUIDOID => Ok(DataType::FixedSizeBinary(16)),
        _ => ir_type(oid, typmod).map(|data_type| arrow_type(&data_type)),
    }
}

/// Whether every value of a file's type is, as PostgreSQL shows it, one of the type that it is read as.
/// Nanoseconds are cut off, towards the past.
pub fn converts(file: &DataType, wanted: &DataType) -> bool {
    use DataType as T;
    match (file, wanted) {
        (T::UInt64, T::Decimal128(20.., 0)) | (T::Float16, T::Float32) => true,
        (T::Date64, T::Date32) | (T::Time32(_) | T::Time64(_), T::Time64(_)) => true,
        (T::Decimal128(digits, scale), T::Decimal128(wanted, wanted_scale)) => {
            scale == wanted_scale && digits <= wanted
        }
        (T::Timestamp(_, zone), T::Timestamp(_, wanted)) => zone.is_some() == wanted.is_some(),
        (T::FixedSizeBinary(_) | T::LargeBinary | T::BinaryView, T::Binary) => true,
        (text, T::Utf8) => is_text(text),
        _ => file == wanted || is_wider_integer(file, wanted),
    }
}

fn is_wider_integer(file: &DataType, wanted: &DataType) -> bool {
    let range = |data_type| pipeline_type(data_type).and_then(|known| known.integer_range());
    let both_integers = file.is_integer() && wanted.is_integer();
    match (range(file), range(wanted)) {
        (Some((min, max)), Some((low, high))) => both_integers && low <= min && max <= high,
        _ => false,
    }
}

/// Values of a slice, of a file's type, in the type that they are read as: in memory of their own, since
/// the file may change.
///
/// # Errors
/// A value that the type does not have.
pub fn converted(array: &ArrayRef, wanted: &DataType) -> Result<ArrayRef, WhyNot> {
    let array = match array.data_type() {
        // Checked, and copied for that, when they were read.
        DataType::Boolean | DataType::Dictionary(..) => Arc::clone(array),
        fixed if fixed.primitive_width().is_some() => copied(array)?,
        DataType::FixedSizeBinary(_) => copied(array)?,
        _ => Arc::clone(array),
    };
    if array.data_type() == wanted {
        return Ok(array);
    }
    if let (DataType::Timestamp(TimeUnit::Nanosecond, _), DataType::Timestamp(_, zone)) =
        (array.data_type(), wanted)
    {
        let moments = array.as_primitive::<TimestampNanosecondType>();
        let floored =
            moments.unary::<_, TimestampMicrosecondType>(|moment| moment.div_euclid(1000));
        return Ok(Arc::new(floored.with_timezone_opt(zone.clone())));
    }
    let options = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(&array, wanted, &options).map_err(|error| WhyNot(error.to_string()))
}

fn copied(array: &ArrayRef) -> Result<ArrayRef, WhyNot> {
    let data = array.to_data();
    let mut copy = MutableArrayData::new(vec![&data], false, array.len());
    copy.try_extend(0, 0, array.len()).map_err(|error| WhyNot(error.to_string()))?;
    Ok(make_array(copy.freeze()))
}

/// The reason why a file's column is not what its foreign table declares.
pub unsafe fn mismatch(name: &str, field: &Field, oid: Oid, typmod: i32) -> String {
    let declared = name_of(oid, typmod);
    let remedy = match sql_type(field) {
        Ok(wanted) => format!("declare it {wanted}"),
        Err(WhyNot(reason)) => reason,
    };
    format!(
        "column \"{name}\" is {} in the files, and declared as {declared}: {remedy}",
        field.data_type()
    )
}
