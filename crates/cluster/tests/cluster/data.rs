//! Tables as files of both formats, and what one process makes of them.

use std::fs::File;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use datafusion::arrow::array::{
    ArrayRef, Date32Array, Decimal128Array, Float64Array, Int32Array, Int64Array, RecordBatch,
    StringArray,
};
use datafusion::parquet::arrow::ArrowWriter as ParquetWriter;
use datafusion::parquet::file::properties::WriterProperties;
use headrace_cli::ResultWriter;
use headrace_engine::{Session, SessionOptions};
use headrace_format::arrow::{ArrowWriter, WriterOptions};
use tempfile::TempDir;

use crate::programs::sorted;

pub const ROWS: i64 = 200_000;
const BATCH_ROWS: usize = 2_000;

/// Rows of facts from a number on.
fn facts(rows: std::ops::Range<i64>) -> RecordBatch {
    let of = |value: fn(i64) -> i64| rows.clone().map(value);
    let number = |id: i64| (id.wrapping_mul(2_654_435_761) >> 7) & 0xf_ffff;
    let floats = [0.0, -0.0, f64::NAN, -f64::NAN, 1.5, -7.25];
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", Arc::new(Int64Array::from_iter_values(rows.clone()))),
        (
            "few",
            Arc::new(Int32Array::from_iter(
                rows.clone().map(|id| (id % 11 != 0).then_some((id % 7) as i32)),
            )),
        ),
        (
            "many",
            Arc::new(Int64Array::from_iter_values(rows.clone().map(|id| number(id) % 50_000))),
        ),
        (
            "name",
            Arc::new(StringArray::from_iter_values(of(|id| id % 97).map(|n| format!("name {n}")))),
        ),
        (
            "price",
            Arc::new(
                Decimal128Array::from_iter_values(
                    rows.clone().map(|id| i128::from(number(id)) - 999),
                )
                .with_precision_and_scale(12, 2)
                .unwrap(),
            ),
        ),
        (
            "amount",
            Arc::new(Int64Array::from_iter_values(rows.clone().map(|id| number(id) % 1000))),
        ),
        (
            "day",
            Arc::new(Date32Array::from_iter_values(of(|id| id % 400).map(|n| 19_000 + n as i32))),
        ),
        (
            "float",
            Arc::new(Float64Array::from_iter_values(
                rows.clone().map(|id| floats[(id % 6) as usize]),
            )),
        ),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

fn dims() -> RecordBatch {
    let labels = ["red", "green", "blue", "red", "white"];
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("k", Arc::new(Int32Array::from_iter_values(0..5))),
        ("label", Arc::new(StringArray::from_iter_values(labels))),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

/// A folder of tables: facts in two files, dims, nothing.
pub struct Tables {
    pub arrow: TempDir,
    pub parquet: TempDir,
}

impl Tables {
    /// Those that tests read, made once.
    pub fn shared() -> &'static Self {
        static TABLES: OnceLock<Tables> = OnceLock::new();
        TABLES.get_or_init(Self::make)
    }

    /// New ones, to be changed.
    pub fn make() -> Self {
        let folders = || tempfile::tempdir().unwrap();
        let tables = Self { arrow: folders(), parquet: folders() };
        for (name, batch) in [
            ("facts/a", facts(0..ROWS / 4)),
            ("facts/b", facts(ROWS / 4..ROWS)),
            ("dims", dims()),
            ("nothing", dims().slice(0, 0)),
        ] {
            arrow(&tables.arrow.path().join(format!("{name}.arrow")), &batch);
            parquet(&tables.parquet.path().join(format!("{name}.parquet")), &batch);
        }
        tables
    }
}

fn arrow(path: &Path, batch: &RecordBatch) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let options = WriterOptions { rows_per_batch: BATCH_ROWS, ..WriterOptions::default() };
    let mut writer = ArrowWriter::create(path, &batch.schema(), options).unwrap();
    writer.write(batch).unwrap();
    writer.finish().unwrap();
}

fn parquet(path: &Path, batch: &RecordBatch) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(BATCH_ROWS));
    let file = File::create(path).unwrap();
    let mut writer =
        ParquetWriter::try_new(file, batch.schema(), Some(properties.build())).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
}

/// The answer of one process, with the lines in order.
pub fn answer(data: &Path, sql: &str) -> Vec<String> {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let text = runtime.block_on(async {
        let session = Session::new(SessionOptions::default()).unwrap();
        session.register_path(data).unwrap();
        let query = session.sql(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
        let schema = query.schema();
        let (batches, _) = query.collect().await.unwrap();
        let (mut writer, mut out) = (ResultWriter::new("csv", schema).unwrap(), Vec::new());
        batches.iter().for_each(|batch| writer.write(&mut out, batch).unwrap());
        writer.finish(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    });
    sorted(&text)
}
