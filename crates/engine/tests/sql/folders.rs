//! Arrow files in folders of partitions: the answers of a table that has the keys as columns.

use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, Date32Array, Int64Array, RecordBatch, StringArray, UInt32Array,
};
use datafusion::arrow::compute::{cast, take_record_batch};
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::util::display::array_value_to_string;
use headrace_engine::{Processor, QueryReport, Session, SessionOptions, Settings};

use crate::tables;

const ROWS: usize = 2400;

fn session(processor: Processor, folder: &Path) -> Session {
    let settings = Settings { processor, ..Settings::default() };
    let session = Session::new(SessionOptions { settings, ..SessionOptions::default() }).unwrap();
    session.register_path(folder).unwrap();
    session
}

async fn run(session: &Session, sql: &str) -> (Vec<String>, QueryReport) {
    let query = session.sql(sql).await.unwrap_or_else(|e| panic!("{sql}: {e}"));
    let (batches, report) = query.collect().await.unwrap_or_else(|e| panic!("{sql}: {e}"));
    let row = |batch: &RecordBatch, row: usize| {
        let value = |column: &ArrayRef| match column.is_null(row) {
            true => "NULL".to_string(),
            false => array_value_to_string(column, row).unwrap(),
        };
        batch.columns().iter().map(value).collect::<Vec<_>>().join(",")
    };
    let rows = batches.iter().flat_map(|b| (0..b.num_rows()).map(move |i| row(b, i)));
    (rows.collect(), report)
}

/// The names of folders for a row: a number, a text or NULL, a date.
fn keys(row: usize) -> (i64, Option<&'static str>, i32) {
    let place = [Some("north"), Some("a/b=c %"), None, Some("Ωmega")][row / 7 % 4];
    (2020 + (row % 3) as i64, place, 19_000 + (row / 2 % 2) as i32)
}

fn flat() -> RecordBatch {
    let rows = 0..ROWS;
    let number: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.clone().map(|i| i as i64)));
    let text: ArrayRef =
        Arc::new(StringArray::from_iter_values(rows.clone().map(|i| format!("t{}", i % 50))));
    let code =
        cast(&text, &DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8)));
    let y: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.clone().map(|i| keys(i).0)));
    let place: ArrayRef = Arc::new(StringArray::from_iter(rows.clone().map(|i| keys(i).1)));
    let day: ArrayRef = Arc::new(Date32Array::from_iter_values(rows.map(|i| keys(i).2)));
    RecordBatch::try_from_iter_with_nullable([
        ("n", number, false),
        ("t", text, false),
        ("code", code.unwrap(), false),
        ("y", y, false),
        ("place", place, true),
        ("day", day, false),
    ])
    .unwrap()
}

fn escaped(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric();
    text.bytes()
        .map(|b| if plain(b) { char::from(b).into() } else { format!("%{b:02X}") })
        .collect()
}

/// The same rows twice: as one file, and with their last three columns as folders.
fn write(folder: &Path) {
    let flat = flat();
    tables::write(&folder.join("flat.arrow"), &flat, 500, true);
    let mut of_folder = std::collections::BTreeMap::<_, Vec<u32>>::new();
    (0..ROWS).for_each(|row| of_folder.entry(keys(row)).or_default().push(row as u32));
    for ((y, place, day), rows) in of_folder {
        let place = place.map_or("__HIVE_DEFAULT_PARTITION__".to_string(), escaped);
        let day = if day == 19_000 { "2022-01-08" } else { "2022-01-09" };
        let path = folder.join(format!("t/y={y}/place={place}/day={day}"));
        std::fs::create_dir_all(&path).unwrap();
        let rows = take_record_batch(&flat, &UInt32Array::from(rows)).unwrap();
        let rows = rows.project(&[0, 1, 2]).unwrap();
        let half = rows.num_rows() / 2;
        tables::write(&path.join("1.arrow"), &rows.slice(0, half), 30, true);
        tables::write(&path.join("2.arrow"), &rows.slice(half, rows.num_rows() - half), 30, true);
    }
}

/// Each over `T`; `pipeline`: that all of it is one.
const QUERIES: &[&str] = &[
    "select count(*), sum(n), count(place), min(y), max(y), min(day), max(place) from T",
    "select y, count(*), sum(n) from T group by y order by y",
    "select place, day, count(*), max(n) from T group by place, day order by place, day",
    "select y, code, count(*) from T where n % 3 = 0 group by y, code order by y, code",
    "select t, place, sum(y) from T group by t, place order by t, place",
    "select sum(n) from T where y = 2021",
    "select sum(n) from T where y = 2021 and n > 100",
    "select sum(n) from T where y = 2021 or n < 10",
    "select count(*) from T where place = 'a/b=c %' and day = date '2022-01-09'",
    "select count(*), min(n) from T where place <> 'north'",
    "select count(*), min(n) from T where place is null",
    "select count(*), min(n) from T where place like '%meg%' and code = 't7'",
    "select count(*), min(n) from T where place in ('north', 'x') and y in (2020, 2022)",
    "select count(*) from T where y = 1999",
    "select y, count(*) from T where y > 3000 group by y",
    "select sum(n) from T where y + n > 3000",
    "select sum(n) from T where case when place is null then n else y end > 2021",
    "select upper(place), count(distinct code) from T group by 1 order by 1",
    "select n, y, place, day from T where n % 100 = 7 order by n",
    "select n, y, place from T order by place desc, y, n desc limit 9",
    "select y, place from T group by y, place having count(*) > 3 order by y, place",
    "select distinct day from T order by day",
    "select name, count(*), sum(n) from T join (values (2020, 'a'), (2022, 'c')) d (k, name) on y = k
     group by name order by name",
    "select a.y, a.place, count(*) from T a join T b on a.place = b.place and a.y = b.y and a.n = b.n
     where b.y > 2020 group by a.y, a.place order by a.y, a.place",
    "select count(*) from T a where exists (select 1 from T b where b.y = a.y and b.n = 3)",
    "select count(*), sum(a.n) from T a left join T b on a.n = b.n and b.y = 2021 where b.n is null",
    "select extract(year from day) as year, count(*) from T group by 1",
    "select y, n from T where y = (select min(y) from T) and n < 20 order by n",
    "select avg(y), sum(y * 2), count(*) filter (where place = 'north') from T",
    "select place || '!' as p, min(t) from T where place > 'a' group by 1 order by 1",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn folders_are_columns_of_arrow_files() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path());
    let off = session(Processor::Off, dir.path());
    let cpu = session(Processor::Cpu, dir.path());
    for sql in QUERIES {
        let (expected, _) = run(&off, &sql.replace("T", "flat")).await;
        assert!(!expected.is_empty() || sql.contains("3000"), "{sql}");
        let of_folders = sql.replace("T", "t").replace("min(t)", "min(t.t)");
        assert_eq!(run(&off, &of_folders).await.0, expected, "off: {sql}");
        assert_eq!(run(&cpu, &of_folders).await.0, expected, "cpu: {sql}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn folders_stream_and_rule_files_out() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path());
    let session = session(Processor::Cpu, dir.path());
    run(&session, "set headrace.fallback = 'forbid'").await;
    let sql = "select place, count(*) from t where y = 2021 and place is not null and n > 5 group by place";
    let plan = run(&session, &format!("explain {sql}")).await.0.join("\n");
    assert!(plan.contains("12 of 48 files by their folders"), "{plan}");
    assert!(plan.contains("stream t [n, place]"), "the condition is met: {plan}");
    let (_, report) = run(&session, sql).await;
    assert_eq!(report.processor, "cpu");
    // Nothing of the others is needed, not even that they are there.
    let gone = dir.path().join("t/y=2020");
    std::fs::rename(&gone, dir.path().join("t/.gone")).unwrap();
    let (counted, _) = run(&session, "select count(*), sum(n) from t where y = 2021").await;
    let (expected, _) = run(&session, "select count(*), sum(n) from flat where y = 2021").await;
    assert_eq!(counted, expected);
}

/// A folder's name is no part of its files: they are the same under another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renamed_folders_are_other_values() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path());
    let session = session(Processor::Cpu, dir.path());
    for key in ["b.y", "b.place"] {
        let sql = format!(
            "select {key}, count(*), max(a.t), sum(a.y) from flat a join t b on a.n = b.n
             where b.n < 500 group by 1 order by 1"
        );
        let before = run(&session, &sql).await.0;
        assert_eq!(run(&session, &sql).await.0, before);
        for (from, to) in [("y=2020", "y=2019"), ("y=2021/place=north", "y=2021/place=nort")] {
            let t = dir.path().join("t");
            std::fs::rename(t.join(from), t.join(to)).unwrap();
            let after = run(&session, &sql).await.0;
            std::fs::rename(t.join(to), t.join(from)).unwrap();
            let is_of_key = (key == "b.y") == (from == "y=2020");
            assert_eq!(after != before, is_of_key, "{key} {from}: {after:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_takes_the_place_of_a_column_and_kinds_of_values_follow_all_files() {
    let dir = tempfile::tempdir().unwrap();
    let column = |values: Vec<i64>| -> ArrayRef { Arc::new(Int64Array::from(values)) };
    for (key, a) in [("1", 10), ("02", 20), ("x", 30)] {
        let path = dir.path().join(format!("t/k={key}/1.arrow"));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let rows = RecordBatch::try_from_iter([("k", column(vec![7])), ("a", column(vec![a]))]);
        tables::write(&path, &rows.unwrap(), 10, true);
    }
    let session = session(Processor::Cpu, dir.path());
    let sql = "select a, k from t where a > 0 order by a";
    assert_eq!(run(&session, sql).await.0, ["10,1", "20,02", "30,x"]);
    std::fs::remove_dir_all(dir.path().join("t/k=x")).unwrap();
    assert_eq!(run(&session, sql).await.0, ["10,1", "20,2"]);
    assert_eq!(run(&session, "select sum(a) from t where k < 2").await.0, ["10"]);
    std::fs::write(dir.path().join("t/k=1/2.arrow"), "ARROW1").unwrap();
    let (rows, report) = run(&session, sql).await;
    assert_eq!(rows, ["10,1", "20,2"]);
    assert!(report.notes.iter().any(|note| note.contains("1 file skipped: 2.arrow")), "{report:?}");
}

/// COPY writes the folders; what it writes is the table.
#[tokio::test(flavor = "multi_thread")]
async fn copy_writes_folders_of_arrow_files() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path());
    let session = session(Processor::Cpu, dir.path());
    let to = |name: &str| dir.path().join(name).display().to_string();
    let by = to("by");
    run(&session, &format!("COPY flat TO '{by}/' STORED AS ARROW PARTITIONED BY (y, place)")).await;
    let rows = "SELECT n, t, code, y, place, day FROM";
    let (expected, _) = run(&session, &format!("{rows} flat ORDER BY n")).await;
    let (written, _) = run(&session, &format!("{rows} '{by}/' ORDER BY n")).await;
    assert_eq!(expected.len(), ROWS);
    assert_eq!(written, expected);
    assert_eq!(std::fs::read_dir(dir.path().join("by")).unwrap().count(), 3);

    let one = to("one");
    run(&session, &format!("COPY flat TO '{one}/' STORED AS ARROW")).await;
    let (written, _) = run(&session, &format!("{rows} '{one}/' ORDER BY n")).await;
    assert_eq!(written, expected);
    let none = to("none");
    run(&session, &format!("COPY (SELECT * FROM flat WHERE n < 0) TO '{none}/' STORED AS ARROW"))
        .await;
    assert_eq!(
        run(&session, &format!("SELECT count(*), count(t) FROM '{none}/'")).await.0,
        ["0,0"]
    );

    for (wrong, cause) in [
        (format!("COPY flat TO '{by}/' STORED AS ARROW PARTITIONED BY (y)"), "no empty folder"),
        (
            format!(
                "COPY (SELECT 1 AS a, 1.5 AS b) TO '{}/' STORED AS ARROW PARTITIONED BY (b)",
                to("x")
            ),
            "its type is",
        ),
        (
            format!("COPY (SELECT 1 AS a) TO '{}/' STORED AS ARROW PARTITIONED BY (a)", to("x")),
            "no column is left",
        ),
        (
            format!(
                "COPY (SELECT n / (n - 7) AS a, y FROM flat) TO '{}/' STORED AS ARROW PARTITIONED BY (y)",
                to("x")
            ),
            "zero",
        ),
    ] {
        let error = match session.sql(&wrong).await {
            Ok(query) => query.collect().await.err().unwrap_or_else(|| panic!("{wrong}")),
            Err(error) => error,
        };
        assert!(error.to_string().contains(cause), "{wrong}: {error}");
    }
    let left = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let left: Vec<_> =
        left.filter(|name| name == "x" || name.to_string_lossy().starts_with('.')).collect();
    assert!(left.is_empty(), "{left:?}");
}
