//! Readers where the system refuses: forbidden io_uring, little lockable memory, failing storage.
//! Each in a process of its own.

use std::os::fd::AsRawFd;
use std::sync::Arc;

use headrace_io::{
    AlignedBuffer, FaultPlan, IoError, ReadMode, UringEngine, UringOptions, UringUnavailable,
    Window, drop_cache,
};

use crate::child::{drop_capability, forbid_io_uring, in_child, limit};
use crate::support::{Bench, KINDS, Kind, TestFile};

const CAP_IPC_LOCK: u32 = 14;
const POOLS: [Kind; 2] = [Kind::Pool(ReadMode::Buffered), Kind::Pool(ReadMode::Direct)];

fn start(register: &[Window]) -> Result<UringEngine, UringUnavailable> {
    // SAFETY: whoever passes windows drops the engine before their memory.
    unsafe { UringEngine::start(&UringOptions::default(), register, Arc::new(|_| ())) }
}

/// What a caller does when there is no ring: the same bytes, by threads.
fn threads_read_the_same(file: &TestFile) {
    for kind in POOLS {
        let (got, _) = Bench::new(kind, 1 << 20).read(file.open(), 5, 90_000).unwrap();
        assert!(got == file.content[5..90_005], "{kind:?}");
    }
}

fn forbidden(errno: i32, remedy: &str) {
    let file = TestFile::new(100_001);
    drop(start(&[]).expect("io_uring must work before it is forbidden"));
    forbid_io_uring(errno);
    let Err(refusal) = start(&[]) else {
        panic!("the ring was made in spite of the filter");
    };
    assert_eq!(refusal.errno, Some(errno));
    assert!(refusal.to_string().contains(remedy), "{refusal}");
    threads_read_the_same(&file);
}

#[test]
fn a_seccomp_filter_that_denies_io_uring() {
    in_child("environment::a_seccomp_filter_that_denies_io_uring", || {
        forbidden(libc::EPERM, "allow it in the seccomp profile");
    });
}

#[test]
fn a_seccomp_filter_that_hides_io_uring() {
    in_child("environment::a_seccomp_filter_that_hides_io_uring", || {
        forbidden(libc::ENOSYS, "a seccomp profile that allows it");
    });
}

#[test]
fn little_lockable_memory() {
    in_child("environment::little_lockable_memory", || {
        let file = TestFile::new(100_001);
        limit(libc::RLIMIT_MEMLOCK, 64 << 10);
        drop_capability(CAP_IPC_LOCK);
        let mut memory = AlignedBuffer::allocate(4 << 20).unwrap();
        memory.touch(1);
        match start(&[Window::new(memory.as_ptr(), memory.len())]) {
            Ok(engine) => {
                let reason = engine.registered().unwrap_err();
                assert!(reason.contains("ulimit -l"), "{reason}");
                drop(engine);
                for mode in [ReadMode::Buffered, ReadMode::Direct] {
                    let mut bench = Bench::new(Kind::UringUnregistered(mode), 1 << 20);
                    assert!(bench.engine.describe().contains("unregistered"));
                    let (got, _) = bench.read(file.open(), 5, 90_000).unwrap();
                    assert!(got == file.content[5..90_005], "{mode:?}");
                }
            }
            // Kernels before 5.12 count the ring itself as locked memory.
            Err(refusal) => assert!(refusal.to_string().contains("ulimit -l"), "{refusal}"),
        }
        threads_read_the_same(&file);
    });
}

#[test]
fn few_open_files() {
    in_child("environment::few_open_files", || {
        let file = TestFile::new(100_001);
        let source = file.open();
        source.direct().unwrap();
        // The kernel gives the lowest number that is free, and none from the limit on.
        let next = std::fs::File::open("/dev/null").unwrap().as_raw_fd();
        let before = limit(libc::RLIMIT_NOFILE, next as u64);
        let Err(refusal) = start(&[]) else { panic!("a ring without a descriptor") };
        assert!(refusal.to_string().contains("ulimit -n"), "{refusal}");
        let (got, _) = Bench::new(POOLS[1], 1 << 20).read(source, 5, 90_000).unwrap();
        assert!(got == file.content[5..90_005]);
        // Removing the folder takes descriptors again.
        limit(libc::RLIMIT_NOFILE, before);
    });
}

/// Holes, an unaligned end and a device that fails in the middle, in one cold file.
#[test]
fn a_sparse_unaligned_file_on_failing_storage() {
    const BYTES: usize = 300_007;
    let file = TestFile::new(0);
    let handle = std::fs::OpenOptions::new().write(true).open(&file.path).unwrap();
    handle.set_len(BYTES as u64).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&handle, b"island", 200_000).unwrap();
    handle.sync_all().unwrap();
    let mut wanted = vec![0u8; BYTES];
    wanted[200_000..200_006].copy_from_slice(b"island");
    for kind in KINDS {
        let source = file.open();
        drop_cache(&*source).unwrap();
        let plan = FaultPlan {
            seed: 3,
            io_error_at: Some(150_000),
            short_reads_permille: 200,
            ..FaultPlan::default()
        };
        let twin = headrace_io::FaultyFile::new(source, plan);
        let mut bench = Bench::new(kind, 1 << 20);
        let error = bench.read(twin.clone(), 0, BYTES as u64).unwrap_err();
        let IoError::Read { offset, bytes, cause, .. } = &error else {
            panic!("{kind:?}: {error}");
        };
        assert!((*offset..offset + bytes).contains(&150_000), "{kind:?}: {error}");
        assert_eq!(cause.raw_os_error(), Some(libc::EIO));
        let (got, _) = bench.read(twin, 160_000, BYTES as u64 - 160_000).unwrap();
        assert!(got == wanted[160_000..], "{kind:?}");
    }
}

/// As on overlays whose upper layer refuses what the opening promised: in the middle of a file,
/// cold, with an unaligned end.
#[test]
fn direct_reads_that_open_and_then_fail() {
    let file = TestFile::new(100_001);
    for kind in KINDS.into_iter().filter(|kind| kind.mode() == ReadMode::Direct) {
        let source = file.open();
        drop_cache(&*source).unwrap();
        let plan =
            FaultPlan { direct_refused: true, short_reads_permille: 300, ..FaultPlan::default() };
        let twin = headrace_io::FaultyFile::new(source, plan);
        let (got, done) = Bench::new(kind, 1 << 20).read(twin, 4095, 95_000).unwrap();
        assert!(got == file.content[4095..99_095], "{kind:?}");
        assert_eq!(done.direct_bytes, 0, "{kind:?}");
        assert!(done.direct_refused_bytes >= 95_000 - 4096, "{kind:?}: {done:?}");
    }
}
