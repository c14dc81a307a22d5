//! The same program over a file and over batches of another producer; what producers do wrong; and
//! how an input may be treated.

#![allow(clippy::unwrap_used)]

use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use arrow_array::types::{Int8Type, Int32Type};
use arrow_array::{
    ArrayRef, BooleanArray, Date32Array, Decimal128Array, DictionaryArray, Int64Array, RecordBatch,
    StringArray,
};
use arrow_schema::Schema;
use headrace_flow::CancelToken;
use headrace_format::Table;
use headrace_format::arrow::{ArrowTable, ArrowWriter, WriterOptions};
use headrace_format::batches::{BatchTable, Ready, batch_channel};
use headrace_io::{InputPolicy, MemoryUse};
use headrace_ir::{
    AggregateCall, AggregateFunction, BuildPlan, BuildSource, CompareOp, DataType, Expr, NamedExpr,
    Pipeline, Probe, Program, Scalar, Sink, SourceKind, Step,
};
use headrace_runner::{
    ErrorClass, Fallback, Processor, Request, RunError, RunReport, Runner, RunnerOptions, Settings,
    StreamTable,
};

const ROWS: i64 = 40_000;

const NAMES: [&str; 7] = ["ash", "beech", "elm", "fir", "larch", "oak", "yew"];

/// Whether codes are those of one dictionary, or each batch has its own.
#[derive(Clone, Copy, PartialEq)]
enum Codes {
    One,
    Own,
}

fn name_of(row: i64) -> Option<&'static str> {
    (row % 11 > 0).then_some(NAMES[(row / 100 % 7) as usize])
}

/// Rows with NULLs, bits, decimals, dates, text, and codes.
fn batch(rows: Range<i64>, codes: Codes) -> RecordBatch {
    let some = |by: i64| move |i: i64| (i % by > 0).then_some(i);
    let numbers: Int64Array = rows.clone().map(some(7)).collect();
    let flags: BooleanArray = rows.clone().map(|i| (i % 13 > 0).then_some(i % 2 == 0)).collect();
    let prices: Decimal128Array = rows.clone().map(|i| Some(i128::from(i) * 3)).collect();
    let prices = prices.with_precision_and_scale(12, 2).unwrap();
    let days: Date32Array = rows.clone().map(|i| Some((i % 365) as i32)).collect();
    let notes: StringArray = rows.clone().map(|i| some(5)(i).map(|i| format!("n{i}"))).collect();
    let kinds: ArrayRef = match codes {
        Codes::One => {
            let keys = rows.clone().map(|i| {
                name_of(i).and_then(|name| NAMES.iter().position(|n| *n == name)).map(|c| c as i32)
            });
            let names = StringArray::from_iter_values(NAMES);
            Arc::new(DictionaryArray::<Int32Type>::new(keys.collect(), Arc::new(names)))
        }
        Codes::Own => Arc::new(rows.map(name_of).collect::<DictionaryArray<Int8Type>>()),
    };
    RecordBatch::try_from_iter_with_nullable([
        ("number", Arc::new(numbers) as ArrayRef, true),
        ("flag", Arc::new(flags), true),
        ("price", Arc::new(prices), false),
        ("day", Arc::new(days), true),
        ("note", Arc::new(notes), true),
        ("kind", kinds, true),
    ])
    .unwrap()
}

fn write(path: &Path, rows: Range<i64>) {
    let batch = batch(rows, Codes::One);
    let options = WriterOptions { rows_per_batch: 3000, ..WriterOptions::default() };
    let mut writer = ArrowWriter::create(path, &batch.schema(), options).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
}

fn file(path: &Path) -> Arc<StreamTable> {
    Arc::new(StreamTable::new("t", Arc::new(ArrowTable::open(&[path.to_path_buf()]).unwrap())))
}

fn batches(batches: Vec<RecordBatch>) -> BatchTable {
    let schema = batches[0].schema();
    BatchTable::new("t", &schema, Ready(batches.into_iter().map(Ok)))
}

fn stream(table: BatchTable) -> Arc<StreamTable> {
    Arc::new(StreamTable::new("t", Arc::new(table)))
}

/// Batches of odd sizes, some of them empty.
fn odd(codes: Codes) -> Vec<RecordBatch> {
    let (mut batches, mut first) = (Vec::new(), 0);
    for rows in [1, 0, 7, 63, 64, 65, 1000, 4097].into_iter().cycle() {
        let end = (first + rows).min(ROWS);
        batches.push(batch(first..end, codes));
        first = end;
        if first == ROWS {
            return batches;
        }
    }
    unreachable!("the cycle has no end")
}

/// Slices of one batch, which begin in the middle of a byte of its bitmaps.
fn slices(codes: Codes) -> Vec<RecordBatch> {
    let whole = batch(0..ROWS, codes);
    let ends = [3, 130, 5001, 5002, 17_777, ROWS as usize];
    let starts = std::iter::once(0).chain(ends);
    starts.zip(ends).map(|(start, end)| whole.slice(start, end - start)).collect()
}

fn int64(value: i64) -> Expr {
    Expr::Literal(Scalar::int(DataType::Int64, value.into()))
}

/// Counts, sums and extremes by `group` of rows with a number below three quarters of all.
fn grouped(table: &StreamTable, group: &str) -> Program {
    let columns = ["number", "flag", "price", "day", group];
    let source = table.source_over(0, &columns).unwrap();
    let call = |name: &str, function, column: usize| {
        let argument = source.register(column);
        let result = match function {
            AggregateFunction::Count => DataType::Int64,
            AggregateFunction::Sum if column == 2 => {
                DataType::Decimal128 { precision: 22, scale: 2 }
            }
            _ => argument.data_type(),
        };
        AggregateCall::new(name, function, Some(argument), result)
    };
    let calls = vec![
        call("flags", AggregateFunction::Count, 1),
        call("numbers", AggregateFunction::Sum, 0),
        call("prices", AggregateFunction::Sum, 2),
        call("first", AggregateFunction::Min, 3),
        call("last", AggregateFunction::Max, 3),
    ];
    let few = Expr::compare(CompareOp::Lt, source.register(0), int64(ROWS * 3 / 4));
    let keys = vec![NamedExpr { name: group.into(), expr: source.register(4) }];
    let steps = vec![Step::Filter(few)];
    Program::new(vec![], Pipeline { source, steps, sink: Sink::aggregate(keys, calls) })
}

/// `sum(number)` of all rows.
fn total(table: &StreamTable) -> Program {
    let source = table.source_over(0, &["number"]).unwrap();
    let sum = AggregateFunction::Sum;
    let calls = vec![AggregateCall::new("s", sum, Some(source.register(0)), DataType::Int64)];
    let sink = Sink::aggregate(vec![], calls);
    Program::new(vec![], Pipeline { source, steps: vec![], sink })
}

fn settings(processor: Processor) -> Settings {
    Settings { processor, fallback: Fallback::Forbid, threads: 2, ..Settings::default() }
}

fn run_with(
    settings: &Settings,
    runner: &Runner,
    program: &Program,
    tables: &[Arc<StreamTable>],
    token: &CancelToken,
) -> Result<(Vec<String>, RunReport), RunError> {
    let batches = Mutex::new(Vec::new());
    let request = Request { program, parameters: &[], tables, children: &[], settings, token };
    let report = runner.run(&request, &|batch| {
        batches.lock().unwrap().push(batch);
        true
    })?;
    let mut lines = Vec::new();
    for batch in batches.into_inner().unwrap() {
        let batch: RecordBatch = batch;
        let columns = batch.columns().iter().map(|column| {
            // Codes or text: the same values.
            let text = arrow_cast::cast(column, &arrow_schema::DataType::Utf8).unwrap();
            let text = arrow_array::cast::AsArray::as_string::<i32>(&text).clone();
            text.iter().map(|t| format!("{t:?}")).collect::<Vec<_>>()
        });
        let columns: Vec<Vec<String>> = columns.collect();
        lines.extend((0..batch.num_rows()).map(|row| {
            columns.iter().map(|column| column[row].clone()).collect::<Vec<_>>().join(" ")
        }));
    }
    lines.sort();
    Ok((lines, report))
}

fn run(program: &Program, table: Arc<StreamTable>) -> Result<(Vec<String>, RunReport), RunError> {
    let runner = Runner::new(&RunnerOptions::default());
    run_with(&settings(Processor::Cpu), &runner, program, &[table], &CancelToken::new())
}

#[test]
fn batches_of_any_shape_answer_as_a_file_does() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.arrow");
    write(&path, 0..ROWS);
    for group in ["kind", "note", "day", "flag"] {
        let table = file(&path);
        let (expected, _) = run(&grouped(&table, group), table).unwrap();
        assert!(expected.len() > 2, "{group}");
        for codes in [Codes::One, Codes::Own] {
            for parts in [odd(codes), slices(codes), vec![batch(0..ROWS, codes)]] {
                let known = Arc::new(StringArray::from_iter_values(NAMES));
                let tables = [
                    batches(parts.clone()),
                    batches(parts.clone()).copied_first(),
                    batches(parts.clone()).with_dictionary(5, known).unwrap(),
                ];
                for table in tables.map(stream) {
                    let program = grouped(&table, group);
                    assert_eq!(program.pipeline.source.kind, SourceKind::Batches);
                    let (answer, report) = run(&program, table).unwrap();
                    assert_eq!(answer, expected, "{group}");
                    assert_eq!(report.rows_in, ROWS as u64);
                    let by_path = report.race.bytes_by_path;
                    assert_eq!(by_path.memory, by_path.total());
                }
            }
        }
    }
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_batches_of_any_shape_answer_as_a_file_does() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.arrow");
    write(&path, 0..ROWS);
    let runner = Runner::new(&RunnerOptions::default());
    let on_gpu = settings(Processor::Cuda);
    for group in ["kind", "day", "flag"] {
        let table = file(&path);
        let (expected, _) = run(&grouped(&table, group), table).unwrap();
        for codes in [Codes::One, Codes::Own] {
            for parts in [odd(codes), slices(codes), vec![batch(0..ROWS, codes)]] {
                let known = Arc::new(StringArray::from_iter_values(NAMES));
                let table = batches(parts).with_dictionary(5, known).unwrap();
                let table = stream(table.with_rows_max(ROWS as u64));
                let program = grouped(&table, group);
                let token = CancelToken::new();
                let (answer, report) =
                    run_with(&on_gpu, &runner, &program, &[table], &token).unwrap();
                assert_eq!(answer, expected, "{group}");
                assert_eq!((report.processor.as_str(), report.rows_in), ("cuda", ROWS as u64));
            }
        }
    }
}

#[test]
fn a_build_can_be_made_of_batches_and_is_not_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.arrow");
    write(&path, 0..ROWS);
    let runner = Runner::new(&RunnerOptions::default());
    let numbers: i64 = (0..1000).filter(|i| i % 7 > 0).sum();
    for _ in 0..2 {
        let tables = [file(&path), stream(batches(vec![batch(0..1000, Codes::Own)]))];
        let few = tables[1].source_over(1, &["number"]).unwrap();
        let key = NamedExpr { name: "number".into(), expr: few.register(0) };
        let keys = vec![few.columns[0].clone()];
        let sink = Sink::Build { keys: vec![key], payload: vec![] };
        let pipeline = Box::new(Pipeline { source: few, steps: vec![], sink });
        let source = BuildSource::Pipeline(pipeline);
        let build = BuildPlan { name: "few".into(), source, keys, payload: vec![] };
        let mut program = total(&tables[0]);
        let number = program.pipeline.source.register(0);
        program.pipeline.steps.push(Step::Probe(Probe::semi(0, vec![number])));
        program.builds.push(build);
        let token = CancelToken::new();
        let (answer, report) =
            run_with(&settings(Processor::Cpu), &runner, &program, &tables, &token).unwrap();
        assert_eq!(answer, [format!("Some(\"{numbers}\")")]);
        assert_eq!((report.builds_made, report.builds_cached), (1, 0));
    }
    assert_eq!(runner.budget().uses().of(MemoryUse::Builds), 0);
}

#[test]
fn a_program_says_whether_rows_come_once_and_who_hands_over_something_else_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.arrow");
    write(&path, 0..10);
    let come_once = || stream(batches(vec![batch(0..10, Codes::One)]));
    let error = run(&total(&file(&path)), come_once()).unwrap_err();
    assert!(error.to_string().contains("wants Table"), "{error}");
    let error = run(&total(&come_once()), file(&path)).unwrap_err();
    assert!(error.to_string().contains("wants Batches"), "{error}");
    // The same batches cannot be read again.
    let table = come_once();
    let program = total(&table);
    run(&program, Arc::clone(&table)).unwrap();
    let error = run(&program, table).unwrap_err();
    assert!(error.to_string().contains("come once"), "{error}");
}

/// The largest `number`: whatever its bytes are, they are one.
fn largest(table: &StreamTable) -> Program {
    let source = table.source_over(0, &["number"]).unwrap();
    let max = AggregateFunction::Max;
    let calls = vec![AggregateCall::new("m", max, Some(source.register(0)), DataType::Int64)];
    let sink = Sink::aggregate(vec![], calls);
    Program::new(vec![], Pipeline { source, steps: vec![], sink })
}

/// A producer with a thread of its own; how many batches it has sent.
fn produced(
    queue: usize,
    schema: &Schema,
    make: impl FnMut(usize) -> Option<Result<RecordBatch, String>> + Send + 'static,
) -> (Arc<StreamTable>, Arc<AtomicUsize>, std::thread::JoinHandle<()>) {
    let (sender, receiver) = batch_channel(queue);
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&sent);
    let mut make = make;
    let thread = std::thread::spawn(move || {
        for number in 0.. {
            match make(number) {
                None => return sender.finish(),
                Some(Err(error)) => return sender.fail(error),
                Some(Ok(batch)) => match sender.send(batch) {
                    true => counted.fetch_add(1, Ordering::SeqCst),
                    false => return,
                },
            };
        }
    });
    (stream(BatchTable::new("t", schema, receiver)), sent, thread)
}

#[test]
fn a_producer_that_fails_is_the_error_of_the_run() {
    let (table, _, producer) =
        produced(2, &batch(0..1, Codes::One).schema(), |number| match number {
            0..5 => Some(Ok(batch(0..100, Codes::One))),
            _ => Some(Err("the other side hung up".into())),
        });
    let error = run(&total(&table), table).unwrap_err();
    assert!(error.to_string().contains("t: the other side hung up"), "{error}");
    assert_eq!(error.class(), ErrorClass::Io);
    producer.join().unwrap();
}

#[test]
fn a_run_whose_producer_blocks_can_be_cancelled_at_once() {
    let (release, blocked) = std::sync::mpsc::channel::<()>();
    let (table, _, producer) =
        produced(2, &batch(0..1, Codes::One).schema(), move |number| match number {
            0..5 => Some(Ok(batch(0..100, Codes::One))),
            _ => {
                let _ = blocked.recv();
                None
            }
        });
    let token = CancelToken::new();
    let canceller = std::thread::spawn({
        let token = token.clone();
        move || {
            std::thread::sleep(Duration::from_millis(50));
            token.cancel();
            Instant::now()
        }
    });
    let runner = Runner::new(&RunnerOptions::default());
    let program = total(&table);
    let cpu = settings(Processor::Cpu);
    let error = run_with(&cpu, &runner, &program, &[table], &token).unwrap_err();
    assert_eq!(error.class(), ErrorClass::Cancelled, "{error}");
    assert!(canceller.join().unwrap().elapsed() < Duration::from_secs(2));
    drop(release);
    producer.join().unwrap();
}

#[test]
fn a_producer_is_ahead_of_the_run_by_a_bounded_amount() {
    const BATCHES: usize = 500;
    // Each batch is a chunk of its own: as large as is wanted.
    let alive = Arc::new(AtomicUsize::new(0));
    let most = Arc::new(AtomicUsize::new(0));
    let (counted, peak) = (Arc::clone(&alive), Arc::clone(&most));
    let schema = guarded(&Arc::new(AtomicUsize::new(1))).schema();
    let (table, sent, producer) = produced(2, &schema, move |number| {
        (number < BATCHES).then(|| {
            let now = counted.fetch_add(1, Ordering::SeqCst) + 1;
            peak.fetch_max(now, Ordering::SeqCst);
            Ok(guarded(&counted))
        })
    });
    let (answer, report) = run(&total(&table), table).unwrap();
    producer.join().unwrap();
    let each: i64 = (0..GUARDED_ROWS).sum();
    assert_eq!(answer, [format!("Some(\"{}\")", each * BATCHES as i64)]);
    assert_eq!((sent.load(Ordering::SeqCst), report.race.chunks), (BATCHES, BATCHES as u64));
    assert_eq!(alive.load(Ordering::SeqCst), 0, "batches are kept");
    // Two threads with eight chunks each, the queue, and those being handed over.
    let most = most.load(Ordering::SeqCst);
    assert!(most <= 2 * 8 + 2 + 8, "{most} batches at a time");
}

const GUARDED_ROWS: i64 = 1 << 17;

/// A batch whose numbers lie in memory that counts itself out when it is freed.
fn guarded(alive: &Arc<AtomicUsize>) -> RecordBatch {
    struct Guard {
        values: Vec<i64>,
        alive: Arc<AtomicUsize>,
    }
    impl Drop for Guard {
        fn drop(&mut self) {
            self.alive.fetch_sub(1, Ordering::SeqCst);
        }
    }
    let guard = Guard { values: (0..GUARDED_ROWS).collect(), alive: Arc::clone(alive) };
    let bytes = guard.values.len() * 8;
    let start = std::ptr::NonNull::new(guard.values.as_ptr().cast_mut().cast::<u8>()).unwrap();
    // SAFETY: the memory is the guard's, which lives as long as the buffer and is not changed.
    let buffer =
        unsafe { arrow_buffer::Buffer::from_custom_allocation(start, bytes, Arc::new(guard)) };
    let numbers =
        Int64Array::new(arrow_buffer::ScalarBuffer::new(buffer, 0, GUARDED_ROWS as usize), None);
    RecordBatch::try_from_iter([("number", Arc::new(numbers) as ArrayRef)]).unwrap()
}

fn with_policy(path: &Path, policy: InputPolicy) -> Arc<StreamTable> {
    let table = ArrowTable::open(&[path.to_path_buf()]).unwrap().with_policy(policy);
    assert_eq!(Table::policy(&table), policy);
    Arc::new(StreamTable::new("t", Arc::new(table)))
}

/// Somebody writes to the file, whose size stays the same, before and while it is read.
#[test]
fn a_file_that_changes_is_an_error_only_if_that_is_checked() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = folder.path().join("t.arrow");
    for check_identity in [true, false] {
        write(&path, 0..ROWS);
        let policy = InputPolicy { check_identity, copy_first: true, cached: true };
        let table = with_policy(&path, policy);
        let programs = [grouped(&table, "note"), largest(&table)];
        // Times of files are as fine as the system's clock ticks.
        std::thread::sleep(Duration::from_millis(20));
        scribble(&path, &AtomicUsize::new(1));
        let ends = Arc::new(AtomicUsize::new(0));
        let writer = std::thread::spawn({
            let (path, ends) = (path.clone(), Arc::clone(&ends));
            move || scribble(&path, &ends)
        });
        let runner = Runner::new(&RunnerOptions::default());
        for round in 0..20 {
            let outcome = run_with(
                &settings(Processor::Cpu),
                &runner,
                &programs[round % 2],
                &[Arc::clone(&table)],
                &CancelToken::new(),
            );
            match (outcome, check_identity) {
                (Err(error), true) => assert_eq!(error.class(), ErrorClass::FileChanged, "{error}"),
                (Ok(_), true) => panic!("a file that changed was taken for what it was"),
                // Rows that make no sense are told, where they can be; what is not done is to crash,
                // to look at them where they lie, or to keep any of them.
                (Err(error), false) => {
                    assert_ne!(error.class(), ErrorClass::FileChanged, "{error}");
                    assert_eq!(round % 2, 0, "{error}");
                }
                (Ok((_, report)), false) => {
                    let by_path = report.race.bytes_by_path;
                    assert_eq!((by_path.mapped, by_path.cached), (0, 0));
                    assert!(by_path.buffered + by_path.direct > 0);
                }
            }
        }
        ends.store(1, Ordering::SeqCst);
        writer.join().unwrap();
        if !check_identity {
            assert_eq!(runner.cache().stats().entries, 0);
        }
    }
}

/// Writes nonsense over the middle of a file, once at least, until it is told to end.
fn scribble(path: &Path, ends: &AtomicUsize) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    let size = file.metadata().unwrap().len();
    for round in 0u64.. {
        let nonsense: Vec<u8> = (0..4096).map(|i: u64| (i * round) as u8).collect();
        let at = size / 4 + round * 4096 % (size / 2);
        file.write_all_at(&nonsense, at).unwrap();
        if ends.load(Ordering::SeqCst) > 0 {
            return;
        }
    }
}

#[test]
fn an_input_that_is_never_cached_leaves_nothing_in_the_cache() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = folder.path().join("t.arrow");
    write(&path, 0..ROWS);
    let source = headrace_io::SourceFile::open(&path).unwrap();
    if source.direct().is_err() {
        // Nothing is ever cold there.
        return;
    }
    for cached in [true, false] {
        headrace_io::drop_cache(source.as_ref()).unwrap();
        let table = with_policy(&path, InputPolicy { cached, ..InputPolicy::default() });
        let runner = Runner::new(&RunnerOptions::default());
        let (cpu, token) = (settings(Processor::Cpu), CancelToken::new());
        let program = total(&table);
        let (_, report) = run_with(&cpu, &runner, &program, &[table], &token).unwrap();
        assert!(report.race.bytes_by_path.direct > 0, "{:?}", report.race.bytes_by_path);
        assert_eq!(runner.cache().stats().entries > 0, cached);
    }
}
