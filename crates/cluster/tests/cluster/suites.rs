//! The queries of benchmarks: the answers of one process, most of them divided.

use headrace_suites::{GenerateOptions, Query, Suite, generate};

use crate::data::answer;
use crate::programs::Cluster;

/// The values of some columns of each line, or of all, with the lines in order.
fn columns(lines: &[String], keys: Option<&[usize]>) -> Vec<Vec<String>> {
    let line = |line: &String| {
        let values: Vec<&str> = line.split(',').collect();
        let wanted = |keys: &[usize]| keys.iter().map(|&key| values[key].to_string()).collect();
        keys.map_or_else(|| values.iter().map(ToString::to_string).collect(), wanted)
    };
    let mut lines: Vec<Vec<String>> = lines.iter().map(line).collect();
    lines.sort();
    lines
}

/// Whether values are equal; floats differ by the order in which they were added.
fn are_equal(a: &str, b: &str) -> bool {
    let close = |a: f64, b: f64| (a - b).abs() <= 1e-9 * a.abs().max(b.abs());
    a == b || matches!((a.parse(), b.parse()), (Ok(a), Ok(b)) if close(a, b))
}

fn compare(suite: Suite, scale: f64, divided_min: usize) {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let options = GenerateOptions::new(suite, scale, &data);
    generate(&GenerateOptions { rows_per_batch: 1024, fact_files: 2, ..options }).unwrap();
    let (cluster, mut divided) = (Cluster::start(2), 0);
    for Query { id, sql, limit } in suite.queries() {
        // Rows that tie with the last one may be any of them.
        let keys = limit.as_ref().map(|limit| limit.keys);
        let (wanted, found) = (answer(&data, sql), cluster.answer(&data, sql, &[]));
        let (wanted, found) = (columns(&wanted, keys), columns(&found, keys));
        let same = wanted.len() == found.len()
            && wanted.iter().flatten().zip(found.iter().flatten()).all(|(a, b)| are_equal(a, b));
        assert!(same, "{suite:?} {id}: {found:?} instead of {wanted:?}");
        let plan = cluster.answer(&data, &format!("explain {sql}"), &[]);
        divided += usize::from(plan.iter().any(|line| line.contains("PipelineShareExec")));
    }
    assert!(divided >= divided_min, "{divided} queries of {suite:?} are divided");
}

#[test]
fn queries_of_ssb() {
    compare(Suite::Ssb, 0.01, 13);
}

#[test]
fn queries_of_tpch() {
    compare(Suite::Tpch, 0.01, 16);
}

#[test]
fn queries_of_clickbench() {
    compare(Suite::ClickBench, 0.01, 34);
}
