//! Types of the pipeline IR and types of Arrow.
//!
//! A file may hold narrower types than its table (`narrow_schema`): decimals in 4 or 8 bytes, signed integers in 1,
//! 2 or 4. The column's metadata (`headrace.type`) names the table's type; other programs see an integer or a
//! decimal of fewer digits.

use std::ops::RangeInclusive;
use std::sync::Arc;

use arrow_schema::{DataType as Arrow, Field, Schema, TimeUnit as ArrowUnit};
use headrace_ir::{DataType, Encoding, TimeUnit};

use super::packed::{BASE_KEY, Packed, TABLE_TYPE_KEY, decimal_said, value_type};

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
        Arrow::FixedSizeBinary(bytes) if *bytes > 0 => {
            DataType::FixedBinary(u32::try_from(*bytes).ok()?)
        }
        Arrow::FixedSizeList(item, items) if *items > 0 => {
            let item_bytes = match item.data_type() {
                Arrow::Float32 => 4,
                Arrow::Float64 => 8,
                _ => return None,
            };
            DataType::FloatList { item_bytes, items: u32::try_from(*items).ok()? }
        }
        Arrow::Dictionary(_, values) if is_text(values) => DataType::Utf8,
        _ => return None,
    })
}

/// Signed integers with their maxima.
static INTEGERS: [(Arrow, i64); 4] = [
    (Arrow::Int8, i8::MAX as i64),
    (Arrow::Int16, i16::MAX as i64),
    (Arrow::Int32, i32::MAX as i64),
    (Arrow::Int64, i64::MAX),
];

/// The integers narrower than a type; none for another type.
fn narrower(wide: &Arrow) -> &'static [(Arrow, i64)] {
    let place = INTEGERS.iter().position(|(integer, _)| integer == wide);
    &INTEGERS[..place.unwrap_or(0)]
}

/// The table's type for a file's column. Decimals may be stored in 4 or 8 bytes, with as many digits as fit, and
/// integers in fewer bytes: this is an encoding, not a type.
pub(crate) fn table_type(field: &Field) -> Arrow {
    let said = field.metadata().get(TABLE_TYPE_KEY);
    match *field.data_type() {
        Arrow::Decimal32(precision, scale) | Arrow::Decimal64(precision, scale) => {
            let wide = match said.and_then(|said| decimal_said(said)) {
                Some(Arrow::Decimal128(digits, its_scale)) if its_scale == scale => digits,
                _ => precision,
            };
            Arrow::Decimal128(wide.max(precision), scale)
        }
        Arrow::FixedSizeBinary(_) => value_type(field),
        ref own => {
            let is_said = |wide: &Arrow| said.is_some_and(|said| *said == wide.to_string());
            let lies_in_own = |wide: &Arrow| narrower(wide).iter().any(|(it, _)| it == own);
            let wide = INTEGERS.iter().find(|(wide, _)| lies_in_own(wide) && is_said(wide));
            wide.map_or(own, |(wide, _)| wide).clone()
        }
    }
}

/// The same columns in fewer bytes: decimals as their digits allow, and decimals and signed integers as the bounds of
/// their values allow, if these are known (unscaled for a decimal). They read as their original type at a fraction of
/// the bytes; other programs read integers of 1, 2 or 4 bytes, and decimals of 4 and 8 with Arrow's libraries of
/// version 19 (2025) and later.
pub fn narrow_schema(
    schema: &Schema,
    bounds: impl Fn(&Field) -> Option<RangeInclusive<i128>>,
) -> Schema {
    let fields: Vec<Field> =
        schema.fields().iter().map(|field| narrow_field(field, bounds(field))).collect();
    Schema::new_with_metadata(fields, schema.metadata().clone())
}

pub(crate) fn narrow_field(field: &Field, bounds: Option<RangeInclusive<i128>>) -> Field {
    let within = |most: i128| {
        bounds.as_ref().is_some_and(|range| *range.start() >= -most && *range.end() <= most)
    };
    // A value may have more digits than its type says: what is known of the values goes first.
    let fits = |precision: u8, digits: u8| match bounds {
        None => precision <= digits,
        Some(_) => within(10_i128.pow(digits.into()) - 1),
    };
    let own = field.data_type();
    let narrow = match *own {
        Arrow::Decimal128(precision, scale) if fits(precision, 9) && scale <= 9 => {
            Arrow::Decimal32(precision.min(9), scale)
        }
        Arrow::Decimal128(precision, scale) if fits(precision, 18) && scale <= 18 => {
            Arrow::Decimal64(precision.min(18), scale)
        }
        ref own => {
            let fitting = narrower(own).iter().find(|(_, most)| within((*most).into()));
            fitting.map_or(own, |(integer, _)| integer).clone()
        }
    };
    let mut narrow = field.clone().with_data_type(narrow);
    let is = table_type(field);
    if table_type(&narrow) != is {
        narrow.metadata_mut().insert(TABLE_TYPE_KEY.into(), is.to_string());
    }
    narrow
}

/// The same columns in the fewest bytes: narrow as in [`narrow_schema`], and packed where that
/// takes fewer bytes. Other programs see packed columns as binary values.
pub fn packed_schema(
    schema: &Schema,
    bounds: impl Fn(&Field) -> Option<RangeInclusive<i128>>,
) -> Schema {
    let pack = |own: &Arc<Field>| {
        let bounds = bounds(own);
        let narrow = narrow_field(own, bounds.clone());
        let packed = bounds.and_then(|bounds| Packed::for_values(table_type(&narrow), &bounds));
        let fewer = |packed: &Packed| {
            narrow
                .data_type()
                .primitive_width()
                .is_some_and(|width| usize::from(packed.delta_bytes) < width)
        };
        match packed.filter(fewer) {
            None => narrow,
            Some(packed) => {
                let width = Arrow::FixedSizeBinary(packed.delta_bytes.into());
                let mut field = narrow.with_data_type(width);
                field.metadata_mut().insert(TABLE_TYPE_KEY.into(), packed.is.to_string());
                field.metadata_mut().insert(BASE_KEY.into(), packed.base.to_string());
                field
            }
        }
    };
    let fields: Vec<Field> = schema.fields().iter().map(pack).collect();
    Schema::new_with_metadata(fields, schema.metadata().clone())
}

/// Removes the table's type from a file's column.
pub(crate) fn without_table_type(mut field: Field) -> Field {
    field.metadata_mut().remove(TABLE_TYPE_KEY);
    field.metadata_mut().remove(BASE_KEY);
    field
}

/// Text in one of its three plain layouts.
pub(crate) fn is_text(data_type: &Arrow) -> bool {
    matches!(data_type, Arrow::Utf8 | Arrow::LargeUtf8 | Arrow::Utf8View)
}

/// The encoding of an Arrow type in the pipeline IR; `None` for unknown types and for views.
pub(crate) fn encoding(data_type: &Arrow) -> Option<Encoding> {
    Some(match data_type {
        Arrow::Boolean => Encoding::Bits,
        Arrow::Decimal32(_, _) => Encoding::Narrow { value_bytes: 4 },
        Arrow::Decimal64(_, _) => Encoding::Narrow { value_bytes: 8 },
        Arrow::Utf8 | Arrow::Binary => Encoding::Offsets { offset_bytes: 4 },
        Arrow::LargeUtf8 | Arrow::LargeBinary => Encoding::Offsets { offset_bytes: 8 },
        Arrow::Dictionary(key, values) if is_text(values) => {
            Encoding::Dictionary { code_bytes: u8::try_from(key.primitive_width()?).ok()? }
        }
        other => {
            ir_type(other)?.plain_width_bytes()?;
            Encoding::Plain
        }
    })
}

/// Bits of a value, code or offset; `None` where [`encoding`] is.
pub(crate) fn row_bits(data_type: &Arrow) -> Option<u64> {
    Some(match encoding(data_type)? {
        Encoding::Bits => 1,
        Encoding::Plain => 8 * ir_type(data_type)?.plain_width_bytes()? as u64,
        Encoding::Narrow { value_bytes: bytes }
        | Encoding::Dictionary { code_bytes: bytes }
        | Encoding::Offsets { offset_bytes: bytes } => 8 * u64::from(bytes),
        Encoding::Deltas { .. }
        | Encoding::Pages { .. }
        | Encoding::ColumnPages
        | Encoding::Constant { .. } => {
            return None;
        }
    })
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

    #[test]
    fn a_file_says_what_its_narrow_columns_are() {
        let schema = Schema::new(vec![
            Field::new("key", Arrow::Int64, false),
            Field::new("year", Arrow::Int64, true),
            Field::new("size", Arrow::Int32, true),
            Field::new("byte", Arrow::Int8, true),
            Field::new("natural", Arrow::UInt32, true),
            Field::new("many", Arrow::Decimal128(38, 2), true),
            Field::new("fraction", Arrow::Decimal128(38, 12), true),
            Field::new("few", Arrow::Decimal128(9, 2), true),
            Field::new("text", Arrow::Utf8, true),
        ]);
        let most = |field: &Field| match field.name().as_str() {
            "key" => Some(i128::from(i32::MIN) + 1..=0),
            "year" => Some(0..=i16::MAX.into()),
            "size" | "byte" | "natural" => Some(1..=50),
            _ => Some(-999_999_999..=0),
        };
        let narrow = narrow_schema(&schema, most);
        let types: Vec<_> = narrow.fields().iter().map(|field| field.data_type()).collect();
        let wanted = [
            &Arrow::Int32,
            &Arrow::Int16,
            &Arrow::Int8,
            &Arrow::Int8,
            &Arrow::UInt32,
            &Arrow::Decimal32(9, 2),
            &Arrow::Decimal64(18, 12),
            &Arrow::Decimal32(9, 2),
            &Arrow::Utf8,
        ];
        assert_eq!(types, wanted);
        for (own, narrow) in schema.fields().iter().zip(narrow.fields()) {
            assert_eq!(table_type(narrow), *own.data_type());
        }
        assert_eq!(narrow_schema(&narrow, most), narrow);
        // One more, or nothing that is known.
        let wide = narrow_schema(&schema, |_| Some(0..=1_000_000_000_000_000_000));
        assert_eq!(wide.field(0), schema.field(0));
        let of = |schema: &Schema, name: &str| schema.field_with_name(name).unwrap().clone();
        assert_eq!(of(&wide, "many"), of(&schema, "many"));
        let beyond = narrow_schema(&schema, |_| Some(0..=1_000_000_000));
        assert_eq!(
            of(&beyond, "few").data_type(),
            &Arrow::Decimal64(9, 2),
            "more digits than it says"
        );
        let unknown = narrow_schema(&schema, |_| None);
        assert_eq!(of(&unknown, "many"), of(&schema, "many"));
        assert_eq!(of(&unknown, "few").data_type(), &Arrow::Decimal32(9, 2));
    }

    #[test]
    fn what_a_file_says_of_other_types_is_ignored() {
        let said = |data_type: Arrow, said: &str| {
            let metadata = [(TABLE_TYPE_KEY.to_string(), said.to_string())];
            table_type(&Field::new("x", data_type, true).with_metadata(metadata.into()))
        };
        assert_eq!(said(Arrow::Float64, "Int64"), Arrow::Float64);
        assert_eq!(said(Arrow::Int16, "Int64"), Arrow::Int64);
        assert_eq!(said(Arrow::Int16, "Int8"), Arrow::Int16);
        assert_eq!(said(Arrow::UInt16, "Int64"), Arrow::UInt16);
        assert_eq!(said(Arrow::Int32, "Utf8"), Arrow::Int32);
        let decimal = |text| said(Arrow::Decimal32(9, 2), text);
        assert_eq!(decimal("Decimal128(15, 2)"), Arrow::Decimal128(15, 2));
        for other in [
            "Decimal128(15, 3)", "Decimal128(5, 2)", "Decimal128(39, 2)", "Decimal128(",
            "Decimal128(015, 2)",
        ] {
            assert_eq!(decimal(other), Arrow::Decimal128(9, 2), "{other}");
        }
    }
}
