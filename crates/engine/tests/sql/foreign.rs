//! Files as other programs write them: what they claim of their values, and how they name and measure them.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::array::*;
use datafusion::arrow::datatypes::{DataType, Field, Int32Type, Schema};
use datafusion::arrow::ipc::writer::{FileWriter, StreamWriter};
use datafusion::arrow::util::display::array_value_to_string;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::data_type::{Int96, Int96Type};
use datafusion::parquet::file::properties::WriterProperties;
use datafusion::parquet::file::writer::SerializedFileWriter;
use datafusion::parquet::schema::parser::parse_message_type;
use headrace_engine::{Processor, Session, SessionOptions, Settings};

fn session(processor: Processor) -> Session {
    let settings = Settings { processor, ..Settings::default() };
    Session::new(SessionOptions { settings, ..SessionOptions::default() }).unwrap()
}

/// Rows as text, values between commas.
async fn rows(session: &Session, sql: &str) -> Result<Vec<String>, String> {
    let query = session.sql(sql).await.map_err(|e| e.to_string())?;
    let (batches, _) = query.collect().await.map_err(|e| e.to_string())?;
    let row = |batch: &RecordBatch, row: usize| {
        let values = batch.columns().iter().map(|c| array_value_to_string(c, row).unwrap());
        values.collect::<Vec<_>>().join(",")
    };
    Ok(batches.iter().flat_map(|b| (0..b.num_rows()).map(move |i| row(b, i))).collect())
}

async fn row(session: &Session, sql: &str) -> String {
    rows(session, sql).await.unwrap_or_else(|e| panic!("{sql}: {e}")).join(" ")
}

fn write_parquet(path: &Path, batch: &RecordBatch, rows_per_group: usize) {
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(rows_per_group))
        .set_data_page_row_count_limit(2)
        .set_write_batch_size(1)
        .set_bloom_filter_enabled(true)
        .build();
    let file = File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
}

/// Groups of two: of NaN alone, with NaN, of both zeros, of both infinities, with NULL.
const FLOATS: [Option<f64>; 10] = [
    Some(f64::NAN),
    Some(f64::NAN),
    Some(1.5),
    Some(f64::NAN),
    Some(-0.0),
    Some(0.0),
    Some(f64::INFINITY),
    Some(f64::NEG_INFINITY),
    None,
    Some(2.0),
];

/// Bounds leave NaN out, and say 0 where the other zero is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn floats_are_never_what_a_file_claims_of_them() {
    let dir = tempfile::tempdir().unwrap();
    let doubles: ArrayRef = Arc::new(Float64Array::from(FLOATS.to_vec()));
    let singles: ArrayRef = Arc::new(Float32Array::from_iter(FLOATS.map(|f| f.map(|f| f as f32))));
    let numbers: ArrayRef = Arc::new(Int32Array::from_iter_values(0..10));
    let columns = [("f", doubles, true), ("g", singles, true), ("i", numbers, false)];
    let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
    for (name, rows) in [("1.parquet", 1), ("2.parquet", 2), ("all.parquet", 100)] {
        write_parquet(&dir.path().join(name), &batch, rows);
    }
    crate::tables::write(&dir.path().join("2.arrow"), &batch, 2, true);
    let asked = [
        ("select count(*) from t where x > 5", "4"),
        ("select count(*) from t where x > 'inf'::double", "3"),
        ("select count(*) from t where not (x <= 5)", "4"),
        ("select count(*) from t where x = 'NaN'::double", "3"),
        ("select count(*) from t where x <> 1.5", "8"),
        ("select count(*) from t where x = 0", "2"),
        ("select count(*) from t where x = -0.0", "2"),
        ("select count(*) from t where x >= 0 and x < 1", "2"),
        ("select count(*) from t where x < 0", "1"),
        ("select count(*) from t where x in (1.5, 2.0)", "2"),
        ("select count(*) from t where x in ('NaN'::double, 1.5)", "4"),
        ("select count(*) from t where x between -1 and 0", "2"),
        ("select count(*) from t where x is not null", "9"),
        ("select count(*) from t where x is null", "1"),
        ("select count(x) from t", "9"),
        ("select max(x) from t", "NaN"),
        ("select min(x) from t", "-inf"),
        ("select max(x) from t where i < 2", "NaN"),
        ("select min(x) from t where i < 2", "NaN"),
        ("select x from t where x is not null order by x desc limit 1", "NaN"),
        ("select i from t where x is not null order by x limit 1", "7"),
        ("select count(distinct x) from t", "6"),
    ];
    for name in ["1.parquet", "2.parquet", "all.parquet", "2.arrow"] {
        let path = dir.path().join(name);
        for processor in [Processor::Off, Processor::Cpu] {
            let session = session(processor);
            for column in ["f", "g"] {
                for (sql, wanted) in asked {
                    let table = format!("(select {column} as x, i from '{}') as t", path.display());
                    let sql = sql.replace(" t", &format!(" {table}"));
                    assert_eq!(row(&session, &sql).await, wanted, "{processor:?}: {sql}");
                }
            }
            let all = format!("select f, g from '{}' order by i", path.display());
            let wanted = FLOATS.map(|f| f.map_or(",".into(), |f| format!("{f:?},{f:?}")));
            assert_eq!(rows(&session, &all).await.unwrap(), wanted, "{processor:?}: {all}");
        }
    }
}

/// Cut bounds of texts are no texts, and no claim is a count.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn minima_maxima_and_counts_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let long = "x".repeat(200);
    let texts: ArrayRef = Arc::new(StringArray::from(vec![Some(long.as_str()), Some(&long), None]));
    let same: ArrayRef = Arc::new(Int64Array::from(vec![7, 7, 7]));
    let batch = RecordBatch::try_from_iter_with_nullable([("s", texts, true), ("i", same, true)]);
    let path = dir.path().join("t.parquet");
    write_parquet(&path, &batch.unwrap(), 10);
    let session = session(Processor::Off);
    let t = path.display();
    let sql =
        format!("select min(s) = max(s), length(max(s)), count(s), count(i), max(i) from '{t}'");
    assert_eq!(row(&session, &sql).await, "true,200,2,3,7");
    let plan = row(&session, &format!("explain select max(i), count(s) from '{t}'")).await;
    assert!(plan.contains("file_type=parquet"), "{plan}");
    let sql =
        format!("select count(*), count(i) filter (where s = '{long}') from '{t}' where i = 7");
    assert_eq!(row(&session, &sql).await, "3,2");
}

/// A value that has no text is said to have none, in its cell.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_summary_says_what_has_no_text() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.arrow");
    let ends = PrimitiveArray::<Int32Type>::from(vec![2, 3]);
    let runs = Int64Array::from(vec![Some(7), None]);
    let columns: Vec<(&str, ArrayRef, bool)> = vec![
        ("bytes", Arc::new(BinaryArray::from(vec![&b"\xff\x00"[..], &b"a"[..], &b"b"[..]])), true),
        (
            "fixed",
            Arc::new(
                FixedSizeBinaryArray::try_from_iter([*b"\xfe\x01", *b"ab", *b"cd"].iter()).unwrap(),
            ),
            true,
        ),
        ("time", Arc::new(Time32SecondArray::from(vec![1, 86_400, 5])), true),
        ("runs", Arc::new(RunArray::<Int32Type>::try_new(&ends, &runs).unwrap()), true),
    ];
    let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
    let mut writer = FileWriter::try_new(File::create(&path).unwrap(), &batch.schema()).unwrap();
    writer.write(&batch).and_then(|()| writer.finish()).unwrap();
    for processor in [Processor::Off, Processor::Cpu] {
        let summary = format!("summarize '{}'", path.display());
        let told = rows(&session(processor), &summary).await.unwrap();
        let parts = |row: &str| row.split(',').map(str::to_string).collect::<Vec<_>>();
        let told: Vec<_> = told.iter().map(|row| parts(row)).collect();
        let shown = |at: usize| {
            let row = &told[at];
            let end = row.len();
            (
                row[0].as_str(),
                row[end - 6].as_str(),
                row[end - 5].as_str(),
                row[end - 2].as_str(),
                row[end - 1].as_str(),
            )
        };
        assert_eq!(shown(0), ("bytes", "a", "\\xff00", "3", "0"));
        assert_eq!(shown(1), ("fixed", "ab", "\\xfe01", "3", "0"));
        assert_eq!((told[2][0].as_str(), told[2][2].as_str()), ("time", "00:00:01"));
        assert!(told[2].iter().any(|cell| cell.contains("no text: ")), "{told:?}");
        assert_eq!(shown(3), ("runs", "7", "7", "2", "1"));
        let count = format!("select count(runs), count(*) from '{}'", path.display());
        assert_eq!(row(&session(processor), &count).await, "2,3");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn columns_of_one_name_are_told_apart_in_every_format() {
    let dir = tempfile::tempdir().unwrap();
    let field = |name: &str, data_type| Field::new(name, data_type, true);
    let schema = Schema::new(vec![
        field("a", DataType::Int32),
        field("a", DataType::Utf8),
        field("b", DataType::Int32),
    ]);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int32Array::from(vec![1, 2])),
        Arc::new(StringArray::from(vec!["x", "y"])),
        Arc::new(Int32Array::from(vec![5, 6])),
    ];
    let batch = RecordBatch::try_new(Arc::new(schema), columns).unwrap();
    write_parquet(&dir.path().join("t.parquet"), &batch, 1);
    let file = |name: &str| File::create(dir.path().join(name)).unwrap();
    let mut writer = FileWriter::try_new(file("t.arrow"), &batch.schema()).unwrap();
    writer.write(&batch).and_then(|()| writer.finish()).unwrap();
    let mut writer = StreamWriter::try_new(file("t.arrows"), &batch.schema()).unwrap();
    writer.write(&batch).and_then(|()| writer.finish()).unwrap();
    std::fs::write(dir.path().join("t.csv"), "a,a,b\n1,x,5\n2,y,6\n").unwrap();
    for processor in [Processor::Off, Processor::Cpu] {
        let session = session(processor);
        for name in ["t.parquet", "t.arrow", "t.arrows", "t.csv"] {
            let t = dir.path().join(name);
            let asked = |sql: &str| sql.replace(" t", &format!(" '{}'", t.display()));
            let all = rows(&session, &asked("select * from t order by a")).await.unwrap();
            assert_eq!(all, ["1,x,5", "2,y,6"], "{name}");
            let sum = asked("select sum(a), sum(b), max(a_1) from t where a_1 = 'y' and b > 5");
            assert_eq!(row(&session, &sum).await, "2,6,y", "{name}");
        }
    }
}

/// A day of Julius and nanoseconds, as Spark writes moments: those of years after 2262, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timestamps_of_96_bits_reach_every_year() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.parquet");
    let schema = Arc::new(parse_message_type("message m { required int96 t; }").unwrap());
    let file = File::create(&path).unwrap();
    let mut writer = SerializedFileWriter::new(file, schema, Arc::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    let moment = |day: u32, ns: u64| {
        let mut moment = Int96::new();
        moment.set_data(ns as u32, (ns >> 32) as u32, day);
        moment
    };
    let moments = [moment(5_373_484, 0), moment(2_384_428, 5_000), moment(2_440_588, 1_000_000)];
    column.typed::<Int96Type>().write_batch(&moments, None, None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();
    let session = session(Processor::Off);
    let all = format!("select t from '{}' order by t", path.display());
    let wanted = ["1816-03-29T00:00:00.000005", "1970-01-01T00:00:00.001", "9999-12-31T00:00:00"];
    assert_eq!(rows(&session, &all).await.unwrap(), wanted);
    let late =
        format!("select count(*) from '{}' where t > '2300-01-01'::timestamp", path.display());
    assert_eq!(row(&session, &late).await, "1");
}

async fn rows_of_copy(session: &Session, copy: &str) -> u64 {
    row(session, copy).await.parse().unwrap()
}

/// NULL is the name of a folder of its own in every format, and is read again as NULL.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn folders_of_null_are_null() {
    let dir = tempfile::tempdir().unwrap();
    let session = session(Processor::Off);
    let keys = [
        ("cast(null as int)", "0", "7"),
        ("cast(null as varchar)", "''", "a/b %=é"),
        ("cast(null as date)", "date '1970-01-01'", "2024-02-29"),
        ("cast(null as boolean)", "false", "true"),
    ];
    for (at, (null, empty, other)) in keys.into_iter().enumerate() {
        for format in ["parquet", "csv", "json", "arrow"] {
            let folder = dir.path().join(format!("{format}{at}"));
            let to = folder.display();
            let third = null.replace("null", &format!("'{other}'"));
            let copy = format!(
                "copy (select * from (values (1, {null}), (2, {empty}), (3, {third})) v(i, k)) \
                 to '{to}' stored as {format} partitioned by (k)"
            );
            assert_eq!(rows_of_copy(&session, &copy).await, 3, "{copy}");
            assert!(folder.join("k=__HIVE_DEFAULT_PARTITION__").is_dir(), "{copy}");
            let nulls = format!("select i from '{to}/' where k is null");
            assert_eq!(row(&session, &nulls).await, "1", "{copy}");
            let others =
                format!("select i, cast(k as varchar) from '{to}/' where k is not null order by i");
            let empty = empty.trim_start_matches("date ").trim_matches('\'');
            let wanted = [format!("2,{empty}"), format!("3,{other}")];
            assert_eq!(rows(&session, &others).await.unwrap(), wanted, "{copy}");
        }
    }
    // A file of no rows has no value of its folder.
    let to = dir.path().join("by");
    for (year, rows) in [(2024, "true"), (2025, "false")] {
        let folder = to.join(format!("year={year}"));
        std::fs::create_dir_all(&folder).unwrap();
        let copy = format!("copy (select 1 as a where {rows}) to '{}/x.parquet'", folder.display());
        rows_of_copy(&session, &copy).await;
    }
    let years = format!("select max(year), count(year) from '{}/'", to.display());
    assert_eq!(row(&session, &years).await, "2024,1");
    let taken = format!(
        "copy (select 1 as i, '__HIVE_DEFAULT_PARTITION__' as k) to '{}' stored as csv partitioned by (k)",
        dir.path().join("taken").display()
    );
    let error = rows(&session, &taken).await.unwrap_err();
    assert!(error.contains("would be read as NULL") && error.contains("hint: "), "{error}");
    assert!(!dir.path().join("taken").exists());
}
