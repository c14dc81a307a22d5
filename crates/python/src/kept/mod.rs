//! Tables that the GPU service keeps, mapped into this process: their columns as memory of a GPU, by DLPack, by CUDA's array
//! interface and by Arrow's C device interface. Nothing is copied.
//!
//! ```text
//! service ── handles ──► Mapped (unmapped when the last user is gone) ──► Lease (then the service may free)
//! ```

mod arrow;
mod dlpack;
mod part;

use std::path::PathBuf;
use std::sync::Arc;

use headrace_columns::column::arrow_field;
use headrace_engine::failure::Class;
use headrace_flow::CancelToken;
use headrace_gpu::{Device, HANDLE_BYTES, Mapped, probe};
use headrace_service::client::{Connection, Failure, HELLO_PATIENCE};
use headrace_service::place::user_folder;
use headrace_service::protocol::{MappedColumn, MappedPart};
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyTuple};
use pyo3_arrow::ffi::to_schema_pycapsule;

use self::part::{CUDA, Element, Inner, element};
use crate::failures;

/// Part of a column in the memory of a GPU.
#[pyclass(module = "headrace._headrace", frozen)]
pub struct Part(Arc<Inner>);

/// The columns of a kept table: name, rows, and parts of each.
#[pyfunction]
#[pyo3(signature = (table, columns, folder=None))]
pub fn map_kept(
    py: Python<'_>,
    table: &str,
    columns: Vec<String>,
    folder: Option<PathBuf>,
) -> PyResult<Vec<(String, Vec<Part>)>> {
    let mapped = py.detach(|| map(table, &columns, folder));
    mapped.map_err(|cause| failures::of_value(py, Class::Device, cause))
}

fn map(
    table: &str,
    columns: &[String],
    folder: Option<PathBuf>,
) -> Result<Vec<(String, Vec<Part>)>, String> {
    let told = |failure: Failure| match failure.is_absence {
        true => format!("{failure}\nhint: headrace gpu-service start"),
        false => failure.message,
    };
    let (folder, token) = (folder.unwrap_or_else(user_folder), CancelToken::new());
    let service = Connection::open(&folder, HELLO_PATIENCE, &token).map_err(told)?;
    let (mapped, lease) = service.map(table, columns, &token).map_err(told)?;
    let lease = Arc::new(lease);
    let device = device_of(&mapped.gpu)?;
    let column = |column: MappedColumn| {
        let part = |part: MappedPart| {
            let handle: [u8; HANDLE_BYTES] =
                part.handle.try_into().map_err(|_| "a handle of another length".to_string())?;
            let memory = Mapped::open(&device, handle, part.bytes as usize);
            Ok(Part(Arc::new(Inner {
                memory: memory.map_err(|error| error.to_string())?,
                field: column.field.clone(),
                rows: part.rows,
                validity: part.validity,
                _lease: Arc::clone(&lease),
            })))
        };
        let parts = column.parts.into_iter().map(part).collect::<Result<_, String>>()?;
        Ok((column.field.name.clone(), parts))
    };
    mapped.columns.into_iter().map(column).collect()
}

/// The GPU of an identity, whatever number it has here.
fn device_of(uuid: &str) -> Result<Arc<Device>, String> {
    let found = probe().devices.into_iter().find(|info| info.uuid == uuid);
    let info = found.ok_or_else(|| {
        format!("the service keeps it on {uuid}, which this process does not see\nhint: CUDA_VISIBLE_DEVICES")
    })?;
    Device::open(info.ordinal).map_err(|error| error.to_string())
}

#[pymethods]
impl Part {
    fn __len__(&self) -> usize {
        self.0.rows as usize
    }

    /// The address of the first value.
    #[getter]
    fn ptr(&self) -> u64 {
        self.0.memory.ptr()
    }

    /// The address of the validity bitmap, if there is one.
    #[getter]
    fn validity_ptr(&self) -> Option<u64> {
        self.0.validity.map(|at| self.0.memory.ptr() + at)
    }

    /// The number of the GPU in this process.
    #[getter]
    fn device(&self) -> usize {
        self.0.memory.device().ordinal()
    }

    /// NumPy's name of the elements' type, and the shape.
    #[getter]
    fn layout<'py>(&self, py: Python<'py>) -> PyResult<(&'static str, Bound<'py, PyTuple>)> {
        let element = self.element()?;
        let rows = self.0.rows as i64;
        let shape = match element.items {
            Some(items) => PyTuple::new(py, [rows, items])?,
            None => PyTuple::new(py, [rows])?,
        };
        Ok((element.typestr, shape))
    }

    #[getter]
    fn __cuda_array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.without_nulls()?;
        let (typestr, shape) = self.layout(py)?;
        let interface = PyDict::new(py);
        interface.set_item("shape", shape)?;
        interface.set_item("typestr", typestr)?;
        // It must only be read, but PyTorch refuses what says so.
        interface.set_item("data", (self.0.memory.ptr(), false))?;
        interface.set_item("version", 3)?;
        Ok(interface)
    }

    fn __dlpack_device__(&self) -> (i32, usize) {
        (CUDA, self.device())
    }

    /// A tensor over the memory. It must not be written to, which DLPack says from version 1 on.
    #[pyo3(signature = (**given))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        given: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        self.without_nulls()?;
        let element = self.element()?;
        let version = match given.map(|given| given.get_item("max_version")).transpose()?.flatten()
        {
            Some(version) if !version.is_none() => version.extract::<(u32, u32)>()?,
            _ => (0, 8),
        };
        let shape: Box<[i64]> = match element.items {
            Some(items) => [self.0.rows as i64, items].into(),
            None => [self.0.rows as i64].into(),
        };
        dlpack::capsule(py, Arc::clone(&self.0), &element, shape, version.0 >= 1)
    }

    /// The schema and the array of Arrow's C device interface.
    #[pyo3(signature = (requested_schema=None, **_given))]
    fn __arrow_c_device_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
        _given: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        let _ = requested_schema;
        let field = arrow_field(&self.0.field);
        Ok((to_schema_pycapsule(py, field)?, arrow::capsule(py, &self.0)?))
    }
}

impl Part {
    fn element(&self) -> PyResult<Element> {
        element(&self.0.field.data_type).ok_or_else(|| {
            PyBufferError::new_err(format!(
                "column {} of type {} has no elements that other libraries know",
                self.0.field.name, self.0.field.data_type
            ))
        })
    }

    fn without_nulls(&self) -> PyResult<()> {
        match self.0.validity {
            None => Ok(()),
            Some(_) => Err(PyBufferError::new_err(format!(
                "column {} has NULLs, which arrays have not\n\
                 hint: __arrow_c_device_array__ has them, or validity_ptr",
                self.0.field.name
            ))),
        }
    }
}
