//! The writers of a race: started when the first output needs them.

use std::sync::Arc;

use headrace_io::write::{
    PwritePool, UringWriter, WriteAt, WriteCompletion, WriteCompletionSink, WriteDone, WriteEngine,
    WriteRequest,
};
use headrace_io::{EXTENT_ALIGN_BYTES, Placement, ReadMode, Window};

use crate::report::{Latencies, Reasons, Stopwatch, Tally};
use crate::{DirectEngine, OutputSpec, RaceError, RaceOptions, WriteAccess};

/// The engines, and what they did.
pub(crate) struct Writers<'a> {
    options: &'a RaceOptions,
    sinks: &'a [Arc<dyn WriteAt>],
    done: WriteCompletionSink,
    pool: Option<PwritePool>,
    uring: Option<Result<UringWriter, String>>,
    in_flight: usize,
    busy: Stopwatch,
    latencies: Latencies,
    totals: WriteDone,
    written_bytes: u64,
    requests: u64,
    used: Vec<String>,
}

impl<'a> Writers<'a> {
    pub fn new(
        options: &'a RaceOptions,
        sinks: &'a [Arc<dyn WriteAt>],
        done: WriteCompletionSink,
    ) -> Self {
        Writers {
            options,
            sinks,
            done,
            pool: None,
            uring: None,
            in_flight: 0,
            busy: Stopwatch::default(),
            latencies: Latencies::default(),
            totals: WriteDone::default(),
            written_bytes: 0,
            requests: 0,
            used: Vec::new(),
        }
    }

    /// Begins to write an output that was checked against the sinks and the window.
    ///
    /// # Safety
    /// As [`WriteEngine::submit`], where this value takes the engine's place.
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
        let engine = self.engine(mode, output.sink, reasons)?;
        // SAFETY: the caller's promise.
        unsafe { engine.submit(WriteRequest { file, mode, offset, bytes, window, tag }) };
        self.requests += window_bytes.div_ceil(self.options.segment_bytes.max(1)) as u64;
        self.in_flight += 1;
        self.busy.set(true);
        Ok(())
    }

    /// Takes note of a completion. Must be called for each one.
    pub fn completed(&mut self, completion: &WriteCompletion, bytes: u64) {
        self.in_flight -= 1;
        self.busy.set(self.in_flight > 0);
        self.latencies.add(completion.latency_ns);
        if let Ok(done) = &completion.result {
            self.totals.direct_bytes += done.direct_bytes;
            self.totals.buffered_bytes += done.buffered_bytes;
            self.totals.direct_refused_bytes += done.direct_refused_bytes;
            self.totals.short_writes += done.short_writes;
            self.written_bytes += bytes;
        }
    }

    /// Writes under way.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    pub fn cancel_queued(&self) {
        if let Some(pool) = &self.pool {
            pool.cancel_queued();
        }
        if let Some(Ok(uring)) = &self.uring {
            uring.cancel_queued();
        }
    }

    pub fn fill_tally(&self, tally: &mut Tally, reasons: &mut Reasons) {
        tally.writes = self.latencies.clone();
        let report = &mut tally.report;
        report.written_bytes = self.written_bytes;
        report.written_direct_bytes = self.totals.direct_bytes;
        report.written_buffered_bytes = self.totals.buffered_bytes;
        report.write_requests = self.requests;
        report.write_busy_ns = self.busy.total_ns();
        report.short_writes = self.totals.short_writes;
        report.engines.extend(self.used.iter().map(|used| format!("writing: {used}")));
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

    fn engine(
        &mut self,
        mode: ReadMode,
        sink: usize,
        reasons: &mut Reasons,
    ) -> Result<&dyn WriteEngine, RaceError> {
        let wants_uring =
            mode == ReadMode::Direct && self.options.direct_engine != DirectEngine::Threads;
        if wants_uring && self.uring.is_none() {
            self.start_uring(reasons);
        }
        if !wants_uring || !matches!(self.uring, Some(Ok(_))) {
            if let (true, Some(Err(reason)), DirectEngine::Uring) =
                (wants_uring, &self.uring, self.options.direct_engine)
            {
                return Err(self.unavailable(sink, reason.clone()));
            }
            return self.start_pool();
        }
        let uring = self.uring.as_ref().and_then(|uring| uring.as_ref().ok());
        Ok(uring.expect("it was just seen to be there"))
    }

    fn unavailable(&self, sink: usize, reason: String) -> RaceError {
        RaceError::WriteUnavailable {
            access: WriteAccess::Direct,
            sink: self.sinks[sink].path().display().to_string(),
            reason,
        }
    }

    fn start_pool(&mut self) -> Result<&dyn WriteEngine, RaceError> {
        if self.pool.is_none() {
            let RaceOptions { writers, segment_bytes, .. } = *self.options;
            let pool = PwritePool::start(writers, segment_bytes, self.done.clone())
                .map_err(RaceError::StartUp)?;
            self.used.push(pool.describe());
            self.pool = Some(pool);
        }
        Ok(self.pool.as_ref().expect("it was just started"))
    }

    fn start_uring(&mut self, reasons: &mut Reasons) {
        // SAFETY: no memory is registered.
        let started = unsafe { UringWriter::start(&self.options.uring(), &[], self.done.clone()) };
        match &started {
            Ok(engine) => self.used.push(engine.describe()),
            Err(refusal) => reasons.add(format!("{refusal}; O_DIRECT writes go through threads")),
        }
        self.uring = Some(started.map_err(|refusal| refusal.to_string()));
    }
}
