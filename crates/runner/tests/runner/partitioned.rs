//! Joins whose builds do not fit memory: the same answers as with enough of it, in bounded memory.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use headrace_format::arrow::WriterOptions;
use headrace_format::batches::{BatchTable, Ready};
use headrace_ir::{
    AggregateCall, AggregateFunction, CompareOp, DataType, Expr, Input, NamedExpr, OrderKey,
    Pipeline, Probe, ProbeKind, Program, Scalar, Sink, Source, Step,
};
use headrace_runner::{ErrorClass, Processor, RunReport, Runner, RunnerOptions, StreamTable};

use crate::support::{self, rows, run_on};

const KINDS: [ProbeKind; 4] = [ProbeKind::Inner, ProbeKind::Left, ProbeKind::Semi, ProbeKind::Anti];
const LIMIT_BYTES: u64 = 24 << 20;

/// `(key, text, value)`: every 50th key is NULL.
fn batch(count: i64, key: impl Fn(i64) -> i64) -> RecordBatch {
    let keys = (0..count).map(|i| (i % 50 != 7).then(|| key(i)));
    let texts = (0..count).map(|i| (i % 9 != 0).then(|| format!("text {}", i % 1000)));
    let columns: [(&str, ArrayRef); 3] = [
        ("key", Arc::new(keys.collect::<Int64Array>())),
        ("text", Arc::new(texts.collect::<StringArray>())),
        ("value", Arc::new((0..count).collect::<Int64Array>())),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, array)| (name, array, true)))
        .unwrap()
}

fn path(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.arrow"))
}

fn table(folder: &Path, name: &str, batch: &RecordBatch) -> Arc<StreamTable> {
    let path = path(folder, name);
    let options = WriterOptions { rows_per_batch: 20_000, ..WriterOptions::default() };
    support::write(&path, batch, options);
    support::open(name, &[path])
}

/// Streamed `f`, and `d`, of which 300,000 rows are more than memory holds: keys of both repeat.
fn tables(folder: &Path) -> Vec<Arc<StreamTable>> {
    vec![
        table(folder, "f", &batch(100_000, |i| i * 7919 % 150_011)),
        table(folder, "d", &batch(300_000, |i| i * 31 % 200_003)),
        table(folder, "e", &batch(250_000, |i| i * 17 % 120_011)),
    ]
}

fn named(name: &str, expr: Expr) -> NamedExpr {
    NamedExpr { name: name.into(), expr }
}

/// A build by `key` with `text` and `value`.
fn build(tables: &[Arc<StreamTable>], table: usize) -> Pipeline {
    let source = tables[table].source_over(table, &["key", "text", "value"]).unwrap();
    let keys = vec![named("key", source.register(0))];
    let payload = vec![named("text", source.register(1)), named("value", source.register(2))];
    let sink = Sink::Build { keys, payload };
    Pipeline { source, steps: vec![], sink }
}

fn register(index: usize, data_type: DataType) -> Expr {
    Expr::Register { index, data_type, nullable: true, name: format!("r{index}") }
}

fn probe(build: usize, key: usize, kind: ProbeKind) -> Probe {
    let keys = vec![register(key, DataType::Int64)];
    let payload = match kind {
        ProbeKind::Inner | ProbeKind::Left => vec![0, 1],
        _ => vec![],
    };
    Probe { kind, payload, ..Probe::semi(build, keys) }
}

/// What a join puts out.
#[derive(Clone, Copy, Debug)]
enum Out {
    Rows,
    Total,
    Groups,
    First,
}

/// `f` with one probe of `d`.
fn join(tables: &[Arc<StreamTable>], probe: Probe, out: Out) -> Program {
    let source = tables[0].source_over(0, &["key", "text", "value"]).unwrap();
    let has_payload = matches!(probe.kind, ProbeKind::Inner | ProbeKind::Left);
    let last = if has_payload { 4 } else { 2 };
    let mut columns: Vec<NamedExpr> = (0..3)
        .map(|index| named(["key", "text", "value"][index], source.register(index)))
        .collect();
    if last == 4 {
        columns.push(named("d text", register(3, DataType::Utf8)));
        columns.push(named("d value", register(4, DataType::Int64)));
    }
    let value = Some(register(last, DataType::Int64));
    let sum = AggregateCall::new("s", AggregateFunction::Sum, value.clone(), DataType::Int64);
    let count = AggregateCall::new("n", AggregateFunction::Count, None, DataType::Int64);
    let largest =
        AggregateCall::new("m", AggregateFunction::Max, Some(source.register(1)), DataType::Utf8);
    let calls = vec![count, sum, largest];
    let ordered = |column, descending| OrderKey { column, descending, nulls_first: false };
    let sink = match out {
        Out::Rows => Sink::Rows { columns, limit: None },
        Out::Total => Sink::aggregate(vec![], calls),
        Out::Groups => Sink::aggregate(vec![columns[1].clone()], calls),
        Out::First => {
            let order = (0..columns.len()).rev().map(|column| ordered(column, true)).collect();
            Sink::Sorted { columns, order, limit: Some(500) }
        }
    };
    let steps = vec![Step::Probe(probe)];
    Program::new(vec![build(tables, 1)], Pipeline { source, steps, sink })
}

/// Groups of the rows of `f` and `e` with their matches in `d`.
fn join_of_union(tables: &[Arc<StreamTable>]) -> Program {
    let member = |table: usize| {
        let source = tables[table].source_over(table, &["key", "text", "value"]).unwrap();
        let sink = Sink::Rows { columns: source.all_columns(), limit: None };
        Pipeline { source, steps: vec![], sink }
    };
    let joined = join(tables, probe(2, 0, ProbeKind::Inner), Out::Groups);
    let mut answer = joined.answer;
    answer.source.input = Input::Union(vec![0, 1]);
    Program::new(vec![member(0), member(2), build(tables, 1)], answer)
}

/// A build of the rows of `f` with their matches in `d`, which `e` probes.
#[test]
fn a_build_that_the_rows_of_another_probe_is_divided() {
    let folder = tempfile::tempdir().unwrap();
    let tables = tables(folder.path());
    let joined = join(&tables, probe(0, 0, ProbeKind::Inner), Out::Rows).answer;
    let read = Source::of_stage(Input::Stage(1), "joined", joined.sink.output().unwrap());
    let keys = vec![named("key", read.register(0))];
    let few = Expr::compare(
        CompareOp::Lt,
        read.register(2),
        Expr::Literal(Scalar::int(DataType::Int64, 500)),
    );
    let sink = Sink::Build { keys, payload: vec![] };
    let of_joined = Pipeline { source: read, steps: vec![Step::Filter(few)], sink };
    let source = tables[2].source_over(2, &["key"]).unwrap();
    let probe = Step::Probe(Probe::semi(2, vec![source.register(0)]));
    let count = AggregateCall::new("n", AggregateFunction::Count, None, DataType::Int64);
    let sink = Sink::aggregate(vec![], vec![count]);
    let answer = Pipeline { source, steps: vec![probe], sink };
    let program = Program::new(vec![build(&tables, 1), joined, of_joined], answer);
    let folder = tempfile::tempdir().unwrap();
    let plenty = runner(None, folder.path());
    let (expected, _) = run_on(Processor::Cpu, &plenty, &program, &tables).unwrap();
    let little = runner(Some(LIMIT_BYTES), folder.path());
    let (found, report) = run_on(Processor::Cpu, &little, &program, &tables).unwrap();
    assert!(report.builds.iter().any(|build| build.contains("divided")), "{:?}", report.builds);
    assert_eq!(rows(&found), rows(&expected));
    assert!(little.budget().peak_bytes() <= LIMIT_BYTES);
}

#[test]
fn a_build_that_is_probed_above_a_union_is_divided() {
    let folder = tempfile::tempdir().unwrap();
    let tables = tables(folder.path());
    let program = join_of_union(&tables);
    assert!(program.lowered().unwrap().has_builds_of_parts());
    compared(&program, &tables, "a union");
}

fn runner(limit_bytes: Option<u64>, folder: &Path) -> Runner {
    Runner::new(&RunnerOptions {
        memory_limit_bytes: limit_bytes,
        spill_folder: Some(folder.to_path_buf()),
        ..RunnerOptions::default()
    })
}

/// The rows of a program with enough memory, and with too little, which must be seen.
fn compared(
    program: &Program,
    tables: &[Arc<StreamTable>],
    what: &str,
) -> (Vec<String>, RunReport) {
    let folder = tempfile::tempdir().unwrap();
    let plenty = runner(None, folder.path());
    let (expected, report) = run_on(Processor::Cpu, &plenty, program, tables).unwrap();
    assert!(!report.builds.iter().any(|build| build.contains("divided")), "{:?}", report.builds);
    let little = runner(Some(LIMIT_BYTES), folder.path());
    let (found, report) = run_on(Processor::Cpu, &little, program, tables).unwrap();
    assert!(report.builds.iter().any(|b| b.contains("divided")), "{what}: {:?}", report.builds);
    assert!(report.streamed.spilled_bytes > 0, "{what}");
    let (found, expected) = (rows(&found), rows(&expected));
    assert!(found == expected, "{what}: {} rows, {} expected", found.len(), expected.len());
    assert!(!found.is_empty(), "{what}");
    assert!(little.budget().peak_bytes() <= LIMIT_BYTES);
    assert_eq!(little.spill_folder().used_bytes(), 0);
    little.clear_caches();
    assert_eq!(little.budget().uses().total_bytes(), 0, "{what}: {:?}", little.budget());
    (found, report)
}

#[test]
fn every_kind_of_join_into_every_sink() {
    let folder = tempfile::tempdir().unwrap();
    let tables = tables(folder.path());
    for kind in KINDS {
        for out in [Out::Rows, Out::Total, Out::Groups, Out::First] {
            let program = join(&tables, probe(0, 0, kind), out);
            compared(&program, &tables, &format!("{kind:?} {out:?}"));
        }
    }
}

#[test]
fn conditions_on_pairs_and_keys_where_null_equals_null() {
    let folder = tempfile::tempdir().unwrap();
    let tables = tables(folder.path());
    for kind in KINDS {
        let larger = Expr::compare(
            CompareOp::Lt,
            register(2, DataType::Int64),
            register(4, DataType::Int64),
        );
        let residual = Probe { payload: vec![0, 1], residual: Some(larger), ..probe(0, 0, kind) };
        compared(&join(&tables, residual, Out::Rows), &tables, &format!("{kind:?} residual"));
    }
    for kind in [ProbeKind::Semi, ProbeKind::Anti] {
        let null_equal = Probe { null_equal: true, ..probe(0, 0, kind) };
        compared(&join(&tables, null_equal, Out::Rows), &tables, &format!("{kind:?} nulls"));
    }
}

#[test]
fn two_builds_that_are_too_large_with_conditions_around_them() {
    let folder = tempfile::tempdir().unwrap();
    let tables = tables(folder.path());
    let mut program = join(&tables, probe(0, 0, ProbeKind::Inner), Out::Groups);
    program.stages.push(build(&tables, 2));
    // By the value of a row of d, that of f computed.
    let sum = Expr::arithmetic(
        headrace_ir::ArithmeticOp::Add,
        register(2, DataType::Int64),
        register(4, DataType::Int64),
    );
    program.answer.steps.push(Step::Compute(named("sum", sum)));
    program.answer.steps.push(Step::Probe(probe(1, 4, ProbeKind::Left)));
    let less =
        Expr::compare(CompareOp::Lt, register(5, DataType::Int64), register(7, DataType::Int64));
    program.answer.steps.push(Step::Filter(Expr::Or(vec![
        less,
        Expr::IsNull(Box::new(register(7, DataType::Int64))),
    ])));
    let (_, report) = compared(&program, &tables, "two builds");
    assert_eq!(report.builds.iter().filter(|b| b.contains("divided")).count(), 2);
}

/// `f` with `e` inner and `d` semi by the same key; of `e` those rows are of use that `d` has, too.
fn told(tables: &[Arc<StreamTable>], is_told: bool) -> Program {
    let mut program = join(tables, probe(0, 0, ProbeKind::Semi), Out::Groups);
    let mut other = build(tables, 2);
    if is_told {
        let keys = vec![other.source.register(0)];
        other.steps.push(Step::Probe(Probe { is_optional: true, ..Probe::semi(0, keys) }));
    }
    program.stages.push(other);
    program.answer.steps.push(Step::Probe(probe(1, 0, ProbeKind::Inner)));
    program
}

#[test]
fn what_tells_a_build_which_rows_are_of_use_may_be_divided() {
    let folder = tempfile::tempdir().unwrap();
    let mut tables = tables(folder.path());
    let even = folder.path().join("even");
    std::fs::create_dir(&even).unwrap();
    tables[1] = table(&even, "d", &batch(300_000, |i| i * 31 % 200_003 * 2));
    let rows_of = |is_told| {
        let program = told(&tables, is_told);
        let runner = runner(None, folder.path());
        let (answer, report) = run_on(Processor::Cpu, &runner, &program, &tables).unwrap();
        let of_e = report.builds[1].split(' ').nth(1).map(|rows| rows.parse::<u64>().unwrap());
        (rows(&answer), of_e.unwrap())
    };
    let (all, told_rows) = (rows_of(false), rows_of(true));
    assert!(all.0 == told_rows.0);
    assert!(told_rows.1 < all.1 * 2 / 3, "{} of {}", told_rows.1, all.1);
    let (_, report) = compared(&told(&tables, true), &tables, "told");
    assert!(report.builds[0].contains("divided"), "{:?}", report.builds);
}

/// The keys of `e` tell which rows of `e` are of use, and nobody else asks for them.
#[test]
fn what_only_tells_is_left_out_where_memory_does_not_hold_it() {
    let folder = tempfile::tempdir().unwrap();
    let tables = tables(folder.path());
    let mut told = build(&tables, 2);
    let keys = vec![told.source.register(0)];
    told.steps.push(Step::Probe(Probe { is_optional: true, ..Probe::semi(0, keys) }));
    let mut program = join(&tables, probe(1, 0, ProbeKind::Inner), Out::Groups);
    program.stages = vec![build(&tables, 2), told];
    let (_, report) = compared(&program, &tables, "left out");
    assert!(report.builds[0].contains("left out"), "{:?}", report.builds);
}

#[test]
fn a_build_of_batches_that_come_once() {
    let folder = tempfile::tempdir().unwrap();
    let tables = tables(folder.path());
    for kind in KINDS {
        let program = join(&tables, probe(0, 0, kind), Out::Rows);
        let plenty = runner(None, folder.path());
        let (expected, _) = run_on(Processor::Cpu, &plenty, &program, &tables).unwrap();
        let rows_of_d = batch(300_000, |i| i * 31 % 200_003);
        let schema = rows_of_d.schema();
        for limit_bytes in [None, Some(LIMIT_BYTES)] {
            let pieces: Vec<_> = (0..100).map(|i| Ok(rows_of_d.slice(i * 3000, 3000))).collect();
            let batches = BatchTable::new("d", &schema, Ready(pieces.into_iter()));
            let mut tables = tables.clone();
            tables[1] = Arc::new(StreamTable::new("d", Arc::new(batches)));
            let program = join(&tables, probe(0, 0, kind), Out::Rows);
            let runner = runner(limit_bytes, folder.path());
            let (found, report) = run_on(Processor::Cpu, &runner, &program, &tables).unwrap();
            let is_divided = report.builds[0].contains("divided");
            assert_eq!(is_divided, limit_bytes.is_some(), "{:?}", report.builds);
            assert!(rows(&found) == rows(&expected), "{kind:?} {limit_bytes:?}");
            assert!(limit_bytes.is_none_or(|limit| runner.budget().peak_bytes() <= limit));
        }
    }
}

/// Of `d`, 120,000 rows have the same key, those of one key do not fit.
#[test]
fn one_key_of_very_many_rows() {
    let folder = tempfile::tempdir().unwrap();
    let skewed = |i: i64| if i % 2 == 0 { 42 } else { i };
    let tables = [
        table(folder.path(), "f", &batch(3_000, |i| if i % 300 == 1 { 42 } else { i })),
        table(folder.path(), "d", &batch(400_000, skewed)),
    ];
    for kind in KINDS {
        for out in [Out::Total, Out::Groups, Out::First] {
            let program = join(&tables, probe(0, 0, kind), out);
            compared(&program, &tables, &format!("{kind:?} {out:?}"));
        }
    }
}

#[test]
fn a_limit_of_rows_is_that_of_all_partitions() {
    let folder = tempfile::tempdir().unwrap();
    let tables = tables(folder.path());
    let mut program = join(&tables, probe(0, 0, ProbeKind::Inner), Out::Rows);
    for rows in [0, 1, 1000, 9000] {
        program.answer.sink.set_limit(Some(rows));
        let runner = runner(Some(LIMIT_BYTES), folder.path());
        let (found, report) = run_on(Processor::Cpu, &runner, &program, &tables).unwrap();
        assert_eq!(found.iter().map(|b| b.num_rows() as u64).sum::<u64>(), rows);
        assert!(report.builds[0].contains("divided"));
    }
}

#[test]
fn temporary_files_that_cannot_be_written_are_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let tables = tables(folder.path());
    let program = join(&tables, probe(0, 0, ProbeKind::Inner), Out::Total);
    let nowhere = runner(Some(LIMIT_BYTES), Path::new("/nowhere/at all"));
    let error = run_on(Processor::Cpu, &nowhere, &program, &tables).unwrap_err();
    assert_eq!(error.class(), ErrorClass::Io, "{error}");
    assert!(error.to_string().contains("/nowhere/at all"), "{error}");
    let few = Runner::new(&RunnerOptions {
        memory_limit_bytes: Some(LIMIT_BYTES),
        spill_limit_bytes: Some(1 << 20),
        spill_folder: Some(folder.path().into()),
        ..RunnerOptions::default()
    });
    let error = run_on(Processor::Cpu, &few, &program, &tables).unwrap_err();
    assert!(error.to_string().contains("1048576"), "{error}");
    assert_eq!((few.spill_folder().used_bytes(), few.budget().uses().total_bytes()), (0, 0));
}

/// What a key can be: numbers of few bits, decimals, text, several at once.
#[test]
fn keys_of_two_columns_one_of_them_text() {
    let folder = tempfile::tempdir().unwrap();
    let tables = tables(folder.path());
    for kind in KINDS {
        let mut program = join(&tables, probe(0, 0, kind), Out::Rows);
        let text = named("text", program.stages[0].source.register(1));
        let Sink::Build { keys, .. } = &mut program.stages[0].sink else { panic!() };
        keys.push(text);
        let Step::Probe(probe) = &mut program.answer.steps[0] else { panic!() };
        probe.keys.push(register(1, DataType::Utf8));
        compared(&program, &tables, &format!("{kind:?} by two keys"));
    }
}
