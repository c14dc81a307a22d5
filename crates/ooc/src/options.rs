//! Options of every operator.

use std::sync::Arc;

use headrace_flow::{AccessPath, CancelToken, RaceOptions, Trace, WriteAccess};
use headrace_io::DirectEngine;

use crate::{Files, PlainFiles};

/// Where the work runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Processor {
    /// Wherever it should finish sooner; the report has the reason.
    #[default]
    Auto,
    /// On the CPU.
    Cpu,
    /// On the GPU; an error if there is none.
    Cuda,
}

headrace_io::named!(Processor, "processor", Auto => "auto", Cpu => "cpu", Cuda => "cuda");

/// How an operator runs. [`Default`] suits a user without special wishes.
#[derive(Debug, Clone)]
pub struct Options {
    /// The processor.
    pub processor: Processor,
    /// Ordinal of the GPU.
    pub device: usize,
    /// Threads that process chunks; `None`: all cores.
    pub threads: Option<usize>,
    /// Host memory for everything; `None`: half of what is free.
    pub memory_limit_bytes: Option<u64>,
    /// Device memory for everything; `None`: nine tenths of what is free.
    pub device_limit_bytes: Option<u64>,
    /// Input bytes per chunk; `None`: suited to the operator and the limits.
    pub chunk_bytes: Option<usize>,
    /// Chunks in flight on a device; `None`: suited to the operator. 1 allows no overlap.
    pub slots: Option<usize>,
    /// How the input is read.
    pub access: AccessPath,
    /// The engine for O_DIRECT.
    pub direct_engine: DirectEngine,
    /// How output is written.
    pub write_access: WriteAccess,
    /// Whether output must be on stable storage before the operator ends.
    pub sync: bool,
    /// Records the stages of all races.
    pub trace: Option<Trace>,
    /// Cancels it.
    pub token: CancelToken,
    /// The seam for files.
    pub files: Arc<dyn Files>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            processor: Processor::Auto,
            device: 0,
            threads: None,
            memory_limit_bytes: None,
            device_limit_bytes: None,
            chunk_bytes: None,
            slots: None,
            access: AccessPath::Auto,
            direct_engine: DirectEngine::Auto,
            write_access: WriteAccess::Auto,
            sync: false,
            trace: None,
            token: CancelToken::new(),
            files: Arc::new(PlainFiles),
        }
    }
}

impl Options {
    /// Threads that process chunks.
    pub fn threads(&self) -> usize {
        let cores = headrace_io::system::cores;
        self.threads.unwrap_or_else(cores).max(1)
    }

    /// The part that applies to a race; slots and windows are the operator's.
    pub fn race(&self) -> RaceOptions {
        RaceOptions {
            access: self.access,
            direct_engine: self.direct_engine,
            write_access: self.write_access,
            trace: self.trace.clone(),
            // What streams through a mapping is not read again: pages that are given back by whoever used them need
            // not be unmapped by one thread at the end.
            release_mapped: true,
            ..RaceOptions::default()
        }
    }
}
