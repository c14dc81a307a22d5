//! Columns of Arrow files as they lie, read into memory of the caller: what feeds learners.

use std::path::PathBuf;

use arrow_schema::{DataType, TimeUnit};
use headrace_engine::failure::Class;
use headrace_format::FormatError;
use headrace_format::arrow::ArrowTable;
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;

use crate::failures;

/// Record batches of Arrow files, of which values of fixed width are read.
#[pyclass(module = "headrace._headrace", frozen)]
pub struct Chunks {
    table: ArrowTable,
    columns: Vec<Column>,
    /// File and record batch of each.
    places: Vec<(usize, usize)>,
}

struct Column {
    number: usize,
    name: String,
    dtype: &'static str,
    /// Values of that type a row, where a row has several.
    items: Option<usize>,
    width_bytes: usize,
}

#[pymethods]
impl Chunks {
    /// Of files and folders of them; of all columns that can be read so, or of these.
    #[new]
    #[pyo3(signature = (paths, columns=None))]
    fn new(py: Python<'_>, paths: Vec<PathBuf>, columns: Option<Vec<String>>) -> PyResult<Self> {
        let table = py.detach(|| ArrowTable::open(&paths)).map_err(|error| raised(py, &error))?;
        let fields = table.schema().fields();
        let numbers: Vec<usize> = match &columns {
            None => (0..fields.len()).filter(|number| column(&table, *number).is_ok()).collect(),
            Some(names) => {
                let number = |name: &String| {
                    fields.iter().position(|field| field.name() == name).ok_or_else(|| {
                        let known: Vec<_> =
                            fields.iter().map(|field| field.name().as_str()).collect();
                        let cause =
                            format!("there is no column {name}; columns: {}", known.join(", "));
                        failures::of_value(py, Class::UnknownColumn, cause)
                    })
                };
                names.iter().map(number).collect::<PyResult<_>>()?
            }
        };
        let made = numbers.into_iter().map(|number| {
            column(&table, number).map_err(|cause| {
                let cause = format!("column {}: {cause}", fields[number].name());
                failures::of_value(py, Class::Unsupported, cause)
            })
        });
        let columns = made.collect::<PyResult<Vec<_>>>()?;
        if columns.is_empty() {
            let cause = "no column has values of fixed width without NULLs";
            return Err(failures::of_value(py, Class::Unsupported, cause));
        }
        let files = table.files().iter().enumerate();
        let places = files.flat_map(|(file, of)| (0..of.batches()).map(move |batch| (file, batch)));
        Ok(Self { columns, places: places.collect(), table })
    }

    /// Name, NumPy's type and values a row of each column.
    #[getter]
    fn columns(&self) -> Vec<(&str, &str, Option<usize>)> {
        self.columns
            .iter()
            .map(|column| (column.name.as_str(), column.dtype, column.items))
            .collect()
    }

    /// Rows of each chunk.
    #[getter]
    fn rows(&self) -> Vec<u64> {
        let rows = |&(file, batch): &(usize, usize)| self.table.files()[file].batch_rows(batch);
        self.places.iter().map(rows).collect()
    }

    /// Reads a column of some rows of a chunk into a buffer, from a byte on.
    fn read(
        &self,
        py: Python<'_>,
        place: (usize, usize),
        rows: (u64, u64),
        buffer: PyBuffer<u8>,
        at: usize,
    ) -> PyResult<()> {
        let ((chunk, column), (first_row, rows)) = (place, rows);
        let wrong = |cause: String| failures::of_value(py, Class::Setting, cause);
        let (Some(&place), Some(column)) = (self.places.get(chunk), self.columns.get(column))
        else {
            return Err(wrong(format!("chunk {chunk}, column {column}")));
        };
        let bytes =
            usize::try_from(rows).ok().and_then(|rows| rows.checked_mul(column.width_bytes));
        let end =
            bytes.and_then(|bytes| at.checked_add(bytes)).filter(|end| *end <= buffer.len_bytes());
        let (Some(bytes), Some(_)) = (bytes, end) else {
            return Err(wrong(format!("{rows} rows in {} bytes from {at} on", buffer.len_bytes())));
        };
        if buffer.readonly() || !buffer.is_c_contiguous() {
            return Err(wrong("the buffer is read-only, or not contiguous".into()));
        }
        let to = buffer.buf_ptr().cast::<u8>() as usize + at;
        let range = first_row..first_row.saturating_add(rows);
        py.detach(|| {
            // SAFETY: the range lies within the buffer, which is writable, contiguous and held by `buffer` until the end of
            // the call. Who hands a buffer to this class of the package's own lets nobody else read or write it meanwhile.
            let into = unsafe { std::slice::from_raw_parts_mut(to as *mut u8, bytes) };
            self.table.read_plain(place, column.number, range, into)
        })
        .map_err(|error| raised(py, &error))
    }

    /// An error if a file has changed since it was opened.
    fn check_unchanged(&self, py: Python<'_>) -> PyResult<()> {
        self.table.check_unchanged().map_err(|error| raised(py, &error))
    }
}

fn raised(py: Python<'_>, error: &FormatError) -> PyErr {
    let class = match error {
        FormatError::Corrupt { .. } | FormatError::NotArrow { .. } => Class::Corrupt,
        FormatError::Argument(_) | FormatError::Column { .. } => Class::Setting,
        _ => Class::Io,
    };
    failures::of_value(py, class, error.to_string())
}

/// What is known of a column; why it cannot be read so.
fn column(table: &ArrowTable, number: usize) -> Result<Column, String> {
    let width_bytes = table.plain_bytes(number)?;
    let field = table.schema().field(number);
    let (dtype, items) = match field.data_type() {
        DataType::FixedSizeBinary(items) => ("uint8", Some(*items)),
        DataType::FixedSizeList(item, items) => (dtype(item.data_type())?, Some(*items)),
        own => (dtype(own)?, None),
    };
    let items = items.and_then(|items| usize::try_from(items).ok());
    Ok(Column { number, name: field.name().clone(), dtype, items, width_bytes })
}

/// NumPy's name of a type; dates and moments are the numbers that they are.
fn dtype(of: &DataType) -> Result<&'static str, String> {
    Ok(match of {
        DataType::Int8 => "int8",
        DataType::Int16 => "int16",
        DataType::Int32 | DataType::Date32 => "int32",
        DataType::Int64
        | DataType::Timestamp(..)
        | DataType::Time64(TimeUnit::Microsecond | TimeUnit::Nanosecond) => "int64",
        DataType::UInt8 => "uint8",
        DataType::UInt16 => "uint16",
        DataType::UInt32 => "uint32",
        DataType::UInt64 => "uint64",
        DataType::Float32 => "float32",
        DataType::Float64 => "float64",
        other => {
            return Err(format!("NumPy has no type for {other}; cast it, to a double for example"));
        }
    })
}
