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
//! | `places` | numbers of rows, and columns of other rows |

mod begins;
mod columns;
mod first;
mod held;
mod places;
mod running;
#[cfg(test)]
mod tests;
mod words;

use arrow_array::{ArrayRef, RecordBatch};
use headrace_columns::column::output_batch;
use headrace_ir::{Field, FrameEnd, NamedExpr, WindowFunction, Windows};

use crate::{ExecError, WhyNot};
use begins::{Begins, Boundaries};
use columns::column_of;
pub use first::FirstRows;
pub use held::{HeldRows, Portion};
use places::Places;
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
}

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
            places: Places::default(),
            output: windows.output(),
            waiting: Vec::new(),
            fields,
            functions,
        })
    }

    /// The rows that wait.
    pub fn waiting(&self) -> impl Iterator<Item = &RecordBatch> {
        self.waiting.iter().map(|waiting| &waiting.batch)
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
            self.waiting.push(Waiting { batch, begins });
            return Ok(Vec::new());
        };
        let rest = Waiting {
            batch: batch.slice(done, begins.len() - done),
            begins: begins[done..].to_vec(),
        };
        let begins = begins[..done].to_vec();
        self.waiting.push(Waiting { batch: batch.slice(0, done), begins });
        let ready = std::mem::replace(&mut self.waiting, vec![rest]);
        self.evaluate(ready)
    }

    /// After the last rows. Returns those that were left.
    ///
    /// # Errors
    /// As [`push`](Self::push)'s.
    pub fn finish(mut self) -> Result<Vec<RecordBatch>, ExecError> {
        let ready = std::mem::take(&mut self.waiting);
        self.evaluate(ready)
    }

    /// Rows with the results of all calls.
    fn evaluate(&mut self, mut ready: Vec<Waiting>) -> Result<Vec<RecordBatch>, ExecError> {
        ready.retain(|waiting| waiting.batch.num_rows() > 0);
        if ready.is_empty() {
            return Ok(Vec::new());
        }
        let begins: Vec<Begins> = ready.iter().flat_map(|it| it.begins.iter().copied()).collect();
        let mut results: Vec<Option<ArrayRef>> = vec![None; self.functions.len()];
        let columns = |column: usize| {
            let batches = ready.iter().map(|waiting| &waiting.batch);
            column_of(batches, column, &self.fields[column])
        };
        for running in &mut self.running {
            running.evaluate(&begins, &columns, &mut results)?;
        }
        self.places.evaluate((&self.functions, &self.fields), &begins, &columns, &mut results)?;
        let results = results.into_iter().collect::<Option<Vec<_>>>();
        let results = results.ok_or_else(|| ExecError::Internal("a call without result".into()))?;
        let mut first = 0;
        let beside = ready.into_iter().map(|Waiting { batch, .. }| {
            let rows = batch.num_rows();
            let of_batch = results.iter().map(|result| result.slice(first, rows));
            let columns = batch.columns().iter().cloned().chain(of_batch).collect();
            first += rows;
            Ok(output_batch(self.output.iter(), columns, rows)?)
        });
        beside.collect()
    }
}
