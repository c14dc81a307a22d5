//! Block devices, on a loop device of our own.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use crossbeam_channel::unbounded;
use headrace_io::write::{SinkFile, WriteAt};
use headrace_io::{
    AlignedBuffer, Engine, IoError, MappedFile, PathProbe, PreadPool, ReadAt, ReadMode,
    ReadRequest, Result, SourceFile, UringEngine, UringOptions, Window, drop_cache, residency,
};

use crate::support::{Bench, Folder, KINDS, Kind, content};

const DEVICE_BYTES: usize = 1 << 20;

struct Loop {
    device: PathBuf,
    /// Holds the backing file.
    folder: Folder,
}

impl Loop {
    fn new() -> Loop {
        let folder = Folder::new();
        std::fs::write(&folder.path, content(DEVICE_BYTES)).unwrap();
        let output =
            Command::new("losetup").args(["--find", "--show"]).arg(&folder.path).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let device = PathBuf::from(String::from_utf8(output.stdout).unwrap().trim());
        Loop { device, folder }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let status = Command::new("losetup").arg("--detach").arg(&self.device).status().unwrap();
        assert!(status.success(), "{} is still attached", self.device.display());
    }
}

fn read(kind: Kind, file: Arc<SourceFile>, offset: u64, bytes: usize) -> Result<Vec<u8>> {
    let memory = AlignedBuffer::allocate(bytes + 8192).unwrap();
    let window = Window::new(memory.as_ptr(), memory.len());
    let (sender, completions) = unbounded();
    let sink = Arc::new(move |completion| sender.send(completion).unwrap());
    let options = UringOptions { segment_bytes: 65_536, ..UringOptions::default() };
    let engine: Box<dyn Engine<ReadRequest>> = match kind {
        Kind::Pool(_) => Box::new(PreadPool::start(2, 65_536, sink).unwrap()),
        // SAFETY: the engine is dropped before the memory.
        _ => Box::new(unsafe { UringEngine::start(&options, &[window], sink) }.unwrap()),
    };
    let (mode, bytes) = (kind.mode(), bytes as u64);
    // SAFETY: as above, and the memory is looked at only after the completion.
    unsafe { engine.submit(ReadRequest { file, mode, offset, bytes, window, tag: 0 }) };
    completions.recv().unwrap().result?;
    drop(engine);
    let head = (offset % 4096) as usize;
    Ok(memory.as_slice()[head..head + bytes as usize].to_vec())
}

#[test]
#[ignore = "needs the right to set up a loop device (CAP_SYS_ADMIN, losetup)"]
fn a_device_is_read_as_one_file() {
    let device = Loop::new();
    let wanted = content(DEVICE_BYTES);
    assert!(matches!(SourceFile::open(&device.device), Err(IoError::NotAFile { .. })));
    let source = SourceFile::open_storage(&device.device).unwrap();
    assert_eq!(source.size_bytes(), DEVICE_BYTES as u64);
    let probe = PathProbe::of_file(&source);
    assert!(probe.direct.is_ok() && !probe.memory_backed, "{probe:?}");
    assert!(source.is_block_device() && probe.filesystem == "none", "{probe:?}");
    for kind in KINDS {
        drop_cache(&*source).unwrap();
        for (offset, bytes) in [(0, DEVICE_BYTES), (4097, 300_001), (DEVICE_BYTES - 1, 1)] {
            let got = read(kind, source.clone(), offset as u64, bytes).unwrap();
            assert!(got == wanted[offset..offset + bytes], "{kind:?}: {bytes} at {offset}");
        }
    }
    source.check_unchanged().unwrap();
    let whole = DEVICE_BYTES as u64;
    read(Kind::Pool(ReadMode::Buffered), source.clone(), 0, DEVICE_BYTES).unwrap();
    assert_eq!(residency(&*source, 0, whole).unwrap().share(), 1.0, "read through the cache");
    drop_cache(&*source).unwrap();
    assert_eq!(residency(&*source, 0, whole).unwrap().share(), 0.0);
    let mapped = MappedFile::map(source).unwrap();
    assert!(mapped.bytes(0, whole).unwrap() == wanted);
    mapped.check().unwrap();
}

/// A loop device whose backing file ends early fails there with EIO.
#[test]
#[ignore = "needs the right to set up a loop device (CAP_SYS_ADMIN, losetup)"]
fn a_device_that_really_fails_in_the_middle() {
    let device = Loop::new();
    let source = SourceFile::open_storage(&device.device).unwrap();
    let backing = std::fs::OpenOptions::new().write(true).open(&device.folder.path).unwrap();
    backing.set_len(DEVICE_BYTES as u64 / 2).unwrap();
    for kind in KINDS {
        drop_cache(&*source).unwrap();
        let error = read(kind, source.clone(), 0, DEVICE_BYTES).unwrap_err();
        let IoError::Read { offset, bytes, cause, .. } = &error else {
            panic!("{kind:?}: {error}");
        };
        assert!(offset + bytes > DEVICE_BYTES as u64 / 2, "{kind:?}: {error}");
        assert_eq!(cause.raw_os_error(), Some(libc::EIO), "{kind:?}");
        let got = read(kind, source.clone(), 0, DEVICE_BYTES / 2).unwrap();
        assert!(got == content(DEVICE_BYTES)[..DEVICE_BYTES / 2], "{kind:?}");
    }
    drop_cache(&*source).unwrap();
    let mapped = MappedFile::map(source).unwrap();
    let sum: u64 = mapped.bytes(0, DEVICE_BYTES as u64).unwrap().iter().map(|b| *b as u64).sum();
    assert!(sum > 0, "the first half can be read");
    assert!(matches!(mapped.check(), Err(IoError::Poisoned { .. })));
}

#[test]
#[ignore = "needs the right to set up a loop device (CAP_SYS_ADMIN, losetup)"]
fn a_device_is_overwritten_only_as_far_as_asked_for() {
    // Neither a whole number of blocks nor of segments: what lies behind must stay.
    const BYTES: usize = 300_001;
    for kind in KINDS {
        let device = Loop::new();
        let wanted: Vec<u8> = content(BYTES).iter().map(|byte| byte ^ 0x55).collect();
        let sink = SinkFile::block_device(&device.device, BYTES as u64, true).unwrap();
        sink.direct().unwrap();
        let file: Arc<dyn WriteAt> = sink;
        let done = Bench::new(kind, 1 << 20).write_all(&file, &wanted, 81_920).unwrap();
        if kind.mode() == ReadMode::Direct {
            assert_eq!((done.direct_bytes, done.buffered_bytes), (299_008, 993), "{kind:?}");
        }
        file.commit(true).unwrap();
        drop(file);
        let now = std::fs::read(&device.device).unwrap();
        assert!(now[..BYTES] == wanted, "{kind:?}");
        assert!(now[BYTES..] == content(DEVICE_BYTES)[BYTES..], "{kind:?}");
    }
}

#[test]
#[ignore = "needs the right to set up a loop device (CAP_SYS_ADMIN, losetup)"]
fn devices_in_use_or_too_small_are_left_alone() {
    let device = Loop::new();
    let begin = |bytes: usize, overwrite| {
        SinkFile::block_device(&device.device, bytes as u64, overwrite).map(drop)
    };
    let error = begin(4096, false).unwrap_err();
    assert!(error.to_string().contains("may be overwritten"), "{error}");
    let error = begin(DEVICE_BYTES + 1, true).unwrap_err();
    assert!(error.to_string().contains("device of 1048576 bytes"), "{error}");
    let first = SinkFile::block_device(&device.device, 4096, true).unwrap();
    let error = begin(4096, true).unwrap_err();
    assert!(error.to_string().contains("unmount"), "{error}");
    drop(first);
    begin(0, true).unwrap();
    // Trying O_DIRECT has changed nothing.
    assert!(std::fs::read(&device.device).unwrap() == content(DEVICE_BYTES));
}

#[test]
fn only_devices_are_taken_for_devices() {
    let folder = Folder::new();
    std::fs::write(&folder.path, b"file").unwrap();
    for path in [folder.path.as_path(), folder.dir.path(), Path::new("/dev/null")] {
        for overwrite in [false, true] {
            let error = SinkFile::block_device(path, 1, overwrite).unwrap_err();
            assert!(error.to_string().contains("not a block device"), "{error}");
        }
    }
    assert_eq!(std::fs::read(&folder.path).unwrap(), b"file");
    assert!(matches!(SourceFile::open_storage("/dev/null"), Err(IoError::NotAFile { .. })));
    assert!(SourceFile::open_storage(&folder.path).is_ok());
}
