//! Batches that come one by one.

use std::sync::Arc;

use arrow_array::types::Int8Type;
use arrow_array::{ArrayRef, DictionaryArray, RecordBatch};
use headrace_flow::CancelToken;
use headrace_io::{MemoryBudget, MemoryUse};
use headrace_ooc::sort::table::{BatchSort, BatchSortOptions, BatchSortReport, SortKey};
use headrace_ooc::{OocError, Result};
use headrace_spill::SpillFolder;

use crate::support::{Kind, Random, Table};

fn options(threads: usize, limit_bytes: u64, folder: &tempfile::TempDir) -> BatchSortOptions {
    BatchSortOptions {
        threads,
        memory: MemoryBudget::new(limit_bytes),
        spills: SpillFolder::new(folder.path(), u64::MAX, "raise the spill limit"),
        token: CancelToken::new(),
    }
}

fn sorted(
    batches: &[RecordBatch],
    table: &Table,
    by: &[SortKey],
    options: BatchSortOptions,
) -> Result<(Vec<RecordBatch>, BatchSortReport)> {
    let mut sort = BatchSort::new(&table.schema(), &Table::order(by), options)?;
    batches.iter().try_for_each(|batch| sort.push(batch))?;
    let mut sorted = Vec::new();
    let report = sort.finish(|batch| {
        assert_eq!(batch.schema(), table.schema());
        sorted.push(batch);
        true
    })?;
    Ok((sorted, report))
}

fn is_empty(folder: &tempfile::TempDir) -> bool {
    folder.path().read_dir().unwrap().next().is_none()
}

#[test]
fn batches_are_sorted_as_plain_rows_are() {
    let folder = tempfile::tempdir().unwrap();
    let mut passes = [0; 3];
    for seed in 5000..5240 {
        let mut random = Random(seed);
        let table = Table::random(&mut random, if seed % 3 == 0 { 12_000 } else { 400 });
        let by = table.random_keys(&mut random);
        let batches = table.batches(&mut random);
        let threads = 1 + random.below(4) as usize;
        let largest_bytes = batches.iter().map(RecordBatch::get_array_memory_size).max();
        for limit_bytes in [64 << 20, 6 * largest_bytes.unwrap_or(0) as u64 + (300 << 10)] {
            let options = options(threads, limit_bytes, &folder);
            let memory = options.memory.clone();
            let context = format!("seed {seed}, limit {limit_bytes}");
            let outcome = sorted(&batches, &table, &by, options);
            let (batches, report) = outcome.unwrap_or_else(|error| panic!("{context}: {error}"));
            table.check(&batches, &by, &context);
            assert_eq!(report.rows, table.rows() as u64);
            assert_eq!(report.passes == 2, report.temporary_bytes > 0, "{context}");
            passes[report.passes as usize] += 1;
            assert_eq!(memory.uses().total_bytes(), 0, "{context}");
        }
    }
    assert!(passes[1] > 240 && passes[2] > 30, "{passes:?}");
    assert!(is_empty(&folder));
}

#[test]
fn a_share_that_others_take_is_given_up_and_the_sort_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let mut random = Random(3);
    let table = Table::of(&[(Kind::Int64, true), (Kind::Utf8, true)], 150_000, &mut random);
    let by = [SortKey::ascending("c0")];
    let batches = table.batches(&mut random);
    let whole = MemoryBudget::new(4 << 20);
    let mut options = options(2, 0, &folder);
    options.memory = MemoryBudget::within(&whole, MemoryUse::Operators, 4 << 20);
    let mut sort = BatchSort::new(&table.schema(), &Table::order(&by), options).unwrap();
    let half = batches.len() / 2;
    batches[..half].iter().try_for_each(|batch| sort.push(batch)).unwrap();
    let left_bytes = whole.limit_bytes() - whole.uses().total_bytes();
    let other = whole.reserve(MemoryUse::Pipelines, left_bytes - (1200 << 10)).unwrap();
    batches[half..].iter().try_for_each(|batch| sort.push(batch)).unwrap();
    drop(other);
    let mut found = Vec::new();
    let report = sort.finish(|batch| {
        found.push(batch);
        true
    });
    assert_eq!(report.unwrap().passes, 2);
    table.check(&found, &by, "shared");
    assert_eq!(whole.uses().total_bytes(), 0);
}

#[test]
fn whoever_wants_no_more_ends_the_sort() {
    let folder = tempfile::tempdir().unwrap();
    let mut random = Random(4);
    let table = Table::of(&[(Kind::Utf8, true)], 20_000, &mut random);
    let batches = table.batches(&mut random);
    for limit_bytes in [64 << 20, 900 << 10] {
        let options = options(2, limit_bytes, &folder);
        let (memory, mut count) = (options.memory.clone(), 0);
        let order = Table::order(&[SortKey::descending("c0")]);
        let mut sort = BatchSort::new(&table.schema(), &order, options).unwrap();
        batches.iter().try_for_each(|batch| sort.push(batch)).unwrap();
        let outcome = sort.finish(|_| {
            count += 1;
            false
        });
        assert!(matches!(outcome, Err(OocError::Cancelled)) && count == 1, "{count}");
        assert_eq!(memory.uses().total_bytes(), 0);
    }
    assert!(is_empty(&folder));
}

#[test]
fn dictionaries_grow_until_their_codes_end() {
    let folder = tempfile::tempdir().unwrap();
    let schema = {
        let texts: DictionaryArray<Int8Type> = ["a"].into_iter().collect();
        RecordBatch::try_from_iter([("c0", Arc::new(texts) as ArrayRef)]).unwrap().schema()
    };
    let batch = |numbers: std::ops::Range<u32>| {
        let texts: Vec<String> = numbers.map(|number| format!("{number}")).collect();
        let texts: DictionaryArray<Int8Type> = texts.iter().map(String::as_str).collect();
        RecordBatch::try_new(schema.clone(), vec![Arc::new(texts)]).unwrap()
    };
    let order = Table::order(&[SortKey::ascending("c0")]);
    let mut sort = BatchSort::new(&schema, &order, options(1, 1 << 20, &folder)).unwrap();
    sort.push(&batch(0..100)).unwrap();
    sort.push(&batch(50..128)).unwrap();
    let error = sort.push(&batch(127..129)).unwrap_err().to_string();
    assert!(error.contains("column c0: 129 values") && error.contains("cast"), "{error}");
}

#[test]
fn little_memory_and_full_folders_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let mut random = Random(9);
    let table = Table::of(&[(Kind::Int64, true), (Kind::Utf8, true)], 20_000, &mut random);
    let by = [SortKey::ascending("c1")];
    let batches = table.batches(&mut random);
    let error = sorted(&batches, &table, &by, options(2, 1000, &folder)).unwrap_err();
    assert!(matches!(error, OocError::Budget(_)), "{error}");
    let mut little = options(2, 900 << 10, &folder);
    little.spills = SpillFolder::new(folder.path(), 10_000, "raise the spill limit");
    let error = sorted(&batches, &table, &by, little).unwrap_err().to_string();
    assert!(error.contains("raise the spill limit"), "{error}");
    assert!(is_empty(&folder));
}
