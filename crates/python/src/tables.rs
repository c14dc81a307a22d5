//! Tables of Arrow streams.
//!
//! ```text
//! object ─ __arrow_c_stream__ ─► batches that are there ─► in pieces, dealt to partitions: read as often as one likes
//!                              ├► a reader of batches ───► read once, as it delivers
//!                              └► one that is asked anew ► a reader for each statement
//! ```

use std::fmt;
use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::SchemaRef;
use datafusion::catalog::streaming::StreamingTable;
use datafusion::catalog::{MemTable, TableProvider};
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchReceiverStreamBuilder;
use datafusion::physical_plan::streaming::PartitionStream;
use headrace_engine::failure::Class;
use parking_lot::Mutex;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3_arrow::input::AnyRecordBatch;

use crate::failures;

/// Rows of a piece: batches of other libraries may have all rows of a table.
const PIECE_ROWS: usize = 64 << 10;

/// Fewer rows are one partition: dealt to several, nothing would be gained, and a scan would lose their order.
const DEALT_ROWS_MIN: usize = 8 << 10;

/// Batches that a reader is ahead.
const AHEAD: usize = 2;

/// A table of an object, for any number of statements.
#[pyclass(module = "headrace._headrace", frozen)]
pub struct Table {
    pub provider: Arc<dyn TableProvider>,
    reads: Reads,
}

#[pymethods]
impl Table {
    /// Whether its rows can be read once only.
    #[getter]
    fn once(&self) -> bool {
        self.reads == Reads::Once
    }
}

/// How often an object can be read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Reads {
    /// Its rows are there.
    Held,
    /// Once.
    Once,
    /// As often as it is asked for a stream.
    Anew,
}

impl Table {
    /// The table of an object with Arrow's C interface, for so many partitions.
    ///
    /// # Errors
    /// An object without that interface; a schema that is none.
    pub fn of(object: &Bound<'_, PyAny>, partitions: usize, reads: Reads) -> PyResult<Self> {
        let py = object.py();
        let has = |name| object.hasattr(name);
        if !has(intern!(py, "__arrow_c_stream__"))? && !has(intern!(py, "__arrow_c_array__"))? {
            let name = object.get_type().fully_qualified_name()?;
            let cause = format!("an object of {name} is no table");
            return Err(failures::of_value(py, Class::Types, cause));
        }
        let opened = reader(object)?;
        let table: Result<Arc<dyn TableProvider>> = match reads {
            Reads::Held => py.detach(|| held(opened, partitions)),
            Reads::Once => streaming(opened.schema(), Source::Once(Mutex::new(Some(opened)))),
            Reads::Anew => streaming(opened.schema(), Source::Anew(object.clone().unbind())),
        };
        table.map(|provider| Self { provider, reads }).map_err(|error| failures::of(py, &error))
    }
}

fn reader(object: &Bound<'_, PyAny>) -> PyResult<Box<dyn RecordBatchReader + Send>> {
    object.extract::<AnyRecordBatch>()?.into_reader()
}

/// A table of all batches of a reader, each partition of which has the next share of the rows.
fn held(
    reader: Box<dyn RecordBatchReader + Send>,
    partitions: usize,
) -> Result<Arc<dyn TableProvider>> {
    let schema = reader.schema();
    let batches = reader.collect::<Result<Vec<_>, _>>()?;
    let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
    let partitions = if rows < DEALT_ROWS_MIN { 1 } else { partitions.max(1) };
    let share = rows.div_ceil(partitions).max(1);
    let mut dealt: Vec<Vec<RecordBatch>> = vec![Vec::new(); partitions];
    let mut at = 0;
    for batch in batches {
        let mut begin = 0;
        while begin < batch.num_rows() {
            // Up to the end of the batch, of the piece, or of the partition.
            let left = share - at % share;
            let count = left.min(PIECE_ROWS).min(batch.num_rows() - begin);
            dealt[at / share].push(batch.slice(begin, count));
            (begin, at) = (begin + count, at + count);
        }
    }
    Ok(Arc::new(MemTable::try_new(schema, dealt)?))
}

/// Where the rows of a stream come from.
enum Source {
    Once(Mutex<Option<Box<dyn RecordBatchReader + Send>>>),
    Anew(Py<PyAny>),
}

/// Rows that come while they are read.
struct Streamed {
    schema: SchemaRef,
    source: Source,
}

fn streaming(schema: SchemaRef, source: Source) -> Result<Arc<dyn TableProvider>> {
    let rows = Streamed { schema: Arc::clone(&schema), source };
    Ok(Arc::new(StreamingTable::try_new(schema, vec![Arc::new(rows)])?))
}

impl fmt::Debug for Streamed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a stream of Arrow batches")
    }
}

impl Streamed {
    fn open(&self) -> Result<Box<dyn RecordBatchReader + Send>> {
        match &self.source {
            Source::Once(reader) => reader.lock().take().ok_or_else(|| {
                DataFusionError::Execution(
                    "a stream is read once, and it was\nhint: read it into a table first: .read_all()"
                        .into(),
                )
            }),
            Source::Anew(object) => Python::attach(|py| reader(object.bind(py)))
                .map_err(|error| DataFusionError::External(Box::new(error))),
        }
    }
}

impl PartitionStream for Streamed {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let mut batches = RecordBatchReceiverStreamBuilder::new(Arc::clone(&self.schema), AHEAD);
        let (sender, opened) = (batches.tx(), self.open());
        batches.spawn_blocking(move || {
            for batch in opened? {
                // Nobody wants more.
                if sender.blocking_send(batch.map_err(DataFusionError::from)).is_err() {
                    break;
                }
            }
            Ok(())
        });
        batches.build()
    }
}
