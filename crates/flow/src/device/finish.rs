//! A chunk from its launch on: execution, the copy back, the write.

use std::collections::VecDeque;
use std::time::Instant;

use headrace_gpu::nvtx;
use headrace_io::{Completion, Placement, Window};

use super::driver::Driver;
use super::shared::{Event, device_error};
use super::slot::{Appending, Filled, Working, Writing};
use crate::append::Placed;
use crate::engines::{tag, untag};
use crate::lane::DeviceLane;
use crate::{BytesByPath, OutputSpec, RaceError, Verdict};

impl<P: Default, L: DeviceLane<P> + ?Sized> Driver<'_, P, L> {
    /// Launches the work on a slot whose buffers are all on their way.
    pub(super) fn launch(&mut self, slot: usize) -> Result<(), RaceError> {
        let Some(Filled { chunk, ranges, bytes }) = self.take_filled(slot) else {
            return Ok(());
        };
        self.note_first_chunk();
        let launched = Instant::now();
        let _range = nvtx::range("launch");
        let failed = |stage| move |source| device_error(Some(chunk), stage, source);
        self.lane.mark_copied(slot).map_err(failed("copy to the device"))?;
        self.lane.launch(slot, chunk, &ranges).map_err(failed("launch"))?;
        self.launched(slot, chunk, launched, bytes)
    }

    fn launched(
        &mut self,
        slot: usize,
        chunk: usize,
        launched: Instant,
        bytes: BytesByPath,
    ) -> Result<(), RaceError> {
        let failed = |stage| move |source| device_error(Some(chunk), stage, source);
        let output = match self.appending {
            Some(_) => None,
            None => self.lane.output(slot, chunk).map_err(failed("launch"))?,
        };
        let output = output.filter(|output| output.bytes > 0);
        self.lane.mark_executed(slot).map_err(failed("launch"))?;
        if let Some(output) = &output {
            let window_bytes = self.lane.output_window(slot).bytes();
            output.check(chunk, &self.shared.race.sinks, window_bytes)?;
            let bytes = output.bytes as usize;
            let _range = nvtx::range("enqueue copy to host");
            let head_bytes = Placement::of(output.offset, output.bytes).head_bytes;
            // SAFETY: the window is the slot's, and is given to the writers only when the copy
            // was seen to be done; the race ends with `synchronize` in any case.
            unsafe { self.lane.copy_to_host(slot, head_bytes, bytes) }
                .map_err(failed("copy to the host"))?;
            self.tally.report.d2h_bytes += output.bytes;
        }
        let appended = Vec::new();
        self.working.push_back(Working { slot, chunk, launched, bytes, output, appended });
        self.idle.set(false);
        Ok(())
    }

    /// Continues all chunks that the device has finished.
    pub(super) fn retire_done(&mut self) -> Result<(), RaceError> {
        for _ in 0..self.working.len() {
            let Some(working) = self.working.pop_front() else {
                return Ok(());
            };
            let done = self
                .lane
                .poll(working.slot)
                .map_err(|source| device_error(Some(working.chunk), "execution", source))?;
            if done {
                self.executed(working)?;
            } else {
                self.working.push_back(working);
            }
        }
        while let Some(slot) = self.appending.as_ref().and_then(Appending::returning) {
            let chunk = self.appending.as_ref().map(|appending| appending.returning[0].chunk);
            let failed = |source| device_error(chunk, "copy to the host", source);
            if !self.lane.poll(slot).map_err(failed)? {
                break;
            }
            self.returned()?;
        }
        Ok(())
    }

    /// The device has processed a chunk.
    pub(super) fn executed(&mut self, working: Working) -> Result<(), RaceError> {
        self.idle.set(self.working.is_empty());
        let Some(appending) = &mut self.appending else { return self.retire(working) };
        let Working { slot, chunk, .. } = working;
        let pieces = self.lane.appended(slot, chunk);
        let pieces = pieces.map_err(|source| device_error(Some(chunk), "execution", source))?;
        appending.chunks.add(chunk, (working, pieces));
        appending.chunks.done(chunk);
        while let Some(appending) = &mut self.appending
            && let Some((working, pieces)) = appending.chunks.next()
        {
            self.bring_back(working, &pieces)?;
        }
        Ok(())
    }

    /// Begins to copy a chunk's appended data to its slot's output window, each piece in its own blocks.
    fn bring_back(
        &mut self,
        mut working: Working,
        pieces: &[(usize, usize)],
    ) -> Result<(), RaceError> {
        let Working { slot, chunk, .. } = working;
        let Some(Appending { ends, returning, .. }) = &mut self.appending else { return Ok(()) };
        let (mut at, window_bytes) = (0, self.lane.output_window(slot).bytes());
        for &(sink, bytes) in pieces {
            let place = ends.extend(chunk, sink, bytes)?;
            working.appended.push((place, at));
            at += place.window_bytes();
        }
        if at > window_bytes {
            let what = format!(
                "what it appends takes {at} bytes of an output window of {window_bytes}; choose \
                 smaller chunks or larger slots"
            );
            return Err(RaceError::BadOutput { chunk, what });
        }
        let bytes: usize = pieces.iter().map(|(_, bytes)| bytes).sum();
        if bytes == 0 {
            return self.retire(working);
        }
        let place = |(place, at): &(Placed, usize)| at + place.head_bytes();
        let places: Vec<usize> = working.appended.iter().map(place).collect();
        let _range = nvtx::range("enqueue copy to host");
        // SAFETY: as for `copy_to_host`.
        unsafe { self.lane.copy_appended(slot, &places) }
            .map_err(|source| device_error(Some(chunk), "copy to the host", source))?;
        self.tally.report.d2h_bytes += bytes as u64;
        returning.push_back(working);
        Ok(())
    }

    /// The appended data of the first returning chunk have arrived.
    pub(super) fn returned(&mut self) -> Result<(), RaceError> {
        let returning = self.appending.as_mut().map(|appending| &mut appending.returning);
        match returning.and_then(VecDeque::pop_front) {
            Some(working) => self.retire(working),
            None => Ok(()),
        }
    }

    /// The device is done with a chunk: its output, if any, can be written.
    pub(super) fn retire(&mut self, working: Working) -> Result<(), RaceError> {
        let _range = nvtx::range("retire");
        self.trace_device(&working);
        self.idle.set(self.working.is_empty());
        let Working { slot, chunk, bytes, output, appended, .. } = working;
        let verdict = self
            .lane
            .retire(slot, chunk)
            .map_err(|source| device_error(Some(chunk), "execution", source))?;
        self.pins[slot].clear();
        if verdict == Verdict::Enough {
            self.tally.report.ended_early = true;
            self.shared.stop.enough();
        }
        let mut outputs: Vec<(OutputSpec, usize)> =
            output.map(|output| (output, 0)).into_iter().collect();
        if let Some(Appending { ends, .. }) = &mut self.appending {
            let window = self.lane.output_window(slot);
            for (place, at) in appended.iter().filter(|(place, _)| place.bytes > 0) {
                let (from, bytes) = (window.as_ptr().wrapping_add(*at), place.window_bytes());
                // SAFETY: the window is valid and initialised as long as the lane, by its promise, and the range
                // inside was checked; the copies into it are done, and nobody else touches it.
                let memory = unsafe { std::slice::from_raw_parts_mut(from, bytes) };
                outputs.extend(ends.complete(place, memory).map(|output| (output, *at)));
            }
        }
        self.write(slot, chunk, &outputs, bytes)
    }

    /// Begins to write from places in a slot's output window.
    pub(super) fn write(
        &mut self,
        slot: usize,
        chunk: usize,
        outputs: &[(OutputSpec, usize)],
        bytes: BytesByPath,
    ) -> Result<(), RaceError> {
        if outputs.is_empty() {
            self.finished(slot, &bytes);
            return Ok(());
        }
        self.writing[slot] = Some(Writing {
            chunk,
            started: Instant::now(),
            bytes,
            outputs: outputs.iter().map(|(output, _)| *output).collect(),
            left: outputs.len(),
        });
        let window = self.lane.output_window(slot);
        let _range = nvtx::range("begin write");
        outputs.iter().enumerate().try_for_each(|(number, (output, at))| {
            let from = window.as_ptr().wrapping_add(*at);
            let part = Window::new(from, window.bytes() - at);
            // SAFETY: the window is valid and initialised as long as the lane, by its promise; the
            // slot becomes free, and the window is used again, only when all completions were seen.
            unsafe {
                self.writers.submit(output, part, tag(slot, number), &mut self.chooser.reasons)
            }
        })
    }

    /// A write ended.
    pub(super) fn written(&mut self, completion: Completion) -> Result<(), RaceError> {
        let (slot, number) = untag(completion.tag);
        let Some(Writing { chunk, started, outputs, left, .. }) = &mut self.writing[slot] else {
            self.writers.completed(&completion, 0);
            return Ok(());
        };
        let (chunk, started, bytes) = (*chunk, *started, outputs[number].bytes);
        *left -= 1;
        let is_last = *left == 0;
        self.writers.completed(&completion, bytes);
        let done = completion.result.map_err(|source| RaceError::Write { chunk, source })?;
        debug_assert!(done.direct_bytes + done.buffered_bytes >= bytes);
        let track = format!("write slot {slot}");
        self.trace_span((&track, "write"), started, chunk, slot, bytes);
        if is_last && let Some(Writing { bytes, .. }) = self.writing[slot].take() {
            self.finished(slot, &bytes);
        }
        Ok(())
    }

    /// The race has ended early, and nothing is in progress: appended data behind an unprocessed chunk are
    /// discarded.
    pub(super) fn drop_appended(&mut self) -> Result<(), RaceError> {
        let Some(Appending { chunks, .. }) = &mut self.appending else { return Ok(()) };
        chunks.end_before(chunks.oldest());
        chunks.take_rest().into_iter().try_for_each(|(working, _)| self.retire(working))
    }

    /// All chunks are done: writes the carried bytes, one block per sink, and fixes the ends of the
    /// sinks.
    pub(super) fn finish_appending(&mut self) -> Result<(), RaceError> {
        for sink in 0..self.shared.race.sinks.len() {
            let Some(Appending { ends, chunks, tail, .. }) = &mut self.appending else {
                return Ok(());
            };
            let (output, chunk) = (ends.finish(sink, tail.as_mut_slice()), chunks.oldest());
            let window = Window::new(tail.as_ptr(), tail.len());
            let Some(output) = output else { continue };
            // SAFETY: the block is initialised, nobody touches it before the loop below has seen the completion, and
            // the writers are dropped, which waits for them, before it is.
            unsafe { self.writers.submit(&output, window, 0, &mut self.chooser.reasons) }?;
            while self.writers.in_flight() > 0 {
                let Ok(event) = self.inbox.recv() else { return Ok(()) };
                let Event::Written(completion) = event else {
                    self.discard(&event);
                    continue;
                };
                self.writers.completed(&completion, output.bytes);
                completion.result.map_err(|source| RaceError::Write { chunk, source })?;
            }
        }
        Ok(())
    }

    /// Nothing of the chunk is left to do.
    fn finished(&mut self, slot: usize, bytes: &BytesByPath) {
        self.tally.report.chunks += 1;
        self.tally.report.bytes_by_path.add(bytes);
        self.free.push(slot);
        self.in_use -= 1;
        self.trace_bytes();
    }

    /// One span on the track of each device queue, if the lane knows them; otherwise one on the
    /// slot's.
    fn trace_device(&mut self, working: &Working) {
        let Some(trace) = &self.shared.race.options.trace else { return };
        let Working { slot, chunk, launched, bytes, output, appended } = working;
        let (slot, chunk) = (*slot, *chunk);
        let (spans, returned) = (self.lane.stage_spans(slot), self.lane.output_span(slot));
        let record = |track: &str, name, span, bytes| {
            trace.record_between(self.track(track), name, span, chunk, Some(slot), bytes);
        };
        match spans {
            Some(spans) => {
                let bytes = bytes.total();
                spans.copied.into_iter().for_each(|s| record("H2D", "copy to device", s, bytes));
                spans.executed.into_iter().for_each(|s| record("kernel", "execute", s, bytes));
            }
            None => {
                let track = format!("device slot {slot}");
                record(&track, "copy and execute", (*launched, Instant::now()), bytes.total());
            }
        }
        let appended = appended.iter().map(|(place, _)| place.bytes as u64).sum::<u64>();
        let returned_bytes = output.map_or(appended, |output| output.bytes);
        if let (Some(span), true) = (returned, returned_bytes > 0) {
            record("D2H", "copy to host", span, returned_bytes);
        }
    }
}
