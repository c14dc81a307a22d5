//! Generates a table on many threads and writes its files in row order.
//!
//! ```text
//! workers: claim the next piece, generate it ──channel──► writer of the file: put in order, write
//!             ▲                                              │
//!             └────────── board: at most `window` ahead ◄────┘
//! ```
//!
//! Each file has one writer thread. A worker that is more than a window ahead of a file's writer
//! waits, which bounds the memory to about `threads` + 1 pieces per file. A failure stops all.
//!
//! A piece is the best unit for a generator; the writer cuts record batches of its own size.

use std::{
    collections::BTreeMap,
    ops::{Range, RangeInclusive},
    path::PathBuf,
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread::{self, ScopedJoinHandle},
    time::Duration,
};

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{ArrowError, Field, SchemaRef};
use headrace_format::arrow::{ArrowWriter, WriterOptions, WriterSummary, narrow_schema};
use parking_lot::{Condvar, Mutex};

use crate::SuiteError;

/// How soon a waiting worker notices cancellation.
const CANCEL_POLL: Duration = Duration::from_millis(50);

/// A table in pieces that any thread can make, in any order, with the same result.
pub(crate) trait TableGenerator: Send + Sync {
    /// The table's name in SQL and of its file.
    fn name(&self) -> &'static str;
    fn schema(&self) -> SchemaRef;
    /// The maximum of a numeric column's values, for a narrow layout.
    fn bounds(&self, _column: &Field) -> Option<RangeInclusive<i128>> {
        None
    }
    /// Rows of all pieces; approximate if only generating them tells.
    fn rows(&self) -> u64;
    /// Number of pieces, for record batches of this many rows.
    fn pieces(&self, rows_per_batch: u64) -> u64;
    /// Piece `number` of them, counted from 0.
    fn piece(&self, number: u64, rows_per_batch: u64) -> Result<RecordBatch, SuiteError>;
}

/// Piece `number` of a table whose pieces are of as many rows, but for the last.
pub(crate) fn piece_of(
    table: &dyn TableGenerator,
    (number, rows_per_piece): (u64, u64),
    columns: impl FnOnce(Range<u64>) -> Result<Vec<ArrayRef>, ArrowError>,
) -> Result<RecordBatch, SuiteError> {
    let first = number * rows_per_piece;
    columns(first..table.rows().min(first + rows_per_piece))
        .and_then(|columns| RecordBatch::try_new(table.schema(), columns))
        .map_err(|source| SuiteError::Batch { table: table.name(), source })
}

/// A file and its pieces of the table.
#[derive(Clone, Debug)]
pub(crate) struct FilePlan {
    pub(crate) path: PathBuf,
    pub(crate) pieces: Range<u64>,
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

/// A piece on its way to a writer, and its number within the table.
type Numbered = (u64, RecordBatch);

/// Writes all files of the job; calls `on_step` in the calling thread after every piece.
///
/// # Errors
/// The first failure; [`SuiteError::Cancelled`] when the flag was raised. Files that were finished
/// before the failure stay; others leave nothing.
pub(crate) fn write_table(
    job: &Job<'_>,
    on_step: &mut dyn FnMut(Step),
) -> Result<Vec<WriterSummary>, SuiteError> {
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
                scope.spawn(move || board.guard(|| generate_pieces(board, &queues)))
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
    threads: Vec<ScopedJoinHandle<'_, Result<T, SuiteError>>>,
) -> Result<Vec<T>, SuiteError> {
    let mut results = Vec::with_capacity(threads.len());
    let mut failure = None;
    for thread in threads {
        match thread.join() {
            Ok(Ok(result)) => results.push(result),
            Ok(Err(error)) => {
                if matches!(failure, None | Some(SuiteError::Cancelled)) {
                    failure = Some(error);
                }
            }
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
    failure.map_or(Ok(results), Err)
}

/// Hands out pieces and holds workers back.
struct Board<'a> {
    job: &'a Job<'a>,
    /// Pieces of a file that may be in flight.
    window: u64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Tickets go round the files: ticket t is piece t / files of file t % files.
    next_ticket: u64,
    /// Pieces that each file's writer has taken.
    written: Vec<u64>,
    stopped: bool,
}

/// A piece to be generated, by its number within the table.
#[derive(Clone, Copy, Debug)]
struct Claim {
    file: usize,
    piece: u64,
}

impl<'a> Board<'a> {
    fn new(job: &'a Job<'a>) -> Self {
        let written = vec![0; job.files.len()];
        Self {
            job,
            window: job.threads.div_ceil(job.files.len().max(1)) as u64 + 1,
            state: Mutex::new(State { written, ..State::default() }),
            changed: Condvar::new(),
        }
    }

    /// Runs a thread's work; a failure or a panic in it stops all others.
    fn guard<T>(&self, work: impl FnOnce() -> Result<T, SuiteError>) -> Result<T, SuiteError> {
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

    /// The next piece to generate, once its file's writer is near enough; `None` when there is none
    /// left or everything is stopped.
    fn claim(&self) -> Option<Claim> {
        let plans = self.job.files;
        let count = |plan: &FilePlan| plan.pieces.end - plan.pieces.start;
        let files = plans.len() as u64;
        let tickets = plans.iter().map(count).max().unwrap_or(0) * files;
        let mut state = self.state.lock();
        while state.next_ticket < tickets && !state.stopped && !self.is_cancelled() {
            let file = (state.next_ticket % files) as usize;
            let piece = state.next_ticket / files;
            if piece >= count(&plans[file]) {
                state.next_ticket += 1;
            } else if piece < state.written[file] + self.window {
                state.next_ticket += 1;
                return Some(Claim { file, piece: plans[file].pieces.start + piece });
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
}

/// A worker: generates pieces until none is left.
fn generate_pieces(board: &Board<'_>, queues: &[mpsc::Sender<Numbered>]) -> Result<(), SuiteError> {
    while let Some(Claim { file, piece }) = board.claim() {
        let rows = board.job.table.piece(piece, board.job.rows_per_batch)?;
        if queues[file].send((piece, rows)).is_err() {
            // The writer has failed; its error is the one to report.
            break;
        }
    }
    Ok(())
}

/// A writer: puts the pieces of one file in order and writes them.
fn write_file(
    board: &Board<'_>,
    file: usize,
    queue: mpsc::Receiver<Numbered>,
    steps: mpsc::Sender<Step>,
) -> Result<WriterSummary, SuiteError> {
    let FilePlan { path, pieces } = &board.job.files[file];
    let failed = |source| SuiteError::Write { path: path.clone(), source };
    let (table, rows_per_batch) = (board.job.table, board.job.rows_per_batch as usize);
    let options = WriterOptions { rows_per_batch, ..WriterOptions::default() };
    let schema = narrow_schema(&table.schema(), |column| table.bounds(column));
    let mut writer = ArrowWriter::create(path, &schema, options).map_err(failed)?;
    let mut early = BTreeMap::new();
    for number in pieces.clone() {
        let batch = next_in_order(number, &mut early, &queue)?;
        if board.is_cancelled() {
            return Err(SuiteError::Cancelled);
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

/// Piece `number`, from the early ones or from the queue.
fn next_in_order(
    number: u64,
    early: &mut BTreeMap<u64, RecordBatch>,
    queue: &mpsc::Receiver<Numbered>,
) -> Result<RecordBatch, SuiteError> {
    loop {
        if let Some(batch) = early.remove(&number) {
            return Ok(batch);
        }
        // The workers are gone: stopped, cancelled, or failed with an error of their own.
        let (arrived, batch) = queue.recv().map_err(|_| SuiteError::Cancelled)?;
        early.insert(arrived, batch);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use arrow_array::Int32Array;
    use arrow_schema::{DataType, Schema};

    use super::*;

    /// Counts from 0, ten rows a piece; misbehaves when it comes to `trap`.
    struct Counter {
        trap: Option<u64>,
        panics: bool,
    }

    impl TableGenerator for Counter {
        fn name(&self) -> &'static str {
            "counter"
        }

        fn schema(&self) -> SchemaRef {
            Arc::new(Schema::new(vec![Field::new("n", DataType::Int32, false)]))
        }

        fn rows(&self) -> u64 {
            1000
        }

        fn pieces(&self, _: u64) -> u64 {
            100
        }

        fn piece(&self, number: u64, _: u64) -> Result<RecordBatch, SuiteError> {
            let rows = number * 10..number * 10 + 10;
            if self.trap.is_some_and(|trap| rows.contains(&trap)) {
                assert!(!self.panics, "trapped");
                let source = ArrowError::ComputeError("trapped".into());
                return Err(SuiteError::Batch { table: "counter", source });
            }
            let column: ArrayRef =
                Arc::new(Int32Array::from_iter_values(rows.map(|row| row as i32)));
            Ok(RecordBatch::try_new(self.schema(), vec![column]).unwrap())
        }
    }

    fn run(table: &Counter, dir: &std::path::Path) -> Result<Vec<WriterSummary>, SuiteError> {
        let plan = |name: &str, pieces| FilePlan { path: dir.join(name), pieces };
        let files = [plan("a", 0..43), plan("b", 43..100)];
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
            assert!(matches!(error, SuiteError::Batch { .. }), "{error}");
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
        assert!(matches!(&error, SuiteError::Write { path, .. } if path.ends_with("b")), "{error}");
    }

    /// As [`run`], without looking at the progress: a file may fail at its very end.
    fn run_unchecked(dir: &std::path::Path) -> Result<Vec<WriterSummary>, SuiteError> {
        let table = Counter { trap: None, panics: false };
        let files = [FilePlan { path: dir.join("b"), pieces: 0..100 }];
        let job =
            Job { table: &table, files: &files, rows_per_batch: 10, threads: 2, cancel: None };
        write_table(&job, &mut |_| {})
    }
}
