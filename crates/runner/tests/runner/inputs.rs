//! The same program over a file and over batches of another producer, and how an input may be treated.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arrow_array::types::{Int8Type, Int32Type};
use arrow_array::{
    ArrayRef, BooleanArray, Date32Array, Decimal128Array, DictionaryArray, Int64Array, RecordBatch,
    StringArray,
};
use headrace_format::Table;
use headrace_format::arrow::{ArrowTable, WriterOptions};
use headrace_format::batches::{BatchTable, Ready};
use headrace_io::{InputPolicy, MemoryUse, SourceFile, drop_cache};
use headrace_ir::{
    AggregateCall, AggregateFunction, CompareOp, DataType, Expr, NamedExpr, Pipeline, Probe,
    Program, Scalar, Sink, Step,
};
use headrace_runner::{
    ErrorClass, Processor, RunError, RunReport, Runner, RunnerOptions, StreamTable,
};

use crate::support::{self, rows, run_on};

const ROWS: i64 = 40_000;

const NAMES: [&str; 7] = ["ash", "beech", "elm", "fir", "larch", "oak", "yew"];

/// Whether codes are those of one dictionary, or each batch has its own.
#[derive(Clone, Copy, PartialEq)]
pub enum Codes {
    One,
    Own,
}

fn name_of(row: i64) -> Option<&'static str> {
    (row % 11 > 0).then_some(NAMES[(row / 100 % 7) as usize])
}

/// Rows with NULLs, bits, decimals, dates, text, and codes.
pub fn batch(rows: Range<i64>, codes: Codes) -> RecordBatch {
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
    support::write(path, &batch, options);
}

fn file(path: &Path) -> Arc<StreamTable> {
    support::open("t", &[path.to_path_buf()])
}

fn batches(batches: Vec<RecordBatch>) -> BatchTable {
    let schema = batches[0].schema();
    BatchTable::new("t", &schema, Ready(batches.into_iter().map(Ok)))
}

pub fn stream(table: BatchTable) -> Arc<StreamTable> {
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

fn of_numbers(table: &StreamTable, function: AggregateFunction) -> Program {
    let source = table.source_over(0, &["number"]).unwrap();
    let argument = Some(source.register(0));
    let calls = vec![AggregateCall::new("n", function, argument, DataType::Int64)];
    let sink = Sink::aggregate(vec![], calls);
    Program::new(vec![], Pipeline { source, steps: vec![], sink })
}

/// `sum(number)` of all rows.
pub fn total(table: &StreamTable) -> Program {
    of_numbers(table, AggregateFunction::Sum)
}

/// The rows as text: codes or text, the same values.
pub fn run(
    program: &Program,
    table: Arc<StreamTable>,
) -> Result<(Vec<String>, RunReport), RunError> {
    let runner = Runner::new(&RunnerOptions::default());
    let (batches, report) = run_on(Processor::Cpu, &runner, program, &[table])?;
    Ok((rows(&batches), report))
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
                    assert!(program.answer.source.input.comes_once());
                    let (answer, report) = run(&program, table).unwrap();
                    assert_eq!(answer, expected, "{group}");
                    assert_eq!(report.streamed.rows_in, ROWS as u64);
                    let by_path = report.streamed.race.bytes_by_path;
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
    for group in ["kind", "day", "flag"] {
        let table = file(&path);
        let (expected, _) = run(&grouped(&table, group), table).unwrap();
        for codes in [Codes::One, Codes::Own] {
            for parts in [odd(codes), slices(codes), vec![batch(0..ROWS, codes)]] {
                let known = Arc::new(StringArray::from_iter_values(NAMES));
                let table = batches(parts).with_dictionary(5, known).unwrap();
                let table = stream(table.with_rows_max(ROWS as u64));
                let program = grouped(&table, group);
                let (answer, report) =
                    run_on(Processor::Cuda, &runner, &program, &[table]).unwrap();
                assert_eq!(rows(&answer), expected, "{group}");
                assert_eq!(
                    (report.streamed.processor.as_str(), report.streamed.rows_in),
                    ("cuda", ROWS as u64)
                );
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
        let sink = Sink::Build { keys: vec![key], payload: vec![] };
        let build = Pipeline { source: few, steps: vec![], sink };
        let mut program = total(&tables[0]);
        let number = program.answer.source.register(0);
        program.answer.steps.push(Step::Probe(Probe::semi(0, vec![number])));
        program.stages.push(build);
        let (answer, report) = run_on(Processor::Cpu, &runner, &program, &tables).unwrap();
        assert_eq!(rows(&answer), [numbers.to_string()]);
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
    assert!(error.to_string().contains("as batches that come once"), "{error}");
    let error = run(&total(&come_once()), file(&path)).unwrap_err();
    assert!(error.to_string().contains("as a table"), "{error}");
    // The same batches cannot be read again.
    let table = come_once();
    let program = total(&table);
    run(&program, Arc::clone(&table)).unwrap();
    let error = run(&program, table).unwrap_err();
    assert!(error.to_string().contains("come once"), "{error}");
}

/// The largest `number`: whatever its bytes are, they are one.
fn largest(table: &StreamTable) -> Program {
    of_numbers(table, AggregateFunction::Max)
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
        let policy = InputPolicy { check_identity, copy_first: true, ..InputPolicy::default() };
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
            let tables = [Arc::clone(&table)];
            let outcome = run_on(Processor::Cpu, &runner, &programs[round % 2], &tables);
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
                    let by_path = report.streamed.race.bytes_by_path;
                    assert_eq!((by_path.mapped, by_path.cached), (0, 0));
                    assert!(by_path.buffered + by_path.direct > 0);
                }
            }
        }
        ends.store(1, Ordering::SeqCst);
        writer.join().unwrap();
        // What comes from storage is kept, but only of a file that is known again.
        write(&path, 0..ROWS);
        let (table, runner) = (with_policy(&path, policy), Runner::new(&RunnerOptions::default()));
        let source = SourceFile::open(&path).unwrap();
        drop_cache(&*source).unwrap();
        run_on(Processor::Cpu, &runner, &largest(&table), &[table]).unwrap();
        let is_kept = runner.budget().uses().of(MemoryUse::HostCache) > 0;
        // Without O_DIRECT nothing is ever cold.
        assert_eq!(is_kept, check_identity && source.direct().is_ok());
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
    let source = SourceFile::open(&path).unwrap();
    if source.direct().is_err() {
        // Nothing is ever cold there.
        return;
    }
    for cached in [true, false] {
        drop_cache(source.as_ref()).unwrap();
        let table = with_policy(&path, InputPolicy { cached, ..InputPolicy::default() });
        let runner = Runner::new(&RunnerOptions::default());
        let program = total(&table);
        let (_, report) = run_on(Processor::Cpu, &runner, &program, &[table]).unwrap();
        assert!(
            report.streamed.race.bytes_by_path.direct > 0,
            "{:?}",
            report.streamed.race.bytes_by_path
        );
        assert_eq!(runner.budget().uses().of(MemoryUse::HostCache) > 0, cached);
    }
}
