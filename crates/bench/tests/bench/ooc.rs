//! The out-of-core operators, measured small.

use std::path::Path;
use std::sync::atomic::Ordering;

use headrace_bench::ooc::{Benchmark, Figure, OocBenchError, OocPlan, OocRecord, render, run};

const MAX_BYTES: u64 = 3 << 20;

fn plan(folder: &Path) -> OocPlan {
    OocPlan {
        benchmarks: Benchmark::ALL.to_vec(),
        folder: folder.to_path_buf(),
        max_bytes: MAX_BYTES,
        is_quick: true,
        runs: 1,
        command: "headrace bench ooc".to_string(),
        cancel: Default::default(),
    }
}

/// On the disk where the tests were built, or, where they were carried to, on the one of the
/// current folder.
fn on_disk() -> tempfile::TempDir {
    let built = Path::new(env!("CARGO_TARGET_TMPDIR"));
    tempfile::tempdir_in(if built.is_dir() { built } else { Path::new(".") }).unwrap()
}

fn entries(folder: &Path) -> usize {
    std::fs::read_dir(folder).unwrap().count()
}

/// Every variant of every comparison is a point or has a reason.
fn assert_complete(record: &OocRecord) {
    assert_eq!(record.operators.len(), Benchmark::ALL.len());
    for operator in &record.operators {
        let variants = |figure| {
            let points = operator.of(figure).map(|point| point.variant.clone());
            let missing = operator.missing_of(figure).map(|missing| missing.variant.clone());
            let mut names: Vec<String> = points.chain(missing).collect();
            names.sort();
            names.dedup();
            names.len()
        };
        assert_eq!(variants(Figure::Throughput), 7, "{operator:?}");
        assert_eq!(variants(Figure::Methods), 11, "{operator:?}");
        let selectivities = if operator.has_selectivities { 7 } else { 0 };
        assert_eq!(variants(Figure::Selectivity), selectivities, "{operator:?}");
        assert!(operator.missing.iter().all(|missing| !missing.reason.is_empty()));
        for point in &operator.points {
            assert!(point.best_s > 0.0 && point.best_s <= point.median_s, "{point:?}");
            assert!(point.gb_per_s > 0.0 && point.records_per_s > 0.0, "{point:?}");
            assert_eq!(point.input_bytes, operator.detail_bytes, "{point:?}");
        }
    }
    assert_eq!(record.failures().count(), 0, "{:?}", record.failures().collect::<Vec<_>>());
}

#[test]
fn operators_are_measured_on_the_cores_and_nothing_is_left() {
    let folder = on_disk();
    let lines = std::cell::RefCell::new(Vec::new());
    let record =
        run(&plan(folder.path()), &|line| lines.borrow_mut().push(line.to_string())).unwrap();
    assert_eq!(entries(folder.path()), 0);
    assert_complete(&record);
    let points: usize = record.operators.iter().map(|operator| operator.points.len()).sum();
    assert!(lines.borrow().len() > points, "{lines:?}");
    let intersect = &record.operators[0];
    for point in intersect.of(Figure::Throughput).filter(|point| point.way.is_some()) {
        let roof = point.roofline.as_ref().unwrap();
        assert!((point.gb_per_s / roof.gb_per_s - roof.share).abs() < 1e-9, "{point:?}");
        assert!(point.predicted.as_ref().unwrap().seconds > 0.0, "{point:?}");
        assert!(point.stages.write_ns > 0 && point.stages.cpu_ns > 0, "{point:?}");
        assert!(point.chunk_times.iter().any(|times| times.stage == "write"), "{point:?}");
        assert!(point.output_bytes > 0 && point.host_peak_bytes > 0, "{point:?}");
    }
    let text = render::text(&record);
    for told in ["throughput against size", "of plain reads", "cpu, uring", "p95", "100%"] {
        assert!(text.contains(told), "{told} is missing in {text}");
    }
    if let Some(why) = &record.no_gpu {
        assert!(
            text.contains(&format!("gpu without I/O; gpu + psync; gpu + async: {why}")),
            "{text}"
        );
    }
    let json: serde_json::Value =
        serde_json::from_str(&render::json_document(&"this machine", &record)).unwrap();
    assert_eq!(json["machine"], "this machine");
    let first = &json["ooc"]["operators"][0]["points"][0];
    assert!(first["answer"]["keys"].as_u64().unwrap() > 0, "{first}");
    assert!(first["processor"] == "cpu" || record.no_gpu.is_none(), "{first}");
    assert!(
        render::markdown(&record).contains("### intersect: throughput against size\n\n| input |")
    );
}

#[test]
fn a_folder_without_o_direct_is_read_through_the_page_cache_and_that_is_said() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let record = run(&plan(folder.path()), &|_| ()).unwrap();
    assert_complete(&record);
    assert_eq!(entries(folder.path()), 0);
    let intersect = &record.operators[0];
    let psync = intersect
        .of(Figure::Throughput)
        .find(|point| point.variant.contains("cpu") && point.variant.contains("psync"))
        .unwrap();
    if psync.way == Some("pread") {
        assert!(psync.notes.iter().any(|note| note.starts_with("not by direct: ")), "{psync:?}");
    }
    let told = |note: &String| note.contains("lie in memory (tmpfs) and are never cold");
    assert!(psync.cache.as_ref().unwrap().notes.iter().any(told), "{psync:?}");
    assert!(render::text(&record).contains("never cold"));
}

#[test]
fn an_interruption_keeps_what_was_measured_and_leaves_nothing() {
    let folder = on_disk();
    let plan = plan(folder.path());
    let record = run(&plan, &|line| {
        // After the first point.
        plan.cancel.store(line.contains("GB/s"), Ordering::Relaxed);
    })
    .unwrap();
    assert_eq!(record.partial, Some("interrupted"));
    assert_eq!((record.operators.len(), record.operators[0].points.len()), (1, 1));
    assert_eq!(entries(folder.path()), 0);
    let text = render::text(&record);
    assert!(text.contains("partial: interrupted"), "{text}");
    assert!(text.contains("not measured: it ended before"), "{text}");
    // Before there is any point there is no record.
    assert!(matches!(run(&plan, &|_| ()), Err(OocBenchError::Interrupted)));
    assert_eq!(entries(folder.path()), 0);
}

#[test]
fn what_has_no_room_is_not_begun() {
    let folder = on_disk();
    let too_much = OocPlan { max_bytes: 1 << 60, ..plan(folder.path()) };
    let told = run(&too_much, &|_| ()).unwrap_err();
    assert!(!told.is_usage() && told.to_string().contains("are free"), "{told}");
    let too_little = OocPlan { max_bytes: 1000, ..plan(folder.path()) };
    assert!(run(&too_little, &|_| ()).unwrap_err().is_usage());
    assert_eq!(entries(folder.path()), 0);
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_operators_are_measured_in_all_variants() {
    let folder = on_disk();
    let plan = OocPlan { max_bytes: 48 << 20, ..plan(folder.path()) };
    let record = run(&plan, &|_| ()).unwrap();
    assert_eq!(record.no_gpu, None);
    assert_complete(&record);
    assert_eq!(entries(folder.path()), 0);
    let intersect = &record.operators[0];
    for variant in ["in-core gpu", "gpu without I/O", "gpu + psync"] {
        let point = intersect.of(Figure::Throughput).find(|point| point.variant == variant);
        let point = point.unwrap_or_else(|| panic!("{variant}: {:?}", intersect.missing));
        assert!(point.stages.kernel_ns > 0 && point.device_peak_bytes > 0, "{point:?}");
    }
    let alone = intersect.of(Figure::Methods).find(|point| point.slots == Some(1));
    assert!(alone.is_some_and(|point| point.variant.ends_with("no overlap")));
    assert!(intersect.plain.iter().any(|plain| plain.memory == Some("pageable")));
}
