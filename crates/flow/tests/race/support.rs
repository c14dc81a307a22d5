//! Files with known contents and consumers that check what they are given.

use std::path::PathBuf;
use std::sync::Arc;

use headrace_flow::{
    AccessPath, BoxError, CancelToken, ChunkSpec, DirectEngine, FedChunk, HostConsumer, Race,
    RaceError, RaceOptions, RaceReport, ReadSpec, Verdict,
};
use headrace_io::{FaultPlan, FaultyFile, ReadAt, SourceFile};

pub struct TestFile {
    _dir: tempfile::TempDir,
    pub path: PathBuf,
    pub content: Vec<u8>,
}

impl TestFile {
    /// On the disk on which the crate lies: a temporary folder may be a tmpfs.
    pub fn new(bytes: usize) -> TestFile {
        Self::in_folder(env!("CARGO_TARGET_TMPDIR"), bytes)
    }

    pub fn in_folder(folder: &str, bytes: usize) -> TestFile {
        let dir = tempfile::tempdir_in(folder).unwrap();
        let path = dir.path().join("data.bin");
        let content: Vec<u8> = (0..bytes).map(|i| (i * 31 + i / 251 + i / 65_521) as u8).collect();
        std::fs::write(&path, &content).unwrap();
        TestFile { _dir: dir, path, content }
    }

    pub fn open(&self) -> Arc<SourceFile> {
        SourceFile::open(&self.path).unwrap()
    }

    pub fn files(&self) -> Vec<Arc<dyn ReadAt>> {
        vec![self.open()]
    }

    pub fn faulty(&self, plan: FaultPlan) -> Arc<FaultyFile> {
        FaultyFile::new(self.open(), plan)
    }

    pub fn make_cold(&self) {
        headrace_io::drop_cache(&*self.open()).unwrap();
    }

    pub fn make_warm(&self) {
        assert_eq!(std::fs::read(&self.path).unwrap().len(), self.content.len());
    }

    /// Chunks of two buffers each: the file's bytes in order, the second one short and unaligned.
    pub fn chunks(&self, chunk_bytes: usize) -> Vec<ChunkSpec> {
        let size = self.content.len();
        (0..size)
            .step_by(chunk_bytes)
            .map(|start| {
                let end = (start + chunk_bytes).min(size);
                let middle = start + (end - start) * 3 / 4;
                ChunkSpec { reads: vec![read(start, middle - start), read(middle, end - middle)] }
            })
            .collect()
    }
}

pub fn read(offset: usize, bytes: usize) -> ReadSpec {
    ReadSpec { file: 0, offset: offset as u64, bytes: bytes as u64 }
}

/// Chunks whose reads begin at a share of a file, and have the square of another share of what follows.
pub fn chunks_of(size: usize, shapes: &[Vec<(f64, f64)>]) -> Vec<ChunkSpec> {
    let read_of = |&(from, part): &(f64, f64)| {
        let offset = (from * size as f64) as usize;
        read(offset, (part * part * (size - offset) as f64) as usize)
    };
    shapes.iter().map(|reads| ChunkSpec { reads: reads.iter().map(read_of).collect() }).collect()
}

/// Keeps copies of everything.
#[derive(Default)]
pub struct Collect {
    pub chunks: Vec<(usize, Vec<Vec<u8>>)>,
}

impl HostConsumer for Collect {
    fn consume(&mut self, chunk: &FedChunk, buffers: &[&[u8]]) -> Result<Verdict, BoxError> {
        self.chunks.push((chunk.number, buffers.iter().map(|buffer| buffer.to_vec()).collect()));
        Ok(Verdict::Continue)
    }
}

/// A consumer made of a closure.
pub struct Act<F>(pub F);

impl<F> HostConsumer for Act<F>
where
    F: FnMut(usize, &[&[u8]]) -> Result<Verdict, BoxError> + Send,
{
    fn consume(&mut self, chunk: &FedChunk, buffers: &[&[u8]]) -> Result<Verdict, BoxError> {
        (self.0)(chunk.number, buffers)
    }
}

pub fn race(files: Vec<Arc<dyn ReadAt>>, chunks: Vec<ChunkSpec>, options: RaceOptions) -> Race {
    Race::new(files, chunks, options, CancelToken::new()).unwrap()
}

/// Runs with consumers that collect, and checks every byte of every chunk against `content`.
pub fn check_bytes(race: &Race, consumers: usize, content: &[u8]) -> Result<RaceReport, RaceError> {
    let consumers = (0..consumers).map(|_| Collect::default()).collect();
    let (consumers, report) = race.run_host(consumers)?;
    let chunks = consumers.into_iter().flat_map(|consumer| consumer.chunks).collect();
    assert_same(race, chunks, content);
    assert_eq!(report.chunks, race.chunks().len() as u64);
    assert_eq!(report.bytes_by_path.total(), race.bytes());
    Ok(report)
}

/// Every chunk exactly once, with the right bytes.
pub fn assert_same(race: &Race, mut got: Vec<(usize, Vec<Vec<u8>>)>, content: &[u8]) {
    got.sort();
    assert!(got.iter().map(|(chunk, _)| *chunk).eq(0..race.chunks().len()), "chunks went missing");
    for (chunk, buffers) in got {
        let reads = &race.chunks()[chunk].reads;
        assert_eq!(buffers.len(), reads.len());
        for (buffer, read) in buffers.iter().zip(reads) {
            let wanted = &content[read.offset as usize..][..read.bytes as usize];
            assert!(buffer == wanted, "chunk {chunk}: {read:?}");
        }
    }
}

/// Every way that can be forced, with a name for messages.
pub fn forced_paths() -> Vec<(&'static str, RaceOptions)> {
    let with = |access, direct_engine| RaceOptions {
        access,
        direct_engine,
        segment_bytes: 8192,
        slots: 3,
        ..RaceOptions::default()
    };
    vec![
        ("mapped", with(AccessPath::Mapped, DirectEngine::Auto)),
        ("buffered", with(AccessPath::Buffered, DirectEngine::Auto)),
        ("io_uring", with(AccessPath::Direct, DirectEngine::Uring)),
        ("direct threads", with(AccessPath::Direct, DirectEngine::Threads)),
    ]
}

/// The ways that read into slots.
pub fn slot_paths() -> Vec<(&'static str, RaceOptions)> {
    forced_paths().into_iter().filter(|(name, _)| *name != "mapped").collect()
}
