//! Types of the pipeline IR and types of Arrow.

use arrow_schema::{DataType as Arrow, TimeUnit as ArrowUnit};
use headrace_ir::{DataType, TimeUnit};

/// The IR's type of values of an Arrow type, whatever their encoding; `None` for types that
/// pipelines do not know. Text lies as `Utf8`, `LargeUtf8`, `Utf8View` or a dictionary of one
/// of them.
pub fn ir_type(data_type: &Arrow) -> Option<DataType> {
    Some(match data_type {
        Arrow::Boolean => DataType::Bool,
        Arrow::Int8 => DataType::Int8,
        Arrow::Int16 => DataType::Int16,
        Arrow::Int32 => DataType::Int32,
        Arrow::Int64 => DataType::Int64,
        Arrow::UInt8 => DataType::UInt8,
        Arrow::UInt16 => DataType::UInt16,
        Arrow::UInt32 => DataType::UInt32,
        Arrow::UInt64 => DataType::UInt64,
        Arrow::Float32 => DataType::Float32,
        Arrow::Float64 => DataType::Float64,
        Arrow::Decimal128(precision, scale) => {
            DataType::Decimal128 { precision: *precision, scale: *scale }
        }
        Arrow::Date32 => DataType::Date32,
        Arrow::Time64(unit) => DataType::Time64(ir_unit(*unit)),
        Arrow::Timestamp(unit, timezone) => DataType::Timestamp {
            unit: ir_unit(*unit),
            timezone: timezone.as_ref().map(ToString::to_string),
        },
        Arrow::Utf8 | Arrow::LargeUtf8 | Arrow::Utf8View => DataType::Utf8,
        Arrow::Binary | Arrow::LargeBinary | Arrow::BinaryView => DataType::Binary,
        Arrow::FixedSizeBinary(bytes) => DataType::FixedBinary(u32::try_from(*bytes).ok()?),
        Arrow::Dictionary(_, values) if is_text(values) => DataType::Utf8,
        _ => return None,
    })
}

/// The type that a table's column has where a file's has this one: decimals of few digits may lie in 4 or 8 bytes, and are
/// decimals like others.
pub(crate) fn table_type(data_type: &Arrow) -> Arrow {
    match data_type {
        Arrow::Decimal32(precision, scale) | Arrow::Decimal64(precision, scale) => {
            Arrow::Decimal128(*precision, *scale)
        }
        other => other.clone(),
    }
}

/// Text in one of its three plain layouts.
pub(crate) fn is_text(data_type: &Arrow) -> bool {
    matches!(data_type, Arrow::Utf8 | Arrow::LargeUtf8 | Arrow::Utf8View)
}

fn ir_unit(unit: ArrowUnit) -> TimeUnit {
    match unit {
        ArrowUnit::Second => TimeUnit::Second,
        ArrowUnit::Millisecond => TimeUnit::Millisecond,
        ArrowUnit::Microsecond => TimeUnit::Microsecond,
        ArrowUnit::Nanosecond => TimeUnit::Nanosecond,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn dictionaries_of_text_are_text_and_nested_types_are_unknown() {
        let dictionary = |values| Arrow::Dictionary(Box::new(Arrow::Int8), Box::new(values));
        assert_eq!(ir_type(&dictionary(Arrow::LargeUtf8)), Some(DataType::Utf8));
        assert_eq!(ir_type(&dictionary(Arrow::Int64)), None);
        assert_eq!(ir_type(&Arrow::Null), None);
        assert_eq!(ir_type(&Arrow::Time32(ArrowUnit::Second)), None);
        assert_eq!(ir_type(&Arrow::new_list(Arrow::Int32, true)), None);
    }
}
