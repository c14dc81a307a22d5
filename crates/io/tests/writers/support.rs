//! Files to be written, and a way to write an extent through each engine.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, unbounded};
use headrace_io::write::{FaultySink, PwritePool, SinkFile, UringWriter, WriteAt, WriteRequest};
use headrace_io::{
    AlignedBuffer, Completion, Engine, FaultPlan, Placement, ReadMode, Result, Transferred,
    UringOptions, Window,
};

pub use crate::kinds::{KINDS, Kind, SEGMENT_BYTES};

pub fn content(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i * 37 + i / 249 + 1) as u8).collect()
}

/// One plain write.
pub fn put(file: &dyn WriteAt, offset: u64, bytes: &[u8]) {
    assert_eq!(file.write_at(ReadMode::Buffered, offset, bytes).unwrap(), bytes.len());
}

/// A folder with one file to be.
pub struct Folder {
    pub dir: tempfile::TempDir,
    pub path: PathBuf,
}

impl Folder {
    /// On the disk on which the crate lies: a temporary folder may be a tmpfs.
    pub fn new() -> Folder {
        Self::inside(Path::new(env!("CARGO_MANIFEST_DIR")))
    }

    pub fn inside(parent: &Path) -> Folder {
        let dir = tempfile::tempdir_in(parent).unwrap();
        let path = dir.path().join("out.bin");
        Folder { dir, path }
    }

    pub fn sink(&self, bytes: usize) -> Arc<SinkFile> {
        SinkFile::create(&self.path, bytes as u64).unwrap()
    }

    pub fn faulty(&self, bytes: usize, plan: FaultPlan) -> Arc<FaultySink> {
        FaultySink::new(self.sink(bytes), plan)
    }

    /// Names of all that lies in the folder, sorted.
    pub fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.dir.path()).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

pub struct Bench {
    // Declared first, so dropped first: the engine must end before its memory does.
    pub engine: Box<dyn Engine<WriteRequest>>,
    pub completions: Receiver<Completion>,
    pub memory: AlignedBuffer,
    pub mode: ReadMode,
}

impl Bench {
    pub fn new(kind: Kind, memory_bytes: usize) -> Bench {
        let mut memory = AlignedBuffer::allocate(memory_bytes).unwrap();
        // What must never be seen in a file.
        memory.as_mut_slice().fill(0xEE);
        let (sender, completions) = unbounded();
        let sink = Arc::new(move |completion| sender.send(completion).unwrap());
        let options = UringOptions { depth: 4, segment_bytes: SEGMENT_BYTES, inject: None };
        let engine: Box<dyn Engine<WriteRequest>> = match kind {
            Kind::Pool(_) => Box::new(PwritePool::start(3, SEGMENT_BYTES, sink).unwrap()),
            Kind::Uring(_) => {
                let window = Window::new(memory.as_ptr(), memory.len());
                // SAFETY: `Bench` drops the engine before the memory.
                let engine = unsafe { UringWriter::start(&options, &[window], sink) }.unwrap();
                engine.registered().unwrap();
                Box::new(engine)
            }
            Kind::UringUnregistered(_) => {
                // SAFETY: nothing is registered.
                Box::new(unsafe { UringWriter::start(&options, &[], sink) }.unwrap())
            }
        };
        Bench { engine, completions, memory, mode: kind.mode() }
    }

    pub fn submit(&mut self, file: Arc<dyn WriteAt>, offset: u64, bytes: u64, tag: u64) {
        let window = Window::new(self.memory.as_ptr(), self.memory.len());
        let request = WriteRequest { file, mode: self.mode, offset, bytes, window, tag };
        // SAFETY: the memory outlives the engine, and is changed only after the completion.
        unsafe { self.engine.submit(request) };
    }

    /// One extent, waited for.
    pub fn write(
        &mut self,
        file: Arc<dyn WriteAt>,
        offset: u64,
        bytes: &[u8],
    ) -> Result<Transferred> {
        let head = Placement::of(offset, bytes.len() as u64).head_bytes;
        self.memory.as_mut_slice()[head..head + bytes.len()].copy_from_slice(bytes);
        self.submit(file, offset, bytes.len() as u64, 42);
        let completion = self.completions.recv_timeout(Duration::from_secs(20)).unwrap();
        assert_eq!(completion.tag, 42);
        completion.result
    }

    /// The whole file, in pieces of `piece_bytes`.
    pub fn write_all(
        &mut self,
        file: &Arc<dyn WriteAt>,
        content: &[u8],
        piece_bytes: usize,
    ) -> Result<Transferred> {
        let mut total = Transferred::default();
        for (index, piece) in content.chunks(piece_bytes).enumerate() {
            let done = self.write(file.clone(), (index * piece_bytes) as u64, piece)?;
            total.direct_bytes += done.direct_bytes;
            total.buffered_bytes += done.buffered_bytes;
            total.direct_refused_bytes += done.direct_refused_bytes;
            total.short += done.short;
        }
        Ok(total)
    }
}
