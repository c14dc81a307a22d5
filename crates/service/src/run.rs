//! One run on the service's runner.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::DataType;
use arrow_select::dictionary::garbage_collect_any_dictionary;
use headrace_columns::ColumnError;
use headrace_flow::CancelToken;
use headrace_format::batches::{BatchReceiver, BatchStream, ProducerError};
use headrace_format::heap::HeapTable;
use headrace_pipeline::ExecError;
use headrace_runner::{
    Devices, ErrorClass, Fallback, Processor, Request, RunError, RunReport, Settings, StreamTable,
};

use crate::functions::{self, Guard};
use crate::outbox::{Body, Outbox};
use crate::owner::RemoteOwner;
use crate::protocol::{Finished, Place, Reply, Run, Tables};
use crate::shared::Shared;

/// Batches of an answer that wait for their reader.
pub const ANSWER_BATCHES: usize = 8;

/// How often a thread that waits for room checks whether the run is still wanted.
pub const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// CPU threads that a client may request.
const THREADS_MAX: usize = 1024;

/// A client's request, with what came after its first message.
pub struct Asked {
    pub run: Run,
    /// Batches of each table behind those of files or heaps.
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
    asked: Asked,
    owner: Arc<RemoteOwner>,
    rows: Credited,
    shared: &Shared,
    token: &CancelToken,
    outbox: &Outbox<Reply>,
) -> Reply {
    let came = Instant::now();
    let functions = functions::named(&asked.run.program);
    let refused =
        functions.as_deref().map(|names| functions::refusal(names, shared.cuda_functions));
    if let Some(message) = refused.flatten() {
        return Reply::Failed { class: ErrorClass::Unsupported, message, overflow: None };
    }
    let Some(_turn) = shared.queue.turn(asked.run.session, || !token.is_cancelled()) else {
        return cancelled(shared, "before its turn");
    };
    let queued_ms = came.elapsed().as_secs_f64() * 1e3;
    shared.begins_run();
    let limit = Duration::from_millis(asked.run.settings.function_timeout_ms);
    let guard = Guard { names: functions.as_deref(), runner: &shared.runner, token, outbox };
    let ran = guard.watched(limit, || run(asked, owner, rows, shared, token, outbox));
    match ran {
        Ok(report) => {
            let device =
                (report.streamed.processor == "cuda").then(|| device_name(shared)).flatten();
            let device_cache_bytes = shared.runner.device_cache_bytes();
            Reply::Finished(Box::new(Finished { report, device, queued_ms, device_cache_bytes }))
        }
        Err(error) if error.class() == ErrorClass::Cancelled => cancelled(shared, "on its way"),
        Err(error) => failed(&error),
    }
}

/// An error in words, with what doors need for words of their own.
pub fn failed(error: &RunError) -> Reply {
    let overflow = match error {
        RunError::Exec(ExecError::Column(ColumnError::Overflow { type_name, place })) => {
            Some((type_name.clone(), place.clone()))
        }
        _ => None,
    };
    Reply::Failed { class: error.class(), message: error.to_string(), overflow }
}

/// Nobody wants it any more.
pub fn cancelled(shared: &Shared, when: &str) -> Reply {
    let message = match shared.is_ending() {
        true => "the service was told to end".into(),
        false => format!("the run was cancelled {when}"),
    };
    Reply::Failed { class: ErrorClass::Cancelled, message, overflow: None }
}

/// The GPU that runs.
pub fn device_name(shared: &Shared) -> Option<String> {
    let device = shared.runner.cuda(&Devices::All).ok()?;
    Some(device.device().info().name.clone())
}

/// Opens the tables of a run, in the order of their numbers.
fn tables(
    asked: Asked,
    owner: Arc<RemoteOwner>,
    rows: Credited,
    shared: &Shared,
) -> Result<(Run, Vec<Arc<StreamTable>>), RunError> {
    let Asked { mut run, batches } = asked;
    let mut tables = match &mut run.tables {
        Tables::Files(files) => {
            files.iter().map(|files| shared.tables.get(files)).collect::<Result<Vec<_>, _>>()?
        }
        Tables::Heaps(heaps) => {
            let name = &run.program.answer.source.table;
            let fills_page_cache = heaps.fills_page_cache;
            let table = HeapTable::new(name, std::mem::take(&mut heaps.heaps), owner, rows)?;
            let table = table.filling_page_cache(fills_page_cache);
            vec![Arc::new(StreamTable::new(name, Arc::new(table)))]
        }
    };
    for (number, batches) in (tables.len()..).zip(batches) {
        tables.push(Arc::new(StreamTable::of_batches(&run.program, number, batches)?));
    }
    Ok((run, tables))
}

/// How a client's run is run here.
pub fn settings(asked: &Settings, shared: &Shared) -> Settings {
    let (processor, fallback) = match shared.processor {
        Processor::Auto => (asked.processor, asked.fallback),
        only => (only, Fallback::Forbid),
    };
    let threads = asked.threads.clamp(1, THREADS_MAX);
    let may_go_other_ways = !asked.forbids_other_ways();
    Settings { processor, fallback, may_go_other_ways, threads, ..asked.clone() }
}

/// Where a stage of a program would run.
pub fn place(place: &Place, shared: &Shared) -> Result<(), String> {
    if let Some(names) = functions::named(&place.program)
        && let Some(why) = functions::refusal(&names, shared.cuda_functions)
    {
        return Err(why);
    }
    let tables = place.tables.iter().map(|files| shared.tables.get(files));
    let tables: Vec<_> = tables.collect::<Result<_, _>>().map_err(|error| error.to_string())?;
    let settings = settings(&place.settings, shared);
    let placed = shared.runner.place(&place.program, place.stage, &tables, &settings);
    placed.map_err(|why| why.to_string())
}

/// Texts of a dictionary that an answer needs: a batch's own, not its table's.
fn with_own_texts(batch: RecordBatch) -> RecordBatch {
    let is_coded = |array: &ArrayRef| matches!(array.data_type(), DataType::Dictionary(..));
    if !batch.columns().iter().any(is_coded) {
        return batch;
    }
    let own = |array: &ArrayRef| match array.as_any_dictionary_opt() {
        Some(coded) => garbage_collect_any_dictionary(coded),
        None => Ok(Arc::clone(array)),
    };
    let columns = batch.columns().iter().map(own).collect::<Result<Vec<_>, _>>();
    // The table's are right, too, but many.
    let rebuilt = columns.and_then(|columns| RecordBatch::try_new(batch.schema(), columns));
    rebuilt.unwrap_or(batch)
}

fn run(
    asked: Asked,
    owner: Arc<RemoteOwner>,
    rows: Credited,
    shared: &Shared,
    token: &CancelToken,
    outbox: &Outbox<Reply>,
) -> Result<RunReport, RunError> {
    let (run, tables) = tables(asked, owner, rows, shared)?;
    let settings = settings(&run.settings, shared);
    let request = Request {
        program: &run.program,
        parameters: &run.parameters,
        tables: &tables,
        settings: &settings,
        token,
        known: None,
    };
    let report = shared.runner.run(&request, &|batch| {
        while !outbox.has_room(ANSWER_BATCHES, LOOK_INTERVAL) {
            if token.is_cancelled() || outbox.is_abandoned() {
                return false;
            }
        }
        outbox.push_bulk(Reply::Batch, Body::Rows(with_own_texts(batch)));
        true
    })?;
    // Nobody would watch a rehearsal of functions.
    if report.wants_rehearsal && functions::named(&run.program).is_none() {
        shared.runner.rehearse(&request);
    }
    Ok(report)
}
