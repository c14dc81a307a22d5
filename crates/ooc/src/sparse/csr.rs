//! The arrays of a matrix as they lie in files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use headrace_io::{ReadAt, ReadSpec};

use super::archive;
use crate::npy::{MAGIC, Npy};
use crate::{Files, NumberType, OocError, Result};

/// A sparse matrix as its user names it: a folder with `indptr.npy`, `indices.npy` and, if values are not all 1,
/// `data.npy`; or a `.npz` with these members, not compressed.
#[derive(Debug, Clone)]
pub struct CsrFile {
    /// Its path.
    pub path: PathBuf,
}

/// One array, contiguous in its file.
#[derive(Debug, Clone)]
pub(crate) struct Array {
    pub file: Arc<dyn ReadAt>,
    /// The same for arrays of one file.
    pub file_number: usize,
    pub number: NumberType,
    pub length: usize,
    pub offset: u64,
}

impl Array {
    /// Where some values lie.
    pub fn read(&self, from: usize, to: usize) -> ReadSpec {
        let width = self.number.bytes() as u64;
        let (offset, bytes) = (self.offset + from as u64 * width, (to - from) as u64 * width);
        ReadSpec { file: self.file_number, offset, bytes }
    }

    /// Some values of an array of integers, as 64 bits. Negative ones become larger than any length.
    pub fn integers(&self, from: usize, to: usize) -> Result<Vec<u64>> {
        let ReadSpec { offset, bytes, .. } = self.read(from, to);
        let mut read = vec![0; bytes as usize];
        self.file.read_exact_at(offset, &mut read)?;
        Ok(match self.number.bytes() {
            4 => read
                .as_chunks()
                .0
                .iter()
                .map(|value| u64::from(u32::from_le_bytes(*value)))
                .collect(),
            _ => read.as_chunks().0.iter().map(|value| u64::from_le_bytes(*value)).collect(),
        })
    }

    /// Bytes of all values.
    pub fn bytes(&self) -> u64 {
        self.length as u64 * self.number.bytes() as u64
    }
}

/// A matrix in compressed sparse rows.
#[derive(Debug, Clone)]
pub(crate) struct Csr {
    pub path: PathBuf,
    pub rows: usize,
    pub columns: usize,
    pub entries: usize,
    pub indptr: Array,
    pub indices: Array,
    pub data: Option<Array>,
}

impl Csr {
    /// Opens a matrix: reads headers, the shape, and both ends of `indptr`.
    ///
    /// # Errors
    /// [`OocError::Input`] for arrays that are no matrix; errors of the files.
    pub fn open(files: &dyn Files, source: &CsrFile) -> Result<Csr> {
        let path = &source.path;
        let arrays = match path.is_dir() {
            true => Arrays::Folder(path),
            false => {
                let file = files.open(path)?;
                Arrays::Archive { members: archive::members(&*file)?, file }
            }
        };
        if arrays.has("format") {
            arrays.check_format(path, files)?;
        }
        let missing = |name: &str| {
            let remedy = "a matrix in compressed sparse rows has indptr, indices and data (scipy: A.tocsr())";
            OocError::input(path, format!("there is no {name}.npy in it"), remedy)
        };
        let indptr = arrays.array(files, "indptr", 0)?.ok_or_else(|| missing("indptr"))?;
        let indices = arrays.array(files, "indices", 1)?.ok_or_else(|| missing("indices"))?;
        let data = arrays.array(files, "data", 2)?;
        let shape = arrays.array(files, "shape", 3)?;
        let csr =
            Csr { path: path.clone(), rows: 0, columns: 0, entries: 0, indptr, indices, data };
        csr.shaped(shape.as_ref())
    }

    /// With the numbers of rows, columns and entries, which the arrays must agree on.
    fn shaped(self, shape: Option<&Array>) -> Result<Csr> {
        let Csr { path, indptr, indices, data, .. } = self;
        let fault = |array: &Array, what: String, remedy: &str| {
            Err(OocError::input(array.file.path(), what, remedy))
        };
        for (name, array) in [("indptr", &indptr), ("indices", &indices)] {
            if matches!(array.number, NumberType::F32 | NumberType::F64 | NumberType::Bf16) {
                let what = format!("{name} has values of {}", array.number);
                return fault(array, what, "indices are integers (array.astype('<i8'))");
            }
        }
        let entries = indices.length;
        if let Some(data) = &data {
            if !matches!(data.number, NumberType::F32 | NumberType::F64) {
                let what = format!("data has values of {}", data.number);
                return fault(
                    data,
                    what,
                    "f32 and f64 are multiplied (A.astype('<f8')); without data all are 1",
                );
            }
            if data.length != entries {
                let what = format!("data has {} values, indices has {entries}", data.length);
                return fault(data, what, "write the matrix anew");
            }
        }
        let Some(rows) = indptr.length.checked_sub(1) else {
            return fault(&indptr, "indptr is empty".into(), "it has one value more than rows");
        };
        let columns = match shape {
            None => rows,
            Some(shape) => match shape.integers(0, shape.length.min(3))?[..] {
                [has_rows, columns]
                    if has_rows == rows as u64 && usize::try_from(columns).is_ok() =>
                {
                    columns as usize
                }
                [has_rows, _] if has_rows != rows as u64 => {
                    let what = format!("shape says {has_rows} rows, indptr has {rows}");
                    return fault(shape, what, "write the matrix anew");
                }
                _ => {
                    return fault(
                        shape,
                        "shape is not rows and columns".into(),
                        "write the matrix anew",
                    );
                }
            },
        };
        // A type of 32 bits with a sign has no numbers beyond these: they are negative ones.
        let ends = [indptr.integers(0, 1)?[0], indptr.integers(rows, rows + 1)?[0]];
        let is_wrapped = indptr.number == NumberType::I32 && entries > i32::MAX as usize;
        if ends != [0, entries as u64] || is_wrapped {
            let what =
                format!("indptr goes from {} to {}, there are {entries} entries", ends[0], ends[1]);
            return fault(&indptr, what, "it goes from 0 to the number of indices");
        }
        Ok(Csr { path, rows, columns, entries, indptr, indices, data })
    }

    /// # Errors
    /// [`OocError::Input`] for a matrix that is not square, or has no rows.
    pub fn check_graph(&self) -> Result<()> {
        let Csr { path, rows, columns, .. } = self;
        if rows == columns && *rows > 0 {
            return Ok(());
        }
        let what = format!("{rows} rows and {columns} columns are no graph");
        Err(OocError::input(path, what, "a graph has as many of both, and some"))
    }

    /// Indices must be below this. Read as unsigned, a negative one is not.
    pub fn index_end(&self) -> u64 {
        let end = if self.indices.number == NumberType::I32 { 1 << 31 } else { u64::MAX };
        end.min(self.columns as u64)
    }

    /// The same entries, all of value 1.
    pub fn without_values(&self) -> Csr {
        Csr { data: None, ..self.clone() }
    }

    /// The values' type, if they are not all 1.
    pub fn number(&self) -> Option<NumberType> {
        self.data.as_ref().map(|data| data.number)
    }

    /// All arrays that a product reads.
    pub fn arrays(&self) -> impl Iterator<Item = &Array> {
        [&self.indptr, &self.indices].into_iter().chain(&self.data)
    }

    /// Bytes of all arrays.
    pub fn bytes(&self) -> u64 {
        self.arrays().map(Array::bytes).sum()
    }
}

/// Bytes of a file that are a `.npy` file.
struct Place {
    file: Arc<dyn ReadAt>,
    offset: u64,
    bytes: u64,
}

/// Where arrays are looked for.
enum Arrays<'a> {
    Folder(&'a Path),
    Archive { file: Arc<dyn ReadAt>, members: Vec<archive::Member> },
}

impl Arrays<'_> {
    fn has(&self, name: &str) -> bool {
        match self {
            Arrays::Folder(folder) => folder.join(format!("{name}.npy")).exists(),
            Arrays::Archive { .. } => self.member(name).is_some(),
        }
    }

    fn member(&self, name: &str) -> Option<&archive::Member> {
        let Arrays::Archive { members, .. } = self else { return None };
        members.iter().find(|member| member.name.strip_suffix(".npy") == Some(name))
    }

    /// Where an array lies, if it is there.
    fn place(&self, files: &dyn Files, name: &str) -> Result<Option<Place>> {
        match self {
            Arrays::Folder(folder) if self.has(name) => {
                let file = files.open(&folder.join(format!("{name}.npy")))?;
                let bytes = file.size_bytes();
                Ok(Some(Place { file, offset: 0, bytes }))
            }
            Arrays::Archive { file, .. } => {
                let place = |&archive::Member { offset, bytes, .. }: &_| Place {
                    file: file.clone(),
                    offset,
                    bytes,
                };
                Ok(self.member(name).map(place))
            }
            Arrays::Folder(_) => Ok(None),
        }
    }

    fn array(
        &self,
        files: &dyn Files,
        name: &str,
        number_in_folder: usize,
    ) -> Result<Option<Array>> {
        let Some(Place { file, offset, bytes }) = self.place(files, name)? else { return Ok(None) };
        let npy = Npy::within(&*file, offset, bytes)?;
        let length = match npy.shape[..] {
            [length] => {
                usize::try_from(length).ok().filter(|length| isize::try_from(*length).is_ok())
            }
            _ => None,
        };
        let Some(length) = length else {
            let what = format!("{name} is an array of shape {:?}", npy.shape);
            return Err(OocError::input(file.path(), what, "it has one axis"));
        };
        let file_number = if matches!(self, Arrays::Folder(_)) { number_in_folder } else { 0 };
        Ok(Some(Array { file, file_number, number: npy.number, length, offset: npy.data_offset }))
    }

    /// SciPy's archives say which of its formats they have, as text without an axis.
    fn check_format(&self, path: &Path, files: &dyn Files) -> Result<()> {
        let Some(Place { file, offset, bytes }) = self.place(files, "format")? else {
            return Ok(());
        };
        let mut start = vec![0; bytes.min(1 << 10) as usize];
        file.read_exact_at(offset, &mut start)?;
        // Text of wide characters has zeros in it.
        start.retain(|byte| *byte != 0);
        if start.starts_with(MAGIC) && start.ends_with(b"csr") {
            return Ok(());
        }
        let format = String::from_utf8_lossy(&start[start.len().saturating_sub(3)..]).into_owned();
        let what = format!("a matrix in format {format:?}");
        Err(OocError::input(
            path,
            what,
            "rows are streamed: scipy.sparse.save_npz(.., A.tocsr(), compressed=False)",
        ))
    }
}
