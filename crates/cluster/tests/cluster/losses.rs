//! Executors that are killed while a query runs.

use std::path::Path;

use crate::data::{ROWS, Tables, answer as answer_here};
use crate::programs::{Cluster, answer, wait_for};

/// Whether an executor has handed on something.
fn has_output(work: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(work) else { return false };
    entries.flatten().any(|entry| {
        let path = entry.path();
        let is_data = path.extension().is_some_and(|extension| extension == "arrow");
        (is_data && path.metadata().is_ok_and(|it| it.len() > 0)) || has_output(&path)
    })
}

/// What tasks of an executor have made is lost with it: they are run again, and count once.
#[test]
fn what_a_killed_executor_has_made_is_made_again_once() {
    let tables = Tables::shared();
    let sql = "select name, count(*), sum(amount) from facts group by name";
    for data in [tables.arrow.path(), tables.parquet.path()] {
        let wanted = answer_here(data, sql);
        let mut cluster = Cluster::start(2);
        let mut query = cluster.started(data, sql, &["--shares", "100"]);
        let work = cluster.work[0].clone();
        wait_for("the first executor's output", || has_output(&work));
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
    let mut cluster = Cluster::start(1);
    let mut query = cluster.started(tables.arrow.path(), sql, &["--shares", "100"]);
    let work = cluster.work[0].clone();
    wait_for("the executor's output", || has_output(&work));
    cluster.executors[0].kill();
    assert!(query.try_wait().unwrap().is_none(), "it was over before its executor was killed");
    cluster.add_executor();
    let answer = answer(sql, &query.wait_with_output().unwrap());
    assert_eq!(answer, [ROWS.to_string(), "n".to_string()]);
}
