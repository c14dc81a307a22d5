//! Runs in the process that owns the GPUs: which programs go there, and what comes back.
//!
//! A program goes there if all of its tables are Arrow files of this machine, which that process can open by itself. Its
//! answer comes back in batches. If the process refuses the program, or is gone before the first row was passed on, the program runs
//! here; why is in the report.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use datafusion::arrow::record_batch::RecordBatch;
use headrace_columns::ColumnError;
use headrace_flow::CancelToken;
use headrace_ir::Program;
use headrace_pipeline::{ExecError, WhyNot};
use headrace_runner::{
    ErrorClass, GpuService, Processor, Request, RunError, RunReport, Served, Settings, StreamTable,
};
use headrace_service::client::{self, Connection, Failure, HELLO_PATIENCE, RowSender};
use headrace_service::place::user_folder;
use headrace_service::protocol::{self, Files, Finished, TableCall};

/// With `auto`, a program that reads fewer bytes than this runs here: the cores are done before a few messages have gone to and fro.
const SERVED_BYTES_MIN: u64 = 16 << 20;

/// So many bytes of an answer are held back, in the first moments of a run.
const HELD_BYTES_MAX: usize = 4 << 20;
const HELD_FOR: Duration = Duration::from_millis(250);

/// How long a service may take to begin anew, and how often it is looked for.
const BEGIN_PATIENCE: Duration = Duration::from_secs(10);
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// A service that was found, and the tables that it is to open.
struct Found {
    connection: Connection,
    files: Vec<Files>,
}

/// The service of a program over tables; `None`: none is wanted.
///
/// # Errors
/// Why it is not asked, and whether it runs.
fn find(
    program: &Program,
    tables: &[Arc<StreamTable>],
    settings: &Settings,
    token: &CancelToken,
) -> Option<Result<Found, (WhyNot, bool)>> {
    let folder = folder(settings)?;
    let needs_gpu = needs_code(program);
    let is_small = || bytes(program, tables) < SERVED_BYTES_MIN;
    if settings.processor == Processor::Auto && !needs_gpu && is_small() {
        return None;
    }
    let connection = match Connection::open(&folder, HELLO_PATIENCE, token) {
        Ok(connection) => connection,
        // `auto` uses a service only if one runs; its absence is no news.
        Err(failure) if failure.is_absence && settings.gpu_service == GpuService::Auto => {
            return None;
        }
        Err(failure) => return Some(Err((WhyNot::new(failure.message), false))),
    };
    let files = |table: &Arc<StreamTable>| {
        let name = table.name().to_string();
        let description = table.source().description();
        let description =
            description.map_err(|why| (WhyNot::new(format!("{name}: {why}")), true))?;
        Ok(Files { name, description })
    };
    let files = tables.iter().map(files).collect::<Result<_, _>>();
    Some(files.map(|files| Found { connection, files }))
}

/// Whether a program calls a function that has no twin.
fn needs_code(program: &Program) -> bool {
    program.cuda_functions().any(|(_, has_twin)| !has_twin)
}

/// Bytes of the columns that a program reads.
fn bytes(program: &Program, tables: &[Arc<StreamTable>]) -> u64 {
    let of_source = |source: &headrace_ir::Source| {
        let table = source.input.table().and_then(|table| tables.get(table));
        table.map_or(0, |table| table.columns_bytes(&source.ordinals))
    };
    program.sources().map(of_source).sum()
}

/// Whether a GPU of the service would run a stage, or why not; `None`: no service would be asked.
pub fn place(
    program: &Program,
    stage: usize,
    tables: &[Arc<StreamTable>],
    settings: &Settings,
) -> Option<Result<(), WhyNot>> {
    let token = CancelToken::new();
    let Found { connection, files } = find(program, tables, settings, &token)?.ok()?;
    let (program, settings) = (program.clone(), settings.clone());
    let asked = protocol::Place { program, stage, tables: files, settings };
    let placed = connection.place(asked, &token).ok()?;
    Some(placed.map_err(WhyNot::new))
}

/// How a program ran, or where it is to run.
pub enum Outcome {
    /// The service ran it.
    Ran(Box<RunReport>),
    /// It is to be run here.
    Here,
    /// Likewise, for a reason. `gpus_are_taken`: the GPUs belong to a service that runs.
    NotThere { why: WhyNot, gpus_are_taken: bool },
}

/// Runs a program by the service, if there is one.
///
/// # Errors
/// What is wrong in the rows, or that the service went away after the first of them.
pub fn run(
    request: &Request<'_>,
    emit: &(dyn Fn(RecordBatch) -> bool + Send + Sync),
) -> Result<Outcome, RunError> {
    let Request { program, parameters, tables, settings, token, .. } = *request;
    let Found { connection, files } = match find(program, tables, settings, token) {
        None => return Ok(Outcome::Here),
        Some(Err((why, gpus_are_taken))) => return Ok(Outcome::NotThere { why, gpus_are_taken }),
        Some(Ok(found)) => found,
    };
    let pid = connection.pid;
    let run = protocol::Run {
        program: program.clone(),
        parameters: parameters.to_vec(),
        tables: protocol::Tables::Files(files),
        batches: Vec::new(),
        settings: settings.clone(),
        session: Some(std::process::id()),
    };
    let mut answer = Answer::new(emit);
    let ran = client::run_files(connection, run, &[], token, &mut |batch| answer.take(batch));
    if ran.is_ok() {
        answer.pass_on();
    }
    let Answer { has_emitted, is_wanted, .. } = answer;
    match ran {
        Ok(finished) => Ok(Outcome::Ran(Box::new(served(finished, pid)))),
        Err(_) if token.is_cancelled() || !is_wanted => Err(ExecError::Cancelled.into()),
        // No other place has what the code answers: the service's own word is the reason.
        Err(failure) if failure.class == Some(ErrorClass::Unsupported) && needs_code(program) => {
            Err(error(failure))
        }
        Err(failure) if failure.is_of_the_place() && !has_emitted => {
            let gpus_are_taken = failure.class.is_some();
            Ok(Outcome::NotThere { why: WhyNot::new(failure.message), gpus_are_taken })
        }
        Err(failure) => Err(failed(failure, settings, token)),
    }
}

/// How a function of a table ran.
pub enum Called {
    /// The service called it.
    Ran(Box<RunReport>),
    /// It does not, for a reason.
    NotThere(WhyNot),
}

/// The service that calls a function of a table, or why it cannot be asked; `None`: none is wanted, or none runs.
pub fn service(settings: &Settings, token: &CancelToken) -> Option<Result<Connection, WhyNot>> {
    match Connection::open(&folder(settings)?, HELLO_PATIENCE, token) {
        Ok(connection) => Some(Ok(connection)),
        Err(failure) if failure.is_absence && settings.gpu_service == GpuService::Auto => None,
        Err(failure) => Some(Err(WhyNot::new(failure.message))),
    }
}

/// Calls a function of a table by the service.
///
/// # Errors
/// What the function does wrong, or that the service went away after the first rows.
pub fn call(
    connection: Connection,
    asked: TableCall,
    rows: &RowSender,
    settings: &Settings,
    token: &CancelToken,
    emit: &(dyn Fn(RecordBatch) -> bool + Send + Sync),
) -> Result<Called, RunError> {
    let pid = connection.pid;
    let mut answer = Answer::new(emit);
    let ran = client::call(connection, asked, rows, token, &mut |batch| answer.take(batch));
    if ran.is_ok() {
        answer.pass_on();
    }
    match ran {
        Ok(finished) => Ok(Called::Ran(Box::new(served(finished, pid)))),
        Err(_) if token.is_cancelled() || !answer.is_wanted => Err(ExecError::Cancelled.into()),
        Err(failure) if failure.is_of_the_place() && !answer.has_emitted => {
            Ok(Called::NotThere(WhyNot::new(failure.message)))
        }
        Err(failure) => Err(failed(failure, settings, token)),
    }
}

/// The report of what the service did.
fn served(finished: Finished, pid: u32) -> RunReport {
    let Finished { report, device, queued_ms, .. } = finished;
    RunReport { served: Some(Served { pid, device, queued_ms }), ..report }
}

/// A failure that no other processor would mend.
fn failed(failure: Failure, settings: &Settings, token: &CancelToken) -> RunError {
    if failure.class == Some(ErrorClass::Function) {
        wait_for_the_next(settings, token);
    }
    error(failure)
}

/// The rows of an answer as they come. Those of a short run are held back until its end. Another session's function may end the
/// service meanwhile: then the program runs again, and no row was passed on twice.
struct Answer<'a> {
    emit: &'a (dyn Fn(RecordBatch) -> bool + Send + Sync),
    began: Instant,
    held: Vec<RecordBatch>,
    has_emitted: bool,
    is_wanted: bool,
}

impl<'a> Answer<'a> {
    fn new(emit: &'a (dyn Fn(RecordBatch) -> bool + Send + Sync)) -> Self {
        let (held, began) = (Vec::new(), Instant::now());
        Self { emit, began, held, has_emitted: false, is_wanted: true }
    }

    /// Takes a batch; whether more are wanted.
    fn take(&mut self, batch: RecordBatch) -> bool {
        self.held.push(batch);
        let bytes: usize = self.held.iter().map(RecordBatch::get_array_memory_size).sum();
        if bytes > HELD_BYTES_MAX || self.began.elapsed() > HELD_FOR {
            self.pass_on();
        }
        self.is_wanted
    }

    fn pass_on(&mut self) {
        for batch in std::mem::take(&mut self.held) {
            self.has_emitted = true;
            self.is_wanted = self.is_wanted && (self.emit)(batch);
        }
    }
}

/// Waits until a service that begins anew can be asked again, so that the next statement finds it; not for long.
fn wait_for_the_next(settings: &Settings, token: &CancelToken) {
    let Some(folder) = folder(settings) else { return };
    let began = Instant::now();
    while began.elapsed() < BEGIN_PATIENCE && !token.is_cancelled() {
        match Connection::open(&folder, HELLO_PATIENCE, token) {
            Ok(_) => return,
            Err(_) => std::thread::sleep(LOOK_INTERVAL),
        }
    }
}

/// The folder of the service that a session uses, if it uses one.
fn folder(settings: &Settings) -> Option<PathBuf> {
    match (&settings.gpu_service, settings.processor) {
        (GpuService::Off, _) | (_, Processor::Cpu | Processor::Off) => None,
        (GpuService::Auto, _) => Some(user_folder()),
        (GpuService::At(folder), _) => Some(folder.clone()),
    }
}

fn error(Failure { class, message, overflow, .. }: Failure) -> RunError {
    if let Some((type_name, place)) = overflow {
        return RunError::Exec(ColumnError::Overflow { type_name, place }.into());
    }
    match class {
        Some(class) => RunError::Elsewhere { class, message },
        None => RunError::Elsewhere {
            class: ErrorClass::Device,
            message: format!("{message}, after the first rows of an answer\nhint: run it again"),
        },
    }
}
