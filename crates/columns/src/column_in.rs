//! From Arrow arrays to owned columns.

use std::borrow::Cow;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type,
    UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, ArrowPrimitiveType};
use arrow_schema::DataType as ArrowType;
use headrace_ir::Field;

use crate::ColumnError;
use crate::column::Column;
use crate::repr::Repr;
use crate::vector::{Data, Vector};

fn mismatch(array: &dyn Array, field: &Field) -> ColumnError {
    ColumnError::Internal(format!(
        "column {} is {} where {} was planned",
        field.name,
        array.data_type(),
        field.data_type
    ))
}

/// Appends an array to an owned column of the representation of the field's type. Dictionary
/// and view text becomes plain text.
pub fn append_array(
    column: &mut Column,
    array: &ArrayRef,
    field: &Field,
) -> Result<(), ColumnError> {
    let valid = logical_validity(array);
    let data = array_data(array, column.repr()).ok_or_else(|| mismatch(array, field))?;
    let vector = Vector { data, validity: valid.map(Cow::Owned), constant: false };
    column.push(&vector, array.len())
}

fn logical_validity(array: &ArrayRef) -> Option<Vec<u8>> {
    let nulls = array.logical_nulls()?;
    (nulls.null_count() > 0).then(|| nulls.iter().map(u8::from).collect())
}

fn array_data<'v>(array: &'v ArrayRef, repr: &Repr) -> Option<Data<'v>> {
    Some(match repr {
        Repr::Bool => Data::Bool(array.as_boolean_opt()?.values().iter().map(u8::from).collect()),
        Repr::I8 => Data::I8(values::<Int8Type>(array)?),
        Repr::I16 => Data::I16(values::<Int16Type>(array)?),
        Repr::I32 => Data::I32(reinterpreted_i32(array)?),
        Repr::I64 => Data::I64(reinterpreted_i64(array)?),
        Repr::U8 => Data::U8(values::<UInt8Type>(array)?),
        Repr::U16 => Data::U16(values::<UInt16Type>(array)?),
        Repr::U32 => Data::U32(values::<UInt32Type>(array)?),
        Repr::U64 => Data::U64(values::<UInt64Type>(array)?),
        Repr::F32 => Data::F32(values::<Float32Type>(array)?),
        Repr::F64 => Data::F64(values::<Float64Type>(array)?),
        Repr::I128 => Data::I128(values::<Decimal128Type>(array)?),
        Repr::Str => Data::Str(texts(array)?),
        Repr::Bytes(width) => Data::Bytes(fixed_bytes(array, *width)?),
        Repr::Code(_) => return None,
    })
}

fn values<T: ArrowPrimitiveType>(array: &ArrayRef) -> Option<Cow<'_, [T::Native]>> {
    Some(Cow::Borrowed(array.as_primitive_opt::<T>()?.values()))
}

fn reinterpreted_i32(array: &ArrayRef) -> Option<Cow<'_, [i32]>> {
    use arrow_array::types::{Date32Type, Time32MillisecondType, Time32SecondType};
    values::<Int32Type>(array)
        .or_else(|| values::<Date32Type>(array))
        .or_else(|| values::<Time32SecondType>(array))
        .or_else(|| values::<Time32MillisecondType>(array))
}

fn reinterpreted_i64(array: &ArrayRef) -> Option<Cow<'_, [i64]>> {
    use arrow_array::types::{
        Time64MicrosecondType, Time64NanosecondType, TimestampMicrosecondType,
        TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
    };
    values::<Int64Type>(array)
        .or_else(|| values::<Time64MicrosecondType>(array))
        .or_else(|| values::<Time64NanosecondType>(array))
        .or_else(|| values::<TimestampSecondType>(array))
        .or_else(|| values::<TimestampMillisecondType>(array))
        .or_else(|| values::<TimestampMicrosecondType>(array))
        .or_else(|| values::<TimestampNanosecondType>(array))
}

/// Bytes of one length, or lists of floats without a NULL among them.
fn fixed_bytes(array: &ArrayRef, width: usize) -> Option<Vec<&[u8]>> {
    if let Some(bytes) = array.as_fixed_size_binary_opt() {
        return Some((0..bytes.len()).map(|row| bytes.value(row)).collect());
    }
    let lists = array.as_fixed_size_list_opt()?;
    let floats = lists.values();
    let bytes = match floats.data_type() {
        ArrowType::Float32 => floats.as_primitive::<Float32Type>().values().inner(),
        ArrowType::Float64 => floats.as_primitive::<Float64Type>().values().inner(),
        _ => return None,
    };
    let place =
        |row| lists.value_offset(row) as usize * width / lists.value_length().max(1) as usize;
    let has_null = floats.null_count() > 0;
    (!has_null).then(|| (0..lists.len()).map(|row| &bytes[place(row)..][..width]).collect())
}

/// Texts of any layout; what stands for NULL is empty.
fn texts(array: &ArrayRef) -> Option<Vec<&str>> {
    let array: &dyn Array = array.as_ref();
    Some(match array.data_type() {
        ArrowType::Utf8 => {
            array.as_string_opt::<i32>()?.iter().map(Option::unwrap_or_default).collect()
        }
        ArrowType::LargeUtf8 => {
            array.as_string_opt::<i64>()?.iter().map(Option::unwrap_or_default).collect()
        }
        ArrowType::Utf8View => {
            array.as_string_view_opt()?.iter().map(Option::unwrap_or_default).collect()
        }
        ArrowType::Dictionary(_, _) => {
            let dictionary = array.as_any_dictionary_opt()?;
            let values = texts(dictionary.values())?;
            // Where all rows are NULL there may be no value at all.
            if values.is_empty() {
                return Some(vec![""; array.len()]);
            }
            // Keys under a NULL are whatever they are.
            dictionary
                .normalized_keys()
                .into_iter()
                .map(|key| values.get(key).copied().unwrap_or_default())
                .collect()
        }
        _ => return None,
    })
}
