//! Tables sorted beside a plain sort of their rows.
#![allow(clippy::unwrap_used)]

#[path = "sort_table/batches.rs"]
mod batches;
#[path = "sort_table/support.rs"]
mod support;

use std::fs;
use std::time::Duration;

use headrace_ooc::sort::table::{SortKey, TableSortJob, plan_table_sort, sort_table};
use headrace_ooc::{OocError, Options, Processor};
use support::{Home, Kind, Random, Table};

fn options(threads: usize, memory_limit_bytes: Option<u64>) -> Options {
    Options {
        processor: Processor::Cpu,
        threads: Some(threads),
        memory_limit_bytes,
        ..Options::default()
    }
}

/// Bytes for which no table of the tests is too large in one pass, and for which it is.
const ENOUGH_BYTES: u64 = 64 << 20;

#[test]
fn tables_of_all_types_are_sorted_as_plain_rows_are() {
    let mut passes = [0; 3];
    for seed in 0..300 {
        let mut random = Random(seed);
        let table = Table::random(&mut random, 400);
        let home = Home::new(&table, &mut random);
        let job = home.job(table.random_keys(&mut random), &mut random);
        let threads = 1 + random.below(4) as usize;
        let largest = home.largest_batch_bytes();
        for limit_bytes in [ENOUGH_BYTES, 6 * largest + (130 << 10)] {
            let report = sort_table(&job, &options(threads, Some(limit_bytes))).unwrap();
            passes[report.plan.passes as usize] += 1;
            assert_eq!(report.plan.rows, table.rows() as u64);
            assert!(report.report.host_peak_bytes <= limit_bytes);
            home.check(&table, &job, &format!("seed {seed}, limit {limit_bytes}"));
        }
    }
    assert!(passes[1] > 300, "{passes:?}");
}

#[test]
fn tables_larger_than_memory_are_sorted_by_way_of_temporary_files() {
    let mut divided_again = 0;
    for seed in 1000..1060 {
        let mut random = Random(seed);
        let table = Table::random(&mut random, 12_000);
        let home = Home::new(&table, &mut random);
        let job = home.job(table.random_keys(&mut random), &mut random);
        let threads = 1 + random.below(3) as usize;
        let limit_bytes = 4 * home.largest_batch_bytes() + (200 << 10);
        let options = options(threads, Some(limit_bytes));
        let plan = plan_table_sort(&job, &options).unwrap();
        let report = sort_table(&job, &options);
        let report = report.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert_eq!(plan, report.plan);
        assert_eq!(plan.passes == 2, report.report.temporary_bytes > 0, "seed {seed}");
        assert!(report.report.host_peak_bytes <= limit_bytes);
        divided_again += u32::from(report.stages.iter().any(|stage| stage.name == "divide again"));
        home.check(&table, &job, &format!("seed {seed}"));
    }
    assert!(divided_again > 5, "{divided_again}");
}

#[test]
fn equal_keys_are_not_divided_for_ever() {
    let mut random = Random(5);
    let mut table = Table::of(&[(Kind::Int64, false), (Kind::Utf8, true)], 30_000, &mut random);
    for (same, limit_bytes) in
        [(1, 300 << 10), (2, 300 << 10), (1, ENOUGH_BYTES), (3, ENOUGH_BYTES)]
    {
        table.fill(0, |row| support::Value::Int(row as i128 * 7 % same));
        let home = Home::new(&table, &mut random);
        let job = home.job(vec![SortKey::descending("c0")], &mut random);
        let report = sort_table(&job, &options(2, Some(limit_bytes))).unwrap();
        assert_eq!(report.plan.passes, if limit_bytes == ENOUGH_BYTES { 1 } else { 2 });
        home.check(&table, &job, &format!("{same} keys"));
    }
}

#[test]
fn a_table_without_rows_stays_one() {
    let mut random = Random(6);
    let table = Table::of(&[(Kind::Int32, true), (Kind::Dictionary8, true)], 0, &mut random);
    let home = Home::new(&table, &mut random);
    let job = home.job(vec![SortKey::ascending("c1")], &mut random);
    sort_table(&job, &options(2, None)).unwrap();
    home.check(&table, &job, "no rows");
}

/// A table that is sorted in two passes, its folder and the job.
fn two_passes(seed: u64) -> (Table, Home, TableSortJob, Options) {
    let mut random = Random(seed);
    let kinds = [(Kind::Int64, true), (Kind::Utf8, true), (Kind::Float64, false)];
    let table = Table::of(&kinds, 20_000, &mut random);
    let home = Home::new(&table, &mut random);
    let job = home.job(vec![SortKey::ascending("c1"), SortKey::ascending("c0")], &mut random);
    let limit_bytes = 4 * home.largest_batch_bytes() + (200 << 10);
    (table, home, job, options(2, Some(limit_bytes)))
}

#[test]
fn a_cancelled_sort_leaves_nothing() {
    let mut cancelled = 0;
    for seed in 0..60 {
        let (table, home, job, options) = two_passes(seed);
        let token = options.token.clone();
        let delay =
            Duration::from_micros(Random(seed).below(if seed % 2 == 0 { 4000 } else { 60_000 }));
        let outcome = std::thread::scope(|scope| {
            scope.spawn(move || {
                std::thread::sleep(delay);
                token.cancel();
            });
            sort_table(&job, &options)
        });
        match outcome {
            Ok(_) => home.check(&table, &job, "not cancelled"),
            Err(OocError::Cancelled) => {
                cancelled += 1;
                home.check_nothing_left();
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert!(cancelled > 20, "{cancelled}");
}

#[test]
fn too_little_temporary_space_is_an_error_that_leaves_nothing() {
    let (table, home, mut job, options) = two_passes(77);
    let needed = sort_table(&job, &options).unwrap().report.temporary_bytes;
    fs::remove_file(&job.output).unwrap();
    for share in [0, 1, needed / 20, needed / 8] {
        job.temporary_limit_bytes = Some(share);
        let error = sort_table(&job, &options).unwrap_err().to_string();
        assert!(error.contains("raise the limit of temporary files"), "{error}");
        home.check_nothing_left();
    }
    job.temporary_limit_bytes = Some(needed * 2);
    sort_table(&job, &options).unwrap();
    home.check(&table, &job, "enough");
    fs::remove_file(&job.output).unwrap();
    job.temporary_folder = Some("/nowhere/at all".into());
    assert!(sort_table(&job, &options).unwrap_err().to_string().contains("/nowhere/at all"));
    home.check_nothing_left();
}

#[test]
fn too_little_memory_is_an_error_that_leaves_nothing() {
    let (_, home, job, mut options) = two_passes(78);
    for limit_bytes in [0, 1, 1000, 20_000] {
        options.memory_limit_bytes = Some(limit_bytes);
        let error = sort_table(&job, &options).unwrap_err();
        assert!(error.to_string().contains("raise the memory limit"), "{error}");
        home.check_nothing_left();
    }
}

#[test]
fn damaged_files_are_errors_or_other_values_and_never_worse() {
    let mut errors = 0;
    for seed in 0..120 {
        let (_, home, job, mut options) = two_passes(seed % 4);
        let mut random = Random(seed);
        let files = home.files();
        let file = &files[random.below(files.len() as u64) as usize];
        let mut bytes = fs::read(file).unwrap();
        if seed % 10 == 0 {
            bytes.truncate(random.below(bytes.len() as u64) as usize);
        } else {
            let (at, bit) = (random.below(bytes.len() as u64) as usize, random.below(8));
            bytes[at] ^= 1 << bit;
        }
        fs::write(file, bytes).unwrap();
        if seed % 3 == 0 {
            options.memory_limit_bytes = Some(ENOUGH_BYTES);
        }
        if sort_table(&job, &options).is_err() {
            errors += 1;
            home.check_nothing_left();
        }
    }
    assert!(errors > 10, "{errors}");
}

#[test]
fn what_contradicts_itself_is_refused() {
    let mut random = Random(8);
    let table = Table::of(&[(Kind::Int32, true), (Kind::List, true)], 50, &mut random);
    let home = Home::new(&table, &mut random);
    let mut refused = |by: Vec<SortKey>, why: &str| {
        let error = sort_table(&home.job(by, &mut random), &options(1, None)).unwrap_err();
        assert!(
            matches!(error, OocError::Usage { .. }) && error.to_string().contains(why),
            "{error}"
        );
        home.check_nothing_left();
    };
    refused(vec![], "no column");
    refused(vec![SortKey::ascending("nobody")], "there is no column nobody");
    refused(vec![SortKey::ascending("c1")], "have no order");
    refused(vec![SortKey::ascending("c0"), SortKey::descending("c0")], "twice");
}

#[test]
fn keys_are_read_from_text() {
    let key = |text: &str| text.parse::<SortKey>();
    let nulls = |key: SortKey, nulls_first| SortKey { nulls_first: Some(nulls_first), ..key };
    assert_eq!(key("a"), Ok(SortKey::ascending("a")));
    assert_eq!(key("a:b:desc"), Ok(SortKey::descending("a:b")));
    assert_eq!(key("a:desc:nulls-last"), Ok(nulls(SortKey::descending("a"), false)));
    assert_eq!(key("a:nulls-first"), Ok(nulls(SortKey::ascending("a"), true)));
    assert_eq!(key("a:DESC"), Ok(SortKey::ascending("a:DESC")));
    assert!(key("").is_err() && key(":desc").is_err());
}
