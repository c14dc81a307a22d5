//! Moments that zones and intervals move, against chrono and a search from the first transition on.

use arrow_array::types::TimestampMicrosecondType;
use arrow_array::{ArrayRef, cast::AsArray};
use chrono::{DateTime, Days, Months, NaiveDateTime, TimeDelta};
use headrace_ir::function::Function;
use headrace_ir::moment::{DAYS, FIRST_MICROSECOND};
use headrace_ir::{DataType, Expr, Interval, Scalar, TimeUnit, TimeZone, Value};
use proptest::prelude::*;

use crate::functions::{apply_to, column, literal, moments_table, plain};
use crate::random::Random;
use crate::support::*;

const SECOND: i64 = 1_000_000;
const DAY: i64 = 86_400 * SECOND;

fn in_utc(moments: &[i64]) -> Table {
    let utc = DataType::Timestamp { unit: TimeUnit::Microsecond, timezone: Some("UTC".into()) };
    plain(utc, false, moments.iter().flat_map(|m| m.to_le_bytes()).collect(), moments.len())
}

fn moved(table: &Table, function: Function, by: Scalar) -> Result<Vec<i64>, String> {
    let found = column(table, apply_to(function, vec![table.col("x"), Expr::Literal(by)]))?;
    let values =
        |array: &ArrayRef| array.as_primitive::<TimestampMicrosecondType>().values().to_vec();
    Ok(values(&found))
}

/// Offsets that jump back and forth, some of them at nearly the same time.
fn random_zone(random: &mut Random) -> TimeZone {
    let mut second = -5_000_000_000;
    let transitions = (0..random.below(12)).map(|_| {
        second +=
            *random.pick(&[3_600, 86_400, 20_000_000, 1_000_000_000]) + random.below(5_000) as i64;
        (second, (random.below(113) as i32 - 56) * 900 + random.below(2) as i32 * 17)
    });
    let transitions = transitions.collect();
    let known_seconds = -40_000_000_000..40_000_000_000;
    TimeZone { name: "Some/Where".into(), known_seconds, first_offset_seconds: 3_921, transitions }
}

/// The offset at a second, and the first transition after it with the offset from then on.
fn offsets(zone: &TimeZone, second: i64) -> (i64, Option<(i64, i64)>) {
    let mut offset = zone.first_offset_seconds;
    for (at, after) in &zone.transitions {
        if *at > second {
            return (offset.into(), Some((*at, i64::from(*after))));
        }
        offset = *after;
    }
    (offset.into(), None)
}

/// What PostgreSQL's DetermineTimeZoneOffset finds.
fn offset_of_local(zone: &TimeZone, local: i64) -> i64 {
    let (before, next) = offsets(zone, local - 86_400);
    let Some((at, after)) = next else { return before };
    match (local - before < at, local - after < at) {
        (true, true) => before,
        (false, false) if local - before > at => after,
        _ if local - before > local - after => before,
        _ => after,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn zones_show_what_a_search_finds(seed: u64) {
        let mut random = Random(seed);
        let zone = random_zone(&mut random);
        let near: Vec<i64> = zone.transitions.iter().map(|(at, _)| *at).chain([0]).collect();
        let moments: Vec<i64> = (0..60)
            .map(|_| {
                let second = random.pick(&near) + random.below(200_001) as i64 - 100_000;
                let exact = if random.chance(30) { *random.pick(&near) } else { second };
                exact * SECOND + random.below(3) as i64
            })
            .collect();
        let local: Vec<i64> = moments
            .iter()
            .map(|moment| moment + offsets(&zone, moment.div_euclid(SECOND)).0 * SECOND)
            .collect();
        prop_assert_eq!(moved(&in_utc(&moments), Function::LocalTime, zone.scalar()).unwrap(), local);
        let instants: Vec<i64> = moments
            .iter()
            .map(|local| local - offset_of_local(&zone, local.div_euclid(SECOND)) * SECOND)
            .collect();
        let table = moments_table(TimeUnit::Microsecond, &moments);
        prop_assert_eq!(moved(&table, Function::Instant, zone.scalar()).unwrap(), instants);
    }

    #[test]
    fn intervals_move_as_chrono_moves(seed: u64) {
        let mut random = Random(seed);
        let part = |random: &mut Random, top: usize| match random.chance(60) {
            true => random.below(2 * top + 1) as i64 - top as i64,
            false => 0,
        };
        let interval = Interval {
            months: part(&mut random, 5_000) as i32,
            days: part(&mut random, 100_000) as i32,
            microseconds: part(&mut random, 1 << 50),
        };
        let moments: Vec<i64> = (0..40)
            .map(|_| random.below(40_000_000_000_000_000) as i64 - 20_000_000_000_000_000)
            .collect();
        let later: Vec<i64> = moments.iter().map(|m| with_chrono(*m, interval)).collect();
        let table = in_utc(&moments);
        prop_assert_eq!(moved(&table, Function::AddInterval, interval.scalar()).unwrap(), later);
        let opposite = interval.negated().unwrap();
        let earlier: Vec<i64> = moments.iter().map(|m| with_chrono(*m, opposite)).collect();
        prop_assert_eq!(moved(&table, Function::SubtractInterval, interval.scalar()).unwrap(), earlier);
    }
}

fn with_chrono(moment: i64, interval: Interval) -> i64 {
    let mut time: NaiveDateTime = DateTime::from_timestamp_micros(moment).unwrap().naive_utc();
    let months = Months::new(interval.months.unsigned_abs());
    time = if interval.months < 0 { time - months } else { time + months };
    let days = Days::new(interval.days.unsigned_abs().into());
    time = if interval.days < 0 { time - days } else { time + days };
    (time + TimeDelta::microseconds(interval.microseconds)).and_utc().timestamp_micros()
}

#[test]
fn what_zones_and_calendars_do_not_know_is_an_overflow() {
    let zone = TimeZone { transitions: vec![(0, 3_600)], ..random_zone(&mut Random(1)) };
    let end = zone.known_seconds.end * SECOND;
    for (function, last, beyond) in
        [(Function::LocalTime, end - 1, end), (Function::Instant, end - DAY - 1, end - DAY)]
    {
        let of = |moment| match function {
            Function::LocalTime => in_utc(&[moment]),
            _ => moments_table(TimeUnit::Microsecond, &[moment]),
        };
        assert!(moved(&of(last), function, zone.scalar()).is_ok());
        let error = moved(&of(beyond), function, zone.scalar()).unwrap_err();
        assert!(error.contains("overflow in timezone(x, 'Some/Where')"), "{error}");
    }
    let moment = |m| moments_table(TimeUnit::Microsecond, &[m]);
    let by = |months, days, microseconds| Interval { months, days, microseconds };
    for (start, interval, fits) in [
        (FIRST_MICROSECOND, by(0, 0, -1), false),
        (FIRST_MICROSECOND + 1, by(0, 0, -1), true),
        (FIRST_MICROSECOND, by(0, -1, DAY), false),
        (FIRST_MICROSECOND, by(-1, 31, 0), false),
        (FIRST_MICROSECOND, by(1, -1, 0), true),
        (i64::MAX, by(0, 0, 1), false),
        (i64::MAX, by(0, 1, -DAY), false),
        (i64::MAX - DAY, by(0, 1, 0), true),
        (0, by(i32::MAX, 0, 0), false),
        (0, by(i32::MIN, 0, 0), false),
        (0, by(0, i32::MAX, 0), false),
        (0, by(0, 0, i64::MAX), true),
    ] {
        let found = moved(&moment(start), Function::AddInterval, interval.scalar());
        assert_eq!(found.is_ok(), fits, "{start} + {interval:?}: {found:?}");
    }
    let nothing = moved(&moment(0), Function::AddInterval, Scalar::null(DataType::Binary)).unwrap();
    assert_eq!(nothing, [0]);
    let table = moment(0);
    let null = apply_to(
        Function::AddInterval,
        vec![table.col("x"), Expr::Literal(Scalar::null(DataType::Binary))],
    );
    assert_eq!(cell(&column(&table, null).unwrap(), 0), "NULL");
}

#[test]
fn dates_reach_from_their_first_day_to_their_last() {
    let day = |value: i32| literal(DataType::Date32, Value::Int(value.into()));
    let more = |value: i32| literal(DataType::Int32, Value::Int(value.into()));
    for (from, days, wanted) in [
        (0, 5, Some(5)),
        (DAYS.end - 2, 1, Some(DAYS.end - 1)),
        (DAYS.end - 1, 1, None),
        (DAYS.start + 1, -1, Some(DAYS.start)),
        (DAYS.start, -1, None),
        (i32::MAX, 1, None),
    ] {
        let table = Table::new("t", 1).int32("i", &[1]);
        let found = column(&table, apply_to(Function::AddDays, vec![day(from), more(days)]));
        assert_eq!(found.ok().map(|array| cell(&array, 0)), wanted.map(|day| day.to_string()));
    }
}
