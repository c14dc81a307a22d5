//! Files with known contents, and a way to read an extent through each engine.

use std::path::PathBuf;
use std::sync::Arc;

use crossbeam_channel::{Receiver, unbounded};
use headrace_io::{
    AlignedBuffer, Completion, CompletionSink, Engine, FaultPlan, FaultyFile, Placement, PreadPool,
    ReadAt, ReadMode, ReadRequest, Result, SourceFile, Transferred, UringEngine, UringOptions,
    Window,
};

pub use crate::kinds::{KINDS, Kind, SEGMENT_BYTES};

pub struct TestFile {
    pub dir: tempfile::TempDir,
    pub path: PathBuf,
    pub content: Vec<u8>,
}

impl TestFile {
    /// A file on the disk on which the crate lies: a temporary folder may be a tmpfs.
    pub fn new(bytes: usize) -> TestFile {
        Self::with_content((0..bytes).map(|i| (i * 31 + i / 251) as u8).collect())
    }

    pub fn with_content(content: Vec<u8>) -> TestFile {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = dir.path().join("data.bin");
        std::fs::write(&path, &content).unwrap();
        TestFile { dir, path, content }
    }

    pub fn open(&self) -> Arc<SourceFile> {
        SourceFile::open(&self.path).unwrap()
    }

    pub fn faulty(&self, plan: FaultPlan) -> Arc<FaultyFile> {
        FaultyFile::new(self.open(), plan)
    }
}

pub struct Bench {
    // Declared first, so dropped first: the engine must end before its memory does.
    pub engine: Box<dyn Engine<ReadRequest>>,
    pub completions: Receiver<Completion>,
    pub memory: AlignedBuffer,
    pub mode: ReadMode,
}

impl Bench {
    pub fn new(kind: Kind, memory_bytes: usize) -> Bench {
        let (sender, completions) = unbounded();
        let sink = Arc::new(move |completion| sender.send(completion).unwrap());
        Bench { completions, ..Self::with_sink(kind, memory_bytes, sink) }
    }

    /// With a sink of the test's own: `completions` stays empty.
    pub fn with_sink(kind: Kind, memory_bytes: usize, sink: CompletionSink) -> Bench {
        let memory = AlignedBuffer::allocate(memory_bytes).unwrap();
        let options = UringOptions { depth: 4, segment_bytes: SEGMENT_BYTES, inject: None };
        let engine: Box<dyn Engine<ReadRequest>> = match kind {
            Kind::Pool(_) => Box::new(PreadPool::start(3, SEGMENT_BYTES, sink).unwrap()),
            Kind::Uring(_) => {
                let window = Window::new(memory.as_ptr(), memory.len());
                // SAFETY: `Bench` drops the engine before the memory.
                let engine = unsafe { UringEngine::start(&options, &[window], sink) }.unwrap();
                engine.registered().unwrap();
                Box::new(engine)
            }
            Kind::UringUnregistered(_) => {
                // SAFETY: nothing is registered.
                Box::new(unsafe { UringEngine::start(&options, &[], sink) }.unwrap())
            }
        };
        Bench { engine, completions: unbounded().1, memory, mode: kind.mode() }
    }

    pub fn submit(&mut self, file: Arc<dyn ReadAt>, offset: u64, bytes: u64, tag: u64) {
        let window = Window::new(self.memory.as_ptr(), self.memory.len());
        let request = ReadRequest { file, mode: self.mode, offset, bytes, window, tag };
        // SAFETY: the memory outlives the engine, and is looked at only after the completion.
        unsafe { self.engine.submit(request) };
    }

    /// One extent, waited for.
    pub fn read(
        &mut self,
        file: Arc<dyn ReadAt>,
        offset: u64,
        bytes: u64,
    ) -> Result<(Vec<u8>, Transferred)> {
        self.memory.as_mut_slice().fill(0xEE);
        self.submit(file, offset, bytes, 42);
        let completion = self.completions.recv_timeout(std::time::Duration::from_secs(20)).unwrap();
        assert_eq!(completion.tag, 42);
        let done = completion.result?;
        let head = Placement::of(offset, bytes).head_bytes;
        Ok((self.memory.as_slice()[head..head + bytes as usize].to_vec(), done))
    }
}

/// Extents that touch every kind of edge of a file of `size` bytes.
pub fn edges(size: u64) -> Vec<(u64, u64)> {
    let at = [0, 1, 511, 512, 4095, 4096, 4097, 8192, 12_288, size / 2, size - size.min(4096)];
    let mut extents = Vec::new();
    for offset in at.into_iter().chain(size.saturating_sub(5000)..size.saturating_sub(4990)) {
        for bytes in [0, 1, 7, 4095, 4096, 4097, 8192, 20_000, size] {
            if offset + bytes <= size {
                extents.push((offset, bytes));
            }
        }
        if offset <= size {
            extents.push((offset, size - offset));
        }
    }
    extents
}
