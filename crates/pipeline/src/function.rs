//! What both processors know of a function's result before they compute it.

use headrace_columns::calendar::{
    CALENDAR_DAYS, DAY_SECONDS, inner_calendar, part_of_day, span_ticks, timestamp_ticks, truncated,
};
use headrace_ir::function::{DatePart, Function};
use headrace_ir::moment::DAYS;
use headrace_ir::{DataType, ValueRange};

use crate::bind::type_range;

/// Bounds of the results for arguments within bounds.
pub(crate) fn range(
    function: Function,
    argument: &DataType,
    known: Option<ValueRange>,
    result: &DataType,
) -> Option<ValueRange> {
    let all = type_range(result);
    let within = |min, max| Some(ValueRange { min, max });
    match function {
        Function::DatePart(part) => match part_bounds(part) {
            Some((min, max)) => within(min, max),
            // The years.
            None if part != DatePart::Epoch => {
                let (first, last) = known.map_or(CALENDAR_DAYS, |known| days(argument, known));
                let year = |day| i64::from(part_of_day(part, day));
                within(year(first), year(last))
            }
            None => None,
        },
        Function::DateTrunc(part) => {
            let (known, ticks) = (known?, timestamp_ticks(argument)?);
            let began = |moment| truncated(part, moment, ticks);
            within(began(known.min).unwrap_or(i64::MIN), began(known.max)?)
        }
        Function::Abs => match (known, all) {
            (Some(known), Some(all)) => {
                let (low, high) = (known.min.saturating_abs(), known.max.saturating_abs());
                let least = if known.min <= 0 && known.max >= 0 { 0 } else { low.min(high) };
                within(least.min(all.max), low.max(high).min(all.max))
            }
            _ => all,
        },
        Function::BitCount | Function::HammingDistance => match argument.plain_width_bytes() {
            Some(bytes) => within(0, 8 * bytes as i64),
            None => all,
        },
        Function::CharacterLength | Function::OctetLength | Function::Position => {
            within(0, i32::MAX.into())
        }
        Function::InCalendar => {
            let (first, last) = inner_calendar(argument);
            let known = known.or(all).unwrap_or(ValueRange { min: first, max: last });
            within(known.min.max(first), known.max.min(last))
        }
        Function::AddDays => within(DAYS.start.into(), i64::from(DAYS.end) - 1),
        _ => all,
    }
}

/// Bounds of a part that are the same for all moments.
fn part_bounds(part: DatePart) -> Option<(i64, i64)> {
    Some(match part {
        DatePart::Quarter => (1, 4),
        DatePart::Month => (1, 12),
        DatePart::Week => (1, 53),
        DatePart::Day => (1, 31),
        DatePart::Dow => (0, 6),
        DatePart::Isodow => (1, 7),
        DatePart::Doy => (1, 366),
        DatePart::Hour => (0, 23),
        DatePart::Minute | DatePart::Second => (0, 59),
        DatePart::Millisecond => (0, 59_999),
        DatePart::Microsecond => (0, 59_999_999),
        DatePart::Year | DatePart::Isoyear | DatePart::Epoch => return None,
    })
}

/// The days of moments, as far as they lie in the calendar.
fn days(moment: &DataType, known: ValueRange) -> (i32, i32) {
    let unit = timestamp_ticks(moment).map_or(1, |ticks| ticks * DAY_SECONDS);
    let (first, last) = CALENDAR_DAYS;
    let day = |moment: i64| moment.div_euclid(unit).clamp(first.into(), last.into()) as i32;
    (day(known.min), day(known.max))
}

/// Whether bounds prove that no moment lies outside the calendar.
pub(crate) fn in_calendar(moment: &DataType, proven: Option<ValueRange>) -> bool {
    let (first, last) = CALENDAR_DAYS;
    proven.is_some_and(|proven| {
        let (low, high) = days(moment, proven);
        low > first && high < last
    })
}

/// Whether the function does nothing to such an argument.
pub(crate) fn is_identity(function: Function, argument: &DataType, result: &DataType) -> bool {
    match (function, argument) {
        (Function::DateTrunc(part), moment) => {
            timestamp_ticks(moment).and_then(|ticks| span_ticks(part, ticks)) == Some(1)
        }
        (Function::Abs, number) => number.is_integer() && !number.is_signed_integer(),
        (Function::Floor | Function::Ceil, DataType::Decimal128 { scale, .. }) => *scale <= 0,
        (Function::Round(_) | Function::Trunc(_), DataType::Decimal128 { .. }) => {
            argument == result
        }
        _ => false,
    }
}
