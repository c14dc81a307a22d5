//! The Python door: what of it is not Python.
//!
//! ```text
//!   headrace/*.py                      relations, DB-API, notebooks: Python over this module
//!        │  SQL, objects                    ▲  tuples, Arrow streams, exceptions
//!        ▼                                  │
//!   session ── values, tables ─► engine::Session ─► rows ─ cells ─► Python objects
//!                                                    └──── batches ─► __arrow_c_stream__
//! ```
//!
//! - [`session`]: a session and its tables; which object stands behind a name is the caller's to find.
//! - [`rows`]: a running statement; [`batches`]: rows that are there, as an Arrow stream.
//! - [`cells`]: columns as Python objects; [`values`]: Python objects as SQL literals.
//! - [`chunks`]: columns of Arrow files as they lie, for learners; [`device_reads`]: into a GPU's memory.
//! - [`kept`]: tables that the GPU service keeps, as memory of a GPU.
//! - [`tables`]: tables of Arrow streams; [`functions`]: Python functions over Arrow columns.
//! - [`wait`]: waiting without the interpreter's lock, with an ear for Ctrl-C.
//! - [`failures`]: the engine's failures as exceptions.
//!
//! # What this crate must never know
//!
//! What a relation is, which libraries of dataframes there are, what a notebook shows: that is Python's part, where its
//! users can read it. How a query runs: that is the engine's.

mod batches;
mod cells;
mod chunks;
mod device_reads;
mod failures;
mod functions;
mod kept;
mod rows;
mod session;
mod tables;
mod values;
mod wait;

use std::ffi::OsString;

use pyo3::prelude::*;

/// Runs a command line of `headrace`, whose first word is the program; returns its exit code.
#[pyfunction]
fn main(py: Python<'_>, words: Vec<OsString>) -> i32 {
    py.detach(|| headrace_cli::run(words))
}

/// The literal of SQL of a value.
#[pyfunction]
fn literal(value: &Bound<'_, PyAny>) -> PyResult<String> {
    values::literal(value)
}

/// What the package `headrace` is made of.
#[pymodule]
fn _headrace(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_function(wrap_pyfunction!(main, module)?)?;
    module.add_function(wrap_pyfunction!(literal, module)?)?;
    module.add_function(wrap_pyfunction!(chunks::shuffle, module)?)?;
    module.add_class::<session::Session>()?;
    module.add_class::<rows::Rows>()?;
    module.add_class::<batches::Batches>()?;
    module.add_class::<chunks::Chunks>()?;
    module.add_class::<device_reads::DeviceReads>()?;
    module.add_function(wrap_pyfunction!(kept::map_kept, module)?)?;
    module.add_class::<kept::Part>()?;
    module.add_class::<tables::Table>()
}
