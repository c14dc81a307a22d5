//! The thread of a consumer.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::time::Instant;

use headrace_gpu::nvtx;
use headrace_io::{IoError, ReadSpec, block_signals};

use super::event::Event;
use super::shared::{Place, Ready, Shared};
use crate::outbox::Outbox;
use crate::stop::panic_message;
use crate::{HostProducer, RaceError, Verdict};

/// Takes chunks until there are no more.
pub(super) fn work<P: Send, C: HostProducer<P>>(
    shared: &Shared<'_, P>,
    number: usize,
    consumer: &mut C,
) {
    block_signals();
    loop {
        shared.queue.wait_for_turn(number);
        let waiting = Instant::now();
        let Some(ready) = shared.queue.pop() else {
            return;
        };
        shared.meter.wait_ns.fetch_add(waiting.elapsed().as_nanos() as u64, Ordering::Relaxed);
        let is_done = !shared.stop.is_stopped();
        if is_done {
            consume(shared, number, consumer, &ready);
        }
        let (chunk, slot) = (ready.chunk.number, ready.slot);
        drop(ready);
        // The driver listens as long as it cares for slots.
        let _ = shared.events.send(Event::Consumed { chunk, slot, is_done });
    }
}

fn consume<P, C: HostProducer<P>>(
    shared: &Shared<'_, P>,
    number: usize,
    consumer: &mut C,
    ready: &Ready<P>,
) {
    let (chunk, reads) = (ready.chunk.number, &ready.chunk.reads);
    let buffers: Result<Vec<&[u8]>, IoError> =
        ready.places.iter().zip(reads).map(|(place, read)| place.bytes(read)).collect();
    let buffers = match buffers {
        Ok(buffers) => buffers,
        Err(source) => return shared.stop.fail(RaceError::Read { chunk, source }),
    };
    let begin = Instant::now();
    let since_start = begin.saturating_duration_since(shared.start).as_nanos() as u64;
    shared.meter.first_chunk_ns.fetch_min(since_start, Ordering::Relaxed);
    // A consumer that panicked is never used again: the race fails and does not return it.
    let range = nvtx::range("execute");
    let (ring, race) = (shared.outputs.as_ref(), shared.race);
    let mut outbox =
        Outbox::new(ring, (&race.sinks, race.appends), &shared.stop, &shared.events, chunk);
    let produce = || consumer.produce(&ready.chunk, &buffers, &mut outbox);
    let outcome = catch_unwind(AssertUnwindSafe(produce));
    drop(range);
    let waited_ns = outbox.waited_ns();
    let busy_ns = (begin.elapsed().as_nanos() as u64).saturating_sub(waited_ns);
    shared.meter.busy_ns.fetch_add(busy_ns, Ordering::Relaxed);
    shared.meter.output_wait_ns.fetch_add(waited_ns, Ordering::Relaxed);
    if let Some(trace) = &shared.race.options.trace {
        let track = format!("execute {number}");
        trace.record(track, "execute", begin, chunk, ready.slot, ready.bytes.total());
    }
    // First of all: what was consumed may not have been the file's bytes, and any complaint of
    // the consumer would only be a consequence.
    if let Err(source) = check_mappings(ready) {
        return shared.stop.fail(RaceError::Read { chunk, source });
    }
    release_mapped(shared, ready, reads);
    match outcome {
        Err(payload) => {
            let message = panic_message(&*payload);
            shared.stop.fail(RaceError::Panic { chunk: Some(chunk), message });
        }
        Ok(Err(source)) => shared.stop.fail(RaceError::Consumer { chunk, source }),
        Ok(Ok(verdict)) => {
            let mut consumed = shared.meter.consumed.lock();
            consumed.0 += 1;
            consumed.1.add(&ready.bytes);
            if verdict == Verdict::Enough {
                shared.meter.enough.store(1, Ordering::Relaxed);
                shared.stop.enough();
            }
        }
    }
}

impl Place {
    fn bytes<'r>(&'r self, read: &ReadSpec) -> Result<&'r [u8], IoError> {
        match self {
            Place::Nothing => Ok(&[]),
            // Whoever made the chunk was asked whether it is there: fewer bytes are a wrong answer.
            Place::Memory(_) if read.bytes == 0 => Ok(&[]),
            Place::Memory(file) => Ok(file
                .bytes_in_memory(read.offset, read.bytes)
                .expect("a chunk's bytes stay in memory as long as it is worked on")),
            Place::Mapped(mapped) => mapped.bytes(read.offset, read.bytes),
            Place::Cached(range) => Ok(range.bytes()),
            Place::Slot(window) => {
                // SAFETY: the window lies in a slot that belongs to this chunk from the end of
                // its reads until the slot is handed back, which is after the last use of the
                // slice; the memory is initialised, for it is anonymous, and the ring outlives
                // all threads.
                Ok(unsafe { std::slice::from_raw_parts(window.as_ptr(), window.bytes()) })
            }
        }
    }
}

fn check_mappings<P>(ready: &Ready<P>) -> Result<(), IoError> {
    ready.places.iter().try_for_each(|place| match place {
        Place::Mapped(mapped) => mapped.check(),
        _ => Ok(()),
    })
}

fn release_mapped<P>(shared: &Shared<'_, P>, ready: &Ready<P>, reads: &[ReadSpec]) {
    if !shared.race.options.release_mapped {
        return;
    }
    for (place, read) in ready.places.iter().zip(reads) {
        if let Place::Mapped(mapped) = place {
            mapped.release(read.offset..read.offset + read.bytes);
        }
    }
}
