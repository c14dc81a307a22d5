//! What may be asked of every operator.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use headrace_flow::{AccessPath, CancelToken, RaceOptions, Trace, WriteAccess};
use headrace_io::DirectEngine;

use crate::{Files, PlainFiles};

/// Where the work is done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Processor {
    /// Where it is expected to be done sooner; the report has the reason.
    #[default]
    Auto,
    /// On the cores.
    Cpu,
    /// On the GPU; an error where there is none.
    Cuda,
}

impl FromStr for Processor {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "auto" => Ok(Self::Auto),
            "cpu" => Ok(Self::Cpu),
            "cuda" => Ok(Self::Cuda),
            _ => Err(format!("{name:?} is no processor; there are auto, cpu, cuda")),
        }
    }
}

impl fmt::Display for Processor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Cpu => "cpu",
            Self::Cuda => "cuda",
        })
    }
}

/// How an operator runs. [`Default`] is what a user wants who says nothing.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where.
    pub processor: Processor,
    /// Ordinal of the GPU.
    pub device: usize,
    /// Threads that work on chunks; `None`: all cores.
    pub threads: Option<usize>,
    /// Host memory for everything; `None`: half of what is free.
    pub memory_limit_bytes: Option<u64>,
    /// Device memory for everything; `None`: nine tenths of what is free.
    pub device_limit_bytes: Option<u64>,
    /// Input of a chunk; `None`: what suits the operator and the limits.
    pub chunk_bytes: Option<usize>,
    /// Chunks under way on a device; `None`: what suits the operator. 1 leaves nothing to overlap.
    pub slots: Option<usize>,
    /// How the input is read.
    pub access: AccessPath,
    /// What carries out O_DIRECT.
    pub direct_engine: DirectEngine,
    /// How output is written.
    pub write_access: WriteAccess,
    /// Whether output must be on stable storage before the operator ends.
    pub sync: bool,
    /// Records the stages of all races.
    pub trace: Option<Trace>,
    /// Ends it early.
    pub token: CancelToken,
    /// Where files come from and go to.
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
    /// Threads that work on chunks.
    pub fn threads(&self) -> usize {
        let cores = headrace_io::system::cores;
        self.threads.unwrap_or_else(cores).max(1)
    }

    /// What of them a race is to obey; slots and windows are the operator's.
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
