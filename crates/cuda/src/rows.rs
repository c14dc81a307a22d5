//! Output rows: where a launch writes them, and their way to whoever takes them.
//!
//! How many rows a launch yields is known when it is done. They come back in portions of bounded
//! size through pinned memory, each of which is handed on before the next is copied: nothing
//! gathers on the host, and whoever takes rows slowly slows the device down.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use arrow_array::RecordBatch;
use headrace_columns::ColumnError;
use headrace_columns::column::{arrow_field, vector_array};
use headrace_columns::convert::null_bytes;
use headrace_columns::memory::{Hold, reserve};
use headrace_columns::repr::Repr;
use headrace_columns::vector::{Data, Vector};
use headrace_gpu::{DeviceBuffer, Stream};
use headrace_io::Reservation;
use headrace_ir::Field;
use headrace_pipeline::ExecError;
use headrace_pipeline::bound::{Bound, BoundExpr, BoundSink, Grouping};
use headrace_pipeline::cpu::{SortedRows, WorkerOptions};
use headrace_pipeline::group_states::GroupStates;
use parking_lot::Mutex;

use crate::decode::data_of;
use crate::device::CudaDevice;
use crate::error::CudaError;
use crate::gather::Gathering;
use crate::groups::DeviceGroups;
use crate::pinned::PinnedLease;
use crate::program::OutputColumn;
use crate::room::RowRoom;
use crate::text_values::{TEXT_VALUE_BYTES, cut, rows_together, text_lengths};

/// Pinned memory through which the rows of one slot go.
const PORTION_BYTES: usize = 4 << 20;

/// Takes output rows; `false`: nobody wants more.
pub type EmitRows<'a> = &'a (dyn Fn(RecordBatch) -> bool + Send + Sync);

/// Takes the rows of one execution, on however many devices, up to the sink's limit. Hashed groups
/// wait in it as partial states until they are rows, and rows in an order until all have come: the
/// devices find them, the host keeps the first.
pub struct RowOutput<'a> {
    bound: Arc<Bound>,
    limit: Option<u64>,
    emit: EmitRows<'a>,
    groups: Option<GroupStates>,
    sorted: Option<Mutex<Sorting>>,
    emitted_rows: AtomicU64,
    /// See [`Param::LastWanted`](crate::fields::Param::LastWanted).
    last_wanted: AtomicI64,
    refused: AtomicBool,
}

/// The first rows of an order so far, and the memory that they take.
struct Sorting {
    rows: SortedRows,
    memory: Reservation,
}

impl std::fmt::Debug for RowOutput<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RowOutput")
            .field("limit", &self.limit)
            .field("emitted_rows", &self.emitted_rows)
            .finish_non_exhaustive()
    }
}

impl<'a> RowOutput<'a> {
    /// Rows of the sink of `bound` go to `emit`. Groups are held, spilled and merged as `options`
    /// say, whose report counts them.
    ///
    /// # Errors
    /// [`ExecError::Internal`] for a pipeline that is not bound as it should be.
    pub fn new(
        bound: &Arc<Bound>,
        options: &WorkerOptions,
        emit: EmitRows<'a>,
    ) -> Result<Self, ExecError> {
        let (mut limit, mut groups, mut sorted) = (None, None, None);
        match &bound.sink {
            BoundSink::Rows { limit: most, .. } => limit = *most,
            BoundSink::Aggregate { grouping: Grouping::Hash, .. } => {
                groups = Some(GroupStates::new(bound, options)?);
            }
            BoundSink::Sorted { columns, .. } => {
                let rows = SortedRows::new(columns, bound, options)?;
                sorted = Some(Mutex::new(Sorting { rows, memory: reserve(&options.memory) }));
            }
            _ => {}
        }
        let descending = match &bound.sink {
            BoundSink::Sorted { order, .. } => order.first().is_some_and(|key| key.descending),
            _ => false,
        };
        Ok(Self {
            bound: Arc::clone(bound),
            limit,
            emit,
            groups,
            sorted,
            emitted_rows: AtomicU64::new(0),
            last_wanted: AtomicI64::new(if descending { i64::MIN } else { i64::MAX }),
            refused: AtomicBool::new(false),
        })
    }

    /// Hashed groups that wait; `None` for another sink.
    pub(crate) fn groups(&self) -> Option<&GroupStates> {
        self.groups.as_ref()
    }

    /// Takes hashed groups. `is_last`: none of them will come again, so that they are finished at
    /// once if none came so far.
    ///
    /// # Errors
    /// Totals that overflow, memory, a temporary file.
    pub fn take_groups(&self, groups: &DeviceGroups<'_>, is_last: bool) -> Result<(), ExecError> {
        match &self.groups {
            Some(states) if is_last && states.is_empty() => {
                self.put(states.finished(groups)?);
                Ok(())
            }
            Some(states) => states.push(groups),
            None => Err(ExecError::Internal("groups of another sink".into())),
        }
    }

    /// Takes rows as the devices leave them.
    ///
    /// # Errors
    /// A code that lies outside its dictionary, a text that is none, memory.
    pub fn take_rows(&self, downloaded: Vec<Downloaded<'_>>, rows: usize) -> Result<(), ExecError> {
        match (&self.sorted, &self.bound.sink) {
            (Some(sorting), BoundSink::Sorted { columns, order, limit }) => {
                let rows = row_vectors(columns, downloaded, rows)?;
                let mut sorting = sorting.lock();
                sorting.rows.take_in(&rows, order, *limit)?;
                if let Some(word) = sorting.rows.last_word() {
                    self.last_wanted.store(word, Ordering::Relaxed);
                }
                let bytes = sorting.rows.bytes();
                Ok(sorting.memory.hold(bytes, "rows that are sorted")?)
            }
            (_, BoundSink::Rows { columns, .. }) => {
                self.put(rows_batch(columns, downloaded, rows)?);
                Ok(())
            }
            _ => Err(ExecError::Internal("rows of a sink that has none".into())),
        }
    }

    /// Everything has come: the groups that wait are merged and become rows, those of an order are put out.
    ///
    /// # Errors
    /// Totals that overflow, memory, a temporary file, [`ExecError::Cancelled`].
    pub fn finish(mut self) -> Result<(), ExecError> {
        if let (Some(sorting), BoundSink::Sorted { columns, order, limit }) =
            (self.sorted.take(), &self.bound.sink)
        {
            let Sorting { rows, memory: _held } = sorting.into_inner();
            rows.finish(columns, order, *limit)?.into_iter().for_each(|batch| self.put(batch));
            return Ok(());
        }
        let Some(groups) = self.groups.take() else { return Ok(()) };
        groups.finish(&|batch| {
            self.put(batch);
            !self.is_enough()
        })
    }

    /// The first key of the last wanted row, as a word; devices drop rows that come after it: see
    /// [`Param::LastWanted`](crate::fields::Param::LastWanted).
    pub fn last_wanted(&self) -> i64 {
        self.last_wanted.load(Ordering::Relaxed)
    }

    /// Whether nobody wants more.
    pub fn is_enough(&self) -> bool {
        self.refused.load(Ordering::Relaxed)
            || self.limit.is_some_and(|limit| self.emitted_rows.load(Ordering::Relaxed) >= limit)
    }

    /// Hands rows on, as many as the limit leaves; may wait for whoever takes them.
    fn put(&self, batch: RecordBatch) {
        let rows = batch.num_rows() as u64;
        let before = self.emitted_rows.fetch_add(rows, Ordering::Relaxed);
        let left = self.limit.map_or(rows, |limit| limit.saturating_sub(before).min(rows));
        if left > 0 && !(self.emit)(batch.slice(0, left as usize)) {
            self.refused.store(true, Ordering::Relaxed);
        }
    }
}

/// Where a launch writes rows.
#[derive(Debug)]
pub struct RowBuffers {
    pub(crate) values: Vec<DeviceBuffer>,
    pub(crate) validity: Vec<Option<DeviceBuffer>>,
    columns: Vec<OutputColumn>,
    pub(crate) room: RowRoom,
}

impl RowBuffers {
    pub(crate) fn new(
        device: &CudaDevice,
        outputs: &[OutputColumn],
        room: RowRoom,
    ) -> Result<Self, CudaError> {
        let rows = room.capacity;
        let mut buffers = Self {
            values: Vec::with_capacity(outputs.len()),
            validity: Vec::with_capacity(outputs.len()),
            columns: outputs.to_vec(),
            room,
        };
        for output in outputs {
            let bytes = rows.saturating_mul(u64::from(output.value_bytes));
            buffers.values.push(device.alloc(bytes as usize)?);
            let validity = if output.nullable { Some(device.alloc(rows as usize)?) } else { None };
            buffers.validity.push(validity);
        }
        Ok(buffers)
    }

    /// Bytes of a row on its way to the host.
    fn row_bytes(&self) -> usize {
        let validity = self.validity.iter().flatten().count();
        self.columns.iter().map(|column| column.value_bytes as usize).sum::<usize>() + validity
    }

    /// Values and validity bytes of `rows` rows that were copied, column by column.
    fn arrived<'a>(&self, staging: &'a [u8], rows: usize) -> Vec<(&'a [u8], Option<&'a [u8]>)> {
        let mut rest = staging;
        let mut take = |bytes: usize| {
            let (part, left) = rest.split_at(rows * bytes);
            rest = left;
            part
        };
        let columns = self.columns.iter().zip(&self.validity);
        columns
            .map(|(column, validity)| {
                (take(column.value_bytes as usize), validity.as_ref().map(|_| take(1)))
            })
            .collect()
    }
}

/// The rows of one launch at a time, and their way back.
pub(crate) struct RowTransfer {
    pub(crate) buffers: RowBuffers,
    staging: PinnedLease,
    /// Those of columns of texts.
    texts: Option<Gathering>,
    portion_rows: u64,
    /// Rows of the launch that is done.
    used_rows: u64,
    /// Rows that were handed on.
    done_rows: u64,
    coming: Coming,
}

/// Rows on their way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Coming {
    Nothing,
    /// The values of so many.
    Values(usize),
    /// The texts of the first `rows` of those `staged` whose values came.
    Texts {
        rows: usize,
        staged: usize,
    },
}

impl RowTransfer {
    /// For launches with such room.
    pub(crate) fn new(
        device: &Arc<CudaDevice>,
        outputs: &[OutputColumn],
        room: RowRoom,
    ) -> Result<Self, CudaError> {
        let buffers = RowBuffers::new(device, outputs, room)?;
        let row_bytes = buffers.row_bytes().max(1);
        let portion_rows = (PORTION_BYTES / row_bytes).max(1).min(room.capacity.max(1) as usize);
        let has_texts = outputs.iter().any(|output| output.is_text);
        Ok(Self {
            staging: PinnedLease::take(device, portion_rows * row_bytes)?,
            texts: if has_texts { Some(Gathering::new(device)?) } else { None },
            buffers,
            portion_rows: portion_rows as u64,
            used_rows: 0,
            done_rows: 0,
            coming: Coming::Nothing,
        })
    }

    /// A launch is done, and yielded so many rows.
    pub(crate) fn begin(&mut self, used_rows: u64) -> Result<(), CudaError> {
        let capacity = self.buffers.room.capacity;
        if used_rows > capacity {
            let what = format!("{used_rows} output rows where {capacity} fit");
            return Err(ExecError::Internal(what).into());
        }
        (self.used_rows, self.done_rows, self.coming) = (used_rows, 0, Coming::Nothing);
        Ok(())
    }

    /// Hands on the rows that have arrived, if any, and has the next ones copied; whether there
    /// were any. They have arrived when the stream has done what it holds then, unless their texts are
    /// still to come.
    pub(crate) fn advance(
        &mut self,
        stream: &Stream,
        output: &RowOutput<'_>,
    ) -> Result<bool, CudaError> {
        match self.coming {
            Coming::Nothing => {}
            Coming::Values(staged) if self.texts.is_some() => {
                let rows = self.gather(stream, staged)?;
                self.coming = Coming::Texts { rows, staged };
                return Ok(true);
            }
            Coming::Values(rows) => self.hand_on(output, (rows, rows))?,
            Coming::Texts { rows, staged } => self.hand_on(output, (rows, staged))?,
        }
        let rows = (self.used_rows - self.done_rows).min(self.portion_rows) as usize;
        if rows == 0 || output.is_enough() {
            self.coming = Coming::Nothing;
            return Ok(false);
        }
        self.enqueue(stream, rows)?;
        self.coming = Coming::Values(rows);
        Ok(true)
    }

    fn hand_on(
        &mut self,
        output: &RowOutput<'_>,
        (rows, staged): (usize, usize),
    ) -> Result<(), CudaError> {
        output.take_rows(self.arrived(staged), rows)?;
        self.done_rows += rows as u64;
        Ok(())
    }

    /// Has `rows` rows copied, column by column: values, then validity bytes.
    fn enqueue(&mut self, stream: &Stream, rows: usize) -> Result<(), CudaError> {
        let first = self.done_rows as usize;
        let mut rest = self.staging.as_mut_slice();
        let columns = self.buffers.values.iter().zip(&self.buffers.validity);
        for ((values, validity), column) in columns.zip(&self.buffers.columns) {
            let parts = [(Some(values), column.value_bytes as usize), (validity.as_ref(), 1)];
            for (buffer, bytes) in parts {
                let Some(buffer) = buffer else { continue };
                let (to, left) = rest.split_at_mut(rows * bytes);
                // SAFETY: the pinned memory is this transfer's and is touched again when the copy
                // is done; nobody writes to the rows of a launch that is done.
                unsafe { stream.copy_d2h_async(buffer, first * bytes, to) }?;
                rest = left;
            }
        }
        Ok(())
    }

    /// Has the texts brought of rows whose values have arrived; of how many.
    fn gather(&mut self, stream: &Stream, staged: usize) -> Result<usize, CudaError> {
        let Some(gathering) = &mut self.texts else { return Ok(staged) };
        let arrived = self.buffers.arrived(self.staging.as_slice(), staged);
        let columns = self.buffers.columns.iter().zip(&self.buffers.values).zip(&arrived);
        let first_at = self.done_rows * TEXT_VALUE_BYTES as u64;
        let texts: Vec<(Option<u64>, &[u8])> = columns
            .filter(|((column, _), _)| column.is_text)
            .map(|((_, buffer), (values, _))| (Some(buffer.ptr() + first_at), *values))
            .collect();
        let values: Vec<&[u8]> = texts.iter().map(|(_, values)| *values).collect();
        let rows = rows_together(&values, staged);
        // SAFETY: the launch is done; its chunk, resident columns and constants stay until the rows were
        // handed on: a slot is retired after that, and a run holds what it was launched over.
        unsafe { gathering.queue(stream, rows, &texts) }?;
        Ok(rows)
    }

    /// What has arrived, column by column.
    fn arrived(&self, staged: usize) -> Vec<Downloaded<'_>> {
        let mut texts = 0;
        let arrived = self.buffers.arrived(self.staging.as_slice(), staged).into_iter();
        let downloaded = arrived.zip(&self.buffers.columns).map(|((values, validity), column)| {
            let is_text = column.is_text;
            let of_column = self.texts.as_ref().filter(|_| is_text).map(|all| all.arrived(texts));
            texts += usize::from(is_text);
            Downloaded { values, texts: of_column.unwrap_or_default(), validity }
        });
        downloaded.collect()
    }
}

/// A column of output rows as the device leaves it.
#[derive(Clone, Copy, Debug)]
pub struct Downloaded<'a> {
    /// Values; of texts addresses and lengths.
    pub values: &'a [u8],
    /// The bytes of texts, one behind the other.
    pub texts: &'a [u8],
    /// Validity bytes, if any row may be NULL.
    pub validity: Option<&'a [u8]>,
}

impl<'a> Downloaded<'a> {
    fn data(&self, field: &Field, expr: &BoundExpr, rows: usize) -> Result<Data<'a>, ExecError> {
        if !matches!(expr.repr, Repr::Str | Repr::Bytes(_)) {
            return data_of(&expr.repr, self.values, rows);
        }
        let corrupt = |cause: &str| ColumnError::Corrupt {
            column: field.name.clone(),
            cause: cause.to_string(),
        };
        let texts = cut(self.texts, text_lengths(self.values).take(rows));
        let texts = texts.map(|text| text.ok_or_else(|| corrupt("texts that break off")));
        if let Repr::Bytes(width) = expr.repr {
            // A NULL may come without.
            let null = null_bytes(width)?;
            let bytes = texts.enumerate().map(|(row, bytes)| match (bytes?, self.validity) {
                (bytes, _) if bytes.len() == width => Ok(bytes),
                (_, Some(valid)) if valid[row] == 0 => Ok(null),
                _ => Err(corrupt("bytes of another length")),
            });
            return Ok(Data::Bytes(bytes.collect::<Result<_, ColumnError>>()?));
        }
        let text = |text: Result<&'a [u8], ColumnError>| {
            std::str::from_utf8(text?).map_err(|_| corrupt("a text is not UTF-8"))
        };
        Ok(Data::Str(texts.map(text).collect::<Result<_, ColumnError>>()?))
    }
}

/// Output rows as the device leaves them, as vectors.
fn row_vectors<'a>(
    columns: &[(Field, BoundExpr)],
    downloaded: Vec<Downloaded<'a>>,
    rows: usize,
) -> Result<Vec<Vector<'a>>, ExecError> {
    let vector = |((field, expr), column): (&(Field, BoundExpr), Downloaded<'a>)| {
        let data = column.data(field, expr, rows)?;
        let validity = column.validity.map(|valid| Cow::Borrowed(&valid[..rows]));
        Ok(Vector { data, validity, constant: false })
    };
    columns.iter().zip(downloaded).map(vector).collect()
}

/// Output rows as the device leaves them as a batch.
fn rows_batch(
    columns: &[(Field, BoundExpr)],
    downloaded: Vec<Downloaded<'_>>,
    rows: usize,
) -> Result<RecordBatch, ExecError> {
    let vectors = row_vectors(columns, downloaded, rows)?;
    let array = |((field, expr), vector): (&(Field, BoundExpr), &Vector<'_>)| {
        vector_array(vector, &expr.repr, &field.data_type, rows)
    };
    let arrays = columns.iter().zip(&vectors).map(array).collect::<Result<_, _>>()?;
    let fields: Vec<_> = columns.iter().map(|(field, _)| arrow_field(field)).collect();
    let schema = Arc::new(arrow_schema::Schema::new(fields));
    let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(schema, arrays, &options)
        .map_err(|e| ExecError::Internal(e.to_string()))
}
