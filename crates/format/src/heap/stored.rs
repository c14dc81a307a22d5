//! Fixed-length values as stored, in Arrow's form.

use super::bytes::array;
use super::numeric;
use super::relation::HeapType;

/// PostgreSQL counts from 2000-01-01, Arrow from 1970-01-01.
const EPOCH_DAYS: i32 = 10_957;
const EPOCH_US: i64 = EPOCH_DAYS as i64 * DAY_US;
const DAY_US: i64 = 86_400_000_000;

type Flaw = &'static str;

/// A value that is stored outside of tuples, in its column's form: little-endian, padded with
/// zeros. `None`: the column cannot hold it, or has variable length.
pub(super) fn column_value(kind: HeapType, stored: &[u8]) -> Option<[u8; 16]> {
    fn filled<const N: usize>(bytes: [u8; N]) -> [u8; 16] {
        std::array::from_fn(|at| bytes.get(at).copied().unwrap_or(0))
    }
    match kind {
        HeapType::Bool => boolean(array(stored, 0)?).ok().map(|value| filled([u8::from(value)])),
        HeapType::Int2 => array::<2>(stored, 0).map(filled),
        HeapType::Int4 | HeapType::Float4 => array::<4>(stored, 0).map(filled),
        HeapType::Int8 | HeapType::Float8 => array::<8>(stored, 0).map(filled),
        HeapType::Date => date(array(stored, 0)?).ok().map(|days| filled(days.to_le_bytes())),
        HeapType::Time => time(array(stored, 0)?).ok().map(|us| filled(us.to_le_bytes())),
        HeapType::Timestamp | HeapType::TimestampTz => {
            timestamp(array(stored, 0)?).ok().map(|us| filled(us.to_le_bytes()))
        }
        HeapType::Numeric { precision, scale } => {
            numeric::decimal(stored, precision, scale).ok().map(i128::to_le_bytes)
        }
        HeapType::NumericShowing { .. } | HeapType::DigitsShown { .. } => None,
        HeapType::JsonbField(_) | HeapType::JsonbContains => None,
        HeapType::Text | HeapType::Uuid | HeapType::Bytea | HeapType::Presence => None,
    }
}

pub(super) fn boolean([byte]: [u8; 1]) -> Result<bool, Flaw> {
    match byte {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err("a bool is neither true nor false"),
    }
}

pub(super) fn date(bytes: [u8; 4]) -> Result<i32, Flaw> {
    let days = i32::from_le_bytes(bytes);
    match days.checked_add(EPOCH_DAYS) {
        Some(days_from_1970) if days != i32::MIN => Ok(days_from_1970),
        _ => Err("a date is infinite or beyond what Arrow has"),
    }
}

pub(super) fn time(bytes: [u8; 8]) -> Result<i64, Flaw> {
    let time_us = i64::from_le_bytes(bytes);
    let allowed = (0..DAY_US).contains(&time_us);
    allowed.then_some(time_us).ok_or("a time is 24:00:00 or no time of day")
}

pub(super) fn timestamp(bytes: [u8; 8]) -> Result<i64, Flaw> {
    let time_us = i64::from_le_bytes(bytes);
    match time_us.checked_add(EPOCH_US) {
        Some(us_from_1970) if time_us != i64::MIN => Ok(us_from_1970),
        _ => Err("a timestamp is infinite or beyond what Arrow has"),
    }
}
