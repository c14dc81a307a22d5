//! Python functions over Arrow columns as functions of SQL.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow_array::{Array, ArrayRef};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{DataType, Field};
use datafusion::common::{DataFusionError, Result, exec_datafusion_err, exec_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};
use headrace_engine::sql::type_name;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use pyo3_arrow::PyArray;
use pyo3_arrow::ffi::to_array_pycapsules;

/// A function. It is given a column for each argument, and answers a column of as many rows.
pub struct PythonFunction {
    name: String,
    signature: Signature,
    arguments: Vec<DataType>,
    result: DataType,
    call: Py<PyAny>,
}

impl PythonFunction {
    /// `call` takes objects with `__arrow_c_array__`, and returns one.
    pub fn new(
        name: String,
        arguments: Vec<DataType>,
        result: DataType,
        volatility: Volatility,
        call: Py<PyAny>,
    ) -> Self {
        let signature = Signature::user_defined(volatility);
        Self { name, signature, arguments, result, call }
    }

    fn called(&self, columns: Vec<ArrayRef>, rows: usize) -> Result<ArrayRef> {
        let made = Python::attach(|py| -> PyResult<ArrayRef> {
            let columns = columns.into_iter().map(|values| Column(values).into_pyobject(py));
            let columns = PyTuple::new(py, columns.collect::<PyResult<Vec<_>>>()?)?;
            let made = self.call.bind(py).call1((rows, columns))?;
            Ok(made.extract::<PyArray>()?.into_inner().0)
        });
        let made = made.map_err(|error| DataFusionError::External(Box::new(error)))?;
        if made.len() != rows {
            return exec_err!(
                "{}() was given {rows} rows, and returned {}\nhint: it returns a value for each row",
                self.name,
                made.len()
            );
        }
        if made.data_type() == &self.result {
            return Ok(made);
        }
        // A value that has no other of the type is an error, and not NULL.
        let options = CastOptions { safe: false, ..CastOptions::default() };
        cast_with_options(&made, &self.result, &options).map_err(|error| {
            let (given, result) = (type_name(made.data_type()), type_name(&self.result));
            exec_datafusion_err!(
                "{}() returned {given}, and is declared {result}: {error}",
                self.name
            )
        })
    }
}

/// A column on its way to Python.
#[pyclass(module = "headrace._headrace", frozen)]
struct Column(ArrayRef);

#[pymethods]
impl Column {
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, pyo3::types::PyCapsule>>,
    ) -> pyo3_arrow::error::PyArrowResult<Bound<'py, PyTuple>> {
        let field = Field::new("", self.0.data_type().clone(), true);
        to_array_pycapsules(py, Arc::new(field), &self.0, requested_schema)
    }
}

impl ScalarUDFImpl for PythonFunction {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(self.result.clone())
    }

    /// Numbers become other numbers, texts other texts, and NULL whatever is wanted.
    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let is_text = |data_type: &DataType| data_type.is_string();
        let fits = |(given, wanted): (&DataType, &DataType)| {
            given == wanted
                || given.is_null()
                || given.is_numeric() && wanted.is_numeric()
                || is_text(values_of(given)) && is_text(wanted)
                || given.is_temporal() && wanted.is_temporal()
        };
        let is_called_right =
            given.len() == self.arguments.len() && given.iter().zip(&self.arguments).all(fits);
        match is_called_right {
            true => Ok(self.arguments.clone()),
            false => {
                let named = |types: &[DataType]| types.iter().map(type_name).collect::<Vec<_>>();
                let (given, wanted) = (named(given).join(", "), named(&self.arguments).join(", "));
                plan_err!("{0}() takes ({wanted}), and is given ({given})", self.name)
            }
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let columns = args.args.iter().map(|value| value.to_array(rows));
        self.called(columns.collect::<Result<_>>()?, rows).map(ColumnarValue::Array)
    }
}

impl fmt::Debug for PythonFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}() in Python", self.name)
    }
}

fn values_of(data_type: &DataType) -> &DataType {
    match data_type {
        DataType::Dictionary(_, values) => values,
        plain => plain,
    }
}

/// Two are the same if they call the same object.
impl PartialEq for PythonFunction {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, &self.arguments, &self.result)
            == (&other.name, &other.arguments, &other.result)
            && self.call.is(&other.call)
    }
}

impl Eq for PythonFunction {}

impl Hash for PythonFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.name, &self.arguments, &self.result, self.call.as_ptr().addr()).hash(state);
    }
}
