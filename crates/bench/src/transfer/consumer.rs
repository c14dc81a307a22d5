//! What the host does with a chunk: reads every cache line of it, or sums it.

use std::hint::black_box;
use std::time::Instant;

use headrace_flow::{BoxError, ChunkSpec, HostConsumer, Verdict};

use super::stop::StopSignal;
use super::{Checksum, Progress};

/// A consumer reads at least one byte of each: what is not looked at is not read from a mapping.
const CACHE_LINE_BYTES: usize = 64;

/// What consumers of a race share.
#[derive(Debug)]
pub(crate) struct Shared<'a> {
    pub chunks: &'a [ChunkSpec],
    pub signal: &'a StopSignal,
    pub progress: &'a Progress,
    pub verify: bool,
    /// Whether the time each chunk takes to consume is kept: the latency of mapped reads.
    pub time_chunks: bool,
}

/// One consumer and what it gathered.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    shared: &'a Shared<'a>,
    /// Checksum of each chunk, if asked for.
    pub sums: Vec<(usize, Checksum)>,
    /// Times of chunks, if asked for.
    pub times_ns: Vec<u64>,
}

impl<'a> Reader<'a> {
    pub fn new(shared: &'a Shared<'a>) -> Reader<'a> {
        Reader { shared, sums: Vec::new(), times_ns: Vec::new() }
    }
}

impl HostConsumer for Reader<'_> {
    fn consume(&mut self, chunk: usize, buffers: &[&[u8]]) -> Result<Verdict, BoxError> {
        let start = self.shared.time_chunks.then(Instant::now);
        let reads = &self.shared.chunks[chunk].reads;
        let mut sum = Checksum::default();
        let mut bytes = 0;
        for (read, buffer) in reads.iter().zip(buffers) {
            if self.shared.verify {
                sum += Checksum::of(read.offset, buffer);
            } else {
                touch(buffer);
            }
            bytes += buffer.len() as u64;
        }
        if self.shared.verify {
            self.sums.push((chunk, sum));
        }
        if let Some(start) = start {
            self.times_ns.push(start.elapsed().as_nanos() as u64);
        }
        self.shared.progress.add(bytes);
        Ok(verdict(self.shared.signal))
    }
}

/// After a chunk: go on, unless the run is to stop.
pub(crate) fn verdict(signal: &StopSignal) -> Verdict {
    if signal.asked().is_some() { Verdict::Enough } else { Verdict::Continue }
}

fn touch(bytes: &[u8]) {
    black_box(bytes.iter().step_by(CACHE_LINE_BYTES).fold(0u8, |all, byte| all ^ byte));
}
