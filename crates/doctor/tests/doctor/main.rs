//! The doctor on real files of this machine, with and without the rights that it would like.
//!
//! What this machine is like is not known here, so nothing is said about findings of the machine;
//! what a path can do is known, because the test made it.

#![allow(clippy::unwrap_used)]

#[path = "../../../io/tests/common/child.rs"]
mod child;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use child::{
    CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_IPC_LOCK, drop_capability, forbid_io_uring,
    in_child, limit,
};
use headrace_doctor::{
    AccessProbe, Finding, Known, Level, Options, Outcome, PathFacts, PathKind, Report, Way,
    examine, render,
};

/// Small files, and nothing goes into the user's record of ceilings.
fn options() -> Options {
    Options { forget: true, ..Options::default() }
}

fn quick() -> Options {
    Options { quick: true, ..options() }
}

/// On the filesystem of the repository, which is that of no memory, unless that is tmpfs itself.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn write(folder: &Path, name: &str, bytes: usize) -> PathBuf {
    let path = folder.join(name);
    let content: Vec<u8> = (0..bytes).map(|i| (i * 31 + i / 4096) as u8).collect();
    std::fs::write(&path, content).unwrap();
    path
}

fn of(path: &Path, options: &Options) -> Report {
    examine(&[path.to_path_buf()], options)
}

fn path_of(report: &Report) -> &PathFacts {
    &report.facts.paths[0]
}

fn probe(report: &Report, way: Way) -> &AccessProbe {
    path_of(report).access.iter().find(|probe| probe.way == way).unwrap()
}

fn checked_bytes(report: &Report, way: Way) -> u64 {
    match &probe(report, way).outcome {
        Outcome::Works { checked_bytes, .. } => *checked_bytes,
        other => panic!("{way}: {other:?}"),
    }
}

/// Findings about the path itself.
fn findings<'a>(report: &'a Report, path: &Path) -> Vec<&'a Finding> {
    let subject = path.display().to_string();
    report.findings.iter().filter(|finding| finding.subject == subject).collect()
}

fn worst(report: &Report, path: &Path) -> Level {
    findings(report, path).iter().map(|finding| finding.level).max().unwrap()
}

#[test]
fn a_plain_file_is_read_by_every_way_and_timed() {
    let dir = folder();
    // No multiple of a block, so that every way meets a tail.
    let path = write(dir.path(), "t.bin", (9 << 20) + 137);
    let report = of(&path, &options());
    for way in [Way::Automatic, Way::Buffered, Way::Mapped] {
        assert_eq!(checked_bytes(&report, way), 8 << 20, "{way}");
        assert!(probe(&report, way).gb_per_s().is_some_and(|rate| rate > 0.0), "{way}");
    }
    let file = path_of(&report).examined.value().unwrap();
    match &file.direct {
        Known::Value(_) => {
            assert_eq!(checked_bytes(&report, Way::DirectThreads), 8 << 20);
            assert_eq!(report.facts.ceilings[0].stage, format!("storage, {}", path.display()));
        }
        // A filesystem without O_DIRECT: then the way is refused, and said to be.
        Known::Unknown { .. } => {
            let outcome = &probe(&report, Way::DirectThreads).outcome;
            assert!(matches!(outcome, Outcome::Refused { .. }), "{outcome:?}");
        }
    }
    assert!(worst(&report, &path) < Level::Broken, "{:#?}", report.findings);
    let copy = report.facts.ceilings.iter().find(|ceiling| ceiling.stage == "memory copy").unwrap();
    assert!(copy.gb_per_s.value().is_some_and(|rate| *rate > 0.1), "{copy:?}");
}

#[test]
fn the_text_ends_with_the_summary_and_json_has_everything() {
    let dir = folder();
    let path = write(dir.path(), "t.bin", 1 << 20);
    let report = of(&path, &quick());
    let text = render(&report);
    assert_eq!(text.lines().last(), Some(report.summary.as_str()));
    assert!(text.contains(&path.display().to_string()), "{text}");
    // The worst comes first.
    let levels: Vec<Level> = report.findings.iter().map(|finding| finding.level).collect();
    assert!(levels.is_sorted_by(|a, b| a >= b), "{levels:?}");
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["version"], 1);
    assert_eq!(json["findings"].as_array().unwrap().len(), report.findings.len());
    assert_eq!(json["exit_code"], report.exit_code);
    let access = json["facts"]["paths"][0]["access"].as_array().unwrap();
    assert_eq!(access.len(), path_of(&report).access.len());
    assert_eq!(access[0]["way"], "automatic");
    assert!(json["facts"]["machine"]["limits"]["open_files"].is_u64());
}

#[test]
fn nothing_is_timed_when_it_shall_be_quick() {
    let dir = folder();
    let report = of(&write(dir.path(), "t.bin", 1 << 20), &quick());
    assert!(path_of(&report).access.iter().all(|probe| probe.gb_per_s().is_none()));
    assert!(report.facts.ceilings.iter().all(|ceiling| ceiling.gb_per_s.value().is_none()));
    assert_eq!(checked_bytes(&report, Way::Buffered), 1 << 20);
}

#[test]
fn a_file_in_memory_needs_no_o_direct() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = write(dir.path(), "t.bin", 3 << 20);
    let report = of(&path, &quick());
    assert!(path_of(&report).examined.value().unwrap().memory_backed);
    assert!(worst(&report, &path) <= Level::Ok, "{:#?}", findings(&report, &path));
    checked_bytes(&report, Way::Mapped);
}

#[test]
fn a_path_that_does_not_exist_is_broken() {
    let dir = folder();
    let path = dir.path().join("none");
    let report = of(&path, &quick());
    assert_eq!(path_of(&report).kind, PathKind::Missing);
    assert_eq!((worst(&report, &path), report.exit_code), (Level::Broken, 2));
    assert!(path_of(&report).access.is_empty());
}

#[test]
fn an_empty_file_could_not_be_tried() {
    let dir = folder();
    let path = write(dir.path(), "empty", 0);
    let report = of(&path, &options());
    assert_eq!(worst(&report, &path), Level::Unknown);
    assert!(path_of(&report).access.is_empty());
}

#[test]
fn a_sparse_file_says_nothing_about_the_drive() {
    let dir = folder();
    let path = dir.path().join("sparse");
    std::fs::File::create(&path).unwrap().set_len(64 << 20).unwrap();
    let report = of(&path, &quick());
    assert!(findings(&report, &path).iter().any(|finding| finding.found.contains("holes")));
    assert_eq!(checked_bytes(&report, Way::Buffered), 8 << 20);
}

#[test]
fn of_a_folder_the_largest_file_is_read_and_named() {
    let dir = folder();
    write(dir.path(), "small", 1000);
    let large = write(dir.path(), "large", 200_000);
    let report = of(dir.path(), &quick());
    assert_eq!(path_of(&report).examined.value().unwrap().path, large);
    assert_eq!(checked_bytes(&report, Way::Buffered), 200_000);
    assert!(render(&report).contains("read from large"));
}

#[test]
fn an_empty_folder_has_nothing_to_read() {
    let dir = folder();
    let report = of(dir.path(), &quick());
    assert_eq!(worst(&report, dir.path()), Level::Unknown);
}

#[test]
fn nothing_is_written_unless_it_is_asked_for() {
    let dir = folder();
    let path = write(dir.path(), "t.bin", 500_000);
    let before = std::fs::metadata(&path).unwrap();
    of(&path, &options());
    let names = || std::fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(names(), 1);
    let report = of(&path, &Options { write: true, ..quick() });
    let outcome = &path_of(&report).write.as_ref().unwrap().outcome;
    assert!(matches!(outcome, Outcome::Works { .. }), "{outcome:?}");
    // What was written is gone again, and the file is as it was.
    assert_eq!(names(), 1);
    let after = std::fs::metadata(&path).unwrap();
    assert_eq!(before.modified().unwrap(), after.modified().unwrap());
}

#[test]
fn a_folder_that_may_not_be_written() {
    let name = "a_folder_that_may_not_be_written";
    in_child(name, || {
        drop_capability(CAP_DAC_OVERRIDE);
        drop_capability(CAP_DAC_READ_SEARCH);
        use std::os::unix::fs::PermissionsExt;
        let dir = folder();
        let path = write(dir.path(), "t.bin", 500_000);
        let mode = |bits| std::fs::Permissions::from_mode(bits);
        std::fs::set_permissions(dir.path(), mode(0o555)).unwrap();
        let report = of(&path, &Options { write: true, ..quick() });
        std::fs::set_permissions(dir.path(), mode(0o755)).unwrap();
        let outcome = &path_of(&report).write.as_ref().unwrap().outcome;
        assert!(matches!(outcome, Outcome::Refused { .. }), "{outcome:?}");
        assert_eq!((worst(&report, &path), report.exit_code), (Level::Broken, 2));
    });
}

#[test]
fn a_file_that_may_not_be_read() {
    in_child("a_file_that_may_not_be_read", || {
        drop_capability(CAP_DAC_OVERRIDE);
        drop_capability(CAP_DAC_READ_SEARCH);
        use std::os::unix::fs::PermissionsExt;
        let dir = folder();
        let path = write(dir.path(), "t.bin", 5000);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o000)).unwrap();
        let report = of(&path, &quick());
        assert_eq!((worst(&report, &path), report.exit_code), (Level::Broken, 2));
        assert!(findings(&report, &path)[0].found.contains("Permission denied"));
    });
}

#[test]
fn io_uring_forbidden_by_seccomp() {
    in_child("io_uring_forbidden_by_seccomp", || {
        forbid_io_uring(libc::EPERM);
        let dir = folder();
        let path = write(dir.path(), "t.bin", 2 << 20);
        let report = of(&path, &quick());
        let found = report.findings.iter().find(|f| f.subject == "io_uring").unwrap();
        assert_eq!(found.level, Level::Slow);
        assert!(found.remedy.contains("seccomp"), "{found:?}");
        assert_eq!(report.exit_code, 1, "{:#?}", report.findings);
        let outcome = &probe(&report, Way::Uring).outcome;
        assert!(matches!(outcome, Outcome::Refused { .. }), "{outcome:?}");
        // Everything else works, with the same bytes.
        checked_bytes(&report, Way::Automatic);
        checked_bytes(&report, Way::Mapped);
    });
}

#[test]
fn almost_no_memory_may_be_locked() {
    in_child("almost_no_memory_may_be_locked", || {
        limit(libc::RLIMIT_MEMLOCK, 64 << 10);
        drop_capability(CAP_IPC_LOCK);
        let dir = folder();
        let path = write(dir.path(), "t.bin", 2 << 20);
        let report = of(&path, &quick());
        let uring = report.findings.iter().find(|f| f.subject == "io_uring").unwrap();
        // A machine that forbids io_uring altogether has nothing to register with.
        if uring.level == Level::Ok {
            let found = report.findings.iter().find(|f| f.subject == "locked memory").unwrap();
            assert_eq!(found.level, Level::Slow);
            assert!(found.found.contains("the limit is 64 KiB"), "{found:?}");
            assert!(found.remedy.contains("ulimit -l"), "{found:?}");
        }
        checked_bytes(&report, Way::Automatic);
    });
}

#[test]
fn an_interruption_leaves_a_report_of_what_was_done() {
    let dir = folder();
    let path = write(dir.path(), "t.bin", 2 << 20);
    let cancel = Arc::new(AtomicBool::new(false));
    let seen = cancel.clone();
    let options = Options {
        cancel,
        // Interrupted just before the path's turn.
        progress: Some(Arc::new(move |what: &str| {
            if what.ends_with("t.bin") {
                seen.store(true, Ordering::Relaxed);
            }
        })),
        ..quick()
    };
    let report = of(&path, &options);
    assert!(
        path_of(&report).access.iter().all(|probe| !matches!(probe.outcome, Outcome::Works { .. }))
    );
    assert_eq!(worst(&report, &path), Level::Unknown);
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_every_way_to_the_device_delivers_the_file() {
    for place in [std::env::temp_dir(), "/dev/shm".into()] {
        let dir = tempfile::tempdir_in(place).unwrap();
        let path = write(dir.path(), "t.bin", (64 << 20) + 137);
        let report = of(&path, &options());
        println!("{}", render(&report));
        let gpu = &report.facts.gpu.devices[0];
        assert!(gpu.h2d_gb_per_s().is_some_and(|rate| rate > 1.0), "{:?}", gpu.h2d);
        assert!(gpu.memory_speed.value().is_some_and(|speed| speed.gb_per_s > 10.0));
        let memory = gpu.memory.value().unwrap();
        assert!(memory.free_bytes <= memory.total_bytes);
        assert_eq!(checked_bytes(&report, Way::GpuSlotsBuffered(0)), 8 << 20);
        if path_of(&report).examined.value().unwrap().memory_backed {
            assert_eq!(checked_bytes(&report, Way::GpuRegistered(0)), 8 << 20);
        }
        // Whatever cuFile can do here, wrong bytes are not among it.
        for probe in &path_of(&report).access {
            assert!(!matches!(probe.outcome, Outcome::Wrong { .. }), "{probe:?}");
        }
    }
}
