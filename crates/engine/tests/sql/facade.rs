//! What the façade promises beside answers.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use datafusion::arrow::array::{ArrayRef, Int32Array};
use datafusion::arrow::record_batch::RecordBatch;
use futures::{StreamExt, TryStreamExt};
use headrace_engine::sql::effect::Effect;
use headrace_engine::{Processor, RunnerOptions, Session, SessionOptions, Settings};

use crate::tables;

fn numbers(rows: i32) -> RecordBatch {
    let column: ArrayRef = Arc::new(Int32Array::from((0..rows).collect::<Vec<_>>()));
    RecordBatch::try_from_iter([("n", column)]).unwrap()
}

pub fn cpu_session(limits: RunnerOptions) -> Session {
    let settings = Settings { processor: Processor::Cpu, ..Settings::default() };
    Session::new(SessionOptions { settings, limits }).unwrap()
}

fn with_numbers(folder: &Path, rows: i32) -> Session {
    let path = folder.join("numbers.arrow");
    tables::write(&path, &numbers(rows), 1 << 16, true);
    let session = cpu_session(RunnerOptions::default());
    session.register_arrow("numbers", &[path]).unwrap();
    session
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropping_a_stream_ends_its_race() {
    let folder = tempfile::tempdir().unwrap();
    let session = with_numbers(folder.path(), 3_000_000);
    session.sql("SET headrace.chunk_bytes = 65536").await.unwrap().collect().await.unwrap();
    let query = session.sql("SELECT n FROM numbers WHERE n >= 0").await.unwrap();
    {
        let mut stream = query.stream().unwrap();
        stream.next().await.unwrap().unwrap();
    }
    // The session works on; the abandoned race has not wedged anything.
    let (batches, _) = session
        .sql("SELECT count(*) FROM numbers WHERE n < 10")
        .await
        .unwrap()
        .collect()
        .await
        .unwrap();
    assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 1);
    assert!(query.report(0).pipelines.is_empty(), "an abandoned race reports nothing");
}

/// A race that hands out nothing before its end learns of a dropped stream by its token alone.
/// Who drops may be late once, but not every time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropping_a_stream_ends_a_race_that_emits_nothing() {
    const ROUNDS: usize = 50;
    let folder = tempfile::tempdir().unwrap();
    let session = with_numbers(folder.path(), 3_000_000);
    session.sql("SET headrace.chunk_bytes = 65536").await.unwrap().collect().await.unwrap();
    let trace = session.start_trace();
    let sql = "SELECT sum(n) FROM numbers WHERE n > 3";
    session.sql(sql).await.unwrap().collect().await.unwrap();
    let whole = trace.spans().len();
    for _ in 0..ROUNDS {
        let before = trace.spans().len();
        let query = session.sql(sql).await.unwrap();
        let idle = Arc::strong_count(session.runner());
        let mut stream = query.stream().unwrap();
        assert!(futures::poll!(stream.next()).is_pending());
        drop(stream);
        // The race's thread holds the runner.
        while Arc::strong_count(session.runner()) > idle {
            tokio::task::yield_now().await;
        }
        if trace.spans().len() - before < whole / 2 {
            return;
        }
    }
    panic!("{ROUNDS} abandoned races ran to their ends");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_ends_a_race_early() {
    let folder = tempfile::tempdir().unwrap();
    let session = with_numbers(folder.path(), 3_000_000);
    session.sql("SET headrace.chunk_bytes = 65536").await.unwrap().collect().await.unwrap();
    let query = session.sql("SELECT n FROM numbers WHERE n >= 0 LIMIT 5").await.unwrap();
    let (batches, report) = query.collect().await.unwrap();
    assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 5);
    let race = &report.pipelines[0].streamed.race;
    assert!(race.ended_early, "{race:?}");
    assert!(race.bytes_by_path.total() < 12_000_000, "{race:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_changed_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let session = with_numbers(folder.path(), 1000);
    tables::write(&folder.path().join("numbers.arrow"), &numbers(999), 1 << 16, true);
    for processor in ["cpu", "off"] {
        let set = format!("SET headrace.processor = '{processor}'");
        session.sql(&set).await.unwrap().collect().await.unwrap();
        let query = session.sql("SELECT sum(n) FROM numbers WHERE n > 3").await.unwrap();
        let error = query.collect().await.unwrap_err().to_string();
        assert!(error.contains("numbers.arrow"), "{processor}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_beyond_the_memory_limit_are_spilled_within_another_limit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("numbers.arrow");
    tables::write(&path, &numbers(1_000_000), 1 << 16, true);
    let spill_folder = tempfile::tempdir().unwrap();
    let sql = "SELECT n * 1000, count(*) FROM numbers GROUP BY 1";
    for spill_limit_bytes in [None, Some(100_000)] {
        let session = cpu_session(RunnerOptions {
            memory_limit_bytes: Some(16 << 20),
            spill_folder: Some(spill_folder.path().to_path_buf()),
            spill_limit_bytes,
            ..RunnerOptions::default()
        });
        session.register_arrow("numbers", std::slice::from_ref(&path)).unwrap();
        let answer = session.sql(sql).await.unwrap().collect().await;
        match (spill_limit_bytes, answer) {
            (None, Ok((batches, report))) => {
                assert_eq!(batches.iter().map(|b| b.num_rows()).sum::<usize>(), 1_000_000);
                assert!(report.pipelines[0].streamed.spilled_bytes > 1_000_000);
            }
            (Some(_), Err(error)) => {
                let error = error.to_string();
                assert!(error.contains("the limit is 100000"), "{error}");
            }
            (limit, answer) => panic!("{limit:?}: {:?}", answer.err()),
        }
        assert!(std::fs::read_dir(spill_folder.path()).unwrap().next().is_none());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forbid_names_the_part_that_no_pipeline_runs() {
    let folder = tempfile::tempdir().unwrap();
    let session = cpu_session(RunnerOptions::default());
    tables::register(&session, folder.path()).await;
    session.sql("SET headrace.fallback = 'forbid'").await.unwrap().collect().await.unwrap();
    let error = match session.sql("SELECT list FROM nested WHERE k > 1").await {
        Err(error) => error.to_string(),
        Ok(_) => panic!("planned"),
    };
    assert!(error.contains("forbid") && error.contains("column list"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reports_say_what_ran_and_why_not_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let session = with_numbers(folder.path(), 1000);
    let query = session.sql("SELECT count(*) FROM numbers WHERE n % 2 = 0").await.unwrap();
    let (_, report) = query.collect().await.unwrap();
    assert_eq!(report.processor, "cpu");
    assert_eq!(report.rows, 1);
    assert_eq!(report.bytes_by_path.total(), 4000);
    assert_eq!(report.pipelines[0].streamed.rows_in, 1000);
    assert!(report.planning_ms > 0.0 && report.planning_ms <= report.wall_ms);
    let sql = "SELECT count(*) FROM numbers WHERE sqrt(n) = 3";
    let (_, report) = session.sql(sql).await.unwrap().collect().await.unwrap();
    // Its rows are counted by a pipeline.
    assert_eq!(report.processor, "planner + cpu");
    assert!(report.why_not.iter().any(|reason| reason.contains("sqrt")), "{:?}", report.why_not);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_processor_refuses_goes_back_to_the_planner() {
    let folder = tempfile::tempdir().unwrap();
    let session = cpu_session(RunnerOptions::default());
    tables::register(&session, folder.path()).await;
    let sql = "SELECT count(*) FROM raw WHERE bytes IS NOT NULL";
    let (batches, report) = session.sql(sql).await.unwrap().collect().await.unwrap();
    let text = datafusion::arrow::util::pretty::pretty_format_batches(&batches).unwrap();
    assert!(text.to_string().contains("| 2 "), "{text}");
    assert_eq!(report.processor, "planner");
    assert!(report.why_not.iter().any(|reason| reason.contains("binary")), "{report:?}");
    session.sql("SET headrace.fallback = 'forbid'").await.unwrap().collect().await.unwrap();
    let error = session.sql(sql).await.unwrap().collect().await.unwrap_err().to_string();
    assert!(error.contains("forbid") && error.contains("binary"), "{error}");
}

async fn total(session: &Session, sql: &str) -> (String, bool) {
    let (batches, report) = session.sql(sql).await.unwrap().collect().await.unwrap();
    let text = datafusion::arrow::util::pretty::pretty_format_batches(&batches).unwrap();
    (text.to_string(), report.plan_cached)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plans_are_used_again_until_something_changes() {
    let folder = tempfile::tempdir().unwrap();
    let session = with_numbers(folder.path(), 1000);
    let sql = "SELECT sum(n) AS s FROM numbers WHERE n > 3 ORDER BY s";
    let (first, cached) = total(&session, sql).await;
    assert!(!cached);
    for _ in 0..3 {
        assert_eq!(total(&session, sql).await, (first.clone(), true));
    }
    // Other settings.
    session.sql("SET headrace.threads = 1").await.unwrap().collect().await.unwrap();
    assert_eq!(total(&session, sql).await, (first.clone(), false));
    assert_eq!(total(&session, sql).await, (first.clone(), true));
    // Another table of the same name.
    let path = folder.path().join("other.arrow");
    tables::write(&path, &numbers(10), 1 << 16, true);
    session.register_arrow("numbers", &[path]).unwrap();
    let (other, cached) = total(&session, sql).await;
    assert!(!cached);
    assert_ne!(other, first);
    // A plan that depends on the time is made anew.
    let timed = "SELECT count(*) FROM numbers WHERE n > 3 AND now() > '2020-01-01'";
    total(&session, timed).await;
    assert!(!total(&session, timed).await.1);
    // One without tables, which programs ask to see whether anybody answers.
    for (sql, is_kept) in [("SELECT 1", true), ("SELECT now()", false), ("SELECT random()", false)]
    {
        total(&session, sql).await;
        assert_eq!(total(&session, sql).await.1, is_kept, "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_beside_each_other_know_the_plans_of_their_settings() {
    let folder = tempfile::tempdir().unwrap();
    let session = with_numbers(folder.path(), 1000);
    let [other, third] = [session.beside(), session.beside()];
    let sql = "SELECT sum(n) AS s FROM numbers WHERE n > 3 ORDER BY s";
    let (first, cached) = total(&session, sql).await;
    assert!(!cached);
    assert_eq!(total(&other, sql).await, (first.clone(), true));
    // Another setting of one session takes no plan of the others away, and none of them takes its own.
    rows(&third, "SET headrace.threads = 1").await;
    assert_eq!(total(&third, sql).await, (first.clone(), false));
    for session in [&session, &other, &third] {
        assert_eq!(total(session, sql).await, (first.clone(), true));
    }
    // What EXECUTE means is the session's, and changes with what is prepared.
    for (session, nth) in [(&session, 1), (&other, 2), (&third, 3), (&session, 4)] {
        let prepared = format!("PREPARE p AS SELECT {nth} AS s FROM numbers LIMIT 1");
        let _ = session.sql("DEALLOCATE p").await;
        rows(session, &prepared).await;
        for _ in 0..2 {
            assert!(rows(session, "EXECUTE p").await.contains(&format!("| {nth} |")), "{nth}");
        }
    }
    rows(&session, "PREPARE d AS DELETE FROM numbers").await;
    assert_eq!(session.effect("EXECUTE d"), Effect::Writes);
    assert_eq!(session.effect("EXECUTE p"), Effect::Reads);
    // Another table of the name is seen by all.
    let path = folder.path().join("other.arrow");
    tables::write(&path, &numbers(10), 1 << 16, true);
    other.register_arrow("numbers", &[path]).unwrap();
    for session in [&session, &other, &third] {
        assert_ne!(total(session, sql).await.0, first);
    }
}

/// Runs of such a plan have a place for the subquery's value in common.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plans_with_subqueries_are_run_by_one_query_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let session = with_numbers(folder.path(), 1000);
    let sql = "SELECT sum(n) AS s FROM numbers WHERE n > (SELECT avg(n) FROM numbers)";
    let (first, cached) = total(&session, sql).await;
    assert!(!cached);
    assert_eq!(total(&session, sql).await, (first.clone(), true));
    let held = session.sql(sql).await.unwrap();
    let stream = held.stream().unwrap();
    drop(held);
    // What runs keeps its plan, whoever asks meanwhile has another one.
    assert_eq!(total(&session, sql).await, (first.clone(), false));
    let batches: Vec<_> = stream.try_collect().await.unwrap();
    assert_eq!(batches.iter().map(|batch| batch.num_rows()).sum::<usize>(), 1);
    assert_eq!(total(&session, sql).await, (first.clone(), true));
    // A table that only the subquery reads.
    let other = "SELECT sum(n) AS s FROM numbers WHERE n > (SELECT avg(n) FROM others)";
    let path = folder.path().join("others.arrow");
    tables::write(&path, &numbers(10), 1 << 16, true);
    session.register_arrow("others", std::slice::from_ref(&path)).unwrap();
    let (few, _) = total(&session, other).await;
    assert_eq!(total(&session, other).await, (few.clone(), true));
    tables::write(&path, &numbers(500), 1 << 16, true);
    session.register_arrow("others", &[path]).unwrap();
    let (many, cached) = total(&session, other).await;
    assert!(!cached && many != few);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_rows_of_an_order_are_found_again_by_the_same_plan() {
    let folder = tempfile::tempdir().unwrap();
    let session = with_numbers(folder.path(), 1000);
    let sql = "SELECT sum(n) AS s FROM numbers GROUP BY n % 7 ORDER BY s DESC LIMIT 1";
    let (first, _) = total(&session, sql).await;
    for _ in 0..3 {
        assert_eq!(total(&session, sql).await, (first.clone(), true));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_beside_each_other_share_tables_and_no_settings() {
    let folder = tempfile::tempdir().unwrap();
    let session = with_numbers(folder.path(), 10);
    let other = session.beside();
    let done = async |session: &Session, sql: &str| {
        session.sql(sql).await.unwrap().collect().await.unwrap();
    };
    done(&other, "SET headrace.threads = 1").await;
    assert_ne!(session.settings().threads, other.settings().threads);
    done(&other, "CREATE TABLE made AS SELECT n FROM numbers WHERE n < 5").await;
    done(&session, "CREATE VIEW shown AS SELECT n FROM made").await;
    for session in [&session, &other, &other.beside()] {
        assert!(total(session, "SELECT sum(n) FROM shown").await.0.contains("| 10 "));
        assert!(total(session, "SELECT sum(n) FROM numbers").await.0.contains("| 45 "));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trace_records_the_races_after_it_was_started() {
    let folder = tempfile::tempdir().unwrap();
    let session = with_numbers(folder.path(), 100_000);
    total(&session, "SELECT count(*) FROM numbers WHERE n > 3").await;
    let trace = session.start_trace();
    assert!(trace.spans().is_empty());
    total(&session, "SELECT count(*) FROM numbers WHERE n > 4").await;
    assert!(!trace.spans().is_empty());
    let mut json = Vec::new();
    trace.write_json(&mut json).unwrap();
    assert!(String::from_utf8(json).unwrap().contains("traceEvents"));
}

/// A join without an equality that finds nothing does not pause: it ends because nobody reads it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_join_that_nobody_reads_ends() {
    let session = cpu_session(RunnerOptions::default());
    let sql = "SELECT count(*) FROM generate_series(1, 4000000) AS a(x) JOIN generate_series(1, 4000000) AS b(y) \
               ON x * y < 0";
    let query = session.sql(sql).await.unwrap();
    let plan = Arc::downgrade(query.plan());
    let mut stream = query.stream().unwrap();
    assert!(futures::poll!(stream.next()).is_pending());
    // The runtime's threads all compute soon: its clock stands still, and this thread is its own.
    std::thread::sleep(Duration::from_millis(500));
    assert!(futures::poll!(stream.next()).is_pending(), "it takes hours");
    drop((stream, query));
    // Whoever computes holds the plan.
    let waited = Instant::now();
    while plan.strong_count() > 0 {
        if waited.elapsed() > Duration::from_secs(30) {
            // A runtime whose thread computes for hours does not end either.
            eprintln!("a join that nobody reads computes on");
            std::process::exit(1);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Rows of a statement as one text.
pub async fn rows(session: &Session, sql: &str) -> String {
    let (batches, _) = session.sql(sql).await.unwrap().collect().await.unwrap();
    datafusion::arrow::util::pretty::pretty_format_batches(&batches).unwrap().to_string()
}
