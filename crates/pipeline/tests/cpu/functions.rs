//! Named functions against Arrow's kernels and chrono, over all that their arguments can be.

use std::sync::Arc;

use arrow_arith::temporal::{DatePart as ArrowPart, date_part};
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{
    Array, ArrayRef, Date32Array, Int32Array, TimestampMicrosecondArray, TimestampMillisecondArray,
    TimestampNanosecondArray, TimestampSecondArray,
};
use headrace_ir::function::{DatePart, Function};
use headrace_ir::{DataType, Encoding, Expr, Scalar, Sink, Step, TimeUnit, Value};
use headrace_pipeline::SourceColumn;
use proptest::prelude::*;

use crate::random::Random;
use crate::support::*;

const UNITS: [TimeUnit; 4] =
    [TimeUnit::Second, TimeUnit::Millisecond, TimeUnit::Microsecond, TimeUnit::Nanosecond];

/// Days whose parts Arrow knows, and one before and one after.
const EDGE_DAYS: [i32; 14] = [
    i32::MIN,
    -96_465_293,
    -96_465_292,
    -719_529,
    -719_528,
    -719_163,
    -719_162,
    -1,
    0,
    11_016,
    95_026_236,
    95_026_237,
    95_026_238,
    i32::MAX,
];

fn ticks(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    }
}

fn timestamp(unit: TimeUnit) -> DataType {
    DataType::Timestamp { unit, timezone: None }
}

pub fn plain(data_type: DataType, nullable: bool, bytes: Vec<u8>, rows: usize) -> Table {
    let mut table = Table::new("t", rows);
    let column = TestColumn {
        encoding: Some(Encoding::Plain),
        values: bytes,
        info: SourceColumn { may_have_nulls: nullable, ..SourceColumn::default() },
        ..TestColumn::default()
    };
    table.push("x", data_type, nullable, column);
    table
}

fn days_table(days: &[i32]) -> Table {
    plain(DataType::Date32, false, days.iter().flat_map(|d| d.to_le_bytes()).collect(), days.len())
}

pub fn moments_table(unit: TimeUnit, moments: &[i64]) -> Table {
    let bytes = moments.iter().flat_map(|m| m.to_le_bytes()).collect();
    plain(timestamp(unit), false, bytes, moments.len())
}

pub fn apply(function: Function, argument: Expr) -> Expr {
    apply_to(function, vec![argument])
}

pub fn apply_to(function: Function, arguments: Vec<Expr>) -> Expr {
    let types: Vec<DataType> = arguments.iter().map(Expr::data_type).collect();
    let data_type = function.signature(&types).unwrap().result;
    Expr::Call { function, arguments, data_type }
}

/// The one output column, in the order of the rows.
pub fn column(table: &Table, expr: Expr) -> Result<ArrayRef, String> {
    let sink = Sink::Rows { columns: vec![named("y", expr)], limit: None };
    let batches = run(table, vec![], sink, &[]).map_err(|error| error.to_string())?;
    let parts: Vec<&dyn Array> = batches.iter().map(|b| b.column(0).as_ref()).collect();
    Ok(arrow_select::concat::concat(&parts).unwrap())
}

fn part_column(table: &Table, part: DatePart) -> ArrayRef {
    column(table, apply(Function::DatePart(part), table.col("x"))).unwrap()
}

/// Arrow's name of a part that it knows.
fn arrow_part(part: DatePart) -> Option<ArrowPart> {
    Some(match part {
        DatePart::Year => ArrowPart::Year,
        DatePart::Quarter => ArrowPart::Quarter,
        DatePart::Month => ArrowPart::Month,
        DatePart::Week => ArrowPart::Week,
        DatePart::Day => ArrowPart::Day,
        DatePart::Dow => ArrowPart::DayOfWeekSunday0,
        DatePart::Isodow => ArrowPart::DayOfWeekMonday1,
        DatePart::Doy => ArrowPart::DayOfYear,
        DatePart::Isoyear => ArrowPart::YearISO,
        DatePart::Hour => ArrowPart::Hour,
        DatePart::Minute => ArrowPart::Minute,
        DatePart::Second => ArrowPart::Second,
        DatePart::Millisecond | DatePart::Microsecond | DatePart::Epoch => return None,
    })
}

/// As DataFusion makes milliseconds and microseconds.
fn with_fraction(array: &dyn Array, parts: i32) -> Int32Array {
    let seconds = date_part(array, ArrowPart::Second).unwrap();
    let nanoseconds = date_part(array, ArrowPart::Nanosecond).unwrap();
    let (seconds, nanoseconds) =
        (seconds.as_primitive::<Int32Type>(), nanoseconds.as_primitive::<Int32Type>());
    let fraction = |n: Option<i32>| n.unwrap_or(0) % 1_000_000_000 / (1_000_000_000 / parts);
    seconds.iter().zip(nanoseconds).map(|(s, n)| Some(s? * parts + fraction(n))).collect()
}

fn expected(array: &dyn Array, part: DatePart) -> Option<ArrayRef> {
    match (part, arrow_part(part)) {
        (_, Some(part)) => Some(date_part(array, part).unwrap()),
        (DatePart::Millisecond, _) => Some(Arc::new(with_fraction(array, 1_000))),
        (DatePart::Microsecond, _) => Some(Arc::new(with_fraction(array, 1_000_000))),
        _ => None,
    }
}

fn assert_parts(table: &Table, array: &dyn Array) {
    for (part, name) in DatePart::ALL {
        let Some(expected) = expected(array, part) else { continue };
        let found = part_column(table, part);
        let (expected, found) =
            (expected.as_primitive::<Int32Type>(), found.as_primitive::<Int32Type>());
        for row in 0..array.len() {
            let of = |a: &Int32Array| (!a.is_null(row)).then(|| a.value(row));
            let moment = array.slice(row, 1);
            assert_eq!(of(found), of(expected), "{name} of {moment:?}");
        }
    }
}

#[test]
fn parts_of_days_are_those_of_arrow() {
    let mut random = Random(7);
    let near = -200_000..200_000;
    let far = (0..100_000).map(|_| random.below(usize::MAX) as i32);
    let calendar = (-96_465_400..-96_465_200).chain(95_026_100..95_026_400);
    let days: Vec<i32> = near.chain(far).chain(calendar).chain(EDGE_DAYS).collect();
    assert_parts(&days_table(&days), &Date32Array::from(days.clone()));
    let found = part_column(&days_table(&EDGE_DAYS), DatePart::Epoch);
    let seconds = EDGE_DAYS.map(|day| f64::from(day) * 86_400.0);
    assert_eq!(found.as_primitive::<arrow_array::types::Float64Type>().values()[..], seconds);
}

fn array_of(unit: TimeUnit, moments: &[i64]) -> ArrayRef {
    match unit {
        TimeUnit::Second => Arc::new(TimestampSecondArray::from(moments.to_vec())),
        TimeUnit::Millisecond => Arc::new(TimestampMillisecondArray::from(moments.to_vec())),
        TimeUnit::Microsecond => Arc::new(TimestampMicrosecondArray::from(moments.to_vec())),
        TimeUnit::Nanosecond => Arc::new(TimestampNanosecondArray::from(moments.to_vec())),
    }
}

/// Moments of all sizes, around every edge of the calendar and of 64 bits.
fn moments(unit: TimeUnit) -> Vec<i64> {
    let mut random = Random(11);
    let day = 86_400i128 * i128::from(ticks(unit));
    let edges = EDGE_DAYS.into_iter().flat_map(|edge| {
        let at = i128::from(edge) * day;
        [at - 1, at, at + 1, at + day / 2].map(|m| m.clamp(i64::MIN.into(), i64::MAX.into()) as i64)
    });
    let mut moments: Vec<i64> =
        edges.chain([i64::MIN, i64::MIN + 1, i64::MAX - 1, i64::MAX]).collect();
    moments.extend((0..20_000).map(|_| random.below(usize::MAX) as i64 >> random.below(64)));
    moments
}

#[test]
fn parts_of_moments_are_those_of_arrow() {
    for unit in UNITS {
        let moments = moments(unit);
        assert_parts(&moments_table(unit, &moments), &array_of(unit, &moments));
        let found = part_column(&moments_table(unit, &moments), DatePart::Epoch);
        let found = found.as_primitive::<arrow_array::types::Float64Type>();
        let seconds = moments.iter().map(|&m| m as f64 / ticks(unit) as f64);
        assert!(found.values().iter().copied().eq(seconds), "{unit:?}");
    }
}

#[test]
fn what_is_outside_the_calendar_can_be_made_an_error() {
    for day in EDGE_DAYS {
        let table = days_table(&[day]);
        let year = |moment| column(&table, apply(Function::DatePart(DatePart::Year), moment));
        let inside = (-96_465_291..=95_026_235).contains(&day);
        let checked = year(apply(Function::InCalendar, table.col("x")));
        assert_eq!(checked.is_ok(), inside, "{day}");
        if let Ok(checked) = checked {
            assert_eq!(cell(&checked, 0), cell(&year(table.col("x")).unwrap(), 0));
        }
    }
}

/// Where a part of a moment begins no other moment with the same parts lies before it.
#[test]
fn moments_are_cut_down_to_where_their_parts_begin() {
    use chrono::{DateTime, Datelike, Days, NaiveTime, Timelike};
    for unit in UNITS {
        // Those of which chrono knows the beginning too.
        let moments: Vec<i64> = moments(unit)
            .into_iter()
            .filter(|&m| {
                let seconds = i128::from(m).div_euclid(ticks(unit).into());
                let days = 95_000_000 * 86_400;
                (-days..days).contains(&seconds) && m > i64::MIN / 2
            })
            .collect();
        let table = moments_table(unit, &moments);
        for (part, name) in DatePart::ALL.into_iter().filter(|(part, _)| part.begins()) {
            let found = column(&table, apply(Function::DateTrunc(part), table.col("x"))).unwrap();
            let found = found.to_data().into_builder().data_type(arrow_schema::DataType::Int64);
            let found = arrow_array::Int64Array::from(found.build().unwrap());
            for (row, &moment) in moments.iter().enumerate() {
                let tick = 1_000_000_000 / ticks(unit);
                let (seconds, rest) =
                    (moment.div_euclid(ticks(unit)), moment.rem_euclid(ticks(unit)));
                let time =
                    DateTime::from_timestamp(seconds, (rest * tick) as u32).unwrap().naive_utc();
                let (date, clock) = (time.date(), time.time());
                let at =
                    |h, m, s, n| date.and_time(NaiveTime::from_hms_nano_opt(h, m, s, n).unwrap());
                let day = |date: chrono::NaiveDate| date.and_time(NaiveTime::MIN);
                let (h, m, s, n) =
                    (clock.hour(), clock.minute(), clock.second(), clock.nanosecond());
                let first = date.with_day(1).unwrap();
                let wanted = match part {
                    DatePart::Microsecond => at(h, m, s, n / 1_000 * 1_000),
                    DatePart::Millisecond => at(h, m, s, n / 1_000_000 * 1_000_000),
                    DatePart::Second => at(h, m, s, 0),
                    DatePart::Minute => at(h, m, 0, 0),
                    DatePart::Hour => at(h, 0, 0, 0),
                    DatePart::Day => day(date),
                    DatePart::Week => {
                        let monday = date.weekday().num_days_from_monday();
                        day(date.checked_sub_days(Days::new(monday.into())).unwrap())
                    }
                    DatePart::Month => day(first),
                    DatePart::Quarter => day(first.with_month0(first.month0() / 3 * 3).unwrap()),
                    _ => day(first.with_month0(0).unwrap()),
                };
                let wanted = i128::from(wanted.and_utc().timestamp()) * i128::from(ticks(unit))
                    + i128::from(wanted.nanosecond() as i64 / tick);
                assert_eq!(i128::from(found.value(row)), wanted, "{name} of {time}");
            }
        }
    }
}

#[test]
fn moments_before_whose_beginning_time_ends_are_an_overflow() {
    for (unit, part, last) in [
        (TimeUnit::Nanosecond, DatePart::Day, i64::MIN + 1),
        (TimeUnit::Second, DatePart::Minute, i64::MIN),
        (TimeUnit::Microsecond, DatePart::Year, i64::MIN + 5),
    ] {
        let table = moments_table(unit, &[0, last]);
        let error = column(&table, apply(Function::DateTrunc(part), table.col("x"))).unwrap_err();
        assert!(error.contains("overflow"), "{error}");
    }
}

pub fn literal(data_type: DataType, value: Value) -> Expr {
    Expr::Literal(Scalar::new(data_type, value))
}

/// Of one constant.
fn of(function: Function, argument: Expr) -> Result<String, String> {
    let table = Table::new("t", 1).int32("i", &[1]);
    column(&table, apply(function, argument)).map(|array| cell(&array, 0))
}

#[test]
fn numbers_lose_their_sign_and_their_fraction() {
    let decimal = |precision, scale| DataType::Decimal128 { precision, scale };
    let money = |value| literal(decimal(4, 2), Value::Int(value));
    let float = |value| literal(DataType::Float64, Value::Float(value));
    let single = |value| literal(DataType::Float32, Value::Float(value));
    let byte = |value| literal(DataType::Int8, Value::Int(value));
    let ok = |text: &str| Ok(text.to_string());
    assert_eq!(of(Function::Abs, byte(-127)), ok("127"));
    assert!(of(Function::Abs, byte(-128)).unwrap_err().contains("overflow"));
    assert_eq!(
        of(Function::Abs, literal(DataType::UInt64, Value::Int(u64::MAX.into()))),
        ok("18446744073709551615")
    );
    let of_bits = |data_type, value| of(Function::BitCount, literal(data_type, Value::Int(value)));
    assert_eq!(of_bits(DataType::Int8, -1), ok("8"));
    assert_eq!(of_bits(DataType::Int16, -2), ok("15"));
    assert_eq!(of_bits(DataType::Int32, i32::MIN.into()), ok("1"));
    assert_eq!(of_bits(DataType::Int64, -1), ok("64"));
    assert_eq!(of_bits(DataType::UInt64, u64::MAX.into()), ok("64"));
    assert_eq!(of_bits(DataType::UInt32, 0), ok("0"));
    assert_eq!(of(Function::Abs, money(-9999)), ok("9999"));
    assert_eq!(of(Function::Abs, float(-0.5)), ok("0.5"));
    assert_eq!(of(Function::Floor, money(-101)), ok("-200"));
    assert_eq!(of(Function::Ceil, money(-101)), ok("-100"));
    assert_eq!(of(Function::Floor, money(199)), ok("100"));
    assert_eq!(of(Function::Ceil, money(101)), ok("200"));
    assert_eq!(of(Function::Ceil, money(9900)), ok("9900"));
    assert!(of(Function::Ceil, money(9901)).unwrap_err().contains("overflow"));
    assert!(of(Function::Floor, money(-9901)).unwrap_err().contains("overflow"));
    assert_eq!(of(Function::Floor, float(-0.5)), ok("-1.0"));
    assert_eq!(of(Function::Ceil, single(0.5)), ok("1.0"));
    assert_eq!(of(Function::Round(0), float(2.5)), ok("3.0"));
    assert_eq!(of(Function::Round(0), float(-2.5)), ok("-3.0"));
    assert_eq!(of(Function::Round(2), float(1.005)), ok("1.0"));
    assert_eq!(of(Function::Round(1), single(0.25)), ok("0.3"));
    for (value, even, trunc) in
        [(2.5, "2.0", "2.0"), (-3.5, "-4.0", "-3.0"), (-0.5, "-0.0", "-0.0")]
    {
        assert_eq!(of(Function::RoundEven, float(value)), ok(even));
        assert_eq!(of(Function::RoundEven, single(value)), ok(even));
        assert_eq!(of(Function::Trunc(0), float(value)), ok(trunc));
    }
    assert_eq!(of(Function::Trunc(1), money(-199)), ok("-19"));
    assert_eq!(of(Function::Trunc(0), money(199)), ok("1"));
    assert_eq!(of(Function::Trunc(2), money(199)), ok("199"));
    assert_eq!(of(Function::Round(1), money(-145)), ok("-15"));
    assert_eq!(of(Function::Round(0), money(9950)), ok("100"));
    assert_eq!(of(Function::Round(2), money(9950)), ok("9950"));
}

#[test]
fn texts_have_lengths() {
    let texts = ["", "a", "é", "größe", "\u{1f600}\u{1f600}"];
    let table = Table::new("t", texts.len()).text("x", &texts);
    let lengths = |function| {
        let found = column(&table, apply(function, table.col("x"))).unwrap();
        found.as_primitive::<Int32Type>().values().to_vec()
    };
    assert_eq!(lengths(Function::CharacterLength), [0, 1, 1, 5, 2]);
    assert_eq!(lengths(Function::OctetLength), [0, 1, 2, 7, 8]);
}

#[test]
fn lengths_of_dictionary_texts_are_looked_up() {
    use headrace_pipeline::bound::{BoundKind, BoundSink};
    let table = crate::partial::coded(&["", "a", "größe"], &[2, 0, 1, 2]);
    let length = apply(Function::OctetLength, table.col("name"));
    let sink = Sink::Rows { columns: vec![named("y", length.clone())], limit: None };
    let lowered = bound(&table, vec![], sink, &[]);
    let BoundSink::Rows { columns, .. } = &lowered.sink else { panic!("no rows") };
    assert!(matches!(columns[0].1.kind, BoundKind::Numbers { .. }));
    assert_eq!(columns[0].1.range, Some(headrace_ir::ValueRange { min: 0, max: 7 }));
    let found = column(&table, length).unwrap();
    assert_eq!(found.as_primitive::<Int32Type>().values()[..], [7, 0, 1, 7]);
    let nothing = crate::partial::coded(&[], &[]);
    let length = apply(Function::OctetLength, nothing.col("name"));
    let sink = Sink::aggregate(
        vec![],
        vec![call(headrace_ir::AggregateFunction::Max, Some(length), DataType::Int32)],
    );
    assert_eq!(rows(&run(&nothing, vec![], sink, &[]).unwrap()), ["NULL"]);
}

#[test]
fn what_is_null_stays_so_and_never_fails() {
    for function in [Function::Abs, Function::DatePart(DatePart::Year), Function::Floor] {
        let data_type = match function {
            Function::Abs => DataType::Int8,
            Function::Floor => DataType::Decimal128 { precision: 3, scale: 1 },
            _ => DataType::Date32,
        };
        assert_eq!(of(function, literal(data_type, Value::Null)), Ok("NULL".into()));
    }
    // What stands under a NULL is the smallest byte.
    let mut table = plain(DataType::Int8, true, vec![0x80, 5], 2);
    table.columns[0].validity = Some(vec![0b10]);
    let found = column(&table, apply(Function::Abs, table.col("x"))).unwrap();
    assert_eq!((cell(&found, 0), cell(&found, 1)), ("NULL".into(), "5".into()));
}

#[test]
fn years_are_numbered_as_densely_as_days_are_known_to_lie() {
    let days: Vec<i32> = (0..4000).map(|i| 8_000 + i * 7 % 2_600).collect();
    let mut table = days_table(&days);
    table.columns[0].info.range = Some(headrace_ir::ValueRange { min: 8_000, max: 10_599 });
    let year = apply(Function::DatePart(DatePart::Year), table.col("x"));
    let sink = Sink::aggregate(
        vec![named("year", year)],
        vec![call(headrace_ir::AggregateFunction::Count, None, DataType::Int64)],
    );
    let lowered = bound(&table, vec![], sink.clone(), &[]);
    let headrace_pipeline::bound::BoundSink::Aggregate { grouping, .. } = &lowered.sink else {
        panic!("no aggregate");
    };
    // 1991 to 1999, and NULL: that no day lies outside the calendar is a claim.
    assert_eq!(*grouping, headrace_pipeline::bound::Grouping::Dense { groups: 10 });
    let found = run(&table, vec![], sink, &[]).unwrap();
    let rows: i64 = found
        .iter()
        .map(|b| b.column(1).as_primitive::<Int64Type>().values().iter().sum::<i64>())
        .sum();
    assert_eq!(rows, 4000);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// A claim about a column may be false: groups by what follows from it are checked.
    #[test]
    fn false_claims_of_days_are_errors_or_right(seed: u64) {
        let mut random = Random(seed);
        let days: Vec<i32> = (0..50).map(|_| random.below(4_000) as i32).collect();
        let mut table = days_table(&days);
        table.columns[0].info.range = Some(headrace_ir::ValueRange { min: 0, max: 2_000 });
        let year = apply(Function::DatePart(DatePart::Year), table.col("x"));
        let step = Step::Compute(named("year", year));
        let sink = Sink::aggregate(
            vec![named("year", reg(1, DataType::Int32, true, "year"))],
            vec![call(headrace_ir::AggregateFunction::Count, None, DataType::Int64)],
        );
        let outside = days.iter().any(|&day| day >= 2_191);
        prop_assert_eq!(run(&table, vec![step], sink, &[]).is_err(), outside);
    }
}
