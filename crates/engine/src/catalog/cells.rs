//! Values of text files: which types a column's texts fit, and the texts as values of a type.
//!
//! Nothing is cut: a text that says more than its column's type keeps is told as one that does not fit. Knows nothing of
//! files.

use chrono::{DateTime, NaiveDate, NaiveDateTime, Utc};
use datafusion::arrow::array::{
    Array, ArrayRef, Date32Array, StringArray, TimestampMicrosecondArray,
};
use datafusion::arrow::compute::{CastOptions, cast, cast_with_options, kernels::cast_utils};
use datafusion::arrow::datatypes::{DataType, Date32Type, TimeUnit};
use datafusion::arrow::error::ArrowError;

/// Digits of the longest decimal.
const DECIMAL_DIGITS_MAX: usize = 38;

/// How the values of a column are written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Whether somebody named the type: values are read as a cast reads them.
    pub is_given: bool,
    /// Of dates and moments, as `strptime` has it; `None`: ISO 8601.
    pub format: Option<String>,
    /// Whether a comma stands before fractions.
    pub has_comma: bool,
}

/// What is said of dates and numbers before a file is looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Formats {
    /// How dates are written.
    pub date: Option<String>,
    /// How moments are written.
    pub moment: Option<String>,
    /// Whether a comma stands before fractions.
    pub has_comma: bool,
}

impl Formats {
    /// How values of a type that somebody named are written.
    pub fn of_given(&self, data_type: &DataType) -> Written {
        let format = match data_type {
            DataType::Date32 => self.date.clone(),
            DataType::Timestamp(..) => self.moment.clone(),
            _ => None,
        };
        Written { is_given: true, format, has_comma: self.has_comma }
    }
}

/// Texts as values of a type, and the rows whose texts do not fit it, which are NULL.
///
/// # Errors
/// A type that no text can be.
pub fn parse(
    texts: &StringArray,
    data_type: &DataType,
    written: &Written,
) -> Result<(ArrayRef, Vec<usize>), ArrowError> {
    let safe = CastOptions { safe: true, ..CastOptions::default() };
    let array: ArrayRef = match (data_type, &written.format) {
        (DataType::Utf8, _) => return Ok((std::sync::Arc::new(texts.clone()), Vec::new())),
        (DataType::Date32, Some(format)) => {
            let days = texts.iter().map(|text| days_of(text?, format));
            std::sync::Arc::new(days.collect::<Date32Array>())
        }
        (DataType::Timestamp(_, zone), Some(format)) => {
            let moments = texts.iter().map(|text| micros_of(text?, format));
            let moments = moments.collect::<TimestampMicrosecondArray>();
            cast(&moments.with_timezone_opt(zone.clone()), data_type)?
        }
        (data_type, _) if written.has_comma && is_fractional(data_type) => {
            let pointed: StringArray =
                texts.iter().map(|text| text.map(|text| text.replace(',', "."))).collect();
            cast_with_options(&pointed, data_type, &safe)?
        }
        _ => cast_with_options(texts, data_type, &safe)?,
    };
    let fits = |row: usize| array.is_valid(row) && is_kept(texts.value(row), data_type, written);
    let misfits = (0..texts.len()).filter(|row| texts.is_valid(*row) && !fits(*row)).collect();
    Ok((array, misfits))
}

fn is_fractional(data_type: &DataType) -> bool {
    data_type.is_floating() || matches!(data_type, DataType::Decimal128(..))
}

/// Whether a value says all that its text says.
fn is_kept(text: &str, data_type: &DataType, written: &Written) -> bool {
    let is_given = written.is_given;
    match data_type {
        DataType::Date32 if written.format.is_none() && text.len() > 10 => {
            is_given && text[10..].bytes().all(|b| matches!(b, b'T' | b' ' | b':' | b'0' | b'.'))
        }
        DataType::Timestamp(unit, zone) if written.format.is_none() => {
            is_moment_kept(text, *unit, zone.is_some(), is_given)
        }
        _ if is_given => true,
        DataType::Decimal128(..) => !has_leading_zero(text) && is_whole(text),
        DataType::Float64 => {
            !has_leading_zero(text)
                && (text.len() < 19 || !is_whole(text) || text.parse::<i64>().is_ok())
        }
        data_type if data_type.is_integer() => !has_leading_zero(text),
        _ => true,
    }
}

/// The fraction must fit the unit, and a zone the type.
fn is_moment_kept(text: &str, unit: TimeUnit, has_zone: bool, is_given: bool) -> bool {
    let digits = match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 3,
        TimeUnit::Microsecond => 6,
        TimeUnit::Nanosecond => 9,
    };
    let fits = fraction(text).bytes().skip(digits).all(|digit| digit == b'0');
    let zone = zone(text);
    let is_zone_kept = match has_zone {
        true => is_given || !zone.is_empty(),
        false => is_utc(zone),
    };
    fits && is_zone_kept
}

/// The digits behind the point of the seconds.
fn fraction(moment: &str) -> &str {
    let Some(rest) = moment.get(19..).and_then(|rest| rest.strip_prefix('.')) else { return "" };
    &rest[..rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len())]
}

/// What follows the time of day.
fn zone(moment: &str) -> &str {
    let rest = moment.get(11..).unwrap_or_default();
    rest.trim_start_matches(|c: char| c.is_ascii_digit() || matches!(c, ':' | '.')).trim()
}

fn is_utc(zone: &str) -> bool {
    matches!(zone, "" | "Z" | "z" | "UTC" | "+00" | "+00:00" | "+0000" | "-00:00")
}

fn days_of(text: &str, format: &str) -> Option<i32> {
    let day = NaiveDate::parse_from_str(text, format).ok()?;
    i32::try_from(day.signed_duration_since(NaiveDate::default()).num_days()).ok()
}

fn micros_of(text: &str, format: &str) -> Option<i64> {
    if format.contains("%z") {
        return Some(DateTime::parse_from_str(text, format).ok()?.timestamp_micros());
    }
    let moment = NaiveDateTime::parse_from_str(text, format).ok();
    // A format without a time of day: its first moment.
    let moment =
        moment.or_else(|| NaiveDate::parse_from_str(text, format).ok()?.and_hms_opt(0, 0, 0));
    Some(moment?.and_utc().timestamp_micros())
}

/// The type of numbers that are told to be of two types: those of files whose values are read again, from their texts.
pub fn wider_number(a: &DataType, b: &DataType) -> Option<DataType> {
    use DataType::{Decimal128, Float64, Int64};
    match (a, b) {
        (Int64, wide @ (Float64 | Decimal128(_, 0)))
        | (wide @ (Float64 | Decimal128(_, 0)), Int64) => Some(wide.clone()),
        _ => None,
    }
}

/// What a text could be, and all texts of a column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kind {
    #[default]
    Nothing,
    Boolean,
    Integer,
    LongInteger,
    Float,
    Date,
    Moment {
        is_fine: bool,
        is_zoned: bool,
    },
    Text,
}

impl Kind {
    fn of(text: &str, has_comma: bool) -> Kind {
        if text.eq_ignore_ascii_case("true") || text.eq_ignore_ascii_case("false") {
            return Kind::Boolean;
        }
        if matches!(text.trim_start_matches('-'), "NaN" | "nan" | "inf" | "Infinity") {
            return Kind::Float;
        }
        match text.as_bytes() {
            [_, _, _, _, b'-', _, _, b'-', _, _, ..] => Kind::of_day(text),
            [b'-' | b'.' | b',' | b'0'..=b'9', ..] => match has_comma {
                true if text.contains('.') => Kind::Text,
                true => Kind::of_number(&text.replace(',', ".")),
                false => Kind::of_number(text),
            },
            _ => Kind::Text,
        }
    }

    fn of_number(text: &str) -> Kind {
        let digits = text.strip_prefix('-').unwrap_or(text);
        let is_number = |b: u8| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-');
        if has_leading_zero(text) || !digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
            return Kind::Text;
        }
        match is_whole(text) {
            true if text.parse::<i64>().is_ok() => Kind::Integer,
            true if digits.len() <= DECIMAL_DIGITS_MAX => Kind::LongInteger,
            false if digits.bytes().all(is_number) && text.parse::<f64>().is_ok() => Kind::Float,
            _ => Kind::Text,
        }
    }

    fn of_day(text: &str) -> Kind {
        let is_like = |text: &str, pattern: &str| {
            text.len() >= pattern.len()
                && text.bytes().zip(pattern.bytes()).all(|(byte, like)| match like {
                    b'0' => byte.is_ascii_digit(),
                    b'T' => matches!(byte, b'T' | b't' | b' '),
                    like => byte == like,
                })
        };
        if text.len() == 10 && is_like(text, "0000-00-00") {
            let is_day = <Date32Type as cast_utils::Parser>::parse(text).is_some();
            return if is_day { Kind::Date } else { Kind::Text };
        }
        if !is_like(text, "0000-00-00T00:00:00")
            || cast_utils::string_to_datetime(&Utc, text).is_err()
        {
            return Kind::Text;
        }
        let is_fine = fraction(text).bytes().skip(6).any(|digit| digit != b'0');
        Kind::Moment { is_fine, is_zoned: !is_utc(zone(text)) }
    }

    fn with(self, other: Kind) -> Kind {
        use Kind::*;
        match (self, other) {
            (a, b) if a == b => a,
            (Nothing, known) | (known, Nothing) => known,
            (Integer, LongInteger) | (LongInteger, Integer) => LongInteger,
            // A long integer is no float: it would lose digits.
            (Integer, Float) | (Float, Integer) => Float,
            (Date, Moment { is_fine, is_zoned: false })
            | (Moment { is_fine, is_zoned: false }, Date) => Moment { is_fine, is_zoned: false },
            (Moment { is_fine: a, is_zoned }, Moment { is_fine: b, is_zoned: other })
                if is_zoned == other =>
            {
                Moment { is_fine: a || b, is_zoned }
            }
            _ => Text,
        }
    }

    fn data_type(self) -> DataType {
        match self {
            Kind::Nothing => DataType::Null,
            Kind::Boolean => DataType::Boolean,
            Kind::Integer => DataType::Int64,
            Kind::LongInteger => DataType::Decimal128(DECIMAL_DIGITS_MAX as u8, 0),
            Kind::Float => DataType::Float64,
            Kind::Date => DataType::Date32,
            Kind::Moment { is_fine, is_zoned } => {
                let unit = if is_fine { TimeUnit::Nanosecond } else { TimeUnit::Microsecond };
                DataType::Timestamp(unit, is_zoned.then(|| "UTC".into()))
            }
            Kind::Text => DataType::Utf8,
        }
    }
}

/// Digits alone, behind a sign.
fn is_whole(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
}

/// As keys and codes have it: `00123`.
fn has_leading_zero(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text).as_bytes();
    matches!(digits, [b'0', next, ..] if next.is_ascii_digit())
}

/// The type that all texts of a column fit, and how they are written; `Null`: there are none.
pub fn infer<'a>(
    texts: impl Iterator<Item = &'a str> + Clone,
    formats: &Formats,
) -> (DataType, Written) {
    let written = |format| Written { is_given: false, format, has_comma: formats.has_comma };
    let all =
        |fits: &dyn Fn(&str) -> bool| texts.clone().next().is_some() && texts.clone().all(fits);
    if let Some(format) = &formats.date
        && all(&|text| days_of(text, format).is_some())
    {
        return (DataType::Date32, written(Some(format.clone())));
    }
    let moment = DataType::Timestamp(TimeUnit::Microsecond, None);
    if let Some(format) = &formats.moment
        && all(&|text| micros_of(text, format).is_some())
    {
        return (moment, written(Some(format.clone())));
    }
    let mut kind = Kind::Nothing;
    for text in texts.clone() {
        kind = kind.with(Kind::of(text, formats.has_comma));
        if kind == Kind::Text {
            break;
        }
    }
    match (kind, texts.clone().next()) {
        (Kind::Text, Some(first)) => match day_format(first, &all) {
            Some(format) if format.contains("%H") => (moment, written(Some(format))),
            Some(format) => (DataType::Date32, written(Some(format))),
            None => (DataType::Utf8, written(None)),
        },
        (kind, _) => (kind.data_type(), written(None)),
    }
}

/// What is asked of a text.
type Test<'a> = &'a dyn Fn(&str) -> bool;

/// Days before months or months before days: the one of them that fits all texts, if the other does not.
fn day_format(first: &str, all: &dyn Fn(Test<'_>) -> bool) -> Option<String> {
    let separator = first.bytes().find(|b| !b.is_ascii_digit())?;
    if !matches!(separator, b'/' | b'-' | b'.') {
        return None;
    }
    let separator = char::from(separator);
    let is_day = |text: &str| {
        let day = text.split(' ').next().unwrap_or_default();
        let lengths: Vec<usize> = day.split(separator).map(str::len).collect();
        matches!(lengths.as_slice(), [1 | 2, 1 | 2, 4])
    };
    if !all(&is_day) {
        return None;
    }
    let times = ["", " %H:%M", " %H:%M:%S", " %H:%M:%S%.f"];
    let fitting = |days: &str| {
        let format = |time: &&str| format!("{}{time}", days.replace('/', &separator.to_string()));
        let fits = |format: &String| match format.contains("%H") {
            true => all(&|text| NaiveDateTime::parse_from_str(text, format).is_ok()),
            false => all(&|text| NaiveDate::parse_from_str(text, format).is_ok()),
        };
        times.iter().map(format).find(fits)
    };
    match (fitting("%d/%m/%Y"), fitting("%m/%d/%Y")) {
        (Some(one), None) | (None, Some(one)) => Some(one),
        _ => None,
    }
}

/// Whether a text is a value of the type that a column's other texts have.
pub fn fits(text: &str, data_type: &DataType, written: &Written) -> bool {
    let texts = StringArray::from(vec![text]);
    parse(&texts, data_type, written).is_ok_and(|(_, misfits)| misfits.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::type_name;

    fn inferred(texts: &[&str]) -> String {
        let (data_type, written) = infer(texts.iter().copied(), &Formats::default());
        format!(
            "{}{}",
            type_name(&data_type),
            written.format.map_or(String::new(), |f| format!(" {f}"))
        )
    }

    #[test]
    fn types_are_those_that_keep_what_is_written() {
        for (texts, expected) in [
            (&["1", "-2", "0"][..], "BIGINT"),
            (&["00123", "1"], "VARCHAR"),
            (&["1", "-007"], "VARCHAR"),
            (&["9223372036854775807", "-9223372036854775808"], "BIGINT"),
            (&["9223372036854775808", "1"], "DECIMAL(38, 0)"),
            (&["9223372036854775808", "1.5"], "VARCHAR"),
            (&["1e3", ".5", "-0.5", "2."], "DOUBLE"),
            (&["+5"], "VARCHAR"),
            (&["1-2"], "VARCHAR"),
            (&["--1"], "VARCHAR"),
            (&["2024-01-31"], "DATE"),
            (&["2024-13-31"], "VARCHAR"),
            (&["2024-01-31", "2024-01-01 10:00:00"], "TIMESTAMP"),
            (&["2024-01-01T10:00:00Z"], "TIMESTAMP"),
            (&["2024-01-01T10:00:00+05:00"], "TIMESTAMP WITH TIME ZONE"),
            (&["2024-01-01T10:00:00+05:00", "2024-01-01T10:00:00"], "VARCHAR"),
            (&["31/12/2024", "1/2/2024"], "DATE %d/%m/%Y"),
            (&["12-31-2024"], "DATE %m-%d-%Y"),
            (&["1/2/2024"], "VARCHAR"),
            (&["31.12.2024 10:30"], "TIMESTAMP %d.%m.%Y %H:%M"),
            (&["13/12/24"], "VARCHAR"),
            (&["true", "FALSE"], "BOOLEAN"),
            (&["true", "1"], "VARCHAR"),
        ] {
            assert_eq!(inferred(texts), expected, "{texts:?}");
        }
    }

    #[test]
    fn what_a_type_would_cut_does_not_fit() {
        let moment = DataType::Timestamp(TimeUnit::Microsecond, None);
        let (told, given) = (Written::default(), Written { is_given: true, ..Written::default() });
        for (text, data_type, fits_told, fits_given) in [
            ("2024-01-01 10:30:00", DataType::Date32, false, false),
            ("2024-01-01 00:00:00", DataType::Date32, false, true),
            ("007", DataType::Int64, false, true),
            ("1.5", DataType::Int64, false, false),
            ("9007199254740993000", DataType::Float64, true, true),
            ("99999999999999999999", DataType::Float64, false, true),
            ("1.5", DataType::Decimal128(38, 0), false, true),
            ("2024-01-01 10:30:00.1234567", moment.clone(), false, false),
            ("2024-01-01 10:30:00.1234560", moment.clone(), true, true),
            ("2024-01-01 10:30:00+02:00", moment.clone(), false, false),
            ("2024-01-01", moment, true, true),
        ] {
            assert_eq!(fits(text, &data_type, &told), fits_told, "{text} {data_type}");
            assert_eq!(fits(text, &data_type, &given), fits_given, "{text} {data_type}, given");
        }
    }
}
