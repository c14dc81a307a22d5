#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, UInt64Type};
use arrow_array::{Array, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType as ArrowType, Field as ArrowField, Schema};
use headrace_ir::{
    AggregateFunction, ColumnCall, DataType, Expr, FrameEnd, NamedExpr, OnOverflow, OrderKey,
    RowOf, WindowCall, WindowFunction, Windows,
};

use super::*;

/// A partition, an order and a value, the last two of which may be NULL.
type Row = (&'static str, Option<i64>, Option<i64>);

const ROWS: [Row; 9] = [
    ("a", Some(1), Some(10)),
    ("a", Some(1), Some(20)),
    ("a", Some(2), None),
    ("a", None, Some(5)),
    ("b", Some(7), None),
    ("c", Some(1), Some(3)),
    ("c", Some(2), Some(1)),
    ("c", Some(2), Some(2)),
    ("c", Some(3), Some(-9)),
];

fn batch(rows: &[Row]) -> RecordBatch {
    let fields = [("p", ArrowType::Utf8), ("o", ArrowType::Int64), ("v", ArrowType::Int64)];
    let fields = fields.map(|(name, data_type)| ArrowField::new(name, data_type, true));
    let p = StringArray::from_iter_values(rows.iter().map(|row| row.0));
    let o: Int64Array = rows.iter().map(|row| row.1).collect();
    let v: Int64Array = rows.iter().map(|row| row.2).collect();
    let schema = Arc::new(Schema::new(fields.to_vec()));
    RecordBatch::try_new(schema, vec![Arc::new(p), Arc::new(o), Arc::new(v)]).unwrap()
}

fn windows(functions: Vec<WindowFunction>) -> Windows {
    let types = [DataType::Utf8, DataType::Int64, DataType::Int64];
    let column = |(index, data_type): (usize, DataType)| {
        let name = ["p", "o", "v"][index].to_string();
        let expr = Expr::Register { index, data_type, nullable: true, name: name.clone() };
        NamedExpr { name, expr }
    };
    let call = |function| WindowCall { name: "w".into(), function };
    Windows {
        columns: types.into_iter().enumerate().map(column).collect(),
        partition: vec![0],
        order: vec![OrderKey { column: 1, descending: false, nulls_first: false }],
        calls: functions.into_iter().map(call).collect(),
        first: None,
    }
}

fn total(function: AggregateFunction, until: FrameEnd) -> WindowFunction {
    let (result, on_overflow) = (DataType::Int64, OnOverflow::Error);
    let call = ColumnCall { function, argument: Some(2), filter: None, result, on_overflow };
    WindowFunction::Aggregate { call, until }
}

/// The results of one function for [`ROWS`], which come in batches that end at `ends`.
fn results(function: &WindowFunction, ends: &[usize]) -> Vec<Option<i64>> {
    let mut scan = WindowScan::new(&windows(vec![function.clone()])).unwrap();
    let (mut first, mut out) = (0, Vec::new());
    for &end in ends.iter().chain([&ROWS.len()]) {
        out.extend(scan.push(batch(&ROWS[first..end])).unwrap());
        first = end;
    }
    out.extend(scan.finish().unwrap());
    let of = |batch: &RecordBatch| {
        let column = batch.column(3);
        let values: Vec<Option<i64>> = match column.data_type() {
            ArrowType::UInt64 => {
                column.as_primitive::<UInt64Type>().iter().map(|v| v.map(|v| v as i64)).collect()
            }
            _ => column.as_primitive::<Int64Type>().iter().collect(),
        };
        values
    };
    out.iter().flat_map(of).collect()
}

#[test]
fn results_are_the_same_wherever_batches_end() {
    use AggregateFunction::{Count, Max, Min, Sum};
    use WindowFunction::{DenseRank, Rank, RowNumber};
    let value = |of| WindowFunction::Value { column: 2, of };
    let n = None;
    let s = Some;
    let expected: Vec<(WindowFunction, [Option<i64>; 9])> = vec![
        (RowNumber, [1, 2, 3, 4, 1, 1, 2, 3, 4].map(Some)),
        (Rank, [1, 1, 3, 4, 1, 1, 2, 2, 4].map(Some)),
        (DenseRank, [1, 1, 2, 3, 1, 1, 2, 2, 3].map(Some)),
        (total(Sum, FrameEnd::Row), [s(10), s(30), s(30), s(35), n, s(3), s(4), s(6), s(-3)]),
        (total(Sum, FrameEnd::Peers), [s(30), s(30), s(30), s(35), n, s(3), s(6), s(6), s(-3)]),
        (
            total(Sum, FrameEnd::Partition),
            [s(35), s(35), s(35), s(35), n, s(-3), s(-3), s(-3), s(-3)],
        ),
        (total(Count, FrameEnd::Row), [1, 2, 2, 3, 0, 1, 2, 3, 4].map(Some)),
        (total(Max, FrameEnd::Row), [s(10), s(20), s(20), s(20), n, s(3), s(3), s(3), s(3)]),
        (total(Min, FrameEnd::Peers), [s(10), s(10), s(10), s(5), n, s(3), s(1), s(1), s(-9)]),
        (value(RowOf::Before(1)), [n, s(10), s(20), n, n, n, s(3), s(1), s(2)]),
        (value(RowOf::After(2)), [n, s(5), n, n, n, s(2), s(-9), n, n]),
        (value(RowOf::First), [s(10), s(10), s(10), s(10), n, s(3), s(3), s(3), s(3)]),
        (value(RowOf::Last(FrameEnd::Row)), [s(10), s(20), n, s(5), n, s(3), s(1), s(2), s(-9)]),
        (value(RowOf::Last(FrameEnd::Peers)), [s(20), s(20), n, s(5), n, s(3), s(2), s(2), s(-9)]),
        (
            value(RowOf::Last(FrameEnd::Partition)),
            [s(5), s(5), s(5), s(5), n, s(-9), s(-9), s(-9), s(-9)],
        ),
    ];
    for (function, expected) in expected {
        for a in 0..=ROWS.len() {
            for b in a..=ROWS.len() {
                assert_eq!(results(&function, &[a, b]), expected, "{function:?} at {a} and {b}");
            }
        }
    }
}

#[test]
fn rows_wait_no_longer_than_they_must() {
    let waits = |function: WindowFunction| {
        let mut scan = WindowScan::new(&windows(vec![function])).unwrap();
        let _ = scan.push(batch(&ROWS[..8])).unwrap();
        scan.waiting_rows()
    };
    assert_eq!(waits(total(AggregateFunction::Sum, FrameEnd::Row)), 0);
    assert_eq!(waits(total(AggregateFunction::Sum, FrameEnd::Peers)), 2);
    assert_eq!(waits(total(AggregateFunction::Sum, FrameEnd::Partition)), 3);
}

#[test]
fn totals_that_do_not_fit_fail() {
    let rows = [("a", Some(1), Some(i64::MAX)), ("a", Some(2), Some(1)), ("a", Some(3), Some(-1))];
    let sum = total(AggregateFunction::Sum, FrameEnd::Row);
    let mut scan = WindowScan::new(&windows(vec![sum])).unwrap();
    let error = scan.push(batch(&rows)).unwrap_err().to_string();
    assert_eq!(error, "int64 overflow in sum(v)");
}

#[test]
fn what_is_dropped_comes_behind_as_many_rows_as_are_wanted() {
    let mut state = 7u64;
    let mut random = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        state >> 33
    };
    let rows: Vec<Row> = (0..20_000)
        .map(|_| {
            let order = (random() % 50 > 0).then(|| (random() % 3000) as i64 - 1500);
            (["a", "b", "c"][(random() % 3) as usize], order, None)
        })
        .collect();
    for (wanted, descending, nulls_first) in
        [(1, false, false), (7, true, true), (7, true, false), (100, false, true)]
    {
        let mut windows = windows(vec![WindowFunction::Rank]);
        windows.order[0] = OrderKey { column: 1, descending, nulls_first };
        windows.first = Some(wanted);
        let mut first = FirstRows::of(&windows).unwrap().unwrap();
        let mut kept: Vec<(String, Option<i64>)> = Vec::new();
        for rows in rows.chunks(700) {
            let batch = first.keep(batch(rows)).unwrap();
            let (p, o) = (batch.column(0).as_string::<i32>(), batch.column(1));
            let o = o.as_primitive::<Int64Type>().iter();
            kept.extend(p.iter().map(|p| p.unwrap().to_string()).zip(o));
        }
        assert!(first.dropped() > rows.len() / 2 && kept.len() + first.dropped() == rows.len());
        let word = |order: Option<i64>| match order {
            None if nulls_first => i64::MIN,
            None => i64::MAX,
            Some(order) if descending => -order,
            Some(order) => order,
        };
        for partition in ["a", "b", "c"] {
            let all = rows.iter().filter(|row| row.0 == partition).map(|row| word(row.1));
            let mut all: Vec<i64> = all.collect();
            all.sort_unstable();
            let last = all[wanted as usize - 1];
            let wanted: Vec<i64> = all.into_iter().take_while(|order| *order <= last).collect();
            let kept = kept.iter().filter(|row| row.0 == partition).map(|row| word(row.1));
            let mut kept: Vec<i64> = kept.collect();
            kept.sort_unstable();
            assert_eq!(kept[..wanted.len()], wanted, "{partition}");
        }
    }
    let mut all = windows(vec![WindowFunction::Rank]);
    assert!(FirstRows::of(&all).unwrap().is_none());
    all.first = Some(0);
    let none = FirstRows::of(&all).unwrap().unwrap().keep(batch(&rows)).unwrap();
    assert_eq!(none.num_rows(), 0);
}
