//! Functions of dates and timestamps.

use chrono::{Datelike, Months, NaiveDate, NaiveDateTime, TimeDelta};
use datafusion::arrow::datatypes::IntervalMonthDayNano;
use datafusion::common::{Result, exec_err};

use super::formats::{self, moment, moment_of};
use super::patterns;
use super::rows::Kind::{Bool, Date, Float, Int, Interval, Moment, Text};
use super::rows::{Definition, Row, Value, int, strict, text};

/// The functions.
pub const FUNCTIONS: &[Definition] = &[
    strict("dayname", &[&[Moment]], Text, |row| text(formats::of(moment(row, 0)?, "%A")?)),
    strict("monthname", &[&[Moment]], Text, |row| text(formats::of(moment(row, 0)?, "%B")?)),
    strict("strftime", &[&[Moment, Text], &[Text, Moment]], Text, strftime),
    strict("strptime", &[&[Text, Text]], Moment, |row| {
        formats::read(row.text(0), row.text(1)).map(micros)
    }),
    strict("try_strptime", &[&[Text, Text]], Moment, |row| {
        Ok(formats::read(row.text(0), row.text(1)).ok().and_then(micros))
    }),
    strict("date_diff", &[&[Text, Moment, Moment]], Int, |row| {
        let (from, to) = (moment(row, 1)?, moment(row, 2)?);
        int(boundary(row.text(0), to)? - boundary(row.text(0), from)?)
    }),
    strict("datesub", &[&[Text, Moment, Moment]], Int, |row| {
        int(whole(row.text(0), moment(row, 1)?, moment(row, 2)?)?)
    }),
    strict("last_day", &[&[Moment]], Date, last_day),
    strict("age", &[&[Moment, Moment]], Interval, |row| {
        Ok(Some(Value::Interval(age(moment(row, 0)?, moment(row, 1)?)?)))
    }),
    strict("make_timestamp", &[&[Int], &[Int, Int, Int, Int, Int, Float]], Moment, make_timestamp),
    strict("time_bucket", &[&[Interval, Moment], &[Interval, Moment, Moment]], Moment, bucket),
    strict("epoch_ms", &[&[Moment]], Int, |row| int(row.moment(0).div_euclid(1_000))),
    strict("epoch_us", &[&[Moment]], Int, |row| int(row.moment(0))),
    strict("epoch_ns", &[&[Moment]], Int, |row| int(i128::from(row.moment(0)) * 1_000)),
    strict("to_char", &[&[Moment, Text], &[Float, Text]], Text, patterns::to_char),
    strict("isleap", &[&[Moment]], Bool, |row| {
        Ok(Some(Value::Bool(moment(row, 0)?.date().leap_year())))
    }),
];

/// What `date_trunc` and `date_bin` are of moments that nanoseconds do not reach.
pub static TRUNC: Definition = strict("date_trunc", &[&[Text, Moment]], Moment, trunc);
pub static BIN: Definition =
    strict("date_bin", &[&[Interval, Moment], &[Interval, Moment, Moment]], Moment, |row| {
        bucket_from(row, Some(0))
    });

fn micros(moment: NaiveDateTime) -> Option<Value> {
    Some(Value::Moment(moment.and_utc().timestamp_micros()))
}

fn strftime(row: &Row) -> Result<Option<Value>> {
    match row.is_moment(0) {
        true => text(formats::of(moment(row, 0)?, row.text(1))?),
        false => text(formats::of(moment(row, 1)?, row.text(0))?),
    }
}

fn days(date: NaiveDate) -> i64 {
    i64::from(date.num_days_from_ce()) - 719_163
}

/// A unit of time, however it is spelled.
fn unit(name: &str) -> Result<&'static str> {
    Ok(match name.to_lowercase().as_str() {
        "year" | "years" | "yr" | "y" => "year",
        "quarter" | "quarters" => "quarter",
        "month" | "months" | "mon" | "mons" => "month",
        "week" | "weeks" | "w" => "week",
        "day" | "days" | "d" | "dayofmonth" => "day",
        "hour" | "hours" | "hr" | "h" => "hour",
        "minute" | "minutes" | "min" | "m" => "minute",
        "second" | "seconds" | "sec" | "s" => "second",
        "millisecond" | "milliseconds" | "ms" => "millisecond",
        "microsecond" | "microseconds" | "us" => "microsecond",
        "decade" | "decades" => "decade",
        "century" | "centuries" => "century",
        _ => {
            return exec_err!(
                "'{name}' is no unit of time\nhint: year, quarter, month, week, day, hour, minute, second, millisecond, \
                 microsecond"
            );
        }
    })
}

/// Microseconds of units that have the same length always.
fn length(unit: &str) -> Option<i64> {
    Some(match unit {
        "week" => 7 * 86_400_000_000,
        "day" => 86_400_000_000,
        "hour" => 3_600_000_000,
        "minute" => 60_000_000,
        "second" => 1_000_000,
        "millisecond" => 1_000,
        "microsecond" => 1,
        _ => return None,
    })
}

fn months(unit: &str) -> i64 {
    match unit {
        "century" => 1200,
        "decade" => 120,
        "year" => 12,
        "quarter" => 3,
        _ => 1,
    }
}

/// Units that began until a moment; weeks begin on Mondays.
fn boundary(name: &str, at: NaiveDateTime) -> Result<i64> {
    let unit = unit(name)?;
    Ok(match length(unit) {
        None => (i64::from(at.year()) * 12 + i64::from(at.month0())).div_euclid(months(unit)),
        Some(_) if unit == "week" => (days(at.date()) + 3).div_euclid(7),
        Some(length) => at.and_utc().timestamp_micros().div_euclid(length),
    })
}

/// Whole units between two moments.
fn whole(name: &str, from: NaiveDateTime, to: NaiveDateTime) -> Result<i64> {
    let unit = unit(name)?;
    if to < from {
        return Ok(-whole(name, to, from)?);
    }
    if let Some(length) = length(unit) {
        return Ok((to - from).num_microseconds().unwrap_or(i64::MAX) / length);
    }
    let passed = age(to, from)?;
    Ok(i64::from(passed.months) / months(unit))
}

fn last_day(row: &Row) -> Result<Option<Value>> {
    let date = moment(row, 0)?.date();
    let next = date.with_day(1).and_then(|first| first.checked_add_months(Months::new(1)));
    let last = next.and_then(|next| next.pred_opt());
    Ok(last.and_then(|last| i32::try_from(days(last)).ok()).map(Value::Date))
}

/// Years, months and days between two moments as PostgreSQL counts them: days are those of the earlier month.
fn age(later: NaiveDateTime, earlier: NaiveDateTime) -> Result<IntervalMonthDayNano> {
    if later < earlier {
        let age = age(earlier, later)?;
        return Ok(IntervalMonthDayNano::new(-age.months, -age.days, -age.nanoseconds));
    }
    let time = |moment: NaiveDateTime| {
        (moment.time() - chrono::NaiveTime::MIN).num_nanoseconds().unwrap_or(0)
    };
    let mut months =
        (later.year() - earlier.year()) * 12 + later.month() as i32 - earlier.month() as i32;
    let mut days = later.day() as i32 - earlier.day() as i32;
    let mut nanoseconds = time(later) - time(earlier);
    if nanoseconds < 0 {
        nanoseconds += 86_400_000_000_000;
        days -= 1;
    }
    if days < 0 {
        days += i32::from(earlier.date().num_days_in_month());
        months -= 1;
    }
    Ok(IntervalMonthDayNano::new(months, days, nanoseconds))
}

fn make_timestamp(row: &Row) -> Result<Option<Value>> {
    if row.len() == 1 {
        return Ok(Some(Value::Moment(row.int(0))));
    }
    let part = |nth| u32::try_from(row.int(nth)).unwrap_or(u32::MAX);
    let date = i32::try_from(row.int(0)).ok();
    let date = date.and_then(|year| NaiveDate::from_ymd_opt(year, part(1), part(2)));
    let start = date.and_then(|date| date.and_hms_opt(part(3), part(4), 0));
    let seconds = row.float(5);
    let (Some(start), true) = (start, (0.0..=60.0).contains(&seconds)) else {
        return exec_err!(
            "make_timestamp() of a moment that no calendar has: {}-{}-{} {}:{}:{seconds}",
            row.int(0),
            row.int(1),
            row.int(2),
            row.int(3),
            row.int(4)
        );
    };
    Ok(micros(start + TimeDelta::microseconds((seconds * 1e6).round() as i64)))
}

/// The start of the unit that a moment lies in.
fn trunc(row: &Row) -> Result<Option<Value>> {
    let (unit, at) = (unit(row.text(0))?, moment(row, 1)?);
    let start = match length(unit) {
        Some(_) if unit == "week" => {
            let days = i64::from(at.weekday().num_days_from_monday());
            at.date().checked_sub_signed(TimeDelta::days(days)).map(NaiveDateTime::from)
        }
        Some(length) => {
            let us = at.and_utc().timestamp_micros();
            return Ok(us.checked_sub(us.rem_euclid(length)).map(Value::Moment));
        }
        None => {
            let month = i64::from(at.year()) * 12 + i64::from(at.month0());
            let first = month - month.rem_euclid(months(unit));
            let year = i32::try_from(first.div_euclid(12)).ok();
            year.and_then(|year| NaiveDate::from_ymd_opt(year, first.rem_euclid(12) as u32 + 1, 1))
                .map(NaiveDateTime::from)
        }
    };
    Ok(start.and_then(micros))
}

/// The start of the bucket of a moment; buckets begin at 2000-01-03, a Monday, or at 2000-01-01 if they are months.
fn bucket(row: &Row) -> Result<Option<Value>> {
    bucket_from(row, None)
}

/// The same, with the moment at which buckets begin if the row does not say it.
fn bucket_from(row: &Row, usual: Option<i64>) -> Result<Option<Value>> {
    let (width, at) = (row.interval(0), row.moment(1));
    let nanoseconds = i128::from(width.days) * 86_400_000_000_000 + i128::from(width.nanoseconds);
    let origin = (row.len() > 2).then(|| row.moment(2)).or(usual);
    match (width.months, nanoseconds) {
        (0, 1_000..) => {
            let (width, origin) = (nanoseconds / 1_000, origin.unwrap_or(946_857_600_000_000));
            let passed = i128::from(at) - i128::from(origin);
            let start = i128::from(origin) + passed.div_euclid(width) * width;
            Ok(i64::try_from(start).ok().map(Value::Moment))
        }
        (1.., 0) => {
            let origin = match origin {
                Some(us) => moment_of(us)?,
                None => NaiveDate::from_ymd_opt(2000, 1, 1).unwrap_or_default().into(),
            };
            month_bucket(width.months, moment(row, 1)?, origin)
        }
        _ => exec_err!(
            "time_bucket() of a width that is neither some months nor some time of a microsecond or more\nhint: interval '1 hour'"
        ),
    }
}

fn month_bucket(width: i32, at: NaiveDateTime, origin: NaiveDateTime) -> Result<Option<Value>> {
    let month = |moment: NaiveDateTime| moment.year() * 12 + moment.month0() as i32;
    let mut passed = month(at) - month(origin);
    // The bucket's month may begin later on its day.
    if (at.day(), at.time()) < (origin.day(), origin.time()) {
        passed -= 1;
    }
    let passed = passed.div_euclid(width) * width;
    let by = Months::new(passed.unsigned_abs());
    let start =
        if passed < 0 { origin.checked_sub_months(by) } else { origin.checked_add_months(by) };
    Ok(start.and_then(micros))
}
