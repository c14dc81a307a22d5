//! A grid of runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use headrace_bench::transfer::{
    Bench, CacheState, Grid, PathChoice, Sweep, SweepPlan, render, sweep,
};
use headrace_io::SetupFault;

use crate::support::TestFile;

fn plan(file: &TestFile) -> SweepPlan {
    SweepPlan {
        base: file.plan(PathChoice::Auto),
        grid: Grid {
            paths: vec![PathChoice::Pread, PathChoice::Mmap, PathChoice::Uring],
            chunk_bytes: vec![64 << 10, 256 << 10],
            threads: vec![1, 2],
            ..Grid::default()
        },
        time: Duration::from_secs(60),
    }
}

fn run(plan: &SweepPlan) -> Sweep {
    sweep(&mut Bench::new(), plan, |_| ()).unwrap()
}

#[test]
fn every_point_is_measured_or_has_a_reason_and_the_best_is_marked() {
    let file = TestFile::new(1_000_003);
    let mut plan = plan(&file);
    plan.base.cache = CacheState::Cold;
    plan.base.hooks.inject_uring = Some(SetupFault::Setup(libc::EPERM));
    let mut told = 0;
    let sweep = sweep(&mut Bench::new(), &plan, |_| told += 1).unwrap();
    assert_eq!((sweep.points.len(), sweep.left_out, told), (2 * 2 * 2 + 2, 0, 10));
    assert_eq!(sweep.runs().count(), 8);
    assert!(sweep.runs().all(|run| run.bytes == 1_000_003), "{sweep:?}");
    let best = sweep.best().unwrap();
    let fastest = sweep.runs().map(|run| run.gb_per_s).fold(0.0, f64::max);
    assert_eq!(sweep.points[best].outcome.as_ref().unwrap().gb_per_s, fastest);

    let table = render::sweep_table(&sweep);
    assert_eq!(table.matches("<- best").count(), 1, "{table}");
    assert!(table.contains("not measured: uring to host: "), "{table}");
    let text = render::sweep_document(&(), &sweep);
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    let index = document["sweep"]["best"].as_u64().unwrap() as usize;
    // The same text, through the same reader: that reader may miss the last bit of a number.
    let fastest: serde_json::Value =
        serde_json::from_str(&serde_json::to_string(&fastest).unwrap()).unwrap();
    assert_eq!(document["runs"][index]["gb_per_s"], fastest);
    assert_eq!(document["sweep"]["settings"].as_array().unwrap().len(), 8);
    assert_eq!(document["sweep"]["unavailable"].as_array().unwrap().len(), 2);
}

#[test]
fn time_bounds_a_sweep_and_what_was_left_out_is_counted() {
    let file = TestFile::new(1_000_003);
    let mut plan = plan(&file);
    plan.grid.paths = vec![PathChoice::Pread, PathChoice::Mmap];
    plan.time = Duration::ZERO;
    let sweep = run(&plan);
    assert_eq!((sweep.points.len(), sweep.left_out), (1, 7));
    assert!(render::sweep_table(&sweep).contains("7 more points, the time was up"));
}

#[test]
fn an_interrupted_sweep_keeps_what_it_has() {
    let file = TestFile::new(1_000_003);
    let mut plan = plan(&file);
    plan.grid.paths = vec![PathChoice::Pread, PathChoice::Mmap];
    let cancel = Arc::new(AtomicBool::new(false));
    plan.base.hooks.cancel = Some(cancel.clone());
    let mut told = 0;
    let sweep = sweep(&mut Bench::new(), &plan, |_| {
        told += 1;
        cancel.store(told == 3, Ordering::Relaxed);
    })
    .unwrap();
    assert!(sweep.interrupted);
    assert_eq!((sweep.points.len(), sweep.left_out), (3, 5));
}

#[test]
fn a_file_that_cannot_be_read_ends_the_sweep() {
    let file = TestFile::new(1_000_003);
    let mut plan = plan(&file);
    plan.base.paths = vec![file.folder.path().join("missing")];
    assert!(sweep(&mut Bench::new(), &plan, |_| ()).is_err());
}
