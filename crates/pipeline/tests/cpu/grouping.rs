//! Aggregation against row-at-a-time folding, dense and hashed, with any number of workers.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_array::RecordBatch;
use headrace_columns::ColumnError;
use headrace_ir::{
    AggregateFunction, AggregateOutput, CastFailure, DataType, Expr, FirstGroups, OnOverflow,
    OrderKey, Pipeline, Sink, Value,
};
use headrace_pipeline::bind::{BindOptions, bind};
use headrace_pipeline::cpu::{CpuProgram, WorkerOptions};
use headrace_pipeline::state::Output;
use headrace_pipeline::{BuildOptions, ExecError};
use proptest::prelude::*;

use crate::random::{self, DECIMAL, Random};
use crate::reference::{eval, show};
use crate::spread::floats;
use crate::support::*;

/// Argument type, result type.
pub fn result_type(function: AggregateFunction, argument: &DataType) -> DataType {
    match (function, argument) {
        (AggregateFunction::Count, _) => DataType::Int64,
        (AggregateFunction::Min | AggregateFunction::Max, t) => t.clone(),
        (AggregateFunction::Sum, DataType::Decimal128 { precision, scale }) => {
            DataType::Decimal128 { precision: precision + 10, scale: *scale }
        }
        (AggregateFunction::Avg, DataType::Decimal128 { precision, scale }) => {
            DataType::Decimal128 { precision: precision + 4, scale: scale + 4 }
        }
        (AggregateFunction::Sum, DataType::UInt64) => DataType::UInt64,
        (AggregateFunction::Sum, t) if t.is_integer() => DataType::Int64,
        _ => DataType::Float64,
    }
}

/// The nearest float, by way of decimal digits: parsing rounds once.
fn quotient(total: i128, count: i128) -> f64 {
    let mut text = format!("{}{}.", if total < 0 { "-" } else { "" }, total.abs() / count);
    let mut rest = total.abs() % count;
    for _ in 0..60 {
        rest *= 10;
        text.push_str(&(rest / count).to_string());
        rest %= count;
    }
    text.push(if rest == 0 { '0' } else { '1' });
    text.parse().unwrap()
}

/// The exact result, or `None` for an overflow.
fn fold(function: AggregateFunction, values: &[Value], result: &DataType) -> Option<Value> {
    let ints = || {
        values.iter().filter_map(|v| match v {
            Value::Int(i) => Some(*i),
            _ => None,
        })
    };
    let floats = || {
        values.iter().filter_map(|v| match v {
            Value::Float(f) => Some(*f),
            _ => None,
        })
    };
    if function == AggregateFunction::Count {
        return Some(Value::Int(values.len() as i128));
    }
    if values.is_empty() {
        return Some(Value::Null);
    }
    let is_float = matches!(values[0], Value::Float(_));
    let fits = |v: i128| {
        let (min, max) = match result {
            DataType::Decimal128 { precision, .. } => {
                (1 - 10i128.pow((*precision).into()), 10i128.pow((*precision).into()) - 1)
            }
            DataType::UInt64 => (0, u64::MAX.into()),
            _ => (i64::MIN.into(), i64::MAX.into()),
        };
        (min..=max).contains(&v).then_some(Value::Int(v))
    };
    match function {
        AggregateFunction::Sum if is_float => Some(Value::Float(floats().fold(0.0, |a, b| a + b))),
        AggregateFunction::Sum => fits(ints().sum()),
        AggregateFunction::Avg if is_float => {
            Some(Value::Float(floats().fold(0.0, |a, b| a + b) / values.len() as f64))
        }
        AggregateFunction::Avg if result.is_float() => {
            Some(Value::Float(quotient(ints().sum(), values.len() as i128)))
        }
        AggregateFunction::Avg => fits(ints().sum::<i128>() * 10_000 / values.len() as i128),
        _ => {
            let less = |a: &Value, b: &Value| match (a, b) {
                (Value::Int(a), Value::Int(b)) => a < b,
                (Value::Bool(a), Value::Bool(b)) => !a & b,
                (Value::Utf8(a), Value::Utf8(b)) => a < b,
                (Value::Float(a), Value::Float(b)) => a < b || (!a.is_nan() && b.is_nan()),
                _ => panic!(),
            };
            values.iter().cloned().reduce(|kept, v| {
                let replace = match function {
                    AggregateFunction::Min => less(&v, &kept),
                    _ => less(&kept, &v),
                };
                if replace { v } else { kept }
            })
        }
    }
}

pub const FUNCTIONS: [AggregateFunction; 5] = [
    AggregateFunction::Count,
    AggregateFunction::Sum,
    AggregateFunction::Avg,
    AggregateFunction::Min,
    AggregateFunction::Max,
];

/// -0 and 0 are one group and equal extremes; which of them is shown is not promised.
fn normal(line: String) -> String {
    line.split('|').map(|c| if c == "-0.0" { "0.0" } else { c }).collect::<Vec<_>>().join("|")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn groups_are_those_of_row_at_a_time_folding(seed: u64) {
        let mut random = Random(seed);
        let row_count = *random.pick(&[0, 1, 30]);
        let (table, data) = random::table(&mut random, row_count);
        let keys: Vec<usize> = (0..random.below(3)).map(|_| random.below(table.fields.len())).collect();
        let calls: Vec<_> = (0..1 + random.below(3)).map(|i| {
            let function = *random.pick(&FUNCTIONS);
            let numbers_only = matches!(function, AggregateFunction::Sum | AggregateFunction::Avg);
            let column = loop {
                let column = random.below(table.fields.len());
                if !numbers_only || table.fields[column].data_type.is_numeric() {
                    break column;
                }
            };
            let argument = table.col(&format!("c{column}"));
            let result = result_type(function, &argument.data_type());
            let mut made = call(function, Some(argument), result);
            made.name = format!("a{i}");
            if random.chance(30) {
                made.filter = Some(random::condition(&mut random, &table, 1));
            }
            made
        }).collect();

        let mut groups: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        if keys.is_empty() {
            groups.insert(String::new(), Vec::new());
        }
        // Float totals depend on the order of rows, which several workers do not keep.
        let float_total = calls.iter().any(|call| {
            matches!(call.function, AggregateFunction::Sum | AggregateFunction::Avg)
                && call.argument.as_ref().unwrap().data_type().is_float()
        });
        let workers = if float_total { 1 } else { 1 + random.below(3) };
        for (i, row) in data.iter().enumerate() {
            let cells: Vec<String> = keys.iter()
                .map(|&k| normal(show(&row[k], &table.fields[k].data_type))).collect();
            groups.entry(cells.join("|")).or_default().push(i);
        }
        let mut failed = false;
        let mut lines = Vec::new();
        for (key, members) in &groups {
            let mut cells = if keys.is_empty() { vec![] } else { vec![key.clone()] };
            for call in &calls {
                let argument = call.argument.as_ref().unwrap();
                let mut values = Vec::new();
                for &row in members {
                    let kept = match call.filter.as_ref().map(|f| eval(f, &data[row])) {
                        None => true,
                        Some(Ok(value)) => value == Value::Bool(true),
                        Some(Err(_)) => { failed = true; false }
                    };
                    if kept {
                        values.push(eval(argument, &data[row]).unwrap());
                    }
                }
                values.retain(|v| *v != Value::Null);
                match fold(call.function, &values, &call.result) {
                    Some(value) => cells.push(show(&value, &call.result)),
                    None => failed = true,
                }
            }
            lines.push(normal(cells.join("|")));
        }
        lines.sort();

        // Dense, hashed, and hashed with tables that flush all the time, now and then to disk.
        let flush = Some(1 + random.below(6));
        let little = *random.pick(&[150_000, u64::MAX]);
        let ways = [(65_536, None, u64::MAX), (0, None, u64::MAX), (0, flush, little)];
        for (dense_groups_max, groups_max, memory_limit_bytes) in ways {
            let named_keys = keys.iter().enumerate()
                .map(|(i, k)| named(&format!("k{i}"), table.col(&format!("c{k}")))).collect();
            let sink = Sink::aggregate(named_keys, calls.clone());
            let options = RunOptions {
                dense_groups_max,
                workers,
                groups_max,
                puts_aside: random.chance(50),
                memory_limit_bytes,
                batch_rows: *random.pick(&[1, 5, 4096]),
                ..RunOptions::default()
            };
            match run_with(&table, vec![], sink, &[], options) {
                Ok(Output::Batches(batches)) => {
                    prop_assert!(!failed, "no failure of {:?}", calls);
                    let mut found: Vec<String> = rows(&batches).into_iter().map(normal).collect();
                    found.sort();
                    prop_assert_eq!(&lines, &found, "{:?} by {:?}, dense {}, flush {:?}", calls, keys, dense_groups_max, groups_max);
                }
                Ok(Output::Build(_)) => panic!("a build"),
                Err(error) => prop_assert!(failed, "{} of {:?}", error, calls),
            }
        }
    }
}

/// Groups as their lines say: key, count, total, smallest text.
fn cells(line: &str) -> (i64, i64, i64, String) {
    let cells: Vec<&str> = line.split('|').collect();
    let number = |at: usize| cells[at].parse().unwrap();
    (number(0), number(1), number(2), cells[3].to_string())
}

#[test]
fn of_the_first_groups_none_is_missing() {
    const ROWS: usize = 60_000;
    let keys: Vec<i32> = (0..ROWS as i64).map(|i| (i * i % 9973) as i32).collect();
    let values: Vec<i32> = (0..ROWS as i32).map(|i| i % 91 - 45).collect();
    let texts: Vec<String> = keys.iter().map(|key| format!("{key:05}")).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let table = Table::new("t", ROWS).int32("k", &keys).int32("v", &values).text("w", &texts);
    let of = |column: &str| Some(table.col(column));
    let calls = vec![
        call(AggregateFunction::Count, None, DataType::Int64),
        call(AggregateFunction::Sum, of("v"), DataType::Int64),
        call(AggregateFunction::Min, of("w"), DataType::Utf8),
    ];
    let groups = |output: AggregateOutput, workers: usize, flush: Option<usize>| {
        let (keys, calls) = (vec![named("k", table.col("k"))], calls.clone());
        let sink = Sink::Aggregate { keys, sets: vec![], calls, output };
        let options =
            RunOptions { dense_groups_max: 0, workers, groups_max: flush, ..RunOptions::default() };
        match run_with(&table, vec![], sink, &[], options).unwrap() {
            Output::Batches(batches) => {
                rows(&batches).iter().map(|line| cells(line)).collect::<Vec<_>>()
            }
            Output::Build(_) => panic!("a build"),
        }
    };
    let all = groups(AggregateOutput::Final, 1, None);
    let known: HashSet<_> = all.iter().collect();
    let key = |(column, descending)| OrderKey { column, descending, nulls_first: false };
    let (key_up, count_down, total_up) = ((0, false), (1, true), (2, false));
    for order in [
        &[key_up][..],
        &[(0, true)],
        &[count_down],
        &[(1, false), (0, true)],
        &[total_up],
        &[(3, true)],
        &[count_down, total_up, key_up],
        &[count_down, (3, false)],
    ] {
        let by: Vec<OrderKey> = order.iter().copied().map(key).collect();
        let rank = |group: &(i64, i64, i64, String)| {
            let column = |key: &OrderKey| {
                let value = [group.0, group.1, group.2, group.3.parse().unwrap()][key.column];
                if key.descending { -value } else { value }
            };
            by.iter().map(column).collect::<Vec<_>>()
        };
        let sorted = |groups: &[_]| {
            let mut ranks: Vec<Vec<i64>> = groups.iter().map(rank).collect();
            ranks.sort_unstable();
            ranks
        };
        let ranks = sorted(&all);
        for (wanted, with_ties) in [1, 10, 3000, all.len(), all.len() + 1]
            .into_iter()
            .flat_map(|wanted| [(wanted, false), (wanted, true)])
        {
            for (workers, flush) in [(1, None), (3, None), (2, Some(500))] {
                let place = format!("{by:?} {wanted} {with_ties} {workers} {flush:?}");
                let (by, groups_wanted) = (by.clone(), wanted as u64);
                let first = FirstGroups { by, groups: groups_wanted, with_ties };
                let found = groups(AggregateOutput::First(first), workers, flush);
                assert!(found.iter().all(|group| known.contains(group)), "{place}");
                let wanted = wanted.min(all.len());
                let tied = match with_ties {
                    true => ranks.partition_point(|rank| *rank <= ranks[wanted - 1]),
                    false => wanted,
                };
                assert_eq!(sorted(&found)[..tied], ranks[..tied], "{place}");
                // No portion of groups gives more than are wanted.
                let few = wanted > 10 || with_ties || found.len() < all.len() / 4;
                assert!(few, "{} of {}: {place}", found.len(), all.len());
            }
        }
    }
}

#[test]
fn groups_ordered_by_floats_or_codes_bring_their_ties() {
    const ROWS: usize = 5000;
    let keys: Vec<i32> = (0..ROWS as i32).collect();
    let zeros: Vec<_> = (0..ROWS).map(|i| Some(if i % 2 == 0 { 0.0 } else { -0.0 })).collect();
    let table = floats(Table::new("t", ROWS).int32("k", &keys), "f", DataType::Float64, &zeros);
    let texts: Vec<String> = keys.iter().rev().map(|key| format!("{key:05}")).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let names = Table::new("names", ROWS).int32("k", &keys).text("name", &texts);
    let name = named("name", reg(2, DataType::Utf8, false, "name"));
    let total = call(AggregateFunction::Sum, Some(table.col("f")), DataType::Float64);
    for columns in [[1, 0], [0, 1]] {
        let by = columns.map(|column| OrderKey { column, descending: false, nulls_first: false });
        let first = FirstGroups { by: by.to_vec(), groups: 10, with_ties: false };
        let (keys, output) = (vec![name.clone()], AggregateOutput::First(first));
        let sink = Sink::Aggregate { keys, sets: vec![], calls: vec![total.clone()], output };
        let steps = vec![inner(0, table.col("k"), vec![0])];
        let names = build(&names, vec![], &["k"], &["name"]);
        let options = RunOptions { dense_groups_max: 0, ..RunOptions::default() };
        match run_with(&table, steps, sink, &[names], options).unwrap() {
            Output::Batches(batches) => assert_eq!(rows(&batches).len(), ROWS, "{columns:?}"),
            Output::Build(_) => panic!("a build"),
        }
    }
}

#[test]
fn a_total_that_does_not_fit_is_an_error_of_groups_that_nobody_wants() {
    let widest = DataType::Decimal128 { precision: 38, scale: 0 };
    let large = 10i128.pow(38) - 1;
    let mut table = decimals(&[large, large, 1, 2, 3], widest.clone());
    table = table.int32("k", &[7, 7, 1, 2, 3]);
    let by = vec![OrderKey { column: 0, descending: false, nulls_first: false }];
    let first = FirstGroups { by, groups: 1, with_ties: false };
    let (keys, output) = (vec![named("k", table.col("k"))], AggregateOutput::First(first));
    let calls = vec![call(AggregateFunction::Sum, Some(table.col("d")), widest)];
    let sink = Sink::Aggregate { keys, sets: vec![], calls, output };
    let options = RunOptions { dense_groups_max: 0, ..RunOptions::default() };
    let error = run_with(&table, vec![], sink, &[], options).unwrap_err();
    assert!(matches!(error, ExecError::Column(ColumnError::Overflow { .. })), "{error}");
}

fn decimals(values: &[i128], data_type: DataType) -> Table {
    let mut table = Table::new("t", values.len());
    let column = TestColumn {
        encoding: Some(headrace_ir::Encoding::Plain),
        values: values.iter().flat_map(|v| v.to_le_bytes()).collect(),
        ..TestColumn::default()
    };
    table.push("d", data_type, false, column);
    table
}

#[test]
fn a_total_that_leaves_128_bits_on_the_way_is_still_exact() {
    let widest = DataType::Decimal128 { precision: 38, scale: 0 };
    let large = 10i128.pow(38) - 1;
    let table = decimals(&[large, large, large, -large, -large, -large, 5], widest.clone());
    let sum = |result: &DataType| {
        Sink::aggregate(
            vec![],
            vec![call(AggregateFunction::Sum, Some(table.col("d")), result.clone())],
        )
    };
    assert_eq!(rows(&run(&table, vec![], sum(&widest), &[]).unwrap()), ["5"]);
    let table = decimals(&[large, large, -1], widest.clone());
    let error = run(&table, vec![], sum(&widest), &[]).unwrap_err();
    assert!(matches!(error, ExecError::Column(ColumnError::Overflow { .. })), "{error}");
}

#[test]
fn the_mean_of_decimals_is_truncated_at_four_more_digits() {
    let table = decimals(&[100, 200, 201], DECIMAL);
    let result = result_type(AggregateFunction::Avg, &DECIMAL);
    let sink =
        Sink::aggregate(vec![], vec![call(AggregateFunction::Avg, Some(table.col("d")), result)]);
    // 5.01 / 3 = 1.67
    assert_eq!(rows(&run(&table, vec![], sink, &[]).unwrap()), ["1670000"]);
}

fn int64(values: &[i64]) -> Table {
    let mut table = Table::new("t", values.len());
    let column = TestColumn {
        encoding: Some(headrace_ir::Encoding::Plain),
        values: values.iter().flat_map(|v| v.to_le_bytes()).collect(),
        ..TestColumn::default()
    };
    table.push("i", DataType::Int64, false, column);
    table
}

#[test]
fn the_mean_of_integers_is_exact_and_rounded_once() {
    let mean = |values: &[i64]| {
        let table = int64(values);
        let avg = call(AggregateFunction::Avg, Some(table.col("i")), DataType::Float64);
        let sink = Sink::aggregate(vec![], vec![avg]);
        rows(&run(&table, vec![], sink, &[]).unwrap()).remove(0)
    };
    assert_eq!(mean(&[i64::MAX, 1, -1, i64::MIN, 5]), "0.8");
    // A total that is no float, and a mean that is one.
    assert_eq!(mean(&[1 << 53, 1, 0]), "3002399751580331.0");
    assert_eq!(mean(&[i64::MAX; 3]), "9.223372036854776e18");
}

#[test]
fn a_zero_among_extremes_has_no_sign_whoever_comes_first() {
    for values in [[-0.0, 0.0], [0.0, -0.0]] {
        let mut table = Table::new("t", 2);
        let column = TestColumn {
            encoding: Some(headrace_ir::Encoding::Plain),
            values: values.iter().flat_map(|v: &f64| v.to_le_bytes()).collect(),
            ..TestColumn::default()
        };
        table.push("f", DataType::Float64, false, column);
        let extreme = |function| call(function, Some(table.col("f")), DataType::Float64);
        let sink = Sink::aggregate(
            vec![],
            vec![extreme(AggregateFunction::Min), extreme(AggregateFunction::Max)],
        );
        assert_eq!(rows(&run(&table, vec![], sink, &[]).unwrap()), ["0.0|0.0"]);
    }
}

#[test]
fn a_sum_that_wraps_wraps_if_asked_to() {
    let table = Table::new("t", 3).int32("i", &[1, 2, 3]);
    let large = Expr::Cast {
        value: Box::new(table.col("i")),
        to: DataType::Int64,
        on_failure: CastFailure::Error,
    };
    let product = Expr::Arithmetic {
        op: headrace_ir::ArithmeticOp::Multiply,
        left: Box::new(large),
        right: Box::new(Expr::Literal(headrace_ir::Scalar::int(DataType::Int64, i64::MAX.into()))),
        data_type: DataType::Int64,
        on_overflow: OnOverflow::Wrap,
    };
    let mut sum = call(AggregateFunction::Sum, Some(product), DataType::Int64);
    // MAX, -2 and MAX - 2: together 2 MAX - 4.
    let sink = |sum: &headrace_ir::AggregateCall| Sink::aggregate(vec![], vec![sum.clone()]);
    assert!(run(&table, vec![], sink(&sum), &[]).is_err());
    sum.on_overflow = OnOverflow::Wrap;
    assert_eq!(rows(&run(&table, vec![], sink(&sum), &[]).unwrap()), ["-6"]);
}

#[test]
fn a_memory_limit_names_its_tier() {
    let values: Vec<i32> = (0..50_000).collect();
    let table = Table::new("t", values.len()).int32("i", &values);
    let sink = Sink::aggregate(
        vec![named("i", table.col("i"))],
        vec![call(AggregateFunction::Count, None, DataType::Int64)],
    );
    let options =
        RunOptions { dense_groups_max: 0, memory_limit_bytes: 100_000, ..RunOptions::default() };
    let error = run_with(&table, vec![], sink, &[], options).unwrap_err();
    assert!(
        matches!(error, ExecError::Column(ColumnError::Memory { tier: "host memory", .. })),
        "{error}"
    );
    assert!(error.to_string().contains("the limit is 100000"), "{error}");
}

#[test]
fn a_limit_stops_early() {
    let values: Vec<i32> = (0..50_000).collect();
    let table = Table::new("t", values.len()).int32("i", &values);
    let sink = Sink::Rows { columns: vec![named("i", table.col("i"))], limit: Some(5_000) };
    let batches = run(&table, vec![], sink, &[]).unwrap();
    assert_eq!(batches.iter().map(|b| b.num_rows()).sum::<usize>(), 5_000);
}

#[test]
fn rows_leave_a_segment_as_they_come() {
    let values: Vec<i32> = (0..1_000_000).collect();
    let table = Table::new("t", values.len()).int32("i", &values);
    let columns = ["a", "b", "c"].map(|name| named(name, table.col("i"))).to_vec();
    let sink = Sink::Rows { columns, limit: None };
    let pipeline = Pipeline { source: table.source(), steps: vec![], sink };
    let bound = bind(&pipeline, &table.info(), &[], &BindOptions::default()).unwrap();
    let program = CpuProgram::compile(Arc::new(bound)).unwrap();
    // A twelfth of what comes out.
    let options = || WorkerOptions::new(1_000_000);
    let segment = table.part(0, table.rows);
    let mut worker = program.worker(&options()).unwrap();
    let error = worker.execute(&segment).unwrap_err();
    assert!(error.to_string().contains("output rows"), "{error}");

    let emitted = AtomicUsize::new(0);
    let most = |limit: usize| {
        let emitted = &emitted;
        move |batch: RecordBatch| {
            emitted.fetch_add(batch.num_rows(), Ordering::Relaxed) + batch.num_rows() < limit
        }
    };
    // Less than a full batch takes must do, too.
    for limit_bytes in [1_000_000, 20_000] {
        let mut worker = program.worker(&WorkerOptions::new(limit_bytes)).unwrap();
        let verdict = worker.execute_each(&segment, &most(usize::MAX)).unwrap();
        assert_eq!(verdict, headrace_flow::Verdict::Continue);
        program.finish_each(vec![worker], BuildOptions::default(), &most(usize::MAX)).unwrap();
        assert_eq!(emitted.swap(0, Ordering::Relaxed), 1_000_000);
    }

    let mut worker = program.worker(&options()).unwrap();
    let verdict = worker.execute_each(&segment, &most(20_000)).unwrap();
    assert_eq!(verdict, headrace_flow::Verdict::Enough);
    assert!(emitted.into_inner() < 50_000);
}

/// All pairs take 240 MB and 4 GB: they leave a batch of rows as they come.
#[test]
fn pairs_leave_a_batch_as_they_come() {
    let rows = 2_000;
    let long = "x".repeat(1_000);
    let stream =
        Table::new("s", rows).int32("k", &vec![7; rows]).text("t", &vec![long.as_str(); rows]);
    let dimension = Table::new("d", rows).int32("k", &vec![7; rows]);
    let build = build(&dimension, vec![], &["k"], &[]);
    for (column, limit_bytes) in [("k", 2_000_000), ("t", 40_000_000)] {
        let columns = vec![named(column, stream.col(column))];
        let sink = Sink::Rows { columns, limit: None };
        let steps = vec![inner(0, stream.col("k"), vec![])];
        let pipeline = Pipeline { source: stream.source(), steps, sink };
        let builds = [Arc::clone(&build)];
        let bound = bind(&pipeline, &stream.info(), &builds, &BindOptions::default()).unwrap();
        let program = CpuProgram::compile(Arc::new(bound)).unwrap();
        let options = WorkerOptions::new(limit_bytes);
        let emitted = AtomicUsize::new(0);
        let counted = |most: usize| {
            let emitted = &emitted;
            move |batch: RecordBatch| {
                assert!((batch.get_array_memory_size() as u64) < limit_bytes);
                emitted.fetch_add(batch.num_rows(), Ordering::Relaxed) + batch.num_rows() < most
            }
        };
        let mut worker = program.worker(&options).unwrap();
        worker.execute_each(&stream.segment(), &counted(usize::MAX)).unwrap();
        program.finish_each(vec![worker], BuildOptions::default(), &counted(usize::MAX)).unwrap();
        assert_eq!(emitted.swap(0, Ordering::Relaxed), rows * rows, "{column}");
        // Nobody waits for the others when there are enough, or nobody wants them.
        let mut worker = program.worker(&options).unwrap();
        let verdict = worker.execute_each(&stream.segment(), &counted(50_000)).unwrap();
        assert_eq!(verdict, headrace_flow::Verdict::Enough);
        assert!(emitted.swap(0, Ordering::Relaxed) < 100_000);
        let mut worker = program.worker(&options).unwrap();
        options.cancel.cancel();
        assert!(worker.execute_each(&stream.segment(), &counted(usize::MAX)).is_err());
        assert!(emitted.into_inner() < 50_000);
    }
}
