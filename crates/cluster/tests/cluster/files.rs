//! Files that change, or go, after a query was planned.

use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use crate::data::Tables;
use crate::programs::{Cluster, failure, wait_for};

const SQL: &str = "select few, count(*) from facts group by few";

/// Runs a query that finds an executor only after its files were changed.
fn changed_by(data: &Path, change: impl FnOnce()) -> Output {
    let mut cluster = Cluster::start(0);
    let query = cluster.started(data, SQL, &[]);
    // A query connects when it has its plan.
    let port: u16 = cluster.address.rsplit(':').next().unwrap().parse().unwrap();
    wait_for("the query's connection", || is_connected_to(port));
    change();
    // Ballista has the job when its connection is a moment old; what it has not is planned from what the client sent.
    std::thread::sleep(Duration::from_millis(100));
    cluster.add_executor();
    query.wait_with_output().unwrap()
}

fn is_connected_to(port: u16) -> bool {
    let remote = format!(":{port:04X} 01 ");
    std::fs::read_to_string("/proc/net/tcp").unwrap().contains(&remote)
}

fn folders(tables: &Tables) -> [PathBuf; 2] {
    [tables.arrow.path().to_path_buf(), tables.parquet.path().to_path_buf()]
}

fn file_of(folder: &Path) -> PathBuf {
    let mut files = std::fs::read_dir(folder.join("facts")).unwrap();
    files.next().unwrap().unwrap().path()
}

#[test]
fn a_file_that_changed_is_an_error_of_the_query() {
    for folder in folders(&Tables::make()) {
        let file = file_of(&folder);
        let outcome = changed_by(&folder, || {
            let mut bytes = std::fs::read(&file).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            std::fs::write(&file, bytes).unwrap();
        });
        let said = failure(&outcome);
        assert!(!outcome.status.success() && said.contains("has seen another version"), "{said}");
        assert!(said.contains(file.to_str().unwrap()) && !said.contains("Execution("), "{said}");
    }
}

#[test]
fn a_file_that_is_gone_is_an_error_of_the_query() {
    for folder in folders(&Tables::make()) {
        let file = file_of(&folder);
        let outcome = changed_by(&folder, || std::fs::remove_file(&file).unwrap());
        let said = failure(&outcome);
        assert!(!outcome.status.success() && said.contains("No such file"), "{said}");
        assert!(said.contains(file.to_str().unwrap()) && !said.contains("Execution("), "{said}");
    }
}

#[test]
fn a_table_that_is_not_there_is_an_error_of_the_query() {
    let (tables, cluster) = (Tables::shared(), Cluster::start(1));
    let outcome = cluster.outcome(tables.arrow.path(), "select count(*) from fact", &[]);
    let said = failure(&outcome);
    assert!(!outcome.status.success() && said.contains("fact"), "{said}");
    let nowhere = Path::new("/nonexistent/facts");
    let outcome = cluster.outcome(nowhere, "select 1", &[]);
    assert!(!outcome.status.success() && failure(&outcome).contains("/nonexistent/facts"));
}
