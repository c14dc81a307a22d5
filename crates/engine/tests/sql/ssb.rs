//! The thirteen queries: each one pipeline, each with the planner's own answer.

use std::path::Path;

use datafusion::arrow::util::pretty::pretty_format_batches;
use headrace_engine::{PipelineShare, QueryReport, Session, SessionOptions};
use headrace_suites::ssb::QUERIES;
use headrace_suites::{GenerateOptions, Suite, generate};

async fn run(session: &Session, sql: &str) -> (String, QueryReport) {
    let (batches, report) = session.sql(sql).await.unwrap().collect().await.unwrap();
    (pretty_format_batches(&batches).unwrap().to_string(), report)
}

async fn set(session: &Session, name: &str, value: &str) {
    run(session, &format!("SET headrace.{name} = '{value}'")).await;
}

async fn session(folder: &Path) -> Session {
    let session = Session::new(SessionOptions::default()).unwrap();
    session.register_path(folder).unwrap();
    session
}

async fn compare_all(scale: f64, fact_files: u32, processor: &str) {
    let folder = tempfile::tempdir().unwrap();
    let mut options = GenerateOptions::new(Suite::Ssb, scale, folder.path());
    options.fact_files = fact_files;
    options.rows_per_batch = 20_000;
    generate(&options).unwrap();
    let session = session(folder.path()).await;
    for query in &QUERIES {
        set(&session, "fallback", "allow").await;
        set(&session, "processor", "off").await;
        let (expected, report) = run(&session, query.sql).await;
        assert!(report.pipelines.is_empty(), "{}", query.id);
        assert_eq!(report.pipeline_share(), PipelineShare::None, "{}", query.id);
        set(&session, "processor", processor).await;
        set(&session, "fallback", "forbid").await;
        let plan = session.sql(query.sql).await.unwrap();
        let text = datafusion::physical_plan::displayable(plan.plan().as_ref()).indent(false);
        assert!(!text.to_string().contains("HeadraceScanExec"), "{}\n{text}", query.id);
        for run_number in 0..2 {
            let (found, report) = run(&session, query.sql).await;
            assert_eq!(found, expected, "Q{} run {run_number}", query.id);
            assert_eq!(report.pipelines.len(), 1, "{}", query.id);
            assert_eq!(report.pipeline_share(), PipelineShare::Whole, "{}", query.id);
            assert_eq!(report.processor, processor, "{}", query.id);
            let pipeline = &report.pipelines[0];
            assert_eq!(pipeline.streamed.table, "lineorder");
            if run_number == 1 {
                assert_eq!(pipeline.builds_made, 0, "Q{}: builds are cached", query.id);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ssb_on_the_cpu_is_what_the_planner_says() {
    compare_all(0.02, 0, "cpu").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ssb_over_a_folder_of_files() {
    compare_all(0.01, 5, "cpu").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a GPU"]
async fn gpu_ssb() {
    compare_all(0.02, 0, "cuda").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_reads_like_the_query() {
    let folder = tempfile::tempdir().unwrap();
    generate(&GenerateOptions::new(Suite::Ssb, 0.01, folder.path())).unwrap();
    let session = session(folder.path()).await;
    let query = QUERIES.iter().find(|q| q.id == "2.1").unwrap();
    let planned = session.sql(query.sql).await.unwrap();
    let text = datafusion::physical_plan::displayable(planned.plan().as_ref()).indent(false);
    let text = text.to_string();
    for line in [
        "PipelineExec: stream lineorder [lo_partkey, lo_suppkey, lo_orderdate, lo_revenue]",
        "build part [p_partkey, p_category, p_brand1]",
        "filter p_category = 'MFGR#12'",
        "probe part inner on lo_partkey = p_partkey -> p_brand1",
        "aggregate sum(cast(lo_revenue as int64)) by d_year, p_brand1",
    ] {
        assert!(text.contains(line), "{line}\nis not in\n{text}");
    }
    let (analyzed, _) = run(&session, &format!("EXPLAIN ANALYZE {}", query.sql)).await;
    for words in ["ran on cpu", "builds made", "GB/s", "rows in 60175", "bottleneck ", "model: "] {
        assert!(analyzed.contains(words), "{words}\nis not in\n{analyzed}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_keys_of_a_build_prune_the_streamed_table() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = GenerateOptions::new(Suite::Ssb, 0.02, folder.path());
    options.rows_per_batch = 2048;
    generate(&options).unwrap();
    let session = session(folder.path()).await;
    // Nothing in the query bounds lo_orderkey but the build's keys.
    let sql = "SELECT count(*), sum(l.lo_revenue) FROM lineorder l, \
               (SELECT DISTINCT lo_orderkey AS k FROM lineorder WHERE lo_orderkey < 500) b \
               WHERE l.lo_orderkey = b.k";
    set(&session, "processor", "off").await;
    let (expected, _) = run(&session, sql).await;
    set(&session, "processor", "cpu").await;
    let (found, report) = run(&session, sql).await;
    assert_eq!(found, expected);
    let pruned: u64 = report.pipelines.iter().map(|p| p.streamed.pruned_batches).sum();
    assert!(pruned > 0, "{report:?}");
    assert!(
        report.pipelines.iter().any(|p| p.builds_made == 1 && p.streamed.pruned_batches > 0),
        "{report:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_planner_does_around_pipelines_is_told() {
    let folder = tempfile::tempdir().unwrap();
    generate(&GenerateOptions::new(Suite::Ssb, 0.01, folder.path())).unwrap();
    let session = session(folder.path()).await;
    let sums = "select lo_suppkey, sum(lo_revenue) as total from lineorder group by lo_suppkey";
    let (_, report) = run(&session, sums).await;
    assert_eq!(report.pipeline_share(), PipelineShare::Whole, "{report:?}");
    let over =
        |window: &str| format!("select {window} over (order by total) from ({sums}) as sums");
    let (_, report) = run(&session, &over("rank()")).await;
    assert_eq!(report.pipeline_share(), PipelineShare::Whole, "{report:?}");
    let (_, report) = run(&session, &over("ntile(4)")).await;
    assert_eq!(report.pipeline_share(), PipelineShare::Part, "{report:?}");
    assert!(report.planner_operators.iter().any(|name| name.contains("Window")), "{report:?}");
}
