//! Constants as the IR has them.

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::datatypes::{DataType as ArrowType, Float32Type, Float64Type};
use datafusion::common::ScalarValue;
use headrace_format::arrow::ir_type;
use headrace_ir::{Scalar, Value};
use headrace_pipeline::WhyNot;

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
        ScalarValue::FixedSizeList(list) => floats(list.values()).map(Value::Binary),
        _ => None,
    }
}

/// The floats of a list without a NULL among them.
fn floats(values: &ArrayRef) -> Option<Vec<u8>> {
    let floats = match values.data_type() {
        ArrowType::Float32 => values.as_primitive::<Float32Type>().values().inner(),
        ArrowType::Float64 => values.as_primitive::<Float64Type>().values().inner(),
        _ => return None,
    };
    (values.null_count() == 0).then(|| floats.to_vec())
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
