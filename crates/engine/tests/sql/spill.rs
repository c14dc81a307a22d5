//! The planner's own operators when they have more rows than memory.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::repartition::RepartitionExec;
use futures::TryStreamExt;
use headrace_engine::{Processor, RunnerOptions, Session, SessionOptions, Settings};

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
