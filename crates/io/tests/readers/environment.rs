//! Readers where the system refuses: forbidden io_uring, little lockable memory, failing storage.
//! Each in a process of its own.

use std::os::fd::AsRawFd;
use std::sync::Arc;

use headrace_io::{
    AlignedBuffer, FaultPlan, FileIdentity, IoError, MappedFile, ReadAt, ReadMode, SourceFile,
    UringEngine, UringOptions, UringUnavailable, Window, drop_cache,
};

use crate::child::{CAP_IPC_LOCK, drop_capability, forbid_io_uring, in_child, limit};
use crate::support::{Bench, KINDS, Kind, TestFile};

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
            short_permille: 200,
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
        let plan = FaultPlan { direct_refused: true, short_permille: 300, ..FaultPlan::default() };
        let twin = headrace_io::FaultyFile::new(source, plan);
        let (got, done) = Bench::new(kind, 1 << 20).read(twin, 4095, 95_000).unwrap();
        assert!(got == file.content[4095..99_095], "{kind:?}");
        assert_eq!(done.direct_bytes, 0, "{kind:?}");
        assert!(done.direct_refused_bytes >= 95_000 - 4096, "{kind:?}: {done:?}");
    }
}

/// Far more files than may be open, each read through descriptors, the ring and mappings.
#[test]
fn more_files_than_may_be_open() {
    in_child("environment::more_files_than_may_be_open", || {
        const FILES: usize = 400;
        let dir = tempfile::tempdir().unwrap();
        let sources: Vec<_> = (0..FILES)
            .map(|i| {
                let path = dir.path().join(i.to_string());
                std::fs::write(&path, content_of(i)).unwrap();
                SourceFile::known(&path, FileIdentity::of_path(&path).unwrap())
            })
            .collect();
        let mut benches: Vec<_> =
            KINDS.into_iter().map(|kind| (kind, Bench::new(kind, 1 << 20))).collect();
        let open = std::fs::read_dir("/proc/self/fd").unwrap().count() as u64;
        limit(libc::RLIMIT_NOFILE, open + 40);
        for round in 0..2 {
            for (i, source) in sources.iter().enumerate() {
                let wanted = content_of(i);
                for (kind, bench) in &mut benches {
                    let (got, _) = bench.read(source.clone(), 0, wanted.len() as u64).unwrap();
                    assert!(got == wanted, "{kind:?}, file {i}, round {round}");
                }
                let mapped = MappedFile::map(source.clone()).unwrap();
                assert!(mapped.bytes(0, wanted.len() as u64).unwrap() == wanted);
                assert!(source.check_unchanged().is_ok());
            }
        }
    });
}

fn content_of(file: usize) -> Vec<u8> {
    (0..5000 + file).map(|at| (at * (file + 3) / 7) as u8).collect()
}

#[test]
fn a_file_that_was_replaced_while_it_was_closed_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    std::fs::write(&path, vec![1; 10_000]).unwrap();
    let known = SourceFile::known(&path, FileIdentity::of_path(&path).unwrap());
    let gone = SourceFile::known(dir.path().join("b"), known.identity());
    let other = dir.path().join("c");
    std::fs::write(&other, vec![2; 10_000]).unwrap();
    std::fs::rename(&other, &path).unwrap();
    for kind in KINDS {
        let mut bench = Bench::new(kind, 1 << 20);
        let error = bench.read(known.clone(), 0, 100).unwrap_err();
        // Past the page cache a file is tried out first, and the refusal is words.
        let said = matches!(error, IoError::Changed { .. });
        assert!(said || error.to_string().contains("another file"), "{kind:?}: {error}");
        assert!(bench.read(gone.clone(), 0, 100).unwrap_err().to_string().contains("/b"));
    }
    assert!(matches!(MappedFile::map(known), Err(IoError::Changed { .. })));
}

#[test]
fn no_file_at_all_names_the_limit_and_the_lever() {
    in_child("environment::no_file_at_all_names_the_limit_and_the_lever", || {
        let file = TestFile::new(10_000);
        let source = SourceFile::known(&file.path, file.open().identity());
        let next = std::fs::File::open("/dev/null").unwrap().as_raw_fd();
        let before = limit(libc::RLIMIT_NOFILE, next as u64);
        let error = source.read_exact_at(0, &mut [0; 100]).unwrap_err().to_string();
        assert!(error.contains("ulimit -n") && error.contains(&format!("{next} open")), "{error}");
        let error = SourceFile::open(&file.path).unwrap_err().to_string();
        assert!(error.contains("ulimit -n"), "{error}");
        limit(libc::RLIMIT_NOFILE, before);
        source.read_exact_at(0, &mut [0; 100]).unwrap();
    });
}

#[test]
fn the_limit_of_open_files_is_raised_to_what_is_allowed() {
    in_child("environment::the_limit_of_open_files_is_raised_to_what_is_allowed", || {
        let before = limit(libc::RLIMIT_NOFILE, 50);
        assert!(headrace_io::raise_open_files() >= before);
    });
}
