//! Writing: what lands in a file, what is left of it, and what goes wrong.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use headrace_bench::transfer::{
    self, BenchError, BenchPlan, Operation, PathChoice, Pattern, SinkWrap, Target, render,
};
use headrace_io::write::{FaultySink, SinkFile, WriteAt};
use headrace_io::{FaultPlan, SetupFault};

use crate::support::run_interrupted;

const WAYS: [PathChoice; 4] =
    [PathChoice::Auto, PathChoice::Uring, PathChoice::Direct, PathChoice::Pread];

const SIZE: u64 = 1_000_003;

fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn plan(path: &Path, way: PathChoice) -> BenchPlan {
    BenchPlan {
        operation: Operation::Write { bytes: SIZE, overwrite: false, keep: false },
        target: Target::Host,
        path: way,
        pattern: Pattern::Sequential { chunk_bytes: 64 << 10 },
        threads: 2,
        slots: Some(4),
        depth: 8,
        verify: true,
        ..BenchPlan::new(vec![path.to_path_buf()])
    }
}

fn has_direct(folder: &Path) -> bool {
    SinkFile::create(folder.join("probe"), 4096).unwrap().direct().is_ok()
}

fn twin(faults: FaultPlan) -> Option<SinkWrap> {
    Some(Arc::new(move |sink| -> Arc<dyn WriteAt> { FaultySink::new(sink, faults.clone()) }))
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn every_way_writes_what_it_should_and_leaves_nothing() {
    let folder = folder();
    for way in WAYS {
        let plan = plan(&folder.path().join("new.bin"), way);
        if matches!(way, PathChoice::Uring | PathChoice::Direct) && !has_direct(folder.path()) {
            assert!(transfer::run(&plan).is_err(), "{way}");
            continue;
        }
        let run = transfer::run(&plan).unwrap();
        assert_eq!((run.bytes, run.files, run.operation), (SIZE, 1, "write"), "{run:?}");
        assert_eq!(run.bytes_by_path.host2ssd, SIZE);
        assert_eq!(run.bytes_by_path.direct + run.bytes_by_path.buffered, SIZE, "{run:?}");
        match way {
            PathChoice::Pread => assert_eq!(run.bytes_by_path.buffered, SIZE),
            PathChoice::Uring | PathChoice::Direct => {
                assert_eq!(run.bytes_by_path.direct, SIZE, "{run:?}");
            }
            _ => {}
        }
        let verification = run.verification.as_ref().unwrap();
        assert_eq!((verification.bytes, verification.mismatch_count), (SIZE, 0), "{run:?}");
        assert_eq!(run.latency.count, run.chunks, "{run:?}");
        assert!(run.stages.iter().any(|stage| stage.stage == "write"), "{run:?}");
        assert!(render::text(&run).contains("host2ssd"), "{}", render::text(&run));
        assert_eq!(names(folder.path()), Vec::<String>::new(), "{way}");
    }
}

#[test]
fn what_is_kept_is_whole_and_what_is_there_is_not_touched() {
    let folder = folder();
    let path = folder.path().join("kept.bin");
    std::fs::write(&path, b"mine").unwrap();
    let with = |overwrite, keep| BenchPlan {
        operation: Operation::Write { bytes: SIZE, overwrite, keep },
        ..plan(&path, PathChoice::Auto)
    };
    transfer::run(&with(false, false)).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"mine");
    let error = transfer::run(&with(false, true)).unwrap_err();
    assert!(error.remedy().unwrap().contains("--overwrite"), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), b"mine");
    transfer::run(&with(true, true)).unwrap();
    let content = std::fs::read(&path).unwrap();
    assert_eq!(content.len() as u64, SIZE);
    assert_eq!(content[..8], 0x7f4a_7c15_9e37_79b9_u64.to_le_bytes());
    assert_eq!(names(folder.path()), ["kept.bin"]);
}

#[test]
fn a_folder_gets_a_file_and_several_paths_share_the_bytes() {
    let folder = folder();
    let mut plan = plan(folder.path(), PathChoice::Auto);
    plan.paths.push(folder.path().join("other"));
    plan.operation = Operation::Write { bytes: 3_000_000, overwrite: false, keep: true };
    let run = transfer::run(&plan).unwrap();
    assert_eq!((run.bytes, run.files), (3_000_000, 2));
    let size = |name: &str| std::fs::metadata(folder.path().join(name)).unwrap().len();
    assert_eq!((size("headrace-bench.bin"), size("other")), (2 << 20, 3_000_000 - (2 << 20)));
}

#[test]
fn zero_bytes_are_a_result() {
    let folder = folder();
    let mut plan = plan(&folder.path().join("empty"), PathChoice::Auto);
    plan.operation = Operation::Write { bytes: 0, overwrite: false, keep: false };
    let run = transfer::run(&plan).unwrap();
    assert_eq!((run.bytes, run.gb_per_s), (0, 0.0));
    assert!(render::text(&run).contains("0 bytes"));
}

#[test]
fn a_full_disk_and_a_failing_device_are_errors_with_their_place() {
    let folder = folder();
    for faults in [
        FaultPlan { full_at: Some(SIZE / 2), ..FaultPlan::default() },
        FaultPlan { io_error_at: Some(SIZE / 2), ..FaultPlan::default() },
    ] {
        for way in WAYS {
            if matches!(way, PathChoice::Uring | PathChoice::Direct) && !has_direct(folder.path()) {
                continue;
            }
            let mut plan = plan(&folder.path().join("new.bin"), way);
            plan.hooks.wrap_sink = twin(faults.clone());
            let error = transfer::run(&plan).unwrap_err();
            let text = error.to_string();
            assert!(text.contains("new.bin") && text.contains("offset"), "{way}: {text}");
            assert_eq!(names(folder.path()), Vec::<String>::new(), "{way}");
        }
    }
    let missing = folder.path().join("no/such/folder/file");
    let error = transfer::run(&plan(&missing, PathChoice::Auto)).unwrap_err();
    assert!(error.to_string().contains("no/such/folder"), "{error}");
}

#[test]
fn a_refused_ring_is_another_way_or_an_error() {
    let folder = folder();
    let mut plan = plan(&folder.path().join("new.bin"), PathChoice::Auto);
    plan.hooks.inject_uring = Some(SetupFault::Setup(libc::EPERM));
    let run = transfer::run(&plan).unwrap();
    assert_eq!(run.bytes, SIZE);
    if has_direct(folder.path()) {
        assert!(run.path_reasons.iter().any(|reason| reason.contains("seccomp")), "{run:?}");
        plan.path = PathChoice::Uring;
        assert!(transfer::run(&plan).unwrap_err().to_string().contains("seccomp"));
    }
}

#[test]
fn short_and_interrupted_writes_are_resumed() {
    let folder = folder();
    let mut plan = plan(&folder.path().join("new.bin"), PathChoice::Pread);
    plan.hooks.wrap_sink =
        twin(FaultPlan { short_permille: 500, interrupted_permille: 200, ..FaultPlan::default() });
    let run = transfer::run(&plan).unwrap();
    assert!(run.short_transfers > 0, "{run:?}");
    assert_eq!(run.verification.unwrap().mismatch_count, 0);
}

#[test]
fn an_interruption_leaves_a_partial_result_and_no_file() {
    let folder = folder();
    let mut plan = plan(&folder.path().join("new.bin"), PathChoice::Pread);
    plan.operation = Operation::Write { bytes: SIZE, overwrite: false, keep: true };
    (plan.threads, plan.slots) = (1, Some(1));
    // Sixteen chunks of 20 ms each: the end is not reached before the interruption.
    let latency = Duration::from_millis(20);
    plan.hooks.wrap_sink = twin(FaultPlan { latency, ..FaultPlan::default() });
    let run = run_interrupted(&mut plan);
    assert_eq!(run.partial, Some("interrupted"), "{run:?}");
    assert!(run.bytes > 0 && run.bytes < SIZE, "{run:?}");
    assert!(run.notes.iter().any(|note| note.contains("not kept")), "{run:?}");
    assert_eq!(names(folder.path()), Vec::<String>::new());

    plan.hooks.progress = None;
    let error = transfer::run(&plan).unwrap_err();
    assert!(matches!(error, BenchError::Interrupted), "{error}");
    assert_eq!(names(folder.path()), Vec::<String>::new());
}

#[test]
fn writes_that_cannot_be_are_usage_errors() {
    let folder = folder();
    let good = plan(&folder.path().join("new.bin"), PathChoice::Auto);
    for wrong in [
        BenchPlan { path: PathChoice::Mmap, ..good.clone() },
        BenchPlan { pattern: Pattern::Random { block_bytes: 512 }, ..good.clone() },
        BenchPlan {
            pattern: Pattern::Random { block_bytes: 4096 },
            target: Target::Gpus(vec![0]),
            ..good.clone()
        },
    ] {
        assert!(transfer::run(&wrong).unwrap_err().is_usage(), "{wrong:?}");
    }
}

#[test]
fn blocks_in_random_order_are_written_into_a_file_that_is_there() {
    let folder = folder();
    for way in WAYS {
        let mut plan = BenchPlan {
            pattern: Pattern::Random { block_bytes: 4096 },
            limit_bytes: Some(100 * 4096),
            ..plan(&folder.path().join("new.bin"), way)
        };
        if matches!(way, PathChoice::Uring | PathChoice::Direct) && !has_direct(folder.path()) {
            assert!(transfer::run(&plan).is_err(), "{way}");
            continue;
        }
        let run = transfer::run(&plan).unwrap();
        assert_eq!((run.bytes, run.chunks, run.file_bytes), (100 * 4096, 100, SIZE), "{run:?}");
        assert!(run.iops.is_some_and(|iops| iops > 0.0), "{run:?}");
        assert_eq!(run.verification.as_ref().unwrap().mismatch_count, 0, "{run:?}");
        assert!(render::text(&run).contains("IOPS"), "{}", render::text(&run));
        // All blocks of the file are there, and not those alone that were written in random order.
        plan.operation = Operation::Write { bytes: SIZE, overwrite: false, keep: true };
        transfer::run(&plan).unwrap();
        let kept = folder.path().join("new.bin");
        let content = std::fs::read(&kept).unwrap();
        assert_eq!(content.len() as u64, SIZE);
        assert!(content.chunks(4096).all(|block| block.iter().any(|&byte| byte != 0)));
        std::fs::remove_file(kept).unwrap();
    }
}

#[test]
fn writes_that_o_direct_refuses_fail_where_no_other_way_is_allowed() {
    let folder = folder();
    if !has_direct(folder.path()) {
        return;
    }
    let mut plan = plan(&folder.path().join("new.bin"), PathChoice::Direct);
    plan.hooks.wrap_sink = twin(FaultPlan { direct_refused: true, ..FaultPlan::default() });
    assert!(transfer::run(&plan).unwrap().direct_refused_bytes > 0);
    plan.forbids_other_paths = true;
    let error = transfer::run(&plan).unwrap_err().to_string();
    assert!(error.contains("new.bin") && error.contains("EINVAL"), "{error}");
    assert_eq!(names(folder.path()), Vec::<String>::new());
}
