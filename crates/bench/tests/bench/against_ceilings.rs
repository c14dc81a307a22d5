//! Runs beside the record of ceilings.

use headrace_bench::transfer::{Bench, BenchPlan, CacheState, PathChoice, render};
use headrace_ceilings::{Ceilings, Measure};

use crate::support::TestFile;

/// Large enough for a run to say something about the machine.
const SIZE: u64 = 70_000_003;

fn hot(file: &TestFile) -> BenchPlan {
    BenchPlan { cache: CacheState::Hot, ..file.plan(PathChoice::Pread) }
}

#[test]
fn runs_set_ceilings_and_are_compared_with_them() {
    let file = TestFile::new(SIZE);
    let record = file.folder.path().join("ceilings.json");
    let mut bench = Bench::with_ceilings(Ceilings::load_from(&record).unwrap(), true);
    let first = bench.run(&hot(&file)).unwrap();
    assert!(first.stages.iter().all(|stage| stage.ceiling_gb_per_s.is_none()), "{first:?}");
    assert_eq!(first.predicted, None);
    assert!(first.notes.iter().any(|note| note.contains("no prediction")), "{first:?}");
    // Whatever the second run is like, the record keeps the faster one.
    let second = bench.run(&hot(&file)).unwrap();
    bench.record_ceilings().unwrap();
    let known = Ceilings::load_from(&record).unwrap();
    let ceiling = known.get(&Measure::PageCacheRead { threads: 2 }).unwrap();
    // The text of a record may differ from the number in its last bit.
    let faster = first.gb_per_s.max(second.gb_per_s);
    assert!((ceiling.value / faster - 1.0).abs() < 1e-12, "{} and {faster}", ceiling.value);

    let mut bench = Bench::with_ceilings(known, true);
    let third = bench.run(&hot(&file)).unwrap();
    let read = third.stages.iter().find(|stage| stage.stage == "read").unwrap();
    assert_eq!(read.ceiling_gb_per_s, Some(ceiling.value));
    assert!((read.ceiling_share.unwrap() - third.gb_per_s / ceiling.value).abs() < 1e-9);
    let predicted = third.predicted.as_ref().unwrap();
    assert!(predicted.gb_per_s > 0.0 && predicted.gb_per_s <= ceiling.value * 1.01, "{third:?}");
    let text = render::text(&third);
    assert!(text.contains("predicted") && text.contains("measured"), "{text}");
}

#[test]
fn short_and_verified_runs_are_no_ceilings_and_looking_on_records_nothing() {
    let file = TestFile::new(SIZE);
    let record = file.folder.path().join("ceilings.json");
    let ceilings = Ceilings::load_from(&record).unwrap();
    let mut bench = Bench::with_ceilings(ceilings.clone(), true);
    bench.run(&BenchPlan { verify: true, ..hot(&file) }).unwrap();
    bench.run(&BenchPlan { limit_bytes: Some(1 << 20), ..hot(&file) }).unwrap();
    bench.record_ceilings().unwrap();
    let mut bench = Bench::with_ceilings(ceilings, false);
    bench.run(&hot(&file)).unwrap();
    bench.record_ceilings().unwrap();
    assert!(!record.exists());
}
