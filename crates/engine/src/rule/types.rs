//! Arrow types and constants as the IR has them.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType as ArrowType, TimeUnit as ArrowTimeUnit};
use datafusion::common::ScalarValue;
use headrace_ir::{DataType, Scalar, TimeUnit, Value};
use headrace_pipeline::WhyNot;

/// The IR type of an Arrow type; dictionary and view layouts of text are text.
pub fn ir_type(data_type: &ArrowType) -> Option<DataType> {
    Some(match data_type {
        ArrowType::Boolean => DataType::Bool,
        ArrowType::Int8 => DataType::Int8,
        ArrowType::Int16 => DataType::Int16,
        ArrowType::Int32 => DataType::Int32,
        ArrowType::Int64 => DataType::Int64,
        ArrowType::UInt8 => DataType::UInt8,
        ArrowType::UInt16 => DataType::UInt16,
        ArrowType::UInt32 => DataType::UInt32,
        ArrowType::UInt64 => DataType::UInt64,
        ArrowType::Float32 => DataType::Float32,
        ArrowType::Float64 => DataType::Float64,
        ArrowType::Decimal128(precision, scale) => {
            DataType::Decimal128 { precision: *precision, scale: *scale }
        }
        ArrowType::Date32 => DataType::Date32,
        ArrowType::Time64(unit) => DataType::Time64(time_unit(unit)),
        ArrowType::Timestamp(unit, timezone) => DataType::Timestamp {
            unit: time_unit(unit),
            timezone: timezone.as_ref().map(ToString::to_string),
        },
        ArrowType::Utf8 | ArrowType::LargeUtf8 | ArrowType::Utf8View => DataType::Utf8,
        ArrowType::Dictionary(_, values) if is_text(values) => DataType::Utf8,
        ArrowType::Binary | ArrowType::LargeBinary | ArrowType::BinaryView => DataType::Binary,
        ArrowType::FixedSizeBinary(bytes) => DataType::FixedBinary(u32::try_from(*bytes).ok()?),
        _ => return None,
    })
}

/// The plain Arrow type of an IR type (text as Utf8).
pub fn arrow_type(data_type: &DataType) -> ArrowType {
    match data_type {
        DataType::Bool => ArrowType::Boolean,
        DataType::Int8 => ArrowType::Int8,
        DataType::Int16 => ArrowType::Int16,
        DataType::Int32 => ArrowType::Int32,
        DataType::Int64 => ArrowType::Int64,
        DataType::UInt8 => ArrowType::UInt8,
        DataType::UInt16 => ArrowType::UInt16,
        DataType::UInt32 => ArrowType::UInt32,
        DataType::UInt64 => ArrowType::UInt64,
        DataType::Float32 => ArrowType::Float32,
        DataType::Float64 => ArrowType::Float64,
        DataType::Decimal128 { precision, scale } => ArrowType::Decimal128(*precision, *scale),
        DataType::Date32 => ArrowType::Date32,
        DataType::Time64(unit) => ArrowType::Time64(arrow_unit(*unit)),
        DataType::Timestamp { unit, timezone } => {
            ArrowType::Timestamp(arrow_unit(*unit), timezone.as_deref().map(Arc::from))
        }
        DataType::Utf8 => ArrowType::Utf8,
        DataType::Binary => ArrowType::Binary,
        DataType::FixedBinary(bytes) => {
            ArrowType::FixedSizeBinary(i32::try_from(*bytes).unwrap_or(i32::MAX))
        }
    }
}

fn is_text(data_type: &ArrowType) -> bool {
    matches!(data_type, ArrowType::Utf8 | ArrowType::LargeUtf8 | ArrowType::Utf8View)
}

fn time_unit(unit: &ArrowTimeUnit) -> TimeUnit {
    match unit {
        ArrowTimeUnit::Second => TimeUnit::Second,
        ArrowTimeUnit::Millisecond => TimeUnit::Millisecond,
        ArrowTimeUnit::Microsecond => TimeUnit::Microsecond,
        ArrowTimeUnit::Nanosecond => TimeUnit::Nanosecond,
    }
}

fn arrow_unit(unit: TimeUnit) -> ArrowTimeUnit {
    match unit {
        TimeUnit::Second => ArrowTimeUnit::Second,
        TimeUnit::Millisecond => ArrowTimeUnit::Millisecond,
        TimeUnit::Microsecond => ArrowTimeUnit::Microsecond,
        TimeUnit::Nanosecond => ArrowTimeUnit::Nanosecond,
    }
}

/// A constant. A typeless NULL has no IR type: its user must know which one is meant.
pub fn scalar(value: &ScalarValue) -> Result<Scalar, WhyNot> {
    if let ScalarValue::Dictionary(_, inner) = value {
        return scalar(inner);
    }
    let arrow = value.data_type();
    let data_type = ir_type(&arrow)
        .ok_or_else(|| WhyNot::new(format!("constants of type {arrow} are not supported")))?;
    if value.is_null() {
        return Ok(Scalar::null(data_type));
    }
    let value = scalar_value(value)
        .ok_or_else(|| WhyNot::new(format!("constants of type {arrow} are not supported")))?;
    Ok(Scalar::new(data_type, value))
}

fn scalar_value(value: &ScalarValue) -> Option<Value> {
    let int = |v: i128| Some(Value::Int(v));
    match value {
        ScalarValue::Boolean(v) => v.map(Value::Bool),
        ScalarValue::Int8(v) => int((*v)?.into()),
        ScalarValue::Int16(v) => int((*v)?.into()),
        ScalarValue::Int32(v) | ScalarValue::Date32(v) => int((*v)?.into()),
        ScalarValue::Int64(v)
        | ScalarValue::Time64Microsecond(v)
        | ScalarValue::Time64Nanosecond(v)
        | ScalarValue::TimestampSecond(v, _)
        | ScalarValue::TimestampMillisecond(v, _)
        | ScalarValue::TimestampMicrosecond(v, _)
        | ScalarValue::TimestampNanosecond(v, _) => int((*v)?.into()),
        ScalarValue::UInt8(v) => int((*v)?.into()),
        ScalarValue::UInt16(v) => int((*v)?.into()),
        ScalarValue::UInt32(v) => int((*v)?.into()),
        ScalarValue::UInt64(v) => int((*v)?.into()),
        ScalarValue::Decimal128(v, _, _) => int((*v)?),
        ScalarValue::Float32(v) => v.map(|v| Value::Float(v.into())),
        ScalarValue::Float64(v) => v.map(Value::Float),
        ScalarValue::Utf8(v) | ScalarValue::LargeUtf8(v) | ScalarValue::Utf8View(v) => {
            v.clone().map(Value::Utf8)
        }
        ScalarValue::Binary(v)
        | ScalarValue::LargeBinary(v)
        | ScalarValue::BinaryView(v)
        | ScalarValue::FixedSizeBinary(_, v) => v.clone().map(Value::Binary),
        _ => None,
    }
}

/// The constant of a type whose values are integers (integers, dates, times, timestamps).
pub fn integer_scalar(data_type: &ArrowType, value: i64) -> Option<ScalarValue> {
    Some(match data_type {
        ArrowType::Int8 => ScalarValue::Int8(Some(value.try_into().ok()?)),
        ArrowType::Int16 => ScalarValue::Int16(Some(value.try_into().ok()?)),
        ArrowType::Int32 => ScalarValue::Int32(Some(value.try_into().ok()?)),
        ArrowType::Int64 => ScalarValue::Int64(Some(value)),
        ArrowType::UInt8 => ScalarValue::UInt8(Some(value.try_into().ok()?)),
        ArrowType::UInt16 => ScalarValue::UInt16(Some(value.try_into().ok()?)),
        ArrowType::UInt32 => ScalarValue::UInt32(Some(value.try_into().ok()?)),
        ArrowType::Date32 => ScalarValue::Date32(Some(value.try_into().ok()?)),
        _ => return None,
    })
}
