//! What to measure, and how.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use headrace_flow::{AccessPath, DirectEngine, HostMemory, Trace};
use headrace_io::system::{GpuFor, Taker};
use headrace_io::write::{SinkFile, WriteAt};
use headrace_io::{EXTENT_ALIGN_BYTES, ReadAt, SetupFault, SourceFile};
use serde::Serialize;

use super::{BenchError, Progress};

/// Largest possible chunk: a slot is one piece of pinned memory.
const CHUNK_BYTES_MAX: u64 = 4 << 30;

/// Maximum slots; more would only hide slow storage.
const SLOTS_MAX: usize = 4096;

/// Default memory of a ring: while it fits the processor's last-level cache, neither the readers
/// nor the copy engine wait for memory.
const RING_BYTES: u64 = 144 << 20;

/// Whether bytes are read from storage or written to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// The paths are read.
    Read,
    /// A file is written at, or below, each path: in random order after it was written once in sequence, untimed.
    Write {
        /// Bytes to write, over all paths.
        bytes: u64,
        /// Replace existing files.
        overwrite: bool,
        /// Keep what was written.
        keep: bool,
    },
}

/// The destination of the bytes (their source, when writing).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// Host memory.
    Host,
    /// Device memory of these GPUs, by ordinal.
    Gpus(Vec<usize>),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Host => f.write_str("host"),
            Target::Gpus(ordinals) => {
                let list: Vec<String> = ordinals.iter().map(usize::to_string).collect();
                write!(f, "gpu:{}", list.join(","))
            }
        }
    }
}

/// The access path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PathChoice {
    /// Chosen per extent, as in queries.
    Auto,
    /// O_DIRECT through io_uring; an error if either is not available.
    Uring,
    /// O_DIRECT by threads.
    Direct,
    /// Through the page cache by threads.
    Pread,
    /// Mapped.
    Mmap,
    /// Mapped and registered with the GPU, which copies from the mapping itself.
    Registered,
    /// Straight from storage to device memory.
    Cufile,
}

impl PathChoice {
    /// The race's option.
    pub fn access(self) -> (AccessPath, DirectEngine) {
        match self {
            PathChoice::Auto => (AccessPath::Auto, DirectEngine::Auto),
            PathChoice::Uring => (AccessPath::Direct, DirectEngine::Uring),
            PathChoice::Direct => (AccessPath::Direct, DirectEngine::Threads),
            PathChoice::Pread => (AccessPath::Buffered, DirectEngine::Auto),
            PathChoice::Mmap => (AccessPath::Mapped, DirectEngine::Auto),
            PathChoice::Registered => (AccessPath::Registered, DirectEngine::Auto),
            PathChoice::Cufile => (AccessPath::CuFile, DirectEngine::Auto),
        }
    }
}

headrace_io::named!(
    PathChoice,
    "way",
    Auto => "auto",
    Uring => "uring",
    Direct => "direct",
    Pread => "pread",
    Mmap => "mmap",
    Registered => "registered",
    Cufile => "cufile",
);

/// Order and size of transfers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pattern {
    /// Every file from its first byte to its last, in chunks of this many bytes.
    Sequential {
        /// Bytes of a chunk.
        chunk_bytes: u64,
    },
    /// Blocks at random positions, uniformly over all files, each at a multiple of its size.
    Random {
        /// Bytes of a block.
        block_bytes: u64,
    },
}

impl Pattern {
    /// Bytes of a chunk, or a block.
    pub fn bytes(self) -> u64 {
        match self {
            Pattern::Sequential { chunk_bytes } => chunk_bytes,
            Pattern::Random { block_bytes } => block_bytes,
        }
    }

    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Pattern::Sequential { .. } => "sequential",
            Pattern::Random { .. } => "random",
        }
    }
}

/// Preparation of the page cache before the clock starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CacheState {
    /// Nothing.
    AsIs,
    /// The files' pages are evicted, as far as the kernel allows for these files alone.
    Cold,
    /// Like `Cold`, after dropping all caches of the machine (/proc/sys/vm/drop_caches), which only
    /// root may do and everybody notices.
    ColdEverything,
    /// The files are read once.
    Hot,
}

impl CacheState {
    /// Whether storage is to be read.
    pub fn is_cold(self) -> bool {
        matches!(self, Self::Cold | Self::ColdEverything)
    }
}

/// Replaces an opened file with another.
pub type FileWrap = Arc<dyn Fn(Arc<SourceFile>) -> Arc<dyn ReadAt> + Send + Sync>;

/// Replaces a file to be written with another.
pub type SinkWrap = Arc<dyn Fn(Arc<SinkFile>) -> Arc<dyn WriteAt> + Send + Sync>;

/// Connections to the outside.
#[derive(Clone, Default)]
pub struct Hooks {
    /// Receives the progress of the run.
    pub progress: Option<Arc<Progress>>,
    /// Once set, the run ends soon with its results so far.
    pub cancel: Option<Arc<AtomicBool>>,
    /// The race reads the wrapped files; the check against the host reads the files themselves. For
    /// tests with the fault-injecting twin.
    pub wrap: Option<FileWrap>,
    /// Like `wrap`, for files that are written.
    pub wrap_sink: Option<SinkWrap>,
    /// io_uring fails as if the kernel had refused: for tests of the fallback.
    pub inject_uring: Option<SetupFault>,
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooks")
            .field("progress", &self.progress.is_some())
            .field("cancel", &self.cancel)
            .field("wrap", &self.wrap.is_some())
            .field("wrap_sink", &self.wrap_sink.is_some())
            .field("inject_uring", &self.inject_uring)
            .finish()
    }
}

/// One measurement.
#[derive(Debug, Clone)]
pub struct BenchPlan {
    /// Files, folders (all files below) and block devices.
    pub paths: Vec<PathBuf>,
    /// Read or write.
    pub operation: Operation,
    /// The target.
    pub target: Target,
    /// The access path.
    pub path: PathChoice,
    /// Whether the run fails when bytes take another path than `path`, unless that is chosen per extent.
    pub forbids_other_paths: bool,
    /// Memory of the slots when the target is a GPU.
    pub memory: HostMemory,
    /// Sequential or random, and the size of the pieces.
    pub pattern: Pattern,
    /// Slots of the ring; `None`: suited to the chunk size.
    pub slots: Option<usize>,
    /// Reads in the kernel at once, with io_uring.
    pub depth: u32,
    /// Threads that read without io_uring, and threads that consume on the host.
    pub threads: usize,
    /// The page cache before the run.
    pub cache: CacheState,
    /// Whether every chunk's checksum is compared with plain reads.
    pub verify: bool,
    /// Maximum bytes to transfer.
    pub limit_bytes: Option<u64>,
    /// Time limit; the run ends with its results so far.
    pub time_limit: Option<Duration>,
    /// Files below some paths go to these GPUs.
    pub gpu_for: GpuFor,
    /// Records spans of all stages.
    pub trace: Option<Trace>,
    /// Connections to the outside.
    pub hooks: Hooks,
}

impl BenchPlan {
    /// Reads `paths` to host memory by the access path of queries.
    pub fn new(paths: Vec<PathBuf>) -> BenchPlan {
        let cores = headrace_io::system::cores();
        BenchPlan {
            paths,
            operation: Operation::Read,
            target: Target::Host,
            path: PathChoice::Auto,
            forbids_other_paths: false,
            memory: HostMemory::Pinned,
            pattern: Pattern::Sequential { chunk_bytes: 16 << 20 },
            slots: None,
            depth: 64,
            threads: cores.clamp(2, 16),
            cache: CacheState::AsIs,
            verify: false,
            limit_bytes: None,
            time_limit: None,
            gpu_for: GpuFor::default(),
            trace: None,
            hooks: Hooks::default(),
        }
    }

    /// Slots of the ring.
    pub fn slot_count(&self) -> usize {
        if let Some(slots) = self.slots {
            return slots;
        }
        match (self.pattern, self.path) {
            // One block a slot: as many as are to be under way.
            (Pattern::Random { .. }, PathChoice::Auto | PathChoice::Uring) => self.depth as usize,
            (Pattern::Random { .. }, _) => self.threads,
            (Pattern::Sequential { chunk_bytes }, _) => {
                (RING_BYTES / chunk_bytes.max(1)).clamp(2, 64) as usize
            }
        }
    }

    /// # Errors
    /// [`BenchError::Plan`] naming what is impossible, and what to request instead.
    pub(crate) fn check(&self) -> Result<(), BenchError> {
        if self.paths.is_empty() {
            return Err(BenchError::plan(
                "there is nothing to measure",
                "name a file, a folder or a block device",
            ));
        }
        let bytes = self.pattern.bytes();
        if bytes == 0 || bytes > CHUNK_BYTES_MAX || !bytes.is_multiple_of(512) {
            let what = match self.pattern {
                Pattern::Sequential { .. } => "chunks",
                Pattern::Random { .. } => "blocks",
            };
            let near_bytes = bytes.clamp(512, CHUNK_BYTES_MAX).saturating_add(256) / 512 * 512;
            return Err(BenchError::plan(
                format!("{what} of {bytes} bytes cannot be: they start on sectors of 512 bytes"),
                format!("choose a multiple of 512 bytes up to 4GiB, such as {near_bytes}"),
            ));
        }
        if self.threads == 0 || self.threads > 1024 || self.depth == 0 || self.depth > 4096 {
            return Err(BenchError::plan(
                format!("{} threads and a depth of {} cannot be", self.threads, self.depth),
                "choose 1 to 1024 threads and a depth of 1 to 4096",
            ));
        }
        if !(1..=SLOTS_MAX).contains(&self.slot_count()) {
            return Err(BenchError::plan(
                format!("a ring of {} slots cannot be", self.slot_count()),
                format!("choose 1 to {SLOTS_MAX} slots"),
            ));
        }
        self.check_operation()?;
        self.check_target()
    }

    fn check_operation(&self) -> Result<(), BenchError> {
        if self.operation == Operation::Read {
            return Ok(());
        }
        if let Pattern::Random { block_bytes } = self.pattern {
            self.check_random_write(block_bytes)?;
        }
        let past_slots =
            matches!(self.path, PathChoice::Mmap | PathChoice::Registered | PathChoice::Cufile);
        if past_slots {
            return Err(BenchError::plan(
                format!("files are not written by way of {}", self.path),
                "--path uring, direct or pread",
            ));
        }
        if self.memory == HostMemory::Pageable {
            return Err(BenchError::plan(
                "what a GPU writes passes pinned memory",
                "leave --pageable or --write out",
            ));
        }
        Ok(())
    }

    fn check_random_write(&self, block_bytes: u64) -> Result<(), BenchError> {
        if self.target != Target::Host {
            return Err(BenchError::plan(
                "blocks in random order are written from the host",
                "--to host, or leave --random out",
            ));
        }
        if self.path != PathChoice::Pread && !block_bytes.is_multiple_of(EXTENT_ALIGN_BYTES as u64)
        {
            return Err(BenchError::plan(
                format!("O_DIRECT writes no blocks of {block_bytes} bytes"),
                format!("choose a multiple of {EXTENT_ALIGN_BYTES} bytes, or --path pread"),
            ));
        }
        Ok(())
    }

    fn check_target(&self) -> Result<(), BenchError> {
        match &self.target {
            Target::Host if matches!(self.path, PathChoice::Cufile | PathChoice::Registered) => {
                Err(BenchError::plan(
                    format!("{} brings bytes to device memory, not to the host", self.path),
                    format!("--to gpu --path {}", self.path),
                ))
            }
            Target::Host if self.memory == HostMemory::Pageable => Err(BenchError::plan(
                "pinned or pageable matters on the way to a GPU only",
                "--to gpu --pageable",
            )),
            Target::Host if !self.gpu_for.0.is_empty() => Err(BenchError::plan(
                "--gpu-for says which GPU gets a path, and the target is the host",
                "--to gpu:0,1 --gpu-for PATH=1",
            )),
            Target::Gpus(ordinals) => {
                let other = self.gpu_for.0.iter().find_map(|(path, taker)| match taker {
                    Taker::Gpu(gpu) if !ordinals.contains(gpu) => Some((path, gpu)),
                    _ => None,
                });
                if let Some((path, gpu)) = other {
                    return Err(BenchError::plan(
                        format!("{} shall go to GPU {gpu}, which is no target", path.display()),
                        format!("--to gpu:{gpu} or another GPU for that path"),
                    ));
                }
                Ok(())
            }
            Target::Host => Ok(()),
        }
    }
}
