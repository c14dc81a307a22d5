//! The command line of `headrace` with a cluster.

use std::path::Path;
use std::process::Stdio;

use crate::data::{ROWS, Tables, answer as answer_here};
use crate::programs::{Cluster, answer, command, failure, outputs, signal, wait_for};

const COUNT: &str = "select count(*) n from facts where id >= 0";
const GROUPS: &str = "select name, count(*), sum(amount) from facts group by name";

fn shell(cluster: &Cluster, data: &Path, of: &str, more: &[&str]) -> std::process::Command {
    let mut command = command();
    command.args(["shell", "--of", of, "--", "--cluster", &cluster.address, "--format", "csv"]);
    command.args(["--quiet", "--data"]).arg(data).args(more);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

const OWN: &str = env!("CARGO_PKG_VERSION");

#[test]
fn the_command_line_has_its_queries_divided() {
    let (tables, cluster) = (Tables::shared(), Cluster::start(2));
    for data in [tables.arrow.path(), tables.parquet.path()] {
        for sql in [COUNT, GROUPS] {
            let outcome = shell(&cluster, data, OWN, &["-c", sql]).output().unwrap();
            assert_eq!(answer(sql, &outcome), answer_here(data, sql));
            let plan = shell(&cluster, data, OWN, &["-c", &format!("explain {sql}")]).output();
            assert!(answer(sql, &plan.unwrap()).join("\n").contains("ClusterExec"), "{sql}");
        }
        // Settings hold for what follows, and several statements are one session's.
        let words = ["--shares", "3", "-c", "set headrace.processor = 'cpu'", "-c", COUNT];
        let outcome = shell(&cluster, data, OWN, &words).output().unwrap();
        assert!(answer(COUNT, &outcome).contains(&ROWS.to_string()));
    }
}

#[test]
fn a_headrace_of_another_version_is_refused() {
    let (tables, cluster) = (Tables::shared(), Cluster::start(0));
    let outcome = shell(&cluster, tables.arrow.path(), "0.0.1", &["-c", COUNT]).output().unwrap();
    let said = failure(&outcome);
    assert_eq!(outcome.status.code(), Some(2), "{said}");
    assert!(
        said.contains("0.0.1") && said.contains(OWN) && said.contains("hint: install"),
        "{said}"
    );
}

#[test]
fn an_interrupted_command_line_leaves_nothing() {
    let (tables, cluster) = (Tables::shared(), Cluster::start_to_lose(1));
    let words = ["--shares", "100", "-c", GROUPS];
    let query = shell(&cluster, tables.arrow.path(), OWN, &words).spawn().unwrap();
    wait_for("the executor's output", || outputs(&cluster.work[0]) > 3);
    signal(query.id(), "INT");
    let outcome = query.wait_with_output().unwrap();
    assert_eq!(outcome.status.code(), Some(130), "{}", failure(&outcome));
    wait_for("nothing to be left", || outputs(&cluster.work[0]) == 0);
}
