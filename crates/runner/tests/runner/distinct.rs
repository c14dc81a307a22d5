//! Distinct calls, compared with the same answer put together by hand, with little memory and much.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray};
use headrace_format::arrow::WriterOptions;
use headrace_ir::{
    AggregateCall, AggregateFunction, CompareOp, DataType, Expr, NamedExpr, Pipeline, Program,
    Scalar, Sink,
};
use headrace_runner::{Processor, Runner, RunnerOptions, StreamTable};

use crate::support::{self, rows, run_on};

const ROWS: i64 = 60_000;

fn city(i: i64) -> Option<i32> {
    (i % 13 != 4).then_some((i % 13) as i32)
}

fn value(i: i64) -> Option<i64> {
    (i % 17 != 0).then_some(i * 7919 % 20_011)
}

fn name(i: i64) -> Option<String> {
    (i % 7 != 0).then(|| format!("name {}", i * i % 4001))
}

/// 0 and -0 are one value, and so are all NaNs.
fn ratio(i: i64) -> f64 {
    [0.0, -0.0, f64::NAN, -f64::NAN, 1.5, 2.5][(i % 6) as usize]
}

/// `t(city, value, name, ratio)` of so many rows.
fn table(folder: &std::path::Path, count: i64) -> Arc<StreamTable> {
    let columns: [(&str, ArrayRef); 4] = [
        ("city", Arc::new((0..count).map(city).collect::<Int32Array>())),
        ("value", Arc::new((0..count).map(value).collect::<Int64Array>())),
        ("name", Arc::new((0..count).map(name).collect::<StringArray>())),
        ("ratio", Arc::new((0..count).map(|i| Some(ratio(i))).collect::<Float64Array>())),
    ];
    let columns = columns.map(|(name, column)| (name, column, true));
    let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
    let path = folder.join(format!("{count}.arrow"));
    let options = WriterOptions { rows_per_batch: 5000, ..WriterOptions::default() };
    support::write(&path, &batch, options);
    support::open("t", &[path])
}

fn call(function: AggregateFunction, argument: Option<Expr>, result: DataType) -> AggregateCall {
    AggregateCall::new("x", function, argument, result)
}

fn distinct(call: AggregateCall) -> AggregateCall {
    AggregateCall { distinct: true, ..call }
}

/// Of each city, or of all rows: count(*), sum(value), count(distinct value), sum(distinct value),
/// count(distinct ratio); with `names` also count(distinct name), and count(distinct name) of the rows
/// with a value below 100.
fn program(table: &StreamTable, by_city: bool, names: bool) -> Program {
    use AggregateFunction::{Count, Sum};
    let source = table.source_over(0, &["city", "value", "name", "ratio"]).unwrap();
    let register = |i| Some(source.register(i));
    let mut calls = vec![
        call(Count, None, DataType::Int64),
        call(Sum, register(1), DataType::Int64),
        distinct(call(Count, register(1), DataType::Int64)),
        distinct(call(Sum, register(1), DataType::Int64)),
    ];
    if names {
        let few = Expr::Literal(Scalar::int(DataType::Int64, 100));
        let filter = Expr::compare(CompareOp::Lt, source.register(1), few);
        let count = distinct(call(Count, register(2), DataType::Int64));
        calls.push(distinct(call(Count, register(3), DataType::Int64)));
        calls.push(count.clone());
        calls.push(AggregateCall { filter: Some(filter), ..count });
    }
    let key = NamedExpr { name: "city".into(), expr: source.register(0) };
    let keys = if by_city { vec![key] } else { vec![] };
    let sink = Sink::aggregate(keys, calls);
    Program::new(vec![], Pipeline { source, steps: vec![], sink })
}

#[derive(Default)]
struct Group {
    rows: i64,
    total: Option<i64>,
    values: BTreeSet<i64>,
    ratios: BTreeSet<u64>,
    names: BTreeSet<String>,
    few: BTreeSet<String>,
}

fn expected(count: i64, by_city: bool, names: bool) -> Vec<String> {
    let mut groups: BTreeMap<Option<i32>, Group> = BTreeMap::new();
    if !by_city {
        groups.insert(None, Group::default());
    }
    for i in 0..count {
        let group = groups.entry(if by_city { city(i) } else { None }).or_default();
        group.rows += 1;
        group.ratios.insert(if ratio(i).is_nan() { 1 } else { (ratio(i) + 0.0).to_bits() });
        if let Some(value) = value(i) {
            *group.total.get_or_insert(0) += value;
            group.values.insert(value);
        }
        group.names.extend(name(i));
        group.few.extend(name(i).filter(|_| value(i).is_some_and(|value| value < 100)));
    }
    let shown = |value: Option<i64>| value.map_or("NULL".into(), |value| value.to_string());
    let rows = groups.iter().map(|(city, group)| {
        let total = (!group.values.is_empty()).then(|| group.values.iter().sum::<i64>());
        let mut cells = if by_city { vec![shown(city.map(i64::from))] } else { vec![] };
        cells.push(group.rows.to_string());
        cells.extend([shown(group.total), group.values.len().to_string(), shown(total)]);
        if names {
            let counts = [group.ratios.len(), group.names.len(), group.few.len()];
            cells.extend(counts.map(|count| count.to_string()));
        }
        cells.join("|")
    });
    let mut rows: Vec<String> = rows.collect();
    rows.sort();
    rows
}

#[test]
fn distinct_values_are_counted_and_added_once() {
    let folder = tempfile::tempdir().unwrap();
    let runner = Runner::new(&RunnerOptions::default());
    for count in [0, 1, ROWS] {
        let table = table(folder.path(), count);
        for (by_city, names) in [(true, false), (true, true), (false, false), (false, true)] {
            let program = program(&table, by_city, names);
            let (batches, report) =
                run_on(Processor::Cpu, &runner, &program, std::slice::from_ref(&table)).unwrap();
            let wanted = expected(count, by_city, names);
            assert_eq!(rows(&batches), wanted, "{count} rows, {by_city}, {names}");
            assert_eq!(
                (report.streamed.rows_in, report.streamed.rows_out),
                (count as u64, wanted.len() as u64)
            );
        }
    }
}

#[test]
fn both_groupings_spill_where_memory_is_short() {
    let folder = tempfile::tempdir().unwrap();
    let table = table(folder.path(), ROWS);
    let options = RunnerOptions { memory_limit_bytes: Some(48 << 20), ..RunnerOptions::default() };
    let runner = Runner::new(&options);
    let mut program = program(&table, true, true);
    // As many groups as there are values.
    if let Sink::Aggregate { keys, .. } = &mut program.answer.sink {
        keys[0].expr = program.answer.source.register(1);
    }
    let (batches, report) =
        run_on(Processor::Cpu, &runner, &program, std::slice::from_ref(&table)).unwrap();
    let groups: usize = batches.iter().map(RecordBatch::num_rows).sum();
    let values: BTreeSet<_> = (0..ROWS).map(value).collect();
    assert_eq!(groups, values.len());
    assert!(report.streamed.spilled_bytes > 0);
}

#[test]
fn a_total_of_a_part_may_pass_the_range_of_the_whole_one() {
    let folder = tempfile::tempdir().unwrap();
    let half = i64::MAX / 2 + 1;
    let columns: [(&str, ArrayRef); 2] = [
        ("part", Arc::new(Int64Array::from(vec![1, 1, 2, 2]))),
        ("value", Arc::new(Int64Array::from(vec![half, half, -half, -half]))),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let path = folder.path().join("t.arrow");
    support::write(&path, &batch, WriterOptions::default());
    let table = support::open("t", &[path]);
    let source = table.source_over(0, &["part", "value"]).unwrap();
    let calls = vec![
        distinct(call(AggregateFunction::Count, Some(source.register(0)), DataType::Int64)),
        call(AggregateFunction::Sum, Some(source.register(1)), DataType::Int64),
    ];
    let sink = Sink::aggregate(vec![], calls);
    let program = Program::new(vec![], Pipeline { source, steps: vec![], sink });
    let runner = Runner::new(&RunnerOptions::default());
    let (batches, _) = run_on(Processor::Cpu, &runner, &program, &[table]).unwrap();
    assert_eq!(rows(&batches), ["2|0"]);
}
