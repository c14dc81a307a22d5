//! Groups that do not fit memory: flushed, spilled, merged; and what may go wrong with it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use headrace_columns::memory;
use headrace_io::{MemoryBudget, MemoryUse, Reservation};
use headrace_ir::{AggregateFunction, DataType, Sink};
use headrace_pipeline::ExecError;
use headrace_pipeline::bind::{BindOptions, bind};
use headrace_pipeline::cpu::{CpuProgram, WorkerOptions};
use headrace_spill::SpillFolder;
use headrace_spill::faulty::{self, Fault};

use crate::random::Random;
use crate::support::*;

const GROUPS: i32 = 20_000;

/// Every key of `0..GROUPS` three times, in an order that comes from a seed.
fn shuffled(seed: u64) -> Table {
    let mut random = Random(seed);
    let mut keys: Vec<i32> = (0..GROUPS * 3).map(|i| i % GROUPS).collect();
    for i in (1..keys.len()).rev() {
        keys.swap(i, random.below(i + 1));
    }
    let names: Vec<String> = keys.iter().map(|key| format!("name {}", key % 1000)).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    Table::new("t", keys.len()).int32("k", &keys).text("name", &names)
}

fn counts(table: &Table) -> Sink {
    Sink::aggregate(
        vec![named("k", table.col("k")), named("name", table.col("name"))],
        vec![
            call(AggregateFunction::Count, None, DataType::Int64),
            call(AggregateFunction::Sum, Some(table.col("k")), DataType::Int64),
            call(AggregateFunction::Max, Some(table.col("name")), DataType::Utf8),
        ],
    )
}

fn expected() -> Vec<String> {
    let line = |k: i32| format!("{k}|name {0}|3|{1}|name {0}", k % 1000, i64::from(k) * 3);
    let mut lines: Vec<String> = (0..GROUPS).map(line).collect();
    lines.sort();
    lines
}

fn program(table: &Table) -> Arc<CpuProgram> {
    let sink = counts(table);
    let pipeline = headrace_ir::Pipeline { source: table.source(), steps: vec![], sink };
    let options = BindOptions { dense_groups_max: 0, ..BindOptions::default() };
    let bound = bind(&pipeline, &table.info(), &[], &options).unwrap();
    CpuProgram::compile(Arc::new(bound)).unwrap()
}

struct Run {
    home: tempfile::TempDir,
    folder: Arc<SpillFolder>,
    options: WorkerOptions,
}

/// Two workers with 600 kB and a folder that may take `limit_bytes`.
fn prepare(limit_bytes: u64, fault: Fault) -> Run {
    let home = tempfile::tempdir().unwrap();
    let folder = faulty::folder(home.path(), limit_bytes, fault);
    let mut options =
        WorkerOptions::with_memory(memory::share(&MemoryBudget::new(2_400_000), 600_000));
    options.workers = 2;
    options.batch_rows = 512;
    options.spill = Some(Arc::clone(&folder));
    Run { home, folder, options }
}

impl Run {
    /// Text of the rows, or of the error; nothing may be left in either case.
    fn run(self, table: &Table) -> Result<Vec<String>, String> {
        let nothing = self.options.memory.reserve_nothing(MemoryUse::Pipelines);
        self.run_beside(table, nothing)
    }

    fn run_beside(self, table: &Table, others: Reservation) -> Result<Vec<String>, String> {
        let program = program(table);
        let batches = std::sync::Mutex::new(Vec::new());
        let emit = |batch| {
            batches.lock().unwrap().push(batch);
            true
        };
        let outcome = work(&program, table, &self.options, 2)
            .and_then(|workers| program.finish_each(workers, Default::default(), &emit));
        assert!(std::fs::read_dir(self.home.path()).unwrap().next().is_none());
        let Self { folder, options, .. } = self;
        assert!(options.memory.peak_bytes() <= 600_000);
        let memory = Arc::clone(&options.memory);
        drop((options, others));
        assert_eq!((folder.used_bytes(), memory.uses().total_bytes()), (0, 0));
        outcome.map(|_| rows(&batches.into_inner().unwrap())).map_err(|error| error.to_string())
    }
}

#[test]
fn groups_beyond_the_memory_go_to_disk_and_come_back() {
    let run = prepare(u64::MAX, Fault::None);
    let report = Arc::clone(&run.options.spilled);
    assert_eq!(run.run(&shuffled(1)).unwrap(), expected());
    assert!(report.flushes() > 4 && report.spilled_bytes() > 100_000, "{report:?}");
}

/// A table is flushed when nothing is left of the memory, to the byte: what the flush needs was set aside before.
#[test]
fn a_flush_needs_no_memory_that_is_not_held() {
    let table = shuffled(3);
    let expected = expected();
    for free_bytes in (200_000..208_000).step_by(53) {
        let run = prepare(u64::MAX, Fault::None);
        // Others of the same share have the rest all the time.
        let others = run.options.memory.reserve(MemoryUse::Pipelines, 600_000 - free_bytes);
        let report = Arc::clone(&run.options.spilled);
        let rows = run.run_beside(&table, others.unwrap());
        assert_eq!(rows.as_ref(), Ok(&expected), "{free_bytes} bytes are free");
        assert!(report.flushes() > 4, "{report:?}");
    }
}

/// More groups than are merged at once, of several workers, in memory that is enough and in memory that is not.
#[test]
fn groups_of_many_workers_are_merged_where_they_lie() {
    const KEYS: i32 = 120_000;
    let mut random = Random(5);
    let rows: Vec<i32> = (0..KEYS * 2).map(|_| random.below(KEYS as usize) as i32).collect();
    let names: Vec<String> = rows.iter().map(|key| format!("name {}", key % 1000)).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let table = Table::new("t", rows.len()).int32("k", &rows).text("name", &names);
    let mut counts = std::collections::HashMap::new();
    rows.iter().for_each(|key| *counts.entry(*key).or_insert(0) += 1);
    let line = |(k, n): (&i32, &i64)| {
        format!("{k}|name {0}|{n}|{1}|name {0}", k % 1000, i64::from(*k) * n)
    };
    let mut expected: Vec<String> = counts.iter().map(line).collect();
    expected.sort();
    let program = program(&table);
    let memory = [(1 << 30, true), (8 << 20, false)];
    let caches = [0, 100_000, u64::MAX];
    for (cache_bytes, (memory_bytes, is_enough)) in
        caches.into_iter().flat_map(|cache| memory.map(|memory| (cache, memory)))
    {
        let mut options = WorkerOptions::new(memory_bytes);
        options.cache_bytes = cache_bytes;
        options.workers = 3;
        let home = tempfile::tempdir().unwrap();
        let folder = SpillFolder::new(home.path(), u64::MAX, "");
        options.spill = Some(folder);
        let part = table.rows / 3 / 8 * 8;
        let workers = [0..part, part..2 * part, 2 * part..table.rows].map(|rows| {
            let mut worker = program.worker(&options).unwrap();
            worker.execute(&table.part(rows.start, rows.end)).unwrap();
            worker
        });
        let batches = std::sync::Mutex::new(Vec::new());
        let emit = |batch| {
            batches.lock().unwrap().push(batch);
            true
        };
        program.finish_each(workers.into(), Default::default(), &emit).unwrap();
        assert!(rows_of(&batches) == expected, "{memory_bytes}, cache {cache_bytes}");
        assert_eq!(options.spilled.put_aside() > 0, cache_bytes < u64::MAX, "{cache_bytes}");
        assert_eq!(options.spilled.flushes() == 0, is_enough, "{:?}", options.spilled);
        assert!(options.memory.peak_bytes() <= memory_bytes);
        assert_eq!(options.memory.uses().total_bytes(), 0);
    }
}

fn rows_of(batches: &std::sync::Mutex<Vec<arrow_array::RecordBatch>>) -> Vec<String> {
    rows(&batches.lock().unwrap())
}

#[test]
fn partitions_too_large_for_memory_are_divided_again_and_again() {
    for groups_max in [16, 64, 700] {
        let mut run = prepare(u64::MAX, Fault::None);
        run.options.groups_max = groups_max;
        run.options.batch_rows = groups_max / 2;
        let report = Arc::clone(&run.options.spilled);
        assert_eq!(run.run(&shuffled(2)).unwrap(), expected());
        assert_eq!(report.levels(), 3, "{groups_max}: {report:?}");
    }
}

#[test]
fn without_a_place_to_spill_to_the_error_names_the_whole_limit() {
    let mut run = prepare(u64::MAX, Fault::None);
    run.options.spill = None;
    let error = run.run(&shuffled(3)).unwrap_err();
    assert!(error.contains("the limit is 2400000"), "{error}");
    assert!(error.contains("600000 bytes are set aside"), "{error}");
}

#[test]
fn faults_of_the_store_are_errors_that_leave_nothing() {
    let table = shuffled(4);
    for (fault, cause) in [
        (Fault::Create, "cannot make a temporary file"),
        (Fault::Full(0), "No space left"),
        (Fault::Full(100), "No space left"),
        (Fault::Eio(0), "Input/output error"),
        (Fault::Bit(30), "checksum"),
    ] {
        let error = prepare(u64::MAX, fault).run(&table).unwrap_err();
        assert!(error.contains("spilling") && error.contains(cause), "{fault:?}: {error}");
    }
    let error = prepare(50_000, Fault::None).run(&table).unwrap_err();
    assert!(error.contains("the limit is 50000: raise the spill limit"), "{error}");
}

#[test]
fn a_cancelled_merge_ends_and_leaves_nothing() {
    let table = shuffled(5);
    let run = prepare(u64::MAX, Fault::None);
    let program = program(&table);
    let workers = work(&program, &table, &run.options, 2).unwrap();
    assert!(run.folder.used_bytes() > 0);
    let emitted = AtomicUsize::new(0);
    let emit = |_| {
        emitted.fetch_add(1, Ordering::Relaxed);
        run.options.cancel.cancel();
        true
    };
    let error = program.finish_each(workers, Default::default(), &emit).unwrap_err();
    assert!(matches!(error, ExecError::Cancelled), "{error}");
    // Two threads at most were on their way out.
    assert!((1..=2).contains(&emitted.into_inner()));
    let Run { folder, options, .. } = run;
    drop(options);
    assert_eq!(folder.used_bytes(), 0);
}

#[test]
fn who_has_enough_groups_is_given_no_more() {
    let table = shuffled(6);
    let run = prepare(u64::MAX, Fault::None);
    let program = program(&table);
    let workers = work(&program, &table, &run.options, 2).unwrap();
    let emitted = AtomicUsize::new(0);
    let emit = |_| emitted.fetch_add(1, Ordering::Relaxed) > 100;
    program.finish_each(workers, Default::default(), &emit).unwrap();
    assert!((1..=2).contains(&emitted.into_inner()));
}

#[test]
fn many_groups_that_fit_are_merged_by_several_threads() {
    let keys: Vec<i32> = (0..200_000).map(|i| i % 70_000).collect();
    let table = Table::new("t", keys.len()).int32("k", &keys);
    let sink = Sink::aggregate(
        vec![named("k", table.col("k"))],
        vec![call(AggregateFunction::Count, None, DataType::Int64)],
    );
    let program = CpuProgram::compile(bound(&table, vec![], sink, &[])).unwrap();
    let mut options = WorkerOptions::new(u64::MAX);
    options.workers = 3;
    let workers = [(0, 80_000), (80_000, 160_000), (160_000, 200_000)].map(|(start, end)| {
        let mut worker = program.worker(&options).unwrap();
        worker.execute(&table.part(start, end)).unwrap();
        worker
    });
    let output = program.finish(workers.into(), Default::default()).unwrap();
    let headrace_pipeline::state::Output::Batches(batches) = output else { panic!("a build") };
    assert!(batches.len() > 4 && batches.iter().all(|batch| batch.num_rows() <= 8192));
    let line = |k: i32| format!("{k}|{}", if k < 60_000 { 3 } else { 2 });
    let mut lines: Vec<String> = (0..70_000).map(line).collect();
    lines.sort();
    assert_eq!(rows(&batches), lines);
}
