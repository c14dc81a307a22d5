//! Writers where the system refuses: file size limits, forbidden io_uring, little lockable memory.
//! Each in a process of its own.

use std::sync::Arc;

use headrace_io::write::{SinkFile, UringWriter, WriteAt};
use headrace_io::{AlignedBuffer, IoError, ReadMode, UringOptions, Window};

use crate::child::{CAP_IPC_LOCK, drop_capability, forbid_io_uring, in_child, limit};
use crate::support::{Bench, Folder, KINDS, Kind, content};

#[test]
fn a_file_size_limit_is_seen_before_a_byte_is_written() {
    in_child("limits::a_file_size_limit_is_seen_before_a_byte_is_written", || {
        let folder = Folder::new();
        limit(libc::RLIMIT_FSIZE, 65_536);
        let error = SinkFile::create(&folder.path, 65_537).unwrap_err();
        let IoError::Sink { cause, .. } = &error else { panic!("{error}") };
        assert_eq!(cause.raw_os_error(), Some(libc::EFBIG));
        assert!(error.to_string().contains("ulimit -f"), "{error}");
        assert!(folder.names().is_empty());
        let sink: Arc<dyn WriteAt> = folder.sink(65_536);
        Bench::new(KINDS[1], 1 << 20).write_all(&sink, &content(65_536), 65_536).unwrap();
        sink.commit(true).unwrap();
        assert!(std::fs::read(&folder.path).unwrap() == content(65_536));
    });
}

/// O_DIRECT would pad the last block, past the limit; the file itself fits.
#[test]
fn a_file_size_limit_inside_the_last_block_leaves_the_page_cache() {
    const BYTES: usize = 61_441;
    in_child("limits::a_file_size_limit_inside_the_last_block_leaves_the_page_cache", || {
        let folder = Folder::new();
        let direct = folder.sink(BYTES).direct().is_ok();
        limit(libc::RLIMIT_FSIZE, BYTES as u64);
        let sink = folder.sink(BYTES);
        let reason = sink.direct().unwrap_err().to_string();
        assert!(reason.contains("ulimit -f") && reason.contains("65536"), "{reason}");
        let error = Bench::new(KINDS[1], 1 << 20).write(sink.clone(), 0, &[0; 4096]).unwrap_err();
        assert!(error.to_string().contains(&reason), "{error}");
        let file: Arc<dyn WriteAt> = sink;
        let mut bench = Bench::new(Kind::Pool(ReadMode::Buffered), 1 << 20);
        bench.write_all(&file, &content(BYTES), 16_384).unwrap();
        file.commit(true).unwrap();
        assert!(std::fs::read(&folder.path).unwrap() == content(BYTES));
        // One byte more does not fit, and a whole number of blocks needs no padding.
        let error = SinkFile::create(&folder.path, BYTES as u64 + 1).unwrap_err();
        assert!(error.to_string().contains("ulimit -f"), "{error}");
        assert_eq!(folder.sink(57_344).direct().is_ok(), direct);
    });
}

/// SIGXFSZ, whose default is to kill, came with each of these errors.
#[test]
fn a_file_size_limit_that_comes_later_is_an_error_and_kills_nobody() {
    in_child("limits::a_file_size_limit_that_comes_later_is_an_error_and_kills_nobody", || {
        const LIMIT: u64 = 20_480;
        let folders: Vec<(Kind, Folder)> = KINDS.map(|kind| (kind, Folder::new())).into();
        let sinks: Vec<Arc<SinkFile>> = folders.iter().map(|(_, f)| f.sink(100_000)).collect();
        limit(libc::RLIMIT_FSIZE, LIMIT);
        for ((kind, folder), sink) in folders.iter().zip(sinks) {
            let mut bench = Bench::new(*kind, 1 << 20);
            bench.write(sink.clone(), 0, &content(20_480)).unwrap();
            for offset in [16_384, 40_960] {
                let error = bench.write(sink.clone(), offset, &content(30_000)).unwrap_err();
                let IoError::Write { offset, cause, .. } = &error else {
                    panic!("{kind:?}: {error}");
                };
                assert!(*offset >= LIMIT, "{kind:?}: {error}");
                assert_eq!(cause.raw_os_error(), Some(libc::EFBIG), "{kind:?}");
                assert!(error.to_string().contains("ulimit -f"), "{error}");
            }
            // From a thread that does not block signals.
            let error = sink.write_at(ReadMode::Buffered, LIMIT, &content(10)).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EFBIG), "{error}");
            assert_eq!(sigxfsz_is_blocked_or_pending(), (false, false));
            drop(sink);
            assert!(folder.names().is_empty(), "{kind:?}");
        }
    });
}

fn sigxfsz_is_blocked_or_pending() -> (bool, bool) {
    // SAFETY: `sigset_t` is plain data that the calls fill in.
    unsafe {
        let mut blocked: libc::sigset_t = std::mem::zeroed();
        let mut pending: libc::sigset_t = std::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &mut blocked);
        libc::sigpending(&mut pending);
        let has = |set: &libc::sigset_t| libc::sigismember(set, libc::SIGXFSZ) == 1;
        (has(&blocked), has(&pending))
    }
}

/// What a caller does when there is no ring: the same file, by threads.
fn threads_write_the_same() {
    let wanted = content(100_001);
    for mode in [ReadMode::Buffered, ReadMode::Direct] {
        let folder = Folder::new();
        let sink: Arc<dyn WriteAt> = folder.sink(wanted.len());
        Bench::new(Kind::Pool(mode), 1 << 20).write_all(&sink, &wanted, 40_960).unwrap();
        sink.commit(false).unwrap();
        assert!(std::fs::read(&folder.path).unwrap() == wanted, "{mode:?}");
    }
}

#[test]
fn a_seccomp_filter_that_denies_io_uring() {
    in_child("limits::a_seccomp_filter_that_denies_io_uring", || {
        forbid_io_uring(libc::EPERM);
        // SAFETY: nothing is registered.
        let start = unsafe { UringWriter::start(&UringOptions::default(), &[], Arc::new(|_| ())) };
        let Err(refusal) = start else { panic!("the ring was made in spite of the filter") };
        assert_eq!(refusal.errno, Some(libc::EPERM));
        threads_write_the_same();
    });
}

#[test]
fn little_lockable_memory() {
    in_child("limits::little_lockable_memory", || {
        limit(libc::RLIMIT_MEMLOCK, 64 << 10);
        drop_capability(CAP_IPC_LOCK);
        let memory = AlignedBuffer::allocate(4 << 20).unwrap();
        let window = Window::new(memory.as_ptr(), memory.len());
        let (options, sink) = (UringOptions::default(), Arc::new(|_| ()));
        // SAFETY: the engine is dropped before the memory.
        match unsafe { UringWriter::start(&options, &[window], sink) } {
            Ok(engine) => {
                let reason = engine.registered().unwrap_err();
                assert!(reason.contains("ulimit -l"), "{reason}");
            }
            // Kernels before 5.12 count the ring itself as locked memory.
            Err(refusal) => assert!(refusal.to_string().contains("ulimit -l"), "{refusal}"),
        }
        threads_write_the_same();
    });
}
