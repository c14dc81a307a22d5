//! Generated directories: equal bytes, whole or not at all.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    fs::{self, File},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};

use arrow_array::RecordBatch;
use arrow_ipc::reader::FileReader;
use headrace_suites::ssb::{Generator, Table};
use headrace_suites::{GenerateOptions, Progress, Suite, SuiteError, generate, read_manifest};
use tempfile::tempdir;

/// Small batches, so that even a small scale has many of them.
fn options(scale: f64, out: &Path) -> GenerateOptions<'static> {
    GenerateOptions { rows_per_batch: 1000, ..GenerateOptions::new(Suite::Ssb, scale, out) }
}

/// All files below a directory by relative path, hidden ones included.
fn contents(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut pending = vec![dir.to_path_buf()];
    while let Some(folder) = pending.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                pending.push(path);
            } else {
                let name = path.strip_prefix(dir).unwrap().to_path_buf();
                files.insert(name, fs::read(&path).unwrap());
            }
        }
    }
    files
}

/// Whether a file's columns are the generator's, in whatever width they lie.
fn are_equal(found: &RecordBatch, expected: &RecordBatch) -> bool {
    let pairs = found.columns().iter().zip(expected.columns());
    found.num_columns() == expected.num_columns()
        && pairs.into_iter().all(|(found, expected)| {
            arrow_cast::cast(found, expected.data_type()).unwrap().as_ref() == expected.as_ref()
        })
}

/// The record batches of a file through Arrow's own reader.
fn read(path: &Path) -> Vec<RecordBatch> {
    FileReader::try_new(File::open(path).unwrap(), None).unwrap().map(Result::unwrap).collect()
}

#[test]
fn bytes_do_not_depend_on_the_number_of_threads() {
    let reference = tempdir().unwrap();
    generate(&GenerateOptions { threads: 1, ..options(0.01, reference.path()) }).unwrap();
    let reference = contents(reference.path());
    let names: Vec<_> = reference.keys().map(|path| path.to_str().unwrap()).collect();
    let expected = [
        "customer.arrow", "date.arrow", "lineorder.arrow", "part.arrow", "ssb.json",
        "supplier.arrow",
    ];
    assert_eq!(names, expected);
    for threads in [2, 3, 8, 0] {
        let dir = tempdir().unwrap();
        generate(&GenerateOptions { threads, ..options(0.01, dir.path()) }).unwrap();
        assert!(contents(dir.path()) == reference, "{threads} threads");
    }
}

#[test]
fn files_hold_the_generators_rows() {
    let dir = tempdir().unwrap();
    let options = options(0.01, dir.path());
    let summary = generate(&options).unwrap();
    let data = Generator::new(0.01, options.seed).unwrap();
    for table in Table::ALL {
        let batches = read(&dir.path().join(format!("{}.arrow", table.name())));
        let mut row = 0;
        for batch in &batches {
            let rows = batch.num_rows() as u64;
            assert!(are_equal(batch, &data.batch(table, row..row + rows).unwrap()));
            row += rows;
            assert!(rows == 1000 || row == data.rows(table));
        }
        assert_eq!(row, data.rows(table));
        let entry =
            summary.manifest.tables.iter().find(|entry| entry.name == table.name()).unwrap();
        assert_eq!(entry.rows, row);
    }
    assert_eq!(summary.rows, Table::ALL.iter().map(|&table| data.rows(table)).sum::<u64>());
}

#[test]
fn lineorder_in_several_files_has_the_same_rows() {
    let dir = tempdir().unwrap();
    let options = GenerateOptions { fact_files: 4, threads: 3, ..options(0.01, dir.path()) };
    let summary = generate(&options).unwrap();
    let lineorder = summary.manifest.tables.last().unwrap();
    assert_eq!((lineorder.name.as_str(), lineorder.files.len()), ("lineorder", 4));
    assert!(!dir.path().join("lineorder.arrow").exists());
    let data = Generator::new(0.01, options.seed).unwrap();
    let mut row = 0;
    for file in &lineorder.files {
        let first = row;
        for batch in read(&dir.path().join(&file.path)) {
            let rows = batch.num_rows() as u64;
            let expected = data.batch(Table::Lineorder, row..row + rows).unwrap();
            assert!(are_equal(&batch, &expected));
            row += rows;
        }
        assert_eq!(row - first, file.rows);
    }
    assert_eq!(row, lineorder.rows);
}

#[test]
fn a_complete_directory_is_left_alone() {
    let dir = tempdir().unwrap();
    let first = generate(&options(0.001, dir.path())).unwrap();
    assert!(!first.reused);
    let modified = |name: &str| fs::metadata(dir.path().join(name)).unwrap().modified().unwrap();
    let before = modified("lineorder.arrow");
    let second = generate(&options(0.001, dir.path())).unwrap();
    assert!(second.reused);
    assert_eq!((second.rows, second.bytes), (first.rows, first.bytes));
    assert_eq!(before, modified("lineorder.arrow"));
    assert_eq!(read_manifest(Suite::Ssb, dir.path()).unwrap().unwrap(), first.manifest);
}

#[test]
fn a_directory_of_other_parameters_is_an_error() {
    let dir = tempdir().unwrap();
    generate(&options(0.001, dir.path())).unwrap();
    let before = contents(dir.path());
    for other in [
        options(0.002, dir.path()),
        GenerateOptions { seed: 43, ..options(0.001, dir.path()) },
        GenerateOptions { fact_files: 2, ..options(0.001, dir.path()) },
    ] {
        let error = generate(&other).unwrap_err();
        assert!(matches!(error, SuiteError::Occupied { .. }), "{error}");
        assert!(error.to_string().contains("scale 0.001, seed 42"), "{error}");
        assert!(contents(dir.path()) == before);
    }
}

#[test]
fn a_damaged_directory_is_made_anew() {
    let dir = tempdir().unwrap();
    generate(&options(0.001, dir.path())).unwrap();
    let whole = contents(dir.path());
    fs::remove_file(dir.path().join("part.arrow")).unwrap();
    assert!(!generate(&options(0.001, dir.path())).unwrap().reused);
    assert!(contents(dir.path()) == whole);
    File::options().write(true).open(dir.path().join("date.arrow")).unwrap().set_len(100).unwrap();
    assert!(!generate(&options(0.001, dir.path())).unwrap().reused);
    assert!(contents(dir.path()) == whole);
}

#[test]
fn foreign_files_are_never_replaced() {
    let dir = tempdir().unwrap();
    fs::write(dir.path().join("customer.arrow"), b"precious").unwrap();
    let error = generate(&options(0.001, dir.path())).unwrap_err();
    assert!(matches!(error, SuiteError::NotOurs { .. }), "{error}");
    let left = contents(dir.path());
    assert_eq!(left.len(), 1);
    assert_eq!(left[Path::new("customer.arrow")], b"precious");
}

#[test]
fn an_interrupted_run_is_repeated() {
    let dir = tempdir().unwrap();
    // What a killed process leaves: the marker, finished files, none of them listed.
    fs::write(dir.path().join(".ssb-unfinished"), b"").unwrap();
    fs::create_dir(dir.path().join("lineorder")).unwrap();
    fs::write(dir.path().join("lineorder/part-00007.arrow"), b"old").unwrap();
    fs::write(dir.path().join("date.arrow"), b"old").unwrap();
    let summary = generate(&options(0.001, dir.path())).unwrap();
    assert!(!summary.reused);
    let files = contents(dir.path());
    assert_eq!(files.len(), 6, "{:?}", files.keys());
}

#[test]
fn cancelling_leaves_no_file() {
    let parent = tempdir().unwrap();
    let out = parent.path().join("new/ssb");
    for cancel_at in [0, 1, 2557, 2857, 30_000] {
        let cancel = AtomicBool::new(cancel_at == 0);
        let progress = |progress: Progress| {
            if progress.rows_done >= cancel_at {
                cancel.store(true, Ordering::Relaxed);
            }
        };
        let options = GenerateOptions {
            progress: Some(&progress),
            cancel: Some(&cancel),
            fact_files: 2,
            threads: 2,
            ..options(0.01, &out)
        };
        let result = generate(&options);
        assert!(matches!(result, Err(SuiteError::Cancelled)), "at {cancel_at}: {result:?}");
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0, "at {cancel_at}");
    }
    // And the next run is not disturbed.
    generate(&options(0.001, &out)).unwrap();
}

#[test]
fn cancelling_spares_what_was_there() {
    let dir = tempdir().unwrap();
    fs::write(dir.path().join("notes.txt"), b"mine").unwrap();
    let cancel = AtomicBool::new(false);
    let progress = |_: Progress| cancel.store(true, Ordering::Relaxed);
    let options = GenerateOptions {
        progress: Some(&progress),
        cancel: Some(&cancel),
        ..options(0.01, dir.path())
    };
    assert!(matches!(generate(&options), Err(SuiteError::Cancelled)));
    assert_eq!(contents(dir.path()).into_keys().collect::<Vec<_>>(), [Path::new("notes.txt")]);
}

#[test]
fn a_failing_write_is_an_error_that_names_the_file() {
    let dir = tempdir().unwrap();
    // A folder where a file should go.
    fs::create_dir(dir.path().join("part.arrow")).unwrap();
    fs::write(dir.path().join(".ssb-unfinished"), b"").unwrap();
    let error = generate(&options(0.001, dir.path())).unwrap_err();
    assert!(error.to_string().contains("part.arrow"), "{error}");
    assert!(!dir.path().join("ssb.json").exists());
}

#[test]
fn progress_ascends_to_the_totals() {
    let dir = tempdir().unwrap();
    let seen = RefCell::new(Vec::new());
    let progress = |progress: Progress| seen.borrow_mut().push(progress);
    let options =
        GenerateOptions { progress: Some(&progress), fact_files: 3, ..options(0.01, dir.path()) };
    let summary = generate(&options).unwrap();
    let seen = seen.into_inner();
    assert!(seen.len() > 60);
    assert!(seen.windows(2).all(|pair| pair[0].rows_done < pair[1].rows_done));
    assert!(seen.windows(2).all(|pair| pair[0].bytes <= pair[1].bytes));
    let last = seen.last().unwrap();
    assert_eq!((last.rows_done, last.rows_total), (summary.rows, summary.rows));
    assert!(last.bytes <= summary.bytes && last.bytes > summary.bytes / 2);
    assert_eq!((seen[0].table, last.table), ("date", "lineorder"));
}

#[test]
fn senseless_options_are_refused() {
    let dir = tempdir().unwrap();
    let out = dir.path().join("ssb");
    for bad in [
        options(f64::NAN, &out),
        options(0.0, &out),
        GenerateOptions { rows_per_batch: 0, ..options(0.01, &out) },
        GenerateOptions { rows_per_batch: 1 << 25, ..options(0.01, &out) },
        GenerateOptions { fact_files: 5000, ..options(0.01, &out) },
        GenerateOptions { threads: 5000, ..options(0.01, &out) },
    ] {
        let error = generate(&bad).unwrap_err();
        assert!(matches!(error, SuiteError::Scale { .. } | SuiteError::Option { .. }), "{error}");
        assert!(!out.exists());
    }
}
