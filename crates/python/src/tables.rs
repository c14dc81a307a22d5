//! Tables of Arrow streams.
//!
//! ```text
//! object ─ __arrow_c_stream__ ─► batches that are there ─► in pieces, dealt to partitions: read as often as one likes
//!                              └► a reader of batches ───► read once, as it delivers
//! ```

use std::fmt;
use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::SchemaRef;
use datafusion::catalog::streaming::StreamingTable;
use datafusion::catalog::{MemTable, TableProvider};
use datafusion::common::{DataFusionError, Result, exec_datafusion_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchReceiverStreamBuilder;
use datafusion::physical_plan::streaming::PartitionStream;
use parking_lot::Mutex;
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3_arrow::input::AnyRecordBatch;

use crate::failures;

/// Rows of a piece: batches of other libraries may have all rows of a table.
const PIECE_ROWS: usize = 64 << 10;

/// Batches that a reader is ahead.
const AHEAD: usize = 2;

/// The table of an object with Arrow's C interface, for so many partitions. `once` says that it can be read once, and is
/// not to be read before that.
///
/// # Errors
/// An object without that interface; a schema that is none.
pub fn of(
    object: &Bound<'_, PyAny>,
    partitions: usize,
    once: bool,
) -> PyResult<Arc<dyn TableProvider>> {
    let py = object.py();
    let has = |name| object.hasattr(name);
    if !has(intern!(py, "__arrow_c_stream__"))? && !has(intern!(py, "__arrow_c_array__"))? {
        let name = object.get_type().fully_qualified_name()?;
        return Err(PyTypeError::new_err(format!("an object of {name} is no table")));
    }
    let reader = object.extract::<AnyRecordBatch>()?.into_reader()?;
    let table: Result<Arc<dyn TableProvider>> = match once {
        true => Once::table(reader),
        false => py.detach(|| held(reader, partitions)),
    };
    table.map_err(|error| failures::of(py, &error))
}

/// A table of all batches of a reader, each partition of which has the next share of the rows.
fn held(
    reader: Box<dyn RecordBatchReader + Send>,
    partitions: usize,
) -> Result<Arc<dyn TableProvider>> {
    let schema = reader.schema();
    let mut pieces = Vec::new();
    for batch in reader {
        let batch = batch?;
        for start in (0..batch.num_rows()).step_by(PIECE_ROWS) {
            pieces.push(batch.slice(start, PIECE_ROWS.min(batch.num_rows() - start)));
        }
    }
    let each = pieces.len().div_ceil(partitions.max(1)).max(1);
    let mut dealt: Vec<Vec<RecordBatch>> = pieces.chunks(each).map(<[_]>::to_vec).collect();
    if dealt.is_empty() {
        dealt.push(Vec::new());
    }
    Ok(Arc::new(MemTable::try_new(schema, dealt)?))
}

/// Rows that come once.
struct Once {
    schema: SchemaRef,
    reader: Mutex<Option<Box<dyn RecordBatchReader + Send>>>,
}

impl fmt::Debug for Once {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a stream of Arrow batches")
    }
}

impl Once {
    fn table(reader: Box<dyn RecordBatchReader + Send>) -> Result<Arc<dyn TableProvider>> {
        let schema = reader.schema();
        let once = Self { schema: Arc::clone(&schema), reader: Mutex::new(Some(reader)) };
        Ok(Arc::new(StreamingTable::try_new(schema, vec![Arc::new(once)])?))
    }
}

impl PartitionStream for Once {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let mut batches = RecordBatchReceiverStreamBuilder::new(Arc::clone(&self.schema), AHEAD);
        let (sender, reader) = (batches.tx(), self.reader.lock().take());
        batches.spawn_blocking(move || {
            let Some(reader) = reader else {
                return Err(exec_datafusion_err!(
                    "a stream is read once, and it was\nhint: read it into a table first: .read_all()"
                ));
            };
            for batch in reader {
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
