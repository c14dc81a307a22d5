//! Programs over heap blocks that a GPU takes as well, on both processors.

use std::sync::Arc;

use headrace_flow::CancelToken;
use headrace_format::heap::Stamps;
use headrace_ir::{
    AggregateFunction, ArithmeticOp, CompareOp, DataType, Expr, Field, Input, NamedExpr, Pipeline,
    Probe, Program, Scalar, Sink, Source, Step,
};
use headrace_runner::{ErrorClass, Processor, Runner, RunnerOptions, StreamTable};

use super::build::BLOCK;
use super::server::{BLOCKS, BLOCKS_PER_FILE, Heap, ROWS, Served, batch, schema};
use super::{BatchTable, Ready, call, count};
use crate::support::{rows, run_with};

/// Columns in an order that is not the table's; `name`, between them, is stepped over.
const COLUMNS: [&str; 2] = ["big", "number"];

fn int(value: i64) -> Expr {
    Expr::Literal(Scalar::int(DataType::Int32, value.into()))
}

fn below(source: &Source, end: i64) -> Step {
    Step::Filter(Expr::compare(CompareOp::Lt, source.register(1), int(end)))
}

/// Counts and sums by a remainder.
fn by_remainder(source: Source, steps: Vec<Step>) -> Pipeline {
    let expr = Expr::arithmetic(ArithmeticOp::Modulo, source.register(1), int(7));
    let calls = vec![
        call("rows", AggregateFunction::Count, None),
        call("there", AggregateFunction::Count, Some(source.register(0))),
        call("big", AggregateFunction::Sum, Some(source.register(0))),
        call("numbers", AggregateFunction::Sum, Some(source.register(1))),
    ];
    let keys = vec![NamedExpr { name: "remainder".into(), expr }];
    Pipeline { source, steps, sink: Sink::aggregate(keys, calls) }
}

fn grouped(table: &StreamTable) -> Program {
    let source = table.source_over(0, &COLUMNS).unwrap();
    let steps = vec![below(&source, ROWS * 3 / 4)];
    Program::new(vec![], by_remainder(source, steps))
}

/// Of the rows whose number is among some.
fn probed(table: &StreamTable) -> Program {
    let source = table.source_over(0, &COLUMNS).unwrap();
    let values = (0..ROWS).step_by(13).map(|key| vec![Scalar::int(DataType::Int32, key.into())]);
    let columns = vec![Field::new("key", DataType::Int32, false)];
    let some = Source::of_stage(Input::Values(values.collect()), "some", columns);
    let sink = Sink::Build { keys: some.all_columns(), payload: vec![] };
    let build = Pipeline { source: some, steps: vec![], sink };
    let steps = vec![Step::Probe(Probe::semi(0, vec![source.register(1)]))];
    Program::new(vec![build], by_remainder(source, steps))
}

/// A group for nearly each row.
fn by_number(table: &StreamTable) -> Program {
    let source = table.source_over(0, &COLUMNS).unwrap();
    let keys = vec![NamedExpr { name: "number".into(), expr: source.register(1) }];
    let calls = vec![call("big", AggregateFunction::Sum, Some(source.register(0)))];
    let steps = vec![below(&source, ROWS - 5)];
    Program::new(vec![], Pipeline { source, steps, sink: Sink::aggregate(keys, calls) })
}

/// The rows themselves.
fn kept(table: &StreamTable) -> Program {
    let source = table.source_over(0, &COLUMNS).unwrap();
    let column = |(name, register): (&str, usize)| NamedExpr {
        name: name.into(),
        expr: source.register(register),
    };
    let columns = [("number", 1), ("big", 0)].map(column).to_vec();
    let steps = vec![below(&source, ROWS / 2)];
    Program::new(vec![], Pipeline { source, steps, sink: Sink::Rows { columns, limit: None } })
}

/// Counts and sums of the rows whose name is like some, or among some.
fn named(table: &StreamTable) -> Program {
    let source = table.source_over(0, &super::COLUMNS).unwrap();
    let name = || Box::new(source.register(1));
    let like = Expr::Like {
        value: name(),
        pattern: "%m_ 3".into(),
        escape: None,
        negated: false,
        case_insensitive: false,
    };
    let list = ["name 1", "name 5", "nobody"].map(Scalar::utf8).to_vec();
    let among = Expr::InList { value: name(), list, negated: false };
    let below = Expr::compare(CompareOp::Lt, *name(), Expr::Literal(Scalar::utf8("name 0!")));
    let steps = vec![Step::Filter(Expr::Or(vec![like, among, below]))];
    let calls = vec![
        call("rows", AggregateFunction::Count, None),
        call("big", AggregateFunction::Sum, Some(source.register(0))),
    ];
    Program::new(vec![], Pipeline { source, steps, sink: Sink::aggregate(vec![], calls) })
}

type Make = fn(&StreamTable) -> Program;

const PROGRAMS: [(Make, &[&str]); 7] = [
    (super::grouped, &super::COLUMNS),
    (named, &super::COLUMNS),
    (grouped, &COLUMNS),
    (probed, &COLUMNS),
    (by_number, &COLUMNS),
    (kept, &COLUMNS),
    (count, &[]),
];

/// What can be the matter with a heap and its server.
fn heaps() -> Vec<Heap> {
    let every = |step: u32| (0..BLOCKS).filter(move |block| block % step == 0);
    vec![
        Heap::default(),
        Heap { own: every(3).collect(), ..Heap::default() },
        Heap { own: (0..BLOCKS).collect(), ..Heap::default() },
        Heap { changed: every(4).collect(), own: [2, 3, 101].into(), ..Heap::default() },
        Heap { changed: (0..BLOCKS).collect(), ..Heap::default() },
        Heap { busy: every(5).collect(), ..Heap::default() },
        Heap { busy: (0..BLOCKS).collect(), ..Heap::default() },
        Heap { cut_at: Some(BLOCKS_PER_FILE - 1), ..Heap::default() },
        Heap {
            missing: Some(1),
            changed: [5, 190].into(),
            busy: [6, 191].into(),
            ..Heap::default()
        },
    ]
}

fn check(processor: Processor) {
    let runner = Runner::new(&RunnerOptions::default());
    let token = CancelToken::new();
    let all = batch(0..ROWS, &schema());
    for (make, columns) in PROGRAMS {
        let known = BatchTable::new("t", &all.schema(), Ready(std::iter::once(Ok(all.clone()))));
        let known = Arc::new(StreamTable::new("t", Arc::new(known)));
        let program = make(&known);
        let cpu = run_with(Processor::Cpu, &runner, &program, &[], &[known], &token);
        let expected = rows(&cpu.unwrap().0);
        for heap in heaps() {
            let folder = tempfile::tempdir().unwrap();
            let (table, server) = heap.serve(&heap.write(folder.path()), columns);
            let (program, tables) = (make(&table), [table]);
            let (answer, report) =
                run_with(processor, &runner, &program, &[], &tables, &token).unwrap();
            assert_eq!(rows(&answer), expected);
            assert_eq!(report.streamed.rows_in, ROWS as u64);
            let used = if processor == Processor::Cpu { "cpu" } else { "cuda" };
            assert_eq!(report.streamed.processor, used);
            let done = BLOCKS - heap.own.len() as u32;
            assert_eq!(server.join().unwrap(), Served { rerouted: heap.rerouted(), done });
        }
    }
}

#[test]
fn programs_have_one_answer_whoever_reads_a_block() {
    check(Processor::Cpu);
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_heap_blocks_answer_as_their_rows_do_whoever_reads_them() {
    check(Processor::Cuda);
}

/// What was decoded once stays as long as blocks are listed under the same stamp, and no longer.
#[test]
#[ignore = "needs a GPU"]
fn gpu_heap_rows_are_kept_as_long_as_their_stamps_are_the_same() {
    let token = CancelToken::new();
    let all = batch(0..ROWS, &schema());
    for (make, columns) in PROGRAMS {
        let runner = Runner::new(&RunnerOptions::default());
        let known = BatchTable::new("t", &all.schema(), Ready(std::iter::once(Ok(all.clone()))));
        let known = Arc::new(StreamTable::new("t", Arc::new(known)));
        let cpu = run_with(Processor::Cpu, &runner, &make(&known), &[], &[known], &token);
        let expected = rows(&cpu.unwrap().0);
        let run = |heap: &Heap, identity: &str, stamps: &[u64], is_garbled: bool| {
            let folder = tempfile::tempdir().unwrap();
            let mut blocks = heap.write(folder.path());
            let stamps = stamps.to_vec();
            blocks.stamps = Some(Stamps { identity: identity.into(), blocks: 50, stamps });
            for file in blocks.files.iter().filter(|_| is_garbled) {
                std::fs::write(file, vec![0; std::fs::metadata(file).unwrap().len() as usize])
                    .unwrap();
            }
            let (table, server) = heap.serve(&blocks, columns);
            let (program, tables) = (make(&table), [table]);
            let ran = run_with(Processor::Cuda, &runner, &program, &[], &tables, &token);
            let (answer, report) = ran.unwrap();
            assert_eq!(rows(&answer), expected);
            assert_eq!(
                (report.streamed.rows_in, report.streamed.processor.as_str()),
                (ROWS as u64, "cuda")
            );
            drop(tables);
            let done = BLOCKS - heap.own.len() as u32;
            assert_eq!(server.join().unwrap(), Served { rerouted: heap.rerouted(), done });
            report.streamed.race.bytes_by_path.resident_device / BLOCK as u64
        };
        let (whole, stamps) = (Heap::default(), [7; 20]);
        assert_eq!(run(&whole, "a", &stamps, false), 0);
        if columns.contains(&"name") {
            assert_eq!(run(&whole, "a", &stamps, false), 0, "texts lie in their pages");
            continue;
        }
        assert_eq!(run(&whole, "a", &stamps, true), u64::from(BLOCKS), "nothing is read");
        assert_eq!(run(&whole, "b", &stamps, false), 0, "another table");
        let mut vacuumed = stamps;
        vacuumed[1] = 8;
        assert_eq!(run(&whole, "a", &vacuumed, false), u64::from(BLOCKS - 50));
        let one_is_dirty = Heap { own: [3].into(), ..Heap::default() };
        let kept = run(&one_is_dirty, "a", &vacuumed, false);
        assert!(kept > 0 && kept < u64::from(BLOCKS), "{kept} blocks");
        assert_eq!(run(&whole, "a", &[0; 20], false), 0, "without stamps");
        let changed = Heap { changed: (0..BLOCKS).collect(), ..Heap::default() };
        assert_eq!(run(&changed, "c", &stamps, false), 0);
        assert_eq!(run(&changed, "c", &stamps, false), 0, "what did not hold is not kept");
    }
}

/// Rows of text come from a GPU as they do from the cores.
#[test]
#[ignore = "needs a GPU"]
fn gpu_heap_rows_of_text_are_those_of_the_cores() {
    let folder = tempfile::tempdir().unwrap();
    let (runner, heap) = (Runner::new(&RunnerOptions::default()), Heap::default());
    for (processor, name) in [(Processor::Cuda, "cuda"), (Processor::Cpu, "cpu")] {
        let (table, server) = heap.serve(&heap.write(folder.path()), &super::COLUMNS);
        let (program, tables, token) = (super::names(&table), [table], CancelToken::new());
        let (answer, report) =
            run_with(processor, &runner, &program, &[], &tables, &token).unwrap();
        assert_eq!(rows(&answer), super::expected(super::names), "{name}");
        assert_eq!(report.streamed.processor, name);
        drop(tables);
        server.join().unwrap();
    }
}

/// A run that waits for the server ends when it is cancelled, its blocks done.
#[test]
#[ignore = "needs a GPU"]
fn gpu_heap_runs_that_wait_for_the_server_can_be_cancelled() {
    let folder = tempfile::tempdir().unwrap();
    let heap = Heap { own: [5].into(), never_ends: true, ..Heap::default() };
    let (table, server) = heap.serve(&heap.write(folder.path()), &COLUMNS);
    let (runner, token) = (Runner::new(&RunnerOptions::default()), CancelToken::new());
    let cancelling = token.clone();
    let canceller = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_secs(5));
        cancelling.cancel();
    });
    let (program, tables) = (grouped(&table), [table]);
    let error = run_with(Processor::Cuda, &runner, &program, &[], &tables, &token).unwrap_err();
    assert_eq!(error.class(), ErrorClass::Cancelled, "{error}");
    canceller.join().unwrap();
    drop((program, tables, runner));
    assert_eq!(server.join().unwrap().done, BLOCKS - 1);
}
