//! The engines of one direction, and the choice among them.

use crate::engine::{CompletionSink, Engine, Window};
use crate::pool::Pool;
use crate::ring::Ring;
use crate::transfer::Transfer;
use crate::{IoError, ReadMode, UringOptions, UringUnavailable};

/// Threads for remote files: each waits for a response most of the time.
const FETCHING_THREADS: usize = 16;

/// The engine for O_DIRECT transfers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum DirectEngine {
    /// io_uring if the kernel allows it, else threads, with the reason.
    #[default]
    Auto,
    /// io_uring; an error if it is not available.
    Uring,
    /// Threads.
    Threads,
}

/// Why there is no engine for a request.
#[derive(Debug)]
pub enum NoEngine {
    /// io_uring was forced and is not available.
    Uring(UringUnavailable),
    /// No threads could be started.
    Threads(IoError),
}

/// A ring for O_DIRECT, a thread pool for remote files, and a thread pool for everything else; each starts
/// with its first request.
pub struct Engines<T: Transfer> {
    direct_engine: DirectEngine,
    threads: usize,
    options: UringOptions,
    register: Vec<Window>,
    sink: CompletionSink,
    pool: Option<Pool<T>>,
    fetching: Option<Pool<T>>,
    uring: Option<Result<Ring<T>, UringUnavailable>>,
    used: Vec<String>,
    reasons: Vec<String>,
}

impl<T: Transfer> Engines<T> {
    /// Engines that are not started yet: a pool of `threads` threads with the segment size of the
    /// ring's options, and a ring that registers this memory.
    ///
    /// # Safety
    /// The memory in `register` must stay valid until the engines are dropped.
    pub unsafe fn new(
        direct_engine: DirectEngine,
        threads: usize,
        options: UringOptions,
        register: Vec<Window>,
        sink: CompletionSink,
    ) -> Self {
        Engines {
            direct_engine,
            threads,
            options,
            register,
            sink,
            pool: None,
            fetching: None,
            uring: None,
            used: Vec::new(),
            reasons: Vec::new(),
        }
    }

    /// The engine for requests of a mode.
    ///
    /// # Errors
    /// [`NoEngine`] if it cannot be started.
    pub fn of(&mut self, mode: ReadMode) -> Result<&dyn Engine<T>, NoEngine> {
        if mode == ReadMode::Direct && self.direct_engine != DirectEngine::Threads {
            if self.uring.is_none() {
                self.start_uring();
            }
            if let (Some(Err(refusal)), DirectEngine::Uring) = (&self.uring, self.direct_engine) {
                return Err(NoEngine::Uring(refusal.clone()));
            }
            if let Some(Ok(ring)) = &self.uring {
                return Ok(ring);
            }
        }
        if self.pool.is_none() {
            let sink = self.sink.clone();
            let pool = Pool::start(self.threads, self.options.segment_bytes, sink);
            let pool = pool.map_err(NoEngine::Threads)?;
            self.used.push(pool.describe());
            self.pool = Some(pool);
        }
        Ok(self.pool.as_ref().expect("it was just started"))
    }

    /// The engine for requests of remote files.
    ///
    /// # Errors
    /// [`NoEngine::Threads`] if it cannot be started.
    pub fn fetching(&mut self) -> Result<&dyn Engine<T>, NoEngine> {
        if self.fetching.is_none() {
            let (segment_bytes, sink) = (self.options.segment_bytes, self.sink.clone());
            let pool = Pool::start(FETCHING_THREADS, segment_bytes, sink);
            self.fetching = Some(pool.map_err(NoEngine::Threads)?);
            self.used.push(format!("range requests, {FETCHING_THREADS} threads"));
        }
        Ok(self.fetching.as_ref().expect("it was just started"))
    }

    fn start_uring(&mut self) {
        // SAFETY: the promise made to `new`.
        let started = unsafe { Ring::start(&self.options, &self.register, self.sink.clone()) };
        match &started {
            Ok(ring) => {
                self.used.push(ring.describe());
                if let (Err(reason), false) = (ring.registered(), self.register.is_empty()) {
                    self.reasons.push(reason.to_string());
                }
            }
            Err(refusal) => {
                let verb = T::VERB;
                self.reasons.push(format!("{refusal}; O_DIRECT {verb}s go through threads"));
            }
        }
        self.uring = Some(started);
    }

    /// The started engines in words.
    pub fn used(&self) -> &[String] {
        &self.used
    }

    /// Why nothing better was started, since the last call.
    pub fn take_reasons(&mut self) -> Vec<String> {
        std::mem::take(&mut self.reasons)
    }

    /// [`Engine::cancel_queued`] for all started engines.
    pub fn cancel_queued(&self) {
        for pool in self.pool.iter().chain(&self.fetching) {
            pool.cancel_queued();
        }
        if let Some(Ok(ring)) = &self.uring {
            ring.cancel_queued();
        }
    }
}
