//! Runs in the process that owns the GPUs, and why others are not.

use std::ffi::{CStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use arrow_array::RecordBatch;
use headrace_flow::CancelToken;
use headrace_service::client::{self, Connection, Failed, Start};
use headrace_service::protocol::Files;
use headrace_service::{devices, protocol};
use pgrx::pg_sys::{self, Relation};

use super::job::{Answered, Failure, Gathered};
use crate::settings::{self, Processor};

/// The data directory: a server's processes work there.
pub const DATA: &str = ".";

/// The program beside the library.
const PROGRAM: &str = "headrace-gpu-service";

/// How long a service that failed may take to say who it is: it may be stopped.
const QUICK: Duration = Duration::from_millis(100);

/// So many threads of the CPU decode blocks as fast as a GPU is fed with them: 35 GB/s beside 3.5 a thread
/// (`bench/runs/2026-11-22-h200-postgres`). What a GPU has kept it is fed with no more.
const FAST_THREADS: usize = 10;

/// What the service's GPUs keep of tables at most, as it said last; 0: it said nothing yet.
static DEVICE_CACHE_BYTES: AtomicU64 = AtomicU64::new(0);

/// A start that failed. A backend has one run at a time; it is the run's thread that starts.
static FAILED: Mutex<Failed> = Mutex::new(Failed::NONE);

/// What the service says of a run besides its report.
#[derive(Clone, Debug)]
pub struct Served {
    /// The GPU, if one ran it.
    pub device: Option<String>,
    /// How long it waited for its turn.
    pub queued_ms: f64,
}

/// Bytes of heaps.
pub(super) unsafe fn bytes_of(relations: &[Relation]) -> u64 {
    let fork = pg_sys::ForkNumber::MAIN_FORKNUM;
    let blocks = |of: &Relation| pg_sys::RelationGetNumberOfBlocksInFork(*of, fork);
    relations.iter().map(|of| u64::from(blocks(of)) * u64::from(pg_sys::BLCKSZ)).sum()
}

/// Why the service does not get a run, before it is asked; `None`: it gets it. What a GPU keeps is run there whatever its bytes.
pub(super) fn why_not(is_on_gpu: bool, bytes: impl FnOnce() -> u64) -> Option<String> {
    match settings::PROCESSOR.get() {
        Processor::cuda => None,
        Processor::cpu => Some("headrace.processor is cpu".into()),
        Processor::auto if is_on_gpu => devices::why_none(),
        Processor::auto => devices::why_none().or_else(|| why_rather_here(bytes())),
    }
}

/// Why this session is done with so many bytes before a GPU is, if it is.
fn why_rather_here(bytes: u64) -> Option<String> {
    let min_blocks = u64::try_from(settings::MIN_GPU_TABLE_BLOCKS.get()).unwrap_or(0);
    if bytes < min_blocks * u64::from(pg_sys::BLCKSZ) {
        return Some("the table is smaller than headrace.min_gpu_table_size".into());
    }
    let kept_max = DEVICE_CACHE_BYTES.load(Ordering::Relaxed);
    let is_kept = kept_max == 0 || bytes <= kept_max;
    let threads = settings::threads();
    (threads >= FAST_THREADS && !is_kept).then(|| {
        format!("the GPUs cannot keep the table, and {threads} threads of the CPU are faster")
    })
}

/// How the service is started, by the settings of now.
pub fn start() -> Start {
    let mut arguments: Vec<OsString> = Vec::new();
    // SAFETY: set when the postmaster started this process, and never again.
    let postmaster = unsafe { pg_sys::PostmasterPid };
    if postmaster > 0 {
        arguments.extend(["--postmaster".into(), postmaster.to_string().into()]);
    }
    let limit_kib = settings::DEVICE_MEMORY_LIMIT_KIB.get();
    if limit_kib > 0 {
        let bytes = i64::from(limit_kib) * 1024;
        arguments.extend(["--device-memory-limit".into(), bytes.to_string().into()]);
    }
    Start { program: program(), arguments }
}

fn program() -> PathBuf {
    match settings::SERVICE_COMMAND.get() {
        Some(given) if !given.is_empty() => OsString::from_vec(given.into_bytes()).into(),
        _ => library().with_file_name(PROGRAM),
    }
}

/// The file of this library.
fn library() -> PathBuf {
    let own: fn() -> PathBuf = library;
    let mut found = libc::Dl_info {
        dli_fname: std::ptr::null(),
        dli_fbase: std::ptr::null_mut(),
        dli_sname: std::ptr::null(),
        dli_saddr: std::ptr::null_mut(),
    };
    // SAFETY: an address of this library, and a struct to be filled; the name lasts as long as the library.
    let name = unsafe {
        match libc::dladdr(own as *const libc::c_void, &mut found) {
            0 => c"",
            _ if found.dli_fname.is_null() => c"",
            _ => CStr::from_ptr(found.dli_fname),
        }
    };
    OsString::from_vec(name.to_bytes().to_vec()).into()
}

/// Connects to the service, which is started if it does not run. On a thread of a run's.
pub fn connect(start: &Start, token: &CancelToken) -> Result<Connection, client::Failure> {
    let data = Path::new(DATA);
    let mut failed = FAILED.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(before) = failed.recent().cloned() else {
        let opened = Connection::open_or_start(data, start, token);
        if let Err(failure) = &opened
            && !token.is_cancelled()
        {
            failed.note(failure.clone());
        }
        return opened;
    };
    // Somebody else may have started it.
    Connection::open(data, QUICK, token).map_err(|_| before)
}

/// Who runs it, and whether that may be otherwise in another place.
fn of_the_place(failure: client::Failure) -> Failure {
    Failure { is_of_the_place: failure.is_of_the_place(), reason: failure.message }
}

/// Has a table's columns kept in the memory of a GPU, if they are not yet.
pub(super) fn keep(start: &Start, files: Files, token: &CancelToken) -> Result<(), Failure> {
    let name = files.name.clone();
    let kept = connect(start, token).map_err(of_the_place)?.keep(files, token);
    let not_here = |failure: client::Failure| Failure {
        is_of_the_place: true,
        reason: format!("{name} cannot be kept on a GPU: {}", failure.message),
    };
    kept.map(drop).map_err(not_here)
}

/// A run by the service, over files or heaps; `talk` sends it, and passes the answer's batches on.
pub(super) fn run(
    start: &Start,
    token: &CancelToken,
    mut answer: Gathered,
    talk: impl FnOnce(
        Connection,
        &mut dyn FnMut(RecordBatch) -> bool,
    ) -> Result<protocol::Finished, client::Failure>,
) -> Result<Answered, Failure> {
    let connection = connect(start, token).map_err(of_the_place)?;
    let finished = talk(connection, &mut |batch| answer.push(batch));
    // An answer that is too large was broken off.
    let batches = answer.finish()?;
    let protocol::Finished { report, device, queued_ms, device_cache_bytes } =
        finished.map_err(of_the_place)?;
    DEVICE_CACHE_BYTES.store(device_cache_bytes, Ordering::Relaxed);
    Ok(Answered { report, batches, served: Some(Served { device, queued_ms }) })
}
