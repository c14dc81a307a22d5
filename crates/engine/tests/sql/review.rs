//! What a review asked of the façade beside answers: honest reports, plans that are never stale,
//! memory that stays within its limit.

use std::process::Command;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int32Array};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::arrow::util::pretty::pretty_format_batches;
use headrace_engine::{Processor, QueryReport, RunnerOptions, Session, SessionOptions, Settings};

use crate::tables;

fn session(processor: Processor, limits: RunnerOptions) -> Session {
    let settings = Settings { processor, threads: 2, ..Settings::default() };
    Session::new(SessionOptions { settings, limits }).unwrap()
}

async fn ask(session: &Session, sql: &str) -> (String, QueryReport) {
    let (batches, report) = session.sql(sql).await.unwrap().collect().await.unwrap();
    (pretty_format_batches(&batches).unwrap().to_string(), report)
}

async fn on_corpus(processor: Processor) -> (Session, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let session = session(processor, RunnerOptions::default());
    tables::register(&session, folder.path()).await;
    (session, folder)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_with_an_offset_is_reported_like_any_other() {
    let (session, _folder) = on_corpus(Processor::Cpu).await;
    for sql in [
        "SELECT f_id FROM fact WHERE f_id > 3 LIMIT 5",
        "SELECT f_id FROM fact WHERE f_id > 3 LIMIT 5 OFFSET 7",
        "SELECT count(*) FROM (SELECT f_id FROM fact WHERE f_id > 3 LIMIT 5 OFFSET 7)",
        // The limit is the planner's, and asks for no more once it has two groups.
        "SELECT f_id, count(*) FROM fact WHERE f_id > 3 GROUP BY f_id LIMIT 2",
    ] {
        let (_, report) = ask(&session, sql).await;
        assert_eq!(report.processor, "cpu", "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_view_that_was_replaced_leaves_no_plan_behind() {
    let (session, _folder) = on_corpus(Processor::Cpu).await;
    let replace = async |condition: &str| {
        // Around the façade, as a program with the planner's own context would.
        let sql = format!("CREATE OR REPLACE VIEW v AS SELECT n FROM many WHERE {condition}");
        session.context().sql(&sql).await.unwrap().collect().await.unwrap();
    };
    let sql = "SELECT count(*) AS c FROM v WHERE n >= 0";
    replace("n < 10").await;
    for _ in 0..2 {
        assert!(ask(&session, sql).await.0.contains("| 10 |"));
    }
    replace("n < 20").await;
    assert!(ask(&session, sql).await.0.contains("| 20 |"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_names_processor_tables_builds_and_reasons() {
    let sql = "EXPLAIN SELECT d_name, sum(f_value) FROM fact JOIN dim ON f_dim = d_id \
               WHERE d_rank > 1 GROUP BY d_name";
    let (session, _folder) = on_corpus(Processor::Cpu).await;
    let (text, _) = ask(&session, sql).await;
    for wanted in [
        "stream fact [",
        "build dim [",
        "filter d_rank > 1",
        "probe dim inner",
        "processor cpu, access auto",
        "why_not cuda: headrace.processor is cpu",
    ] {
        assert!(text.contains(wanted), "{wanted} is not in\n{text}");
    }
    ask(&session, "SET headrace.processor = 'off'").await;
    let (text, _) = ask(&session, sql).await;
    assert!(!text.contains("PipelineExec"), "{text}");
    assert_eq!(text.matches("headrace.processor is off").count(), 2, "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_rows_that_are_only_counted_are_counted_before_they_are_joined() {
    let (session, _folder) = on_corpus(Processor::Cpu).await;
    let counted = async |from: &str, by: &str, call: &str| {
        let sql = format!("EXPLAIN SELECT {by}, {call} FROM {from} GROUP BY {by}");
        ask(&session, &sql).await.0.contains("aggregate count(f_value) by f_dim")
    };
    let join = "dim LEFT JOIN fact ON d_id = f_dim";
    assert!(counted(join, "d_name", "count(f_value)").await);
    assert!(counted("fact RIGHT JOIN dim ON d_id = f_dim", "d_id", "count(f_value)").await);
    for (from, by, call) in [
        (join, "d_name", "count(f_value), sum(f_value)"),
        (join, "d_name", "count(f_value), count(d_rank)"),
        (join, "d_name", "count(distinct f_value)"),
        (join, "d_name, f_day", "count(f_value)"),
        ("dim LEFT JOIN fact ON d_id = f_dim AND d_rank < f_day", "d_name", "count(f_value)"),
        ("dim JOIN fact ON d_id = f_dim", "d_name", "count(f_value)"),
        (
            "(SELECT * FROM dim WHERE d_rank > 1) d LEFT JOIN fact ON d_id = f_dim",
            "d_name",
            "count(f_value)",
        ),
        ("fact a LEFT JOIN fact b ON a.f_id = b.f_dim", "a.f_day", "count(b.f_value)"),
    ] {
        assert!(!counted(from, by, call).await, "{call} of {from} by {by}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_names_files_that_are_not_part_of_a_table() {
    for processor in [Processor::Cpu, Processor::Off] {
        let (session, _folder) = on_corpus(processor).await;
        let (text, _) = ask(&session, "EXPLAIN SELECT sum(v) FROM partly WHERE v > 1").await;
        assert!(text.contains("1 file skipped: 4.arrow ("), "{processor}: {text}");
        let (text, _) = ask(&session, "EXPLAIN SELECT sum(n) FROM many WHERE n > 1").await;
        assert!(!text.contains("skipped"), "{processor}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kept_build_does_not_hide_that_its_file_changed() {
    let (session, folder) = on_corpus(Processor::Cpu).await;
    let sql = "SELECT count(*) FROM fact JOIN dim ON f_dim = d_id WHERE d_rank = 1";
    ask(&session, sql).await;
    let (_, report) = ask(&session, sql).await;
    assert_eq!(report.pipelines[0].builds_cached, 1);
    // The same columns, and other rows.
    let (fewer, _) = ask(&session, &format!("{sql} AND d_id < 10")).await;
    let (dim, other) = (folder.path().join("dim.arrow"), folder.path().join("other.arrow"));
    let copy = format!("COPY (SELECT * FROM dim WHERE d_id < 10) TO '{}'", other.display());
    ask(&session, &copy).await;
    std::fs::rename(other, dim).unwrap();
    let (text, report) = ask(&session, sql).await;
    assert_eq!((text, report.pipelines[0].builds_cached), (fewer, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_plans_of_builds_that_are_larger_than_the_limit_are_divided() {
    let folder = tempfile::tempdir().unwrap();
    let limits = RunnerOptions { memory_limit_bytes: Some(4 << 20), ..Default::default() };
    let session = session(Processor::Cpu, limits);
    let path = folder.path().join("numbers.arrow");
    let column = |step: i32| -> ArrayRef {
        Arc::new(Int32Array::from_iter_values((0..1_000_000).map(|n| n / step)))
    };
    let batch = RecordBatch::try_from_iter([("n", column(1)), ("m", column(3))]).unwrap();
    tables::write(&path, &batch, 1 << 16, true);
    session.register_arrow("numbers", &[path]).unwrap();
    // The series is no table: its 3 MB come once.
    let sql = "SELECT count(*), sum(m) FROM numbers JOIN generate_series(1, 400000) s(g) ON n = g";
    let (text, report) = ask(&session, sql).await;
    let total: i64 = (1..=400_000).map(|n: i64| n / 3).sum();
    assert!(text.contains("400000") && text.contains(&total.to_string()), "{text}");
    let report = &report.pipelines[0];
    assert!(
        report.builds[0].contains("divided") && report.streamed.spilled_bytes > 0,
        "{report:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queries_of_one_session_do_not_disturb_each_other() {
    let (session, _folder) = on_corpus(Processor::Cpu).await;
    let session = Arc::new(session);
    let ask_many = |task: usize| {
        let session = Arc::clone(&session);
        async move {
            for round in 0..20 {
                if task == 0 {
                    let processor = ["off", "cpu"][round % 2];
                    ask(&session, &format!("SET headrace.processor = '{processor}'")).await;
                }
                let sql = "SELECT count(*) AS c FROM fact JOIN dim ON f_dim = d_id";
                assert!(ask(&session, sql).await.0.contains("| 792 |"));
                let sql = "SELECT sum(n) AS s FROM many WHERE n >= 0";
                assert!(ask(&session, sql).await.0.contains("| 499500 |"));
            }
        }
    };
    let tasks: Vec<_> = (0..4).map(|task| tokio::spawn(ask_many(task))).collect();
    for task in tasks {
        task.await.unwrap();
    }
}

/// Names the file that the child process reads.
const CHILD_FILE: &str = "HEADRACE_TEST_RSS_FILE";
const LIMIT_BYTES: u64 = 64 << 20;

fn peak_rss_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().unwrap();
    kib << 10
}

/// Its own process, so that no other test's memory counts. A table of four times the limit.
#[test]
fn a_process_stays_within_its_memory_limit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("numbers.arrow");
    let column: ArrayRef = Arc::new(Int32Array::from_iter_values(0..LIMIT_BYTES as i32));
    let batch = RecordBatch::try_from_iter([("n", column)]).unwrap();
    tables::write(&path, &batch, 1 << 20, true);
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "review::child_of_the_memory_test", "--ignored", "--nocapture"])
        .env(CHILD_FILE, &path)
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&child.stdout).into_owned()
        + &String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success() && output.contains("1 passed"), "{output}");
}

#[test]
#[ignore = "is run by a_process_stays_within_its_memory_limit"]
fn child_of_the_memory_test() {
    let path = std::env::var(CHILD_FILE).unwrap().into();
    let limits = RunnerOptions { memory_limit_bytes: Some(LIMIT_BYTES), ..Default::default() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let session = session(Processor::Cpu, limits);
        session.register_arrow("numbers", &[path]).unwrap();
        // Planning's own code and tables are not what the limit is for.
        ask(&session, "SELECT sum(n) FROM numbers WHERE n < 0").await;
        let before = peak_rss_bytes();
        for access in ["auto", "mapped", "buffered", "direct"] {
            ask(&session, &format!("SET headrace.access = '{access}'")).await;
            let (text, report) =
                ask(&session, "SELECT n % 7 AS k, sum(n) FROM numbers GROUP BY 1").await;
            assert_eq!(text.lines().count(), 7 + 4, "{text}");
            assert_eq!(report.bytes_by_path.total(), 4 * LIMIT_BYTES, "{access}: {report:?}");
            let grown = peak_rss_bytes() - before;
            assert!(grown <= LIMIT_BYTES, "{access}: {grown} bytes beyond {before}");
        }
        ask(&session, "SET headrace.processor = 'off'").await;
        let (text, _) = ask(&session, "SELECT count(*) FROM numbers WHERE n >= 0").await;
        assert!(text.contains(&LIMIT_BYTES.to_string()), "{text}");
        let grown = peak_rss_bytes() - before;
        assert!(grown <= LIMIT_BYTES, "off: {grown} bytes beyond {before}");
    });
}
