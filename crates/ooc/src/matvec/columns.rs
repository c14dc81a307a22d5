//! A table of an Arrow IPC file as a matrix: each column of the table is a row of the transposed matrix, in as many
//! pieces as the file has record batches.

use std::path::Path;
use std::sync::Arc;

use arrow_schema::DataType;
use headrace_format::arrow::ArrowTable;
use headrace_format::{ChunkOptions, Feed, Table};
use headrace_io::{MemoryBudget, MemoryUse, ReadAt, Reservation};

use super::file::RawMatrix;
use crate::{NumberType, OocError, Result};

/// The first bytes of an Arrow IPC file.
pub(crate) const MAGIC: &[u8] = b"ARROW1";

/// Rows of a record batch: the same number of contiguous values of each column.
#[derive(Debug)]
pub(crate) struct Part {
    /// Position of its first row in the table.
    pub first: usize,
    pub rows: usize,
    /// Offset of each column's values in the file.
    pub offsets: Box<[u64]>,
}

/// All parts of a table.
#[derive(Debug)]
pub(crate) struct Parts {
    pub parts: Vec<Part>,
    _memory: Reservation,
}

/// Opens a file's table whose columns all have one type, without NULLs; returns its transposed
/// matrix.
///
/// # Errors
/// [`OocError::Input`] for other columns; [`OocError::Format`].
pub(crate) fn open(file: &dyn ReadAt) -> Result<(Arc<ArrowTable>, RawMatrix)> {
    let path = file.path();
    let table = Arc::new(ArrowTable::open(&[path.to_path_buf()])?);
    if table.file_count() != 1 || table.file_identity(0) != file.identity() {
        let remedy = "try again when nobody writes to it";
        return Err(OocError::input(path, "the file was replaced while it was opened", remedy));
    }
    let mut number = None;
    for (column, field) in table.schema().fields().iter().enumerate() {
        let fault = |what: String, remedy: &str| {
            Err(OocError::input(path, format!("column {} {what}", field.name()), remedy))
        };
        let found = match field.data_type() {
            DataType::Float32 => NumberType::F32,
            DataType::Float64 => NumberType::F64,
            other => {
                return fault(
                    format!("is of {other}"),
                    "a matrix has columns of Float32 or Float64",
                );
            }
        };
        if *number.get_or_insert(found) != found {
            return fault(format!("is of {found}, the first is not"), "cast all to one type");
        }
        if let Err(why) = table.column_support(column) {
            return fault(
                format!("cannot be read in place: {why}"),
                "write it without compression",
            );
        }
        if table.column_stats(column).null_count != Some(0) {
            return fault("has NULLs, or does not say".to_string(), "fill them (fill_null(0))");
        }
    }
    let (rows, columns) = (table.schema().fields().len() as u64, Table::rows(&*table));
    let Some(number) = number else {
        return Err(OocError::input(path, "a table without columns", "give one that has some"));
    };
    Ok((table, RawMatrix { rows, columns: columns.unwrap_or(0), number }))
}

impl Parts {
    /// The parts of a table, of up to `part_bytes`, as far as batches can be cut.
    ///
    /// # Errors
    /// [`OocError::Budget`] if the list does not fit; [`OocError::Format`].
    pub fn of(
        table: &Arc<ArrowTable>,
        path: &Path,
        part_bytes: usize,
        memory: &Arc<MemoryBudget>,
    ) -> Result<Arc<Parts>> {
        let columns: Vec<usize> = (0..table.schema().fields().len()).collect();
        let bytes = part_bytes.max(1) as u64;
        let options = ChunkOptions {
            chunk_bytes_max: bytes,
            chunk_bytes_wanted: bytes,
            // A part is one tile.
            chunk_segments_max: 1,
            ..ChunkOptions::default()
        };
        let feed = ArrowTable::feed(table, &columns, &[], options)?;
        let parts_max = feed.facts().bounds.chunks.unwrap_or(0).max(1);
        let part_list_bytes = (size_of::<Part>() + 8 * columns.len()) as u64;
        let mut memory =
            memory.reserve(MemoryUse::Pipelines, parts_max.saturating_mul(part_list_bytes))?;
        let (mut parts, mut first) = (Vec::new(), 0);
        for chunk in feed {
            for segment in chunk?.segments {
                let is_plain =
                    segment.columns.iter().all(|c| c.offsets.is_none() && c.validity.is_none());
                if !is_plain {
                    let what = "a record batch has NULLs";
                    return Err(OocError::input(path, what, "fill them (fill_null(0))"));
                }
                let offsets = segment.columns.iter().map(|column| column.values.offset).collect();
                let rows = segment.rows as usize;
                parts.push(Part { first, rows, offsets });
                first += rows;
            }
        }
        memory.resize(parts.len() as u64 * part_list_bytes)?;
        Ok(Arc::new(Parts { parts, _memory: memory }))
    }
}
