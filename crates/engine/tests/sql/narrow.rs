//! Decimals that lie in 4 and 8 bytes, integers that lie in 1, 2 and 4, and what is packed in 1 to 4 are what they are: the
//! same answers, types and pruning, of fewer bytes.

use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, Date32Array, Decimal128Array, Int16Array, Int32Array, Int64Array, RecordBatch,
};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::arrow::util::pretty::pretty_format_batches;
use headrace_engine::{Processor, RunnerOptions, Session, SessionOptions, Settings};
use headrace_format::arrow::{
    ArrowTable, ArrowWriter, WriterOptions, narrow_schema, packed_schema,
};

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

/// More digits than the values have.
fn loose() -> ArrayRef {
    let value = |row: i32| (row % 17 != 2).then_some(i128::from(row * 31 % 50_000) - 25_000);
    let values = Decimal128Array::from_iter((0..ROWS).map(value));
    Arc::new(values.with_precision_and_scale(28, 2).unwrap())
}

fn batch() -> RecordBatch {
    let wide = |row: i32| match row % 13 {
        4 => None,
        6 if row < 60 => Some(i64::from(i32::MAX)),
        8 if row < 60 => Some(-i64::from(i32::MAX)),
        _ => Some(i64::from(row % 300)),
    };
    let tiny = |row: i32| (row % 19 != 3).then_some(row * 7 % 255 - 127);
    let short = |row: i32| match row % 23 {
        5 => None,
        7 if row < 60 => Some(i64::from(i16::MAX)),
        9 if row < 60 => Some(-i64::from(i16::MAX)),
        _ => Some(i64::from(row % 1000)),
    };
    let some = |row: i32, value: i64| (row % 29 != 4).then_some(value);
    let far = |row: i32| some(row, 3_000_000_000 + i64::from(row * 13));
    let third = |row: i32| some(row, i64::from(row) * 3300 - 8_000_000).map(|value| value as i32);
    let price = |row: i32| some(row, i64::from(row) * 2000 % 10_000_000 + 90_091).map(i128::from);
    let price = Decimal128Array::from_iter((0..ROWS).map(price));
    let columns: [(&str, ArrayRef); 16] = [
        ("far", Arc::new(Int64Array::from_iter((0..ROWS).map(far)))),
        ("third", Arc::new(Int32Array::from_iter((0..ROWS).map(third)))),
        ("price", Arc::new(price.with_precision_and_scale(15, 2).unwrap())),
        ("day", Arc::new(Date32Array::from_iter_values((0..ROWS).map(|row| 8035 + row % 2500)))),
        (
            "odd",
            Arc::new(Int16Array::from_iter_values((0..ROWS).map(|row| (row % 256 + 300) as i16))),
        ),
        ("key", Arc::new(Int64Array::from_iter_values((0..ROWS).map(i64::from)))),
        ("tiny", Arc::new(Int32Array::from_iter((0..ROWS).map(tiny)))),
        ("short", Arc::new(Int64Array::from_iter((0..ROWS).map(short)))),
        ("month", Arc::new(Int16Array::from_iter_values((0..ROWS).map(|row| (row % 12) as i16)))),
        ("id", Arc::new(Int32Array::from_iter_values(0..ROWS))),
        ("wide", Arc::new(Int64Array::from_iter((0..ROWS).map(wide)))),
        ("loose", loose()),
        ("few", decimals(9, 2)),
        ("mid", decimals(15, 2)),
        ("many", decimals(18, 4)),
        ("most", decimals(30, 4)),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true)))
        .unwrap()
}

fn write_as(path: &Path, schema: &Schema, rows_per_batch: usize, batch: &RecordBatch) -> u64 {
    let options = WriterOptions { rows_per_batch, ..Default::default() };
    let mut writer = ArrowWriter::create(path, schema, options).unwrap();
    writer.write(batch).unwrap();
    writer.finish().unwrap().bytes
}

/// How a table's columns lie.
#[derive(Clone, Copy)]
enum Lie {
    Wide,
    Narrow,
    /// From this much below the smallest values on.
    Packed(i128),
}

fn write(path: &Path, lie: Lie) -> u64 {
    let batch = batch();
    // Of decimals that have more digits than their values need, and of integers.
    let bounds = |field: &Field| match field.name().as_str() {
        "loose" => Some(-50_000..=50_000),
        "wide" => Some(i128::from(i32::MIN) + 1..=i32::MAX.into()),
        "tiny" | "month" => Some(-127..=127),
        "key" => Some(0..=ROWS.into()),
        "short" => Some(-i128::from(i16::MAX)..=i16::MAX.into()),
        _ => None,
    };
    let packed = |field: &Field| match field.name().as_str() {
        "far" => Some(3_000_000_000..=3_000_064_999),
        "third" => Some(-8_000_000..=8_500_000),
        "price" => Some(90_091..=10_090_090),
        "day" => Some(8035..=10_534),
        "odd" => Some(300..=555),
        "wide" => None,
        _ => bounds(field),
    };
    let schema = match lie {
        Lie::Wide => batch.schema().as_ref().clone(),
        Lie::Narrow => narrow_schema(&batch.schema(), bounds),
        Lie::Packed(below) => packed_schema(&batch.schema(), |field| {
            let bounds = packed(field)?;
            Some(*bounds.start() - below..=*bounds.end())
        }),
    };
    write_as(path, &schema, 700, &batch)
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
    "select count(*), count(wide), min(wide), max(wide), sum(wide), sum(loose), avg(loose) from T",
    "select wide, count(*), sum(loose) from T where wide between 5 and 2000 and loose > -100 group by wide order by wide",
    "select count(*), sum(b.wide) from T a join T b on a.wide = b.wide and a.loose <= b.loose where b.id < 300",
    "select id, wide + 4000000000 as x, loose * loose as y from T where wide > 250 or wide is null order by id limit 50",
    "select max(wide * wide) from T",
    "select count(*), count(tiny), min(tiny), max(tiny), sum(tiny), min(short), max(short), sum(short), sum(month) from T",
    "select id, tiny, short from T where tiny > 100 and short <= 300 order by id",
    "select count(*) from T where short between -40000 and 40000 and tiny >= -200 and wide < 9000000000",
    "select count(*) from T where short > 40000 or tiny < -200",
    "select count(*), sum(few) from T where few >= -12.5 and few < 100 and month in (1, 5, 11)",
    "select month, tiny, count(*) from T where month = 3 and id < 700 group by month, tiny order by tiny nulls first",
    "select count(*), sum(b.short), sum(b.tiny) from T a join T b on a.tiny = b.id and a.month = b.month",
    "select count(*), sum(b.tiny), sum(b.mid) from T a join T b on a.short = b.key where b.tiny between 0 and 90",
    "select distinct short * tiny from T where id < 300 order by 1 nulls last",
    "select count(*), sum(few) from T where few > 12.345 and few <= 399.9991",
    "select distinct wide from T where id < 200 order by 1 desc nulls last",
    "select min(far), max(far), sum(far), min(third), max(third), sum(third), min(price), max(price), sum(price), sum(odd) from T",
    "select id, far, third, price, day, odd from T where far between 3000000100 and 3000001000 or third > 8000000 order by id",
    "select count(*), sum(price * odd) from T where day between date '1993-01-01' and date '1993-12-31' and price < 50000",
    "select day, count(*), sum(third) from T where third >= -100000 and odd in (301, 302, 555) group by day order by day",
    "select count(*), sum(a.third), min(b.day) from T a join T b on a.odd = b.id and b.third < 0 and a.far is not null",
    "select count(*), sum(a.price) from T a join T b on a.day = b.day and a.far = b.far where b.id < 900",
    "select count(*), sum(id) from T where far > 2999999999 and third between -20000000 and 20000000 and day < date '2100-01-01'",
    "select count(*) from T where far < 100 or third > 9000000 or odd < 300 or price < 0",
    "select third, price from T where id % 1000 = 7 and (price > 70000.5 or price is null) order by 1, 2",
    "select case when few > 100 then mid else many end as x, count(*) from T where id < 90 group by 1 order by 1",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn narrow_decimals_are_decimals() {
    let folder = tempfile::tempdir().unwrap();
    let [wide, narrow, packed, lower] = ["wide", "narrow", "packed", "lower"]
        .map(|name| folder.path().join(format!("{name}.arrow")));
    let (wide_bytes, narrow_bytes) = (write(&wide, Lie::Wide), write(&narrow, Lie::Narrow));
    assert!(narrow_bytes * 10 < wide_bytes * 8, "{narrow_bytes} of {wide_bytes} bytes");
    let packed_bytes = write(&packed, Lie::Packed(0));
    assert!(packed_bytes * 10 < narrow_bytes * 9, "{packed_bytes} of {narrow_bytes} bytes");
    write(&lower, Lie::Packed(300));
    // Files of one table may differ.
    std::fs::create_dir(folder.path().join("mixed")).unwrap();
    std::fs::copy(&wide, folder.path().join("mixed/1.arrow")).unwrap();
    std::fs::copy(&narrow, folder.path().join("mixed/2.arrow")).unwrap();
    std::fs::create_dir(folder.path().join("twice")).unwrap();
    std::fs::copy(&wide, folder.path().join("twice/1.arrow")).unwrap();
    std::fs::copy(&wide, folder.path().join("twice/2.arrow")).unwrap();
    std::fs::create_dir(folder.path().join("based")).unwrap();
    std::fs::copy(&packed, folder.path().join("based/1.arrow")).unwrap();
    std::fs::copy(&lower, folder.path().join("based/2.arrow")).unwrap();
    let table = ArrowTable::open(std::slice::from_ref(&packed)).unwrap();
    for (name, bytes) in [("far", 2), ("third", 3), ("price", 3), ("day", 2), ("odd", 1)] {
        let lies = table.narrow_schema().field_with_name(name).unwrap().data_type().clone();
        assert_eq!(lies, DataType::FixedSizeBinary(bytes), "{name}");
        let (own, wide) = (table.schema(), batch().schema());
        assert_eq!(
            own.field_with_name(name).unwrap().data_type(),
            wide.field_with_name(name).unwrap().data_type()
        );
        assert!(own.field_with_name(name).unwrap().metadata().is_empty(), "{name}");
    }
    // What is packed from several bases is written as what it is.
    let based = ArrowTable::open(&[folder.path().join("based")]).unwrap();
    assert_eq!(based.narrow_schema().field_with_name("far").unwrap().data_type(), &DataType::Int64);
    let table = ArrowTable::open(std::slice::from_ref(&narrow)).unwrap();
    let lies =
        |name: &str| table.narrow_schema().field_with_name(name).unwrap().data_type().clone();
    let is = |name: &str| table.schema().field_with_name(name).unwrap().clone();
    for (name, own, narrow) in [
        ("mid", DataType::Decimal128(15, 2), DataType::Decimal64(15, 2)),
        ("loose", DataType::Decimal128(28, 2), DataType::Decimal32(9, 2)),
        ("wide", DataType::Int64, DataType::Int32),
        ("tiny", DataType::Int32, DataType::Int8),
        ("short", DataType::Int64, DataType::Int16),
        ("month", DataType::Int16, DataType::Int8),
        ("id", DataType::Int32, DataType::Int32),
    ] {
        assert_eq!((is(name).data_type(), lies(name)), (&own, narrow), "{name}");
        assert!(is(name).metadata().is_empty(), "{name}");
    }

    let (off, cpu) =
        (session(Processor::Off, folder.path()), session(Processor::Cpu, folder.path()));
    for query in QUERIES {
        for (plain, other) in [
            ("wide", "narrow"),
            ("wide", "packed"),
            ("wide", "lower"),
            ("twice", "mixed"),
            ("twice", "based"),
        ] {
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

#[test]
fn what_does_not_fit_is_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let larger = i64::from(i32::MAX) + 1;
    let integers: ArrayRef = Arc::new(Int64Array::from(vec![Some(larger), None]));
    let decimals = Decimal128Array::from(vec![Some(1_000_000_000), None]);
    let decimals: ArrayRef = Arc::new(decimals.with_precision_and_scale(15, 2).unwrap());
    for (name, column) in [("integers", integers), ("decimals", decimals)] {
        let batch = RecordBatch::try_from_iter_with_nullable([(name, column, true)]).unwrap();
        let bounds = |_: &Field| Some(0..=99);
        for schema in [
            narrow_schema(&batch.schema(), bounds),
            packed_schema(&batch.schema(), |_| Some(300..=400)),
        ] {
            let path = folder.path().join(name);
            let mut writer = ArrowWriter::create(&path, &schema, WriterOptions::default()).unwrap();
            let written = writer.write(&batch).and_then(|()| writer.finish());
            let error = written.unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
            assert!(!path.exists());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statistics_of_narrow_decimals_prune() {
    let folder = tempfile::tempdir().unwrap();
    let values = Decimal128Array::from_iter_values((0..640).map(i128::from));
    let values: ArrayRef = Arc::new(values.with_precision_and_scale(12, 2).unwrap());
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..640));
    let batch = RecordBatch::try_from_iter([("d", values), ("n", numbers)]).unwrap();
    let bounds = |_: &Field| Some(0..=640);
    for schema in [narrow_schema(&batch.schema(), bounds), packed_schema(&batch.schema(), bounds)] {
        prunes(folder.path(), &schema, &batch).await;
    }
}

async fn prunes(folder: &Path, schema: &Schema, batch: &RecordBatch) {
    write_as(&folder.join("t.arrow"), schema, 64, batch);
    let cpu = session(Processor::Cpu, folder);
    for condition in ["d >= 6", "n >= 600"] {
        let query = format!("select count(*) as n from t where {condition}");
        let (found, report) = cpu.sql(&query).await.unwrap().collect().await.unwrap();
        assert!(pretty_format_batches(&found).unwrap().to_string().contains("| 40 |"));
        assert_eq!(report.pipelines[0].streamed.pruned_batches, 9, "{report:?}");
    }
}
