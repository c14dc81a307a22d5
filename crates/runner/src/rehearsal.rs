//! Programs run again on a GPU behind the queries, where it lacked its start: the next time their kernels, columns and
//! builds are there.
//!
//! A rehearsal is a run like any other, on a few threads, whose rows are dropped: the first run brings the columns, the
//! second one compiles the kernel over columns that are there, which may be narrower than they came. One program is
//! rehearsed at a time. The end of the process cancels it and waits for it. Its errors are only logged. A GPU that refuses
//! a pipeline is known to the placements from then on.
//!
//! A process that runs one query and ends must not wait for a rehearsal, so only processes that stay allow them; and one
//! whose memory is limited keeps it for its queries.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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

/// A rehearsal uses a quarter of the threads: queries run meanwhile.
const THREADS_DIVISOR: usize = 4;

/// A run on the cores that takes less is not worth another on a GPU.
pub(crate) const CORES_MS_MIN: f64 = 1.0;

/// What a GPU refuses of a program runs on the cores if it takes them no more, so that the rest can be rehearsed.
pub(crate) const CORES_MS_MAX: f64 = 100.0;

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

/// The work of a thread. Where it panics or is never begun, a later program begins another.
struct AtWork {
    runner: Arc<Runner>,
    has_ended: bool,
}

impl AtWork {
    fn run(mut self, token: &CancelToken) {
        self.runner.rehearse_all(token);
        self.has_ended = true;
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        if !self.has_ended {
            let mut queue = self.runner.rehearsals().queue.lock();
            queue.waiting.clear();
            queue.is_at_work = false;
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
    /// Has programs rehearsed from now on, unless memory is limited: the process stays.
    pub fn allow_rehearsals(&self) {
        self.rehearsals().are_on.store(!self.is_limited(), Ordering::Relaxed);
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
            drop(queue);
            let at_work = AtWork { runner: Arc::clone(self), has_ended: false };
            headrace_cuda::begin_behind(move |token| at_work.run(token));
        }
    }

    fn rehearse_all(&self, token: &CancelToken) {
        let next = || {
            let mut queue = self.rehearsals().queue.lock();
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
            let run = || self.run_above(&request, &|_| true);
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
