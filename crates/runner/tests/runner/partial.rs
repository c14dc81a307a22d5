//! What may go on from a run, the partial states of its groups, and grouping sets.

use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use arrow_array::types::Int32Type;
use arrow_array::{
    ArrayRef, Decimal128Array, DictionaryArray, Int32Array, Int64Array, RecordBatch,
};
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::Schema;
use headrace_flow::CancelToken;
use headrace_format::arrow::WriterOptions;
use headrace_ir::{
    AggregateCall, AggregateFunction, AggregateOutput, DataType, Expr, NamedExpr, Pipeline,
    Program, Scalar, Sink,
};
use headrace_runner::{ErrorClass, Processor, RunError, Runner, RunnerOptions, StreamTable};

use crate::support::{self, rows};

const ROWS: i64 = 3000;
const NAMES: [&str; 7] = ["g", "b", "e", "a", "f", "d", "c"];

/// Rows `start .. end` of `t(city, name, value, price)`, some of whose values are NULL.
fn write_part(path: &Path, start: i64, end: i64) {
    let names = (start..end).map(|i| (i % 11 != 5).then(|| NAMES[(i * i % 7) as usize]));
    let prices = Decimal128Array::from_iter_values((start..end).map(|i| i128::from(i) << 80))
        .with_precision_and_scale(38, 2)
        .unwrap();
    let columns: [(&str, ArrayRef); 4] = [
        ("city", Arc::new(Int32Array::from_iter_values((start..end).map(|i| (i % 13) as i32)))),
        ("name", Arc::new(names.collect::<DictionaryArray<Int32Type>>())),
        (
            "value",
            Arc::new(Int64Array::from_iter((start..end).map(|i| (i % 17 != 0).then_some(i)))),
        ),
        ("price", Arc::new(prices)),
    ];
    let batch =
        RecordBatch::try_from_iter_with_nullable(columns.map(|(n, c)| (n, c, true))).unwrap();
    support::write(path, &batch, WriterOptions::default());
}

pub fn open(paths: &[PathBuf]) -> Arc<StreamTable> {
    support::open("t", paths)
}

/// The table in parts of different sizes, one of them without rows.
pub fn parts(folder: &Path) -> Vec<PathBuf> {
    let bounds = [0, 1000, 1001, 1001, 1700, ROWS];
    let part = |(i, bounds): (usize, &[i64])| {
        let path = folder.join(format!("part{i}.arrow"));
        write_part(&path, bounds[0], bounds[1]);
        path
    };
    bounds.windows(2).enumerate().map(part).collect()
}

pub fn run_with(
    runner: &Runner,
    program: &Program,
    parameters: &[Scalar],
    table: &Arc<StreamTable>,
) -> Result<Vec<RecordBatch>, RunError> {
    run_on(Processor::Cpu, runner, program, parameters, table)
}

pub fn run_on(
    processor: Processor,
    runner: &Runner,
    program: &Program,
    parameters: &[Scalar],
    table: &Arc<StreamTable>,
) -> Result<Vec<RecordBatch>, RunError> {
    let tables = std::slice::from_ref(table);
    let token = CancelToken::new();
    let run = support::run_with(processor, runner, program, parameters, tables, &token);
    run.map(|(batches, _)| batches)
}

fn named(name: &str, expr: Expr) -> NamedExpr {
    NamedExpr { name: name.into(), expr }
}

/// Calls of every kind of state.
fn calls(table: &StreamTable) -> Vec<AggregateCall> {
    use AggregateFunction::{Avg, Count, Max, Min, Sum};
    let source = table.source_over(0, &["city", "name", "value", "price"]).unwrap();
    let decimal = source.columns[3].data_type.clone();
    [
        (Count, None, DataType::Int64),
        (Sum, Some(2), DataType::Int64),
        (Avg, Some(2), DataType::Float64),
        (Count, Some(1), DataType::Int64),
        (Min, Some(1), DataType::Utf8),
        (Max, Some(2), DataType::Int64),
        (Sum, Some(3), decimal),
    ]
    .into_iter()
    .enumerate()
    .map(|(i, (function, register, result))| {
        let argument = register.map(|r| source.register(r));
        AggregateCall::new(format!("a{i}"), function, argument, result)
    })
    .collect()
}

fn grouped(table: &StreamTable, keys: &[&str], output: AggregateOutput) -> Program {
    let source = table.source_over(0, &["city", "name", "value", "price"]).unwrap();
    let key = |name: &&str| {
        let register = source.columns.iter().position(|c| c.name == *name).unwrap();
        named(name, source.register(register))
    };
    let keys = keys.iter().map(key).collect();
    let sink = Sink::Aggregate { keys, sets: vec![], calls: calls(table), output };
    Program::new(vec![], Pipeline { source, steps: vec![], sink })
}

/// To bytes and back.
fn travelled(batch: &RecordBatch) -> RecordBatch {
    let mut writer = StreamWriter::try_new(Vec::new(), batch.schema_ref()).unwrap();
    writer.write(batch).unwrap();
    let bytes = writer.into_inner().unwrap();
    StreamReader::try_new(Cursor::new(bytes), None).unwrap().next().unwrap().unwrap()
}

fn merge(
    runner: &Runner,
    program: &Program,
    batches: &[RecordBatch],
) -> Result<Vec<RecordBatch>, RunError> {
    let mut merge = runner.merge(program, &[], &CancelToken::new())?;
    batches.iter().try_for_each(|batch| merge.push(batch))?;
    let merged = Mutex::new(Vec::new());
    merge.finish(&|batch| {
        merged.lock().unwrap().push(batch);
        true
    })?;
    Ok(merged.into_inner().unwrap())
}

/// Keys of none, of dense and of so many possible groups that they are hashed.
const KEYS: [&[&str]; 4] = [&[], &["city", "name"], &["value"], &["price", "name"]];

#[test]
fn parts_of_a_table_run_anywhere_and_merge_in_any_order() {
    parts_merge(&[Processor::Cpu], &KEYS);
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_parts_of_a_table_run_anywhere_and_merge_in_any_order() {
    // The last keys are wider than a GPU has them.
    parts_merge(&[Processor::Cuda, Processor::Cpu], &KEYS[..3]);
}

/// The processors take the parts in turn.
fn parts_merge(processors: &[Processor], keys: &[&[&str]]) {
    let folder = tempfile::tempdir().unwrap();
    let parts = parts(folder.path());
    let whole = open(&parts);
    for &keys in keys {
        let program = grouped(&whole, keys, AggregateOutput::Final);
        let expected = run_with(&Runner::new(&RunnerOptions::default()), &program, &[], &whole);
        let program = grouped(&whole, keys, AggregateOutput::Partial);
        let text = serde_json::to_string(&program).unwrap();
        let mut batches: Vec<RecordBatch> = parts
            .iter()
            .zip(processors.iter().cycle())
            .flat_map(|(part, &processor)| {
                let program: Program = serde_json::from_str(&text).unwrap();
                let runner = Runner::new(&RunnerOptions::default());
                let table = open(std::slice::from_ref(part));
                run_on(processor, &runner, &program, &[], &table).unwrap()
            })
            .map(|batch| travelled(&batch))
            .collect();
        let expected = rows(&expected.unwrap());
        for turn in 0..3 {
            batches.rotate_left(turn);
            batches.reverse();
            let runner = Runner::new(&RunnerOptions::default());
            let merged = merge(&runner, &program, &batches).unwrap();
            assert_eq!(rows(&merged), expected, "by {keys:?}");
        }
    }
}

#[test]
fn nothing_merged_is_the_answer_for_no_rows() {
    let folder = tempfile::tempdir().unwrap();
    let table = open(&parts(folder.path()));
    let runner = Runner::new(&RunnerOptions::default());
    for (keys, groups) in [(&[][..], 1), (&["city"], 0)] {
        let program = grouped(&table, keys, AggregateOutput::Partial);
        let merged = merge(&runner, &program, &[]).unwrap();
        assert_eq!(merged.iter().map(RecordBatch::num_rows).sum::<usize>(), groups);
    }
}

#[test]
fn states_of_another_aggregation_or_version_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let table = open(&parts(folder.path()));
    let runner = Runner::new(&RunnerOptions::default());
    let program = grouped(&table, &["city"], AggregateOutput::Partial);
    let states = run_with(&runner, &program, &[], &table).unwrap();
    let refused = |program: &Program, batch: &RecordBatch| {
        let error = merge(&runner, program, std::slice::from_ref(batch)).unwrap_err();
        assert_eq!(error.class(), ErrorClass::Corrupt, "{error}");
        error.to_string()
    };
    let mut other = program.clone();
    let Sink::Aggregate { calls, .. } = &mut other.answer.sink else { unreachable!() };
    // Of the same types: only its meaning is another.
    calls[5].function = AggregateFunction::Min;
    let text = refused(&other, &states[0]);
    assert!(text.contains("max(value)") && text.contains("min(value)"), "{text}");

    let schema = states[0].schema();
    let mut metadata = schema.metadata().clone();
    metadata.insert("headrace.partial.version".into(), "2".into());
    let schema = Schema::new_with_metadata(schema.fields().clone(), metadata);
    let columns = states[0].columns().to_vec();
    let newer = RecordBatch::try_new(Arc::new(schema), columns).unwrap();
    let text = refused(&program, &newer);
    assert!(text.contains("headrace.partial.version is 2 instead of 1"), "{text}");
    let whole = grouped(&table, &["city"], AggregateOutput::Final);
    let text = refused(&program, &run_with(&runner, &whole, &[], &table).unwrap()[0]);
    assert!(text.contains("headrace.partial.version is not said"), "{text}");
    let short = states[0].project(&[0, 1]).unwrap();
    assert!(refused(&program, &short).contains("2 columns instead of"));

    let newer = Program { version: program.version + 1, ..program };
    let error = merge(&runner, &newer, &states).unwrap_err();
    assert!(error.to_string().contains("version"), "{error}");
}

/// Sets of two keys, one of them twice.
fn sets() -> Vec<Vec<usize>> {
    vec![vec![0, 1], vec![1], vec![], vec![1]]
}

fn in_sets(table: &StreamTable, keys: &[&str], output: AggregateOutput) -> Program {
    let mut program = grouped(table, keys, output);
    let Sink::Aggregate { sets: wanted, .. } = &mut program.answer.sink else { unreachable!() };
    *wanted = sets();
    program
}

/// What the sets are, one after the other.
fn one_by_one(runner: &Runner, table: &Arc<StreamTable>, keys: [&str; 2]) -> Vec<String> {
    let mut expected = Vec::new();
    for (number, set) in sets().iter().enumerate() {
        let some: Vec<&str> = set.iter().map(|&key| keys[key]).collect();
        let program = grouped(table, &some, AggregateOutput::Final);
        for row in rows(&run_with(runner, &program, &[], table).unwrap()) {
            let cells: Vec<&str> = row.split('|').collect();
            let (of_set, calls) = cells.split_at(set.len());
            let key = |key| set.iter().position(|k| *k == key).map_or("NULL", |at| of_set[at]);
            expected.push(format!("{}|{}|{number}|{}", key(0), key(1), calls.join("|")));
        }
    }
    expected.sort();
    expected
}

#[test]
fn grouping_sets_are_their_groups_one_by_one() {
    sets_on(Processor::Cpu, &[DENSE_SETS, ["value", "city"]]);
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_grouping_sets_are_their_groups_one_by_one() {
    // Keys of hashed sets are wider than a GPU has them.
    sets_on(Processor::Cuda, &[DENSE_SETS]);
}

/// Keys of dense groups.
const DENSE_SETS: [&str; 2] = ["city", "name"];

fn sets_on(processor: Processor, keys: &[[&str; 2]]) {
    let folder = tempfile::tempdir().unwrap();
    let parts = parts(folder.path());
    let table = open(&parts);
    let runner = Runner::new(&RunnerOptions::default());
    for &keys in keys {
        let program = in_sets(&table, &keys, AggregateOutput::Final);
        let expected = one_by_one(&runner, &table, keys);
        let found = run_on(processor, &runner, &program, &[], &table).unwrap();
        assert_eq!(rows(&found), expected, "by {keys:?}");
    }
}

#[test]
fn partial_states_of_grouping_sets_merge_too() {
    let folder = tempfile::tempdir().unwrap();
    let parts = parts(folder.path());
    let table = open(&parts);
    let runner = Runner::new(&RunnerOptions::default());
    let program = in_sets(&table, &["city", "name"], AggregateOutput::Partial);
    let states: Vec<_> = parts
        .iter()
        .flat_map(|part| {
            run_with(&runner, &program, &[], &open(std::slice::from_ref(part))).unwrap()
        })
        .collect();
    let expected = one_by_one(&runner, &table, ["city", "name"]);
    assert_eq!(rows(&merge(&runner, &program, &states).unwrap()), expected);
}
