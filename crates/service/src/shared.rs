//! The shared state of all sessions, and the list of sessions.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use headrace_flow::CancelToken;
use headrace_runner::{Processor, Runner, RunnerOptions};

use crate::devices;
use crate::kept::KeptTables;
use crate::options::{CudaFunctions, Options};
use crate::protocol::Status;
use crate::queue::Queue;
use crate::tables::OpenTables;

/// How long sessions have to notice the end.
const END_PATIENCE: Duration = Duration::from_secs(3);

/// The shared state of all sessions.
pub(crate) struct Shared {
    pub runner: Arc<Runner>,
    pub queue: Queue,
    pub processor: Processor,
    pub tables: OpenTables,
    pub kept: KeptTables,
    pub idle_exit_s: u32,
    pub cuda_functions: CudaFunctions,
    began: Instant,
    runs: AtomicU64,
    sessions: Mutex<Sessions>,
    is_ending: AtomicBool,
}

struct Sessions {
    next: u64,
    tokens: HashMap<u64, CancelToken>,
    last_end: Instant,
}

impl Shared {
    pub fn new(options: &Options) -> Self {
        let limits = RunnerOptions {
            memory_limit_bytes: options.limits.memory_limit,
            device_memory_bytes: options.limits.device_memory_limit,
            cuda_functions: options.limits.cuda_functions == CudaFunctions::Owner,
            ..RunnerOptions::default()
        };
        let sessions = Sessions { next: 0, tokens: HashMap::new(), last_end: Instant::now() };
        let runner = Arc::new(Runner::new(&limits));
        runner.allow_rehearsals();
        Self {
            runner,
            queue: Queue::new(options.limits.runs.into()),
            processor: options.processor,
            tables: OpenTables::default(),
            kept: KeptTables::default(),
            idle_exit_s: options.idle_exit,
            cuda_functions: options.limits.cuda_functions,
            began: Instant::now(),
            runs: AtomicU64::new(0),
            sessions: Mutex::new(sessions),
            is_ending: AtomicBool::new(false),
        }
    }

    fn sessions(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the service is about to end.
    pub fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::Acquire)
    }

    /// Counts a run.
    pub fn begins_run(&self) {
        self.runs.fetch_add(1, Ordering::Relaxed);
    }

    /// What it is doing.
    pub fn status(&self) -> Status {
        Status {
            pid: std::process::id(),
            folder: std::env::current_dir().unwrap_or_default(),
            uptime_s: self.began.elapsed().as_secs(),
            processor: self.processor,
            runs: self.runs.load(Ordering::Relaxed),
            runs_open: self.queue.open(),
            tables: self.tables.len(),
            idle_exit_s: self.idle_exit_s,
            resident_bytes: self.runner.resident_bytes(),
            kept: self.kept.list(),
            devices: devices::look(),
        }
    }

    /// How long there has been no session; `None` if there is one.
    pub fn idle(&self) -> Option<Duration> {
        let sessions = self.sessions();
        sessions.tokens.is_empty().then(|| sessions.last_end.elapsed())
    }

    /// Registers a session.
    pub fn enter(self: &Arc<Self>) -> Present {
        let (mut sessions, token) = (self.sessions(), CancelToken::new());
        let number = sessions.next;
        sessions.next += 1;
        sessions.tokens.insert(number, token.clone());
        Present { shared: Arc::clone(self), number, token }
    }

    /// Ends all runs, and waits a while for their sessions.
    pub fn end(&self) {
        self.is_ending.store(true, Ordering::Release);
        self.sessions().tokens.values().for_each(CancelToken::cancel);
        let began = Instant::now();
        while self.idle().is_none() && began.elapsed() < END_PATIENCE {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// A session, while this lives.
pub(crate) struct Present {
    pub shared: Arc<Shared>,
    pub number: u64,
    pub token: CancelToken,
}

impl Drop for Present {
    fn drop(&mut self) {
        let mut sessions = self.shared.sessions();
        sessions.tokens.remove(&self.number);
        sessions.last_end = Instant::now();
    }
}
