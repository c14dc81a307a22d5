//! Between vectors and other ways to have values: constants, integers of 64 bits, texts of codes.

use std::borrow::Cow;

use arrow_array::Array;
use headrace_ir::{Scalar, Value};

use crate::ColumnError;
use crate::repr::{BYTES_MAX, Dictionary, Repr};
use crate::vector::{Data, Vector};

/// What stands for so many bytes that are NULL.
///
/// # Errors
/// More bytes than [`BYTES_MAX`].
pub fn null_bytes(width: usize) -> Result<&'static [u8], ColumnError> {
    static ZEROS: [u8; BYTES_MAX] = [0; BYTES_MAX];
    ZEROS.get(..width).ok_or_else(|| {
        ColumnError::Internal(format!("values of {width} bytes, more than {BYTES_MAX}"))
    })
}

/// A constant column.
pub fn literal<'a>(scalar: &'a Scalar, repr: &Repr) -> Result<Vector<'a>, ColumnError> {
    if scalar.is_null() {
        return Ok(Vector::constant(empty_data(repr, 1)?, true));
    }
    let data = match (&scalar.value, repr) {
        (Value::Bool(value), Repr::Bool) => Data::Bool(vec![u8::from(*value)].into()),
        (Value::Utf8(text), Repr::Str) => Data::Str(vec![text.as_str()]),
        (Value::Binary(bytes), Repr::Bytes(width)) if bytes.len() == *width => {
            Data::Bytes(vec![bytes.as_slice()])
        }
        (Value::Float(value), Repr::F64) => Data::F64(vec![*value].into()),
        (Value::Float(value), Repr::F32) => Data::F32(vec![*value as f32].into()),
        (Value::Int(value), Repr::I128) => Data::I128(vec![*value].into()),
        (Value::Int(value), Repr::U64) => Data::U64(vec![*value as u64].into()),
        (Value::Int(value), repr) if repr.is_integer_like() => {
            from_i64(repr, std::iter::once(*value as i64))?
        }
        _ => {
            return Err(ColumnError::Internal(format!(
                "constant {scalar} of type {} held as {repr:?}",
                scalar.data_type
            )));
        }
    };
    Ok(Vector::constant(data, false))
}

/// Data of an integer-like representation from 64-bit values that are known to fit it.
pub fn from_i64(
    repr: &Repr,
    values: impl Iterator<Item = i64>,
) -> Result<Data<'static>, ColumnError> {
    Ok(match repr {
        Repr::Bool => Data::Bool(values.map(|v| v as u8).collect()),
        Repr::I8 => Data::I8(values.map(|v| v as i8).collect()),
        Repr::I16 => Data::I16(values.map(|v| v as i16).collect()),
        Repr::I32 | Repr::Code(_) => Data::I32(values.map(|v| v as i32).collect()),
        Repr::I64 => Data::I64(values.collect()),
        Repr::U8 => Data::U8(values.map(|v| v as u8).collect()),
        Repr::U16 => Data::U16(values.map(|v| v as u16).collect()),
        Repr::U32 => Data::U32(values.map(|v| v as u32).collect()),
        Repr::U64 => Data::U64(values.map(|v| v as u64).collect()),
        Repr::F32 | Repr::F64 | Repr::I128 | Repr::Str | Repr::Bytes(_) => {
            return Err(ColumnError::Internal(format!("{repr:?} is not held as an integer")));
        }
    })
}

/// Data of a representation for rows that are all NULL.
pub fn empty_data(repr: &Repr, rows: usize) -> Result<Data<'static>, ColumnError> {
    Ok(match repr {
        Repr::F32 => Data::F32(vec![0.0; rows].into()),
        Repr::F64 => Data::F64(vec![0.0; rows].into()),
        Repr::I128 => Data::I128(vec![0; rows].into()),
        Repr::Str => Data::Str(vec![""; rows]),
        Repr::Bytes(width) => Data::Bytes(vec![null_bytes(*width)?; rows]),
        other => from_i64(other, std::iter::repeat_n(0, rows))?,
    })
}

/// Integer-like data as 64-bit values.
pub fn integers<'v>(data: &'v Data<'_>) -> Option<Cow<'v, [i64]>> {
    Some(match data {
        Data::Bool(v) | Data::U8(v) => v.iter().map(|&v| i64::from(v)).collect(),
        Data::I8(v) => v.iter().map(|&v| i64::from(v)).collect(),
        Data::I16(v) => v.iter().map(|&v| i64::from(v)).collect(),
        Data::I32(v) => v.iter().map(|&v| i64::from(v)).collect(),
        Data::I64(v) => Cow::Borrowed(v),
        Data::U16(v) => v.iter().map(|&v| i64::from(v)).collect(),
        Data::U32(v) => v.iter().map(|&v| i64::from(v)).collect(),
        Data::U64(_)
        | Data::F32(_)
        | Data::F64(_)
        | Data::I128(_)
        | Data::Str(_)
        | Data::Bytes(_) => return None,
    })
}

/// Texts of codes.
pub fn decode<'a>(
    codes: &Vector<'_>,
    dictionary: &'a Dictionary,
) -> Result<Vector<'a>, ColumnError> {
    let Data::I32(values) = &codes.data else {
        return Err(ColumnError::Internal("decoding something that is no code".into()));
    };
    let texts = &dictionary.values;
    let data = if texts.is_empty() {
        Data::Str(vec![""; values.len()])
    } else {
        Data::Str(values.iter().map(|&c| texts.value(c as usize)).collect())
    };
    let validity = codes.validity.as_deref().map(|v| Cow::Owned(v.to_vec()));
    Ok(Vector { data, validity, constant: codes.constant })
}
