//! Failures as exceptions of the package `headrace`.

use datafusion::common::DataFusionError;
use headrace_engine::Session;
use headrace_engine::failure::{Class, Failure, Levers, Place};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// What helps, as it is called in Python.
pub const LEVERS: Levers = Levers {
    memory_limit: "memory_limit, which headrace.connect() takes",
    make_tables: "headrace.connect(DIR) makes tables of the files below DIR",
    list_functions: "SHOW FUNCTIONS LIKE 'NAME'",
};

/// The exception of a failure.
pub fn raised(py: Python<'_>, failure: &Failure) -> PyErr {
    exception(py, failure).unwrap_or_else(|error| error)
}

/// The exception of an error that no statement has made. An exception of a Python function comes back as it was raised.
pub fn of(py: Python<'_>, error: &DataFusionError) -> PyErr {
    python_error(py, error).unwrap_or_else(|| raised(py, &Failure::of(error, &LEVERS)))
}

/// The exception of an error of a statement, likewise.
pub fn of_statement(
    py: Python<'_>,
    session: &Session,
    sql: &str,
    error: &DataFusionError,
) -> PyErr {
    python_error(py, error)
        .unwrap_or_else(|| raised(py, &Failure::of_statement(session, sql, error, &LEVERS)))
}

/// The exception of a value that somebody gave.
pub fn of_value(py: Python<'_>, class: Class, cause: impl Into<String>) -> PyErr {
    raised(py, &Failure::new(class, cause))
}

/// The exception that is the cause of an error.
fn python_error(py: Python<'_>, error: &DataFusionError) -> Option<PyErr> {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = source {
        if let Some(raised) = error.downcast_ref::<PyErr>() {
            return Some(raised.clone_ref(py));
        }
        source = error.source();
    }
    None
}

fn exception(py: Python<'_>, failure: &Failure) -> PyResult<PyErr> {
    let values = PyDict::new(py);
    let kind = serde_json::to_value(failure.class).unwrap_or_default();
    values.set_item("kind", kind.as_str().unwrap_or_default())?;
    values.set_item("sqlstate", failure.sqlstate())?;
    values.set_item("cause", &failure.cause)?;
    values.set_item("hint", &failure.hint)?;
    if let Some(Place { line, column, shown }) = &failure.place {
        values.set_item("line", line)?;
        values.set_item("column", column)?;
        values.set_item("shown", shown)?;
    }
    let errors = py.import("headrace._errors")?;
    let made = errors.getattr("of_failure")?.call((), Some(&values))?;
    Ok(PyErr::from_value(made))
}
