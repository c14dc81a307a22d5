//! Generates a table on many threads and writes its files in row order.
//!
//! ```text
//! workers: claim the next batch, generate it ──channel──► writer of the file: put in order, write
//!             ▲                                              │
//!             └────────── board: at most `window` ahead ◄────┘
//! ```
//!
//! Each file has one writer thread. A worker that is more than a window ahead of a file's writer
//! waits, which bounds the memory to `threads` + 1 batches a file or so. Whoever fails stops all.

use std::{
    collections::BTreeMap,
    ops::Range,
    path::PathBuf,
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread::{self, ScopedJoinHandle},
    time::Duration,
};

use arrow_array::RecordBatch;
use headrace_format::arrow::{ArrowWriter, WriterOptions, WriterSummary};
use parking_lot::{Condvar, Mutex};

use crate::{SsbError, tables::TableGenerator};

/// How soon a waiting worker notices that the caller has raised the cancel flag.
const CANCEL_POLL: Duration = Duration::from_millis(50);

/// A file and the rows of the table that go into it.
#[derive(Clone, Debug)]
pub(crate) struct FilePlan {
    pub(crate) path: PathBuf,
    pub(crate) rows: Range<u64>,
}

/// A table to be written.
pub(crate) struct Job<'a> {
    pub(crate) table: &'a dyn TableGenerator,
    pub(crate) files: &'a [FilePlan],
    pub(crate) rows_per_batch: u64,
    pub(crate) threads: usize,
    pub(crate) cancel: Option<&'a AtomicBool>,
}

/// Rows and bytes that a writer has just taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
}

/// A batch on its way to a writer, and its number within the file.
type Numbered = (u64, RecordBatch);

/// Writes all files of the job; calls `on_step` in the calling thread after every batch.
///
/// # Errors
/// The first failure; [`SsbError::Cancelled`] when the flag was raised. Files that were finished
/// before the failure stay, others leave nothing.
pub(crate) fn write_table(
    job: &Job<'_>,
    on_step: &mut dyn FnMut(Step),
) -> Result<Vec<WriterSummary>, SsbError> {
    let board = Board::new(job);
    thread::scope(|scope| {
        let (steps, step_queue) = mpsc::channel();
        let mut queues = Vec::new();
        let mut writers = Vec::new();
        for file in 0..job.files.len() {
            let (sender, queue) = mpsc::channel();
            queues.push(sender);
            let (board, steps) = (&board, steps.clone());
            writers
                .push(scope.spawn(move || board.guard(|| write_file(board, file, queue, steps))));
        }
        let workers: Vec<_> = (0..job.threads.max(1))
            .map(|_| {
                let (board, queues) = (&board, queues.clone());
                scope.spawn(move || board.guard(|| generate_batches(board, &queues)))
            })
            .collect();
        // The queues end when the last worker and the last writer are done.
        drop((queues, steps));
        step_queue.iter().for_each(on_step);
        let generated = join_all(workers);
        let written = join_all(writers);
        // A worker's failure looks like cancellation to the writers: the cause comes first.
        generated.and(written)
    })
}

/// The results of all threads, or the failure that is not a mere consequence of another's.
fn join_all<T>(
    threads: Vec<ScopedJoinHandle<'_, Result<T, SsbError>>>,
) -> Result<Vec<T>, SsbError> {
    let mut results = Vec::with_capacity(threads.len());
    let mut failure = None;
    for thread in threads {
        match thread.join() {
            Ok(Ok(result)) => results.push(result),
            Ok(Err(error)) => {
                if matches!(failure, None | Some(SsbError::Cancelled)) {
                    failure = Some(error);
                }
            }
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
    failure.map_or(Ok(results), Err)
}

/// Hands out batches and holds workers back.
struct Board<'a> {
    job: &'a Job<'a>,
    /// Record batches of each file.
    batches: Vec<u64>,
    /// Batches of a file that may be on their way at once.
    window: u64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Tickets go round the files: ticket t is batch t / files of file t % files.
    next_ticket: u64,
    /// Batches that each file's writer has taken.
    written: Vec<u64>,
    stopped: bool,
}

/// A batch to be generated.
#[derive(Clone, Copy, Debug)]
struct Claim {
    file: usize,
    batch: u64,
}

impl<'a> Board<'a> {
    fn new(job: &'a Job<'a>) -> Self {
        let batches = job
            .files
            .iter()
            .map(|file| (file.rows.end - file.rows.start).div_ceil(job.rows_per_batch))
            .collect();
        let written = vec![0; job.files.len()];
        Self {
            job,
            batches,
            window: job.threads.div_ceil(job.files.len().max(1)) as u64 + 1,
            state: Mutex::new(State { written, ..State::default() }),
            changed: Condvar::new(),
        }
    }

    /// Runs a thread's work; a failure or a panic in it stops all others.
    fn guard<T>(&self, work: impl FnOnce() -> Result<T, SsbError>) -> Result<T, SsbError> {
        struct StopUnlessDone<'b, 'a>(&'b Board<'a>, bool);
        impl Drop for StopUnlessDone<'_, '_> {
            fn drop(&mut self) {
                if !self.1 {
                    self.0.stop();
                }
            }
        }
        let mut guard = StopUnlessDone(self, false);
        let result = work();
        guard.1 = result.is_ok();
        result
    }

    fn stop(&self) {
        self.state.lock().stopped = true;
        self.changed.notify_all();
    }

    fn is_cancelled(&self) -> bool {
        self.job.cancel.is_some_and(|flag| flag.load(Ordering::Relaxed))
    }

    /// The next batch to generate, once its file's writer is near enough; `None` when there is
    /// none left or all is stopped.
    fn claim(&self) -> Option<Claim> {
        let files = self.batches.len() as u64;
        let tickets = self.batches.iter().max().copied().unwrap_or(0) * files;
        let mut state = self.state.lock();
        while state.next_ticket < tickets && !state.stopped && !self.is_cancelled() {
            let file = (state.next_ticket % files) as usize;
            let batch = state.next_ticket / files;
            if batch >= self.batches[file] {
                state.next_ticket += 1;
            } else if batch < state.written[file] + self.window {
                state.next_ticket += 1;
                return Some(Claim { file, batch });
            } else {
                self.changed.wait_for(&mut state, CANCEL_POLL);
            }
        }
        None
    }

    fn advance(&self, file: usize) {
        self.state.lock().written[file] += 1;
        self.changed.notify_all();
    }

    fn rows(&self, claim: Claim) -> Range<u64> {
        let Range { start, end } = self.job.files[claim.file].rows;
        let first = start + claim.batch * self.job.rows_per_batch;
        first..end.min(first + self.job.rows_per_batch)
    }
}

/// A worker: generates batches until none is left.
fn generate_batches(board: &Board<'_>, queues: &[mpsc::Sender<Numbered>]) -> Result<(), SsbError> {
    while let Some(claim) = board.claim() {
        let batch = board.job.table.batch(board.rows(claim))?;
        if queues[claim.file].send((claim.batch, batch)).is_err() {
            // The writer has failed; its error is the one to report.
            break;
        }
    }
    Ok(())
}

/// A writer: puts the batches of one file in order and writes them.
fn write_file(
    board: &Board<'_>,
    file: usize,
    queue: mpsc::Receiver<Numbered>,
    steps: mpsc::Sender<Step>,
) -> Result<WriterSummary, SsbError> {
    let path = &board.job.files[file].path;
    let failed = |source| SsbError::Write { path: path.clone(), source };
    let options =
        WriterOptions { rows_per_batch: board.job.rows_per_batch as usize, statistics: true };
    let schema = board.job.table.schema();
    let mut writer = ArrowWriter::create(path, &schema, options).map_err(failed)?;
    let mut early = BTreeMap::new();
    for number in 0..board.batches[file] {
        let batch = next_in_order(number, &mut early, &queue)?;
        if board.is_cancelled() {
            return Err(SsbError::Cancelled);
        }
        let bytes_before = writer.bytes();
        writer.write(&batch).map_err(failed)?;
        board.advance(file);
        let step = Step { rows: batch.num_rows() as u64, bytes: writer.bytes() - bytes_before };
        // Nobody listens any more only when the caller's thread panics.
        let _ = steps.send(step);
    }
    writer.finish().map_err(failed)
}

/// Batch `number`, from those that came too early or from the queue.
fn next_in_order(
    number: u64,
    early: &mut BTreeMap<u64, RecordBatch>,
    queue: &mpsc::Receiver<Numbered>,
) -> Result<RecordBatch, SsbError> {
    loop {
        if let Some(batch) = early.remove(&number) {
            return Ok(batch);
        }
        // The workers are gone: stopped, cancelled, or failed with an error of their own.
        let (arrived, batch) = queue.recv().map_err(|_| SsbError::Cancelled)?;
        early.insert(arrived, batch);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Int32Array};
    use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};

    use super::*;
    use crate::Table;

    /// Counts from 0; misbehaves when it comes to `trap`.
    struct Counter {
        trap: Option<u64>,
        panics: bool,
    }

    impl TableGenerator for Counter {
        fn table(&self) -> Table {
            Table::Date
        }

        fn schema(&self) -> SchemaRef {
            Arc::new(Schema::new(vec![Field::new("n", DataType::Int32, false)]))
        }

        fn rows(&self) -> u64 {
            1000
        }

        fn columns(&self, rows: Range<u64>) -> Result<Vec<ArrayRef>, ArrowError> {
            if self.trap.is_some_and(|trap| rows.contains(&trap)) {
                assert!(!self.panics, "trapped");
                return Err(ArrowError::ComputeError("trapped".into()));
            }
            Ok(vec![Arc::new(Int32Array::from_iter_values(rows.map(|row| row as i32)))])
        }
    }

    fn run(table: &Counter, dir: &std::path::Path) -> Result<Vec<WriterSummary>, SsbError> {
        let plan = |name: &str, rows| FilePlan { path: dir.join(name), rows };
        let files = [plan("a", 0..430), plan("b", 430..1000)];
        let job = Job { table, files: &files, rows_per_batch: 10, threads: 3, cancel: None };
        let mut rows = 0;
        let result = write_table(&job, &mut |step| rows += step.rows);
        assert_eq!(result.is_ok(), rows == 1000);
        result
    }

    fn names(dir: &std::path::Path) -> Vec<String> {
        let names = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
        names.map(|name| name.into_string().unwrap()).collect()
    }

    #[test]
    fn files_of_different_lengths_are_written_whole() {
        let dir = tempfile::tempdir().unwrap();
        let summaries = run(&Counter { trap: None, panics: false }, dir.path()).unwrap();
        let sizes: Vec<_> = summaries.iter().map(|file| (file.rows, file.batches)).collect();
        assert_eq!(sizes, [(430, 43), (570, 57)]);
    }

    #[test]
    fn a_failing_worker_stops_all_with_its_own_error() {
        for trap in [0, 425, 555, 999] {
            let dir = tempfile::tempdir().unwrap();
            let error = run(&Counter { trap: Some(trap), panics: false }, dir.path()).unwrap_err();
            assert!(matches!(error, SsbError::Batch { .. }), "{error}");
            // At most the file without the trap may have been finished.
            assert!(names(dir.path()).len() <= 1);
        }
    }

    #[test]
    fn a_panicking_worker_hangs_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let counter = Counter { trap: Some(777), panics: true };
        let result = std::panic::catch_unwind(|| run(&counter, dir.path()));
        assert!(result.is_err());
    }

    #[test]
    fn a_failing_writer_stops_all_with_its_own_error() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("b")).unwrap();
        let error = run_unchecked(dir.path()).unwrap_err();
        assert!(matches!(&error, SsbError::Write { path, .. } if path.ends_with("b")), "{error}");
    }

    /// As [`run`], without looking at the progress: a file may fail at its very end.
    fn run_unchecked(dir: &std::path::Path) -> Result<Vec<WriterSummary>, SsbError> {
        let table = Counter { trap: None, panics: false };
        let files = [FilePlan { path: dir.join("b"), rows: 0..1000 }];
        let job =
            Job { table: &table, files: &files, rows_per_batch: 10, threads: 2, cancel: None };
        write_table(&job, &mut |_| {})
    }
}
