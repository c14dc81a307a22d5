//! TPC-H as its users see it: the files through [`headrace_suites::generate`].
#![allow(clippy::unwrap_used)]

use std::{
    fs::{self, File},
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

use arrow_array::{
    RecordBatch,
    cast::AsArray,
    types::{Date32Type, Decimal32Type, Int32Type},
};
use arrow_ipc::reader::FileReader;
use arrow_schema::DataType;
use headrace_format::arrow::ArrowTable;
use headrace_suites::{GenerateOptions, Progress, Suite, SuiteError, Summary, generate};
use tempfile::tempdir;

/// Of lineitem three pieces, and record batches that do not end where pieces do.
fn several_pieces(out: &Path) -> GenerateOptions<'static> {
    GenerateOptions { rows_per_batch: 10_000, ..GenerateOptions::new(Suite::Tpch, 0.05, out) }
}

/// The record batches of a file through Arrow's own reader.
fn read(path: &Path) -> Vec<RecordBatch> {
    FileReader::try_new(File::open(path).unwrap(), None).unwrap().map(Result::unwrap).collect()
}

/// The sum of a decimal column in hundredths.
fn sum(batches: &[RecordBatch], column: &str) -> i128 {
    let column = |batch: &RecordBatch| batch.column_by_name(column).unwrap().clone();
    let values = |batch| column(batch).as_primitive::<Decimal32Type>().values().clone();
    batches.iter().flat_map(|batch| values(batch).to_vec()).map(i128::from).sum()
}

fn rows(summary: &Summary) -> Vec<(&str, u64)> {
    summary.manifest.tables.iter().map(|table| (table.name.as_str(), table.rows)).collect()
}

#[test]
fn data_of_this_version() {
    let dir = tempdir().unwrap();
    let summary = generate(&GenerateOptions::new(Suite::Tpch, 0.01, dir.path())).unwrap();
    let expected = [
        ("region", 5),
        ("nation", 25),
        ("supplier", 100),
        ("customer", 1_500),
        ("part", 2_000),
        ("partsupp", 8_000),
        ("orders", 15_000),
        ("lineitem", 60_175),
    ];
    assert_eq!(rows(&summary), expected);
    let table = |name: &str| read(&dir.path().join(format!("{name}.arrow")));
    let sums = [
        ("lineitem", "l_extendedprice", 215_218_976_047),
        ("lineitem", "l_quantity", 153_612_700),
        ("orders", "o_totalprice", 212_739_683_002),
        ("partsupp", "ps_supplycost", 395_743_738),
        ("part", "p_retailprice", 280_099_200),
        ("customer", "c_acctbal", 668_186_559),
        ("supplier", "s_acctbal", 40_093_000),
    ];
    let found = sums.map(|(name, column, _)| (name, column, sum(&table(name), column)));
    assert_eq!((Suite::Tpch.data_version(), found), (1, sums));
    // The first line that the specification's generator writes, which has the same at every scale
    // but for the keys.
    let lines = table("lineitem");
    let column = |name| lines[0].column_by_name(name).unwrap().clone();
    assert_eq!(column("l_shipdate").as_primitive::<Date32Type>().value(0), 9568);
    assert_eq!(column("l_orderkey").as_primitive::<Int32Type>().value(6), 2);
    assert_eq!(column("l_comment").as_string::<i32>().value(0), "egular courts above the");
    // Narrow columns are what the specification has.
    let lineitem = ArrowTable::open(&[dir.path().join("lineitem.arrow")]).unwrap();
    let is = |name| lineitem.schema().field_with_name(name).unwrap().data_type();
    assert_eq!(is("l_orderkey"), &DataType::Int64);
    assert_eq!(is("l_discount"), &DataType::Decimal128(15, 2));
}

#[test]
fn bytes_do_not_depend_on_threads_nor_rows_on_files() {
    let one = tempdir().unwrap();
    let reference = GenerateOptions { threads: 1, ..several_pieces(one.path()) };
    let summary = generate(&reference).unwrap();
    let many = tempdir().unwrap();
    generate(&GenerateOptions { threads: 3, ..several_pieces(many.path()) }).unwrap();
    for name in Suite::Tpch.tables() {
        let bytes = |dir: &Path| fs::read(dir.join(format!("{name}.arrow"))).unwrap();
        assert!(bytes(one.path()) == bytes(many.path()), "{name}");
    }
    let split = tempdir().unwrap();
    let in_files = generate(&GenerateOptions { fact_files: 2, ..several_pieces(split.path()) });
    let in_files = in_files.unwrap();
    assert_eq!(rows(&in_files), rows(&summary));
    let files: Vec<_> = in_files.manifest.tables[7].files.iter().map(|file| &file.path).collect();
    assert_eq!(files, ["lineitem/part-00000.arrow", "lineitem/part-00001.arrow"]);
    let parts: Vec<_> = files.iter().flat_map(|file| read(&split.path().join(file))).collect();
    let whole = read(&one.path().join("lineitem.arrow"));
    assert!(whole.len() > 3 && whole[0].num_rows() == 10_000);
    assert_eq!(sum(&parts, "l_extendedprice"), sum(&whole, "l_extendedprice"));
}

#[test]
fn rows_are_counted_before_they_are_made() {
    for scale in [0.001, 0.007] {
        let dir = tempdir().unwrap();
        let total = std::cell::Cell::new(0);
        let progress = |progress: Progress| total.set(progress.rows_total);
        let options = GenerateOptions::new(Suite::Tpch, scale, dir.path());
        let summary = generate(&GenerateOptions { progress: Some(&progress), ..options }).unwrap();
        assert_eq!(total.get(), summary.rows);
    }
}

#[test]
fn cancelling_leaves_no_file() {
    let parent = tempdir().unwrap();
    let out = parent.path().join("new/tpch");
    for cancel_at in [0, 5, 10_000, 400_000] {
        let cancel = AtomicBool::new(cancel_at == 0);
        let progress = |progress: Progress| {
            if progress.rows_done >= cancel_at {
                cancel.store(true, Ordering::Relaxed);
            }
        };
        let options = several_pieces(&out);
        let options =
            GenerateOptions { progress: Some(&progress), cancel: Some(&cancel), ..options };
        let result = generate(&options);
        assert!(matches!(result, Err(SuiteError::Cancelled)), "at {cancel_at}: {result:?}");
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0, "at {cancel_at}");
    }
}

#[test]
fn what_cannot_be_is_refused_and_nothing_written() {
    let dir = tempdir().unwrap();
    for scale in [f64::NAN, 0.0, -1.0, 20_000.0] {
        let out = dir.path().join("out");
        let error = generate(&GenerateOptions::new(Suite::Tpch, scale, &out)).unwrap_err();
        assert!(matches!(error, SuiteError::Scale { .. }), "{error}");
        assert!(!out.exists());
    }
    // A folder that cannot be made, whoever asks for it.
    let file = dir.path().join("file");
    fs::write(&file, b"precious").unwrap();
    let error = generate(&GenerateOptions::new(Suite::Tpch, 0.01, file.join("out"))).unwrap_err();
    assert!(error.to_string().contains("file/out"), "{error}");
    assert_eq!(fs::read(&file).unwrap(), b"precious");
    // The tables of the other suite have some of the same names.
    let other = dir.path().join("ssb");
    generate(&GenerateOptions::new(Suite::Ssb, 0.001, &other)).unwrap();
    let error = generate(&GenerateOptions::new(Suite::Tpch, 0.01, &other)).unwrap_err();
    assert!(matches!(error, SuiteError::NotOurs { .. }), "{error}");
    assert!(other.join("ssb.json").exists() && !other.join("region.arrow").exists());
}
