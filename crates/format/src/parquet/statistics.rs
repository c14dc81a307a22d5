//! What a file claims of the values of a column chunk, as integers.

use parquet::basic::Type as Physical;
use parquet::file::metadata::ColumnChunkMetaData;

use super::fixed::Stored;
use super::target::Target;
use crate::options::ColumnBound;

/// Of a column chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Claims {
    pub min: Option<i64>,
    pub max: Option<i64>,
    pub nulls: Option<u64>,
}

impl Claims {
    pub fn of(chunk: &ColumnChunkMetaData, target: &Target) -> Self {
        let may_have_nulls = chunk.column_descr().max_def_level() > 0;
        let nulls = if may_have_nulls { None } else { Some(0) };
        let Some(known) = chunk.statistics() else { return Self { nulls, ..Self::default() } };
        let bound = |bytes: Option<&[u8]>| bytes.and_then(|bytes| integer(chunk, target, bytes));
        let (min, max) = (bound(known.min_bytes_opt()), bound(known.max_bytes_opt()));
        let both = min.zip(max).filter(|(min, max)| min <= max);
        let nulls = nulls.or_else(|| known.null_count_opt());
        Self { min: both.map(|it| it.0), max: both.map(|it| it.1), nulls }
    }

    /// Whether a value can meet a condition, in so many rows.
    pub fn may_meet(&self, condition: &ColumnBound, rows: u64) -> bool {
        let is_below = self.max.zip(condition.min).is_some_and(|(max, min)| max < min);
        let is_above = self.min.zip(condition.max).is_some_and(|(min, max)| min > max);
        !is_below && !is_above && (rows == 0 || self.nulls != Some(rows))
    }
}

/// A bound as its integer. Those of unsigned ones that are not also signed integers say nothing here.
fn integer(chunk: &ColumnChunkMetaData, target: &Target, bytes: &[u8]) -> Option<i64> {
    let Target::Fixed { stored, data_type, .. } = target else { return None };
    if data_type.is_floating() || *stored == Stored::Bit {
        return None;
    }
    let value = match (chunk.column_type(), stored) {
        (Physical::INT32, _) if data_type.is_unsigned_integer() => {
            u32::from_le_bytes(bytes.try_into().ok()?).into()
        }
        (Physical::INT32, _) => i32::from_le_bytes(bytes.try_into().ok()?).into(),
        (Physical::INT64, _) => i64::from_le_bytes(bytes.try_into().ok()?),
        (_, Stored::BigEndian(width)) if bytes.len() == *width => {
            let mut high = [0; 16];
            high[..*width].copy_from_slice(bytes);
            i64::try_from(i128::from_be_bytes(high) >> (128 - 8 * width)).ok()?
        }
        _ => return None,
    };
    let is_signed = !data_type.is_unsigned_integer() || value >= 0;
    is_signed.then_some(value)
}

/// Both, of rows of two chunks.
pub(super) fn of_both(a: Claims, b: Claims) -> Claims {
    let both = |of: fn(i64, i64) -> i64, a: Option<i64>, b: Option<i64>| Some(of(a?, b?));
    Claims {
        min: both(i64::min, a.min, b.min),
        max: both(i64::max, a.max, b.max),
        nulls: a.nulls.zip(b.nulls).map(|(a, b)| a + b),
    }
}
