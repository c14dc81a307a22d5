//! Tables of heap blocks: whoever reads a block, the answer is that of the rows.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use headrace_flow::{AccessPath, CancelToken, RaceError};
use headrace_format::Table;
use headrace_format::batches::{BatchTable, Ready};
use headrace_format::heap::{self, HeapTable};
use headrace_ir::{
    AggregateCall, AggregateFunction, CompareOp, DataType, Expr, NamedExpr, Pipeline, Program,
    Scalar, Sink, Step,
};
use headrace_runner::{
    ErrorClass, Fallback, Processor, Request, RunError, RunReport, Runner, RunnerOptions, Settings,
    StreamTable,
};

// The pages that the decoder's own tests are made of.
#[allow(dead_code)]
#[path = "../../../format/src/heap/tests/build.rs"]
mod build;
mod processors;
mod server;

use crate::support::rows;
use server::{BLOCKS, BLOCKS_PER_FILE, Heap, ROWS, Served, batch, heap_relation};

/// Columns in an order that is not the table's.
const COLUMNS: [&str; 3] = ["big", "name", "number"];

fn call(name: &str, function: AggregateFunction, argument: Option<Expr>) -> AggregateCall {
    AggregateCall::new(name, function, argument, DataType::Int64)
}

/// Counts and sums of the rows below three quarters, by name.
fn grouped(table: &StreamTable) -> Program {
    let source = table.source_over(0, &COLUMNS).unwrap();
    let limit = Expr::Literal(Scalar::int(DataType::Int32, (ROWS * 3 / 4).into()));
    let steps = vec![Step::Filter(Expr::compare(CompareOp::Lt, source.register(2), limit))];
    let keys = vec![NamedExpr { name: "name".into(), expr: source.register(1) }];
    let calls = vec![
        call("rows", AggregateFunction::Count, None),
        call("big", AggregateFunction::Sum, Some(source.register(0))),
        call("numbers", AggregateFunction::Sum, Some(source.register(2))),
    ];
    Program::new(vec![], Pipeline { source, steps, sink: Sink::aggregate(keys, calls) })
}

/// Rows of names.
fn names(table: &StreamTable) -> Program {
    let source = table.source_over(0, &COLUMNS).unwrap();
    let columns = vec![NamedExpr { name: "name".into(), expr: source.register(1) }];
    let sink = Sink::Rows { columns, limit: None };
    Program::new(vec![], Pipeline { source, steps: vec![], sink })
}

/// `count(*)`, which reads no column at all.
fn count(table: &StreamTable) -> Program {
    let source = table.source_over(0, &[]).unwrap();
    let sink = Sink::aggregate(vec![], vec![call("rows", AggregateFunction::Count, None)]);
    Program::new(vec![], Pipeline { source, steps: vec![], sink })
}

/// Small chunks, so that there are many.
fn settings(threads: usize) -> Settings {
    Settings { processor: Processor::Cpu, threads, chunk_bytes: 64 << 10, ..Settings::default() }
}

fn run_with(
    program: &Program,
    table: Arc<StreamTable>,
    settings: &Settings,
    token: &CancelToken,
) -> Result<(Vec<String>, RunReport), RunError> {
    let batches = std::sync::Mutex::new(Vec::new());
    let runner = Runner::new(&RunnerOptions::default());
    let (parameters, tables) = (&[][..], &[table][..]);
    let request = Request { program, parameters, tables, settings, token, known: None };
    let report = runner.run(&request, &|batch: RecordBatch| {
        batches.lock().unwrap().push(batch);
        true
    })?;
    Ok((rows(&batches.into_inner().unwrap()), report))
}

fn run(program: &Program, table: Arc<StreamTable>) -> Result<(Vec<String>, RunReport), RunError> {
    run_with(program, table, &settings(4), &CancelToken::new())
}

/// The answer of the same rows as one batch.
fn expected(program: fn(&StreamTable) -> Program) -> Vec<String> {
    let all = batch(0..ROWS, &server::schema());
    let table = BatchTable::new("t", &all.schema(), Ready(std::iter::once(Ok(all))));
    let table = Arc::new(StreamTable::new("t", Arc::new(table)));
    run(&program(&table), table).unwrap().0
}

/// Runs both programs over a heap, in threads of both numbers.
fn check(heap: &Heap) {
    let folder = tempfile::tempdir().unwrap();
    let blocks = heap.write(folder.path());
    let served = Served { rerouted: heap.rerouted(), done: heap.decoded() };
    let programs = [(grouped as fn(&StreamTable) -> Program, &COLUMNS[..]), (count, &[])];
    for (program, columns) in programs {
        let expected = expected(program);
        for threads in [1, 4] {
            let (table, server) = heap.serve(&blocks, columns);
            let program = program(&table);
            let run = run_with(&program, table, &settings(threads), &CancelToken::new());
            let (answer, report) = run.unwrap();
            assert_eq!(answer, expected, "{threads} threads");
            assert_eq!(report.streamed.rows_in, ROWS as u64);
            assert_eq!(server.join().unwrap(), served);
        }
    }
}

#[test]
fn all_blocks_are_decoded() {
    check(&Heap::default());
}

#[test]
fn blocks_that_are_not_listed_come_from_the_server() {
    check(&Heap { own: (0..BLOCKS).filter(|block| block % 7 < 3).collect(), ..Heap::default() });
    // The first and the last of files, and nothing but the server's.
    let ends = [0, BLOCKS_PER_FILE - 1, BLOCKS_PER_FILE, BLOCKS - 1];
    check(&Heap { own: ends.into(), ..Heap::default() });
    check(&Heap { own: (0..BLOCKS).collect(), ..Heap::default() });
}

#[test]
fn the_server_hands_pages_over_and_takes_back_those_that_do_not_decode() {
    let own: std::collections::BTreeSet<u32> = (0..BLOCKS).filter(|block| block % 7 < 3).collect();
    let heap = Heap { own, hands_over: true, ..Heap::default() };
    check(&heap);
    check(&Heap { broken: [1, 2, 100].into(), changed: [3, 10].into(), ..heap.clone() });
    let all: std::collections::BTreeSet<u32> = (0..BLOCKS).collect();
    check(&Heap { broken: [0, 199].into(), own: all.clone(), ..heap.clone() });
    check(&Heap { broken: all.clone(), own: all, ..heap });
}

#[test]
fn blocks_that_hold_no_more_come_from_the_server() {
    let changed = (0..BLOCKS).filter(|block| block % 3 == 1 || *block > 150).collect();
    check(&Heap { changed, own: [2, 3, 100].into(), ..Heap::default() });
}

#[test]
fn blocks_whose_pages_do_not_decode_come_from_the_server() {
    check(&Heap { busy: (0..BLOCKS).filter(|block| block % 5 == 0).collect(), ..Heap::default() });
}

#[test]
fn blocks_that_files_do_not_have_come_from_the_server() {
    check(&Heap { cut_at: Some(BLOCKS_PER_FILE - 1), ..Heap::default() });
    check(&Heap { cut_at: Some(3), own: [2, 10, 11].into(), ..Heap::default() });
    check(&Heap { missing: Some(1), ..Heap::default() });
}

#[test]
fn every_way_of_the_bytes_brings_the_same_rows() {
    // Not in the system's folder, which may lie in memory.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let heap = Heap { changed: [7, 8, 70].into(), own: [0, 99].into(), ..Heap::default() };
    let blocks = heap.write(folder.path());
    let expected = expected(grouped);
    let file = headrace_io::SourceFile::open(&blocks.files[0]).unwrap();
    for access in [AccessPath::Auto, AccessPath::Mapped, AccessPath::Buffered, AccessPath::Direct] {
        if access == AccessPath::Direct && file.direct().is_err() {
            continue;
        }
        let (table, server) = heap.serve(&blocks, &COLUMNS);
        let settings = Settings { access, ..settings(2) };
        let program = grouped(&table);
        let (answer, report) = run_with(&program, table, &settings, &CancelToken::new()).unwrap();
        assert_eq!(answer, expected, "{access}");
        let bytes = report.streamed.race.bytes_by_path;
        let files = (u64::from(BLOCKS) - 2) * build::BLOCK as u64;
        assert_eq!(bytes.total() - bytes.memory, files, "{access}: {bytes:?}");
        assert!(bytes.memory > 0 && bytes.cached == 0, "{access}: {bytes:?}");
        server.join().unwrap();
    }
}

#[test]
fn cores_fail_by_a_way_to_a_gpu_where_no_other_is_allowed() {
    let folder = tempfile::tempdir().unwrap();
    let heap = Heap::default();
    let blocks = heap.write(folder.path());
    for access in [AccessPath::Registered, AccessPath::CuFile] {
        let run = |fallback, may_go_other_ways| {
            let (table, server) = heap.serve(&blocks, &COLUMNS);
            let settings = Settings { access, fallback, may_go_other_ways, ..settings(2) };
            let program = grouped(&table);
            let outcome = run_with(&program, table, &settings, &CancelToken::new());
            server.join().unwrap();
            outcome.map(|(answer, _)| answer)
        };
        assert_eq!(run(Fallback::Allow, false).unwrap(), expected(grouped));
        assert_eq!(run(Fallback::Forbid, true).unwrap(), expected(grouped));
        let error = run(Fallback::Forbid, false).unwrap_err();
        assert_eq!(error.class(), ErrorClass::Unsupported, "{error}");
        let text = error.to_string();
        assert!(text.contains("was forced") && text.contains("there is no device"), "{text}");
    }
}

#[test]
fn a_server_that_fails_is_the_error_of_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let own = [3, 4, 5, 6].into();
    let heap = Heap { own, fails_after: Some(2), ..Heap::default() };
    let (table, server) = heap.serve(&heap.write(folder.path()), &COLUMNS);
    let error = run(&grouped(&table), table).unwrap_err();
    assert!(error.to_string().contains("t: the buffers are on fire"), "{error}");
    assert_eq!(error.class(), ErrorClass::Io);
    server.join().unwrap();
}

/// Rerouted blocks would be lost.
#[test]
fn a_server_whose_rows_end_before_all_blocks_are_done_fails_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let blocks = Heap::default().write(folder.path());
    let owner: Arc<dyn heap::BlockOwner> = Arc::new(Silent);
    let stream = Ready(std::iter::empty());
    let table: Arc<dyn Table> = Arc::new(HeapTable::new("t", vec![blocks], owner, stream).unwrap());
    let table = Arc::new(StreamTable::new("t", table));
    let program = grouped(&table);
    let error = run(&program, Arc::clone(&table)).unwrap_err();
    assert!(error.to_string().contains("rows ended when 0 of 200 blocks were done"), "{error}");
    let error = run(&program, table).unwrap_err();
    assert!(error.to_string().contains("come once"), "{error}");
}

struct Silent;

impl heap::BlockOwner for Silent {
    fn holds(&self, _block: heap::Block) -> bool {
        true
    }

    fn reroute(&self, block: heap::Block, why: heap::Reroute) {
        panic!("{block:?}: {why}");
    }

    fn done(&self, _blocks: u32) {}
}

#[test]
fn a_run_that_waits_for_the_server_can_be_cancelled_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let heap = Heap { own: [5].into(), never_ends: true, ..Heap::default() };
    let (table, server) = heap.serve(&heap.write(folder.path()), &COLUMNS);
    let token = CancelToken::new();
    let canceller = std::thread::spawn({
        let token = token.clone();
        move || {
            std::thread::sleep(Duration::from_millis(100));
            token.cancel();
            Instant::now()
        }
    });
    let program = grouped(&table);
    let error = run_with(&program, table, &settings(2), &token).unwrap_err();
    assert_eq!(error.class(), ErrorClass::Cancelled, "{error}");
    assert!(canceller.join().unwrap().elapsed() < Duration::from_secs(2));
    // It was not kept waiting by anything else: all blocks were done.
    assert_eq!(server.join().unwrap().done, BLOCKS - 1);
}

#[test]
fn a_panic_while_a_block_is_decoded_ends_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let heap = Heap { panics_at: Some(77), ..Heap::default() };
    for threads in [1, 4] {
        let (table, server) = heap.serve(&heap.write(folder.path()), &COLUMNS);
        let program = grouped(&table);
        let run = run_with(&program, table, &settings(threads), &CancelToken::new());
        let error = run.unwrap_err();
        let RunError::Race(RaceError::Panic { message, .. }) = &error else { panic!("{error}") };
        assert!(message.contains("block 77 is accursed"), "{message}");
        assert!(server.join().unwrap().done < BLOCKS);
    }
}

#[test]
fn whoever_has_rows_enough_waits_for_no_block() {
    let folder = tempfile::tempdir().unwrap();
    let heap = Heap { own: [5].into(), never_ends: true, ..Heap::default() };
    let (table, server) = heap.serve(&heap.write(folder.path()), &["number"]);
    let source = table.source_over(0, &["number"]).unwrap();
    let columns = vec![NamedExpr { name: "number".into(), expr: source.register(0) }];
    let sink = Sink::Rows { columns, limit: Some(10) };
    let program = Program::new(vec![], Pipeline { source, steps: vec![], sink });
    let (rows, report) = run(&program, table).unwrap();
    assert_eq!((rows.len(), report.streamed.race.ended_early), (10, true));
    server.join().unwrap();
}

/// With a GPU or without: what it does not take comes to the CPU untouched.
#[test]
fn rows_of_text_are_for_the_cpu_and_auto_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let heap = Heap::default();
    let (table, server) = heap.serve(&heap.write(folder.path()), &COLUMNS);
    let settings = Settings { processor: Processor::Auto, ..settings(2) };
    let (answer, report) = run_with(&names(&table), table, &settings, &CancelToken::new()).unwrap();
    assert_eq!(answer, expected(names));
    assert_eq!(report.streamed.processor, "cpu");
    assert!(report.streamed.processor_why_not.is_some());
    server.join().unwrap();
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let sound = Heap::default().write(folder.path());
    let refused = |change: fn(&mut heap::HeapBlocks)| {
        let mut blocks = sound.clone();
        change(&mut blocks);
        let stream = Ready(std::iter::empty());
        HeapTable::new("t", vec![blocks], Arc::new(Silent), stream).unwrap_err().to_string()
    };
    let order = "is empty, or not behind the one before";
    assert!(refused(|blocks| blocks.direct = vec![4..6, 5..7]).contains(order));
    assert!(refused(|blocks| blocks.direct = vec![4..6, 7..7]).contains(order));
    assert!(
        refused(|blocks| blocks.direct = vec![0..5, 9..257]).contains("beyond the end of 4 files")
    );
    assert!(refused(|blocks| blocks.blocks_per_file = 0).contains("files of no blocks"));
    assert!(refused(|blocks| blocks.relation.block_bytes = 5).contains("blocks of 5 bytes"));
}

/// A column whose stored form is not that of its type exists, and cannot be asked for.
#[test]
fn columns_that_cannot_be_asked_for_say_why() {
    let folder = tempfile::tempdir().unwrap();
    let mut blocks = Heap::default().write(folder.path());
    blocks.relation = heap_relation();
    blocks.relation.attributes[3].length = heap::Length::Fixed(4);
    blocks.relation.attributes[0].dropped = true;
    let stream = Ready(std::iter::empty());
    let table = HeapTable::new("t", vec![blocks], Arc::new(Silent), stream).unwrap();
    let names: Vec<_> = table.schema().fields().iter().map(|field| field.name()).collect();
    assert_eq!(names, ["name", "big"]);
    table.column_support(0).unwrap();
    let reason = table.column_support(1).unwrap_err();
    assert!(reason.contains("its length or alignment is not that of its type"), "{reason}");
    assert!(table.column_support(2).unwrap_err().contains("there is no column 2"));
}
