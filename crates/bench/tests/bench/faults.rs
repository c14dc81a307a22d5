//! What goes wrong in the middle: an error with its place, or a result that says it is partial.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use headrace_bench::transfer::{self, BenchError, PathChoice, Pattern, render};
use headrace_io::FaultPlan;

use crate::support::{HOST_PATHS, TestFile, run_interrupted, twin};

const SIZE: u64 = 1_000_003;

#[test]
fn a_failing_device_is_an_error_with_its_place() {
    let file = TestFile::new(SIZE);
    for path in HOST_PATHS {
        if matches!(path, PathChoice::Uring | PathChoice::Direct) && !file.has_direct() {
            continue;
        }
        let mut plan = file.plan(path);
        plan.hooks.wrap = twin(FaultPlan { io_error_at: Some(SIZE / 2), ..FaultPlan::default() });
        let error = transfer::run(&plan).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("data.bin") && text.contains("offset"), "{path}: {text}");
        assert!(error.remedy().is_some() && !error.is_usage(), "{path}: {text}");
    }
}

#[test]
fn a_file_that_shrinks_is_an_error() {
    let file = TestFile::new(SIZE);
    for path in [PathChoice::Pread, PathChoice::Mmap] {
        let mut plan = file.plan(path);
        plan.hooks.wrap = twin(FaultPlan { truncated_at: Some(SIZE / 2), ..FaultPlan::default() });
        let error = transfer::run(&plan).unwrap_err();
        assert!(error.to_string().contains("data.bin"), "{error}");
        assert!(error.remedy().unwrap().contains("nobody writes"), "{error}");
    }
}

#[test]
fn a_wrong_byte_is_found_and_its_chunk_named() {
    let file = TestFile::new(SIZE);
    for path in [PathChoice::Pread, PathChoice::Mmap] {
        let mut plan = file.plan(path);
        plan.verify = true;
        let faults = FaultPlan { torn_blocks_permille: 20, seed: 5, ..FaultPlan::default() };
        plan.hooks.wrap = twin(faults.clone());
        let run = transfer::run(&plan).unwrap();
        let verification = run.verification.as_ref().unwrap();
        let torn = torn_chunks(&file, faults);
        assert!((1..16).contains(&torn.len()), "the plan tears some chunks: {torn:?}");
        let found: Vec<usize> = verification.mismatches.iter().map(|m| m.chunk).collect();
        assert_eq!((found, verification.mismatch_count), (torn.clone(), torn.len() as u64));
        for mismatch in &verification.mismatches {
            assert_eq!(mismatch.offset, mismatch.chunk as u64 * (64 << 10));
            assert!(mismatch.file.ends_with("data.bin"));
        }
        assert!(render::text(&run).contains("MISMATCH"), "{run:?}");
    }
}

/// Chunks of 64 KiB that the twin delivers otherwise than they lie in the file.
fn torn_chunks(file: &TestFile, faults: FaultPlan) -> Vec<usize> {
    let source = headrace_io::SourceFile::open(&file.path).unwrap();
    let twin = headrace_io::FaultyFile::new(source, faults);
    let content = std::fs::read(&file.path).unwrap();
    let mut torn = content.clone();
    twin.tear(0, &mut torn);
    let pairs = content.chunks(64 << 10).zip(torn.chunks(64 << 10));
    pairs.enumerate().filter(|(_, (a, b))| a != b).map(|(chunk, _)| chunk).collect()
}

#[test]
fn an_interruption_leaves_a_partial_result() {
    let file = TestFile::new(SIZE);
    let mut plan = file.plan(PathChoice::Pread);
    plan.verify = true;
    plan.threads = 1;
    plan.slots = Some(1);
    // Sixteen chunks of 20 ms each: the end is not reached before the interruption.
    plan.hooks.wrap =
        twin(FaultPlan { latency: Duration::from_millis(20), ..FaultPlan::default() });
    let run = run_interrupted(&mut plan);
    assert_eq!(run.partial, Some("interrupted"), "{run:?}");
    assert!(run.bytes > 0 && run.bytes < SIZE, "{run:?}");
    assert_eq!(run.bytes_by_path.buffered, run.bytes, "{run:?}");
    assert_eq!(run.verification, None);
    let text = render::text(&run);
    assert!(text.contains("partial") && text.contains("not verified"), "{text}");
}

#[test]
fn a_time_limit_leaves_a_partial_result() {
    let file = TestFile::new(SIZE);
    let mut plan = file.plan(PathChoice::Pread);
    plan.threads = 1;
    plan.slots = Some(1);
    plan.verify = true;
    plan.time_limit = Some(Duration::from_millis(60));
    plan.hooks.wrap =
        twin(FaultPlan { latency: Duration::from_millis(20), ..FaultPlan::default() });
    let run = transfer::run(&plan).unwrap();
    assert_eq!(run.partial, Some("the time limit was reached"), "{run:?}");
    assert!(run.bytes > 0 && run.bytes < SIZE && run.gb_per_s > 0.0, "{run:?}");
    // What came is checked.
    let verification = run.verification.as_ref().unwrap();
    assert_eq!((verification.bytes, verification.mismatch_count), (run.bytes, 0), "{run:?}");
}

/// A device that does not answer keeps consumers from ending the race; it is broken off.
#[test]
fn a_device_that_does_not_answer_cannot_hold_the_run() {
    let file = TestFile::new(SIZE);
    let mut plan = file.plan(PathChoice::Pread);
    plan.pattern = Pattern::Sequential { chunk_bytes: 1 << 20 };
    plan.hooks.cancel = Some(Arc::new(AtomicBool::new(true)));
    plan.hooks.wrap =
        twin(FaultPlan { latency: Duration::from_millis(1500), ..FaultPlan::default() });
    let start = Instant::now();
    let error = transfer::run(&plan).unwrap_err();
    assert!(matches!(error, BenchError::Interrupted), "{error}");
    // One read was under way and had to be waited for.
    assert!(start.elapsed() < Duration::from_secs(10));
}
