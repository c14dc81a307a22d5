//! Arithmetic that does not fit fails, whatever runs it.

use headrace_engine::{Processor, Session, SessionOptions, Settings};

use crate::tables;

async fn error_or_value(session: &Session, sql: &str) -> String {
    let query = match session.sql(sql).await {
        Ok(query) => query,
        Err(error) => return error.to_string(),
    };
    match query.collect().await {
        Ok((batches, _)) => {
            datafusion::arrow::util::pretty::pretty_format_batches(&batches).unwrap().to_string()
        }
        Err(error) => error.to_string(),
    }
}

const OVERFLOWS: [&str; 15] = [
    "SELECT sum(DISTINCT l), sum(DISTINCT i) FROM limits WHERE l > 0",
    "SELECT 9223372036854775807 + 1",
    "SELECT -9223372036854775807 - 2",
    "SELECT 4611686018427387904 * 2",
    "SELECT sum(i) FROM (VALUES (9223372036854775807), (1)) AS v(i)",
    "SELECT i + i FROM limits",
    "SELECT i - arrow_cast(1, 'Int32') FROM limits WHERE i < 5",
    "SELECT l * 2 FROM limits",
    "SELECT -l FROM limits",
    "SELECT sum(l) FROM limits WHERE l > 0",
    "SELECT sum(w) FROM limits WHERE w > 0",
    "SELECT i % 1, sum(l) FROM limits WHERE l > 1 GROUP BY 1 HAVING count(*) >= 0",
    "SELECT max(l + 1) FROM limits",
    "SELECT count(*) FROM limits WHERE l + 1 > 0",
    "SELECT sum(l) OVER (ORDER BY i ROWS BETWEEN 3 PRECEDING AND CURRENT ROW) FROM limits WHERE l > 0",
];

const FITS: [(&str, &str); 8] = [
    ("SELECT sum(DISTINCT l) AS s, count(DISTINCT i), sum(DISTINCT w) FROM limits", "| 0 "),
    // The total passes through values that do not fit and ends in one that does.
    ("SELECT sum(l) AS s FROM limits WHERE l <> 1", "9223372036854775806"),
    ("SELECT sum(l) AS s FROM limits", "9223372036854775807"),
    ("SELECT sum(w) AS s FROM limits WHERE w <> 1", "99999999999999999999999999999999999999"),
    ("SELECT sum(d) AS s FROM limits", "51"),
    ("SELECT 9223372036854775806 + 1 AS s", "9223372036854775807"),
    // The branch that would overflow is not taken.
    ("SELECT max(CASE WHEN l < 10 THEN 0 ELSE 1 END) AS s FROM limits", "1"),
    ("SELECT sum(CASE WHEN l = 1 THEN l + 1 ELSE 0 END) AS s FROM limits", "2"),
];

async fn check(processor: Processor) {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings { processor, ..Settings::default() };
    let session = Session::new(SessionOptions { settings, ..SessionOptions::default() }).unwrap();
    tables::register(&session, folder.path()).await;
    for sql in OVERFLOWS {
        let answer = error_or_value(&session, sql).await;
        assert!(answer.contains("arithmetic overflow"), "{processor}: {sql}\n{answer}");
    }
    for (sql, expected) in FITS {
        let answer = error_or_value(&session, sql).await;
        assert!(answer.contains(expected), "{processor}: {sql}\n{answer}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn overflow_fails_by_the_planner() {
    check(Processor::Off).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn overflow_fails_on_the_cpu() {
    check(Processor::Cpu).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a GPU"]
async fn gpu_overflow_fails() {
    check(Processor::Cuda).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checked_operators_keep_their_names() {
    let folder = tempfile::tempdir().unwrap();
    let session = Session::new(SessionOptions::default()).unwrap();
    tables::register(&session, folder.path()).await;
    let query = session.sql("SELECT i + 1, sum(l * 2) FROM limits GROUP BY i + 1").await.unwrap();
    let schema = query.plan().schema();
    let names: Vec<_> = schema.fields().iter().map(|f| f.name().as_str()).collect();
    assert_eq!(names, ["limits.i + Int64(1)", "sum(limits.l * Int64(2))"]);
}
