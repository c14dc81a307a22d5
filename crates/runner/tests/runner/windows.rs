//! Window functions as a stage: the results of a model, whether memory holds the rows or not.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, UInt64Type};
use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use headrace_format::arrow::WriterOptions;
use headrace_ir::{
    AggregateFunction, ColumnCall, CompareOp, DataType, Expr, FrameEnd, Input, NamedExpr,
    OnOverflow, OrderKey, Pipeline, Program, Scalar, Sink, Source, Step, WindowCall,
    WindowFunction, Windows,
};
use headrace_runner::{ErrorClass, Processor, Runner, RunnerOptions, StreamTable};

use crate::support::{self, run_on};

const ROWS: i64 = 300_000;
const LIMIT_BYTES: u64 = 24 << 20;

/// The partition, the order and the value of a row, which is told from all others by its text. One partition is larger than
/// all others.
fn row(i: i64) -> (i64, i64, i64) {
    let partition = if i % 80 == 0 { 211 } else { i * 7919 % 211 };
    (partition, i * 31 % 5003, i % 1000 - 300)
}

fn table(folder: &Path) -> Arc<StreamTable> {
    let numbers = |of: fn((i64, i64, i64)) -> i64| -> ArrayRef {
        Arc::new((0..ROWS).map(|i| of(row(i))).collect::<Int64Array>())
    };
    let texts = (0..ROWS).map(|i| format!("a text of some length, with its number {i}"));
    let columns: [(&str, ArrayRef); 4] = [
        ("p", numbers(|row| row.0)),
        ("o", numbers(|row| row.1)),
        ("v", numbers(|row| row.2)),
        ("t", Arc::new(StringArray::from_iter_values(texts))),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let path = folder.join("t.arrow");
    let options = WriterOptions { rows_per_batch: 20_000, ..WriterOptions::default() };
    support::write(&path, &batch, options);
    support::open("t", &[path])
}

fn runner(limit_bytes: Option<u64>, folder: &Path) -> Runner {
    Runner::new(&RunnerOptions {
        memory_limit_bytes: limit_bytes,
        spill_folder: Some(folder.to_path_buf()),
        ..RunnerOptions::default()
    })
}

fn sum(until: FrameEnd, result: DataType) -> WindowFunction {
    let (function, on_overflow) = (AggregateFunction::Sum, OnOverflow::Error);
    let call = ColumnCall { function, argument: Some(2), filter: None, result, on_overflow };
    WindowFunction::Aggregate { call, until }
}

fn windows(table: &StreamTable, functions: Vec<WindowFunction>, first: Option<u64>) -> Pipeline {
    let source = table.source_over(0, &["p", "o", "v", "t"]).unwrap();
    let columns = source.all_columns();
    let call = |function| WindowCall { name: "w".into(), function };
    let order = vec![OrderKey { column: 1, descending: true, nulls_first: false }];
    let calls = functions.into_iter().map(call).collect();
    let sink = Sink::Windows(Windows { columns, partition: vec![0], order, calls, first });
    Pipeline { source, steps: vec![], sink }
}

/// Of each row its rank, and the sums of its partition up to its peers and of all.
fn model() -> BTreeMap<i64, (u64, i64, i64)> {
    let mut partitions: BTreeMap<i64, Vec<(i64, i64, i64)>> = BTreeMap::new();
    for i in 0..ROWS {
        let (p, o, v) = row(i);
        partitions.entry(p).or_default().push((-o, i, v));
    }
    let mut model = BTreeMap::new();
    for rows in partitions.values_mut() {
        rows.sort_unstable();
        let all = rows.iter().map(|row| row.2).sum();
        let (mut before, mut total) = (0, 0);
        for peers in rows.chunk_by(|a, b| a.0 == b.0) {
            total += peers.iter().map(|row| row.2).sum::<i64>();
            for peer in peers {
                model.insert(peer.1, (before + 1, total, all));
            }
            before += peers.len() as u64;
        }
    }
    model
}

fn number_of(text: &str) -> i64 {
    text.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn results_are_those_of_a_model_whether_memory_holds_the_rows_or_not() {
    let folder = tempfile::tempdir().unwrap();
    let table = table(folder.path());
    let functions = vec![
        WindowFunction::Rank,
        sum(FrameEnd::Peers, DataType::Int64),
        sum(FrameEnd::Partition, DataType::Int64),
    ];
    let program = Program::new(vec![], windows(&table, functions, None));
    let model = model();
    for limit_bytes in [None, Some(LIMIT_BYTES)] {
        let runner = runner(limit_bytes, folder.path());
        let tables = [Arc::clone(&table)];
        let (batches, report) = run_on(Processor::Cpu, &runner, &program, &tables).unwrap();
        let mut found = 0;
        for batch in &batches {
            let int = |column: usize| batch.column(column).as_primitive::<Int64Type>();
            let rank = batch.column(4).as_primitive::<UInt64Type>();
            for (at, text) in batch.column(3).as_string::<i32>().iter().enumerate() {
                let i = number_of(text.unwrap());
                assert_eq!((int(0).value(at), int(1).value(at), int(2).value(at)), row(i));
                let results = (rank.value(at), int(5).value(at), int(6).value(at));
                assert_eq!(results, model[&i], "row {i}");
                found += 1;
            }
        }
        assert_eq!((found, report.streamed.rows_out), (ROWS, ROWS as u64));
        assert_eq!(report.streamed.spilled_bytes > 0, limit_bytes.is_some());
        if let Some(limit_bytes) = limit_bytes {
            assert!(runner.budget().peak_bytes() <= limit_bytes);
        }
        assert_eq!(runner.spill_folder().used_bytes(), 0);
        runner.clear_caches();
        assert_eq!(runner.budget().uses().total_bytes(), 0, "{:?}", runner.budget());
    }
}

#[test]
fn rows_of_one_partition_are_numbered_in_their_order() {
    let folder = tempfile::tempdir().unwrap();
    let tables = [table(folder.path())];
    let mut stage =
        windows(&tables[0], vec![WindowFunction::RowNumber, WindowFunction::Rank], None);
    let Sink::Windows(windows) = &mut stage.sink else { panic!() };
    windows.partition.clear();
    let program = Program::new(vec![], stage);
    for limit_bytes in [None, Some(LIMIT_BYTES)] {
        let runner = runner(limit_bytes, folder.path());
        let (batches, _) = run_on(Processor::Cpu, &runner, &program, &tables).unwrap();
        let mut numbers: Vec<(u64, u64, i64)> = Vec::new();
        for batch in &batches {
            let number = |column: usize| batch.column(column).as_primitive::<UInt64Type>();
            let order = batch.column(1).as_primitive::<Int64Type>();
            let rows = number(4).values().iter().zip(number(5).values()).zip(order.values());
            numbers.extend(rows.map(|((number, rank), order)| (*number, *rank, *order)));
        }
        numbers.sort_unstable();
        assert!(numbers.iter().map(|row| row.0).eq(1..=ROWS as u64));
        assert!(numbers.windows(2).all(|pair| pair[0].2 >= pair[1].2));
        for peers in numbers.chunk_by(|a, b| a.2 == b.2) {
            assert!(peers.iter().all(|peer| peer.1 == peers[0].0));
        }
    }
}

#[test]
fn of_the_first_ranks_nothing_is_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let table = table(folder.path());
    let stage = windows(&table, vec![WindowFunction::Rank], None);
    let source = Source::of_stage(Input::Stage(0), "t", stage.sink.output().unwrap());
    let three = Expr::Literal(Scalar::int(DataType::UInt64, 3));
    let steps = vec![Step::Filter(Expr::compare(CompareOp::Le, source.register(4), three))];
    let text = NamedExpr { name: "t".into(), expr: source.register(3) };
    let answer = Pipeline { source, steps, sink: Sink::Rows { columns: vec![text], limit: None } };
    let program = Program::new(vec![stage], answer).with_first_of_partitions();
    let Sink::Windows(Windows { first, .. }) = &program.stages[0].sink else { panic!() };
    assert_eq!(*first, Some(3));
    let expected = model().into_iter().filter(|(_, results)| results.0 <= 3).map(|(i, _)| i);
    let expected: Vec<i64> = expected.collect();
    let tables = [table];
    let runner = runner(None, folder.path());
    let (batches, report) = run_on(Processor::Cpu, &runner, &program, &tables).unwrap();
    let texts = batches.iter().flat_map(|batch| batch.column(0).as_string::<i32>().iter());
    let mut found: Vec<i64> = texts.map(|text| number_of(text.unwrap())).collect();
    found.sort_unstable();
    assert_eq!(found, expected);
    let sorted = report.stages[0].as_ref().unwrap().rows_out;
    assert!(sorted < ROWS as u64 / 4, "{sorted} of {ROWS} rows were sorted");
}

#[test]
fn whoever_wants_no_more_rows_ends_the_stage_and_failures_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let tables = [table(folder.path())];
    let stage = windows(&tables[0], vec![WindowFunction::RowNumber], None);
    let source = Source::of_stage(Input::Stage(0), "t", stage.sink.output().unwrap());
    let columns = source.all_columns();
    let sink = Sink::Rows { columns, limit: Some(7) };
    let program = Program::new(vec![stage], Pipeline { source, steps: vec![], sink });
    let runner = runner(Some(LIMIT_BYTES), folder.path());
    let (batches, _) = run_on(Processor::Cpu, &runner, &program, &tables).unwrap();
    assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 7);
    let digits = DataType::Decimal128 { precision: 2, scale: 0 };
    let mut failing = windows(&tables[0], vec![sum(FrameEnd::Row, digits)], None);
    let error = |stage: Pipeline| {
        let program = Program::new(vec![], stage);
        run_on(Processor::Cpu, &runner, &program, &tables).unwrap_err()
    };
    // Where the GPU must do all of it, nothing is left to the cores in silence, whether or not there is one.
    let program = Program::new(vec![], failing.clone());
    let refused = run_on(Processor::Cuda, &runner, &program, &tables).unwrap_err();
    assert_eq!(refused.class(), ErrorClass::Unsupported, "{refused}");
    assert!(refused.to_string().contains("window functions"), "{refused}");
    let overflow = error(failing.clone());
    assert_eq!(overflow.class(), ErrorClass::Overflow, "{overflow}");
    // One partition of all rows, of which each waits for the last.
    let Sink::Windows(windows) = &mut failing.sink else { panic!() };
    windows.partition.clear();
    windows.calls[0].function = sum(FrameEnd::Partition, DataType::Int64);
    let memory = error(failing);
    assert_eq!(memory.class(), ErrorClass::OutOfMemory, "{memory}");
    runner.clear_caches();
    assert_eq!(runner.budget().uses().total_bytes(), 0, "{:?}", runner.budget());
    assert_eq!(runner.spill_folder().used_bytes(), 0);
}
