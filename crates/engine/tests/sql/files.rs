//! Files and folders as tables, and what statements write.

use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Float64Array, Int32Array, Int64Array, StringArray};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::arrow::util::display::array_value_to_string;
use headrace_engine::{Processor, Session, SessionOptions, Settings};

use crate::tables;

fn session() -> Session {
    let settings = Settings { processor: Processor::Cpu, ..Settings::default() };
    Session::new(SessionOptions { settings, ..SessionOptions::default() }).unwrap()
}

fn of(folder: &Path) -> Session {
    let session = session();
    session.register_path(folder).unwrap();
    session
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

fn put(folder: &Path, path: &str, text: &str) {
    let path = folder.join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

fn put_arrow(folder: &Path, path: &str, column: ArrayRef) {
    let path = folder.join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    tables::write(&path, &RecordBatch::try_from_iter([("a", column)]).unwrap(), 10, true);
}

fn ints(values: &[i32]) -> ArrayRef {
    Arc::new(Int32Array::from(values.to_vec()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_query_sees_the_files_as_they_are() {
    let dir = tempfile::tempdir().unwrap();
    put_arrow(dir.path(), "t/1.arrow", ints(&[1, 2]));
    put(dir.path(), "c/1.csv", "a\n1\n");
    let session = of(dir.path());
    let sum = "SELECT sum(a) FROM t WHERE a > 0";
    let of_csv = "SELECT sum(a) FROM c";
    assert_eq!(rows(&session, sum).await.unwrap(), ["3"]);
    assert_eq!(rows(&session, of_csv).await.unwrap(), ["1"]);
    let cached = session.sql(sum).await.unwrap().collect().await.unwrap().1.plan_cached;
    assert!(cached, "nothing has changed");
    put_arrow(dir.path(), "t/2.arrow", ints(&[10]));
    put(dir.path(), "c/2.csv", "b,a\nx,10\n");
    assert_eq!(rows(&session, sum).await.unwrap(), ["13"]);
    assert_eq!(rows(&session, of_csv).await.unwrap(), ["11"]);
    // Replaced, by rename.
    put_arrow(dir.path(), "t/1.arrow", ints(&[100]));
    assert_eq!(rows(&session, sum).await.unwrap(), ["110"]);
    std::fs::remove_file(dir.path().join("t/2.arrow")).unwrap();
    assert_eq!(rows(&session, sum).await.unwrap(), ["100"]);
    let by_path = format!("SELECT sum(a) FROM '{}/t' WHERE a > 0", dir.path().display());
    let (_, report) = session.sql(&by_path).await.unwrap().collect().await.unwrap();
    assert_eq!(report.processor, "cpu", "pipelines stream it, too");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_with_a_table_is_its_own_error() {
    let dir = tempfile::tempdir().unwrap();
    put(dir.path(), "bad.arrow", "no Arrow file at all");
    put(dir.path(), "a.csv", "x\n1\n");
    put(dir.path(), "a.json", "{\"x\": 2}\n");
    put(dir.path(), "b.csv", "x\n1\n");
    put_arrow(dir.path(), "two/1.arrow", ints(&[1]));
    put_arrow(dir.path(), "two/2.arrow", Arc::new(Float64Array::from(vec![1.0])));
    let session = of(dir.path());
    assert_eq!(rows(&session, "SELECT x FROM b").await.unwrap(), ["1"]);
    for (sql, named) in [
        ("SELECT * FROM bad", ["bad.arrow", "hint: "]),
        ("SELECT * FROM a", ["a.csv", "a.json"]),
        ("EXPLAIN SELECT count(*) FROM b, bad", ["bad.arrow", "hint: "]),
        ("SELECT * FROM two", ["2.arrow", "column a"]),
    ] {
        let error = rows(&session, sql).await.unwrap_err();
        assert!(named.iter().all(|part| error.contains(part)), "{sql}: {error}");
    }
    let known = "SELECT count(*) FROM information_schema.columns WHERE table_schema = 'public'";
    assert_eq!(rows(&session, known).await.unwrap(), ["1"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitions_are_columns_and_prune_files() {
    let dir = tempfile::tempdir().unwrap();
    put(dir.path(), "t/y=2024/d=2024-01-31/c=a%2Fb/1.csv", "v\n1\n");
    put(dir.path(), "t/y=2025/d=2025-01-31/c=__HIVE_DEFAULT_PARTITION__/1.csv", "v\n2\n");
    let session = of(dir.path());
    let all = rows(&session, "SELECT v, y, d, c FROM t ORDER BY v").await.unwrap();
    assert_eq!(all, ["1,2024,2024-01-31,a/b", "2,2025,2025-01-31,"]);
    assert_eq!(rows(&session, "SELECT count(c), count(*) FROM t").await.unwrap(), ["1,2"]);
    assert_eq!(rows(&session, "SELECT v FROM t WHERE d > date '2024-06-01'").await.unwrap(), ["2"]);
    assert_eq!(rows(&session, "SELECT v FROM t WHERE c IS NULL AND v < 9").await.unwrap(), ["2"]);
    // What is not wanted is not looked at again.
    put(dir.path(), "t/y=2026/d=2026-01-31/c=x/1.csv", "v\n3\n");
    let plan = rows(&session, "EXPLAIN SELECT v FROM t WHERE y = 2026").await.unwrap().join("\n");
    assert!(plan.contains("y=2026") && !plan.contains("y=2024"), "{plan}");
    put(dir.path(), "t/y=2026/4.csv", "v\n4\n");
    let error = rows(&session, "SELECT v FROM t").await.unwrap_err();
    assert!(error.contains("give all files of a table the same partitions"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parquet_columns_are_found_by_name_and_widened() {
    let dir = tempfile::tempdir().unwrap();
    let session = of(dir.path());
    let p = dir.path().join("p");
    std::fs::create_dir_all(&p).unwrap();
    for (i, select) in [
        "SELECT arrow_cast(1, 'Int32') AS a, 'x' AS b",
        "SELECT 'y' AS b, arrow_cast(5000000000, 'Int64') AS a",
        "SELECT arrow_cast(3, 'Int16') AS a, 2.5 AS c",
    ]
    .iter()
    .enumerate()
    {
        let copy = format!("COPY ({select}) TO '{}/{i}.parquet'", p.display());
        rows(&session, &copy).await.unwrap();
    }
    let session = of(dir.path());
    let all = rows(&session, "SELECT a, b, c FROM p ORDER BY a").await.unwrap();
    assert_eq!(all, ["1,x,", "3,,2.5", "5000000000,y,"]);
    let counts = "SELECT count(*), count(a), count(b), count(c), min(a), max(a) FROM p";
    assert_eq!(rows(&session, counts).await.unwrap(), ["3,3,2,1,1,5000000000"]);
    assert_eq!(rows(&session, "SELECT b FROM p WHERE a > 100").await.unwrap(), ["y"]);
    assert_eq!(rows(&session, "SELECT count(*) FROM p WHERE c IS NULL").await.unwrap(), ["2"]);
    let copy = format!("COPY (SELECT 'text' AS a) TO '{}/3.parquet'", p.display());
    rows(&session, &copy).await.unwrap();
    let error = rows(&session, "SELECT a FROM p").await.unwrap_err();
    assert!(error.contains("0.parquet") && error.contains("3.parquet"), "{error}");
    assert!(error.contains("column a"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_of_batches_are_tables() {
    let dir = tempfile::tempdir().unwrap();
    let a: ArrayRef = Arc::new(Int64Array::from_iter_values(0..1000));
    let b: ArrayRef = Arc::new(StringArray::from_iter_values((0..1000).map(|i| i.to_string())));
    let batch = RecordBatch::try_from_iter([("a", a), ("b", b)]).unwrap();
    let mut bytes = Vec::new();
    let schema = batch.schema();
    let mut writer =
        datafusion::arrow::ipc::writer::StreamWriter::try_new(&mut bytes, &schema).unwrap();
    (0..3).for_each(|_| writer.write(&batch).unwrap());
    writer.finish().unwrap();
    drop(writer);
    std::fs::write(dir.path().join("s.arrow"), &bytes).unwrap();
    std::fs::write(dir.path().join("cut.arrows"), &bytes[..bytes.len() / 2]).unwrap();
    let session = of(dir.path());
    let sql = "SELECT sum(a), count(*), max(b) FROM s WHERE a > 0";
    assert_eq!(rows(&session, sql).await.unwrap(), ["1498500,2997,999"]);
    let error = rows(&session, "SELECT sum(a) FROM cut").await.unwrap_err();
    assert!(error.contains("cut.arrows"), "{error}");
}

/// Every value is read as one thread would read it, wherever blocks end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_text_files_are_read_in_blocks() {
    let dir = tempfile::tempdir().unwrap();
    let filler = "x".repeat(200);
    let rows_total = 60_000;
    let csv: String =
        (0..rows_total).map(|i| format!("{i},\"{filler}\n\"\"{i}\"\"\"\r\n")).collect();
    put(dir.path(), "c.csv", &format!("a,b\r\n{csv}"));
    let json: String =
        (0..rows_total).map(|i| format!("{{\"a\":{i},\n\"b\":\"{filler}\"}},")).collect();
    put(dir.path(), "j.json", &format!("[{}]", json.trim_end_matches(',')));
    let session = of(dir.path());
    let total: u64 = (0..rows_total).sum();
    for table in ["c", "j"] {
        let sql = format!(
            "SELECT count(*), sum(a), count(DISTINCT a), min(length(b)) >= 200 FROM {table}"
        );
        let expected = format!("{rows_total},{total},{rows_total},true");
        assert_eq!(rows(&session, &sql).await.unwrap(), [expected], "{table}");
    }
    let quoted = "SELECT b FROM c WHERE a = 59999";
    assert_eq!(rows(&session, quoted).await.unwrap(), [format!("{filler}\n\"59999\"")]);
    assert_eq!(rows(&session, "SELECT count(*) FROM c LIMIT 1").await.unwrap(), ["60000"]);
    assert_eq!(rows(&session, "SELECT a FROM j LIMIT 1").await.unwrap(), ["0"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_with_a_table_is_told_however_it_is_named() {
    let dir = tempfile::tempdir().unwrap();
    put(dir.path(), "Bad.csv", "");
    let session = of(dir.path());
    for sql in ["select * from bad", "from BAD", "summarize bad", "explain select a from bad"] {
        let error = rows(&session, sql).await.unwrap_err();
        assert!(error.contains("Bad.csv: it is empty"), "{sql}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_says_nothing_is_told_which_ones_do() {
    let dir = tempfile::tempdir().unwrap();
    put(dir.path(), "notes.txt", "a\n1\n");
    let sql = format!("select * from '{}/notes.txt'", dir.path().display());
    let error = rows(&session(), &sql).await.unwrap_err();
    for suffix in
        ["parquet", "csv", "tsv", "json", "jsonl", "ndjson", "arrow", "feather", "ipc", "arrows"]
    {
        assert!(error.contains(&format!(".{suffix}")), "{suffix}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_of_many_columns() {
    let dir = tempfile::tempdir().unwrap();
    let line = |value: &dyn Fn(usize) -> String| (0..3000).map(value).collect::<Vec<_>>().join(",");
    let head = line(&|i| format!("c{i}"));
    let rows_of: Vec<String> = (0..500).map(|row| line(&|i| (i + row).to_string())).collect();
    put(dir.path(), "t.csv", &format!("{head}\n{}\n", rows_of.join("\n")));
    let session = of(dir.path());
    let sql = "select count(*), sum(c0), max(c2999) from t";
    assert_eq!(rows(&session, sql).await.unwrap(), ["500,124750,3498"]);
}
