//! The input and output vectors of a product.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use headrace_io::write::WriteAt;
use headrace_io::{MemoryBudget, MemoryUse, ReadAt, Reservation, huge};

use crate::files::write_all;
use crate::npy::{self, Npy};
use crate::{Files, NumberType, OocError, Result};

/// Bytes per read or write.
const BLOCK_BYTES: usize = 1 << 20;

/// The limit: more vectors are a product of matrices.
const VECTORS_MAX: u64 = 1 << 12;

/// A file with one vector, or several: `n x k` values, where each column is a vector.
#[derive(Debug, Clone)]
pub struct VectorFile {
    /// Its path.
    pub path: PathBuf,
    /// The layout, if it has only raw values; `None`: a `.npy` file, of one axis or two.
    pub raw: Option<RawVectors>,
}

/// The layout of a raw file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawVectors {
    /// Type of the values.
    pub number: NumberType,
    /// Interleaved vectors: the first values of all, then the second ones.
    pub vectors: u64,
}

/// Vectors in memory, consecutively, in huge pages: a sparse product takes factors from anywhere.
#[derive(Debug)]
pub(crate) struct Vectors {
    pub values: Vec<f64>,
    /// Values of each.
    pub length: usize,
    /// The number of vectors.
    pub count: usize,
    /// Whether their file has one axis.
    pub is_flat: bool,
    /// Type in the file.
    pub number: NumberType,
    /// Bytes of their file.
    pub file_bytes: u64,
    _memory: Reservation,
}

impl Vectors {
    /// Reads vectors of `length` values; the name appears in errors.
    ///
    /// # Errors
    /// [`OocError::Input`] for another file, with both lengths if they differ; [`OocError::Budget`]
    /// if they do not fit; errors of the read.
    pub fn read(
        files: &dyn Files,
        memory: &Arc<MemoryBudget>,
        source: &VectorFile,
        length: usize,
        name: &str,
    ) -> Result<Vectors> {
        let file = files.open(&source.path)?;
        let layout = Layout::of(&*file, source.raw)?;
        if layout.length != length as u64 {
            let what = format!("{name} has {} values, the matrix takes {length}", layout.length);
            let remedy = "a product needs as many values as the matrix has columns, that with its \
                          transposed as many as it has rows";
            return Err(OocError::input(&source.path, what, remedy));
        }
        let is_float =
            matches!(layout.number, NumberType::F32 | NumberType::F64 | NumberType::Bf16);
        if !is_float {
            let what = format!("{name} has values of {}", layout.number);
            return Err(OocError::input(&source.path, what, "array.astype('<f8')"));
        }
        if layout.vectors > VECTORS_MAX {
            let what = format!("{name} is {} vectors, {VECTORS_MAX} are the most", layout.vectors);
            return Err(OocError::input(&source.path, what, "multiply some at a time"));
        }
        let count = layout.vectors as usize;
        let memory = memory
            .reserve(MemoryUse::Pipelines, (length * count) as u64 * 8 + BLOCK_BYTES as u64)?;
        let values = layout.read(&*file, length, count)?;
        file.check_unchanged()?;
        let Layout { is_flat, number, .. } = layout;
        let file_bytes = file.size_bytes();
        Ok(Vectors { values, length, count, is_flat, number, file_bytes, _memory: memory })
    }

    /// One vector of computed values.
    pub fn one(
        memory: &Arc<MemoryBudget>,
        values: impl Iterator<Item = f64>,
        length: usize,
    ) -> Result<Vectors> {
        Vectors::made(memory, values, (length, 1))
    }

    /// Several computed vectors, one after the other.
    pub fn made(
        memory: &Arc<MemoryBudget>,
        values: impl Iterator<Item = f64>,
        (length, count): (usize, usize),
    ) -> Result<Vectors> {
        let bytes = (length as u64).saturating_mul(count as u64).saturating_mul(8);
        let memory = memory.reserve(MemoryUse::Pipelines, bytes)?;
        let mut all = huge::reserved(length * count);
        all.extend(values.take(length * count));
        let (values, is_flat) = (all, count == 1);
        let (number, file_bytes) = (NumberType::F32, 0);
        Ok(Vectors { values, length, count, is_flat, number, file_bytes, _memory: memory })
    }

    /// As many others, with the memory that is reserved for them.
    pub fn replace(&mut self, values: Vec<f64>, memory: Reservation) {
        assert_eq!(values.len(), self.values.len(), "as many vectors as before");
        (self.values, self._memory) = (values, memory);
    }
}

/// The layout of vectors in a file.
struct Layout {
    number: NumberType,
    length: u64,
    vectors: u64,
    is_flat: bool,
    /// Whether each vector's values are contiguous.
    by_vector: bool,
    offset: u64,
}

impl Layout {
    fn of(file: &dyn ReadAt, raw: Option<RawVectors>) -> Result<Layout> {
        let Some(RawVectors { number, vectors }) = raw else {
            let Npy { number, is_fortran, shape, data_offset: offset } = Npy::of(file)?;
            let (length, vectors, is_flat) = match shape[..] {
                [length] => (length, 1, true),
                [length, vectors] if vectors > 0 => (length, vectors, false),
                _ => {
                    let what = format!("an array of shape {shape:?}");
                    let remedy = "a vector has one axis, several have two: values, then vectors";
                    return Err(OocError::input(file.path(), what, remedy));
                }
            };
            return Ok(Layout { number, length, vectors, is_flat, by_vector: is_fortran, offset });
        };
        let row_bytes = vectors.checked_mul(number.bytes() as u64).filter(|bytes| *bytes > 0);
        let fits = row_bytes.filter(|row_bytes| file.size_bytes().is_multiple_of(*row_bytes));
        let Some(row_bytes) = fits else {
            let bytes = file.size_bytes();
            let what = format!("its {bytes} bytes are no values of {number} for {vectors} vectors");
            let remedy = "give the type and the number of vectors that it was written with";
            return Err(OocError::input(file.path(), what, remedy));
        };
        let length = file.size_bytes() / row_bytes;
        let (is_flat, by_vector, offset) = (vectors == 1, false, 0);
        Ok(Layout { number, length, vectors, is_flat, by_vector, offset })
    }

    /// The values, vector by vector.
    fn read(&self, file: &dyn ReadAt, length: usize, count: usize) -> Result<Vec<f64>> {
        let (width, values) = (self.number.bytes(), length * count);
        let mut all = huge::zeroed(values);
        let mut block = vec![0; BLOCK_BYTES];
        let mut done = 0;
        while done < values {
            let here = (values - done).min(BLOCK_BYTES / width);
            let bytes = &mut block[..here * width];
            file.read_exact_at(self.offset + (done * width) as u64, bytes)?;
            for (at, value) in (done..).zip(bytes.chunks_exact(width)) {
                let at = if self.by_vector { at } else { at % count * length + at / count };
                all[at] = widened(self.number, value);
            }
            done += here;
        }
        Ok(all)
    }
}

fn widened(number: NumberType, bytes: &[u8]) -> f64 {
    match (number, bytes) {
        (NumberType::Bf16, &[a, b]) => f64::from(f32::from_le_bytes([0, 0, a, b])),
        (NumberType::F32, &[a, b, c, d]) => f64::from(f32::from_le_bytes([a, b, c, d])),
        (NumberType::F64, &[a, b, c, d, e, f, g, h]) => {
            f64::from_le_bytes([a, b, c, d, e, f, g, h])
        }
        _ => unreachable!("vectors are of floating-point numbers"),
    }
}

/// The shape of vectors in a file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    /// Values of each.
    pub length: usize,
    pub count: usize,
    /// Whether the file has one axis.
    pub is_flat: bool,
    /// Type in the file: f32 or f64.
    pub number: NumberType,
}

/// A begun file for vectors: invisible before its commit.
#[derive(Debug)]
pub(crate) struct Written {
    pub sink: Arc<dyn WriteAt>,
    header: Vec<u8>,
    shape: Shape,
}

impl Written {
    /// A name that ends in `.npy` gets that format, any other raw values.
    pub fn begin(files: &dyn Files, path: &Path, shape: Shape) -> Result<Written> {
        let lengths = [shape.length as u64, shape.count as u64];
        let header = match path.extension().is_some_and(|extension| extension == "npy") {
            true => npy::header(shape.number, if shape.is_flat { &lengths[..1] } else { &lengths }),
            false => Vec::new(),
        };
        let value_bytes = (shape.length * shape.count * shape.number.bytes()) as u64;
        let sink = files.create(path, header.len() as u64 + value_bytes)?;
        Ok(Written { sink, header, shape })
    }

    /// Writes consecutive vectors.
    pub fn write(&self, vectors: &[f64]) -> Result<()> {
        let Shape { length, count, number, .. } = self.shape;
        write_all(&*self.sink, 0, &self.header)?;
        let (mut offset, mut block) = (self.header.len() as u64, Vec::with_capacity(BLOCK_BYTES));
        for at in 0..length * count {
            let value = vectors[at % count * length + at / count];
            match number {
                NumberType::F64 => block.extend(value.to_le_bytes()),
                _ => block.extend((value as f32).to_le_bytes()),
            }
            if block.len() + 8 > BLOCK_BYTES || at + 1 == length * count {
                write_all(&*self.sink, offset, &block)?;
                offset += block.len() as u64;
                block.clear();
            }
        }
        Ok(())
    }
}

pub(crate) fn check_result(result: Option<NumberType>) -> Result<()> {
    match result {
        None | Some(NumberType::F32 | NumberType::F64) => Ok(()),
        Some(other) => {
            Err(OocError::usage(format!("a result of {other}"), "results are of f32 or f64"))
        }
    }
}

/// The wider one.
pub(crate) fn result_type(matrix: NumberType, vector: NumberType) -> NumberType {
    let wide = [matrix, vector].contains(&NumberType::F64);
    if wide { NumberType::F64 } else { NumberType::F32 }
}

/// Puts all results in place; returns their bytes.
pub(crate) fn commit<'a>(
    results: impl Iterator<Item = &'a Written> + Clone,
    sync: bool,
) -> Result<u64> {
    results.clone().try_for_each(|result| result.sink.commit(sync))?;
    Ok(results.map(|result| result.sink.size_bytes()).sum())
}
