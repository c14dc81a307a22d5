//! Sparse matrices in memory and in files, and plain loops over them.

use std::io::Write;
use std::path::{Path, PathBuf};

use headrace_io::random::Random;
use headrace_ooc::matvec::VectorFile;
use headrace_ooc::sparse::{CsrFile, SpmvJob, SpmvReport, multiply};
use headrace_ooc::{NumberType, Options, Processor, npy};
use tempfile::TempDir;

/// How a matrix is to lie in its files.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Layout {
    pub indptr: NumberType,
    pub indices: NumberType,
    /// `None`: no values, all are 1.
    pub data: Option<NumberType>,
    /// In a `.npz`, behind this many other bytes.
    pub archive: Option<usize>,
}

pub const WIDE: Layout = Layout {
    indptr: NumberType::I64,
    indices: NumberType::I64,
    data: Some(NumberType::F64),
    archive: None,
};

pub const NARROW: Layout = Layout {
    indptr: NumberType::I32,
    indices: NumberType::I32,
    data: Some(NumberType::F32),
    archive: Some(3),
};

pub const GRAPH: Layout =
    Layout { indptr: NumberType::I64, indices: NumberType::I32, data: None, archive: None };

/// A matrix in memory.
#[derive(Debug, Clone)]
pub struct Sparse {
    pub columns: usize,
    pub layout: Layout,
    pub indptr: Vec<u64>,
    pub indices: Vec<u64>,
    pub data: Vec<f64>,
}

impl Sparse {
    /// With rows of these lengths, and columns in any order that may repeat.
    pub fn random(seed: u64, lengths: &[usize], columns: usize, layout: Layout) -> Sparse {
        let mut random = Random(seed);
        let (mut indptr, mut indices, mut data) = (vec![0], Vec::new(), Vec::new());
        for length in lengths {
            for _ in 0..*length {
                indices.push(random.below(columns as u64));
                let value = random.draw() as i64 as f64 / 2f64.powi(63);
                data.push(match layout.data {
                    None => 1.0,
                    Some(NumberType::F32) => f64::from(value as f32),
                    Some(_) => value,
                });
            }
            indptr.push(indices.len() as u64);
        }
        Sparse { columns, layout, indptr, indices, data }
    }

    pub fn rows(&self) -> usize {
        self.indptr.len() - 1
    }

    /// The arrays as `.npy` files, by name.
    pub fn arrays(&self) -> Vec<(&'static str, Vec<u8>)> {
        let shape = [self.rows() as u64, self.columns as u64];
        let mut arrays = vec![
            ("indices", integers(&self.indices, self.layout.indices)),
            ("indptr", integers(&self.indptr, self.layout.indptr)),
            ("shape", integers(&shape, NumberType::I64)),
        ];
        if let Some(number) = self.layout.data {
            arrays.push(("data", array(self.data.iter().copied(), number)));
        }
        arrays
    }

    pub fn write(&self, folder: &Path) -> CsrFile {
        match self.layout.archive {
            None => {
                let path = folder.join("a");
                std::fs::create_dir_all(&path).unwrap();
                for (name, bytes) in self.arrays() {
                    std::fs::write(path.join(format!("{name}.npy")), bytes).unwrap();
                }
                CsrFile { path }
            }
            Some(before) => {
                let path = folder.join("a.npz");
                std::fs::write(&path, zipped(&self.arrays(), before)).unwrap();
                CsrFile { path }
            }
        }
    }

    /// For each row and vector the sum and that of its terms' magnitudes; vectors lie side by side.
    pub fn product(&self, x: &[f64], vectors: usize) -> Vec<(f64, f64)> {
        let mut y = Vec::new();
        for row in self.indptr.windows(2) {
            for vector in 0..vectors {
                let terms = (row[0] as usize..row[1] as usize)
                    .map(|at| self.data[at] * x[self.indices[at] as usize * vectors + vector]);
                y.push(terms.fold((0.0, 0.0), |(sum, all), term| (sum + term, all + term.abs())));
            }
        }
        y
    }
}

fn integers(values: &[u64], number: NumberType) -> Vec<u8> {
    let bytes = values.iter().flat_map(|value| value.to_le_bytes()[..number.bytes()].to_vec());
    npy::header(number, &[values.len() as u64]).into_iter().chain(bytes).collect()
}

pub fn array(values: impl ExactSizeIterator<Item = f64>, number: NumberType) -> Vec<u8> {
    let header = npy::header(number, &[values.len() as u64]);
    let bytes = values.flat_map(|value| match number {
        NumberType::F32 => (value as f32).to_le_bytes().to_vec(),
        _ => value.to_le_bytes().to_vec(),
    });
    header.into_iter().chain(bytes).collect()
}

/// A ZIP archive of stored members, as NumPy writes them, with 64-bit sizes in the local header's extra.
pub fn zipped(members: &[(&str, Vec<u8>)], before: usize) -> Vec<u8> {
    let (mut file, mut directory) = (vec![7; before], Vec::new());
    for (name, bytes) in members {
        let (name, offset) = (format!("{name}.npy"), file.len() as u32);
        let size = (bytes.len() as u32).to_le_bytes();
        let names = (name.len() as u16).to_le_bytes();
        let head = [&[0, 0, 0, 0], &[0; 4][..], &[0; 4]].concat();
        let local = [b"PK\x03\x04\x2d\0", &head[..], &[0xff; 8], &names, &20u16.to_le_bytes()];
        file.write_all(&local.concat()).unwrap();
        file.write_all(name.as_bytes()).unwrap();
        file.write_all(&[&[1, 0, 16, 0], &(bytes.len() as u64).to_le_bytes()[..]].concat())
            .unwrap();
        file.write_all(&(bytes.len() as u64).to_le_bytes()).unwrap();
        file.write_all(bytes).unwrap();
        directory.extend([b"PK\x01\x02\x2d\0\x2d\0", &head[..], &size, &size, &names].concat());
        directory.extend([&[0; 12][..], &offset.to_le_bytes(), name.as_bytes()].concat());
    }
    let (offset, bytes) = (file.len() as u32, directory.len() as u32);
    file.extend(directory);
    let count = (members.len() as u16).to_le_bytes();
    file.extend([b"PK\x05\x06\0\0\0\0", &count[..], &count].concat());
    file.extend([&bytes.to_le_bytes()[..], &offset.to_le_bytes(), &[0, 0]].concat());
    file
}

/// Numbers between -1 and 1.
pub fn numbers(seed: u64, count: usize) -> Vec<f64> {
    let mut random = Random(seed);
    (0..count).map(|_| random.draw() as i64 as f64 / 2f64.powi(63)).collect()
}

pub fn cores(threads: usize) -> Options {
    Options { processor: Processor::Cpu, threads: Some(threads), ..Options::default() }
}

/// A product in a folder of its own.
pub struct Case {
    pub folder: TempDir,
    pub job: SpmvJob,
}

impl Case {
    pub fn new(matrix: &Sparse, x: &[f64], vectors: usize) -> Case {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("x.npy");
        let shape = [(x.len() / vectors) as u64, vectors as u64];
        let shape = if vectors == 1 { &shape[..1] } else { &shape };
        let bytes: Vec<u8> = x.iter().flat_map(|value| value.to_le_bytes()).collect();
        std::fs::write(&path, [npy::header(NumberType::F64, shape), bytes].concat()).unwrap();
        let job = SpmvJob {
            matrix: matrix.write(folder.path()),
            x: VectorFile { path, raw: None },
            y: folder.path().join("y"),
            result: Some(NumberType::F64),
        };
        Case { folder, job }
    }

    pub fn run(&self, options: &Options) -> SpmvReport {
        multiply(&self.job, options).unwrap()
    }

    pub fn result(&self) -> Vec<u8> {
        std::fs::read(&self.job.y).unwrap()
    }

    pub fn error(&self, options: &Options) -> String {
        let error = multiply(&self.job, options).unwrap_err().to_string();
        assert_eq!(left(self.folder.path()), Vec::<String>::new(), "{error}");
        error
    }
}

/// Names of what is in a folder beside the inputs.
pub fn left(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| !["a", "a.npz", "x.npy"].contains(&name.as_str())).collect()
}

pub fn values(bytes: &[u8]) -> Vec<f64> {
    bytes.as_chunks().0.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect()
}

/// Whether sums are those of a plain loop, within what the roundings of both may come to.
pub fn assert_near(y: &[f64], wanted: &[(f64, f64)], terms: usize) {
    assert_eq!(y.len(), wanted.len());
    for (at, (y, (sum, magnitude))) in y.iter().zip(wanted).enumerate() {
        let bound = 2.0 * (terms + 1) as f64 * f64::EPSILON / 2.0 * magnitude;
        assert!((y - sum).abs() <= bound, "{at}: {y} instead of {sum} +- {bound}");
    }
}

pub fn folder() -> PathBuf {
    std::env::var_os("HEADRACE_SPARSE_DIR").map_or_else(std::env::temp_dir, PathBuf::from)
}
