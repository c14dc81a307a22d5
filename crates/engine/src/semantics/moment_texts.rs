//! Moments, times of day and intervals as texts, as PostgreSQL writes them: `2024-03-05 10:11:12.5`, `1 day 02:00:00`.
//!
//! The planner writes a T between date and time, and digits of a second in threes; it has other words for intervals.

use std::sync::{Arc, LazyLock};

use chrono::{DateTime, NaiveDateTime, NaiveTime, Offset, TimeZone};
use datafusion::arrow::array::timezone::Tz;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, StringBuilder};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    DataType, FieldRef, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit,
    Time64NanosecondType, TimeUnit, TimestampMicrosecondType, TimestampNanosecondType,
};
use datafusion::common::{Result, ScalarValue, exec_datafusion_err, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use crate::strict;

const NAME: &str = "moment_text";
const NS_PER_SECOND: i64 = 1_000_000_000;

/// Whether values of a type are written here.
pub fn is_meant(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Timestamp(..) | DataType::Time32(_) | DataType::Time64(_) | DataType::Interval(_)
    )
}

/// The text of a moment.
pub fn text(moment: Expr) -> Expr {
    static FUNCTION: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
        let signature = Signature::any(1, Volatility::Immutable);
        Arc::new(ScalarUDF::from(MomentText { signature }))
    });
    FUNCTION.call(vec![moment])
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct MomentText {
    signature: Signature,
}

impl ScalarUDFImpl for MomentText {
    fn name(&self) -> &str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        strict::return_field(self, &args)
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let Some(moments) = arrays.first() else { return internal_err!("{NAME} of nothing") };
        let texts = texts(moments)?;
        Ok(match &args.args[..] {
            [ColumnarValue::Scalar(_)] => {
                ColumnarValue::Scalar(ScalarValue::try_from_array(&texts, 0)?)
            }
            _ => ColumnarValue::Array(texts),
        })
    }
}

/// Moments, times of day or intervals as texts.
///
/// # Errors
/// A moment that the calendar does not have, and values of other types.
pub fn texts(moments: &ArrayRef) -> Result<ArrayRef> {
    match moments.data_type() {
        DataType::Timestamp(TimeUnit::Nanosecond, zone) => {
            let zone = zone.as_deref().map(str::parse::<Tz>).transpose()?;
            let values = moments.as_primitive::<TimestampNanosecondType>();
            written(moments, |row, text| {
                let ns = values.value(row);
                let moment = DateTime::from_timestamp_nanos(ns).naive_utc();
                of_moment(moment, zone, text);
                Ok(())
            })
        }
        DataType::Timestamp(_, zone) => {
            let us = DataType::Timestamp(TimeUnit::Microsecond, zone.clone());
            let zone = zone.as_deref().map(str::parse::<Tz>).transpose()?;
            let moments = cast(moments, &us)?;
            let values = moments.as_primitive::<TimestampMicrosecondType>();
            written(&moments, |row, text| {
                let us = values.value(row);
                let moment = DateTime::from_timestamp_micros(us).ok_or_else(|| {
                    exec_datafusion_err!("{us} us since 1970 is beyond the calendar")
                })?;
                of_moment(moment.naive_utc(), zone, text);
                Ok(())
            })
        }
        DataType::Time32(_) | DataType::Time64(_) => {
            let times = cast(moments, &DataType::Time64(TimeUnit::Nanosecond))?;
            let values = times.as_primitive::<Time64NanosecondType>();
            written(&times, |row, text| {
                let ns = values.value(row);
                of_time(ns.div_euclid(NS_PER_SECOND), ns.rem_euclid(NS_PER_SECOND), text);
                Ok(())
            })
        }
        DataType::Interval(_) => {
            let intervals = cast(moments, &DataType::Interval(IntervalUnit::MonthDayNano))?;
            let values = intervals.as_primitive::<IntervalMonthDayNanoType>();
            written(&intervals, |row, text| {
                of_interval(values.value(row), text);
                Ok(())
            })
        }
        other => internal_err!("{NAME} of {other}"),
    }
}

/// The texts of what is not NULL.
fn written(
    moments: &ArrayRef,
    mut write: impl FnMut(usize, &mut String) -> Result<()>,
) -> Result<ArrayRef> {
    let mut texts = StringBuilder::with_capacity(moments.len(), moments.len() * 20);
    let mut text = String::new();
    for row in 0..moments.len() {
        if moments.is_null(row) {
            texts.append_null();
            continue;
        }
        text.clear();
        write(row, &mut text)?;
        texts.append_value(&text);
    }
    Ok(Arc::new(texts.finish()))
}

fn of_moment(utc: NaiveDateTime, zone: Option<Tz>, text: &mut String) {
    let offset_s = zone.map(|zone| zone.offset_from_utc_datetime(&utc).fix().local_minus_utc());
    let local = utc + chrono::TimeDelta::seconds(i64::from(offset_s.unwrap_or_default()));
    let date = local.date();
    put(text, &format!("{date} "));
    let time: NaiveTime = local.time();
    let midnight = time.signed_duration_since(NaiveTime::MIN);
    let ns = i64::from(midnight.subsec_nanos());
    of_time(midnight.num_seconds(), ns, text);
    if let Some(offset_s) = offset_s {
        let (sign, offset_s) = if offset_s < 0 { ('-', -offset_s) } else { ('+', offset_s) };
        put(text, &format!("{sign}{:02}", offset_s / 3600));
        if offset_s % 3600 != 0 {
            put(text, &format!(":{:02}", offset_s / 60 % 60));
        }
    }
}

/// `hh:mm:ss`, and as many digits of the second as it has.
fn of_time(seconds: i64, ns: i64, text: &mut String) {
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    put(text, &format!("{hours:02}:{minutes:02}:{:02}", seconds % 60));
    if ns > 0 {
        put(text, format!(".{ns:09}").trim_end_matches('0'));
    }
}

fn of_interval(interval: IntervalMonthDayNano, text: &mut String) {
    let mut is_behind_minus = false;
    let units =
        [(interval.months / 12, "year"), (interval.months % 12, "mon"), (interval.days, "day")];
    for (count, unit) in units.into_iter().filter(|(count, _)| *count != 0) {
        let space = if text.is_empty() { "" } else { " " };
        let sign = if is_behind_minus && count > 0 { "+" } else { "" };
        let plural = if count == 1 { "" } else { "s" };
        put(text, &format!("{space}{sign}{count} {unit}{plural}"));
        is_behind_minus = count < 0;
    }
    let ns = interval.nanoseconds;
    if ns != 0 || text.is_empty() {
        let space = if text.is_empty() { "" } else { " " };
        let sign = match (ns < 0, is_behind_minus) {
            (true, _) => "-",
            (false, true) => "+",
            (false, false) => "",
        };
        put(text, &format!("{space}{sign}"));
        let ns = i128::from(ns).abs();
        let second = i128::from(NS_PER_SECOND);
        of_time((ns / second) as i64, (ns % second) as i64, text);
    }
}

fn put(text: &mut String, more: &str) {
    text.push_str(more);
}
