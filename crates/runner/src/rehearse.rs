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

use std::sync::Arc;

use headrace_flow::CancelToken;

use crate::rehearsal::Rehearsal;
use crate::report::{RunReport, StageReport};
use crate::run::Request;
use crate::runner::Runner;
use crate::settings::Settings;

/// A rehearsal uses a quarter of the threads: queries run meanwhile.
const THREADS_DIVISOR: usize = 4;

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
            self.runner.rehearsals().give_up();
        }
    }
}

impl Runner {
    /// Has programs rehearsed from now on, unless memory is limited: the process stays.
    pub fn allow_rehearsals(&self) {
        let is_limited = self.memory().planner_bytes.is_some();
        self.rehearsals().turn(!is_limited);
    }

    /// Runs a request again behind the queries, as its report wants it.
    pub fn rehearse(self: &Arc<Self>, request: &Request<'_>) {
        let threads = (request.settings.threads / THREADS_DIVISOR).max(1);
        let settings = Settings { behind: true, threads, share: None, ..request.settings.clone() };
        let begins = self.rehearsals().push(Rehearsal {
            program: request.program.clone(),
            parameters: request.parameters.to_vec(),
            tables: request.tables.to_vec(),
            settings,
        });
        if begins {
            let at_work = AtWork { runner: Arc::clone(self), has_ended: false };
            headrace_cuda::begin_behind(move |token| at_work.run(token));
        }
    }

    fn rehearse_all(&self, token: &CancelToken) {
        while let Some(rehearsal) = self.rehearsals().next(token) {
            let Rehearsal { program, parameters, tables, settings } = &rehearsal;
            let request = Request { program, parameters, tables, settings, token, known: None };
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
