//! A call of a function of a table: all rows are taken, then the code runs, then its rows go back.
//!
//! Only the code has a turn and is watched. A client that sends or reads slowly costs nobody a turn, and is no reason to
//! begin anew.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use headrace_flow::CancelToken;
use headrace_format::batches::BatchStream;
use headrace_ir::TableLaunch;
use headrace_runner::{ErrorClass, Processor, RunReport, StageReport};

use crate::functions::{self, Guard};
use crate::outbox::{Body, Outbox};
use crate::protocol::{Finished, Reply, TableCall};
use crate::run::{ANSWER_BATCHES, Credited, LOOK_INTERVAL, cancelled, device_name, failed};
use crate::shared::Shared;

/// How the client wants the code launched: known when it has sent all rows.
pub type Shape = Arc<Mutex<Option<TableLaunch>>>;

/// Takes the rows, waits for a turn, calls, and reports the outcome.
pub fn answer(
    call: &TableCall,
    mut rows: Credited,
    shape: &Shape,
    shared: &Shared,
    token: &CancelToken,
    outbox: &Outbox<Reply>,
) -> Reply {
    let fails = |class, message| Reply::Failed { class, message, overflow: None };
    let names = format!("{}()", call.function.name);
    if let Some(message) = functions::refusal(&names, shared.cuda_functions) {
        return fails(ErrorClass::Unsupported, message);
    }
    if shared.processor == Processor::Cpu {
        let why = format!("{names} is CUDA code, and the service was started with --processor cpu");
        return fails(ErrorClass::Unsupported, why);
    }
    // Before a client sends what nobody takes.
    if let Err(why) = shared.runner.cuda(&headrace_runner::Devices::All) {
        return fails(ErrorClass::Unsupported, why.to_string());
    }
    let bytes_max = shared.runner.memory().limit_bytes / 2;
    let batches = match all(&mut rows, bytes_max, token) {
        Ok(batches) => batches,
        Err(_) if token.is_cancelled() => return cancelled(shared, "before it had all rows"),
        Err(message) => return fails(ErrorClass::OutOfMemory, format!("{names}: {message}")),
    };
    let shape = *shape.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(shape) = shape else {
        return fails(ErrorClass::Internal, "rows of a call that is not launched".into());
    };
    let came = Instant::now();
    let Some(_turn) = shared.queue.turn(call.session, || !token.is_cancelled()) else {
        return cancelled(shared, "before its turn");
    };
    let queued_ms = came.elapsed().as_secs_f64() * 1e3;
    shared.begins_run();
    let began = Instant::now();
    let guard = Guard { names: Some(&names), runner: &shared.runner, token, outbox };
    let limit = Duration::from_millis(call.timeout_ms);
    let called = guard.watched(limit, || {
        shared.runner.call_table(&call.function, &batches, &call.parameters, shape, token)
    });
    let called = match called {
        Ok(called) => called,
        Err(error) if error.class() == ErrorClass::Cancelled => {
            return cancelled(shared, "on its way");
        }
        Err(error) => return failed(&error),
    };
    let sent = shared.runner.rows_of_call(&called, &|batch| {
        while !outbox.has_room(ANSWER_BATCHES, LOOK_INTERVAL) {
            if token.is_cancelled() || outbox.is_abandoned() {
                return false;
            }
        }
        outbox.push_bulk(Reply::Batch, Body::Rows(batch));
        true
    });
    guard.begin_anew_if_lost();
    if let Err(error) = sent {
        return failed(&error);
    }
    let streamed = StageReport {
        table: call.function.table.clone(),
        processor: "cuda".into(),
        rows_in: batches.iter().map(|batch| batch.num_rows() as u64).sum(),
        rows_out: called.rows(),
        wall_ms: began.elapsed().as_secs_f64() * 1e3,
        ..StageReport::default()
    };
    Reply::Finished(Box::new(Finished {
        report: RunReport { streamed, ..RunReport::default() },
        device: device_name(shared),
        queued_ms,
        device_cache_bytes: shared.runner.device_cache_bytes(),
    }))
}

/// All rows of a table, of at most so many bytes.
fn all(
    rows: &mut Credited,
    bytes_max: u64,
    token: &CancelToken,
) -> Result<Vec<RecordBatch>, String> {
    let waker = Waker::from(Arc::new(Parked(std::thread::current())));
    let (mut batches, mut bytes) = (Vec::new(), 0);
    loop {
        match rows.poll_next(&waker) {
            Poll::Ready(None) => return Ok(batches),
            Poll::Ready(Some(Err(cause))) => return Err(cause.to_string()),
            Poll::Ready(Some(Ok(batch))) => {
                bytes += batch.get_array_memory_size() as u64;
                if bytes > bytes_max {
                    return Err(format!(
                        "its table has more than {bytes_max} bytes, half of the memory of the GPU service\n\
                         hint: headrace gpu-service start --memory-limit"
                    ));
                }
                batches.push(batch);
            }
            Poll::Pending if token.is_cancelled() => return Err("nobody wants it any more".into()),
            Poll::Pending => std::thread::park_timeout(LOOK_INTERVAL),
        }
    }
}

/// A thread that waits for rows.
struct Parked(Thread);

impl Wake for Parked {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
