//! A ring of buffers that are filled and written repeatedly.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use headrace_flow::{ChunkSpec, RaceError};
use headrace_io::write::{WriteAt, WriteRequest};
use headrace_io::{
    AlignedBuffer, Completion, DirectEngine, Engine, Engines, NoEngine, Placement, ReadMode,
    UringOptions, Window,
};

use super::content;
use super::job::{WriteJob, Written};
use crate::transfer::counters::Counters;
use crate::transfer::record::Latency;
use crate::transfer::stop::StopSignal;
use crate::transfer::{BenchError, BenchPlan, PathChoice, Progress};

/// Longest single write.
const SEGMENT_BYTES: usize = 1 << 20;

/// How often the loop checks for the end while writes are in flight.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// Writes every chunk once, until the end or until `signal` is set. Writes in flight are drained in
/// any case. Counting begins with the first write and continues.
pub(super) fn write(job: &WriteJob<'_>) -> Result<(Written, Counters), BenchError> {
    let WriteJob { plan, sinks, chunks, signal, progress, watch, .. } = *job;
    let largest = chunks.iter().map(ChunkSpec::slot_bytes).max().unwrap_or(0);
    let slots = plan.slot_count().min(chunks.len());
    let mut memory = AlignedBuffer::allocate(slots * largest)?;
    let mut reasons = Vec::new();
    let mode = mode(plan.path, sinks, &mut reasons)?;
    // What storage gets depends on the place only where it is checked; otherwise each buffer is
    // filled once, so that the processor is not what is measured.
    content::fill(0, memory.as_mut_slice());
    let (completed, inbox) = channel();
    let whole = Window::new(memory.as_ptr(), memory.len());
    // SAFETY: the memory is declared before the engines, which are dropped first.
    let mut engines = unsafe { engines(plan, whole, completed) };
    let engine = engines.of(mode).map_err(|none| no_engine(none, sinks))?;
    let mut ring = Ring {
        plan,
        mode,
        sinks,
        chunks,
        signal,
        progress,
        engine,
        inbox,
        base: memory.as_ptr(),
        slot_bytes: largest,
        free: (0..slots).rev().collect(),
        under_way: 0,
        busy_since: None,
        busy_ns: 0,
        fill_ns: 0,
        latencies_ns: Vec::new(),
        written: Written { engines: vec![engine.describe()], reasons, ..Written::default() },
    };
    let counters = watch.start();
    let start = Instant::now();
    let outcome = ring.run();
    let wall_ns = start.elapsed().as_nanos() as u64;
    let Ring { busy_ns, fill_ns, latencies_ns, mut written, .. } = ring;
    written.reasons.extend(engines.take_reasons());
    drop(engines);
    let stages = vec![("fill", fill_ns, written.bytes), ("write", busy_ns, written.bytes)];
    let latency = Latency::of_times(latencies_ns);
    let written = Written { wall_ns, latency, stages, ..written };
    outcome.map(|()| (written, counters))
}

fn mode(
    path: PathChoice,
    sinks: &[Arc<dyn WriteAt>],
    reasons: &mut Vec<String>,
) -> Result<ReadMode, BenchError> {
    if path == PathChoice::Pread {
        return Ok(ReadMode::Buffered);
    }
    for sink in sinks.iter().filter(|sink| sink.size_bytes() > 0) {
        if let Err(why) = sink.sink().direct() {
            let file = sink.path().display().to_string();
            if path != PathChoice::Auto {
                let access = headrace_flow::AccessPath::Direct;
                let reason = why.to_string();
                return Err(RaceError::PathUnavailable { access, file, reason }.into());
            }
            reasons.push(format!("{file}: no O_DIRECT: {why}"));
            return Ok(ReadMode::Buffered);
        }
    }
    Ok(ReadMode::Direct)
}

/// # Safety
/// The memory must outlive the engines.
unsafe fn engines(
    plan: &BenchPlan,
    memory: Window,
    completed: Sender<Completion>,
) -> Engines<WriteRequest> {
    let sink = Arc::new(move |completion| {
        // The loop listens until the last completion.
        let _ = completed.send(completion);
    });
    let direct_engine = match plan.path {
        PathChoice::Auto => DirectEngine::Auto,
        PathChoice::Uring => DirectEngine::Uring,
        _ => DirectEngine::Threads,
    };
    let options = UringOptions {
        depth: plan.depth,
        segment_bytes: SEGMENT_BYTES,
        inject: plan.hooks.inject_uring,
    };
    // SAFETY: the caller's promise.
    unsafe { Engines::new(direct_engine, plan.threads, options, vec![memory], sink) }
}

fn no_engine(none: NoEngine, sinks: &[Arc<dyn WriteAt>]) -> BenchError {
    match none {
        NoEngine::Threads(cause) => cause.into(),
        NoEngine::Uring(refusal) => RaceError::PathUnavailable {
            access: headrace_flow::AccessPath::Direct,
            file: sinks.first().map(|sink| sink.path().display().to_string()).unwrap_or_default(),
            reason: refusal.to_string(),
        }
        .into(),
    }
}

struct Ring<'a> {
    plan: &'a BenchPlan,
    mode: ReadMode,
    sinks: &'a [Arc<dyn WriteAt>],
    chunks: &'a [ChunkSpec],
    signal: &'a StopSignal,
    progress: &'a Progress,
    engine: &'a dyn Engine<WriteRequest>,
    inbox: Receiver<Completion>,
    base: *mut u8,
    slot_bytes: usize,
    free: Vec<usize>,
    under_way: usize,
    /// Since when at least one write is in flight, and the earlier such time.
    busy_since: Option<Instant>,
    busy_ns: u64,
    /// Time in which buffers were filled.
    fill_ns: u64,
    latencies_ns: Vec<u64>,
    written: Written,
}

impl Ring<'_> {
    fn run(&mut self) -> Result<(), BenchError> {
        let mut failure = None;
        let mut next = 0;
        while failure.is_none() && self.signal.asked().is_none() && next < self.chunks.len() {
            match self.free.pop() {
                Some(slot) => {
                    self.submit(next, slot);
                    next += 1;
                }
                None => failure = self.wait().err(),
            }
        }
        if failure.is_some() || self.signal.asked().is_some() {
            self.engine.cancel_queued();
        }
        while self.under_way > 0 {
            let outcome = self.wait();
            if self.signal.asked().is_some() {
                // Also when the interruption came after the last submission.
                self.engine.cancel_queued();
            }
            // The first failure is the cause of the others.
            if let Err(error) = outcome {
                failure.get_or_insert(error);
                self.engine.cancel_queued();
            }
        }
        failure.map_or(Ok(()), Err)
    }

    fn submit(&mut self, chunk: usize, slot: usize) {
        let read = self.chunks[chunk].reads[0];
        let start = self.base.wrapping_add(slot * self.slot_bytes);
        let window_bytes = Placement::of(read.offset, read.bytes).window_bytes;
        if self.plan.verify {
            let begin = Instant::now();
            // SAFETY: the slot is free: no write reads it, and the memory outlives the ring.
            let bytes = unsafe { std::slice::from_raw_parts_mut(start, window_bytes) };
            content::fill(read.offset, bytes);
            self.fill_ns += begin.elapsed().as_nanos() as u64;
        }
        let request = WriteRequest {
            file: self.sinks[read.file].clone(),
            mode: self.mode,
            offset: read.offset,
            bytes: read.bytes,
            window: Window::new(start, window_bytes),
            tag: (slot as u64) << 32 | chunk as u64,
        };
        self.busy_since.get_or_insert_with(Instant::now);
        self.under_way += 1;
        // SAFETY: the slot is used again only after its completion; the memory, initialised,
        // outlives the engine.
        unsafe { self.engine.submit(request) };
    }

    /// Waits for one completion, or until it is time to check the signal.
    fn wait(&mut self) -> Result<(), BenchError> {
        let Ok(completion) = self.inbox.recv_timeout(LOOK_INTERVAL) else {
            return Ok(());
        };
        let (slot, chunk) = ((completion.tag >> 32) as usize, completion.tag as u32 as usize);
        self.free.push(slot);
        self.under_way -= 1;
        if self.under_way == 0
            && let Some(since) = self.busy_since.take()
        {
            self.busy_ns += since.elapsed().as_nanos() as u64;
        }
        let done = match completion.result {
            Ok(done) => done,
            // What was queued when the run was ended.
            Err(headrace_io::IoError::Cancelled { .. }) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let bytes = self.chunks[chunk].bytes();
        let written = &mut self.written;
        written.bytes += bytes;
        written.chunks.push(chunk);
        // Padding is not wanted bytes: it is all on the side of O_DIRECT.
        let buffered = done.buffered_bytes.min(bytes);
        written.buffered_bytes += buffered;
        written.direct_bytes += bytes - buffered;
        written.direct_refused_bytes += done.direct_refused_bytes;
        written.short_writes += done.short;
        written.requests += bytes.div_ceil(SEGMENT_BYTES as u64);
        self.latencies_ns.push(completion.latency_ns);
        self.progress.add(bytes);
        Ok(())
    }
}
