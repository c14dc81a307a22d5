//! Decimals that lie in 4 and 8 bytes are decimals like others: the same answers, types and pruning, of fewer bytes.

use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Decimal128Array, Int32Array, RecordBatch};
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::util::pretty::pretty_format_batches;
use headrace_engine::{Processor, RunnerOptions, Session, SessionOptions, Settings};
use headrace_format::arrow::{ArrowTable, ArrowWriter, WriterOptions};

const ROWS: i32 = 5000;

/// NULLs, negative values, and the largest of their types.
fn decimals(precision: u8, scale: i8) -> ArrayRef {
    let largest = 10_i128.pow(precision.into()) - 1;
    let value = |row: i32| match row % 11 {
        3 => None,
        5 if row < 60 => Some(largest),
        7 if row < 60 => Some(-largest),
        _ => Some((i128::from(row) * 7919) % 100_000 - 50_000),
    };
    let values = Decimal128Array::from_iter((0..ROWS).map(value));
    Arc::new(values.with_precision_and_scale(precision, scale).unwrap())
}

fn batch() -> RecordBatch {
    let columns: [(&str, ArrayRef); 5] = [
        ("id", Arc::new(Int32Array::from_iter_values(0..ROWS))),
        ("few", decimals(9, 2)),
        ("mid", decimals(15, 2)),
        ("many", decimals(18, 4)),
        ("most", decimals(30, 4)),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true)))
        .unwrap()
}

fn write(path: &Path, narrow_decimals: bool) -> u64 {
    let options = WriterOptions { rows_per_batch: 700, narrow_decimals, ..Default::default() };
    let batch = batch();
    let mut writer = ArrowWriter::create(path, &batch.schema(), options).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap().bytes
}

fn session(processor: Processor, folder: &Path) -> Session {
    let settings = Settings { processor, threads: 2, ..Settings::default() };
    let session =
        Session::new(SessionOptions { settings, limits: RunnerOptions::default() }).unwrap();
    session.register_path(folder).unwrap();
    session
}

const QUERIES: &[&str] = &[
    "select count(*), count(few), min(few), max(mid), sum(many) from T",
    "select sum(few * mid), sum(few + mid), sum(cast(many as decimal(30, 4)) - most) from T where id > 60",
    "select few, count(*), sum(mid) from T where id > 4000 group by few order by few nulls first limit 20",
    "select id, few, mid, many from T where mid between -10 and 25.5 and many <> 3 order by id",
    "select count(*), sum(a.id) from T a join T b on a.mid = b.mid and a.few <= b.few where b.id < 300",
    "select id from T where few is null and id < 50 order by id",
    "select avg(mid), avg(few), count(distinct many) from T where most > -100000",
    "select case when few > 100 then mid else many end as x, count(*) from T where id < 90 group by 1 order by 1",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn narrow_decimals_are_decimals() {
    let folder = tempfile::tempdir().unwrap();
    let (wide, narrow) = (folder.path().join("wide.arrow"), folder.path().join("narrow.arrow"));
    let (wide_bytes, narrow_bytes) = (write(&wide, false), write(&narrow, true));
    assert!(narrow_bytes * 10 < wide_bytes * 8, "{narrow_bytes} of {wide_bytes} bytes");
    // Files of one table may differ.
    std::fs::create_dir(folder.path().join("mixed")).unwrap();
    std::fs::copy(&wide, folder.path().join("mixed/1.arrow")).unwrap();
    std::fs::copy(&narrow, folder.path().join("mixed/2.arrow")).unwrap();
    std::fs::create_dir(folder.path().join("twice")).unwrap();
    std::fs::copy(&wide, folder.path().join("twice/1.arrow")).unwrap();
    std::fs::copy(&wide, folder.path().join("twice/2.arrow")).unwrap();
    let table = ArrowTable::open(std::slice::from_ref(&narrow)).unwrap();
    assert!(table.has_narrow_decimals());
    assert_eq!(table.schema().field(2).data_type(), &DataType::Decimal128(15, 2));

    let (off, cpu) =
        (session(Processor::Off, folder.path()), session(Processor::Cpu, folder.path()));
    for query in QUERIES {
        for (plain, other) in [("wide", "narrow"), ("twice", "mixed")] {
            let wanted = off.sql(&query.replace('T', plain)).await.unwrap().collect().await;
            let wanted = pretty_format_batches(&wanted.unwrap().0).unwrap().to_string();
            for session in [&off, &cpu] {
                let sql = query.replace('T', other);
                let (found, report) = session.sql(&sql).await.unwrap().collect().await.unwrap();
                assert_eq!(pretty_format_batches(&found).unwrap().to_string(), wanted, "{sql}");
                let is_pipeline = std::ptr::eq(session, &cpu);
                assert_eq!(!report.pipelines.is_empty(), is_pipeline, "{sql}: {report:?}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statistics_of_narrow_decimals_prune() {
    let folder = tempfile::tempdir().unwrap();
    let options = WriterOptions { rows_per_batch: 64, narrow_decimals: true, ..Default::default() };
    let values = Decimal128Array::from_iter_values((0..640).map(i128::from));
    let values: ArrayRef = Arc::new(values.with_precision_and_scale(12, 2).unwrap());
    let batch = RecordBatch::try_from_iter([("d", values)]).unwrap();
    let path = folder.path().join("t.arrow");
    let mut writer = ArrowWriter::create(&path, &batch.schema(), options).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    let cpu = session(Processor::Cpu, folder.path());
    let query = cpu.sql("select count(*) as n from t where d >= 6").await.unwrap();
    let (found, report) = query.collect().await.unwrap();
    assert!(pretty_format_batches(&found).unwrap().to_string().contains("| 40 |"));
    assert_eq!(report.pipelines[0].pruned_batches, 9, "{report:?}");
}
