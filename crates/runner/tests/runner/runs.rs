//! What is refused, builds that probe builds, what is kept from run to run, and many runs at a time.

use std::path::Path;
use std::sync::{Arc, Mutex};

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int32Array, Int64Array, RecordBatch};
use headrace_flow::CancelToken;
use headrace_format::arrow::WriterOptions;
use headrace_io::MemoryUse;
use headrace_ir::{
    AggregateCall, AggregateFunction, CompareOp, DataType, Expr, NamedExpr, Pipeline, Probe,
    ProbeKind, Program, Scalar, Sink, Source, Step,
};
use headrace_runner::{
    ErrorClass, Processor, Request, RunError, RunReport, Runner, RunnerOptions, Settings,
    StreamTable,
};

use crate::support::{self, run_on};

const CITIES: i32 = 100;
const FACTS: i32 = 50_000;

fn write(path: &Path, columns: Vec<(&str, ArrayRef)>) {
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    support::write(path, &batch, WriterOptions::default());
}

fn ints(values: impl Iterator<Item = i32>) -> ArrayRef {
    Arc::new(Int32Array::from_iter_values(values))
}

/// `region(id, zone)`, `city(id, region)`, `fact(city, value)`: a snowflake.
fn write_tables(folder: &Path) {
    write(
        &folder.join("region.arrow"),
        vec![("id", ints(0..10)), ("zone", ints((0..10).map(|r| r % 2)))],
    );
    let region = ints((0..CITIES).map(|c| c % 10));
    write(&folder.join("city.arrow"), vec![("id", ints(0..CITIES)), ("region", region)]);
    let values = Int64Array::from_iter_values(0..i64::from(FACTS));
    let city = ints((0..FACTS).map(|f| f % CITIES));
    write(&folder.join("fact.arrow"), vec![("city", city), ("value", Arc::new(values))]);
}

fn open(folder: &Path, name: &str) -> Arc<StreamTable> {
    support::open(name, &[folder.join(name).with_extension("arrow")])
}

fn tables(folder: &Path) -> Vec<Arc<StreamTable>> {
    ["region", "city", "fact"].map(|name| open(folder, name)).into()
}

fn build(source: Source, steps: Vec<Step>) -> Pipeline {
    let key = NamedExpr { name: "id".into(), expr: source.register(0) };
    let sink = Sink::Build { keys: vec![key], payload: vec![] };
    Pipeline { source, steps, sink }
}

/// `sum(value)` of facts in cities whose region lies in a zone: the build of cities probes that of
/// regions.
fn sum_of_zone(tables: &[Arc<StreamTable>], zone: i32) -> Program {
    let region = tables[0].source_over(0, &["id", "zone"]).unwrap();
    let zone = Expr::Literal(Scalar::int(DataType::Int32, zone.into()));
    let in_zone = Step::Filter(Expr::compare(CompareOp::Eq, region.register(1), zone));
    let city = tables[1].source_over(1, &["id", "region"]).unwrap();
    let in_region = Step::Probe(Probe::semi(0, vec![city.register(1)]));
    let fact = tables[2].source_over(2, &["city", "value"]).unwrap();
    let in_city = Step::Probe(Probe::semi(1, vec![fact.register(0)]));
    let sum = AggregateCall::new(
        "total",
        AggregateFunction::Sum,
        Some(fact.register(1)),
        DataType::Int64,
    );
    let sink = Sink::aggregate(vec![], vec![sum]);
    Program::new(
        vec![build(region, vec![in_zone]), build(city, vec![in_region])],
        Pipeline { source: fact, steps: vec![in_city], sink },
    )
}

fn expected_of_zone(zone: i32) -> i64 {
    (0..FACTS).filter(|f| (f % CITIES) % 10 % 2 == zone).map(i64::from).sum()
}

fn run(
    runner: &Runner,
    program: &Program,
    tables: &[Arc<StreamTable>],
) -> Result<(Vec<RecordBatch>, RunReport), RunError> {
    run_on(Processor::Cpu, runner, program, tables)
}

fn total(batches: &[RecordBatch]) -> i64 {
    assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 1);
    batches
        .iter()
        .find(|b| b.num_rows() == 1)
        .unwrap()
        .column(0)
        .as_primitive::<Int64Type>()
        .value(0)
}

#[test]
fn builds_may_probe_builds_and_are_kept_while_all_files_are_the_same() {
    let folder = tempfile::tempdir().unwrap();
    write_tables(folder.path());
    let tables = tables(folder.path());
    let runner = Runner::new(&RunnerOptions::default());
    for zone in [0, 1] {
        let program = sum_of_zone(&tables, zone);
        let (batches, report) = run(&runner, &program, &tables).unwrap();
        assert_eq!(total(&batches), expected_of_zone(zone));
        assert_eq!((report.builds_made, report.builds_cached), (2, 0), "zone {zone}: {report:?}");
        let (batches, report) = run(&runner, &program, &tables).unwrap();
        assert_eq!(total(&batches), expected_of_zone(zone));
        assert_eq!((report.builds_made, report.builds_cached), (0, 2), "zone {zone}: {report:?}");
    }
    // The outer dimension changes: neither it nor what probed it may be used again.
    let program = sum_of_zone(&tables, 0);
    write(
        &folder.path().join("region.arrow"),
        vec![("id", ints(0..10)), ("zone", ints((0..10).map(|_| 0)))],
    );
    let error = run(&runner, &program, &tables).unwrap_err();
    assert_eq!(error.class(), ErrorClass::FileChanged, "{error}");
    let reopened = vec![open(folder.path(), "region"), tables[1].clone(), tables[2].clone()];
    let (batches, report) = run(&runner, &program, &reopened).unwrap();
    assert_eq!(total(&batches), (0..i64::from(FACTS)).sum::<i64>());
    assert_eq!(report.builds_made, 2);
}

#[test]
fn a_program_for_other_tables_is_refused_before_anything_is_read() {
    let folder = tempfile::tempdir().unwrap();
    write_tables(folder.path());
    let tables = tables(folder.path());
    let runner = Runner::new(&RunnerOptions::default());
    let program = sum_of_zone(&tables, 0);
    let swapped = vec![tables[0].clone(), tables[2].clone(), tables[1].clone()];
    let error = run(&runner, &program, &swapped).unwrap_err();
    assert!(error.to_string().contains("the program wants region as int32"), "{error}");
    let error = run(&runner, &program, &tables[..2]).unwrap_err();
    assert!(error.to_string().contains("there is no table 2"), "{error}");
    let older = Program { version: 0, ..program };
    let error = run(&runner, &older, &tables).unwrap_err();
    assert!(error.to_string().contains("version 0"), "{error}");
}

#[test]
fn a_build_may_not_probe_itself_or_a_later_one() {
    let folder = tempfile::tempdir().unwrap();
    write_tables(folder.path());
    let tables = tables(folder.path());
    let mut program = sum_of_zone(&tables, 0);
    program.stages.swap(0, 1);
    let runner = Runner::new(&RunnerOptions::default());
    let error = run(&runner, &program, &tables).unwrap_err();
    assert_eq!(error.class(), ErrorClass::Internal, "{error}");
}

#[test]
fn an_anti_join_on_a_build_that_probes_a_build() {
    let folder = tempfile::tempdir().unwrap();
    write_tables(folder.path());
    let tables = tables(folder.path());
    let mut program = sum_of_zone(&tables, 0);
    let Step::Probe(probe) = &mut program.answer.steps[0] else { panic!("no probe") };
    probe.kind = ProbeKind::Anti;
    let (batches, _) = run(&Runner::new(&RunnerOptions::default()), &program, &tables).unwrap();
    assert_eq!(total(&batches), expected_of_zone(1));
}

#[test]
fn many_runs_at_a_time_share_one_budget_and_all_answer_right() {
    many_runs_on(Processor::Cpu, "cpu");
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_many_runs_at_a_time_share_one_budget_and_all_answer_right() {
    many_runs_on(Processor::Cuda, "cuda");
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_what_the_cores_have_answered_is_rehearsed_behind_the_queries() {
    const ROWS: i64 = 8_000_000;
    let folder = tempfile::tempdir().unwrap();
    let values: ArrayRef = Arc::new(Int64Array::from_iter_values(0..ROWS));
    write(&folder.path().join("many.arrow"), vec![("value", values)]);
    let tables = [open(folder.path(), "many")];
    let program = |limit: i64| {
        let source = tables[0].source_over(0, &["value"]).unwrap();
        let value = source.register(0);
        let limit = Expr::Literal(Scalar::int(DataType::Int64, limit.into()));
        let below = Step::Filter(Expr::compare(CompareOp::Lt, value.clone(), limit));
        let sum = AggregateFunction::Sum;
        let sum = AggregateCall::new("total", sum, Some(value), DataType::Int64);
        let sink = Sink::aggregate(vec![], vec![sum]);
        Program::new(vec![], Pipeline { source, steps: vec![below], sink })
    };
    let (runner, token) = (Arc::new(Runner::new(&RunnerOptions::default())), CancelToken::new());
    let settings = Settings::default();
    let run = |program: &Program| {
        let (tables, settings, token) = (&tables, &settings, &token);
        let request = Request { program, parameters: &[], tables, settings, token, known: None };
        let sum = Mutex::new(0);
        let report = runner.run(&request, &|batch| {
            *sum.lock().unwrap() += total(&[batch]);
            true
        });
        let report = report.unwrap();
        if report.wants_rehearsal {
            runner.rehearse(&request);
        }
        (sum.into_inner().unwrap(), report.wants_rehearsal, report.streamed)
    };
    let below = |limit: i64| limit * (limit - 1) / 2;
    let (sum, wants, report) = run(&program(5));
    assert_eq!((sum, wants, &*report.processor), (below(5), false, "cpu"), "whoever asks once");
    runner.allow_rehearsals();
    let limit = ROWS - 7;
    let (sum, wants, report) = run(&program(limit));
    assert_eq!((sum, wants, &*report.processor), (below(limit), true, "cpu"), "{report:?}");
    let why = report.processor_why_not.unwrap_or_default();
    assert!(why.ends_with("it is tried behind this query"), "{why}");
    runner.settle();
    let (sum, wants, report) = run(&program(limit));
    assert_eq!((sum, wants, &*report.processor), (below(limit), false, "cuda"), "{report:?}");
}

fn many_runs_on(processor: Processor, name: &str) {
    let folder = tempfile::tempdir().unwrap();
    write_tables(folder.path());
    let tables = tables(folder.path());
    let limit_bytes = 64 << 20;
    let options =
        RunnerOptions { memory_limit_bytes: Some(limit_bytes), ..RunnerOptions::default() };
    let runner = Runner::new(&options);
    std::thread::scope(|scope| {
        for thread in 0..10 {
            let (runner, tables) = (&runner, &tables);
            scope.spawn(move || {
                for query in 0..10 {
                    let zone = (thread + query) % 2;
                    let program = sum_of_zone(tables, zone);
                    let (batches, report) = run_on(processor, runner, &program, tables).unwrap();
                    assert_eq!(total(&batches), expected_of_zone(zone));
                    assert_eq!(report.streamed.processor, name);
                }
            });
        }
    });
    assert!(runner.budget().peak_bytes() <= limit_bytes);
    runner.clear_caches();
    let uses = runner.budget().uses();
    // A GPU keeps its pinned slots for the next query.
    let kept = if processor == Processor::Cuda { uses.of(MemoryUse::Slots) } else { 0 };
    assert_eq!(uses.total_bytes(), kept, "{:?}", runner.budget());
}

/// `sum` of each column.
fn sums(table: &Arc<StreamTable>, columns: &[&str]) -> Program {
    let source = table.source_over(0, columns).unwrap();
    let sum = |i: usize| {
        AggregateCall::new(
            columns[i],
            AggregateFunction::Sum,
            Some(source.register(i)),
            DataType::Int64,
        )
    };
    let calls = (0..columns.len()).map(sum).collect();
    let sink = Sink::aggregate(vec![], calls);
    Program::new(vec![], Pipeline { source, steps: vec![], sink })
}

/// Batches are split by rows alone: the same parts are looked for whatever columns go with them.
#[test]
fn what_was_read_of_a_column_is_found_by_a_query_of_other_columns() {
    const ROWS: i64 = 300_000;
    let folder = tempfile::tempdir().unwrap();
    let column =
        |by: i64| -> ArrayRef { Arc::new(Int64Array::from_iter_values((0..ROWS).map(|i| i * by))) };
    let path = folder.path().join("t.arrow");
    write(&path, vec![("a", column(1)), ("b", column(2)), ("c", column(3)), ("d", column(4))]);
    let file = headrace_io::SourceFile::open(&path).unwrap();
    if file.direct().is_err() {
        // A temporary folder may lie in memory, where nothing is ever cold.
        return;
    }
    let table = open(folder.path(), "t");
    let runner = Runner::new(&RunnerOptions::default());
    let mut bytes_read = Vec::new();
    for columns in [&["a"][..], &["a", "b"], &["b", "a", "c", "d"], &["d", "b"]] {
        headrace_io::drop_cache(file.as_ref()).unwrap();
        let (batches, report) =
            run(&runner, &sums(&table, columns), std::slice::from_ref(&table)).unwrap();
        let sum = ROWS * (ROWS - 1) / 2;
        let batch = batches.iter().find(|batch| batch.num_rows() == 1).unwrap();
        for (i, name) in columns.iter().enumerate() {
            let by = i64::from(name.as_bytes()[0] - b'a') + 1;
            assert_eq!(batch.column(i).as_primitive::<Int64Type>().value(0), by * sum);
        }
        bytes_read.push((
            report.streamed.race.bytes_by_path.direct,
            report.streamed.race.bytes_by_path.cached,
        ));
    }
    let one = ROWS as u64 * 8;
    assert_eq!(bytes_read, [(one, 0), (one, one), (2 * one, 2 * one), (0, 2 * one)]);
}
