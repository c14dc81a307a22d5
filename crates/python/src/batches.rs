//! Rows that are there, for any library that takes an Arrow stream.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions, StructArray};
use arrow_cast::cast;
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyList};
use pyo3_arrow::error::PyArrowResult;
use pyo3_arrow::ffi::{ArrayIterator, to_schema_pycapsule, to_stream_pycapsule};

use crate::{cells, failures};

/// Some rows. Each call of `__arrow_c_stream__` streams all of them, and copies none.
#[pyclass(module = "headrace._headrace", frozen)]
pub struct Batches {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
}

impl Batches {
    pub fn new(schema: SchemaRef, batches: Vec<RecordBatch>) -> Self {
        Self { schema, batches }
    }
}

#[pymethods]
impl Batches {
    fn __len__(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyArrowResult<Bound<'py, PyCapsule>> {
        to_schema_pycapsule(py, self.schema.as_ref())
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyArrowResult<Bound<'py, PyCapsule>> {
        let batches = self.batches.clone().into_iter().map(Ok);
        streamed(py, &self.schema, batches, requested_schema)
    }

    /// Some of the rows.
    fn slice(&self, offset: usize, count: usize) -> Self {
        let (mut skipped, mut left, mut batches) = (0, count, Vec::new());
        for batch in &self.batches {
            let begin = offset.saturating_sub(skipped).min(batch.num_rows());
            let rows = left.min(batch.num_rows() - begin);
            if rows > 0 {
                batches.push(batch.slice(begin, rows));
            }
            (skipped, left) = (skipped + batch.num_rows(), left - rows);
        }
        Self::new(Arc::clone(&self.schema), batches)
    }

    /// The same rows, texts without codes and each value in its place: as libraries of dataframes have them.
    fn decoded(&self, py: Python<'_>) -> PyResult<Self> {
        let decoded = py.detach(|| -> Result<Self, ArrowError> {
            let fields = self.schema.fields().iter().map(|field| {
                let plain = plain_type(field.data_type());
                Field::clone(field).with_data_type(plain)
            });
            let schema = Schema::new(fields.collect::<Vec<_>>());
            let schema = Arc::new(schema.with_metadata(self.schema.metadata().clone()));
            let batch = |batch: &RecordBatch| {
                let columns = batch.columns().iter().zip(schema.fields());
                let columns = columns.map(|(column, field)| cast(column, field.data_type()));
                let rows = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
                let columns = columns.collect::<Result<_, _>>()?;
                RecordBatch::try_new_with_options(Arc::clone(&schema), columns, &rows)
            };
            let batches = self.batches.iter().map(batch).collect::<Result<_, _>>()?;
            Ok(Self::new(Arc::clone(&schema), batches))
        });
        decoded.map_err(|error| failures::of(py, &error.into()))
    }

    /// The rows as tuples.
    fn rows<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let rows = PyList::empty(py);
        for batch in &self.batches {
            cells::append_rows(&rows, batch)?;
        }
        Ok(rows)
    }

    /// The columns as lists.
    fn columns<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let columns = PyList::empty(py);
        for nth in 0..self.schema.fields().len() {
            let values = PyList::empty(py);
            for batch in &self.batches {
                for value in cells::column(py, batch.column(nth))? {
                    values.append(value)?;
                }
            }
            columns.append(values)?;
        }
        Ok(columns)
    }

    /// The rows as the command line shows them in a terminal of so many columns.
    fn text(&self, py: Python<'_>, width: usize, rows_max: usize) -> PyResult<String> {
        let shown =
            py.detach(|| headrace_cli::table_text(&self.schema, &self.batches, width, rows_max));
        shown.map_err(|error| pyo3::exceptions::PyRuntimeError::new_err(error.to_string()))
    }
}

fn plain_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Dictionary(_, values) => plain_type(values),
        DataType::Utf8View => DataType::LargeUtf8,
        DataType::BinaryView => DataType::LargeBinary,
        // No library of dataframes has them.
        DataType::Interval(_) | DataType::Decimal256(..) => DataType::Utf8,
        plain => plain.clone(),
    }
}

/// Batches as a capsule of Arrow's C stream interface.
pub fn streamed<'py>(
    py: Python<'py>,
    schema: &SchemaRef,
    batches: impl Iterator<Item = Result<RecordBatch, ArrowError>> + Send + 'static,
    requested_schema: Option<Bound<'py, PyCapsule>>,
) -> PyArrowResult<Bound<'py, PyCapsule>> {
    let arrays = batches.map(|batch| Ok(Arc::new(StructArray::from(batch?)) as ArrayRef));
    let field = Field::new_struct("", schema.fields().clone(), false);
    let field = Arc::new(field.with_metadata(schema.metadata().clone()));
    to_stream_pycapsule(py, Box::new(ArrayIterator::new(arrays, field)), requested_schema)
}
