//! Columns of Arrow files as they lie, read into memory of the caller: what feeds learners.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_schema::{DataType, TimeUnit};
use headrace_engine::failure::Class;
use headrace_format::FormatError;
use headrace_format::arrow::ArrowTable;
use headrace_io::SourceFile;
use headrace_io::random::{GAMMA, mixed};
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;

use crate::failures;

/// Reads values of fixed width from the record batches of Arrow files.
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

    /// Reads pieces of some columns, each into its buffer, on so many threads. A piece is its chunk, its first row there, its
    /// rows, and the row of the buffers at which it begins.
    fn read(
        &self,
        py: Python<'_>,
        columns: Vec<usize>,
        pieces: Vec<(usize, u64, u64, u64)>,
        buffers: Vec<PyBuffer<u8>>,
        threads: usize,
    ) -> PyResult<()> {
        let wrong = |cause: String| failures::of_value(py, Class::Setting, cause);
        if buffers.len() != columns.len() {
            return Err(wrong(format!("{} buffers of {} columns", buffers.len(), columns.len())));
        }
        let mut reads = Vec::with_capacity(pieces.len() * buffers.len());
        for (column, buffer) in columns.into_iter().zip(&buffers) {
            let known = self.columns.get(column);
            let column = known.ok_or_else(|| wrong(format!("column {column}")))?;
            if buffer.readonly() || !buffer.is_c_contiguous() {
                return Err(wrong(format!(
                    "the buffer of {} is read-only, or in parts",
                    column.name
                )));
            }
            for &(chunk, first_row, rows, at) in &pieces {
                let read = self.read_of(column, (chunk, first_row, rows, at), buffer);
                reads.push(read.ok_or_else(|| {
                    wrong(format!(
                        "{rows} rows of chunk {chunk} at row {at} of {} bytes",
                        buffer.len_bytes()
                    ))
                })?);
            }
        }
        py.detach(|| self.read_all(&reads, threads)).map_err(|error| raised(py, &error))
    }

    /// An error if a file has changed since it was opened.
    fn check_unchanged(&self, py: Python<'_>) -> PyResult<()> {
        self.table.check_unchanged().map_err(|error| raised(py, &error))
    }
}

/// A read of some values into memory.
struct Read {
    place: (usize, usize),
    column: usize,
    rows: Range<u64>,
    address: usize,
    bytes: usize,
}

impl Chunks {
    /// Bytes of a value of each column.
    pub fn widths(&self) -> Vec<usize> {
        self.columns.iter().map(|column| column.width_bytes).collect()
    }

    /// File and record batch of a chunk.
    pub fn place(&self, chunk: usize) -> Option<(usize, usize)> {
        self.places.get(chunk).copied()
    }

    /// Where a column of some rows of a chunk lies: the file, and the bytes there.
    pub fn plain_extent(
        &self,
        place: (usize, usize),
        column: usize,
        rows: Range<u64>,
    ) -> Result<(Arc<SourceFile>, Range<u64>), FormatError> {
        self.table.plain_extent(place, self.columns[column].number, rows)
    }

    /// Reads a column of some rows of a chunk.
    pub fn read_plain(
        &self,
        place: (usize, usize),
        column: usize,
        rows: Range<u64>,
        into: &mut [u8],
    ) -> Result<(), FormatError> {
        self.table.read_plain(place, self.columns[column].number, rows, into)
    }

    /// The read of a piece; `None`: there is no such chunk, or the buffer has no room for it.
    fn read_of(
        &self,
        column: &Column,
        (chunk, first_row, rows, at): (usize, u64, u64, u64),
        buffer: &PyBuffer<u8>,
    ) -> Option<Read> {
        let place = *self.places.get(chunk)?;
        let bytes = |rows: u64| usize::try_from(rows).ok()?.checked_mul(column.width_bytes);
        let (first_byte, bytes) = (bytes(at)?, bytes(rows)?);
        let end = first_byte.checked_add(bytes)?;
        let rows = first_row..first_row.checked_add(rows)?;
        let address = buffer.buf_ptr() as usize + first_byte;
        (end <= buffer.len_bytes()).then_some(Read {
            place,
            column: column.number,
            rows,
            address,
            bytes,
        })
    }

    /// Each thread takes the next read until none is left, or one has failed.
    fn read_all(&self, reads: &[Read], threads: usize) -> Result<(), FormatError> {
        let next = AtomicUsize::new(0);
        let work = || -> Result<(), FormatError> {
            while let Some(read) = reads.get(next.fetch_add(1, Ordering::Relaxed)) {
                // SAFETY: the range lies within a writable, contiguous buffer, which the caller of `read` holds until all reads
                // are done. Pieces do not overlap, and who hands buffers to this class of the package's own lets nobody
                // else read or write them meanwhile.
                let into =
                    unsafe { std::slice::from_raw_parts_mut(read.address as *mut u8, read.bytes) };
                let done = self.table.read_plain(read.place, read.column, read.rows.clone(), into);
                if done.is_err() {
                    next.store(reads.len(), Ordering::Relaxed);
                }
                done?;
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let others = 1..threads.min(reads.len());
            let others: Vec<_> = others.map(|_| scope.spawn(work)).collect();
            let own = work();
            let joined = others.into_iter().map(|thread| thread.join());
            joined.fold(own, |done, joined| match joined {
                Ok(result) => done.and(result),
                Err(panic) => std::panic::resume_unwind(panic),
            })
        })
    }
}

/// Fills a buffer of 64-bit numbers with those below its length, in an order that follows from some words: Fisher and Yates's
/// shuffle, with numbers of SplitMix64.
#[pyfunction]
pub fn shuffle(py: Python<'_>, words: Vec<u64>, buffer: PyBuffer<i64>) -> PyResult<()> {
    if buffer.readonly() || !buffer.is_c_contiguous() {
        let cause = "the buffer is read-only, or in parts";
        return Err(failures::of_value(py, Class::Setting, cause));
    }
    let (address, count) = (buffer.buf_ptr() as usize, buffer.item_count());
    py.detach(|| {
        // SAFETY: a writable, contiguous buffer of so many numbers, held until the end; of its users as above.
        let order = unsafe { std::slice::from_raw_parts_mut(address as *mut i64, count) };
        order.iter_mut().zip(0..).for_each(|(place, number)| *place = number);
        let seed = words.iter().fold(0, |seed, word| mixed(seed ^ mixed(word.wrapping_add(GAMMA))));
        for (draw, last) in (1..count).rev().enumerate() {
            let drawn = mixed(seed.wrapping_add((draw as u64).wrapping_mul(GAMMA)));
            // The bias of one draw is below n / 2^64.
            let at = (u128::from(drawn) * (last as u128 + 1)) >> 64;
            order.swap(last, at as usize);
        }
    });
    Ok(())
}

/// The exception of an error of reading.
pub fn raised(py: Python<'_>, error: &FormatError) -> PyErr {
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
