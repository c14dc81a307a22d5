//! Window functions over rows that come sorted: partition after partition, each in its order.
//!
//! ```text
//! sorted batches ─► where partitions and peers begin ─► rows that wait ─► calls ─► batches with their results
//! ```
//!
//! A row waits until all that its calls look at has come: nothing, its peers, or its partition
//! ([`headrace_ir::WindowFunction::looks_until`]). What rows of a partition that were put out have added up to is carried over
//! to those that come later, so that a partition of any size passes where no call looks beyond the row.
//!
//! Aggregates are those of groups: each row, group of peers or partition is a group of its own first, and groups of one
//! partition are then added up one after the other.
//!
//! | module | what it is |
//! |---|---|
//! | `first` | rows that cannot be among the first of their partition are dropped before they are sorted |
//! | `held` | rows that memory holds, sorted partition by partition |
//! | `words` | words that order as keys do |
//! | `columns` | columns of batches |
//! | `begins` | where partitions and peers begin |
//! | `running` | aggregates, and what is carried over |
//! | `results` | results by call and batch |
//! | `places` | numbers of rows, and columns of other rows |

mod begins;
mod columns;
mod first;
mod held;
mod places;
mod results;
mod running;
#[cfg(test)]
mod tests;
mod words;

use arrow_array::RecordBatch;
use headrace_columns::column::output_batch;
use headrace_ir::{Field, FrameEnd, NamedExpr, WindowFunction, Windows};
use headrace_spill::batch_bytes;

use crate::{ExecError, WhyNot};
use begins::{Begins, Boundaries};
use columns::column_of;
pub use first::FirstRows;
pub use held::{Guard, HeldRows, Portion};
use places::Places;
use results::Results;
use running::Running;

/// The calls of a stage over its sorted rows.
pub struct WindowScan {
    /// Of the rows.
    fields: Vec<Field>,
    output: Vec<Field>,
    functions: Vec<WindowFunction>,
    /// What has to be known of all that follows a row before it is put out.
    until: FrameEnd,
    boundaries: Boundaries,
    running: Vec<Running>,
    places: Places,
    waiting: Vec<Waiting>,
    /// What those take, and how many they are.
    waiting_bytes: u64,
    waiting_rows: u64,
    /// What a row takes beside its bytes while it gets its results.
    row_bytes: u64,
}

/// What rows take while they get their results, in multiples of their own bytes: they themselves, copies of keys and
/// arguments, texts that are kept and put out.
const OWN_SHARE: u64 = 4;

/// Rows that have not been put out, and where partitions and peers begin among them.
struct Waiting {
    batch: RecordBatch,
    begins: Vec<Begins>,
}

impl WindowScan {
    /// For the rows of a stage.
    ///
    /// # Errors
    /// Columns or calls that no processor takes.
    pub fn new(windows: &Windows) -> Result<Self, WhyNot> {
        let fields: Vec<Field> = windows.columns.iter().map(NamedExpr::field).collect();
        let functions: Vec<_> = windows.calls.iter().map(|call| call.function.clone()).collect();
        let frames = [FrameEnd::Row, FrameEnd::Peers, FrameEnd::Partition];
        let running = frames.into_iter().map(|until| Running::of(windows, &fields, until));
        Ok(Self {
            until: windows.looks_until(),
            boundaries: Boundaries::of(windows),
            running: running.collect::<Result<_, _>>()?,
            row_bytes: functions.iter().map(row_bytes_of).sum(),
            places: Places::of(&functions),
            output: windows.output(),
            waiting: Vec::new(),
            waiting_bytes: 0,
            waiting_rows: 0,
            fields,
            functions,
        })
    }

    /// The rows that wait.
    pub fn waiting_rows(&self) -> u64 {
        self.waiting_rows
    }

    /// What the rows that wait and those that come next take until all have their results.
    pub fn needs_bytes(&self, next: &RecordBatch) -> u64 {
        let rows = self.waiting_rows + next.num_rows() as u64;
        OWN_SHARE * (self.waiting_bytes + batch_bytes(next)) + self.row_bytes * rows
    }

    /// Takes the rows that come next. Returns those that are done.
    ///
    /// # Errors
    /// [`ExecError`] of the calls.
    pub fn push(&mut self, batch: RecordBatch) -> Result<Vec<RecordBatch>, ExecError> {
        let begins = self.boundaries.of_next(&batch, &self.fields)?;
        // All rows before it have what they wait for.
        let done = match self.until {
            FrameEnd::Row => Some(begins.len()),
            FrameEnd::Peers => begins.iter().rposition(|what| *what >= Begins::Peers),
            FrameEnd::Partition => begins.iter().rposition(|what| *what == Begins::Partition),
        };
        let Some(done) = done else {
            self.wait(Waiting { batch, begins });
            return Ok(Vec::new());
        };
        let rest = Waiting {
            batch: batch.slice(done, begins.len() - done),
            begins: begins[done..].to_vec(),
        };
        let begins = begins[..done].to_vec();
        self.waiting.push(Waiting { batch: batch.slice(0, done), begins });
        let ready = std::mem::take(&mut self.waiting);
        (self.waiting_bytes, self.waiting_rows) = (0, 0);
        self.wait(rest);
        self.evaluate(ready)
    }

    fn wait(&mut self, rows: Waiting) {
        if rows.batch.num_rows() > 0 {
            self.waiting_bytes += batch_bytes(&rows.batch);
            self.waiting_rows += rows.batch.num_rows() as u64;
            self.waiting.push(rows);
        }
    }

    /// After the last rows. Returns those that were left.
    ///
    /// # Errors
    /// As [`push`](Self::push)'s.
    pub fn finish(mut self) -> Result<Vec<RecordBatch>, ExecError> {
        let ready = std::mem::take(&mut self.waiting);
        self.evaluate(ready)
    }

    /// Rows with the results of all calls, batch by batch: one array of all of a partition's texts may be too large.
    fn evaluate(&mut self, mut ready: Vec<Waiting>) -> Result<Vec<RecordBatch>, ExecError> {
        ready.retain(|waiting| waiting.batch.num_rows() > 0);
        if ready.is_empty() {
            return Ok(Vec::new());
        }
        let begins: Vec<Begins> = ready.iter().flat_map(|it| it.begins.iter().copied()).collect();
        let mut ends = Vec::with_capacity(ready.len());
        for waiting in &ready {
            ends.push(ends.last().unwrap_or(&0) + waiting.batch.num_rows());
        }
        let mut results = Results::new(&ends, self.functions.len());
        let columns = |column: usize| {
            let batches = ready.iter().map(|waiting| &waiting.batch);
            column_of(batches, column, &self.fields[column])
        };
        for running in &mut self.running {
            running.evaluate(&begins, &columns, &mut results)?;
        }
        self.places.evaluate((&self.functions, &self.fields), &begins, &columns, &mut results)?;
        let of_calls = results.of_calls;
        let beside = ready.iter().enumerate().map(|(number, Waiting { batch, .. })| {
            let of_batch = of_calls.iter().map(|arrays| arrays.get(number).cloned());
            let all = batch.columns().iter().cloned().map(Some).chain(of_batch);
            let missing = || ExecError::Internal("a call without result".into());
            let columns = all.collect::<Option<Vec<_>>>().ok_or_else(missing)?;
            Ok(output_batch(self.output.iter(), columns, batch.num_rows())?)
        });
        beside.collect()
    }
}

/// What rows take that wait, all of them, until they have their results; 0 if none waits.
pub fn waiting_bytes(windows: &Windows, rows: u64, bytes: u64) -> u64 {
    let row_bytes: u64 = windows.calls.iter().map(|call| row_bytes_of(&call.function)).sum();
    match windows.looks_until() {
        FrameEnd::Row => 0,
        FrameEnd::Peers | FrameEnd::Partition => OWN_SHARE * bytes + row_bytes * rows,
    }
}

/// What a function takes for a row: where other rows are, running values, the result.
fn row_bytes_of(function: &WindowFunction) -> u64 {
    match function {
        WindowFunction::RowNumber | WindowFunction::Rank | WindowFunction::DenseRank => 32,
        WindowFunction::Value { .. } => 48,
        WindowFunction::Aggregate { .. } => 80,
    }
}
