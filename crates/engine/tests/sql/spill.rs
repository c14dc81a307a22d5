//! The planner's own operators when they have more rows than memory.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use datafusion::arrow::array::{ArrayRef, AsArray, Int64Array, StringArray};
use datafusion::arrow::datatypes::Int64Type;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::repartition::RepartitionExec;
use futures::TryStreamExt;
use headrace_engine::exec::OrderExec;
use headrace_engine::{Fallback, Processor, RunnerOptions, Session, SessionOptions, Settings};
use headrace_spill::SpillFolder;
use headrace_spill::faulty::{self, Fault};

use crate::tables;

/// Two inputs must write at the same moment: one round alone is often lucky.
const ROUNDS: usize = 40;

/// A round takes well below a second.
const PATIENCE: Duration = Duration::from_secs(30);

/// Batches that the repartitions of a plan have spilled.
fn spills(plan: &Arc<dyn ExecutionPlan>) -> usize {
    let own = match plan.is::<RepartitionExec>() {
        true => plan.metrics().and_then(|metrics| metrics.spill_count()).unwrap_or(0),
        false => 0,
    };
    own + plan.children().into_iter().map(spills).sum::<usize>()
}

/// Rows of the answer, and what was spilled for it.
async fn run(session: &Session, sql: &str) -> (usize, usize) {
    let query = session.sql(sql).await.unwrap();
    let batches: Vec<_> = query.stream().unwrap().try_collect().await.unwrap();
    (batches.iter().map(|batch| batch.num_rows()).sum(), spills(query.plan()))
}

async fn spilling_session() -> Session {
    let settings = Settings { processor: Processor::Off, threads: 2, ..Settings::default() };
    // A quarter is the planner's: too little for the rows under way, enough for the groups.
    let limits = RunnerOptions { memory_limit_bytes: Some(8 << 20), ..RunnerOptions::default() };
    let session = Session::new(SessionOptions { settings, limits }).unwrap();
    run(&session, "SET datafusion.execution.batch_size = 64").await;
    run(&session, "SET datafusion.execution.target_partitions = 2").await;
    let sql = "CREATE TABLE t AS SELECT v % 13 AS g, \
               'a text of more than twelve bytes ' || cast(v % 337 AS varchar) AS s \
               FROM generate_series(1, 40000) AS n(v)";
    run(&session, sql).await;
    session
}

/// Inputs of a repartition that spill at the same time must not leave its outputs waiting for
/// ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn repartitions_that_spill_come_to_an_end() {
    let (sender, receiver) = channel();
    tokio::spawn(async move {
        let session = spilling_session().await;
        for _ in 0..ROUNDS {
            let answer = run(&session, "SELECT g, count(DISTINCT s) FROM t GROUP BY g").await;
            sender.send(answer).unwrap();
        }
    });
    let mut spilled = 0;
    for round in 0..ROUNDS {
        let answer = receiver.recv_timeout(PATIENCE);
        let (rows, spills) = answer.unwrap_or_else(|error| panic!("round {round}: {error}"));
        assert_eq!(rows, 13);
        spilled += spills;
    }
    assert!(spilled > 0, "nothing was spilled: the test asks nothing");
}

const SORTED_ROWS: i64 = 200_000;

/// Numbers in no order, and texts of about 100 bytes that sort as they do: twice the planner's
/// share of the limit below.
fn unsorted() -> RecordBatch {
    // 7,919 is prime and no divisor of the number of rows: every number occurs once.
    let numbers: Vec<i64> = (0..SORTED_ROWS).map(|i| i * 7919 % SORTED_ROWS).collect();
    let texts = numbers.iter().map(|n| format!("{n:0>100}"));
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values(texts));
    let numbers: ArrayRef = Arc::new(Int64Array::from(numbers));
    RecordBatch::try_from_iter([("n", numbers), ("s", texts)]).unwrap()
}

/// Rows of an ordered answer, which are the numbers from 0 on.
async fn sorted_rows(session: &Session, sql: &str) -> i64 {
    let query = session.sql(sql).await.unwrap();
    let mut stream = query.stream().unwrap();
    let mut next = 0;
    while let Some(batch) = stream.try_next().await.unwrap() {
        for &n in batch.column(0).as_primitive::<Int64Type>().values() {
            assert_eq!(n, next, "{sql}");
            next += 1;
        }
    }
    let ours = ordered(query.plan());
    let is_off = session.settings().processor == Processor::Off;
    assert!(ours.is_none() == is_off && ours != Some(0), "{ours:?} bytes were spilled");
    next
}

/// Bytes that the plan's sort spilled, if it is ours.
fn ordered(plan: &Arc<dyn ExecutionPlan>) -> Option<usize> {
    match plan.is::<OrderExec>() {
        true => plan.metrics().and_then(|metrics| metrics.spilled_bytes()),
        false => plan.children().into_iter().find_map(ordered),
    }
}

/// A sort of more than the limit takes no luck, with however many threads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sorts_under_a_limit_spill_and_come_to_an_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("unsorted.arrow");
    tables::write(&path, &unsorted(), 50_000, true);
    // The planner's own scan, and a pipeline whose rows the sort takes more slowly than they come.
    let processors = [Processor::Off, Processor::Cpu];
    for (processor, threads) in processors.into_iter().flat_map(|p| [1, 2, 16].map(|n| (p, n))) {
        let fallback = Fallback::Forbid;
        let settings = Settings { processor, threads, fallback, ..Settings::default() };
        let limits =
            RunnerOptions { memory_limit_bytes: Some(64 << 20), ..RunnerOptions::default() };
        let session = Session::new(SessionOptions { settings, limits }).unwrap();
        session.register_arrow("unsorted", std::slice::from_ref(&path)).unwrap();
        for _ in 0..3 {
            let sql = "SELECT n, s FROM unsorted WHERE n >= 0 ORDER BY s";
            assert_eq!(sorted_rows(&session, sql).await, SORTED_ROWS, "{processor} {threads}");
        }
    }
}

/// Sorts of a few rows each, several at once: EXCEPT ALL, windows over unions, a window for each order.
const SORTS: [&str; 4] = [
    "SELECT k1 FROM lhs UNION ALL SELECT k1 FROM rhs EXCEPT ALL SELECT p_id FROM people",
    "SELECT k1, row_number() OVER (PARTITION BY k1 ORDER BY k2) FROM (SELECT k1, k2 FROM lhs UNION ALL SELECT k1, k2 FROM rhs)",
    "SELECT p_id, sum(p_id) OVER (ORDER BY p_name), rank() OVER (ORDER BY p_salary), count(*) OVER (ORDER BY p_hired) FROM people",
    "(SELECT k1 FROM lhs INTERSECT ALL SELECT k1 FROM rhs) EXCEPT ALL (SELECT o_qty FROM orders INTERSECT ALL SELECT o_qty FROM orders) \
     UNION ALL SELECT p_id FROM people INTERSECT ALL SELECT p_id FROM people ORDER BY 1",
];

/// What each of several sorts sets aside for merging must not be all there is: which came first was chance.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_small_sorts_fit_little_memory() {
    let folder = tempfile::tempdir().unwrap();
    for megabytes in [32, 16] {
        let settings = Settings { processor: Processor::Cpu, ..Settings::default() };
        let limits =
            RunnerOptions { memory_limit_bytes: Some(megabytes << 20), ..RunnerOptions::default() };
        let session = Session::new(SessionOptions { settings, limits }).unwrap();
        tables::register(&session, folder.path()).await;
        for sql in SORTS {
            let (rows, _) = run(&session, sql).await;
            for _ in 0..50 {
                assert_eq!(run(&session, sql).await.0, rows, "{megabytes} MiB: {sql}");
            }
        }
    }
}

/// What a session may have in the test below, and rows of fifty times as many bytes.
const LITTLE_BYTES: u64 = 4 << 20;
const MANY_ROWS: i64 = 3_300_000;
const ROW_BYTES: i64 = 8 + 8 + 48;

/// Numbers in no order, each once, and texts that do not compress much.
fn scattered(rows: i64) -> RecordBatch {
    let keys: Vec<i64> = (0..rows).map(|i| i * 7919 % rows).collect();
    let mixed = |k: u64| (k ^ 0x5bd1_e995).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let text = |k: u64| format!("{:016x}{:016x}{:016x}", mixed(k), mixed(mixed(k)), mixed(!k));
    let values = Int64Array::from_iter_values(keys.iter().map(|k| k % 1000));
    let texts = StringArray::from_iter_values(keys.iter().map(|&k| text(k as u64)));
    let columns: [(&str, ArrayRef); 3] =
        [("k", Arc::new(Int64Array::from(keys))), ("v", Arc::new(values)), ("s", Arc::new(texts))];
    RecordBatch::try_from_iter(columns).unwrap()
}

/// Each holds all rows of all columns at some time.
const OPERATORS: [(&str, &str); 4] = [
    (
        "group-by",
        "SELECT count(*), sum(n), sum(v), min(t), max(t) FROM (SELECT k, count(*) AS n, sum(v) AS v, max(s) AS t FROM many GROUP BY k)",
    ),
    (
        "DISTINCT",
        "SELECT count(*), sum(k), sum(v), min(s), max(s) FROM (SELECT DISTINCT k, v, s FROM many)",
    ),
    (
        "join",
        "SELECT count(*), sum(a.v), sum(b.v), min(b.s), max(a.s) FROM many a JOIN many b ON a.k = b.k",
    ),
    ("ORDER BY", "SELECT s, k, v FROM many ORDER BY s DESC"),
];

/// The answer as text; of rows in an order, how many and whether they are.
async fn answer(session: &Session, sql: &str) -> Result<String, String> {
    let query = session.sql(sql).await.map_err(|error| error.to_string())?;
    let mut stream = query.stream().map_err(|error| error.to_string())?;
    let (mut rows, mut last, mut text) = (0, None, String::new());
    while let Some(batch) = stream.try_next().await.map_err(|error| error.to_string())? {
        rows += batch.num_rows();
        if let Some(texts) = batch.column(0).as_string_opt::<i32>() {
            for s in texts.iter().flatten() {
                assert!(last.as_deref().is_none_or(|last| last >= s), "{sql}");
                last = Some(s.to_string());
            }
        } else {
            text = format!("{:?}", batch.columns());
        }
    }
    Ok(format!("{rows} rows {text}"))
}

fn little(spills: &Arc<SpillFolder>) -> Session {
    let limits = RunnerOptions {
        memory_limit_bytes: Some(LITTLE_BYTES),
        spills: Some(Arc::clone(spills)),
        ..RunnerOptions::default()
    };
    let settings = Settings {
        processor: Processor::Cpu,
        fallback: Fallback::Forbid,
        threads: 2,
        chunk_bytes: 64 << 10,
        ..Settings::default()
    };
    Session::new(SessionOptions { settings, limits }).unwrap()
}

/// One module puts aside what a group-by, a DISTINCT, a join and a sort cannot hold: its counters show each of them, and what
/// fails in it is a clear error of each of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operators_beyond_the_limit_fifty_times_spill_alike_and_fail_alike() {
    assert!((MANY_ROWS * ROW_BYTES) as u64 > 50 * LITTLE_BYTES);
    let (home, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let [many, fewer] = [("many", MANY_ROWS), ("fewer", MANY_ROWS / 8)].map(|(name, rows)| {
        let path = folder.path().join(format!("{name}.arrow"));
        tables::write(&path, &scattered(rows), 50_000, true);
        path
    });
    let plenty = Session::new(SessionOptions::default()).unwrap();
    plenty.register_arrow("many", std::slice::from_ref(&many)).unwrap();
    for (operator, sql) in OPERATORS {
        let expected = answer(&plenty, sql).await.unwrap();
        let spills = faulty::folder(home.path(), u64::MAX, Fault::None);
        let session = little(&spills);
        session.register_arrow("many", std::slice::from_ref(&many)).unwrap();
        assert_eq!(answer(&session, sql).await.as_ref(), Ok(&expected), "{operator}");
        let counters = spills.counters();
        assert!(counters.written_bytes > 25 * LITTLE_BYTES, "{operator}: {counters:?}");
        assert!(counters.read_bytes >= counters.written_bytes, "{operator}: {counters:?}");
        assert_eq!(spills.used_bytes(), 0, "{operator}");
        for (fault, limit_bytes, cause) in [
            (Fault::Create, u64::MAX, "cannot make a temporary file"),
            (Fault::Full(40), u64::MAX, "No space left"),
            (Fault::None, 1 << 20, "the limit is 1048576"),
            (Fault::Eio(3), u64::MAX, "Input/output error"),
            (Fault::Bit(3), u64::MAX, "checksum"),
        ] {
            let spills = faulty::folder(home.path(), limit_bytes, fault);
            let session = little(&spills);
            session.register_arrow("many", std::slice::from_ref(&fewer)).unwrap();
            let error = answer(&session, sql).await.unwrap_err();
            let place = home.path().to_str().unwrap();
            assert!(error.contains(cause) && error.contains(place), "{operator}: {error}");
            assert_eq!(spills.used_bytes(), 0, "{operator} {fault:?}");
        }
    }
}
