//! The host's work on a chunk: reads every cache line of it, or sums it.

use std::hint::black_box;
use std::time::Instant;

use headrace_flow::{BoxError, ChunkSpec, FedChunk, HostConsumer, Verdict};

use super::stop::StopSignal;
use super::{Checksum, Progress};

/// A consumer reads at least one byte of each: a mapping is not read unless it is touched.
const CACHE_LINE_BYTES: usize = 64;

/// The shared state of a race's consumers.
#[derive(Debug)]
pub(crate) struct Shared<'a> {
    pub chunks: &'a [ChunkSpec],
    pub signal: &'a StopSignal,
    pub progress: &'a Progress,
    pub verify: bool,
    /// Whether each chunk's time in the consumer is recorded: the latency of mapped reads.
    pub time_chunks: bool,
}

/// One consumer and its results.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    shared: &'a Shared<'a>,
    /// Checksum of each chunk, if requested.
    pub sums: Vec<(usize, Checksum)>,
    /// Times of chunks, if requested.
    pub times_ns: Vec<u64>,
}

impl<'a> Reader<'a> {
    pub fn new(shared: &'a Shared<'a>) -> Reader<'a> {
        Reader { shared, sums: Vec::new(), times_ns: Vec::new() }
    }
}

impl HostConsumer for Reader<'_> {
    fn consume(&mut self, chunk: &FedChunk, buffers: &[&[u8]]) -> Result<Verdict, BoxError> {
        let start = self.shared.time_chunks.then(Instant::now);
        let reads = &self.shared.chunks[chunk.number].reads;
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
            self.sums.push((chunk.number, sum));
        }
        if let Some(start) = start {
            self.times_ns.push(start.elapsed().as_nanos() as u64);
        }
        self.shared.progress.add(bytes);
        Ok(verdict(self.shared.signal))
    }
}

/// After a chunk: continue, unless the run must stop.
pub(crate) fn verdict(signal: &StopSignal) -> Verdict {
    if signal.asked().is_some() { Verdict::Enough } else { Verdict::Continue }
}

fn touch(bytes: &[u8]) {
    black_box(bytes.iter().step_by(CACHE_LINE_BYTES).fold(0u8, |all, byte| all ^ byte));
}
