//! Files to measure.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use headrace_bench::transfer::{
    self, BenchPlan, BenchRun, FileWrap, PathChoice, Pattern, Progress,
};
use headrace_io::{FaultPlan, FaultyFile, ReadAt, SourceFile};

/// Paths that lead to the host.
pub const HOST_PATHS: [PathChoice; 5] =
    [PathChoice::Auto, PathChoice::Uring, PathChoice::Direct, PathChoice::Pread, PathChoice::Mmap];

pub struct TestFile {
    pub folder: tempfile::TempDir,
    pub path: PathBuf,
    pub bytes: u64,
}

impl TestFile {
    /// On the disk where the tests were built, or, where they were carried to, on the one of the
    /// current folder: neither is memory.
    pub fn new(bytes: u64) -> TestFile {
        let built = Path::new(env!("CARGO_TARGET_TMPDIR"));
        Self::below(if built.is_dir() { built } else { Path::new(".") }, bytes)
    }

    pub fn in_memory(bytes: u64) -> TestFile {
        Self::below(Path::new("/dev/shm"), bytes)
    }

    fn below(folder: &Path, bytes: u64) -> TestFile {
        let folder = tempfile::tempdir_in(folder).unwrap();
        let path = folder.path().join("data.bin");
        let content: Vec<u8> = (0..bytes).map(|i| (i * 31 + i / 251 + i / 65_521) as u8).collect();
        std::fs::write(&path, content).unwrap();
        TestFile { folder, path, bytes }
    }

    /// A small plan: chunks of 64 KiB, so that there are many.
    pub fn plan(&self, path: PathChoice) -> BenchPlan {
        BenchPlan {
            path,
            pattern: Pattern::Sequential { chunk_bytes: 64 << 10 },
            threads: 2,
            slots: Some(4),
            depth: 8,
            ..BenchPlan::new(vec![self.path.clone()])
        }
    }

    /// Whether the file can be read past the page cache.
    pub fn has_direct(&self) -> bool {
        self.bytes > 0 && SourceFile::open(&self.path).unwrap().direct().is_ok()
    }
}

/// The race reads the faulty twin of every file.
pub fn twin(faults: FaultPlan) -> Option<FileWrap> {
    Some(Arc::new(move |file| -> Arc<dyn ReadAt> { FaultyFile::new(file, faults.clone()) }))
}

/// Runs the plan, and interrupts it when the first bytes have arrived.
pub fn run_interrupted(plan: &mut BenchPlan) -> BenchRun {
    let progress = Arc::new(Progress::default());
    let cancel = Arc::new(AtomicBool::new(false));
    plan.hooks.progress = Some(progress.clone());
    plan.hooks.cancel = Some(cancel.clone());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let start = Instant::now();
            while progress.done_bytes() == 0 && start.elapsed() < Duration::from_secs(10) {
                std::thread::sleep(Duration::from_millis(1));
            }
            cancel.store(true, Ordering::Relaxed);
        });
        transfer::run(plan).unwrap()
    })
}
