//! The matrix as stored in its file.

use std::path::Path;
use std::sync::Arc;

use headrace_format::arrow::ArrowTable;
use headrace_io::ReadAt;

use super::columns;
use super::file::{MatrixFile, RawMatrix};
use crate::npy::{self, Npy};
use crate::{Files, NumberType, OocError, Result};

/// A matrix with rows that are contiguous or in pieces. If `is_transposed`, it is the transpose of the user's matrix: a
/// column-major file holds the transpose in row-major order.
#[derive(Debug, Clone)]
pub(crate) struct Matrix {
    pub file: Arc<dyn ReadAt>,
    /// Offset of the first row.
    pub offset: u64,
    pub rows: usize,
    pub columns: usize,
    pub number: NumberType,
    pub is_transposed: bool,
    /// For rows that are not contiguous: the columns of this table are the rows.
    pub table: Option<Arc<ArrowTable>>,
}

impl Matrix {
    /// Opens a matrix without reading values.
    ///
    /// # Errors
    /// [`OocError::Input`] for a file that is not a matrix of floating-point numbers; errors of the
    /// files.
    pub fn open(files: &dyn Files, source: &MatrixFile) -> Result<Matrix> {
        let file = files.open(&source.path)?;
        let mut table = None;
        let (raw, offset, is_transposed) = match source.raw {
            Some(raw) => (check_raw(&*file, raw)?, 0, false),
            None if begins(&*file, columns::MAGIC)? => {
                let (opened, raw) = columns::open(&*file)?;
                table = Some(opened);
                (raw, 0, true)
            }
            None => of_npy(&*file)?,
        };
        let RawMatrix { rows, columns, number } = raw;
        if !matches!(number, NumberType::F32 | NumberType::F64 | NumberType::Bf16) {
            let remedy = "f32, f64 and, in a raw file, bf16 are multiplied (array.astype('<f8'))";
            return Err(OocError::input(file.path(), format!("values of {number}"), remedy));
        }
        let (rows, columns) = (count(file.path(), rows)?, count(file.path(), columns)?);
        let of_lines = |lines: usize| lines.checked_mul(number.bytes()).is_some();
        if !(of_lines(rows) && of_lines(columns)) {
            let what = format!("{rows} rows and {columns} columns are more than a memory has");
            return Err(OocError::input(
                file.path(),
                what,
                "give the shape that it was written with",
            ));
        }
        Ok(Matrix { file, offset, rows, columns, number, is_transposed, table }.narrowed())
    }

    /// A single column is a single row of the transpose, which has longer sums.
    fn narrowed(self) -> Matrix {
        match self.columns {
            1 if self.rows > 1 && self.table.is_none() => {
                let (rows, columns, is_transposed) = (1, self.rows, !self.is_transposed);
                Matrix { rows, columns, is_transposed, ..self }
            }
            _ => self,
        }
    }

    /// Bytes of a row.
    pub fn row_bytes(&self) -> usize {
        self.columns * self.number.bytes()
    }

    /// Bytes of all rows, which the file has.
    pub fn bytes(&self) -> u64 {
        self.rows as u64 * self.row_bytes() as u64
    }

    /// The user's rows and columns.
    pub fn shape(&self) -> (usize, usize) {
        if self.is_transposed { (self.columns, self.rows) } else { (self.rows, self.columns) }
    }
}

fn count(path: &Path, values: u64) -> Result<usize> {
    let fits = usize::try_from(values).ok().filter(|values| isize::try_from(*values).is_ok());
    fits.ok_or_else(|| OocError::input(path, format!("an axis of {values} values"), "cut it"))
}

/// Whether a file begins with these bytes.
fn begins(file: &dyn ReadAt, magic: &[u8]) -> Result<bool> {
    let mut start = vec![0; magic.len().min(file.size_bytes() as usize)];
    file.read_exact_at(0, &mut start)?;
    Ok(start == magic)
}

fn of_npy(file: &dyn ReadAt) -> Result<(RawMatrix, u64, bool)> {
    if !begins(file, npy::MAGIC)? {
        let remedy = "for a file of nothing but values give their rows, columns and type";
        let what = "neither .npy nor Arrow IPC, nor told to be raw";
        return Err(OocError::input(file.path(), what, remedy));
    }
    let Npy { number, is_fortran, shape, data_offset } = Npy::of(file)?;
    let (rows, columns, is_fortran) = match shape[..] {
        [columns] => (1, columns, false),
        [rows, columns] => (rows, columns, is_fortran),
        _ => {
            let what = format!("an array of {} axes", shape.len());
            return Err(OocError::input(file.path(), what, "array.reshape to rows and columns"));
        }
    };
    let (rows, columns) = if is_fortran { (columns, rows) } else { (rows, columns) };
    Ok((RawMatrix { rows, columns, number }, data_offset, is_fortran))
}

fn check_raw(file: &dyn ReadAt, raw: RawMatrix) -> Result<RawMatrix> {
    let RawMatrix { rows, columns, number } = raw;
    let row_bytes = columns.checked_mul(number.bytes() as u64);
    let bytes = row_bytes.and_then(|row_bytes| row_bytes.checked_mul(rows));
    if bytes == Some(file.size_bytes()) {
        return Ok(raw);
    }
    let wanted = bytes.map_or("more than any file has".to_string(), |bytes| bytes.to_string());
    let what = format!(
        "{rows} rows of {columns} values of {number} are {wanted} bytes, the file has {}",
        file.size_bytes()
    );
    Err(OocError::input(
        file.path(),
        what,
        "give the rows, columns and type that it was written with",
    ))
}
