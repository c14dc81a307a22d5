//! The thread of a run, and the backend that waits for it and reads what only it can.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arrow_array::RecordBatch;
use headrace_flow::CancelToken;
use headrace_format::heap::{Block, HeapBlocks};
use headrace_ir::{Program, Scalar};
use headrace_runner::{
    Fallback, Processor, Request, RunReport, Runner, RunnerOptions, Settings, StreamTable,
};
use headrace_service::client::{self, RowSender};
use headrace_service::protocol::{self, Files};

use super::answer;
use super::row_way::RowWay;
use super::service::{self, Served};
use super::threads::{LOOK_INTERVAL, Running};
use crate::blocks::{Counts, Owner, Part, Reader};
use crate::nodes::{WhyNot, why_not};
use crate::settings;

/// What the thread needs.
pub(super) struct Job {
    pub program: Program,
    pub values: Vec<Scalar>,
    /// Rows of each child plan: the tables behind the first.
    pub children: Vec<RecordBatch>,
    pub table: Table,
}

/// The streamed table, where the run is.
pub(super) enum Table {
    /// Of this process.
    Own(StreamTable),
    /// Heaps, of the service.
    Service(ForService),
    /// Files, of the service. `is_on_gpu`: it keeps them.
    Files { files: Files, is_on_gpu: bool },
}

/// What the service gets besides the program.
pub(super) struct ForService {
    pub heaps: Vec<HeapBlocks>,
    pub fills_page_cache: bool,
    pub rows: Arc<RowSender>,
    pub owner: Arc<Owner>,
}

/// What a run brought.
pub(super) struct Answered {
    pub report: RunReport,
    pub batches: Vec<RecordBatch>,
    /// If the service ran it.
    pub served: Option<Served>,
}

/// Why it brought nothing.
pub(super) struct Failure {
    pub reason: String,
    /// Whether that may be otherwise in another place.
    pub is_of_the_place: bool,
}

impl From<WhyNot> for Failure {
    fn from(WhyNot(reason): WhyNot) -> Self {
        Self { reason, is_of_the_place: false }
    }
}

type Done = Result<Answered, Failure>;

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
) -> Done {
    let done: Arc<Mutex<Option<Done>>> = Arc::default();
    let (work, its_done) = (job.work(), Arc::clone(&done));
    let running = Running::start(move |token| {
        let _over = over;
        let outcome = work(token);
        *its_done.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
    });
    let running = running.map_err(|error| WhyNot(format!("no thread can be started: {error}")))?;
    let served = serve();
    // A run that has no end of its own is ended here.
    drop(running);
    served?;
    let outcome = done.lock().unwrap_or_else(PoisonError::into_inner).take();
    outcome.unwrap_or_else(|| why_not("the pipeline's thread ended by a panic").map_err(Into::into))
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

/// What is done on the run's thread.
type Work = Box<dyn FnOnce(&CancelToken) -> Done + Send>;

impl Job {
    /// As work for a thread: settings are read here.
    fn work(self) -> Work {
        let (threads, answer) = (settings::threads(), Gathered::new(answer::free_bytes()));
        let Self { program, values, children, table } = self;
        match table {
            Table::Service(ForService { heaps, fills_page_cache, rows, owner }) => {
                let heaps =
                    protocol::Heaps { heaps, fills_page_cache, ..protocol::Heaps::default() };
                let run = served(program, values, protocol::Tables::Heaps(heaps), threads);
                let start = service::start();
                Box::new(move |token| {
                    service::run(&start, token, answer, |connection, emit| {
                        client::run(connection, run, &children, &rows, &*owner, token, emit)
                    })
                })
            }
            Table::Files { files, is_on_gpu } => {
                let tables = protocol::Tables::Files(vec![files.clone()]);
                let run = served(program, values, tables, threads);
                let start = service::start();
                Box::new(move |token| {
                    if is_on_gpu {
                        service::keep(&start, files, token)?;
                    }
                    service::run(&start, token, answer, |connection, emit| {
                        client::run_files(connection, run, &children, token, emit)
                    })
                })
            }
            Table::Own(table) => {
                let runner = runner();
                let share = Some(settings::thread_share());
                Box::new(move |token| {
                    let mut tables = vec![Arc::new(table)];
                    for (number, rows) in (1..).zip(children) {
                        let table = StreamTable::of_batches(&program, number, vec![rows]);
                        let table = table.map_err(|error| WhyNot(error.to_string()))?;
                        tables.push(Arc::new(table));
                    }
                    let settings = Settings {
                        processor: Processor::Cpu,
                        fallback: Fallback::Forbid,
                        threads,
                        share,
                        ..Settings::default()
                    };
                    own_run(
                        &runner,
                        answer,
                        &Request {
                            program: &program,
                            parameters: &values,
                            tables: &tables,
                            settings: &settings,
                            token,
                            known: None,
                        },
                    )
                })
            }
        }
    }
}

/// A run for the service.
fn served(
    program: Program,
    parameters: Vec<Scalar>,
    tables: protocol::Tables,
    threads: usize,
) -> protocol::Run {
    // This session has cores of its own, and weighed them.
    let (processor, fallback) = (Processor::Cuda, Fallback::Allow);
    let settings = Settings { processor, fallback, threads, ..Settings::default() };
    protocol::Run { program, parameters, tables, batches: Vec::new(), settings, session: None }
}

fn own_run(runner: &Runner, answer: Gathered, request: &Request<'_>) -> Done {
    let answer = Mutex::new(answer);
    let emit =
        |batch: RecordBatch| answer.lock().unwrap_or_else(PoisonError::into_inner).push(batch);
    let report = runner.run(request, &emit).map_err(|error| WhyNot(error.to_string()))?;
    let batches = answer.into_inner().unwrap_or_else(PoisonError::into_inner).finish()?;
    Ok(Answered { report, batches, served: None })
}

/// An answer, as much of it as there is memory for.
pub(super) struct Gathered {
    limit_bytes: usize,
    bytes: usize,
    batches: Vec<RecordBatch>,
}

impl Gathered {
    fn new(limit_bytes: usize) -> Self {
        Self { limit_bytes, bytes: 0, batches: Vec::new() }
    }

    /// Takes a batch; whether more are wanted.
    pub(super) fn push(&mut self, batch: RecordBatch) -> bool {
        self.bytes += answer::bytes_of(&batch);
        self.batches.push(batch);
        self.bytes <= self.limit_bytes
    }

    pub(super) fn finish(self) -> Result<Vec<RecordBatch>, WhyNot> {
        match self.bytes > self.limit_bytes {
            true => why_not(
                "the answer takes more than headrace.memory_limit, or what others leave of it",
            ),
            false => Ok(self.batches),
        }
    }
}

/// Reads the blocks that the pipeline does not, until it is over.
pub(super) unsafe fn serve(
    owner: &Owner,
    mut way: RowWay,
    parts: &[Part],
    mut reader: Reader<'_>,
) -> Result<(), WhyNot> {
    let mut listed = parts.iter().zip(0..).flat_map(|(part, number)| {
        let blocks = part.listing.server.iter().cloned().flatten();
        blocks.map(move |block| Block { part: number, number: block })
    });
    let counts = parts.iter().map(|part| part.listing.counts);
    let decoded =
        |counts: Counts| counts.direct + if way.takes_pages() { counts.server } else { 0 };
    let decoded_blocks: u64 = counts.map(decoded).sum();
    let (mut left, mut is_open) = (true, true);
    loop {
        pgrx::check_for_interrupts!();
        let next = if left { listed.next() } else { None };
        left = next.is_some();
        let wait = if left { Duration::ZERO } else { LOOK_INTERVAL };
        let mut state = owner.look(wait, |state| {
            left || state.is_over
                || !state.rerouted.is_empty()
                || (is_open && state.done_blocks == decoded_blocks)
        });
        if state.is_over {
            return Ok(());
        }
        match next {
            Some(block) if way.takes_pages() => way.copy(block, &mut listed, &mut reader)?,
            Some(block) => read(block, &way, &mut reader)?,
            None => way.end_pages(),
        }
        // Part by part.
        state.rerouted.sort_unstable();
        for block in state.rerouted {
            pgrx::check_for_interrupts!();
            read(block, &way, &mut reader)?;
        }
        if !left && is_open && state.done_blocks == decoded_blocks {
            way.send(reader.batches(true)?);
            way.finish();
            is_open = false;
        }
    }
}

unsafe fn read(block: Block, way: &RowWay, reader: &mut Reader<'_>) -> Result<(), WhyNot> {
    reader.read(block)?;
    way.send(reader.batches(false)?);
    Ok(())
}
