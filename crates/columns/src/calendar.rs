//! The proleptic Gregorian calendar, in whole numbers. The CUDA processor's kernels have
//! the same, line by line.

use headrace_ir::function::{CALENDAR_YEARS, DatePart};
use headrace_ir::{DataType, TimeUnit};

/// Seconds of a day.
pub const DAY_SECONDS: i64 = 86_400;

/// Days of 400 years, after which the calendar repeats itself.
const ERA_DAYS: i32 = 146_097;

/// Days from 1 March of the year 0, from where eras are counted, to 1970.
const EPOCH_DAYS: i32 = 719_468;

/// Ticks of a second.
pub fn ticks(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    }
}

/// Ticks a second of a timestamp; `None` for other types.
pub fn timestamp_ticks(data_type: &DataType) -> Option<i64> {
    match data_type {
        DataType::Timestamp { unit, .. } => Some(ticks(*unit)),
        _ => None,
    }
}

/// First and last day of [`CALENDAR_YEARS`], counted from 1970-01-01.
pub const CALENDAR_DAYS: (i32, i32) =
    (first_day(CALENDAR_YEARS.0), first_day(CALENDAR_YEARS.1 + 1) - 1);

/// The first of January.
const fn first_day(year: i32) -> i32 {
    // The year before ends with a February of its own.
    let before = year - 1;
    let leap_days = before.div_euclid(4) - before.div_euclid(100) + before.div_euclid(400);
    365 * year + leap_days - 719_162 - 365
}

/// A day of the calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Date {
    /// Year; 0 is 1 BC.
    pub year: i32,
    /// 1 to 12.
    pub month: i32,
    /// 1 to 31.
    pub day: i32,
    /// 1 to 366.
    pub day_of_year: i32,
    /// Whether its year has 366 days.
    pub is_leap: bool,
}

/// The day that is so many days after 1970-01-01, fewer than 2^30. Eras of 400 years begin in
/// March, so that a leap day is a year's last day.
#[inline(always)]
pub(crate) fn date(days: i32) -> Date {
    let shifted = days + EPOCH_DAYS;
    let era = shifted.div_euclid(ERA_DAYS);
    let day_of_era = (shifted - era * ERA_DAYS) as u32;
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let from_march = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * from_march + 2) / 153;
    let day = (from_march - (153 * month_from_march + 2) / 5) as i32 + 1;
    let after_december = month_from_march >= 10;
    let month = month_from_march as i32 + if after_december { -9 } else { 3 };
    let year_in_era = year_of_era + u32::from(after_december);
    let is_leap = year_in_era.is_multiple_of(4)
        && (!year_in_era.is_multiple_of(100) || year_in_era.is_multiple_of(400));
    let day_of_year = if after_december {
        from_march as i32 - 305
    } else {
        from_march as i32 + 60 + i32::from(is_leap)
    };
    Date { year: era * 400 + year_in_era as i32, month, day, day_of_year, is_leap }
}

/// The day that a date of the calendar is; of a month that has no such day, its last one.
pub(crate) fn clipped_day(year: i32, month: i32, day: i32) -> i32 {
    const BEFORE: [i32; 13] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365];
    let first = first_day(year);
    let is_leap = first_day(year + 1) - first == 366;
    let before = |month: i32| BEFORE[month as usize] + i32::from(is_leap && month > 1);
    let (begins, ends) = (before(month - 1), before(month));
    first + begins + day.min(ends - begins) - 1
}

/// Days since Monday.
#[inline(always)]
fn weekday(days: i32) -> i32 {
    (days + 3).rem_euclid(7)
}

/// A part of a day that lies in the calendar.
#[inline(always)]
pub fn part_of_day(part: DatePart, days: i32) -> i32 {
    match part {
        DatePart::Year => date(days).year,
        DatePart::Quarter => (date(days).month + 2) / 3,
        DatePart::Month => date(days).month,
        DatePart::Day => date(days).day,
        DatePart::Doy => date(days).day_of_year,
        // A week belongs to the year of its Thursday.
        DatePart::Week => (date(days - weekday(days) + 3).day_of_year + 6) / 7,
        DatePart::Isoyear => date(days - weekday(days) + 3).year,
        DatePart::Dow => (weekday(days) + 1) % 7,
        DatePart::Isodow => weekday(days) + 1,
        _ => 0,
    }
}

/// A part of the time of a day from a moment with so many ticks a second.
#[inline(always)]
pub(crate) fn part_of_time(part: DatePart, moment: i64, ticks: i64) -> i32 {
    let seconds = moment.div_euclid(ticks).rem_euclid(DAY_SECONDS) as i32;
    let with_fraction = |parts: i64| {
        let rest = moment.rem_euclid(ticks);
        let fraction = if ticks >= parts { rest / (ticks / parts) } else { rest * (parts / ticks) };
        (i64::from(seconds % 60) * parts + fraction) as i32
    };
    match part {
        DatePart::Hour => seconds / 3_600,
        DatePart::Minute => seconds / 60 % 60,
        DatePart::Second => seconds % 60,
        DatePart::Millisecond => with_fraction(1_000),
        DatePart::Microsecond => with_fraction(1_000_000),
        _ => 0,
    }
}

/// Ticks of a part that is always as long; `None` for those that are not, and 1 for those no longer
/// than a tick.
pub fn span_ticks(part: DatePart, ticks: i64) -> Option<i64> {
    Some(match part {
        DatePart::Microsecond => (ticks / 1_000_000).max(1),
        DatePart::Millisecond => (ticks / 1_000).max(1),
        DatePart::Second => ticks,
        DatePart::Minute => 60 * ticks,
        DatePart::Hour => 3_600 * ticks,
        DatePart::Day => DAY_SECONDS * ticks,
        _ => return None,
    })
}

/// The day on which a part of at least a week began.
#[inline(always)]
fn first_of(part: DatePart, days: i64) -> i64 {
    const QUARTERS: [i32; 4] = [0, 90, 181, 273];
    // Eras have whole weeks.
    let day = days.rem_euclid(ERA_DAYS.into()) as i32;
    let begun = match part {
        DatePart::Week => weekday(day),
        DatePart::Month => date(day).day - 1,
        DatePart::Quarter => {
            let date = date(day);
            let quarter = (date.month as usize - 1) / 3;
            let leap_day = i32::from(date.is_leap && quarter > 0);
            date.day_of_year - 1 - QUARTERS[quarter] - leap_day
        }
        _ => date(day).day_of_year - 1,
    };
    days - i64::from(begun)
}

/// The moment at which a part began; `None` if 64 bits cannot say it.
#[inline(always)]
pub fn truncated(part: DatePart, moment: i64, ticks: i64) -> Option<i64> {
    match span_ticks(part, ticks) {
        Some(span) => moment.checked_sub(moment.rem_euclid(span)),
        None => {
            let day_ticks = DAY_SECONDS * ticks;
            first_of(part, moment.div_euclid(day_ticks)).checked_mul(day_ticks)
        }
    }
}

/// The days of the calendar but its first and last, as values of a type of moments.
pub fn inner_calendar(moment: &DataType) -> (i64, i64) {
    let unit = timestamp_ticks(moment).map_or(1, |ticks| i128::from(ticks * DAY_SECONDS));
    let (first, last) = CALENDAR_DAYS;
    let bound = |value: i128| value.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
    (bound(i128::from(first + 1) * unit), bound(i128::from(last) * unit - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_calendar_is_that_of_its_own_first_days() {
        assert_eq!(first_day(1970), 0);
        assert_eq!(first_day(2001), 11_323);
        assert_eq!(first_day(1969), -365);
        for year in [-262_143, -400, -1, 0, 1, 1900, 2000, 2024, 262_142] {
            let first = date(first_day(year));
            assert_eq!((first.year, first.month, first.day, first.day_of_year), (year, 1, 1, 1));
            let last = date(first_day(year + 1) - 1);
            assert_eq!((last.year, last.month, last.day), (year, 12, 31));
            assert_eq!(last.day_of_year, 365 + i32::from(last.is_leap));
            for day in first_day(year)..first_day(year + 1) {
                let date = date(day);
                assert_eq!(clipped_day(date.year, date.month, date.day), day);
            }
        }
        assert_eq!(clipped_day(2024, 2, 31), clipped_day(2024, 3, 1) - 1);
        assert_eq!(clipped_day(2023, 2, 29), clipped_day(2023, 3, 1) - 1);
    }
}
