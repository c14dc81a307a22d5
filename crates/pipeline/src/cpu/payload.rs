//! Payload columns of a build as registers.

use std::borrow::Cow;

use crate::ExecError;
use crate::bound::Repr;
use crate::build::{BuildTable, PayloadColumn, PayloadData};
use crate::cpu::context::NO_MATCH;
use crate::cpu::vector::{Data, Vector};

/// The values of one payload column at the given entries; NULL at [`NO_MATCH`].
pub fn fetch<'a>(
    build: &'a BuildTable,
    column: usize,
    entries: &[u32],
) -> Result<Vector<'a>, ExecError> {
    let column = &build.payload[column];
    let unmatched = entries.contains(&NO_MATCH);
    let cleaned: Cow<'_, [u32]> = if unmatched {
        entries.iter().map(|&e| if e == NO_MATCH { 0 } else { e }).collect()
    } else {
        Cow::Borrowed(entries)
    };
    let data = if column.data.is_empty() {
        empty_data(&column.repr, entries.len())?
    } else {
        fetch_data(column, &cleaned)?
    };
    let validity = match &column.validity {
        None if !unmatched => None,
        None => Some(entries.iter().map(|&e| u8::from(e != NO_MATCH)).collect()),
        Some(bits) => Some(
            entries.iter().map(|&e| u8::from(e != NO_MATCH && bit(bits, e as usize))).collect(),
        ),
    };
    Ok(Vector::with_validity(data, validity))
}

/// Bit `index` of a bitmap of words.
#[inline(always)]
pub fn bit(words: &[u64], index: usize) -> bool {
    (words[index / 64] >> (index % 64)) & 1 != 0
}

fn fetch_data<'a>(column: &'a PayloadColumn, entries: &[u32]) -> Result<Data<'a>, ExecError> {
    let rows = entries.iter().map(|&e| e as usize);
    Ok(match &column.data {
        PayloadData::U8 { base, raw } => {
            from_i64(&column.repr, rows.map(|e| base.wrapping_add(i64::from(raw[e]))))?
        }
        PayloadData::U16 { base, raw } => {
            from_i64(&column.repr, rows.map(|e| base.wrapping_add(i64::from(raw[e]))))?
        }
        PayloadData::U32 { base, raw } => {
            from_i64(&column.repr, rows.map(|e| base.wrapping_add(i64::from(raw[e]))))?
        }
        PayloadData::I64(values) => from_i64(&column.repr, rows.map(|e| values[e]))?,
        PayloadData::U64(values) => Data::U64(rows.map(|e| values[e]).collect()),
        PayloadData::F64(values) if matches!(column.repr, Repr::F32) => {
            Data::F32(rows.map(|e| values[e] as f32).collect())
        }
        PayloadData::F64(values) => Data::F64(rows.map(|e| values[e]).collect()),
        PayloadData::I128(values) => Data::I128(rows.map(|e| values[e]).collect()),
        PayloadData::Bool(values) => Data::Bool(rows.map(|e| values[e] & 1).collect()),
    })
}

/// Data of an integer-like representation from 64-bit values that are known to fit it.
pub fn from_i64(
    repr: &Repr,
    values: impl Iterator<Item = i64>,
) -> Result<Data<'static>, ExecError> {
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
        Repr::F32 | Repr::F64 | Repr::I128 | Repr::Str => {
            return Err(ExecError::Internal(format!("{repr:?} is not held as an integer")));
        }
    })
}

/// Data of a representation for rows that are all NULL.
pub fn empty_data(repr: &Repr, rows: usize) -> Result<Data<'static>, ExecError> {
    Ok(match repr {
        Repr::F32 => Data::F32(vec![0.0; rows].into()),
        Repr::F64 => Data::F64(vec![0.0; rows].into()),
        Repr::I128 => Data::I128(vec![0; rows].into()),
        Repr::Str => Data::Str(vec![""; rows]),
        other => from_i64(other, std::iter::repeat_n(0, rows))?,
    })
}
