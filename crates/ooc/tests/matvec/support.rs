//! Matrices in memory and in files, and plain loops over them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{ArrayRef, Float32Array, Float64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use headrace_flow::HostMemory;
use headrace_format::arrow::{ArrowWriter, WriterOptions};
use headrace_io::random::Random;
use headrace_ooc::matvec::{
    MatrixFile, MatvecJob, MatvecReport, Product, RawMatrix, RawVectors, VectorFile, multiply,
};
use headrace_ooc::{NumberType, Options, Processor, npy};
use tempfile::TempDir;

/// A matrix in memory, and how it is to lie in its file.
#[derive(Debug, Clone)]
pub struct Matrix {
    pub rows: usize,
    pub columns: usize,
    pub number: NumberType,
    pub layout: Layout,
    pub values: Vec<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Layout {
    Raw,
    Npy,
    NpyFortran,
    /// With so many rows in a record batch.
    Arrow(usize),
}

/// Numbers between -1 and 1, and the same for the same seed.
pub fn random(seed: u64, count: usize, number: NumberType) -> Vec<f64> {
    let mut random = Random(seed);
    let mut next = || random.draw() as i64 as f64 / 2f64.powi(63);
    (0..count).map(|_| stored(next(), number)).collect()
}

/// The value that is left of one when it was stored.
pub fn stored(value: f64, number: NumberType) -> f64 {
    match number {
        NumberType::F64 => value,
        NumberType::F32 => f64::from(value as f32),
        _ => f64::from(f32::from_bits((value as f32).to_bits() & 0xffff_0000)),
    }
}

pub fn bytes_of(values: impl Iterator<Item = f64>, number: NumberType) -> Vec<u8> {
    let bytes = |value: f64| match number {
        NumberType::F64 => value.to_le_bytes().to_vec(),
        NumberType::F32 => (value as f32).to_le_bytes().to_vec(),
        _ => (value as f32).to_le_bytes()[2..].to_vec(),
    };
    values.flat_map(bytes).collect()
}

impl Matrix {
    pub fn random(seed: u64, (rows, columns): (usize, usize), number: NumberType) -> Matrix {
        let values = random(seed, rows * columns, number);
        Matrix { rows, columns, number, layout: Layout::Raw, values }
    }

    pub fn transposed_values(&self) -> impl Iterator<Item = f64> {
        (0..self.rows * self.columns)
            .map(|at| self.values[at % self.rows * self.columns + at / self.rows])
    }

    pub fn write(&self, folder: &Path) -> MatrixFile {
        let (rows, columns) = (self.rows as u64, self.columns as u64);
        let path = folder.join("a");
        let rows_first = || bytes_of(self.values.iter().copied(), self.number);
        let (bytes, raw) = match self.layout {
            Layout::Arrow(batch_rows) => {
                self.write_arrow(&path, batch_rows);
                return MatrixFile { path, raw: None };
            }
            Layout::Raw => (rows_first(), Some(RawMatrix { rows, columns, number: self.number })),
            Layout::Npy => {
                ([npy::header(self.number, &[rows, columns]), rows_first()].concat(), None)
            }
            Layout::NpyFortran => {
                let header = npy::header(self.number, &[rows, columns]);
                let header = String::from_utf8_lossy(&header[10..]).into_owned();
                let header = header.replace("False", "True ");
                let length = (header.len() as u16).to_le_bytes();
                let prefix = [npy::MAGIC, &[1, 0], &length, header.as_bytes()].concat();
                let values = bytes_of(self.transposed_values(), self.number);
                ([prefix, values].concat(), None)
            }
        };
        std::fs::write(&path, bytes).unwrap();
        MatrixFile { path, raw }
    }

    fn write_arrow(&self, path: &Path, rows_per_batch: usize) {
        let float = match self.number {
            NumberType::F32 => DataType::Float32,
            _ => DataType::Float64,
        };
        let field = |column| Field::new(format!("c{column}"), float.clone(), false);
        let schema = Schema::new((0..self.columns).map(field).collect::<Vec<_>>());
        let options = WriterOptions { rows_per_batch, statistics: false };
        let mut writer = ArrowWriter::create(path, &schema, options).unwrap();
        let column = |column| -> ArrayRef {
            let values = (0..self.rows).map(move |row| self.values[row * self.columns + column]);
            match self.number {
                NumberType::F32 => {
                    Arc::new(Float32Array::from_iter_values(values.map(|value| value as f32)))
                }
                _ => Arc::new(Float64Array::from_iter_values(values)),
            }
        };
        let columns = (0..self.columns).map(column).collect();
        let batch = RecordBatch::try_new(Arc::new(schema), columns).unwrap();
        writer.write(&batch).unwrap();
        writer.finish().unwrap();
    }

    /// For each row or, transposed, each column and each vector the product and the sum of its terms'
    /// magnitudes.
    pub fn product(&self, x: &[f64], vectors: usize, transposed: bool) -> Vec<(f64, f64)> {
        let length = if transposed { self.columns } else { self.rows };
        let mut y = vec![(0.0, 0.0); length * vectors];
        for row in 0..self.rows {
            for column in 0..self.columns {
                let a = self.values[row * self.columns + column];
                let (to, from) = if transposed { (column, row) } else { (row, column) };
                for vector in 0..vectors {
                    let term = a * x[from * vectors + vector];
                    let (sum, magnitude) = &mut y[to * vectors + vector];
                    *sum += term;
                    *magnitude += term.abs();
                }
            }
        }
        y
    }
}

/// One vector or several in a file.
#[derive(Debug, Clone)]
pub struct X {
    pub values: Vec<f64>,
    pub vectors: usize,
    pub number: NumberType,
    pub is_raw: bool,
}

impl X {
    pub fn random(seed: u64, length: usize, vectors: usize, number: NumberType, is_raw: bool) -> X {
        X { values: random(seed, length * vectors, number), vectors, number, is_raw }
    }

    pub fn write(&self, path: PathBuf) -> VectorFile {
        let (number, vectors) = (self.number, self.vectors as u64);
        let bytes = bytes_of(self.values.iter().copied(), number);
        if self.is_raw {
            std::fs::write(&path, bytes).unwrap();
            return VectorFile { path, raw: Some(RawVectors { number, vectors }) };
        }
        let length = self.values.len() as u64 / vectors;
        let shape = if vectors == 1 { vec![length] } else { vec![length, vectors] };
        std::fs::write(&path, [npy::header(number, &shape), bytes].concat()).unwrap();
        VectorFile { path, raw: None }
    }
}

/// A job in a folder of its own.
pub struct Case {
    pub folder: TempDir,
    pub job: MatvecJob,
}

impl Case {
    pub fn new(matrix: &Matrix, x: Option<&X>, x_transposed: Option<&X>) -> Case {
        let folder = TempDir::new().unwrap();
        let at = |name: &str| folder.path().join(name);
        let product = |x: Option<&X>, name: &str| {
            let name = |end: &str| at(&format!("{name}{end}"));
            x.map(|x| Product { x: x.write(name(".x")), y: name(".raw") })
        };
        let job = MatvecJob {
            matrix: matrix.write(folder.path()),
            product: product(x, "product"),
            transposed: product(x_transposed, "transposed"),
            result: Some(NumberType::F64),
            memory: HostMemory::Pinned,
        };
        Case { folder, job }
    }

    pub fn run(&self, options: &Options) -> MatvecReport {
        multiply(&self.job, options).unwrap()
    }

    /// Both results, as far as they are asked for.
    pub fn results(&self) -> Vec<Vec<u8>> {
        let products = self.job.product.iter().chain(&self.job.transposed);
        products.map(|product| std::fs::read(&product.y).unwrap()).collect()
    }

    /// Names of what is in the folder beside the inputs.
    pub fn left(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.folder.path()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| !(name == "a" || name.ends_with(".x"))).collect()
    }
}

pub fn cores(threads: usize) -> Options {
    Options { processor: Processor::Cpu, threads: Some(threads), ..Options::default() }
}

pub fn values(bytes: &[u8]) -> Vec<f64> {
    bytes.as_chunks().0.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect()
}

/// Whether results are those of a plain loop, within what the roundings of both may come to.
pub fn assert_near(y: &[f64], wanted: &[(f64, f64)], terms: usize) {
    assert_eq!(y.len(), wanted.len());
    for (at, (y, (sum, magnitude))) in y.iter().zip(wanted).enumerate() {
        let bound = 2.0 * terms as f64 * f64::EPSILON / 2.0 * magnitude;
        assert!((y - sum).abs() <= bound, "{at}: {y} instead of {sum} +- {bound}");
    }
}

pub fn check(matrix: &Matrix, x: Option<&X>, x_transposed: Option<&X>, options: &Options) {
    let case = Case::new(matrix, x, x_transposed);
    case.run(options);
    let mut results = case.results().into_iter();
    for (x, transposed) in [(x, false), (x_transposed, true)] {
        let Some(x) = x else { continue };
        let wanted = matrix.product(&x.values, x.vectors, transposed);
        let terms = if transposed { matrix.rows } else { matrix.columns };
        assert_near(&values(&results.next().unwrap()), &wanted, terms);
    }
    assert_eq!(
        case.left().len(),
        results.len() + usize::from(x.is_some()) + usize::from(x_transposed.is_some())
    );
}
