//! What arrives, by which way, and what is said about it.

use headrace_bench::transfer::{
    self, BenchPlan, BenchRun, CacheState, PathChoice, Pattern, render,
};
use headrace_flow::Trace;
use headrace_io::{FaultPlan, SetupFault};

use crate::child::{CAP_IPC_LOCK, drop_capability, forbid_io_uring, in_child, limit};
use crate::support::{HOST_PATHS, TestFile, twin};

fn run(plan: &BenchPlan) -> BenchRun {
    transfer::run(plan).unwrap_or_else(|error| panic!("{error}: {plan:?}"))
}

/// All bytes arrived, and arrived right.
fn assert_whole(run: &BenchRun, bytes: u64) {
    assert_eq!(run.bytes, bytes, "{run:?}");
    assert_eq!(run.partial, None, "{run:?}");
    let by = &run.bytes_by_path;
    assert_eq!(by.mapped + by.cached + by.buffered + by.direct, bytes, "{run:?}");
    assert_eq!(by.ram2host + by.ssd2host, bytes, "{run:?}");
    let verification = run.verification.as_ref().unwrap();
    assert_eq!((verification.bytes, verification.mismatch_count), (bytes, 0), "{run:?}");
}

fn verified(plan: BenchPlan) -> BenchPlan {
    BenchPlan { verify: true, ..plan }
}

#[test]
fn every_path_brings_every_length() {
    for bytes in [0, 1, 4095, 4096, 1_000_003] {
        for file in [TestFile::new(bytes), TestFile::in_memory(bytes)] {
            for path in HOST_PATHS {
                let needs_direct = matches!(path, PathChoice::Uring | PathChoice::Direct);
                let plan = verified(file.plan(path));
                if bytes > 0 && needs_direct && !file.has_direct() {
                    let error = transfer::run(&plan).unwrap_err();
                    assert!(error.remedy().unwrap().contains("--path auto"), "{error}");
                    continue;
                }
                let run = run(&plan);
                assert_whole(&run, bytes);
                assert_eq!((run.files, run.file_bytes), (1, bytes));
                match path {
                    PathChoice::Uring | PathChoice::Direct => {
                        // The file's last, partial block is read through the page cache.
                        assert_eq!(run.bytes_by_path.direct, bytes / 4096 * 4096, "{run:?}");
                    }
                    PathChoice::Pread => assert_eq!(run.bytes_by_path.buffered, bytes),
                    PathChoice::Mmap => assert_eq!(run.bytes_by_path.mapped, bytes),
                    PathChoice::Auto | PathChoice::Registered | PathChoice::Cufile => {}
                }
            }
        }
    }
}

#[test]
fn an_empty_file_is_a_result_of_zero_bytes() {
    let file = TestFile::new(0);
    let run = run(&verified(file.plan(PathChoice::Auto)));
    assert_eq!((run.bytes, run.gb_per_s, run.bottleneck.clone()), (0, 0.0, None));
    let text = render::text(&run);
    assert!(text.contains("0 bytes") && !text.contains("NaN"), "{text}");
    let json = render::json_document(&(), &[run]);
    assert!(!json.contains("null,\n  \"gb_per_s\""), "{json}");
}

#[test]
fn a_file_in_memory_is_consumed_where_it_lies() {
    let file = TestFile::in_memory(1_000_003);
    let run = run(&BenchPlan { cache: CacheState::Cold, ..verified(file.plan(PathChoice::Auto)) });
    assert_whole(&run, 1_000_003);
    assert_eq!(run.bytes_by_path.mapped, 1_000_003);
    assert_eq!(run.cache.resident_share_before, Some(1.0));
    assert!(run.cache.notes.iter().any(|note| note.contains("never cold")), "{run:?}");
}

#[test]
fn holes_are_read_as_zeros_and_said() {
    let file = TestFile::new(0);
    std::fs::File::options().write(true).open(&file.path).unwrap().set_len(1_000_003).unwrap();
    for path in [PathChoice::Auto, PathChoice::Pread, PathChoice::Mmap] {
        let run = run(&verified(file.plan(path)));
        assert_whole(&run, 1_000_003);
        assert!(run.notes.iter().any(|note| note.contains("holes")), "{:?}", run.notes);
    }
}

#[test]
fn cold_and_hot_are_what_they_say() {
    let file = TestFile::new(8_000_000);
    let cold = run(&BenchPlan { cache: CacheState::Cold, ..file.plan(PathChoice::Pread) });
    assert!(cold.cache.resident_share_before.unwrap() < 0.01, "{cold:?}");
    assert_eq!(cold.cache.notes, Vec::<String>::new());
    let hot = run(&BenchPlan { cache: CacheState::Hot, ..verified(file.plan(PathChoice::Auto)) });
    assert_whole(&hot, 8_000_000);
    assert_eq!(hot.cache.resident_share_before, Some(1.0));
    assert_eq!(hot.bytes_by_path.mapped, 8_000_000);
    assert!(render::text(&hot).contains("100.0% in memory before the run"));
}

#[test]
fn pages_that_stay_are_told() {
    let file = TestFile::new(4_000_000);
    let opened = headrace_io::SourceFile::open(&file.path).unwrap();
    let mapped = headrace_io::MappedFile::map(opened).unwrap();
    // Pages that somebody has mapped cannot be dropped.
    assert!(mapped.bytes(0, 4_000_000).unwrap().iter().any(|byte| *byte != 0));
    let run = run(&BenchPlan { cache: CacheState::Cold, ..file.plan(PathChoice::Pread) });
    assert!(run.cache.resident_share_before.unwrap() > 0.5, "{run:?}");
    assert!(run.cache.notes.iter().any(|note| note.starts_with("not cold")), "{run:?}");
    drop(mapped);
}

#[test]
fn random_blocks_have_iops_and_latencies() {
    let file = TestFile::new(3_000_000);
    for path in [PathChoice::Pread, PathChoice::Mmap] {
        let run = run(&BenchPlan {
            pattern: Pattern::Random { block_bytes: 4096 },
            limit_bytes: Some(500 * 4096),
            ..verified(file.plan(path))
        });
        assert_whole(&run, 500 * 4096);
        assert_eq!((run.chunks, run.latency.count), (500, 500), "{run:?}");
        assert!(run.iops.unwrap() > 0.0);
        let at = run.latency;
        assert!(at.p50_ns > 0 && at.p50_ns <= at.p90_ns, "{run:?}");
        assert!(at.p90_ns <= at.p99_ns && at.p99_ns <= at.max_ns, "{run:?}");
        assert!(render::text(&run).contains("IOPS"));
    }
}

#[test]
fn a_limit_ends_the_run_where_it_says() {
    let file = TestFile::new(1_000_003);
    let run =
        run(&BenchPlan { limit_bytes: Some(300_001), ..verified(file.plan(PathChoice::Pread)) });
    assert_whole(&run, 300_001);
    assert_eq!(run.file_bytes, 1_000_003);
}

#[test]
fn direct_reads_that_are_refused_go_another_way_and_are_counted() {
    let file = TestFile::new(1_000_003);
    if !file.has_direct() {
        // The refusal at opening is another test's.
        return assert!(transfer::run(&file.plan(PathChoice::Direct)).is_err());
    }
    for path in [PathChoice::Uring, PathChoice::Direct] {
        let mut plan = verified(file.plan(path));
        plan.hooks.wrap = twin(FaultPlan { direct_refused: true, ..FaultPlan::default() });
        let run = run(&plan);
        assert_whole(&run, 1_000_003);
        assert!(run.direct_refused_bytes > 0, "{run:?}");
        assert_eq!(run.bytes_by_path.direct, 0, "{run:?}");
        assert!(run.path_reasons.iter().any(|reason| reason.contains("refused")), "{run:?}");
        plan.forbids_other_paths = true;
        let error = transfer::run(&plan).unwrap_err();
        assert!(error.to_string().contains("came through the page cache"), "{path}: {error}");
        // The hint is part of the text.
        assert_eq!(error.remedy(), None, "{path}: {error}");
    }
}

#[test]
fn forced_paths_that_bytes_do_take_may_be_all_that_is_allowed() {
    let file = TestFile::new(1_000_003);
    for path in PathChoice::ALL {
        let plan = BenchPlan { forbids_other_paths: true, ..verified(file.plan(path)) };
        match transfer::run(&plan) {
            Ok(run) => assert_whole(&run, 1_000_003),
            Err(error) if matches!(path, PathChoice::Registered | PathChoice::Cufile) => {
                assert!(error.is_usage(), "{error}");
            }
            Err(error) => assert!(!file.has_direct(), "{path}: {error}"),
        }
    }
}

#[test]
fn a_refused_ring_is_another_way_or_an_error() {
    let file = TestFile::new(1_000_003);
    let mut plan = verified(file.plan(PathChoice::Auto));
    plan.cache = CacheState::Cold;
    plan.hooks.inject_uring = Some(SetupFault::Setup(libc::EPERM));
    let run = run(&plan);
    assert_whole(&run, 1_000_003);
    if file.has_direct() {
        assert!(run.path_reasons.iter().any(|reason| reason.contains("seccomp")), "{run:?}");
        plan.path = PathChoice::Uring;
        assert!(transfer::run(&plan).unwrap_err().to_string().contains("seccomp"));
    }
}

#[test]
fn io_uring_forbidden_by_seccomp() {
    in_child("paths::io_uring_forbidden_by_seccomp", || {
        forbid_io_uring(libc::EPERM);
        let file = TestFile::new(1_000_003);
        let plan = BenchPlan { cache: CacheState::Cold, ..verified(file.plan(PathChoice::Auto)) };
        let run = run(&plan);
        assert_whole(&run, 1_000_003);
        assert!(!run.engines.iter().any(|engine| engine.contains("io_uring")), "{run:?}");
        if file.has_direct() {
            assert!(run.path_reasons.iter().any(|r| r.contains("io_uring")), "{run:?}");
            let error = transfer::run(&file.plan(PathChoice::Uring)).unwrap_err();
            assert!(error.to_string().contains("io_uring"), "{error}");
        }
    });
}

#[test]
fn almost_no_memory_may_be_locked() {
    in_child("paths::almost_no_memory_may_be_locked", || {
        limit(libc::RLIMIT_MEMLOCK, 64 << 10);
        drop_capability(CAP_IPC_LOCK);
        // Large against its ring, so that the ring would be registered.
        let file = TestFile::new(40_000_000);
        for path in [PathChoice::Auto, PathChoice::Uring] {
            if path == PathChoice::Uring && !file.has_direct() {
                continue;
            }
            let plan = BenchPlan { cache: CacheState::Cold, ..verified(file.plan(path)) };
            let run = run(&plan);
            assert_whole(&run, 40_000_000);
            if file.has_direct() {
                let told = run.path_reasons.iter().any(|reason| reason.contains("ulimit -l"));
                assert!(told, "{run:?}");
            }
        }
    });
}

#[test]
fn the_record_is_json_with_the_promised_members() {
    let file = TestFile::new(1_000_003);
    let run = run(&verified(file.plan(PathChoice::Pread)));
    let text = render::json_document(&serde_json::json!({"cpu": "a"}), &[run]);
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&document["version"], &document["machine"]["cpu"]), (&1.into(), &"a".into()));
    let run = &document["runs"][0];
    assert_eq!((&run["path"], &run["target"]), (&"pread".into(), &"host".into()));
    assert!(run["gb_per_s"].as_f64().unwrap() > 0.0);
    assert_eq!(run["bytes_by_path"]["ram2host"], 1_000_003);
    for member in ["latency", "stages", "devices", "cpu", "cache", "verification", "notes"] {
        assert!(!run[member].is_null(), "{member}: {run}");
    }
    let stages = run["stages"].as_array().unwrap();
    assert!(stages.iter().any(|stage| stage["stage"] == "read"), "{run}");
}

#[test]
fn a_trace_has_reads_and_consumers() {
    let file = TestFile::new(1_000_003);
    let trace = Trace::new("bench", 1000);
    run(&BenchPlan { trace: Some(trace.clone()), ..file.plan(PathChoice::Pread) });
    let spans = trace.spans();
    assert!(spans.iter().any(|span| span.name == "read"), "{spans:?}");
    assert!(spans.iter().any(|span| span.name == "execute"), "{spans:?}");
}
