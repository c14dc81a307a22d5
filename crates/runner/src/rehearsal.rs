//! Programs run again on a GPU behind the queries, where it lacked its start: the next time their kernels, columns and
//! builds are there.
//!
//! A rehearsal is a run like any other, on a few threads, whose rows nobody reads: the first one brings the columns, the
//! second one compiles the kernel over columns that are there, which may be narrower than they came. One program is
//! rehearsed at a time. The end of the process cancels it. What fails is told to nobody, and a GPU that refuses a pipeline
//! is known to the placements from then on.
//!
//! Whoever asks once would wait for it at the end, so a process that stays has to ask for it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use headrace_flow::CancelToken;
use headrace_ir::{Program, Scalar};
use parking_lot::Mutex;

use crate::report::{RunReport, StageReport};
use crate::run::Request;
use crate::runner::Runner;
use crate::settings::Settings;
use crate::table::StreamTable;

/// Programs that wait, at most; the one that has waited longest is dropped.
const WAITING_MAX: usize = 64;

/// Of so many threads one is used: queries run meanwhile.
const THREADS_DIVISOR: usize = 4;

/// A run on the cores that takes less is not worth another on a GPU.
pub(crate) const CORES_MS_MIN: f64 = 1.0;

/// What a runner has yet to rehearse.
#[derive(Debug, Default)]
pub(crate) struct Rehearsals {
    are_on: AtomicBool,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Rehearsal>,
    is_at_work: bool,
}

#[derive(Debug)]
struct Rehearsal {
    program: Program,
    parameters: Vec<Scalar>,
    tables: Vec<Arc<StreamTable>>,
    settings: Settings,
}

/// Ends the work of a thread that panics, so that the next one begins.
struct AtWork<'q>(&'q Mutex<Queue>);

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.lock().is_at_work = false;
        }
    }
}

impl Rehearsals {
    /// Whether programs are rehearsed.
    pub(crate) fn are_on(&self) -> bool {
        self.are_on.load(Ordering::Relaxed)
    }
}

impl Runner {
    /// Has programs rehearsed from now on: the process stays.
    pub fn allow_rehearsals(&self) {
        self.rehearsals().are_on.store(true, Ordering::Relaxed);
    }

    /// Runs a request again behind the queries, as its report wants it.
    pub fn rehearse(self: &Arc<Self>, request: &Request<'_>) {
        let threads = (request.settings.threads / THREADS_DIVISOR).max(1);
        let settings = Settings { behind: true, threads, share: None, ..request.settings.clone() };
        let rehearsal = Rehearsal {
            program: request.program.clone(),
            parameters: request.parameters.to_vec(),
            tables: request.tables.to_vec(),
            settings,
        };
        let mut queue = self.rehearsals().queue.lock();
        if queue.waiting.len() == WAITING_MAX {
            queue.waiting.pop_front();
        }
        queue.waiting.push_back(rehearsal);
        if !std::mem::replace(&mut queue.is_at_work, true) {
            let runner = Arc::clone(self);
            headrace_cuda::begin_behind(move |token| runner.rehearse_all(token));
        }
    }

    fn rehearse_all(&self, token: &CancelToken) {
        let queue = &self.rehearsals().queue;
        let _at_work = AtWork(queue);
        let next = || {
            let mut queue = queue.lock();
            let next = queue.waiting.pop_front().filter(|_| !token.is_cancelled());
            queue.is_at_work = next.is_some();
            next
        };
        while let Some(Rehearsal { program, parameters, tables, settings }) = next() {
            let request = Request {
                program: &program,
                parameters: &parameters,
                tables: &tables,
                settings: &settings,
                token,
            };
            let run = || self.run(&request, &|_| true);
            let is_on_gpu = |stage: &StageReport| stage.processor.contains("cuda");
            let again = |first: RunReport| match first.stages.iter().flatten().any(is_on_gpu) {
                true => run().map(drop),
                false => Ok(()),
            };
            if let Err(why) = run().and_then(again) {
                tracing::debug!(%why, "a GPU was not made ready behind the queries");
            }
        }
    }
}
