//! Signals that ask a statement or the process to end.
//!
//! They are heard on a thread of their own: those of the runtime may all compute. Whoever works is asked first, and
//! has a moment to stop by itself; then the process ends whatever it does, and leaves nothing half-written behind.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;

use headrace_io::write::hidden;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;
use tokio::sync::Notify;

/// Those that end a process.
const ENDING: [i32; 4] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT];

/// A process that a signal has ended has this and the signal's number for exit code.
const CODE_BASE: i32 = 128;

/// What was asked for.
#[derive(Debug, Default)]
pub struct Asked {
    /// The exit code of the signal that ends the process.
    code: AtomicI32,
    /// Somebody types: an interrupt ends the statement that runs, if any.
    is_typed: AtomicBool,
    end: Notify,
    statement: Notify,
}

impl Asked {
    /// Waits until the process is to end.
    pub async fn to_end(&self) {
        self.end.notified().await;
    }

    /// Waits until the statement is to end, which Ctrl-C asks for.
    pub async fn to_end_statement(&self) {
        self.statement.notified().await;
    }

    /// From here on Ctrl-C ends a statement, not the process.
    pub fn keep_the_process(&self) {
        self.is_typed.store(true, Ordering::Relaxed);
    }

    /// The exit code, if a signal has asked the process to end.
    pub fn code(&self) -> Option<i32> {
        Some(self.code.load(Ordering::Relaxed)).filter(|&code| code != 0)
    }
}

/// Hears signals from now on. The first that ends the process sets `cancel`; after `patience`, or with the second, it
/// ends.
///
/// # Errors
/// Why they cannot be heard.
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

/// Ends the process once this time is over; at once, if nothing can wait for that.
fn leave_after(patience: Duration, code: i32) {
    let waiting = std::thread::Builder::new().name("patience".into()).spawn(move || {
        std::thread::sleep(patience);
        leave(code);
    });
    if waiting.is_err() {
        leave(code);
    }
}

/// Ends the process, which was interrupted: nothing half-written stays, and what is whole is named.
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

/// Whether whoever started this process wants a signal ignored.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
    mask >> (signal - 1) & 1 == 1
}
