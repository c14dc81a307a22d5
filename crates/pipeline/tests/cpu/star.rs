//! A star join end to end.

use headrace_ir::{AggregateFunction, ArithmeticOp, CompareOp, DataType, Expr, Sink, Step};

use crate::support::*;

fn sales() -> Table {
    Table::new("sales", 8)
        .int32("s_date", &[1, 2, 3, 4, 1, 2, 3, 9])
        .int32("s_item", &[10, 20, 30, 10, 20, 30, 10, 20])
        .int32("s_price", &[5, 7, 11, 13, 17, 19, 23, 29])
        .int32("s_count", &[1, 2, 3, 4, 5, 6, 7, 8])
}

#[test]
fn a_star_join_with_dense_groups() {
    let dates = Table::new("dates", 4)
        .int32("d_key", &[1, 2, 3, 4])
        .int32("d_year", &[1992, 1992, 1993, 1994]);
    let items = Table::new("items", 3)
        .int32("i_key", &[10, 20, 30])
        .text("i_name", &["nut", "bolt", "screw"]);
    let keep = compare(CompareOp::Lt, dates.col("d_year"), int(1994));
    let dates = build(&dates, vec![Step::Filter(keep)], &["d_key"], &["d_year"]);
    let not_screw = compare(CompareOp::Ne, items.col("i_name"), text("screw"));
    let items = build(&items, vec![Step::Filter(not_screw)], &["i_key"], &["i_name"]);
    assert_eq!((dates.rows, dates.source_rows), (3, Some(4)));

    let sales = sales();
    let revenue = Expr::Cast {
        value: Box::new(arithmetic(
            ArithmeticOp::Multiply,
            sales.col("s_price"),
            sales.col("s_count"),
        )),
        to: DataType::Int64,
        on_failure: headrace_ir::CastFailure::Error,
    };
    let steps = || {
        vec![
            inner(0, sales.col("s_date"), vec![0]),
            inner(1, sales.col("s_item"), vec![0]),
            Step::Filter(compare(CompareOp::Gt, sales.col("s_price"), int(4))),
        ]
    };
    let sink = Sink::aggregate(
        vec![
            named("year", reg(4, DataType::Int32, false, "d_year")),
            named("item", reg(5, DataType::Utf8, false, "i_name")),
        ],
        vec![
            call(AggregateFunction::Sum, Some(revenue), DataType::Int64),
            call(AggregateFunction::Count, None, DataType::Int64),
            call(
                AggregateFunction::Min,
                Some(reg(5, DataType::Utf8, false, "i_name")),
                DataType::Utf8,
            ),
        ],
    );
    let expected = ["1992|bolt|99|2|bolt", "1992|nut|5|1|nut", "1993|nut|161|1|nut"];
    for dense_groups_max in [0, 65_536] {
        for batch_rows in [1, 3, 4096] {
            let options = RunOptions { dense_groups_max, batch_rows, ..RunOptions::default() };
            let builds = [dates.clone(), items.clone()];
            let output = run_with(&sales, steps(), sink.clone(), &builds, options).unwrap();
            let headrace_pipeline::state::Output::Batches(batches) = output else { panic!() };
            assert_eq!(rows(&batches), expected);
        }
    }
}

#[test]
fn timestamps_before_1970() {
    use headrace_ir::{CastFailure, Encoding, TimeUnit};
    let timestamp = |unit| DataType::Timestamp { unit, timezone: None };
    let mut table = Table::new("t", 3);
    let column = TestColumn {
        encoding: Some(Encoding::Plain),
        values: [-1i64, 0, 86_400_000_000].iter().flat_map(|v| v.to_le_bytes()).collect(),
        ..TestColumn::default()
    };
    table.push("t", timestamp(TimeUnit::Microsecond), false, column);
    let cast = |to: DataType| Expr::Cast {
        value: Box::new(table.col("t")),
        to,
        on_failure: CastFailure::Error,
    };
    let to_number = |e: Expr| Expr::Cast {
        value: Box::new(e),
        to: DataType::Int64,
        on_failure: CastFailure::Error,
    };
    let columns = vec![
        named("day", cast(DataType::Date32)),
        named("second", to_number(cast(timestamp(TimeUnit::Second)))),
    ];
    let found = run(&table, vec![], Sink::Rows { columns, limit: None }, &[]).unwrap();
    assert_eq!(rows(&found), ["-1|0", "0|0", "1|86400"]);
}

#[test]
fn ilike_ignores_case_but_not_its_escape() {
    let table = Table::new("t", 3).text("t", &["ABC", "aXc", "a%c"]);
    let like = |pattern: &str, escape| {
        let expr = Expr::Like {
            value: Box::new(table.col("t")),
            pattern: pattern.into(),
            escape,
            negated: false,
            case_insensitive: true,
        };
        let sink = Sink::Rows { columns: vec![named("t", table.col("t"))], limit: None };
        rows(&run(&table, vec![Step::Filter(expr)], sink, &[]).unwrap())
    };
    assert_eq!(like("aB%", None), ["ABC"]);
    assert_eq!(like("AX%C", Some('X')), ["a%c"]);
}
