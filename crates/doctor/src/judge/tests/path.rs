//! Paths, and the ways from them.

use super::*;

#[test]
fn a_good_machine_is_all_well_with_and_without_a_gpu() {
    only_ok(&of_path(good_path()));
    let mut path = good_path();
    path.access.push(works(Way::GpuSlotsDirect(0), 2.39));
    path.access.push(refused(Way::GpuCuFile(0), "no libcufile"));
    path.nearest_gpu = Some(NearestGpu {
        gpu: Some(0),
        reason: "nvme0n1 and GPU 0 share a root complex; it is the only GPU".to_string(),
        distances: vec![Distance::SameRootComplex],
    });
    only_ok(&report(machine(), one_gpu(h200()), vec![path]));
}

#[test]
fn every_fault_says_why_and_every_slow_thing_too() {
    let mut path = good_path();
    path.access.push(refused(Way::Buffered, "Input/output error (os error 5)"));
    let report = of_path(path);
    for finding in report.findings.iter().filter(|f| f.level >= Level::Slow) {
        assert!(!finding.why.is_empty() && !finding.remedy.is_empty(), "{finding:?}");
    }
    assert_eq!(report.exit_code, 2);
    assert_eq!(report.findings[0].level, Level::Broken);
}

#[test]
fn what_does_not_exist_or_cannot_be_opened_is_broken() {
    let missing = PathFacts {
        kind: PathKind::Missing,
        examined: Known::unknown("no file"),
        access: Vec::new(),
        ..good_path()
    };
    let report = of_path(missing);
    one(&report, Level::Broken, "no such file");
    assert_eq!(report.exit_code, 2);
    let locked = PathFacts {
        examined: Known::unknown("cannot open the file: Permission denied (os error 13)"),
        access: Vec::new(),
        ..good_path()
    };
    assert!(one(&of_path(locked), Level::Broken, "Permission denied").remedy.contains("chmod"));
    let socket = PathFacts { kind: PathKind::Other, access: Vec::new(), ..good_path() };
    assert_eq!(of_path(socket).exit_code, 2);
}

#[test]
fn an_empty_file_and_an_empty_folder_could_not_be_tried() {
    let empty = PathFacts {
        examined: Known::Value(FileFact { size_bytes: 0, allocated_bytes: 0, ..file() }),
        access: Vec::new(),
        ..good_path()
    };
    let report = of_path(empty);
    one(&report, Level::Unknown, "is empty");
    assert_eq!(report.exit_code, 0);
    let folder = PathFacts {
        kind: PathKind::Folder,
        below: Some(FilesBelow { files: 0, bytes: 0, unreadable: 0, more: false }),
        examined: Known::unknown("there is no file in it"),
        access: Vec::new(),
        ..good_path()
    };
    one(&of_path(folder), Level::Unknown, "there is no file in it");
}

#[test]
fn wrong_bytes_are_broken_by_whatever_way_they_came() {
    for way in [Way::Mapped, Way::Uring, Way::GpuSlotsDirect(0), Way::GpuRegistered(0)] {
        let mut path = good_path();
        path.access.push(AccessProbe {
            way,
            outcome: Outcome::Wrong { what: "1 of 8 chunks differ".to_string() },
        });
        let report = of_path(path);
        one(&report, Level::Broken, "wrong bytes");
        assert_eq!(report.exit_code, 2);
    }
}

#[test]
fn a_folder_that_cannot_be_written() {
    let mut path = good_path();
    path.write = Some(refused(Way::Write, "Read-only file system (os error 30)"));
    let report = of_path(path);
    let found = one(&report, Level::Broken, "Read-only");
    assert!(found.remedy.contains("findmnt"), "{found:?}");
    let mut path = good_path();
    path.write = Some(works(Way::Write, 1.5));
    one(&of_path(path), Level::Ok, "can be written: 1.50 GB/s");
}

#[test]
fn a_race_that_does_not_keep_up_with_the_drive() {
    let mut path = good_path();
    path.access.push(works(Way::GpuSlotsDirect(0), 1.0));
    path.access.push(refused(Way::GpuCuFile(0), "no libcufile"));
    let report = report(machine(), one_gpu(h200()), vec![path]);
    one(&report, Level::Slow, "1.00 of 2.40 GB/s reach gpu 0");
    // Now going straight to the GPU would help.
    one(&report, Level::Slow, "no libcufile");
}

#[test]
fn memory_feeds_a_gpu_at_the_speed_of_the_link() {
    let in_memory = |registered: f64| {
        let mut path = good_path();
        path.examined = Known::Value(FileFact {
            memory_backed: true,
            filesystem: "tmpfs".to_string(),
            direct: Known::unknown("the filesystem does not support O_DIRECT on this file"),
            ..file()
        });
        path.home = StorageHome {
            medium: Ok(Medium::Memory),
            stack: Vec::new(),
            devices: Vec::new(),
            ..home("tmpfs")
        };
        path.access = vec![
            works(Way::Automatic, 20.0),
            refused(Way::Uring, "no O_DIRECT"),
            refused(Way::DirectThreads, "no O_DIRECT"),
            works(Way::Mapped, 20.0),
            works(Way::GpuRegistered(0), registered),
        ];
        report(machine(), one_gpu(h200()), vec![path])
    };
    only_ok(&in_memory(55.0));
    one(&in_memory(20.0), Level::Slow, "20.00 of 55.40 GB/s reach gpu 0");
}

#[test]
fn an_automatic_choice_that_chose_badly() {
    let mut path = good_path();
    path.access[0] = works(Way::Automatic, 0.5);
    one(&of_path(path), Level::Slow, "reached 0.50 of 2.40 GB/s");
}

#[test]
fn what_was_not_tried_is_said() {
    let mut path = good_path();
    path.access[1].outcome = Outcome::NotTried { reason: "interrupted".to_string() };
    one(&of_path(path), Level::Unknown, "not tried (O_DIRECT, io_uring): interrupted");
}

#[test]
fn a_drive_that_was_faster_lately() {
    let with =
        |earlier: Option<f64>| of_path(PathFacts { earlier_gb_per_s: earlier, ..good_path() });
    only_ok(&with(Some(2.5)));
    let report = with(Some(7.0));
    assert!(one(&report, Level::Slow, "7.00 GB/s lately").remedy.contains("iostat"));
}

#[test]
fn a_ring_below_threads() {
    let mut path = good_path();
    path.access[1] = works(Way::Uring, 0.7);
    one(&of_path(path), Level::Slow, "io_uring reached 0.70 GB/s, threads 2.40 GB/s");
}

#[test]
fn short_runs_are_not_compared() {
    let short = |way: Way, rate: f64| {
        let mut probe = works(way, rate);
        if let Outcome::Works { timed_bytes, .. } = &mut probe.outcome {
            *timed_bytes = 32 << 20;
        }
        probe
    };
    let mut path = good_path();
    path.access = vec![
        short(Way::Automatic, 1.0),
        short(Way::Uring, 1.0),
        works(Way::DirectThreads, 2.4),
        works(Way::Buffered, 2.4),
        works(Way::Mapped, 2.4),
        short(Way::GpuSlotsDirect(0), 1.0),
    ];
    only_ok(&report(machine(), one_gpu(h200()), vec![path]));
}
