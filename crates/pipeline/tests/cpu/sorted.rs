//! Rows in an order, all or the first ones, against a plain sort.

use std::cmp::Ordering;

use headrace_columns::ColumnError;
use headrace_ir::{ArithmeticOp, CompareOp, DataType, Encoding, OrderKey, Sink, Step};
use headrace_pipeline::{ExecError, SourceColumn};

use headrace_pipeline::state::Output;

use crate::support::*;

const ROWS: usize = 40_000;

/// A row: its number, a number that many share, a float that may be NULL, a text.
type Row = (i32, i32, Option<f64>, String);

fn made() -> Vec<Row> {
    let row = |i: i32| {
        let mixed = i.wrapping_mul(-1_640_531_527) >> 7;
        let float = match mixed.rem_euclid(11) {
            0 => None,
            1 => Some(f64::NAN),
            2 => Some(-0.0),
            3 => Some(0.0),
            4 => Some(f64::NEG_INFINITY),
            _ => Some(f64::from(mixed % 97) / 8.0),
        };
        (i, mixed % 13, float, format!("text {}", mixed.rem_euclid(5003)))
    };
    (0..ROWS as i32).map(row).collect()
}

fn table(rows: &[Row]) -> Table {
    let ints = |of: fn(&Row) -> i32| rows.iter().map(of).collect::<Vec<_>>();
    let texts: Vec<&str> = rows.iter().map(|row| row.3.as_str()).collect();
    let mut table = Table::new("t", rows.len())
        .int32("id", &ints(|row| row.0))
        .int32("few", &ints(|row| row.1))
        .text("word", &texts);
    let floats = TestColumn {
        encoding: Some(Encoding::Plain),
        values: rows.iter().flat_map(|row| row.2.unwrap_or(7.0).to_le_bytes()).collect(),
        validity: Some(pack_bits(rows.iter().map(|row| row.2.is_some()))),
        info: SourceColumn { may_have_nulls: true, ..SourceColumn::default() },
        ..TestColumn::default()
    };
    table.push("float", DataType::Float64, true, floats);
    table
}

/// Columns of the answer: number, few, word, float, -few.
const ID: usize = 0;
const FEW: usize = 1;
const WORD: usize = 2;
const FLOAT: usize = 3;
const TURNED: usize = 4;

fn sink(table: &Table, order: &[OrderKey], limit: Option<u64>) -> Sink {
    let turned = arithmetic(ArithmeticOp::Multiply, table.col("few"), int(-1));
    let columns = ["id", "few", "word", "float"].map(|name| named(name, table.col(name)));
    let columns = columns.into_iter().chain([named("turned", turned)]).collect();
    Sink::Sorted { columns, order: order.to_vec(), limit }
}

/// The columns that cannot fail: rows may be dropped before the steps.
fn sink_of_columns(table: &Table, order: &[OrderKey], limit: Option<u64>) -> Sink {
    match sink(table, order, limit) {
        Sink::Sorted { mut columns, order, limit } => {
            columns.truncate(TURNED);
            Sink::Sorted { columns, order, limit }
        }
        other => other,
    }
}

fn key(column: usize, descending: bool, nulls_first: bool) -> OrderKey {
    OrderKey { column, descending, nulls_first }
}

fn floats(a: Option<f64>, b: Option<f64>, key: OrderKey) -> Ordering {
    let (a, b) = match (a, b) {
        (Some(a), Some(b)) => (a, b),
        (None, None) => return Ordering::Equal,
        (None, _) => return if key.nulls_first { Ordering::Less } else { Ordering::Greater },
        (_, None) => return if key.nulls_first { Ordering::Greater } else { Ordering::Less },
    };
    // NaN is the largest value, and there is one zero.
    let found = match (a.is_nan(), b.is_nan()) {
        (true, true) => Ordering::Equal,
        (true, false) => Ordering::Greater,
        (false, true) => Ordering::Less,
        _ => a.partial_cmp(&b).unwrap(),
    };
    if key.descending { found.reverse() } else { found }
}

fn plain(a: &Row, b: &Row, order: &[OrderKey]) -> Ordering {
    let each = order.iter().map(|key| {
        let found = match key.column {
            ID => a.0.cmp(&b.0),
            FEW => a.1.cmp(&b.1),
            WORD => a.3.as_bytes().cmp(b.3.as_bytes()),
            TURNED => (-a.1).cmp(&-b.1),
            _ => return floats(a.2, b.2, *key),
        };
        if key.descending { found.reverse() } else { found }
    });
    each.fold(Ordering::Equal, Ordering::then)
}

/// The numbers of the rows of an answer.
fn numbers(table: &Table, sink: Sink, steps: Vec<Step>, options: RunOptions) -> Vec<usize> {
    let Output::Batches(batches) = run_with(table, steps, sink, &[], options).unwrap() else {
        panic!("a build")
    };
    let number = |row: &String| row.split('|').next().unwrap().parse().unwrap();
    rows_in_order(&batches).iter().map(number).collect()
}

#[test]
fn the_first_rows_of_any_order_are_those_of_a_plain_sort() {
    let rows = made();
    let table = table(&rows);
    let orders: [&[OrderKey]; 8] = [
        &[key(FEW, false, true), key(WORD, true, true)],
        &[key(ID, true, false)],
        &[key(FLOAT, false, false), key(WORD, true, false)],
        &[key(FLOAT, true, true), key(ID, false, false)],
        &[key(FLOAT, true, false)],
        &[key(WORD, false, false)],
        &[key(TURNED, false, true), key(FLOAT, false, true), key(ID, true, false)],
        &[key(FEW, true, false)],
    ];
    for order in orders {
        let mut wanted = rows.clone();
        wanted.sort_by(|a, b| plain(a, b, order));
        for limit in [Some(0), Some(1), Some(10), Some(4097), Some(39_999), Some(1 << 40), None] {
            for workers in [1, 3] {
                let options = RunOptions { workers, ..RunOptions::default() };
                let mut sinks = vec![sink(&table, order, limit)];
                if order.iter().all(|key| key.column < TURNED) {
                    sinks.push(sink_of_columns(&table, order, limit));
                }
                for sink in sinks {
                    let found = numbers(&table, sink, vec![], options);
                    let most = limit.map_or(ROWS, |limit| ROWS.min(limit as usize));
                    assert_eq!(found.len(), most, "{order:?} {limit:?}");
                    let alike = |(found, wanted)| plain(&rows[found], wanted, order).is_eq();
                    let place = found.iter().copied().zip(&wanted).position(|pair| !alike(pair));
                    assert_eq!(place, None, "{order:?} {limit:?}");
                    let mut once = found.clone();
                    once.sort_unstable();
                    once.dedup();
                    assert_eq!(once.len(), found.len(), "{order:?} {limit:?}");
                }
            }
        }
    }
}

#[test]
fn rows_that_steps_remove_are_not_sorted() {
    let rows = made();
    let table = table(&rows);
    let keep = Step::Filter(compare(CompareOp::Eq, table.col("few"), int(3)));
    let order = [key(ID, true, false)];
    let wanted = rows.iter().rev().filter(|row| row.1 == 3).map(|row| row.0 as usize);
    let wanted: Vec<_> = wanted.take(5).collect();
    for sink in [sink(&table, &order, Some(5)), sink_of_columns(&table, &order, Some(5))] {
        let keep = vec![keep.clone()];
        assert_eq!(numbers(&table, sink, keep, RunOptions::default()), wanted);
    }
}

#[test]
fn few_rows_of_many_take_little_memory() {
    let rows = made();
    let table = table(&rows);
    let order = [key(WORD, false, false)];
    let with_limit = |limit, memory_limit_bytes| {
        let options = RunOptions { memory_limit_bytes, ..RunOptions::default() };
        run_with(&table, vec![], sink(&table, &order, limit), &[], options)
    };
    assert!(with_limit(Some(10), 2 << 20).is_ok());
    match with_limit(None, 2 << 20) {
        Err(error @ ExecError::Column(ColumnError::Memory { .. })) => {
            assert!(error.to_string().contains("rows that are sorted"), "{error}");
        }
        _ => panic!("all rows in 2 MiB"),
    }
}
