//! A chunk from its launch on: execution, the copy of its output, the write.

use std::time::Instant;

use headrace_gpu::nvtx;
use headrace_io::Completion;
use headrace_io::Placement;

use super::device_error;
use super::driver::Driver;
use super::fill::Filled;
use crate::lane::DeviceLane;
use crate::{BytesByPath, OutputSpec, RaceError, Verdict};

/// A chunk that the device works on.
pub(super) struct Working {
    pub slot: usize,
    pub chunk: usize,
    launched: Instant,
    bytes: BytesByPath,
    output: Option<OutputSpec>,
}

/// A chunk whose output is being written.
pub(super) struct Writing {
    chunk: usize,
    started: Instant,
    bytes: BytesByPath,
    output: OutputSpec,
}

impl<L: DeviceLane + ?Sized> Driver<'_, L> {
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
        let output = self.lane.output(slot, chunk).map_err(failed("launch"))?;
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
        self.working.push_back(Working { slot, chunk, launched, bytes, output });
        self.idle.set(false);
        Ok(())
    }

    /// Goes on with all chunks that the device is done with.
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
                self.retire(working)?;
            } else {
                self.working.push_back(working);
            }
        }
        Ok(())
    }

    /// The device is done with a chunk: its output, if any, can be written.
    pub(super) fn retire(&mut self, working: Working) -> Result<(), RaceError> {
        let _range = nvtx::range("retire");
        let Working { slot, chunk, bytes, output, .. } = working;
        self.trace_device(&working);
        self.idle.set(self.working.is_empty());
        let verdict = self
            .lane
            .retire(slot, chunk)
            .map_err(|source| device_error(Some(chunk), "execution", source))?;
        self.pins[slot].clear();
        if verdict == Verdict::Enough {
            self.tally.report.ended_early = true;
            self.shared.stop.enough();
        }
        match output {
            Some(output) => self.write(slot, chunk, output, bytes),
            None => {
                self.finished(slot, &bytes);
                Ok(())
            }
        }
    }

    fn write(
        &mut self,
        slot: usize,
        chunk: usize,
        output: OutputSpec,
        bytes: BytesByPath,
    ) -> Result<(), RaceError> {
        self.writing[slot] = Some(Writing { chunk, started: Instant::now(), bytes, output });
        let window = self.lane.output_window(slot);
        let _range = nvtx::range("begin write");
        // SAFETY: the window is valid and initialised as long as the lane, by its promise; the
        // slot becomes free, and the window is used again, only when the completion was seen.
        unsafe { self.writers.submit(&output, window, slot as u64, &mut self.chooser.reasons) }
    }

    /// A write ended.
    pub(super) fn written(&mut self, completion: Completion) -> Result<(), RaceError> {
        let slot = completion.tag as usize;
        let Some(Writing { chunk, started, bytes, output }) = self.writing[slot].take() else {
            self.writers.completed(&completion, 0);
            return Ok(());
        };
        self.writers.completed(&completion, output.bytes);
        let done = completion.result.map_err(|source| RaceError::Write { chunk, source })?;
        debug_assert!(done.direct_bytes + done.buffered_bytes >= output.bytes);
        let track = format!("write slot {slot}");
        self.trace_span((&track, "write"), started, chunk, slot, output.bytes);
        self.finished(slot, &bytes);
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

    /// One span on the track of each queue of the device, if the lane knows; otherwise one on
    /// the slot's.
    fn trace_device(&mut self, working: &Working) {
        let Some(trace) = &self.shared.race.options.trace else { return };
        let Working { slot, chunk, launched, bytes, output } = working;
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
        if let (Some(span), Some(output)) = (returned, output) {
            record("D2H", "copy to host", span, output.bytes);
        }
    }
}
