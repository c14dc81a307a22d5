//! The progress line of a run, on a terminal only.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use headrace_bench::transfer::Progress;
use indicatif::{ProgressBar, ProgressStyle};

/// The line, until it is dropped.
pub struct Line {
    bar: ProgressBar,
    done: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Line {
    /// Shows the line if standard error is a terminal and `--quiet` is not set.
    pub fn show(progress: Arc<Progress>, quiet: bool) -> Line {
        let done = Arc::new(AtomicBool::new(false));
        if quiet || !std::io::stderr().is_terminal() {
            return Line { bar: ProgressBar::hidden(), done, thread: None };
        }
        let bar = ProgressBar::new(0).with_style(style());
        let thread = std::thread::Builder::new().name("progress".into()).spawn({
            let (bar, done) = (bar.clone(), done.clone());
            move || follow(&bar, &progress, &done)
        });
        // Without the thread there is no line; the run goes on.
        Line { bar, done, thread: thread.ok() }
    }

    /// Prints something without the line in the way.
    pub fn suspend<T>(&self, print: impl FnOnce() -> T) -> T {
        self.bar.suspend(print)
    }
}

fn follow(bar: &ProgressBar, progress: &Progress, done: &AtomicBool) {
    let mut phase = String::new();
    while !done.load(Ordering::Acquire) {
        if progress.phase() != phase {
            phase = progress.phase();
            // Speeds are those of the phase.
            bar.reset();
            bar.set_message(phase.clone());
        }
        bar.set_length(progress.total_bytes());
        bar.set_position(progress.done_bytes());
        std::thread::sleep(Duration::from_millis(100));
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // It panics in no known way; if it did, there is nothing to tidy up.
            let _ = thread.join();
        }
        self.bar.finish_and_clear();
    }
}

fn style() -> ProgressStyle {
    ProgressStyle::with_template(
        "{msg} {bar:30} {decimal_bytes} of {decimal_total_bytes}, {decimal_bytes_per_sec}, {eta} left",
    )
    .unwrap_or_else(|_| ProgressStyle::default_bar())
}
