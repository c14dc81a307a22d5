//! Generated sources that a person can read, kept as files.
//! `HEADRACE_UPDATE_GOLDEN=1` rewrites them.

use std::path::Path;

use headrace_cuda::{CudaProgram, Tuning};

use crate::ssb;

fn check(name: &str) {
    let queries = ssb::queries(&ssb::SF100);
    let query = queries.into_iter().find(|q| q.name == name).unwrap();
    let program = CudaProgram::compile(query.bound, &query.layout, Tuning::FULL).unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(format!("{}.cu", name.replace('.', "_")));
    if std::env::var_os("HEADRACE_UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &program.source).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap();
    assert!(
        golden == program.source,
        "the kernel of {name} is not that of {}; if the change is meant, run the test with \
         HEADRACE_UPDATE_GOLDEN=1 and read the difference.\n{}",
        path.display(),
        program.source
    );
}

#[test]
fn a_filter_and_sum_reads_like_its_plan() {
    check("q1.1");
}

#[test]
fn a_star_join_reads_like_its_plan() {
    check("q2.1");
}

#[test]
fn a_join_of_four_dimensions_reads_like_its_plan() {
    check("q4.2");
}
