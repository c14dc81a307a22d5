//! One run on the service's runner.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use headrace_flow::CancelToken;
use headrace_format::batches::{BatchReceiver, BatchStream, ProducerError};
use headrace_format::heap::HeapTable;
use headrace_runner::{
    Devices, ErrorClass, Fallback, Processor, Request, RunError, RunReport, Settings, StreamTable,
};

use crate::outbox::{Body, Outbox};
use crate::owner::RemoteOwner;
use crate::protocol::{Finished, Reply, Run};
use crate::shared::Shared;

/// Batches of an answer that wait for their reader.
const ANSWER_BATCHES: usize = 8;

/// How often a thread that waits for room checks whether the run is still wanted.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// CPU threads that a client may request.
const THREADS_MAX: usize = 1024;

/// A client's request.
pub struct HeapRun {
    pub run: Run,
    /// Batches of each table behind the heaps.
    pub batches: Vec<Vec<RecordBatch>>,
}

/// A client's rows; the client gets credit back for each batch that is taken.
pub struct Credited {
    pub receiver: BatchReceiver,
    pub waiting: Arc<AtomicUsize>,
    pub outbox: Arc<Outbox<Reply>>,
}

impl BatchStream for Credited {
    fn poll_next(&mut self, waker: &Waker) -> Poll<Option<Result<RecordBatch, ProducerError>>> {
        let polled = self.receiver.poll_next(waker);
        if let Poll::Ready(Some(Ok(_))) = polled {
            self.waiting.fetch_sub(1, Ordering::AcqRel);
            self.outbox.push(Reply::Taken(1), Body::NONE);
        }
        polled
    }
}

/// Waits for its turn, runs, and reports the outcome.
pub fn answer(
    heap: HeapRun,
    owner: Arc<RemoteOwner>,
    rows: Credited,
    shared: &Shared,
    token: &CancelToken,
    outbox: &Outbox<Reply>,
) -> Reply {
    let came = Instant::now();
    let Some(_turn) = shared.queue.turn(|| !token.is_cancelled()) else {
        return cancelled(shared, "before its turn");
    };
    let queued_ms = came.elapsed().as_secs_f64() * 1e3;
    match run(heap, owner, rows, shared, token, outbox) {
        Ok(report) => {
            let device =
                (report.streamed.processor == "cuda").then(|| device_name(shared)).flatten();
            let device_cache_bytes = shared.runner.device_cache_bytes();
            Reply::Finished(Box::new(Finished { report, device, queued_ms, device_cache_bytes }))
        }
        Err(error) if error.class() == ErrorClass::Cancelled => cancelled(shared, "on its way"),
        Err(error) => Reply::Failed { class: error.class(), message: error.to_string() },
    }
}

fn cancelled(shared: &Shared, when: &str) -> Reply {
    let message = match shared.is_ending() {
        true => "the service was told to end".into(),
        false => format!("the run was cancelled {when}"),
    };
    Reply::Failed { class: ErrorClass::Cancelled, message }
}

fn device_name(shared: &Shared) -> Option<String> {
    let device = shared.runner.cuda(&Devices::All).ok()?;
    Some(device.device().info().name.clone())
}

fn run(
    heap: HeapRun,
    owner: Arc<RemoteOwner>,
    rows: Credited,
    shared: &Shared,
    token: &CancelToken,
    outbox: &Outbox<Reply>,
) -> Result<RunReport, RunError> {
    let HeapRun { run, batches } = heap;
    let name = &run.program.answer.source.table;
    let table = HeapTable::new(name, run.heaps, owner, rows)?;
    let table = table.filling_page_cache(run.fills_page_cache);
    let mut tables = vec![Arc::new(StreamTable::new(name, Arc::new(table)))];
    for (number, batches) in batches.into_iter().enumerate() {
        tables.push(Arc::new(StreamTable::of_batches(&run.program, number + 1, batches)?));
    }
    // Whoever asks has cores of its own, and weighed them.
    let (processor, fallback) = match shared.processor {
        Processor::Auto => (Processor::Cuda, Fallback::Allow),
        asked => (asked, Fallback::Forbid),
    };
    let settings = Settings {
        processor,
        fallback,
        threads: run.threads.clamp(1, THREADS_MAX),
        ..Settings::default()
    };
    let request = Request {
        program: &run.program,
        parameters: &run.parameters,
        tables: &tables,
        settings: &settings,
        token,
    };
    shared.runner.run(&request, &|batch| {
        while !outbox.has_room(ANSWER_BATCHES, LOOK_INTERVAL) {
            if token.is_cancelled() || outbox.is_abandoned() {
                return false;
            }
        }
        outbox.push_bulk(Reply::Batch, Body::Rows(batch));
        true
    })
}
