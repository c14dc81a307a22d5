//! Progress of a slow statement on a terminal.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use headrace_engine::Query;

/// Short statements show no progress.
const FIRST: Duration = Duration::from_millis(500);
const NEXT: Duration = Duration::from_millis(200);

/// A line on standard error that is rewritten.
pub struct Progress {
    started: Instant,
    is_shown: bool,
    next: Option<tokio::time::Instant>,
}

impl Progress {
    /// Appears on a terminal, if enabled.
    pub fn new(wanted: bool) -> Self {
        let shown = wanted && io::stderr().is_terminal();
        let next = shown.then(|| tokio::time::Instant::now() + FIRST);
        Self { started: Instant::now(), is_shown: false, next }
    }

    /// Waits until it is time to draw.
    pub async fn tick(&self) {
        match self.next {
            Some(next) => tokio::time::sleep_until(next).await,
            None => std::future::pending().await,
        }
    }

    /// Redraws the line.
    pub fn draw(&mut self, query: &Query, rows: u64) {
        self.next = Some(tokio::time::Instant::now() + NEXT);
        self.is_shown = true;
        let seconds = self.started.elapsed().as_secs_f64();
        let mut text = format!("{seconds:.1} s");
        let done = query.progress();
        if done.bytes > 0 {
            let gb = done.bytes as f64 / 1e9;
            text += &format!(", {gb:.2} GB, {:.2} GB/s", gb / seconds);
        }
        if done.rows > 0 && done.rows_total > 0 {
            let share = done.rows as f64 / done.rows_total as f64;
            text += &format!(", {:.0}% of {} rows", (share * 100.0).min(100.0), done.rows_total);
        }
        if rows > 0 {
            text += &format!(", {rows} rows out");
        }
        let _ = write!(io::stderr(), "\r{text}\x1b[K");
    }

    /// Removes the line.
    pub fn clear(&mut self) {
        if std::mem::replace(&mut self.is_shown, false) {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}
