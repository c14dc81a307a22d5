//! Patterns of PostgreSQL's `to_char`: `YYYY-MM-DD`, `999.99`.

use chrono::{Datelike, NaiveDateTime, Timelike};
use datafusion::common::Result;

use super::formats::{self, moment};
use super::rows::{Row, Value, text};

/// A moment or a number in a pattern; one with percent signs is a format.
pub fn to_char(row: &Row) -> Result<Option<Value>> {
    let pattern = row.text(1);
    match row.is_moment(0) {
        true if pattern.contains('%') => text(formats::of(moment(row, 0)?, pattern)?),
        true => text(of_moment(moment(row, 0)?, pattern)),
        false => text(super::numerals::of(row.float(0), pattern)?),
    }
}

/// The patterns, longer ones before those that they begin with.
const PATTERNS: [&str; 44] = [
    "YYYY", "Y,YYY", "YYY", "YY", "Y", "IYYY", "IYY", "IY", "IDDD", "ID", "I", "MONTH", "Month",
    "month", "MON", "Mon", "mon", "MM", "MI", "MS", "DAY", "Day", "day", "DDD", "DD", "DY", "Dy",
    "dy", "D", "HH24", "HH12", "HH", "SSSS", "SS", "AM", "PM", "am", "pm", "A.M.", "P.M.", "US",
    "WW", "W", "IW",
];

/// What else is a pattern.
const MORE: [&str; 10] = ["Q", "CC", "J", "BC", "AD", "TZ", "tz", "OF", "a.m.", "p.m."];

fn of_moment(at: NaiveDateTime, pattern: &str) -> String {
    let (mut out, mut rest, mut is_bare) = (String::new(), pattern, false);
    while let Some(first) = rest.chars().next() {
        if first == '"' {
            let quoted = &rest[1..];
            let end = quoted.find('"').unwrap_or(quoted.len());
            out += &quoted[..end];
            rest = quoted.get(end + 1..).unwrap_or("");
            continue;
        }
        if let Some(behind) = rest.strip_prefix("FM") {
            (is_bare, rest) = (true, behind);
            continue;
        }
        let upper = rest.to_uppercase();
        let exact = PATTERNS.iter().chain(&MORE).filter(|p| rest.starts_with(**p));
        let any_case =
            PATTERNS.iter().filter(|p| upper.starts_with(**p) && upper.len() == rest.len());
        let longest =
            |found: Vec<&&'static str>| found.into_iter().max_by_key(|p| p.len()).copied();
        let any_case: Vec<_> = any_case.collect();
        let found = longest(exact.collect::<Vec<_>>()).max_by_len(longest(any_case));
        let Some(found) = found else {
            out.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        };
        let shown = part(at, found, is_bare);
        rest = &rest[found.len()..];
        (out, is_bare) = (out + &shown, false);
        for (suffix, is_upper) in [("TH", true), ("th", false)] {
            if let Some(behind) = rest.strip_prefix(suffix) {
                out += ordinal(&shown, is_upper);
                rest = behind;
            }
        }
    }
    out
}

/// The longer of two patterns, the first of equal ones.
trait MaxByLen: Sized {
    fn max_by_len(self, other: Self) -> Self;
}

impl MaxByLen for Option<&'static str> {
    fn max_by_len(self, other: Self) -> Self {
        match (self, other) {
            (Some(one), Some(other)) if other.len() > one.len() => Some(other),
            (one, other) => one.or(other),
        }
    }
}

fn ordinal(number: &str, is_upper: bool) -> &'static str {
    let teen = number.ends_with("11") || number.ends_with("12") || number.ends_with("13");
    match (number.chars().last(), teen, is_upper) {
        (Some('1'), false, true) => "ST",
        (Some('2'), false, true) => "ND",
        (Some('3'), false, true) => "RD",
        (Some('1'), false, false) => "st",
        (Some('2'), false, false) => "nd",
        (Some('3'), false, false) => "rd",
        (_, _, true) => "TH",
        (_, _, false) => "th",
    }
}

fn part(at: NaiveDateTime, pattern: &str, is_bare: bool) -> String {
    let number = |number: i64, width: usize| match is_bare {
        true => number.to_string(),
        false => format!("{number:0width$}"),
    };
    // Names of days and months are as long as the longest.
    let name = |format: &str| {
        let name = at.format(format).to_string();
        if is_bare { name } else { format!("{name:9}") }
    };
    let (hour12, week) = (at.hour12().1, at.iso_week());
    let year = i64::from(at.year());
    let short = |format: &str| at.format(format).to_string();
    let half =
        if at.hour() < 12 { ["AM", "am", "A.M.", "a.m."] } else { ["PM", "pm", "P.M.", "p.m."] };
    match pattern {
        "YYYY" => number(year, 4),
        "Y,YYY" => format!("{},{:03}", year / 1000, year % 1000),
        "YYY" => number(year % 1000, 3),
        "YY" => number(year % 100, 2),
        "Y" => (year % 10).to_string(),
        "IYYY" => number(i64::from(week.year()), 4),
        "IYY" => number(i64::from(week.year()) % 1000, 3),
        "IY" => number(i64::from(week.year()) % 100, 2),
        "I" => (week.year() % 10).to_string(),
        "IDDD" => number(i64::from(week.week0() * 7 + at.weekday().number_from_monday()), 3),
        "ID" => at.weekday().number_from_monday().to_string(),
        "MONTH" => name("%B").to_uppercase(),
        "Month" => name("%B"),
        "month" => name("%B").to_lowercase(),
        "MON" => short("%b").to_uppercase(),
        "Mon" => short("%b"),
        "mon" => short("%b").to_lowercase(),
        "MM" => number(i64::from(at.month()), 2),
        "MI" => number(i64::from(at.minute()), 2),
        "MS" => number(i64::from(at.nanosecond() / 1_000_000), 3),
        "US" => number(i64::from(at.nanosecond() / 1_000), 6),
        "DAY" => name("%A").to_uppercase(),
        "Day" => name("%A"),
        "day" => name("%A").to_lowercase(),
        "DDD" => number(i64::from(at.ordinal()), 3),
        "DD" => number(i64::from(at.day()), 2),
        "DY" => short("%a").to_uppercase(),
        "Dy" => short("%a"),
        "dy" => short("%a").to_lowercase(),
        "D" => at.weekday().number_from_sunday().to_string(),
        "HH24" => number(i64::from(at.hour()), 2),
        "HH12" | "HH" => number(i64::from(hour12), 2),
        "SSSS" => at.num_seconds_from_midnight().to_string(),
        "SS" => number(i64::from(at.second()), 2),
        "AM" | "PM" => half[0].to_string(),
        "am" | "pm" => half[1].to_string(),
        "A.M." | "P.M." => half[2].to_string(),
        "a.m." | "p.m." => half[3].to_string(),
        "WW" => number(i64::from(at.ordinal0() / 7 + 1), 2),
        "W" => ((at.day() - 1) / 7 + 1).to_string(),
        "IW" => number(i64::from(week.week()), 2),
        "Q" => (at.month0() / 3 + 1).to_string(),
        "CC" => number((year + 99) / 100, 2),
        "J" => (i64::from(at.num_days_from_ce()) + 1_721_425).to_string(),
        "BC" | "AD" => if year > 0 { "AD" } else { "BC" }.to_string(),
        "OF" => "+00".to_string(),
        _ => String::new(),
    }
}
