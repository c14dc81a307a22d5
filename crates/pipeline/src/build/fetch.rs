//! Payload columns of a build as vectors.

use std::borrow::Cow;

use headrace_columns::convert::{empty_data, from_i64};
use headrace_columns::repr::Repr;
use headrace_columns::vector::{Data, Vector};

use crate::ExecError;
use crate::build::{BuildTable, PayloadColumn, PayloadData};

/// Row number of a build for a streamed row without a match.
pub const NO_MATCH: u32 = u32::MAX;

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
        PayloadData::Bytes { width, raw } => {
            Data::Bytes(rows.map(|e| &raw[e * width..][..*width]).collect())
        }
        PayloadData::Bool(values) => Data::Bool(rows.map(|e| values[e] & 1).collect()),
    })
}
