//! A running statement.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use arrow_array::RecordBatch;
use arrow_schema::{ArrowError, SchemaRef};
use datafusion::common::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use futures::StreamExt;
use headrace_engine::sql::type_name;
use headrace_engine::{Query, QueryProgress, QueryReport, Session as Engine};
use parking_lot::Mutex;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyList};
use pyo3_arrow::error::PyArrowResult;
use pyo3_arrow::ffi::to_schema_pycapsule;

use crate::batches::{Batches, streamed};
use crate::wait::{runtime, wait};
use crate::{cells, failures};

/// Rows of a statement as they come. They come once, whichever method asks for them; what was not asked for when the value
/// goes is not computed.
#[pyclass(module = "headrace._headrace", frozen)]
pub struct Rows {
    asked: Arc<Asked>,
    schema: SchemaRef,
    /// `None` while somebody reads.
    reading: Arc<Mutex<Option<Reading>>>,
    /// Is called now and then while rows are waited for.
    on_progress: Option<Py<PyAny>>,
}

/// What was asked for.
struct Asked {
    session: Engine,
    sql: String,
    running: Mutex<Running>,
    started: Instant,
}

/// A statement, until it has failed or been closed: it then gives back what it holds, such as files that it was writing.
enum Running {
    Query(Box<Query>),
    Done { progress: QueryProgress, report: Box<QueryReport> },
}

impl Asked {
    /// Lets the statement go.
    fn end(&self, rows: u64) {
        let mut running = self.running.lock();
        if let Running::Query(query) = &*running {
            let (progress, report) = (query.progress(), Box::new(query.report(rows)));
            *running = Running::Done { progress, report };
        }
    }

    fn progress(&self) -> QueryProgress {
        match &*self.running.lock() {
            Running::Query(query) => query.progress(),
            Running::Done { progress, .. } => *progress,
        }
    }

    fn report(&self, rows: u64) -> serde_json::Result<String> {
        match &*self.running.lock() {
            Running::Query(query) => serde_json::to_string(&query.report(rows)),
            Running::Done { report, .. } => serde_json::to_string(report),
        }
    }
}

struct Reading {
    /// `None` at its end.
    stream: Option<SendableRecordBatchStream>,
    /// What has ended it before its end.
    failed: Option<PyErr>,
    /// Rows that came and were not asked for.
    rest: VecDeque<RecordBatch>,
    /// Rows that came.
    rows: u64,
}

/// Somebody reads, and gives back what it reads from.
struct Held<'a> {
    place: &'a Mutex<Option<Reading>>,
    reading: Option<Reading>,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        *self.place.lock() = self.reading.take();
    }
}

fn hold(place: &Mutex<Option<Reading>>) -> PyResult<Held<'_>> {
    // Waiting for the other one here would keep the interpreter from it.
    let in_use = || PyRuntimeError::new_err("another thread reads these rows; give each a cursor");
    let reading = place.lock().take().ok_or_else(in_use)?;
    Ok(Held { place, reading: Some(reading) })
}

impl Asked {
    fn failed(&self, py: Python<'_>, error: &DataFusionError) -> PyErr {
        failures::of_statement(py, &self.session, &self.sql, error)
    }
}

impl Reading {
    async fn next(&mut self) -> Option<Result<RecordBatch, DataFusionError>> {
        if let Some(rest) = self.rest.pop_front() {
            return Some(Ok(rest));
        }
        loop {
            let next = self.stream.as_mut()?.next().await;
            match &next {
                Some(Ok(batch)) if batch.num_rows() == 0 => continue,
                Some(Ok(batch)) => self.rows += batch.num_rows() as u64,
                Some(Err(_)) | None => self.stream = None,
            }
            return next;
        }
    }
}

/// The next rows of what is read there. A signal, and what `tick` raises, end it.
fn next_of(
    py: Python<'_>,
    (asked, place): (&Asked, &Mutex<Option<Reading>>),
    tick: impl FnMut() -> PyResult<()>,
) -> PyResult<Option<RecordBatch>> {
    let mut held = hold(place)?;
    let Some(mut reading) = held.reading.take() else { return Ok(None) };
    // What has failed has no end that could be taken for one.
    if let Some(error) = &reading.failed {
        let error = error.clone_ref(py);
        held.reading = Some(reading);
        return Err(error);
    }
    let (rows, work) = (reading.rows, async move {
        let next = reading.next().await;
        (reading, next)
    });
    match wait(py, work, tick) {
        Ok((mut reading, next)) => {
            let next = next.transpose().map_err(|error| asked.failed(py, &error));
            reading.failed = next.as_ref().err().map(|error| error.clone_ref(py));
            if reading.failed.is_some() {
                py.detach(|| asked.end(reading.rows));
            }
            held.reading = Some(reading);
            next
        }
        Err(error) => {
            let failed = Some(error.clone_ref(py));
            py.detach(|| asked.end(rows));
            held.reading = Some(Reading { stream: None, failed, rest: VecDeque::new(), rows });
            Err(error)
        }
    }
}

impl Rows {
    pub fn new(
        py: Python<'_>,
        session: Engine,
        sql: String,
        query: Query,
        on_progress: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let schema = query.schema();
        let stream = {
            let _in_runtime = runtime()?.enter();
            query.stream_as_they_lie()
        };
        let running = Mutex::new(Running::Query(Box::new(query)));
        let asked = Arc::new(Asked { session, sql, running, started: Instant::now() });
        let stream = stream.map_err(|error| asked.failed(py, &error))?;
        let reading =
            Reading { stream: Some(stream), failed: None, rest: VecDeque::new(), rows: 0 };
        Ok(Self { asked, schema, reading: Arc::new(Mutex::new(Some(reading))), on_progress })
    }

    /// The next rows, at most so many.
    fn next(&self, py: Python<'_>, rows_max: usize) -> PyResult<Option<RecordBatch>> {
        let next = next_of(py, (&self.asked, &self.reading), || self.tick(py))?;
        let Some(batch) = next else { return Ok(None) };
        if batch.num_rows() <= rows_max {
            return Ok(Some(batch));
        }
        let mut held = hold(&self.reading)?;
        if let Some(reading) = &mut held.reading {
            reading.rest.push_front(batch.slice(rows_max, batch.num_rows() - rows_max));
        }
        Ok(Some(batch.slice(0, rows_max)))
    }

    fn tick(&self, py: Python<'_>) -> PyResult<()> {
        let Some(told) = &self.on_progress else { return Ok(()) };
        told.call1(py, (self.progress(py)?,)).map(drop)
    }
}

#[pymethods]
impl Rows {
    /// The names of the columns; two may have one.
    #[getter]
    fn names(&self) -> Vec<String> {
        self.schema.fields().iter().map(|field| field.name().clone()).collect()
    }

    /// The SQL types of the columns.
    #[getter]
    fn types(&self) -> Vec<String> {
        self.schema.fields().iter().map(|field| type_name(field.data_type())).collect()
    }

    /// Rows as tuples: so many, or all that are left.
    #[pyo3(signature = (count=None))]
    fn fetch<'py>(&self, py: Python<'py>, count: Option<usize>) -> PyResult<Bound<'py, PyList>> {
        let rows = PyList::empty(py);
        let wanted = count.unwrap_or(usize::MAX);
        while rows.len() < wanted
            && let Some(batch) = self.next(py, wanted - rows.len())?
        {
            cells::append_rows(&rows, &batch)?;
        }
        Ok(rows)
    }

    /// The next rows as they come, at most so many; None at the end.
    #[pyo3(signature = (rows_max=None))]
    fn next_batch(&self, py: Python<'_>, rows_max: Option<usize>) -> PyResult<Option<Batches>> {
        let batch = self.next(py, rows_max.unwrap_or(usize::MAX).max(1))?;
        Ok(batch.map(|batch| Batches::new(Arc::clone(&self.schema), vec![batch])))
    }

    /// The next rows: so many, if there are as many.
    fn take(&self, py: Python<'_>, count: usize) -> PyResult<Batches> {
        let (mut batches, mut left) = (Vec::new(), count);
        while left > 0
            && let Some(batch) = self.next(py, left)?
        {
            left -= batch.num_rows();
            batches.push(batch);
        }
        Ok(Batches::new(Arc::clone(&self.schema), batches))
    }

    /// All rows that are left.
    fn collect(&self, py: Python<'_>) -> PyResult<Batches> {
        let mut batches = Vec::new();
        while let Some(batch) = self.next(py, usize::MAX)? {
            batches.push(batch);
        }
        Ok(Batches::new(Arc::clone(&self.schema), batches))
    }

    /// Runs the statement to its end; its rows stay to be asked for.
    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        let mut batches = VecDeque::new();
        while let Some(batch) = self.next(py, usize::MAX)? {
            batches.push_back(batch);
        }
        let mut held = hold(&self.reading)?;
        if let Some(reading) = &mut held.reading {
            reading.rest = batches;
        }
        Ok(())
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyArrowResult<Bound<'py, PyCapsule>> {
        to_schema_pycapsule(py, self.schema.as_ref())
    }

    /// The rows that are left, computed as they are asked for.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyArrowResult<Bound<'py, PyCapsule>> {
        let (asked, place) = (Arc::clone(&self.asked), Arc::clone(&self.reading));
        let next = move || -> Option<Result<RecordBatch, ArrowError>> {
            // Whoever asks may have the interpreter's lock, or not.
            Python::attach(|py| {
                let next = next_of(py, (&asked, &place), || Ok(()));
                next.map_err(|error| ArrowError::ExternalError(Box::new(error))).transpose()
            })
        };
        streamed(py, &self.schema, std::iter::from_fn(next), requested_schema)
    }

    /// How far it has come: seconds, bytes and rows that pipelines were given, rows of all their tables.
    fn progress<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let done = self.asked.progress();
        let progress = PyDict::new(py);
        progress.set_item("seconds", self.asked.started.elapsed().as_secs_f64())?;
        progress.set_item("bytes", done.bytes)?;
        progress.set_item("rows", done.rows)?;
        progress.set_item("rows_total", done.rows_total)?;
        Ok(progress)
    }

    /// What it did, as JSON: complete when all rows were read.
    fn report(&self) -> PyResult<String> {
        let rows = self.reading.lock().as_ref().map_or(0, |reading| reading.rows);
        self.asked.report(rows).map_err(|error| PyRuntimeError::new_err(error.to_string()))
    }

    /// Ends it, whatever is left.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let mut held = hold(&self.reading)?;
        if let Some(reading) = &mut held.reading {
            let stream = reading.stream.take();
            reading.rest.clear();
            reading.failed = None;
            py.detach(|| {
                drop(stream);
                self.asked.end(reading.rows);
            });
        }
        Ok(())
    }
}
