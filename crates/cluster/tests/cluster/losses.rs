//! Executors that are killed while a query runs.

use crate::data::{ROWS, Tables, answer as answer_here};
use crate::programs::{Cluster, UNTIL_LOST, answer, failure, outputs, signal, wait_for};

/// What tasks of an executor have made is lost with it: they are run again, and count once.
#[test]
fn what_a_killed_executor_has_made_is_made_again_once() {
    let tables = Tables::shared();
    let sql = "select name, count(*), sum(amount) from facts group by name";
    for data in [tables.arrow.path(), tables.parquet.path()] {
        let wanted = answer_here(data, sql);
        let mut cluster = Cluster::start_to_lose(2);
        let mut query = cluster.started(data, sql, &["--shares", "100"]);
        let work = cluster.work[0].clone();
        wait_for("the first executor's output", || outputs(&work) > 3);
        cluster.executors[0].kill();
        assert!(query.try_wait().unwrap().is_none(), "it was over before its executor was killed");
        assert_eq!(answer(sql, &query.wait_with_output().unwrap()), wanted);
        assert!(cluster.executors[1].is_running());
    }
}

/// The same where all that was made is lost.
#[test]
fn a_query_goes_on_with_an_executor_that_comes_later() {
    let tables = Tables::shared();
    let sql = "select count(*) n from facts where id >= 0";
    let mut cluster = Cluster::start_to_lose(1);
    let mut query = cluster.started(tables.arrow.path(), sql, &["--shares", "100"]);
    let work = cluster.work[0].clone();
    wait_for("the executor's output", || outputs(&work) > 3);
    cluster.executors[0].kill();
    assert!(query.try_wait().unwrap().is_none(), "it was over before its executor was killed");
    cluster.add_executor();
    let answer = answer(sql, &query.wait_with_output().unwrap());
    assert_eq!(answer, [ROWS.to_string(), "n".to_string()]);
}

/// Whose client is gone: no more of its tasks are begun, and what they made is removed.
#[test]
fn an_interrupted_query_leaves_nothing() {
    let (tables, cluster) = (Tables::shared(), Cluster::start_to_lose(1));
    let sql = "select name, count(*) from facts group by name";
    let query = cluster.started(tables.arrow.path(), sql, &["--shares", "100"]);
    wait_for("the executor's output", || outputs(&cluster.work[0]) > 3);
    signal(query.id(), "INT");
    let outcome = query.wait_with_output().unwrap();
    assert!(!outcome.status.success() && failure(&outcome).contains("interrupted"));
    wait_for("nothing to be left", || outputs(&cluster.work[0]) == 0);
    assert_eq!(
        cluster.answer(tables.arrow.path(), "select count(*) n from facts where id >= 0", &[])[0],
        ROWS.to_string()
    );
}

/// Its tasks have been given to others when it tells what came of them.
#[test]
fn an_executor_that_comes_back_counts_once() {
    let (tables, cluster) = (Tables::shared(), Cluster::start_to_lose(2));
    let sql = "select count(*) n from facts where id >= 0";
    let query = cluster.started(tables.arrow.path(), sql, &["--shares", "100"]);
    wait_for("the first executor's output", || outputs(&cluster.work[0]) > 3);
    // Both stop, so that the query still runs when the first one is back.
    cluster.executors.iter().for_each(|executor| executor.signal("STOP"));
    std::thread::sleep(UNTIL_LOST);
    cluster.executors.iter().rev().for_each(|executor| executor.signal("CONT"));
    let answer = answer(sql, &query.wait_with_output().unwrap());
    assert_eq!(answer, [ROWS.to_string(), "n".to_string()]);
}
