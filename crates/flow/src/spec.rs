//! The words of a race: what to read, and how bytes get to where they are wanted.

use std::fmt;

use headrace_io::ReadSpec;
use serde::{Deserialize, Serialize};

/// A chunk of a list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChunkSpec {
    /// One extent per buffer, in the order in which the consumer gets them.
    pub reads: Vec<ReadSpec>,
}

impl ChunkSpec {
    /// Wanted bytes.
    pub fn bytes(&self) -> u64 {
        self.reads.iter().map(|read| read.bytes).sum()
    }

    /// As [`ReadSpec::slot_bytes_of`].
    pub fn slot_bytes(&self) -> usize {
        ReadSpec::slot_bytes_of(&self.reads)
    }
}

/// A consumer's verdict after a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Continue.
    Continue,
    /// Later chunks cannot change the answer: the race ends without error.
    Enough,
}

/// How bytes reach the consumer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum AccessPath {
    /// Chosen per extent: host cache, else in place from the page cache or memory, else O_DIRECT
    /// (admitted to the host cache), else through the page cache, which is the first choice if the
    /// [input is to fill it](crate::InputPolicy::fills_page_cache).
    ///
    /// On a device a file in memory (tmpfs) is copied from its registered mapping, if
    /// [`RaceOptions::registered`](crate::RaceOptions::registered) is given and the lane can; cold extents are
    /// read by the device's own reader, if that bypasses host memory and no host cache is given. Everything else goes
    /// through the slots' host memory.
    #[default]
    Auto,
    /// Always mapped and consumed in place (a device copies from the mapping).
    Mapped,
    /// Always read through the page cache.
    Buffered,
    /// Always O_DIRECT; an error if a file does not support it. Reads that it refuses afterwards, and what is decoded on
    /// the way, come through the page cache, unless [that is forbidden](crate::RaceOptions::forbids_other_paths).
    Direct,
    /// Always copied to the device straight from a registered mapping of the file; an error if the
    /// lane or its driver cannot do that, and on the host.
    Registered,
    /// Always read into device memory by the device's own reader (cuFile); an error if there is
    /// none, if it cannot read the file, and on the host. The reader may pass host memory, unless
    /// [that is forbidden](crate::RaceOptions::forbids_other_paths).
    CuFile,
}

headrace_io::named!(
    AccessPath,
    Auto => "auto",
    Mapped => "mapped",
    Buffered => "buffered",
    Direct => "direct",
    Registered => "registered",
    CuFile => "cufile",
);

/// How output reaches the sinks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum WriteAccess {
    /// O_DIRECT if the sink supports it and the output begins with a whole block, else through the
    /// page cache; the report has the reason.
    #[default]
    Auto,
    /// Always through the page cache.
    Buffered,
    /// Always O_DIRECT; an error if a sink, or an output's offset, does not allow it.
    Direct,
}

/// How many consumers of a race may work at a time.
pub trait ConsumerLimit: Send + Sync + fmt::Debug {
    /// The current limit; at least one works in any case. Called repeatedly while the race runs, by the
    /// thread that drives it: a call must not wait.
    fn consumers(&self) -> usize;
}
