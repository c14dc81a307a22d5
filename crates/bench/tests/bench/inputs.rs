//! Paths that are no good, and plans that cannot be.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use headrace_bench::transfer::{self, BenchError, BenchPlan, PathChoice, Pattern, Target};
use headrace_io::system::{GpuFor, Taker};

use crate::child::{CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, drop_capability, in_child};
use crate::support::TestFile;

fn error_of(path: impl Into<PathBuf>) -> BenchError {
    transfer::run(&BenchPlan::new(vec![path.into()])).unwrap_err()
}

#[test]
fn wrong_paths_have_a_cause_a_place_and_a_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("nothing");
    for (path, wanted) in [
        (missing.clone(), "No such file"),
        (folder.path().to_path_buf(), "no file in this folder"),
        (PathBuf::from("/dev/null"), "neither a file"),
    ] {
        let error = error_of(path.clone());
        let text = error.to_string();
        assert!(text.contains(wanted) && text.contains(&path.display().to_string()), "{text}");
        assert!(error.remedy().is_some() && !error.is_usage(), "{text}");
    }
}

#[test]
fn a_file_that_may_not_be_read() {
    in_child("inputs::a_file_that_may_not_be_read", || {
        drop_capability(CAP_DAC_OVERRIDE);
        drop_capability(CAP_DAC_READ_SEARCH);
        let file = TestFile::new(1000);
        std::fs::set_permissions(&file.path, PermissionsExt::from_mode(0o000)).unwrap();
        let error = error_of(&file.path);
        assert!(error.to_string().contains("ermission denied"), "{error}");
        assert!(error.remedy().unwrap().contains("permissions"), "{error}");
    });
}

#[test]
fn a_folder_is_all_files_below_it() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    std::fs::create_dir_all(folder.path().join("a/b")).unwrap();
    std::fs::write(folder.path().join("one"), vec![1u8; 100_000]).unwrap();
    std::fs::write(folder.path().join("a/two"), vec![2u8; 50_000]).unwrap();
    std::fs::write(folder.path().join("a/b/empty"), b"").unwrap();
    // A circle, and something that is no file.
    std::os::unix::fs::symlink("..", folder.path().join("a/up")).unwrap();
    let plan = BenchPlan {
        path: PathChoice::Pread,
        pattern: Pattern::Sequential { chunk_bytes: 16 << 10 },
        verify: true,
        ..BenchPlan::new(vec![folder.path().to_path_buf()])
    };
    let run = transfer::run(&plan).unwrap();
    assert_eq!((run.files, run.bytes, run.file_bytes), (3, 150_000, 150_000));
    assert_eq!(run.verification.unwrap().mismatch_count, 0);
    assert!(run.notes.iter().any(|note| note.contains("1 entries")), "{:?}", run.notes);
}

#[test]
fn plans_that_cannot_be_are_usage_errors() {
    let file = TestFile::new(1000);
    let good = file.plan(PathChoice::Auto);
    let wrong = [
        BenchPlan { paths: Vec::new(), ..good.clone() },
        BenchPlan { threads: 0, ..good.clone() },
        BenchPlan { depth: 0, ..good.clone() },
        BenchPlan { slots: Some(0), ..good.clone() },
        BenchPlan { pattern: Pattern::Sequential { chunk_bytes: 0 }, ..good.clone() },
        BenchPlan { pattern: Pattern::Random { block_bytes: 1000 }, ..good.clone() },
        BenchPlan { path: PathChoice::Cufile, ..good.clone() },
        BenchPlan { gpu_for: GpuFor(vec![(file.path.clone(), Taker::Gpu(0))]), ..good.clone() },
        BenchPlan {
            target: Target::Gpus(vec![0]),
            gpu_for: GpuFor(vec![(file.path.clone(), Taker::Gpu(1))]),
            ..good.clone()
        },
    ];
    for plan in wrong {
        let error = transfer::run(&plan).unwrap_err();
        assert!(error.is_usage(), "{error}: {plan:?}");
        assert!(error.remedy().is_some_and(|remedy| !remedy.is_empty()), "{error}");
    }
}
