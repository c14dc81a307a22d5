//! Programs of several stages: rows and groups that another stage reads, and the reports of all stages.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::Mutex;

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use headrace_flow::CancelToken;
use headrace_format::arrow::WriterOptions;
use headrace_ir::{
    AggregateCall, AggregateFunction, AggregateOutput, ArithmeticOp, CompareOp, DataType, Expr,
    FirstGroups, Input, NamedExpr, OrderKey, Pipeline, Probe, ProbeKind, Program, Scalar, Sink,
    Source, Step,
};
use headrace_runner::{
    ErrorClass, Place, Processor, Request, Runner, RunnerOptions, Settings, StepRows, StreamTable,
};

use crate::support::{self, rows, run_on};

const ROWS: i64 = 200_000;
/// Less than the groups take as a build.
const LIMIT_BYTES: u64 = 12 << 20;

fn key(row: i64) -> i64 {
    row * 7919 % 50_021
}

fn value(row: i64) -> i64 {
    row % 1000
}

/// `(key, value)`: four rows a key.
fn table(folder: &Path) -> Arc<StreamTable> {
    let columns: [(&str, ArrayRef); 2] = [
        ("key", Arc::new((0..ROWS).map(key).collect::<Int64Array>())),
        ("value", Arc::new((0..ROWS).map(value).collect::<Int64Array>())),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let path = folder.join("t.arrow");
    let options = WriterOptions { rows_per_batch: 20_000, ..WriterOptions::default() };
    support::write(&path, &batch, options);
    support::open("t", &[path])
}

fn source(table: &StreamTable) -> Source {
    table.source_over(0, &["key", "value"]).unwrap()
}

fn number(value: i64) -> Expr {
    Expr::Literal(Scalar::int(DataType::Int64, value.into()))
}

fn named(name: &str, expr: Expr) -> NamedExpr {
    NamedExpr { name: name.into(), expr }
}

fn sum(name: &str, of: Expr) -> AggregateCall {
    AggregateCall::new(name, AggregateFunction::Sum, Some(of), DataType::Int64)
}

/// Sums by key.
fn sums(table: &StreamTable) -> Pipeline {
    let source = source(table);
    let keys = vec![named("key", source.register(0))];
    let sink = Sink::aggregate(keys, vec![sum("total", source.register(1))]);
    Pipeline { source, steps: vec![], sink }
}

/// The output of a stage, as a source.
fn output(stage: &Pipeline, number: usize) -> Source {
    Source::of_stage(Input::Stage(number), "t", stage.sink.output().unwrap())
}

/// Rows of the table whose key has a total of more than `least`: a build of the groups of a stage.
fn of_large_groups(table: &StreamTable, least: i64) -> Program {
    let groups = sums(table);
    let read = output(&groups, 0);
    let large = Expr::compare(CompareOp::Gt, read.register(1), number(least));
    let keys = vec![named("key", read.register(0))];
    let payload = vec![named("total", read.register(1))];
    let (steps, sink) = (vec![Step::Filter(large)], Sink::Build { keys, payload });
    let large = Pipeline { source: read, steps, sink };
    let source = source(table);
    let probe = Probe {
        kind: ProbeKind::Inner,
        payload: vec![0],
        ..Probe::semi(1, vec![source.register(0)])
    };
    let total = Expr::Register {
        index: 2,
        data_type: DataType::Int64,
        nullable: true,
        name: "total".into(),
    };
    let calls = vec![
        AggregateCall::new("n", AggregateFunction::Count, None, DataType::Int64),
        sum("s", total),
    ];
    let sink = Sink::aggregate(vec![], calls);
    Program::new(vec![groups, large], Pipeline { source, steps: vec![Step::Probe(probe)], sink })
}

/// Rows and totals by a key, by hand.
fn totals_by(of: impl Fn(i64) -> i64) -> BTreeMap<i64, (i64, i64)> {
    let mut totals: BTreeMap<i64, (i64, i64)> = BTreeMap::new();
    for row in 0..ROWS {
        let (rows, total) = totals.entry(of(key(row))).or_default();
        (*rows, *total) = (*rows + 1, *total + value(row));
    }
    totals
}

/// The same by hand: rows, the sum of their groups' totals, and large groups.
fn large_groups(least: i64) -> (i64, i64, u64) {
    let totals = totals_by(|key| key);
    let large = || totals.values().filter(|(_, total)| *total > least);
    let rows = large().map(|(rows, _)| rows).sum();
    (rows, large().map(|(rows, total)| rows * total).sum(), large().count() as u64)
}

#[test]
fn groups_of_a_stage_become_a_build() {
    let folder = tempfile::tempdir().unwrap();
    let table = table(folder.path());
    let program = of_large_groups(&table, 2500);
    let runner = Runner::new(&RunnerOptions::default());
    let (count, total, groups) = large_groups(2500);
    for is_cached in [false, true] {
        let (batches, report) =
            run_on(Processor::Cpu, &runner, &program, std::slice::from_ref(&table)).unwrap();
        assert_eq!(rows(&batches), [format!("{count}|{total}")]);
        // The groups of a build that an earlier run made are not made again.
        assert_eq!(report.stages[0].is_none(), is_cached);
        let build = report.stages[1].as_ref().unwrap();
        assert_eq!(
            (build.is_cached, build.place, build.rows_out),
            (is_cached, Place::Host, groups)
        );
        let answer = report.stages[2].as_ref().unwrap();
        assert_eq!((answer.rows_in, answer.rows_out), (ROWS as u64, 1));
        assert_eq!(answer.steps, [StepRows { step: 0, rows: Some(count as u64) }]);
        if let Some(made) = &report.stages[0] {
            assert_eq!(
                (made.rows_in, made.rows_out, made.place),
                (ROWS as u64, 50_021, Place::Streamed)
            );
            assert_eq!(build.steps, [StepRows { step: 0, rows: Some(groups) }]);
        }
    }
}

#[test]
fn groups_of_a_stage_that_do_not_fit_are_divided_with_their_join() {
    let folder = tempfile::tempdir().unwrap();
    let table = table(folder.path());
    let program = of_large_groups(&table, -1);
    let options = RunnerOptions {
        memory_limit_bytes: Some(LIMIT_BYTES),
        spill_folder: Some(folder.path().to_path_buf()),
        ..RunnerOptions::default()
    };
    let runner = Runner::new(&options);
    let (batches, report) =
        run_on(Processor::Cpu, &runner, &program, std::slice::from_ref(&table)).unwrap();
    let (count, total, groups) = large_groups(-1);
    assert_eq!(rows(&batches), [format!("{count}|{total}")]);
    let ran = report.program.as_ref().unwrap();
    let sinks: Vec<_> = ran.all().map(|stage| Program::sink_line(&stage.sink)).collect();
    assert_eq!(sinks.len(), 4, "{sinks:?}");
    assert!(sinks[1].starts_with("partition by key") && sinks[2].starts_with("partition by"));
    let [Some(_), Some(build), Some(probing), Some(answer)] = &report.stages[..] else {
        panic!("{:?}", report.stages);
    };
    assert_eq!((build.place, build.rows_out), (Place::Disk, groups));
    assert_eq!((probing.place, probing.rows_out), (Place::Disk, ROWS as u64));
    assert_eq!((answer.rows_in, answer.rows_out), (ROWS as u64, 1));
    assert!(runner.budget().peak_bytes() <= LIMIT_BYTES);
    assert_eq!(runner.spill_folder().used_bytes(), 0);
}

/// Rows of a stage that reads another's.
fn rows_of(stages: Vec<Pipeline>, columns: Vec<NamedExpr>, limit: Option<u64>) -> Program {
    let last = stages.len() - 1;
    let source = output(&stages[last], last);
    Program::new(stages, Pipeline { source, steps: vec![], sink: Sink::Rows { columns, limit } })
}

#[test]
fn a_stage_whose_reader_has_enough_ends() {
    let folder = tempfile::tempdir().unwrap();
    let table = table(folder.path());
    let source = source(&table);
    // Where none may be left out, the reader would read the table itself.
    let sink = Sink::Rows { columns: source.all_columns(), limit: Some(1 << 40) };
    let stage = Pipeline { source, steps: vec![], sink };
    let columns = output(&stage, 0).all_columns();
    let program = rows_of(vec![stage], columns, Some(7));
    let runner = Runner::new(&RunnerOptions::default());
    let (batches, _) = run_on(Processor::Cpu, &runner, &program, &[table]).unwrap();
    assert_eq!(rows(&batches).len(), 7);
}

#[test]
fn what_fails_in_a_stage_is_the_error_of_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let table = table(folder.path());
    let one = std::slice::from_ref(&table);
    let runner = Runner::new(&RunnerOptions::default());
    let divided = |by: Expr| Expr::arithmetic(ArithmeticOp::Divide, number(1), by);
    // In the stage that is read, whose rows are half put out by then.
    let mut first = sums(&table);
    let by_value = divided(first.source.register(1));
    first.steps.push(Step::Compute(named("q", by_value)));
    let columns = output(&first, 0).all_columns();
    // In the one that reads it.
    let second = sums(&table);
    let total = output(&second, 0).register(1);
    let nothing = Expr::arithmetic(ArithmeticOp::Subtract, total.clone(), total);
    let in_reader = vec![named("q", divided(nothing))];
    let programs =
        [rows_of(vec![first], columns, None), rows_of(vec![second.clone()], in_reader, None)];
    for program in programs {
        let error = run_on(Processor::Cpu, &runner, &program, one).unwrap_err();
        assert_eq!(error.class(), ErrorClass::DivisionByZero, "{error}");
    }
    let token = CancelToken::new();
    let columns = output(&second, 0).all_columns();
    let program = rows_of(vec![second], columns, None);
    let settings = Settings { processor: Processor::Cpu, threads: 2, ..Settings::default() };
    let request = Request {
        program: &program,
        parameters: &[],
        tables: one,
        settings: &settings,
        token: &token,
        known: None,
    };
    let cancelled = Mutex::new(0);
    let error = runner
        .run(&request, &|_| {
            *cancelled.lock().unwrap() += 1;
            token.cancel();
            true
        })
        .err();
    // All groups may have been put out before anybody looked.
    assert!(error.is_none_or(|error| error.class() == ErrorClass::Cancelled));
    assert_eq!(runner.budget().uses().of(headrace_io::MemoryUse::Pipelines), 0);
}

#[test]
fn constants_are_a_source_like_any_other() {
    let rows_of_constants =
        (0..5).map(|row| vec![Scalar::int(DataType::Int64, row), Scalar::null(DataType::Utf8)]);
    let columns = vec![
        headrace_ir::Field::new("n", DataType::Int64, false),
        headrace_ir::Field::new("t", DataType::Utf8, true),
    ];
    let source = Source::of_stage(Input::Values(rows_of_constants.collect()), "values", columns);
    let odd = Expr::compare(CompareOp::Gt, source.register(0), number(2));
    let sink = Sink::Rows { columns: source.all_columns(), limit: None };
    let program = Program::new(vec![], Pipeline { source, steps: vec![Step::Filter(odd)], sink });
    let runner = Runner::new(&RunnerOptions::default());
    let (batches, report) = run_on(Processor::Cpu, &runner, &program, &[]).unwrap();
    assert_eq!(rows(&batches), ["3|NULL", "4|NULL"]);
    assert_eq!(report.streamed.steps, [StepRows { step: 0, rows: Some(2) }]);
}

/// The rows that each step left are those that a program of the steps until then counts.
#[test]
fn rows_after_each_step_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let table = table(folder.path());
    let one = std::slice::from_ref(&table);
    let runner = Runner::new(&RunnerOptions::default());
    let of = |op, column: usize, value| {
        Step::Filter(Expr::compare(op, source(&table).register(column), number(value)))
    };
    let remainder = Expr::arithmetic(ArithmeticOp::Modulo, source(&table).register(1), number(7));
    let odd = Step::Filter(Expr::compare(CompareOp::Ne, remainder, number(3)));
    // A build with two rows a key, and one by address.
    let of_build = |keys: i64, is_twice: bool| {
        let rows =
            (0..keys).flat_map(|key| std::iter::repeat_n(key * 3, 1 + usize::from(is_twice)));
        let rows = rows.map(|key| vec![Scalar::int(DataType::Int64, key.into())]);
        let columns = vec![headrace_ir::Field::new("k", DataType::Int64, false)];
        let source = Source::of_stage(Input::Values(rows.collect()), "some", columns);
        let sink = Sink::Build { keys: source.all_columns(), payload: vec![] };
        Pipeline { source, steps: vec![], sink }
    };
    let probe = |build, column: usize, kind| {
        Step::Probe(Probe { kind, ..Probe::semi(build, vec![source(&table).register(column)]) })
    };
    let all = [
        vec![of(CompareOp::Lt, 1, 900), odd.clone(), of(CompareOp::Ge, 0, 10_000)],
        vec![of(CompareOp::Lt, 1, 900), of(CompareOp::Ge, 1, 20), of(CompareOp::Lt, 0, 400)],
        vec![of(CompareOp::Ge, 1, 500), probe(0, 1, ProbeKind::Inner), odd.clone()],
        vec![probe(1, 0, ProbeKind::Semi), probe(0, 1, ProbeKind::Left), of(CompareOp::Lt, 1, 300)],
        vec![probe(1, 0, ProbeKind::Anti), odd, of(CompareOp::Lt, 0, -1)],
    ];
    for steps in all {
        let program = |steps: Vec<Step>| {
            let count = AggregateCall::new("n", AggregateFunction::Count, None, DataType::Int64);
            let sink = Sink::aggregate(vec![], vec![count]);
            let answer = Pipeline { source: source(&table), steps, sink };
            Program::new(vec![of_build(200, true), of_build(9000, false)], answer)
        };
        let (_, report) = run_on(Processor::Cpu, &runner, &program(steps.clone()), one).unwrap();
        let ran = &report.streamed.steps;
        assert_eq!(ran.len(), steps.len());
        assert!(ran.last().is_some_and(|step| step.rows.is_some()), "{ran:?}");
        for (at, step) in ran.iter().enumerate() {
            let Some(counted) = step.rows else { continue };
            let until = ran[..=at].iter().map(|step| steps[step.step].clone()).collect();
            let (batches, _) = run_on(Processor::Cpu, &runner, &program(until), one).unwrap();
            assert_eq!(rows(&batches), [counted.to_string()], "{steps:?}: {ran:?}");
        }
    }
}

/// Puts keys too far apart for anything but a hash table.
const FAR: i64 = 1_000_000_007;

/// Sums by such a key.
fn far_sums(table: &StreamTable) -> Pipeline {
    let source = source(table);
    let far = Expr::arithmetic(ArithmeticOp::Multiply, source.register(0), number(FAR));
    let keys = vec![named("key", far)];
    let count = AggregateCall::new("n", AggregateFunction::Count, None, DataType::Int64);
    let sink = Sink::aggregate(keys, vec![count, sum("total", source.register(1))]);
    Pipeline { source, steps: vec![], sink }
}

/// Groups that groups, rows, a build, two at once and another stage read; what each of these puts out by hand.
fn over_groups(table: &StreamTable) -> Vec<(Program, Vec<String>)> {
    let totals = totals_by(|key| key * FAR);
    let count = |name| AggregateCall::new(name, AggregateFunction::Count, None, DataType::Int64);
    let far = |total: Expr| Expr::arithmetic(ArithmeticOp::Multiply, total, number(1_000_003));
    let groups = far_sums(table);
    let read = output(&groups, 0);
    let large = |least| Step::Filter(Expr::compare(CompareOp::Gt, read.register(2), number(least)));
    let mut by_total: BTreeMap<i64, i64> = BTreeMap::new();
    totals.values().for_each(|(_, total)| *by_total.entry(*total).or_default() += 1);
    // Hashed groups of hashed groups.
    let again = Pipeline {
        source: read.clone(),
        steps: vec![],
        sink: Sink::aggregate(vec![named("total", far(read.register(2)))], vec![count("n")]),
    };
    let text = |(total, n): (&i64, &i64)| format!("{}|{n}", total * 1_000_003);
    let mut expected: Vec<String> = by_total.iter().map(text).collect();
    expected.sort();
    let of_groups = (Program::new(vec![groups.clone()], again.clone()), expected);
    // Rows of those that are large.
    let columns = read.all_columns();
    let sink = Sink::Rows { columns, limit: None };
    let rows = Pipeline { source: read.clone(), steps: vec![large(2500)], sink };
    let few = totals.iter().filter(|(_, (_, total))| *total > 2500);
    let mut expected: Vec<String> =
        few.clone().map(|(key, (n, total))| format!("{key}|{n}|{total}")).collect();
    expected.sort();
    let of_rows = (Program::new(vec![groups.clone()], rows.clone()), expected.clone());
    // The same twice read: by a build of those that are large, and by what probes it.
    let sink = Sink::Build { keys: vec![named("key", read.register(0))], payload: vec![] };
    let build = Pipeline { source: read.clone(), steps: vec![large(2400)], sink };
    let among = Step::Probe(Probe::semi(1, vec![read.register(0)]));
    let probing = Pipeline { steps: vec![among, large(2500)], ..rows };
    let of_both = (Program::new(vec![groups.clone(), build], probing), expected);
    // A build of them, which the table probes.
    let far_key = Expr::arithmetic(ArithmeticOp::Multiply, source(table).register(0), number(FAR));
    let sink = Sink::Build { keys: vec![named("key", read.register(0))], payload: vec![] };
    let build = Pipeline { source: read.clone(), steps: vec![large(2500)], sink };
    let probe = Step::Probe(Probe { kind: ProbeKind::Semi, ..Probe::semi(1, vec![far_key]) });
    let sink = Sink::aggregate(vec![], vec![count("n")]);
    let probing = Pipeline { source: source(table), steps: vec![probe], sink };
    let expected = vec![few.map(|(_, (n, _))| n).sum::<i64>().to_string()];
    let of_build = (Program::new(vec![groups.clone(), build], probing), expected);
    // Groups of groups of groups.
    let read = output(&again, 1);
    let sink = Sink::aggregate(vec![named("n", far(read.register(1)))], vec![count("totals")]);
    let mut by_count: BTreeMap<i64, i64> = BTreeMap::new();
    by_total.values().for_each(|n| *by_count.entry(*n).or_default() += 1);
    let mut expected: Vec<String> = by_count.iter().map(text).collect();
    expected.sort();
    let thrice = vec![groups.clone(), again.clone()];
    let thrice = Program::new(thrice, Pipeline { source: read, steps: vec![], sink });
    // The groups of two stages.
    let text = |(total, n): (&i64, &i64)| format!("{}|{}", total * 1_000_003, 2 * n);
    let mut twice: Vec<String> = by_total.iter().map(text).collect();
    twice.sort();
    let union = Source { input: Input::Union(vec![0, 1]), ..again.source.clone() };
    let over_both = Pipeline { source: union, ..again };
    let of_union = Program::new(vec![groups.clone(), groups.clone()], over_both);
    // Groups of the rows of two stages, some of which one of them leaves out.
    let rows = |steps| {
        let columns = source(table).all_columns();
        let sink = Sink::Rows { columns, limit: None };
        Pipeline { source: source(table), steps, sink }
    };
    let few = number(ROWS / 2);
    let few = Step::Filter(Expr::compare(CompareOp::Lt, source(table).register(1), few));
    let union = Source { input: Input::Union(vec![0, 1]), ..groups.source.clone() };
    let rows = vec![rows(vec![]), rows(vec![few])];
    let of_rows_of_two = Program::new(rows, Pipeline { source: union, ..groups });
    let mut sums = totals;
    for row in (0..ROWS).filter(|row| value(*row) < ROWS / 2) {
        let (rows, total) = sums.entry(key(row) * FAR).or_default();
        (*rows, *total) = (*rows + 1, *total + value(row));
    }
    let mut of_parts: Vec<String> =
        sums.iter().map(|(key, (n, total))| format!("{key}|{n}|{total}")).collect();
    of_parts.sort();
    let unions = [(of_union, twice), (of_rows_of_two, of_parts)];
    [of_groups, of_rows, of_both, of_build, (thrice, expected)].into_iter().chain(unions).collect()
}

/// Members of a union whose columns have other names, and of which one alone may be NULL.
#[test]
fn members_of_a_union_may_call_their_columns_otherwise() {
    let folder = tempfile::tempdir().unwrap();
    let table = table(folder.path());
    let runner = Runner::new(&RunnerOptions::default());
    let groups = sums(&table);
    let mut other = groups.clone();
    let Sink::Aggregate { keys, calls, .. } = &mut other.sink else { panic!() };
    (keys[0].name, calls[0].name) = ("another".into(), "name".into());
    calls[0].function = AggregateFunction::Count;
    let read = output(&groups, 0);
    let source = Source { input: Input::Union(vec![0, 1]), ..read };
    let count = AggregateCall::new("n", AggregateFunction::Count, None, DataType::Int64);
    let calls = vec![count, sum("s", source.register(1))];
    let sink = Sink::aggregate(vec![], calls);
    let program = Program::new(vec![groups, other], Pipeline { source, steps: vec![], sink });
    let one = std::slice::from_ref(&table);
    let (batches, _) = run_on(Processor::Cpu, &runner, &program, one).unwrap();
    let totals = totals_by(|key| key);
    let all: i64 = totals.values().map(|(rows, total)| rows + total).sum();
    assert_eq!(rows(&batches), [format!("{}|{all}", 2 * totals.len())]);
}

#[test]
fn groups_are_read_by_whatever_reads_them() {
    let folder = tempfile::tempdir().unwrap();
    let table = table(folder.path());
    let runner = Runner::new(&RunnerOptions::default());
    for (program, expected) in over_groups(&table) {
        let one = std::slice::from_ref(&table);
        let (batches, report) = run_on(Processor::Cpu, &runner, &program, one).unwrap();
        assert_eq!(rows(&batches), expected);
        let first = report.stages[0].as_ref().unwrap();
        let place = if program.is_shared(0) { Place::Host } else { Place::Streamed };
        assert_eq!((first.place, first.rows_out), (place, 50_021));
    }
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_groups_are_read_where_they_lie() {
    let folder = tempfile::tempdir().unwrap();
    let table = table(folder.path());
    let runner = Runner::new(&RunnerOptions::default());
    for (program, expected) in over_groups(&table) {
        for run in 0..2 {
            let one = std::slice::from_ref(&table);
            let (batches, report) = run_on(Processor::Cuda, &runner, &program, one).unwrap();
            assert_eq!(rows(&batches), expected);
            let ran: Vec<_> = report.ran().collect();
            for (stage, report) in &ran {
                let place = (stage.source.input.clone(), &report.processor, report.place);
                assert!(report.is_cached || report.processor == "cuda", "run {run}: {place:?}");
                assert_eq!(report.processor_why_not, None);
                let is_read = matches!(stage.sink, Sink::Aggregate { .. });
                let is_last = std::ptr::eq(*stage, ran[ran.len() - 1].0);
                assert_eq!(is_read && !is_last, report.place == Place::Device, "{place:?}");
            }
        }
    }
}

/// Rows of a stage go to the host while it runs, and its reader runs meanwhile.
#[test]
#[ignore = "needs a GPU"]
fn gpu_rows_of_a_stage_are_read_on_the_host() {
    let folder = tempfile::tempdir().unwrap();
    let table = table(folder.path());
    let runner = Runner::new(&RunnerOptions::default());
    let from = source(&table);
    let few = Step::Filter(Expr::compare(CompareOp::Lt, from.register(1), number(900)));
    // Where none may be left out, the reader would read the table itself.
    let sink = Sink::Rows { columns: from.all_columns(), limit: Some(1 << 40) };
    let found = Pipeline { source: from, steps: vec![few.clone()], sink };
    let count = AggregateCall::new("n", AggregateFunction::Count, None, DataType::Int64);
    let sink = Sink::aggregate(vec![], vec![count]);
    let counted = |source, steps| Pipeline { source, steps, sink: sink.clone() };
    let at_once = Program::new(vec![], counted(source(&table), vec![few]));
    let by_stage = Program::new(vec![found.clone()], counted(output(&found, 0), vec![]));
    let one = std::slice::from_ref(&table);
    let (expected, _) = run_on(Processor::Cpu, &runner, &at_once, one).unwrap();
    let (batches, report) = run_on(Processor::Cuda, &runner, &by_stage, one).unwrap();
    assert_eq!(rows(&batches), rows(&expected));
    let ran: Vec<_> = report.ran().map(|(_, report)| report).collect();
    assert_eq!((&*ran[0].processor, ran[0].place), ("cuda", Place::Streamed));
    assert_eq!(ran[1].processor, "cpu");
    let why = ran[1].processor_why_not.as_ref().map(ToString::to_string).unwrap_or_default();
    assert!(why.contains("come to the host"), "{why}");
}

/// The groups whose totals are the largest, or the smallest.
fn extreme_totals(table: &StreamTable, descending: bool) -> Program {
    let mut groups = far_sums(table);
    if let Sink::Aggregate { output, .. } = &mut groups.sink {
        let by = vec![OrderKey { column: 2, descending, nulls_first: false }];
        *output = AggregateOutput::First(FirstGroups { by, groups: 10, with_ties: true });
    }
    Program::new(vec![], groups)
}

/// That the first ten of all groups, and those that tie with the last of them, are among the rows of an answer, which
/// may be more.
fn assert_extreme(found: &[RecordBatch], descending: bool) {
    let totals = totals_by(|key| key * FAR);
    let rank = |total: i64| if descending { -total } else { total };
    let mut ranks: Vec<i64> = totals.values().map(|(_, total)| rank(*total)).collect();
    ranks.sort_unstable();
    let text = |(key, (n, total)): (&i64, &(i64, i64))| format!("{key}|{n}|{total}");
    let first = totals.iter().filter(|(_, (_, total))| rank(*total) <= ranks[9]);
    let (first, found): (Vec<_>, Vec<_>) = (first.map(text).collect(), rows(found));
    let all: BTreeSet<String> = totals.iter().map(text).collect();
    assert!(first.iter().all(|row| found.contains(row)), "{first:?} in {found:?}");
    assert!(found.iter().all(|row| all.contains(row)), "{found:?}");
    assert!(found.len() < 5000, "{} rows", found.len());
}

#[test]
fn of_many_groups_the_first_are_among_those_that_are_put_out() {
    let folder = tempfile::tempdir().unwrap();
    let table = table(folder.path());
    let runner = Runner::new(&RunnerOptions::default());
    for descending in [true, false] {
        let program = extreme_totals(&table, descending);
        let one = std::slice::from_ref(&table);
        let (found, _) = run_on(Processor::Cpu, &runner, &program, one).unwrap();
        assert_extreme(&found, descending);
    }
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_of_many_groups_the_first_alone_leave_the_device() {
    let folder = tempfile::tempdir().unwrap();
    let table = table(folder.path());
    let runner = Runner::new(&RunnerOptions::default());
    for (descending, _run) in [(true, 0), (true, 1), (false, 0), (false, 1)] {
        let program = extreme_totals(&table, descending);
        let one = std::slice::from_ref(&table);
        let (found, report) = run_on(Processor::Cuda, &runner, &program, one).unwrap();
        assert_eq!(report.streamed.processor, "cuda");
        assert_extreme(&found, descending);
        let brought = report.streamed.groups_brought;
        assert!((10..5000).contains(&brought), "{brought} groups");
    }
}
