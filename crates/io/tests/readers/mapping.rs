//! Mappings: in place, released, and alive after the file has shrunk under them.

use std::sync::Arc;

use headrace_io::{FaultPlan, IoError, MappedFile, ReadAt, SourceFile, residency};

use crate::support::TestFile;

#[test]
fn a_mapping_shows_the_file() {
    for size in [0usize, 1, 4096, 10_001] {
        let file = TestFile::new(size);
        let mapped = MappedFile::map(file.open()).unwrap();
        assert_eq!((mapped.len(), mapped.is_empty()), (size, size == 0));
        assert!(mapped.bytes(0, size as u64).unwrap() == file.content);
        assert!(matches!(mapped.bytes(1, size as u64), Err(IoError::OutOfRange { .. })));
        assert!(matches!(mapped.bytes(u64::MAX, 2), Err(IoError::OutOfRange { .. })));
        mapped.check().unwrap();
    }
}

#[test]
fn truncation_under_a_mapping_poisons_it_and_the_process_lives() {
    let file = TestFile::new(1 << 20);
    let source = file.open();
    let mapped = MappedFile::map(source.clone()).unwrap();
    let other = TestFile::new(1 << 20);
    let untouched = MappedFile::map(other.open()).unwrap();
    let handle = std::fs::OpenOptions::new().write(true).open(&file.path).unwrap();
    handle.set_len(300_000).unwrap();

    let all = mapped.bytes(0, 1 << 20).unwrap();
    assert!(all[..200_000] == file.content[..200_000]);
    mapped.check().unwrap();
    let sum: u64 = all.iter().map(|byte| u64::from(*byte)).sum();
    assert!(sum > 0);
    let error = mapped.check().unwrap_err();
    let IoError::Poisoned { path, offset, .. } = &error else { panic!("{error}") };
    assert_eq!(path, &file.path);
    // The first whole page behind the new end.
    assert_eq!(*offset, 303_104);
    assert!(all[400_000..].iter().all(|byte| *byte == 0));
    assert!(matches!(source.check_unchanged(), Err(IoError::Changed { .. })));

    assert!(untouched.bytes(0, 1 << 20).unwrap() == other.content);
    untouched.check().unwrap();
    // A new mapping of another file must not inherit the mark of the old one.
    drop(mapped);
    let again = MappedFile::map(other.open()).unwrap();
    assert!(again.bytes(0, 1 << 20).unwrap() == other.content);
    again.check().unwrap();
}

#[test]
fn many_threads_may_run_into_the_same_hole() {
    let file = TestFile::new(4 << 20);
    let mapped = Arc::new(MappedFile::map(file.open()).unwrap());
    let handle = std::fs::OpenOptions::new().write(true).open(&file.path).unwrap();
    handle.set_len(0).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8u64 {
            let mapped = mapped.clone();
            scope.spawn(move || {
                let part = mapped.bytes(thread * (512 << 10), 512 << 10).unwrap();
                assert!(part.iter().all(|byte| *byte == 0));
                assert!(matches!(mapped.check(), Err(IoError::Poisoned { .. })));
            });
        }
    });
}

#[test]
fn faults_of_the_twin_reach_mappings() {
    let file = TestFile::new(100_000);
    let map = |plan: FaultPlan| MappedFile::map(file.faulty(plan)).unwrap();

    let mapped = map(FaultPlan { io_error_at: Some(50_000), ..FaultPlan::default() });
    assert!(mapped.bytes(0, 49_000).unwrap() == &file.content[..49_000]);
    mapped.check().unwrap();
    assert_eq!(mapped.bytes(50_000, 1).unwrap(), [0]);
    assert!(matches!(mapped.check(), Err(IoError::Poisoned { offset: 49_152, .. })));

    let mapped = map(FaultPlan { truncated_at: Some(50_000), ..FaultPlan::default() });
    assert!(mapped.bytes(0, 50_000).unwrap() == &file.content[..50_000]);
    assert_eq!(mapped.bytes(50_000, 1).unwrap(), [0]);
    mapped.check().unwrap();
    assert_eq!(mapped.bytes(99_999, 1).unwrap(), [0]);
    assert!(matches!(mapped.check(), Err(IoError::Poisoned { .. })));

    let plan = FaultPlan { seed: 9, torn_blocks_permille: 500, ..FaultPlan::default() };
    let twin = file.faulty(plan.clone());
    let mut wanted = file.content.clone();
    twin.tear(0, &mut wanted);
    assert!(wanted != file.content, "the twin tore nothing");
    assert!(map(plan).bytes(0, 100_000).unwrap() == wanted);
}

#[test]
fn released_pages_leave_the_process_and_come_back() {
    let bytes = 64 << 20;
    let file = TestFile::new(bytes);
    let mapped = MappedFile::map(file.open()).unwrap();
    let size = bytes as u64;
    mapped.populate(0..size);
    assert!(mapped.bytes(0, size).unwrap() == file.content);
    let full = mapped_rss_bytes(&file);
    assert!(full >= size, "{full}");
    mapped.release(0..size);
    let left = mapped_rss_bytes(&file);
    assert_eq!(left, 0);
    assert_eq!(residency(&**mapped.file(), 0, size).unwrap().share(), 1.0);
    assert!(mapped.bytes(0, size).unwrap() == file.content);
    mapped.check().unwrap();
}

#[test]
fn only_whole_pages_inside_the_range_are_released() {
    // Too small for a huge page, which the kernel would unmap as a whole.
    let file = TestFile::new(64 << 10);
    let mapped = MappedFile::map(file.open()).unwrap();
    assert!(mapped.bytes(0, 64 << 10).unwrap() == file.content);
    mapped.release(1..(64 << 10) - 1);
    assert_eq!(mapped_rss_bytes(&file), 2 * 4096);
    mapped.release(0..64 << 10);
    assert_eq!(mapped_rss_bytes(&file), 0);
}

/// Resident bytes of the mapping of a file, from the kernel's own account.
fn mapped_rss_bytes(file: &TestFile) -> u64 {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let name = file.path.to_str().unwrap();
    let mut lines = maps.lines().skip_while(|line| !line.ends_with(name));
    let line = lines.find(|line| line.starts_with("Rss:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

/// A fault outside of our mappings must end the process as it did before there was a handler.
#[test]
fn foreign_faults_still_kill() {
    let file = TestFile::new(8192);
    let _ours = MappedFile::map(file.open()).unwrap();
    let foreign = std::fs::File::open(&file.path).unwrap();
    // SAFETY: the child only makes plain system calls and one access that ends it.
    let status = unsafe {
        let pid = libc::fork();
        if pid == 0 {
            use std::os::fd::AsRawFd;
            let address = libc::mmap(
                std::ptr::null_mut(),
                65_536,
                libc::PROT_READ,
                libc::MAP_SHARED,
                foreign.as_raw_fd(),
                0,
            );
            let byte: *const u8 = address.cast::<u8>().add(32_768);
            std::ptr::read_volatile(byte);
            libc::_exit(0);
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(pid, &mut status, 0), pid);
        status
    };
    assert!(libc::WIFSIGNALED(status), "{status}");
    assert_eq!(libc::WTERMSIG(status), libc::SIGBUS);
}

#[test]
fn only_regular_files_are_opened() {
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(SourceFile::open(dir.path()), Err(IoError::NotAFile { .. })));
    let error = SourceFile::open(dir.path().join("missing")).unwrap_err();
    assert!(error.to_string().contains("missing"), "{error}");
    assert_eq!(error.path().unwrap(), dir.path().join("missing"));
}

#[test]
fn a_mapping_outlives_the_removal_of_its_file() {
    let file = TestFile::new(100_000);
    let source = file.open();
    let mapped = MappedFile::map(source.clone()).unwrap();
    std::fs::remove_file(&file.path).unwrap();
    assert!(mapped.bytes(0, 100_000).unwrap() == file.content);
    mapped.check().unwrap();
    assert!(matches!(source.check_unchanged(), Err(IoError::Changed { .. })));
    drop(file.dir);
}
