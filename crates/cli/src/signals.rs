//! Signals that end a statement or the process.
//!
//! A separate thread receives them, because all threads of the runtime may be computing. Running work is asked
//! first and has a moment to stop by itself; then the process ends in any case and leaves nothing half-written.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;

use headrace_io::write::hidden;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;
use tokio::sync::Notify;

/// Signals that end a process.
const ENDING: [i32; 4] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT];

/// The exit code of a process that a signal has ended is this plus the signal's number.
const CODE_BASE: i32 = 128;

/// The request.
#[derive(Debug, Default)]
pub struct Asked {
    /// The exit code for the signal that ends the process.
    code: AtomicI32,
    /// Interactive mode: an interrupt ends the running statement, if any.
    is_typed: AtomicBool,
    end: Notify,
    statement: Notify,
}

impl Asked {
    /// Waits until the process must end.
    pub async fn to_end(&self) {
        self.end.notified().await;
    }

    /// Waits until the statement must end, by Ctrl-C.
    pub async fn to_end_statement(&self) {
        self.statement.notified().await;
    }

    /// From now on Ctrl-C ends a statement, not the process.
    pub fn keep_the_process(&self) {
        self.is_typed.store(true, Ordering::Relaxed);
    }

    /// The exit code, if a signal has requested the end of the process.
    pub fn code(&self) -> Option<i32> {
        Some(self.code.load(Ordering::Relaxed)).filter(|&code| code != 0)
    }
}

/// Starts receiving signals. The first one that ends the process sets `cancel`; after `patience`, or with the second,
/// it ends.
///
/// # Errors
/// Why signals cannot be received.
pub fn listen(cancel: Arc<AtomicBool>, patience: Duration) -> io::Result<Arc<Asked>> {
    // What nohup has started lives on.
    let wanted = ENDING.into_iter().filter(|&signal| signal != SIGHUP || !is_ignored(signal));
    let mut signals = Signals::new(wanted)?;
    let asked = Arc::new(Asked::default());
    let told = Arc::clone(&asked);
    let listener = std::thread::Builder::new().name("signals".into());
    listener.spawn(move || {
        for signal in signals.forever() {
            if told.code().is_some() {
                leave(CODE_BASE + signal);
            } else if signal == SIGINT && told.is_typed.load(Ordering::Relaxed) {
                told.statement.notify_waiters();
            } else {
                told.code.store(CODE_BASE + signal, Ordering::Relaxed);
                cancel.store(true, Ordering::Relaxed);
                told.end.notify_one();
                leave_after(patience, CODE_BASE + signal);
            }
        }
    })?;
    Ok(asked)
}

/// Ends the process after this time; at once, if nothing can wait.
fn leave_after(patience: Duration, code: i32) {
    let waiting = std::thread::Builder::new().name("patience".into()).spawn(move || {
        std::thread::sleep(patience);
        leave(code);
    });
    if waiting.is_err() {
        leave(code);
    }
}

/// Ends the interrupted process: nothing half-written stays, and complete files are reported.
pub fn leave(code: i32) -> ! {
    let _none_can_be_made = hidden::remove_all();
    let _ = crossterm::terminal::is_raw_mode_enabled()
        .and_then(|is_raw| if is_raw { crossterm::terminal::disable_raw_mode() } else { Ok(()) });
    // What was whole may be part of something that is not.
    let whole = hidden::take_whole().into_iter().filter(|path| path.exists());
    let whole: Vec<String> = whole.map(|path: PathBuf| path.display().to_string()).collect();
    match whole.as_slice() {
        [] => say!("interrupted"),
        whole => say!("interrupted; whole before that: {}", whole.join(", ")),
    }
    std::process::exit(code)
}

/// Whether the parent process wants a signal ignored.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
    mask >> (signal - 1) & 1 == 1
}
