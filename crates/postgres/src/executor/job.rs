//! The thread of a run, and the backend that waits for it and reads what only it can.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arrow_array::RecordBatch;
use headrace_flow::CancelToken;
use headrace_format::batches::BatchSender;
use headrace_format::heap::Block;
use headrace_ir::{Program, Scalar};
use headrace_runner::{
    Fallback, Processor, Request, RunReport, Runner, RunnerOptions, Settings, StreamTable,
};

use super::threads::Running;
use crate::blocks::{Owner, Part, Reader};
use crate::nodes::{WhyNot, why_not};
use crate::settings;

/// How long the backend sleeps at most before it looks for interrupts.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// What the thread needs.
pub(super) struct Job {
    pub program: Program,
    pub values: Vec<Scalar>,
    pub children: Vec<Vec<RecordBatch>>,
    pub table: StreamTable,
}

type Done = Result<(RunReport, Vec<RecordBatch>), String>;

thread_local! {
    /// The backend's runner, made for the first run and whenever its memory limit is another.
    static RUNNER: RefCell<Option<(i32, Arc<Runner>)>> = const { RefCell::new(None) };
}

fn runner() -> Arc<Runner> {
    let limit = settings::MEMORY_LIMIT_KIB.get();
    RUNNER.with_borrow_mut(|kept| match kept {
        Some((of, runner)) if *of == limit => Arc::clone(runner),
        _ => {
            let options = RunnerOptions {
                memory_limit_bytes: Some(limit as u64 * 1024),
                ..RunnerOptions::default()
            };
            let runner = Arc::new(Runner::new(&options));
            *kept = Some((limit, Arc::clone(&runner)));
            runner
        }
    })
}

/// Runs a job on a thread of its own, which drops `over` at its end, and does meanwhile what only the
/// backend can, until then.
pub(super) fn watched(
    job: Job,
    over: impl Send + 'static,
    serve: impl FnOnce() -> Result<(), WhyNot>,
) -> Result<(RunReport, Vec<RecordBatch>), WhyNot> {
    let done: Arc<Mutex<Option<Done>>> = Arc::default();
    let (token, runner, threads) = (CancelToken::new(), runner(), settings::threads());
    let (its_done, its_token) = (Arc::clone(&done), token.clone());
    let work = move || {
        let _over = over;
        let outcome = job.run(&runner, threads, &its_token);
        *its_done.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
    };
    let running = Running::start(token, work);
    let running = running.map_err(|error| WhyNot(format!("no thread can be started: {error}")))?;
    let served = serve();
    // A run that has no end of its own is ended here.
    drop(running);
    served?;
    let outcome = done.lock().unwrap_or_else(PoisonError::into_inner).take();
    match outcome {
        Some(Ok(answer)) => Ok(answer),
        Some(Err(cause)) => why_not(cause),
        None => why_not("the pipeline's thread ended by a panic"),
    }
}

/// Tells the end of a run, whatever it is.
pub(super) fn over(owner: &Arc<Owner>) -> impl Send + 'static {
    Over(Arc::clone(owner))
}

struct Over(Arc<Owner>);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Job {
    fn run(self, runner: &Runner, threads: usize, token: &CancelToken) -> Done {
        let settings = Settings {
            processor: Processor::Cpu,
            fallback: Fallback::Forbid,
            threads,
            ..Settings::default()
        };
        let request = Request {
            program: &self.program,
            parameters: &self.values,
            tables: &[Arc::new(self.table)],
            children: &self.children,
            settings: &settings,
            token,
        };
        let answer = Mutex::new((Vec::new(), 0));
        let limit_bytes = runner.memory().limit_bytes as usize;
        let emit = |batch: RecordBatch| {
            let mut answer = answer.lock().unwrap_or_else(PoisonError::into_inner);
            answer.1 += batch.get_array_memory_size();
            answer.0.push(batch);
            answer.1 <= limit_bytes
        };
        let report = runner.run(&request, &emit).map_err(|error| error.to_string())?;
        let (batches, bytes) = answer.into_inner().unwrap_or_else(PoisonError::into_inner);
        match bytes > limit_bytes {
            true => Err("the answer takes more than headrace.memory_limit".into()),
            false => Ok((report, batches)),
        }
    }
}

/// Reads the blocks that the pipeline does not, until it is over.
pub(super) unsafe fn serve(
    owner: &Owner,
    sender: BatchSender,
    parts: &[Part],
    mut reader: Reader<'_>,
) -> Result<(), WhyNot> {
    let mut sender = Some(sender);
    let mut listed = parts.iter().zip(0..).flat_map(|(part, number)| {
        let blocks = part.listing.server.iter().cloned().flatten();
        blocks.map(move |block| Block { part: number, number: block })
    });
    let direct_blocks: u64 = parts.iter().map(|part| part.listing.counts.direct).sum();
    let mut left = true;
    loop {
        pgrx::check_for_interrupts!();
        let next = if left { listed.next() } else { None };
        left = next.is_some();
        let wait = if left { Duration::ZERO } else { LOOK_INTERVAL };
        let mut state = owner.look(wait, |state| {
            left || state.is_over
                || !state.rerouted.is_empty()
                || (sender.is_some() && state.done_blocks == direct_blocks)
        });
        if state.is_over {
            return Ok(());
        }
        // Part by part.
        state.rerouted.sort_unstable();
        for block in next.into_iter().chain(state.rerouted) {
            pgrx::check_for_interrupts!();
            reader.read(block)?;
            send(sender.as_ref(), reader.batches(false)?);
        }
        if !left && state.done_blocks == direct_blocks && sender.is_some() {
            send(sender.as_ref(), reader.batches(true)?);
            if let Some(sender) = sender.take() {
                sender.finish();
            }
        }
    }
}

fn send(sender: Option<&BatchSender>, batches: Vec<RecordBatch>) {
    for batch in batches {
        // If nobody wants it, the run is over, which is seen next.
        let _ = sender.is_some_and(|sender| sender.send(batch));
    }
}
