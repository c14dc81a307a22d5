//! The writers of a race: started when the first output needs them.

use std::sync::Arc;

use headrace_io::write::{WriteAt, WriteRequest};
use headrace_io::{
    Completion, CompletionSink, EXTENT_ALIGN_BYTES, Engines, NoEngine, Placement, ReadMode,
    Transferred, Window,
};

use crate::report::{Latencies, Reasons, Stopwatch, Tally};
use crate::{OutputSpec, RaceError, RaceOptions, WriteAccess};

/// The engines and their counters.
pub(crate) struct Writers<'a> {
    options: &'a RaceOptions,
    sinks: &'a [Arc<dyn WriteAt>],
    engines: Engines<WriteRequest>,
    in_flight: usize,
    busy: Stopwatch,
    latencies: Latencies,
    totals: Transferred,
    written_bytes: u64,
    requests: u64,
}

impl<'a> Writers<'a> {
    pub fn new(
        options: &'a RaceOptions,
        sinks: &'a [Arc<dyn WriteAt>],
        done: CompletionSink,
    ) -> Self {
        let (direct_engine, uring) = (options.direct_engine, options.uring());
        // SAFETY: no memory is registered.
        let engines =
            unsafe { Engines::new(direct_engine, options.writers, uring, Vec::new(), done) };
        Writers {
            options,
            sinks,
            engines,
            in_flight: 0,
            busy: Stopwatch::default(),
            latencies: Latencies::default(),
            totals: Transferred::default(),
            written_bytes: 0,
            requests: 0,
        }
    }

    /// Begins to write an output that was checked against the sinks and the window.
    ///
    /// # Safety
    /// As [`headrace_io::Engine::submit`], with this value in place of the engine.
    pub unsafe fn submit(
        &mut self,
        output: &OutputSpec,
        window: Window,
        tag: u64,
        reasons: &mut Reasons,
    ) -> Result<(), RaceError> {
        let file = self.sinks[output.sink].clone();
        let mode = self.mode(output, reasons)?;
        let OutputSpec { offset, bytes, .. } = *output;
        let window_bytes = Placement::of(offset, bytes).window_bytes;
        let window = Window::new(window.as_ptr(), window_bytes.min(window.bytes()));
        let begun = match self.engines.of(mode) {
            Ok(engine) => {
                let request = WriteRequest { file, mode, offset, bytes, window, tag };
                // SAFETY: the caller's promise.
                unsafe { engine.submit(request) };
                Ok(())
            }
            Err(NoEngine::Threads(cause)) => Err(RaceError::StartUp(cause)),
            Err(NoEngine::Uring(refusal)) => {
                Err(self.unavailable(output.sink, refusal.to_string()))
            }
        };
        self.engines.take_reasons().into_iter().for_each(|reason| reasons.add(reason));
        begun?;
        self.requests += window_bytes.div_ceil(self.options.segment_bytes.max(1)) as u64;
        self.in_flight += 1;
        self.busy.set(true);
        Ok(())
    }

    /// Records a completion. Must be called for each one.
    pub fn completed(&mut self, completion: &Completion, bytes: u64) {
        self.in_flight -= 1;
        self.busy.set(self.in_flight > 0);
        self.latencies.add(completion.latency_ns);
        if let Ok(done) = &completion.result {
            self.totals.direct_bytes += done.direct_bytes;
            self.totals.buffered_bytes += done.buffered_bytes;
            self.totals.direct_refused_bytes += done.direct_refused_bytes;
            self.totals.short += done.short;
            self.written_bytes += bytes;
        }
    }

    /// Writes under way.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    pub fn cancel_queued(&self) {
        self.engines.cancel_queued();
    }

    pub fn fill_tally(&self, tally: &mut Tally, reasons: &mut Reasons) {
        tally.writes = self.latencies.clone();
        let report = &mut tally.report;
        report.written_bytes = self.written_bytes;
        report.written_direct_bytes = self.totals.direct_bytes;
        report.written_buffered_bytes = self.totals.buffered_bytes;
        report.write_requests = self.requests;
        report.write_busy_ns = self.busy.total_ns();
        report.short_writes = self.totals.short;
        report.engines.extend(self.engines.used().iter().map(|used| format!("writing: {used}")));
        if self.totals.direct_refused_bytes > 0 {
            let bytes = self.totals.direct_refused_bytes;
            reasons.add(format!("O_DIRECT writes of {bytes} bytes were refused (EINVAL)"));
        }
    }

    fn mode(&self, output: &OutputSpec, reasons: &mut Reasons) -> Result<ReadMode, RaceError> {
        let refusal = match self.options.write_access {
            WriteAccess::Buffered => return Ok(ReadMode::Buffered),
            _ => self.no_direct(output),
        };
        match (refusal, self.options.write_access) {
            (None, _) => Ok(ReadMode::Direct),
            (Some(reason), WriteAccess::Direct) => Err(self.unavailable(output.sink, reason)),
            (Some(reason), _) => {
                let path = self.sinks[output.sink].path().display();
                reasons.add(format!("{path}: written through the page cache: {reason}"));
                Ok(ReadMode::Buffered)
            }
        }
    }

    fn no_direct(&self, output: &OutputSpec) -> Option<String> {
        if let Err(reason) = self.sinks[output.sink].sink().direct() {
            return Some(format!("no O_DIRECT: {reason}"));
        }
        let aligned = output.offset.is_multiple_of(EXTENT_ALIGN_BYTES as u64);
        (!aligned)
            .then(|| format!("outputs do not begin on multiples of {EXTENT_ALIGN_BYTES} bytes"))
    }

    fn unavailable(&self, sink: usize, reason: String) -> RaceError {
        RaceError::WriteUnavailable {
            access: WriteAccess::Direct,
            sink: self.sinks[sink].path().display().to_string(),
            reason,
        }
    }
}
