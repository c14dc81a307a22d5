//! Formats of moments with percent signs, as C, DuckDB and ClickHouse have them.

use std::fmt::Write;

use chrono::format::{Item, Parsed, StrftimeItems, parse};
use chrono::{DateTime, NaiveDate, NaiveDateTime, NaiveTime};
use datafusion::common::{Result, exec_datafusion_err, exec_err};

use super::rows::Row;

/// A format as chrono has it, where a letter means otherwise to it.
fn letters(format: &str) -> String {
    // Microseconds; chrono's %f are nanoseconds.
    format.replace("%f", "%6f").replace("%g", "%3f").replace("%n", "%9f")
}

/// A moment in a format.
///
/// # Errors
/// A letter that no format has.
pub fn of(moment: NaiveDateTime, format: &str) -> Result<String> {
    let (mut text, letters) = (String::new(), letters(format));
    if StrftimeItems::new(&letters).any(|item| item == Item::Error) {
        return exec_err!("'{format}' is no format of moments\nhint: such as '%Y-%m-%d %H:%M:%S'");
    }
    match write!(text, "{}", moment.and_utc().format(&letters)) {
        Ok(()) => Ok(text),
        Err(_) => exec_err!("'{format}' cannot show a timestamp without a time zone"),
    }
}

/// A moment out of a text in a format.
///
/// # Errors
/// A text of another format.
pub fn read(text: &str, format: &str) -> Result<NaiveDateTime> {
    let format_of_chrono = format.replace("%f", "%6f");
    // Digits behind the point may be fewer.
    let format_of_chrono = format_of_chrono.replace(".%6f", "%.f");
    let mut parsed = Parsed::new();
    let read = parse(&mut parsed, text, StrftimeItems::new(&format_of_chrono));
    let wrong = |cause: &dyn std::fmt::Display| {
        exec_datafusion_err!("'{text}' is no moment in the format '{format}': {cause}")
    };
    read.map_err(|cause| wrong(&cause))?;
    if let Ok(moment) = parsed.to_naive_datetime_with_offset(0) {
        return Ok(moment);
    }
    // What a format does not say is the first: of the day, of the month, of the year.
    let date = match parsed.to_naive_date() {
        Ok(date) => date,
        Err(cause) => {
            let month = parsed.month().unwrap_or(1);
            let date = parsed
                .year()
                .and_then(|year| NaiveDate::from_ymd_opt(year, month, parsed.day().unwrap_or(1)));
            date.ok_or_else(|| wrong(&cause))?
        }
    };
    let time = match (parsed.hour_div_12(), parsed.hour_mod_12()) {
        (None, None) => NaiveTime::MIN,
        _ => {
            if parsed.minute().is_none() {
                let _unset = parsed.set_minute(0);
            }
            parsed.to_naive_time().map_err(|cause| wrong(&cause))?
        }
    };
    Ok(date.and_time(time))
}

/// A timestamp of a row's argument.
pub fn moment(row: &Row, nth: usize) -> Result<NaiveDateTime> {
    moment_of(row.moment(nth))
}

/// A timestamp of microseconds.
pub fn moment_of(us: i64) -> Result<NaiveDateTime> {
    let moment = DateTime::from_timestamp_micros(us);
    moment
        .map(|moment| moment.naive_utc())
        .ok_or_else(|| exec_datafusion_err!("a timestamp beyond the calendar"))
}
