//! The file itself: where it lies before and after the commit, and what keeps it from being made.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

use headrace_io::write::{SinkFile, WriteAt};
use headrace_io::{FaultPlan, IoError, ReadAt, ReadMode, SourceFile};

use crate::child::{CAP_DAC_OVERRIDE, drop_capability, in_child};
use crate::support::{Bench, Folder, KINDS, content, put};

#[test]
fn nothing_is_to_be_seen_before_the_commit() {
    let folder = Folder::new();
    std::fs::write(&folder.path, b"old").unwrap();
    std::fs::set_permissions(&folder.path, std::fs::Permissions::from_mode(0o640)).unwrap();
    let sink = folder.sink(5000);
    put(&*sink, 0, &content(5000));
    assert_eq!(std::fs::read(&folder.path).unwrap(), b"old");
    let names = folder.names();
    assert_eq!(names.len(), 2, "{names:?}");
    assert!(names[0].starts_with(".headrace-") && names[0].ends_with(".partial"), "{names:?}");
    sink.commit(true).unwrap();
    assert!(std::fs::read(&folder.path).unwrap() == content(5000));
    assert_eq!(folder.names(), ["out.bin"]);
    let mode = std::fs::metadata(&folder.path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o640, "the permissions of what it replaced");
}

#[test]
fn without_a_commit_nothing_is_left() {
    for old in [None, Some(b"old")] {
        let folder = Folder::new();
        if let Some(old) = old {
            std::fs::write(&folder.path, old).unwrap();
        }
        let sink = folder.sink(50_000);
        put(&*sink, 10, b"new");
        drop(sink);
        assert_eq!(folder.names().len(), usize::from(old.is_some()));
        if let Some(old) = old {
            assert_eq!(std::fs::read(&folder.path).unwrap(), old);
        }
    }
}

#[test]
fn a_commit_that_fails_leaves_nothing_either() {
    let folder = Folder::new();
    let plan = FaultPlan { commit_fails: true, ..FaultPlan::default() };
    let twin = folder.faulty(5000, plan);
    let error = twin.commit(true).unwrap_err();
    assert!(error.to_string().contains("sync the file"), "{error}");
    assert!(folder.names().is_empty());

    // The real thing: the temporary file is gone.
    let sink = folder.sink(5000);
    std::fs::remove_file(folder.dir.path().join(&folder.names()[0])).unwrap();
    let error = sink.commit(false).unwrap_err();
    assert!(matches!(error, IoError::Sink { .. }), "{error}");
    assert!(error.to_string().contains("put the file in its place"), "{error}");
    assert!(folder.names().is_empty());
}

#[test]
fn after_the_commit_it_is_over() {
    for kind in KINDS {
        let folder = Folder::new();
        let sink = folder.sink(8192);
        Bench::new(kind, 8192).write(sink.clone(), 0, &content(8192)).unwrap();
        sink.commit(false).unwrap();
        let error = sink.commit(false).unwrap_err();
        assert!(error.to_string().contains("committed already"), "{error}");
        let error = Bench::new(kind, 8192).write(sink.clone(), 0, &[0; 8192]).unwrap_err();
        assert!(error.to_string().contains("committed already"), "{kind:?}: {error}");
        drop(sink);
        assert!(std::fs::read(&folder.path).unwrap() == content(8192), "{kind:?}");
    }
}

#[test]
fn what_killed_processes_left_is_removed() {
    let folder = Folder::new();
    let make = |name: &str| drop(std::fs::File::create(folder.dir.path().join(name)).unwrap());
    make(".headrace-1-0.partial");
    make(".other-1-0.partial");
    // One that somebody still writes.
    let living = folder.sink(10);
    folder.sink(10).commit(false).unwrap();
    living.commit(false).unwrap();
    assert_eq!(folder.names(), [".other-1-0.partial", "out.bin"]);
}

#[test]
fn a_symbolic_link_is_followed() {
    let folder = Folder::new();
    let (elsewhere, link) = (Folder::new(), folder.dir.path().join("link"));
    std::fs::write(&elsewhere.path, b"old").unwrap();
    std::os::unix::fs::symlink(&elsewhere.path, &link).unwrap();
    let sink = SinkFile::create(&link, 3).unwrap();
    put(&*sink, 0, b"new");
    sink.commit(false).unwrap();
    assert_eq!(std::fs::read(&elsewhere.path).unwrap(), b"new");
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());

    std::fs::remove_file(&elsewhere.path).unwrap();
    let error = SinkFile::create(&link, 3).unwrap_err();
    assert!(matches!(error, IoError::Sink { .. }), "{error}");
    assert!(error.to_string().contains("remove the link"), "{error}");
    assert!(error.to_string().contains(elsewhere.path.to_str().unwrap()), "{error}");
    assert!(!error.to_string().contains("folder first"), "{error}");
}

#[test]
fn places_where_no_file_can_lie() {
    let folder = Folder::new();
    for path in [folder.dir.path(), Path::new("/"), Path::new("/dev/null"), Path::new("a/..")] {
        let error = SinkFile::create(path, 10).unwrap_err();
        assert!(matches!(error, IoError::NotAFile { .. }), "{}: {error}", path.display());
    }
    std::fs::write(&folder.path, b"").unwrap();
    for name in ["out.bin/", "out.bin/.", "new/", "new/.", "new//"] {
        let error = SinkFile::create(folder.dir.path().join(name), 10).unwrap_err();
        assert!(matches!(error, IoError::NotAFile { .. }), "{name}: {error}");
    }
    let error = SinkFile::create(folder.dir.path().join("no/such"), 10).unwrap_err();
    assert!(error.to_string().contains("make the folder first"), "{error}");
    let error = SinkFile::create(folder.path.join("below a file"), 10).unwrap_err();
    assert!(error.to_string().contains("make the folder first"), "{error}");
    assert_eq!(folder.names(), ["out.bin"]);
}

#[test]
fn a_target_that_nobody_may_write_to_is_replaced_by_o_direct_too() {
    in_child("sink::a_target_that_nobody_may_write_to_is_replaced_by_o_direct_too", || {
        // What lets an administrator write everywhere.
        drop_capability(CAP_DAC_OVERRIDE);
        let folder = Folder::new();
        let plain = folder.sink(5000).direct().map(|_| ()).map_err(str::to_string);
        std::fs::write(&folder.path, b"old").unwrap();
        std::fs::set_permissions(&folder.path, std::fs::Permissions::from_mode(0o444)).unwrap();
        let sink = folder.sink(5000);
        assert_eq!(sink.direct().map(|_| ()).map_err(str::to_string), plain);
        put(&*sink, 0, &content(5000));
        sink.commit(false).unwrap();
        let mode = std::fs::metadata(&folder.path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o444);
    });
}

#[test]
fn a_folder_without_permission() {
    in_child("sink::a_folder_without_permission", || {
        // What lets an administrator write everywhere.
        drop_capability(CAP_DAC_OVERRIDE);
        let folder = Folder::new();
        let set = |mode| {
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(folder.dir.path(), permissions).unwrap();
        };
        set(0o555);
        let error = SinkFile::create(&folder.path, 10).unwrap_err();
        assert!(error.to_string().contains("out.bin"), "{error}");
        assert!(error.to_string().contains("you may write to"), "{error}");
        set(0o755);
        folder.sink(10).commit(false).unwrap();
    });
}

#[test]
fn more_than_there_is_room_for_is_refused_at_once() {
    let folder = Folder::new();
    // 4 EiB, and more than any file can have.
    for bytes in [4u64 << 60, u64::MAX, i64::MAX as u64] {
        let error = SinkFile::create(&folder.path, bytes).unwrap_err();
        let IoError::Sink { cause, .. } = &error else { panic!("{error}") };
        let errno = cause.raw_os_error();
        assert!(matches!(errno, Some(libc::ENOSPC | libc::EFBIG)), "{bytes}: {error}");
        assert!(folder.names().is_empty());
    }
}

#[test]
fn files_in_memory() {
    let wanted = content(20_003);
    for kind in KINDS {
        let folder = Folder::inside(Path::new("/dev/shm"));
        let sink: Arc<dyn WriteAt> = folder.sink(wanted.len());
        let outcome = Bench::new(kind, 1 << 20).write_all(&sink, &wanted, 8192);
        match (kind.mode(), sink.sink().direct()) {
            // Whether a tmpfs takes O_DIRECT depends on the kernel; both are fine, silence is not.
            (ReadMode::Direct, Err(reason)) => {
                let error = outcome.unwrap_err();
                assert!(error.to_string().contains(reason), "{kind:?}: {error}");
            }
            _ => {
                outcome.unwrap();
                sink.commit(true).unwrap();
                assert!(std::fs::read(&folder.path).unwrap() == wanted, "{kind:?}");
            }
        }
    }
}

#[test]
fn a_written_file_is_read_back_as_a_source() {
    use headrace_io::ReadAt;
    let folder = Folder::new();
    let sink = folder.sink(9000);
    put(&*sink, 0, &content(9000));
    sink.commit(true).unwrap();
    let source = SourceFile::open(&folder.path).unwrap();
    let mut got = vec![0; 9000];
    source.read_exact_at(0, &mut got).unwrap();
    assert!(got == content(9000));
    source.check_unchanged().unwrap();
}

/// A file system of 1 MiB of our own: what is full is really full.
#[test]
#[ignore = "needs the right to mount (CAP_SYS_ADMIN)"]
fn a_small_file_system() {
    in_child("sink::a_small_file_system", || {
        let parent = Folder::new();
        let place = std::ffi::CString::new(parent.dir.path().to_str().unwrap()).unwrap();
        // SAFETY: plain calls with terminated strings. The mounts are this process's own, and end
        // with it.
        unsafe {
            assert_eq!(libc::unshare(libc::CLONE_NEWNS), 0);
            let private = libc::MS_PRIVATE | libc::MS_REC;
            let none = std::ptr::null();
            assert_eq!(libc::mount(none, c"/".as_ptr(), none, private, none.cast()), 0);
            let (kind, size) = (c"tmpfs".as_ptr(), c"size=1m".as_ptr());
            assert_eq!(libc::mount(kind, place.as_ptr(), kind, 0, size.cast()), 0);
        }
        let folder = Folder::inside(parent.dir.path());
        let error = SinkFile::create(&folder.path, 2 << 20).unwrap_err();
        assert!(error.to_string().contains("free space"), "{error}");
        assert!(folder.names().is_empty());
        let wanted = content(500_000);
        for kind in KINDS.into_iter().filter(|kind| kind.mode() == ReadMode::Buffered) {
            let sink: Arc<dyn WriteAt> = folder.sink(wanted.len());
            let temporary = folder.dir.path().join(&folder.names()[0]);
            let reserved_bytes = std::fs::metadata(temporary).unwrap().blocks() * 512;
            assert!(reserved_bytes >= wanted.len() as u64, "{reserved_bytes} bytes are set aside");
            Bench::new(kind, 1 << 20).write_all(&sink, &wanted, 40_960).unwrap();
            sink.commit(true).unwrap();
            assert!(std::fs::read(&folder.path).unwrap() == wanted, "{kind:?}");
            std::fs::remove_file(&folder.path).unwrap();
        }
        drop(folder);
        // SAFETY: a plain call with a terminated string.
        assert_eq!(unsafe { libc::umount2(place.as_ptr(), 0) }, 0);
    });
}

#[test]
fn a_file_without_a_name_is_never_seen_and_can_be_read_back() {
    let folder = Folder::new();
    let sink = SinkFile::unnamed(folder.path.parent().unwrap(), 50_000).unwrap();
    assert!(folder.names().is_empty(), "{:?}", folder.names());
    put(&*sink, 0, &content(50_000));
    let file = sink.read_back().unwrap();
    let mut bytes = vec![0; 50_000];
    file.read_exact_at(0, &mut bytes).unwrap();
    assert!(bytes == content(50_000) && folder.names().is_empty());
    file.check_unchanged().unwrap();
    put(&*sink, 0, b"more");
    assert!(file.check_unchanged().is_err(), "a write after it was opened");
    drop(sink);
    assert!(folder.names().is_empty());
    let nowhere = SinkFile::unnamed("/nowhere/at all", 5000).unwrap_err().to_string();
    assert!(nowhere.contains("/nowhere/at all"), "{nowhere}");
}
