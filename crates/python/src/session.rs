//! A session of Python's.

use std::path::PathBuf;
use std::sync::Arc;

use arrow_schema::DataType;
use datafusion::common::{DataFusionError, TableReference};
use datafusion::logical_expr::{ScalarUDF, Volatility};
use headrace_engine::failure::{Class, Failure, tables};
use headrace_engine::sql::filled::Parameter;
use headrace_engine::sql::{Written, type_name};
use headrace_engine::{
    GivenTables, GpuService, NewCudaFunction, Query, RunnerOptions, Session as Engine,
    SessionOptions, Settings,
};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

use crate::failures::{self, LEVERS, raised};
use crate::functions::PythonFunction;
use crate::rows::Rows;
use crate::tables::{Reads, Table};
use crate::values::literal;
use crate::wait::{runtime, wait};

/// Tables, settings, functions. Threads may use one at the same time.
#[pyclass(module = "headrace._headrace", frozen)]
pub struct Session {
    engine: Engine,
}

/// Relations of relations at most: each is planned within the next.
const DEPTH_MAX: usize = 200;

impl Session {
    fn failed(&self, py: Python<'_>, sql: &str, error: &DataFusionError) -> PyErr {
        failures::of_statement(py, &self.engine, sql, error)
    }

    /// Tables of a statement by name: a [`Table`], or a query over tables of its own.
    fn given(&self, tables: &Bound<'_, PyDict>, depth: usize) -> PyResult<GivenTables> {
        let py = tables.py();
        if depth > DEPTH_MAX {
            let cause =
                format!("a relation is made of more than {DEPTH_MAX} others, one of the other");
            let failure = Failure::new(Class::Unsupported, cause);
            return Err(raised(py, &failure.hint("keep the rows of one on the way: .execute()")));
        }
        let table = |(name, given): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
            let name = name.extract::<String>()?;
            if let Ok(table) = given.cast::<Table>() {
                return Ok((name, Arc::clone(&table.get().provider)));
            }
            let (query, tables) = given.extract::<(String, Bound<'_, PyDict>)>()?;
            let (engine, tables) = (self.engine.clone(), self.given(&tables, depth + 1)?);
            let text = query.clone();
            let view = wait(py, async move { engine.view_over(&text, tables).await }, || Ok(()))?;
            Ok((name, view.map_err(|error| self.failed(py, &query, &error))?))
        };
        tables.iter().map(table).collect()
    }

    /// A statement, planned.
    fn planned(&self, py: Python<'_>, sql: &str, given: &Bound<'_, PyDict>) -> PyResult<Query> {
        let (engine, text) = (self.engine.clone(), sql.to_string());
        let given = self.given(given, 0)?;
        let query = wait(py, async move { engine.sql_over(&text, given).await }, || Ok(()))?;
        query.map_err(|error| self.failed(py, sql, &error))
    }
}

#[pymethods]
impl Session {
    /// A session without tables. Sizes are texts: 512MB, 4GiB, a number of bytes.
    #[new]
    #[pyo3(signature = (*, memory_limit=None, spill_folder=None, spill_limit=None, device_memory=None, device_cache=None))]
    fn new(
        py: Python<'_>,
        memory_limit: Option<&str>,
        spill_folder: Option<PathBuf>,
        spill_limit: Option<&str>,
        device_memory: Option<&str>,
        device_cache: Option<&str>,
    ) -> PyResult<Self> {
        let wrong = |cause| failures::of_value(py, Class::Setting, cause);
        let bytes = |text: Option<&str>| {
            text.map(headrace_cli::parse_bytes_or_zero).transpose().map_err(wrong)
        };
        let limits = RunnerOptions {
            memory_limit_bytes: memory_limit
                .map(headrace_cli::parse_memory)
                .transpose()
                .map_err(wrong)?,
            device_cache_bytes: bytes(device_cache)?,
            device_memory_bytes: bytes(device_memory)?,
            spill_folder,
            spill_limit_bytes: bytes(spill_limit)?,
            ..RunnerOptions::default()
        };
        let settings = Settings { gpu_service: GpuService::Auto, ..Settings::default() };
        runtime()?;
        let engine = py
            .detach(|| Engine::new(SessionOptions { settings, limits }))
            .map_err(|error| failures::of(py, &error))?;
        if let Some(folder) = headrace_gpu::cache_folder() {
            engine.keep_metadata_in(folder.join("tables"));
        }
        engine.runner().allow_rehearsals();
        Ok(Self { engine })
    }

    /// Makes tables of a file, of the files below a folder, or of an address; returns their names.
    fn add(&self, py: Python<'_>, place: PathBuf) -> PyResult<Vec<String>> {
        let (engine, path) = (self.engine.clone(), place.clone());
        let found = wait(py, async move { engine.register_place(&path).await }, || Ok(()))?;
        let named = place.display().to_string();
        let found =
            found.map_err(|error| raised(py, &Failure::of(&error, &LEVERS).in_place(&named)))?;
        Ok(found.tables.into_iter().map(|table| table.name).collect())
    }

    /// Tables that are created later are files of this folder.
    fn keep_tables_in(&self, folder: PathBuf) {
        self.engine.keep_tables_in(&folder);
    }

    /// The names of all tables.
    fn tables(&self) -> Vec<String> {
        tables(&self.engine)
    }

    /// The table of an object with Arrow's C interface: its rows are there, or can be read "once", or "anew" for each
    /// statement.
    #[pyo3(signature = (object, reads="held"))]
    fn table(&self, object: &Bound<'_, PyAny>, reads: &str) -> PyResult<Table> {
        let reads = match reads {
            "once" => Reads::Once,
            "anew" => Reads::Anew,
            _ => Reads::Held,
        };
        Table::of(object, self.engine.settings().threads, reads)
    }

    /// Makes a table known by a name, in place of what has it.
    fn register(&self, name: &str, table: &Table) {
        self.engine.give(name, Arc::clone(&table.provider));
    }

    /// Forgets a table; tells whether there was one.
    fn unregister(&self, py: Python<'_>, name: &str) -> PyResult<bool> {
        let gone = self.engine.context().deregister_table(TableReference::bare(name));
        gone.map(|table| table.is_some()).map_err(|error| failures::of(py, &error))
    }

    /// Names of tables in a statement that the session does not have, as they are looked for.
    fn unknown_tables(&self, py: Python<'_>, sql: &str) -> Vec<String> {
        py.detach(|| self.engine.unknown_tables(sql))
    }

    /// The only statement of a text, without what parts it from a next one.
    fn one_statement(&self, py: Python<'_>, sql: &str) -> PyResult<String> {
        match self.engine.statements(sql) {
            Ok(found) => match found.as_slice() {
                [(_, statement)] => Ok(statement.trim().to_string()),
                [] => Err(failures::of_value(py, Class::Syntax, "there is no statement")),
                several => {
                    let cause =
                        format!("a text of {} statements: run one at a time", several.len());
                    Err(failures::of_value(py, Class::Syntax, cause))
                }
            },
            // Its error has a place when it is run.
            Err(_) => Ok(sql.to_string()),
        }
    }

    /// Whether a statement is a query, which may stand in parentheses, and whether a LIMIT may follow.
    fn written(&self, py: Python<'_>, sql: &str) -> (bool, bool) {
        let written = py.detach(|| self.engine.written(sql));
        (written != Written::Other, written == Written::Open)
    }

    /// A statement with the values of its parameters, a sequence or a dictionary, in their places.
    fn filled(&self, sql: &str, values: &Bound<'_, PyAny>) -> PyResult<String> {
        let py = values.py();
        let named = values.cast::<PyDict>().ok();
        let listed: Vec<Bound<'_, PyAny>> = match named {
            Some(_) => Vec::new(),
            None => values.try_iter()?.collect::<PyResult<_>>()?,
        };
        let mut used = vec![false; listed.len()];
        let mut thrown = None;
        let filled = self.engine.filled(sql, |parameter| {
            let (value, name) = match parameter {
                Parameter::Nth(nth) => {
                    used.get_mut(nth).into_iter().for_each(|used| *used = true);
                    (listed.get(nth).cloned(), format!("${}", nth + 1))
                }
                Parameter::Named(name) => {
                    let value = named.and_then(|values| values.get_item(name).ok().flatten());
                    (value, format!("${name}"))
                }
            };
            let Some(value) = value else {
                return datafusion::common::plan_err!("parameter {name} has no value");
            };
            literal(&value).map_err(|error| {
                thrown = Some(error);
                DataFusionError::Execution(String::new())
            })
        });
        if let Some(error) = thrown {
            return Err(error);
        }
        let filled = filled.map_err(|error| self.failed(py, sql, &error))?;
        match used.iter().filter(|used| !**used).count() {
            0 => Ok(filled),
            unused => {
                let cause = format!("{unused} of {} values have no parameter", used.len());
                Err(failures::of_value(py, Class::Setting, cause))
            }
        }
    }

    /// Columns of a query and their types in SQL, without running it.
    fn columns(
        &self,
        py: Python<'_>,
        sql: &str,
        given: &Bound<'_, PyDict>,
    ) -> PyResult<Vec<(String, String)>> {
        let query = self.planned(py, sql, given)?;
        let schema = query.schema();
        let column =
            |field: &Arc<arrow_schema::Field>| (field.name().clone(), type_name(field.data_type()));
        Ok(schema.fields().iter().map(column).collect())
    }

    /// Runs a statement over the session's tables and these. `on_progress` is called now and then while it is waited for.
    #[pyo3(signature = (sql, given, on_progress=None))]
    fn run(
        &self,
        py: Python<'_>,
        sql: String,
        given: &Bound<'_, PyDict>,
        on_progress: Option<Py<PyAny>>,
    ) -> PyResult<Rows> {
        let query = self.planned(py, &sql, given)?;
        Rows::new(py, self.engine.clone(), sql, query, on_progress)
    }

    /// Makes a callable a function of SQL: of columns of these types, to a column of that one.
    fn register_function(
        &self,
        py: Python<'_>,
        name: &str,
        arguments: &Bound<'_, PyList>,
        result: &str,
        is_stable: bool,
        call: Py<PyAny>,
    ) -> PyResult<()> {
        let named = |name: Bound<'_, PyAny>| self.type_of(py, &name.extract::<String>()?);
        let arguments = arguments.iter().map(named).collect::<PyResult<Vec<_>>>()?;
        let result = self.type_of(py, result)?;
        let volatility = if is_stable { Volatility::Immutable } else { Volatility::Volatile };
        let name = name.to_lowercase();
        let function = PythonFunction::new(name, arguments, result, volatility, call);
        self.engine.register_function(ScalarUDF::from(function));
        Ok(())
    }

    /// Makes statements in CUDA a function of SQL, in place of one of its name: of parameters of these names and types, to a
    /// value of that one. `first_line` says where the compiler's lines are counted from.
    #[allow(clippy::too_many_arguments)]
    fn create_cuda_function(
        &self,
        py: Python<'_>,
        name: &str,
        parameters: Vec<(String, String)>,
        result: String,
        body: String,
        first_line: String,
        twin: Option<String>,
    ) -> PyResult<()> {
        let (engine, name) = (self.engine.clone(), name.to_lowercase());
        let new = NewCudaFunction { name, parameters, result, body, first_line, twin };
        let made = wait(py, async move { engine.create_cuda_function(new).await }, || Ok(()))?;
        made.map_err(|error| failures::of(py, &error))
    }

    fn __reduce__(&self, py: Python<'_>) -> PyResult<Py<PyTuple>> {
        let _ = py;
        Err(pyo3::exceptions::PyTypeError::new_err("a session stays in its process"))
    }
}

impl Session {
    /// The type of a name in SQL.
    fn type_of(&self, py: Python<'_>, name: &str) -> PyResult<DataType> {
        let sql = format!("SELECT CAST(NULL AS {name}) AS t");
        let query = self.planned(py, &sql, &PyDict::new(py))?;
        if query.schema().fields().len() != 1 {
            let cause = format!("{name} is no type");
            return Err(failures::of_value(py, Class::Types, cause));
        }
        Ok(query.schema().field(0).data_type().clone())
    }
}
