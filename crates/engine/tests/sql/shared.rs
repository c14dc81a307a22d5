//! Groups that a query asks for several times, and totals of whole partitions, which are such groups.

use datafusion::arrow::util::pretty::pretty_format_batches;
use headrace_engine::{Processor, RunnerOptions, Session, SessionOptions, Settings};

use crate::tables;

/// A session with tables in a folder.
async fn session(memory_bytes: Option<u64>) -> (Session, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings { processor: Processor::Cpu, threads: 2, ..Settings::default() };
    let limits = RunnerOptions { memory_limit_bytes: memory_bytes, ..RunnerOptions::default() };
    let session = Session::new(SessionOptions { settings, limits }).unwrap();
    tables::register(&session, folder.path()).await;
    (session, folder)
}

async fn ask(session: &Session, sql: &str) -> String {
    let (batches, _) = session.sql(sql).await.unwrap().collect().await.unwrap();
    pretty_format_batches(&batches).unwrap().to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn totals_of_whole_partitions_are_joins_where_that_pays() {
    let (session, _folder) = session(None).await;
    let groups = "(SELECT f_color, f_dim, count(*) n FROM fact GROUP BY f_color, f_dim)";
    let joined = async |over: &str, from: &str| {
        let plan = ask(&session, &format!("EXPLAIN SELECT *, {over} FROM {from}")).await;
        !plan.contains("WindowAggExec") && !plan.contains(" with windows ")
    };
    for (over, from) in [
        ("sum(f_id) OVER (PARTITION BY f_color)", "fact"),
        ("count(*) OVER (PARTITION BY f_color, f_day)", "fact WHERE f_id > 3"),
        ("max(f_id) OVER (PARTITION BY f_dim + 1)", "fact"),
        ("avg(n) OVER (PARTITION BY f_color)", groups),
        (
            "min(n) OVER (PARTITION BY f_color ORDER BY n ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)",
            groups,
        ),
    ] {
        assert!(joined(over, from).await, "{over} of {from}");
    }
    for (over, from) in [
        ("sum(f_id) OVER (PARTITION BY f_color ORDER BY f_id)", "fact"),
        ("count(*) FILTER (WHERE f_id > 7) OVER (PARTITION BY f_color)", "fact"),
        ("first_value(f_id) OVER (PARTITION BY f_color)", "fact"),
        ("array_agg(f_id) OVER (PARTITION BY f_color)", "fact"),
        (
            "sum(n) OVER (PARTITION BY f_color)",
            "(SELECT *, f_id AS n FROM fact WHERE random() < 0.5)",
        ),
        ("count(*) OVER (PARTITION BY p_score)", "people"),
        ("count(*) OVER (PARTITION BY cast(random() * 3 AS int))", "fact"),
        // Rows of joins, or the first ones, would be made twice.
        ("sum(f_id) OVER (PARTITION BY d_name)", "fact JOIN dim ON f_dim = d_id"),
        ("sum(n) OVER (PARTITION BY f_color)", "(SELECT * FROM fact, (SELECT 1 n) LIMIT 9)"),
    ] {
        assert!(!joined(over, from).await, "{over} of {from}");
    }
}

/// Groups of a table that are read twice.
fn twice(table: &str) -> String {
    format!(
        "WITH g AS (SELECT k, sum(v) AS v, count(*) AS n FROM '{table}' GROUP BY k) \
         SELECT count(*), sum(a.v), sum(b.n) FROM g a JOIN g b ON a.k = b.k + 1 WHERE a.v > 10"
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_that_several_read_are_held_or_made_again() {
    const ROWS: u64 = 400_000;
    for (memory_bytes, is_held) in [(1 << 30, true), (48 << 20, false)] {
        let (session, folder) = session(Some(memory_bytes)).await;
        let table = folder.path().join("g.arrow").display().to_string();
        let rows = format!("generate_series(1, {ROWS}) AS t(i)");
        ask(&session, &format!("COPY (SELECT i AS k, i % 1000 AS v FROM {rows}) TO '{table}'"))
            .await;
        let sql = twice(&table);
        let plan = ask(&session, &format!("EXPLAIN ANALYZE {sql}")).await;
        assert_eq!(plan.matches(&format!("] {ROWS} rows, ")).count(), 1, "{plan}");
        assert_eq!(plan.contains(&format!("{ROWS} rows, host memory")), is_held, "{plan}");
        let of_pipelines = ask(&session, &sql).await;
        ask(&session, "SET headrace.processor = 'off'").await;
        assert_eq!(ask(&session, &sql).await, of_pipelines);
    }
}
