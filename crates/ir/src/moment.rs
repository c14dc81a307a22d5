//! Time zones and intervals: constants that functions of moments take, as [`Value::Binary`].

use std::ops::Range;

use crate::scalar::{Scalar, Value};
use crate::types::DataType;

/// The first moment of a timestamp with which functions reckon, in microseconds from 1970: 24 November
/// 4714 BC, the beginning of Julian days.
pub const FIRST_MICROSECOND: i64 = -210_866_803_200_000_000;

/// Days from 1970 with which functions reckon: those from then on, to the end of the year 5874897.
pub const DAYS: Range<i32> = -2_440_588..2_145_042_906;

/// A time zone: how far local time is ahead of UTC, and since when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeZone {
    /// Its name.
    pub name: String,
    /// Seconds from 1970, UTC, of which it is known.
    pub known_seconds: Range<i64>,
    /// Seconds that local time is ahead before the first transition.
    pub first_offset_seconds: i32,
    /// Second of UTC, ascending, and seconds that local time is ahead from then on.
    pub transitions: Vec<(i64, i32)>,
}

/// A span of time whose parts do not follow from each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interval {
    /// Months, of different lengths.
    pub months: i32,
    /// Days, which local time may make longer or shorter.
    pub days: i32,
    /// Microseconds.
    pub microseconds: i64,
}

impl TimeZone {
    /// As a constant.
    pub fn scalar(&self) -> Scalar {
        let Range { start, end } = self.known_seconds;
        let mut bytes = Vec::with_capacity(24 + 12 * self.transitions.len() + self.name.len());
        bytes.extend(start.to_le_bytes());
        bytes.extend(end.to_le_bytes());
        bytes.extend(self.first_offset_seconds.to_le_bytes());
        bytes.extend((self.transitions.len() as u32).to_le_bytes());
        for (second, offset_seconds) in &self.transitions {
            bytes.extend(second.to_le_bytes());
            bytes.extend(offset_seconds.to_le_bytes());
        }
        bytes.extend(self.name.as_bytes());
        Scalar::new(DataType::Binary, Value::Binary(bytes))
    }

    /// Of such a constant; `None` for others.
    pub fn of(scalar: &Scalar) -> Option<Self> {
        let Value::Binary(bytes) = &scalar.value else { return None };
        let mut rest = &bytes[..];
        let (start, end) = (i64::from_le_bytes(take(&mut rest)?), take(&mut rest)?);
        let first_offset_seconds = i32::from_le_bytes(take(&mut rest)?);
        let count = u32::from_le_bytes(take(&mut rest)?);
        let mut transitions = Vec::new();
        for _ in 0..count {
            let second = i64::from_le_bytes(take(&mut rest)?);
            transitions.push((second, i32::from_le_bytes(take(&mut rest)?)));
        }
        let name = String::from_utf8(rest.to_vec()).ok()?;
        let known_seconds = start..i64::from_le_bytes(end);
        let is_ascending = transitions.is_sorted_by(|a, b| a.0 < b.0);
        is_ascending.then_some(Self { name, known_seconds, first_offset_seconds, transitions })
    }
}

impl Interval {
    /// As a constant.
    pub fn scalar(self) -> Scalar {
        let mut bytes = self.microseconds.to_le_bytes().to_vec();
        bytes.extend(self.days.to_le_bytes());
        bytes.extend(self.months.to_le_bytes());
        Scalar::new(DataType::Binary, Value::Binary(bytes))
    }

    /// Of such a constant; `None` for others.
    pub fn of(scalar: &Scalar) -> Option<Self> {
        let Value::Binary(bytes) = &scalar.value else { return None };
        let mut rest = &bytes[..];
        let microseconds = i64::from_le_bytes(take(&mut rest)?);
        let days = i32::from_le_bytes(take(&mut rest)?);
        let months = i32::from_le_bytes(take(&mut rest)?);
        rest.is_empty().then_some(Self { months, days, microseconds })
    }

    /// With all parts negated; `None` if one has no opposite.
    pub fn negated(self) -> Option<Self> {
        let (months, days) = (self.months.checked_neg()?, self.days.checked_neg()?);
        Some(Self { months, days, microseconds: self.microseconds.checked_neg()? })
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (first, after) = rest.split_first_chunk::<N>()?;
    *rest = after;
    Some(*first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_come_back_as_they_were() {
        let zone = TimeZone {
            name: "Europe/Wien".into(),
            known_seconds: -5..7_000_000_000,
            first_offset_seconds: 3_921,
            transitions: vec![(-2_422_055_121, 3_600), (1, 7_200)],
        };
        assert_eq!(TimeZone::of(&zone.scalar()), Some(zone.clone()));
        let interval = Interval { months: -1, days: i32::MAX, microseconds: i64::MIN };
        assert_eq!(Interval::of(&interval.scalar()), Some(interval));
        assert_eq!(interval.negated(), None);
        let turned = TimeZone { transitions: vec![(1, 0), (0, 0)], ..zone };
        assert_eq!(TimeZone::of(&turned.scalar()), None);
        assert_eq!(TimeZone::of(&interval.scalar()), None);
        assert_eq!(Interval::of(&Scalar::null(DataType::Binary)), None);
    }
}
