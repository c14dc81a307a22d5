//! Smallest and largest value of each record batch, stored as text in field metadata.
//!
//! The keys and the notation are those of pg2arrow, so that files are compatible both ways: the
//! field metadata `min_values` and `max_values` hold one entry per record batch, separated by
//! commas; an entry is the raw integer (days of a date, ticks of a timestamp, the unscaled value of
//! a decimal), or `null` for a batch without values.
//!
//! A file's statistics are only in the schema that its footer repeats, because the schema message
//! at the start was written before they were known. This distinguishes computed statistics from
//! inherited ones: a program that reads a file, changes rows and writes the result with the old
//! field metadata puts the same text in both places, and it is then worthless.
//!
//! # How far they are trusted
//!
//! Statistics that pass these checks decide which record batches are skipped, and nothing else that
//! affects an answer. Skipping cannot be checked without reading what is skipped: a file with wrong
//! statistics loses rows, and only its writer can prevent that. Everything else is read from the
//! data: the number of rows is confirmed by every column's buffers, NULLs come from the bitmaps
//! (only "no NULLs at all" is taken from the count, as the format says), the order of dictionaries
//! from their values.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Date64Type, Decimal32Type, Decimal64Type, Decimal128Type,
    Int8Type, Int16Type, Int32Type, Int64Type, Time32MillisecondType, Time32SecondType,
    Time64MicrosecondType, Time64NanosecondType, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, PrimitiveArray};
use arrow_schema::{DataType, TimeUnit};

use super::fields::FileField;

/// Metadata key of the smallest values.
pub const MIN_VALUES_KEY: &str = "min_values";
/// Metadata key of the largest values.
pub const MAX_VALUES_KEY: &str = "max_values";

const NO_VALUE: &str = "null";

/// Both metadata entries of a column.
pub(crate) struct Texts {
    pub min: String,
    pub max: String,
}

/// Removes a column's entries from its metadata, because they belong to one file.
pub(crate) fn take_texts(field: &mut FileField) -> Option<Texts> {
    let metadata = field.field.metadata_mut();
    let (min, max) = (metadata.remove(MIN_VALUES_KEY), metadata.remove(MAX_VALUES_KEY));
    Some(Texts { min: min?, max: max? })
}

/// Smallest and largest value of one column of one batch; `None`: all NULL.
pub(crate) type Extremes = Option<(i128, i128)>;

/// Whether statistics are kept for columns of this type.
pub fn has_statistics(data_type: &DataType) -> bool {
    use DataType::*;
    data_type.is_integer()
        || matches!(
            data_type,
            Date32
                | Date64
                | Time32(_)
                | Time64(_)
                | Timestamp(_, _)
                | Decimal32(_, _)
                | Decimal64(_, _)
                | Decimal128(_, _)
        )
}

/// Minimum and maximum of an array of a type for which [`has_statistics`] holds.
pub(crate) fn extremes(array: &ArrayRef) -> Extremes {
    use DataType::*;
    match array.data_type() {
        Int8 => of::<Int8Type>(array),
        Int16 => of::<Int16Type>(array),
        Int32 => of::<Int32Type>(array),
        Int64 => of::<Int64Type>(array),
        UInt8 => of::<UInt8Type>(array),
        UInt16 => of::<UInt16Type>(array),
        UInt32 => of::<UInt32Type>(array),
        UInt64 => of::<UInt64Type>(array),
        Date32 => of::<Date32Type>(array),
        Date64 => of::<Date64Type>(array),
        Time32(TimeUnit::Second) => of::<Time32SecondType>(array),
        Time32(_) => of::<Time32MillisecondType>(array),
        Time64(TimeUnit::Nanosecond) => of::<Time64NanosecondType>(array),
        Time64(_) => of::<Time64MicrosecondType>(array),
        Timestamp(TimeUnit::Second, _) => of::<TimestampSecondType>(array),
        Timestamp(TimeUnit::Millisecond, _) => of::<TimestampMillisecondType>(array),
        Timestamp(TimeUnit::Microsecond, _) => of::<TimestampMicrosecondType>(array),
        Timestamp(TimeUnit::Nanosecond, _) => of::<TimestampNanosecondType>(array),
        Decimal32(_, _) => of::<Decimal32Type>(array),
        Decimal64(_, _) => of::<Decimal64Type>(array),
        Decimal128(_, _) => of::<Decimal128Type>(array),
        _ => None,
    }
}

fn of<T: ArrowPrimitiveType>(array: &ArrayRef) -> Extremes
where
    T::Native: Into<i128> + Ord,
{
    let array: &PrimitiveArray<T> = array.as_primitive();
    let fold =
        |(min, max): (T::Native, T::Native), value: T::Native| (min.min(value), max.max(value));
    let (min, max) = if array.null_count() == 0 {
        let (first, rest) = array.values().split_first()?;
        // Plain loops over plain values: the compiler vectorises each.
        let min = rest.iter().fold(*first, |a, b| a.min(*b));
        let max = rest.iter().fold(*first, |a, b| a.max(*b));
        (min, max)
    } else {
        let mut valid = array.iter().flatten();
        let first = valid.next()?;
        valid.fold((first, first), fold)
    };
    Some((min.into(), max.into()))
}

/// The text of one metadata entry: `pick` chooses the smallest or the largest value.
pub(crate) fn to_text(batches: &[Extremes], pick: fn((i128, i128)) -> i128) -> String {
    let mut text = String::with_capacity(batches.len() * 8);
    for (i, extremes) in batches.iter().enumerate() {
        if i > 0 {
            text.push(',');
        }
        match extremes {
            Some(pair) => text += &pick(*pair).to_string(),
            None => text += NO_VALUE,
        }
    }
    text
}

/// Minima and maxima of one column for every batch of a file, in compact form.
#[derive(Debug)]
pub(crate) enum ColumnExtremes {
    /// All fit 64 bits; for a batch without values the minimum is above the maximum.
    Narrow(Vec<(i64, i64)>),
    /// The same for larger values.
    Wide(Vec<(i128, i128)>),
}

impl ColumnExtremes {
    fn with_capacity(batches: usize) -> Self {
        Self::Narrow(Vec::with_capacity(batches))
    }

    fn push(&mut self, extremes: Extremes) {
        let narrow = match extremes {
            None => Some((i64::MAX, i64::MIN)),
            Some((min, max)) => i64::try_from(min).ok().zip(i64::try_from(max).ok()),
        };
        match (&mut *self, narrow) {
            (Self::Narrow(batches), Some(narrow)) => batches.push(narrow),
            (Self::Narrow(batches), None) => {
                let room = batches.capacity();
                let mut wide: Vec<_> = Vec::with_capacity(room);
                wide.extend(batches.iter().map(|(min, max)| (i128::from(*min), i128::from(*max))));
                *self = Self::Wide(wide);
                self.push(extremes);
            }
            (Self::Wide(batches), _) => {
                batches.push(extremes.unwrap_or((i128::MAX, i128::MIN)));
            }
        }
    }

    /// Those of a batch; `None` for a missing batch.
    pub fn get(&self, batch: usize) -> Option<Extremes> {
        let (min, max) = match self {
            Self::Narrow(batches) => {
                batches.get(batch).map(|(min, max)| (i128::from(*min), i128::from(*max)))?
            }
            Self::Wide(batches) => *batches.get(batch)?,
        };
        Some((min <= max).then_some((min, max)))
    }
}

/// Reads back both metadata entries for a file of `batches` record batches.
///
/// # Errors
/// The reason why the statistics are invalid: a wrong number of entries, a non-integer, a minimum
/// above the maximum, NULL on one side only.
pub(crate) fn from_text(min: &str, max: &str, batches: usize) -> Result<ColumnExtremes, String> {
    // Counted before anything is collected: the text comes from a file.
    let count = |text: &str| match text.trim().is_empty() && batches == 0 {
        true => 0,
        false => text.split(',').count(),
    };
    if let Some(wrong) = [count(min), count(max)].into_iter().find(|count| *count != batches) {
        return Err(format!("{wrong} entries for {batches} record batches"));
    }
    let mut extremes = ColumnExtremes::with_capacity(batches);
    for (batch, (min, max)) in min.split(',').zip(max.split(',')).take(batches).enumerate() {
        extremes.push(match (entry(min)?, entry(max)?) {
            (Some(min), Some(max)) if min <= max => Some((min, max)),
            (None, None) => None,
            (min, max) => {
                return Err(format!("batch {batch} has smallest {min:?} and largest {max:?}"));
            }
        });
    }
    Ok(extremes)
}

fn entry(text: &str) -> Result<Option<i128>, String> {
    match text.trim() {
        none if none.eq_ignore_ascii_case(NO_VALUE) => Ok(None),
        value => value
            .parse()
            .map(Some)
            .map_err(|_| format!("{:?} is no integer", value.chars().take(40).collect::<String>())),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use arrow_array::{Decimal128Array, Int32Array, UInt64Array};

    use super::*;

    #[test]
    fn extremes_leave_nulls_out() {
        let array: ArrayRef = Arc::new(Int32Array::from(vec![None, Some(-3), Some(7), None]));
        assert_eq!(extremes(&array), Some((-3, 7)));
        let array: ArrayRef = Arc::new(Int32Array::from(vec![None, None]));
        assert_eq!(extremes(&array), None);
        let array: ArrayRef = Arc::new(Int32Array::from(Vec::<i32>::new()));
        assert_eq!(extremes(&array), None);
        let array: ArrayRef = Arc::new(UInt64Array::from(vec![u64::MAX, 1]));
        assert_eq!(extremes(&array), Some((1, u64::MAX.into())));
        let array: ArrayRef = Arc::new(Decimal128Array::from(vec![i128::MIN, 5, i128::MAX]));
        assert_eq!(extremes(&array), Some((i128::MIN, i128::MAX)));
    }

    #[test]
    fn text_round_trips() {
        let batches = vec![Some((-5, 7)), None, Some((i128::MIN, i128::MAX))];
        let (min, max) = (to_text(&batches, |p| p.0), to_text(&batches, |p| p.1));
        assert_eq!(min, format!("-5,null,{}", i128::MIN));
        let read = |min: &str, max: &str, batches: usize| -> Vec<Extremes> {
            let extremes = from_text(min, max, batches).unwrap();
            assert_eq!(extremes.get(batches), None);
            (0..batches).map(|batch| extremes.get(batch).unwrap()).collect()
        };
        assert_eq!(read(&min, &max, 3), batches);
        assert_eq!(read("", "", 0), vec![]);
        assert_eq!(read(" 1 , NULL", "2,null", 2), vec![Some((1, 2)), None]);
    }

    #[test]
    fn statistics_that_cannot_be_true_are_refused() {
        for (min, max, batches) in [
            ("1,2", "3,4", 3),
            ("1,2", "3", 2),
            ("5", "4", 1),
            ("NULL", "4", 1),
            ("one", "4", 1),
            ("", "", 1),
            ("1.5", "4", 1),
        ] {
            assert!(from_text(min, max, batches).is_err(), "{min} {max} {batches}");
        }
    }
}
