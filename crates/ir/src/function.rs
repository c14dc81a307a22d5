//! Named functions: what they take and yield.
//!
//! # Calendar functions
//!
//! The calendar is the proleptic Gregorian one, days have 86400 s, and what comes before 1970 is as
//! exact as what comes after. A timestamp with time zone is read in UTC, and only UTC is taken:
//! [`Function::LocalTime`] makes of it what clocks of a zone show.
//! [`CALENDAR_YEARS`] are those that the functions know: a part of a moment outside of them is NULL.

use serde::{Deserialize, Serialize};

use crate::types::{DataType, TimeUnit};

/// Years of which [`Function::DatePart`] knows the parts, the first and the last among them.
pub const CALENDAR_YEARS: (i32, i32) = (-262_143, 262_142);

/// A function of the closed set that every processor knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Function {
    /// `date_part`, `extract`: a part of a date or timestamp.
    DatePart(DatePart),
    /// `date_trunc`: the moment at which the part of a timestamp began.
    DateTrunc(DatePart),
    /// `abs`: an overflow for the smallest signed integer.
    Abs,
    /// `bit_count`: ones among the bits of an integer, or of bytes; a negative integer is its two's complement.
    BitCount,
    /// `hamming_distance`: bits that differ between bytes of one length.
    HammingDistance,
    /// `tanimoto`: bits that both have, of those that either has; 1 where neither has any (Jaccard's index of the sets of
    /// bits).
    Tanimoto,
    /// `dot`: the sum of the products of two vectors' floats, as the columns' `distance` adds it up.
    Dot,
    /// `l2_distance`: the root of the sum of the squared differences.
    L2Distance,
    /// `cosine_distance`: 1 less the cosine of the angle between two vectors; NaN where one has no length.
    CosineDistance,
    /// `floor`: the largest whole number that is not larger, in the argument's type; a decimal
    /// of which that has too many digits is an overflow.
    Floor,
    /// `ceil`: the smallest whole number that is not smaller, as `Floor`.
    Ceil,
    /// `round` to so many digits after the point, halves away from zero. Floats: of the value
    /// times 10^digits, divided by it. A decimal loses the digits from its scale.
    Round(u8),
    /// `round` of a float to a whole number, halves to the even one.
    RoundEven,
    /// `trunc` to so many digits after the point, towards zero; floats to whole numbers alone. A
    /// decimal loses the digits from its scale.
    Trunc(u8),
    /// The moment itself; one outside of [`CALENDAR_YEARS`], or on their first or last day, is an overflow.
    InCalendar,
    /// `timezone`: the local time, a timestamp without time zone, of a timestamp in UTC, in microseconds
    /// both. The second argument is a constant [`TimeZone`]; a moment of which that is not known is an
    /// overflow.
    LocalTime,
    /// `timezone`: the timestamp in UTC of a local time, as `LocalTime` the other way round. A local time
    /// that is skipped, or comes twice, is the one of the zone's smaller offset.
    Instant,
    /// `+`: a timestamp in microseconds later by a constant [`Interval`](crate::moment::Interval), the
    /// second argument: its months first, to the last day of a month that has no such day, then days of
    /// 24 hours, then microseconds. What is before the first of [`crate::moment`], or beyond 64 bits, on
    /// the way is an overflow.
    AddInterval,
    /// `-`: as `AddInterval`, of the opposite.
    SubtractInterval,
    /// `+`: a date later by so many days; what is not among [`crate::moment::DAYS`] is an overflow.
    AddDays,
    /// `character_length`: Unicode code points of a text.
    CharacterLength,
    /// `octet_length`: bytes of a text.
    OctetLength,
    /// `lower`: with small letters for the capital ones of ASCII.
    Lower,
    /// `upper`: with capital letters for the small ones of ASCII.
    Upper,
    /// `lower`: with small letters for all capital ones of Unicode, in no particular language.
    UnicodeLower,
    /// `upper`: with capital letters for all small ones of Unicode, in no particular language.
    UnicodeUpper,
    /// The text itself; one with characters beyond ASCII cannot be converted.
    Ascii,
    /// `substr`: the characters from the one of a number on, from 1, which may be smaller, as many as the
    /// third argument says if there is one, those before the first counted. A negative one cannot be
    /// converted.
    Substring,
    /// `left`: so many characters; all but so many of the end, if the number is negative.
    Left,
    /// `right`: so many characters of the end; all but so many of the beginning, if it is negative. An
    /// overflow for the smallest number.
    Right,
    /// `ltrim`, `rtrim`, `btrim`: without those characters at an end that occur in the second text.
    Trim(TrimSide),
    /// `replace`: with the third text wherever the second one occurs, from left to right.
    Replace,
    /// `strpos`: the number of the character, from 1, where the second text first occurs in the first; 0
    /// if it does not.
    Position,
    /// `starts_with`: whether the first text begins with the second.
    StartsWith,
    /// `reverse`: with its characters from the last to the first.
    Reverse,
    /// `||`: texts one after the other.
    Concat,
    /// `~`: whether a text has a match of the second argument, a constant regular expression of the library
    /// `regex`.
    Matches,
    /// `regexp_replace` and its kin: a part of a text, as its first match of the second argument, a constant as
    /// above, divides it; a group that took no part in the match is empty.
    MatchedPart(MatchPart, Unmatched),
}

/// Where a text is trimmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrimSide {
    /// At its beginning.
    Start,
    /// At its end.
    End,
    /// At both.
    Both,
}

/// A part of a text with a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MatchPart {
    /// A group; the whole match is number 0.
    Group(u16),
    /// What is before the match.
    Before,
    /// What is behind it.
    Behind,
}

/// What stands for the part of a text without a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unmatched {
    /// NULL.
    Null,
    /// The empty text.
    Empty,
    /// The whole text.
    Whole,
}

/// A part of a date or time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DatePart {
    /// The year; 0 is 1 BC.
    Year,
    /// 1 to 4.
    Quarter,
    /// 1 to 12.
    Month,
    /// Week of its ISO 8601 year, 1 to 53; weeks begin on Mondays.
    Week,
    /// Day of the month, 1 to 31.
    Day,
    /// Day of the week from Sunday, 0, to Saturday, 6. No part that begins.
    Dow,
    /// Day of the week from Monday, 1, to Sunday, 7. No part that begins.
    Isodow,
    /// Day of the year, 1 to 366. No part that begins.
    Doy,
    /// The year of the ISO 8601 week. No part that begins.
    Isoyear,
    /// 0 to 23.
    Hour,
    /// 0 to 59.
    Minute,
    /// Whole seconds, 0 to 59.
    Second,
    /// Seconds and their fraction in whole milliseconds, 0 to 59999.
    Millisecond,
    /// Seconds and their fraction in whole microseconds, 0 to 59999999.
    Microsecond,
    /// Seconds since 1970-01-01T00:00:00 with their fraction, as a float. No part that begins.
    Epoch,
}

/// What a function does with arguments of certain types. NULL arguments make every function NULL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// Type of the result.
    pub result: DataType,
    /// Whether it can fail for some value.
    pub can_fail: bool,
    /// Whether it can be NULL for a value that is not.
    pub may_be_null: bool,
    /// Whether a larger argument never makes a smaller result.
    pub is_monotone: bool,
}

impl Function {
    /// Whether it cannot fail where its last argument is as large as this, or larger.
    #[must_use]
    pub fn is_safe_from(self, last: i128) -> bool {
        match self {
            // There are no fewer characters than none ..
            Self::Substring => last >= 0,
            // .. and the smallest number has no counterpart to leave out.
            Self::Right => last > i128::from(i32::MIN),
            _ => false,
        }
    }

    /// What it does with arguments of these types; `None` if it does not take them.
    pub fn signature(self, arguments: &[DataType]) -> Option<Signature> {
        use DataType::{Date32, Decimal128, Int32, Utf8};
        let [argument] = arguments else { return self.of_several(arguments) };
        let of = |result: &DataType, can_fail, may_be_null, is_monotone| {
            Some(Signature { result: result.clone(), can_fail, may_be_null, is_monotone })
        };
        match (self, argument) {
            (Self::DatePart(DatePart::Epoch), moment) if is_moment(moment) => {
                of(&DataType::Float64, false, false, true)
            }
            (Self::DatePart(part), Date32) => {
                of(&Int32, false, part.is_of_day(), part.never_ends())
            }
            (Self::DatePart(part), moment) if is_moment(moment) => {
                // Nanoseconds of 64 bits end long before the calendar does.
                let is_nanosecond =
                    matches!(moment, DataType::Timestamp { unit: TimeUnit::Nanosecond, .. });
                of(&Int32, false, !is_nanosecond, part.never_ends())
            }
            (Self::DateTrunc(part), moment) if is_moment(moment) && *moment != Date32 => {
                part.begins().then_some(())?;
                of(moment, true, false, true)
            }
            (Self::InCalendar, moment) if is_moment(moment) => of(moment, true, false, true),
            (Self::Abs, number) if number.is_numeric() => {
                of(number, number.is_signed_integer(), false, false)
            }
            (Self::BitCount, integer) if integer.is_integer() => {
                of(&DataType::Int64, false, false, false)
            }
            (Self::BitCount, DataType::FixedBinary(_)) => of(&DataType::Int64, false, false, false),
            (Self::Floor | Self::Ceil, Decimal128 { scale, .. }) => {
                of(argument, *scale > 0, false, true)
            }
            (Self::Floor | Self::Ceil, float) if float.is_float() => of(float, false, false, true),
            (Self::Round(digits), Decimal128 { precision, scale }) if *scale >= 0 => {
                let scale = i8::try_from(digits).map_or(*scale, |digits| digits.min(*scale));
                of(&Decimal128 { precision: *precision, scale }, false, false, true)
            }
            // Times 10^digits the largest floats are infinite.
            (Self::Round(digits), float) if float.is_float() && digits <= ROUND_DIGITS_MAX => {
                of(float, false, false, digits == 0)
            }
            (Self::Trunc(digits), Decimal128 { precision, scale }) if *scale >= 0 => {
                let scale = i8::try_from(digits).map_or(*scale, |digits| digits.min(*scale));
                of(&Decimal128 { precision: *precision, scale }, false, false, true)
            }
            (Self::Trunc(0) | Self::RoundEven, float) if float.is_float() => {
                of(float, false, false, true)
            }
            (Self::CharacterLength | Self::OctetLength, Utf8) => of(&Int32, false, false, false),
            (
                Self::Lower | Self::Upper | Self::UnicodeLower | Self::UnicodeUpper | Self::Reverse,
                Utf8,
            ) => of(&Utf8, false, false, false),
            (Self::Ascii, Utf8) => of(&Utf8, true, false, true),
            _ => None,
        }
    }

    /// The same of several arguments.
    fn of_several(self, arguments: &[DataType]) -> Option<Signature> {
        use DataType::{Binary, Bool, Date32, FixedBinary, Float64, Int32, Int64, Timestamp, Utf8};
        let unit = TimeUnit::Microsecond;
        let of = |result, can_fail| {
            Some(Signature { result, can_fail, may_be_null: false, is_monotone: false })
        };
        match (self, arguments) {
            (
                Self::LocalTime,
                [Timestamp { unit: TimeUnit::Microsecond, timezone: Some(_) }, Binary],
            ) if is_moment(&arguments[0]) => of(Timestamp { unit, timezone: None }, true),
            (
                Self::Instant,
                [Timestamp { unit: TimeUnit::Microsecond, timezone: None }, Binary],
            ) => of(Timestamp { unit, timezone: Some("UTC".into()) }, true),
            (
                Self::AddInterval | Self::SubtractInterval,
                [moment @ Timestamp { unit: TimeUnit::Microsecond, .. }, Binary],
            ) if is_moment(moment) => of(moment.clone(), true),
            (Self::AddDays, [Date32, Int32]) => of(Date32, true),
            (Self::Substring, [Utf8, Int32]) => of(Utf8, false),
            (Self::Substring, [Utf8, Int32, Int32]) => of(Utf8, true),
            (Self::Right, [Utf8, Int32]) => of(Utf8, true),
            (Self::Left, [Utf8, Int32])
            | (Self::Trim(_), [Utf8, Utf8])
            | (Self::Replace, [Utf8, Utf8, Utf8]) => of(Utf8, false),
            (Self::Position, [Utf8, Utf8]) => of(Int32, false),
            (Self::StartsWith, [Utf8, Utf8]) => of(Bool, false),
            (Self::Matches, [Utf8, Utf8]) => of(Bool, false),
            (Self::MatchedPart(_, unmatched), [Utf8, Utf8]) => {
                let (can_fail, may_be_null) = (false, unmatched == Unmatched::Null);
                Some(Signature { result: Utf8, can_fail, may_be_null, is_monotone: false })
            }
            (Self::HammingDistance, [FixedBinary(a), FixedBinary(b)]) if a == b => of(Int64, false),
            (Self::Tanimoto, [FixedBinary(a), FixedBinary(b)]) if a == b => of(Float64, false),
            (
                Self::Dot | Self::L2Distance | Self::CosineDistance,
                [a @ DataType::FloatList { .. }, b],
            ) if a == b => of(Float64, false),
            (Self::Concat, texts) if !texts.is_empty() => {
                texts.iter().all(|text| *text == Utf8).then(|| of(Utf8, false))?
            }
            _ => None,
        }
    }

    /// The name in SQL.
    pub fn name(self) -> &'static str {
        match self {
            Self::DatePart(_) => "date_part",
            Self::DateTrunc(_) => "date_trunc",
            Self::Abs => "abs",
            Self::BitCount => "bit_count",
            Self::HammingDistance => "hamming_distance",
            Self::Tanimoto => "tanimoto",
            Self::Dot => "dot",
            Self::L2Distance => "l2_distance",
            Self::CosineDistance => "cosine_distance",
            Self::Floor => "floor",
            Self::Ceil => "ceil",
            Self::Round(_) => "round",
            Self::RoundEven => "rint",
            Self::Trunc(_) => "trunc",
            Self::InCalendar => "in_calendar",
            Self::LocalTime | Self::Instant => "timezone",
            Self::AddInterval => "add_interval",
            Self::SubtractInterval => "subtract_interval",
            Self::AddDays => "add_days",
            Self::CharacterLength => "character_length",
            Self::OctetLength => "octet_length",
            Self::Lower | Self::UnicodeLower => "lower",
            Self::Upper | Self::UnicodeUpper => "upper",
            Self::Ascii => "ascii_only",
            Self::Substring => "substr",
            Self::Left => "left",
            Self::Right => "right",
            Self::Trim(TrimSide::Start) => "ltrim",
            Self::Trim(TrimSide::End) => "rtrim",
            Self::Trim(TrimSide::Both) => "btrim",
            Self::Replace => "replace",
            Self::Position => "strpos",
            Self::StartsWith => "starts_with",
            Self::Reverse => "reverse",
            Self::Concat => "concat",
            Self::Matches => "regexp_like",
            Self::MatchedPart(..) => "regexp_part",
        }
    }

    /// Whether its last argument is a constant that is no value of SQL: a zone or an interval.
    pub fn takes_binary(self) -> bool {
        matches!(self, Self::LocalTime | Self::Instant | Self::AddInterval | Self::SubtractInterval)
    }

    /// Whether its last argument is a constant regular expression.
    pub fn takes_pattern(self) -> bool {
        matches!(self, Self::Matches | Self::MatchedPart(..))
    }
}

/// Floats are rounded to so many digits at most: all that a binary64 can have as a fraction, near
/// enough, and a factor that it can hold exactly.
const ROUND_DIGITS_MAX: u8 = 22;

impl DatePart {
    /// Every part, by name.
    pub const ALL: [(Self, &'static str); 15] = [
        (Self::Year, "year"),
        (Self::Quarter, "quarter"),
        (Self::Month, "month"),
        (Self::Week, "week"),
        (Self::Day, "day"),
        (Self::Dow, "dow"),
        (Self::Isodow, "isodow"),
        (Self::Doy, "doy"),
        (Self::Isoyear, "isoyear"),
        (Self::Hour, "hour"),
        (Self::Minute, "minute"),
        (Self::Second, "second"),
        (Self::Millisecond, "millisecond"),
        (Self::Microsecond, "microsecond"),
        (Self::Epoch, "epoch"),
    ];

    /// The name in SQL.
    pub fn name(self) -> &'static str {
        let of = Self::ALL.iter().find(|(part, _)| *part == self);
        of.map_or("", |(_, name)| name)
    }

    /// The part of that name, whatever its case.
    pub fn of_name(name: &str) -> Option<Self> {
        let of = Self::ALL.iter().find(|(_, known)| known.eq_ignore_ascii_case(name));
        of.map(|(part, _)| *part)
    }

    /// Whether it follows from the day alone.
    pub fn is_of_day(self) -> bool {
        !matches!(
            self,
            Self::Hour | Self::Minute | Self::Second | Self::Millisecond | Self::Microsecond
        )
    }

    /// Whether it is a span of time that begins somewhere, so that a moment can be cut down to it.
    pub fn begins(self) -> bool {
        !matches!(self, Self::Dow | Self::Isodow | Self::Doy | Self::Isoyear | Self::Epoch)
    }

    /// Whether it only grows as time goes by.
    fn never_ends(self) -> bool {
        matches!(self, Self::Year | Self::Isoyear)
    }
}

fn is_moment(data_type: &DataType) -> bool {
    match data_type {
        DataType::Date32 => true,
        DataType::Timestamp { timezone, .. } => {
            timezone.as_deref().is_none_or(|zone| matches!(zone, "UTC" | "+00:00"))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::expr::Expr;
    use crate::scalar::Scalar;

    #[test]
    fn functions_travel_under_their_names_in_sql() {
        for (function, text) in [
            (Function::DatePart(DatePart::Isodow), r#"{"date_part":"isodow"}"#),
            (Function::DateTrunc(DatePart::Month), r#"{"date_trunc":"month"}"#),
            (Function::Round(2), r#"{"round":2}"#),
            (Function::CharacterLength, r#""character_length""#),
            (Function::Trim(TrimSide::Start), r#"{"trim":"start"}"#),
        ] {
            assert_eq!(serde_json::to_string(&function).unwrap(), text);
            assert_eq!(serde_json::from_str::<Function>(text).unwrap(), function);
        }
        for (part, name) in DatePart::ALL {
            assert_eq!(serde_json::to_string(&part).unwrap(), format!("\"{name}\""));
            assert_eq!(DatePart::of_name(&name.to_uppercase()), Some(part));
        }
    }

    #[test]
    fn calls_read_like_sql() {
        let day = || vec![Expr::Literal(Scalar::int(DataType::Date32, 3))];
        let call = |function, arguments, data_type| Expr::Call { function, arguments, data_type };
        let year = call(Function::DatePart(DatePart::Year), day(), DataType::Int32);
        assert_eq!(year.to_string(), "date_part('year', date 3)");
        let float = Expr::Literal(Scalar::new(DataType::Float64, crate::Value::Float(1.25)));
        let round = call(Function::Round(1), vec![float], DataType::Float64);
        assert_eq!(round.to_string(), "round(1.25, 1)");
    }

    #[test]
    fn functions_take_only_what_they_can_do() {
        let zoned = |zone: &str| DataType::Timestamp {
            unit: TimeUnit::Second,
            timezone: Some(zone.to_string()),
        };
        let hour = Function::DatePart(DatePart::Hour);
        assert!(hour.signature(&[zoned("UTC")]).is_some());
        assert!(hour.signature(&[zoned("Europe/Vienna")]).is_none());
        assert!(hour.signature(&[DataType::Int64]).is_none());
        assert!(hour.signature(&[]).is_none());
        assert!(Function::DateTrunc(DatePart::Dow).signature(&[zoned("UTC")]).is_none());
        assert!(Function::DateTrunc(DatePart::Day).signature(&[DataType::Date32]).is_none());
        let decimal = |precision, scale| DataType::Decimal128 { precision, scale };
        let rounded = |digits| Function::Round(digits).signature(&[decimal(9, 4)]).unwrap().result;
        assert_eq!(
            (rounded(2), rounded(7), rounded(200)),
            (decimal(9, 2), decimal(9, 4), decimal(9, 4))
        );
    }

    #[test]
    fn a_constant_that_is_safe_makes_a_call_that_cannot_fail() {
        let text = || Expr::Literal(Scalar::utf8("abc"));
        let number = |value| Expr::Literal(Scalar::int(DataType::Int32, value));
        let call =
            |function, arguments| Expr::Call { function, arguments, data_type: DataType::Utf8 };
        let part = |count| call(Function::Substring, vec![text(), number(1), count]);
        assert!(!part(number(0)).can_fail() && part(number(-1)).can_fail());
        let unknown = Expr::Register {
            index: 0,
            data_type: DataType::Int32,
            nullable: false,
            name: "n".into(),
        };
        assert!(part(unknown).can_fail());
        let right = |count| call(Function::Right, vec![text(), number(count)]);
        assert!(!right(-2).can_fail() && right(i32::MIN.into()).can_fail());
    }
}
