//! Products against plain loops: shapes, formats, faults, and the same bits whoever computes them.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use headrace_flow::AccessPath;
use headrace_io::write::{FaultySink, SinkFile, WriteAt, WriteFaultPlan};
use headrace_io::{FaultPlan, FaultyFile, ReadAt, SourceFile};
use headrace_ooc::matvec::{
    MatrixFile, MatvecJob, MatvecReport, Product, RawMatrix, RawVectors, VectorFile, multiply,
};
use headrace_ooc::{Files, NumberType, Options, Processor, npy};
use proptest::prelude::*;
use tempfile::TempDir;

/// A matrix in memory, and how it is to lie in its file.
#[derive(Debug, Clone)]
struct Matrix {
    rows: usize,
    columns: usize,
    number: NumberType,
    layout: Layout,
    values: Vec<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Layout {
    Raw,
    Npy,
    NpyFortran,
}

/// Numbers between -1 and 1, and the same for the same seed.
fn random(seed: u64, count: usize, number: NumberType) -> Vec<f64> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) as i64 as f64 / 2f64.powi(63)
    };
    (0..count).map(|_| stored(next(), number)).collect()
}

/// The value that is left of one when it was stored.
fn stored(value: f64, number: NumberType) -> f64 {
    match number {
        NumberType::F64 => value,
        NumberType::F32 => f64::from(value as f32),
        _ => f64::from(f32::from_bits((value as f32).to_bits() & 0xffff_0000)),
    }
}

fn bytes_of(values: impl Iterator<Item = f64>, number: NumberType) -> Vec<u8> {
    let bytes = |value: f64| match number {
        NumberType::F64 => value.to_le_bytes().to_vec(),
        NumberType::F32 => (value as f32).to_le_bytes().to_vec(),
        _ => (value as f32).to_le_bytes()[2..].to_vec(),
    };
    values.flat_map(bytes).collect()
}

impl Matrix {
    fn random(seed: u64, (rows, columns): (usize, usize), number: NumberType) -> Matrix {
        let values = random(seed, rows * columns, number);
        Matrix { rows, columns, number, layout: Layout::Raw, values }
    }

    fn transposed_values(&self) -> impl Iterator<Item = f64> {
        (0..self.rows * self.columns)
            .map(|at| self.values[at % self.rows * self.columns + at / self.rows])
    }

    fn write(&self, folder: &Path) -> MatrixFile {
        let (rows, columns) = (self.rows as u64, self.columns as u64);
        let path = folder.join("a");
        let rows_first = || bytes_of(self.values.iter().copied(), self.number);
        let (bytes, raw) = match self.layout {
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

    /// For each row or, transposed, each column and each vector the product and the sum of its terms'
    /// magnitudes.
    fn product(&self, x: &[f64], vectors: usize, transposed: bool) -> Vec<(f64, f64)> {
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
struct X {
    values: Vec<f64>,
    vectors: usize,
    number: NumberType,
    is_raw: bool,
}

impl X {
    fn random(seed: u64, length: usize, vectors: usize, number: NumberType, is_raw: bool) -> X {
        X { values: random(seed, length * vectors, number), vectors, number, is_raw }
    }

    fn write(&self, path: PathBuf) -> VectorFile {
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
struct Case {
    folder: TempDir,
    job: MatvecJob,
}

impl Case {
    fn new(matrix: &Matrix, x: Option<&X>, x_transposed: Option<&X>) -> Case {
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
        };
        Case { folder, job }
    }

    fn run(&self, options: &Options) -> MatvecReport {
        multiply(&self.job, options).unwrap()
    }

    /// Both results, as far as they are asked for.
    fn results(&self) -> Vec<Vec<u8>> {
        let products = self.job.product.iter().chain(&self.job.transposed);
        products.map(|product| std::fs::read(&product.y).unwrap()).collect()
    }

    /// Names of what is in the folder beside the inputs.
    fn left(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.folder.path()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| !(name == "a" || name.ends_with(".x"))).collect()
    }
}

fn cores(threads: usize) -> Options {
    Options { processor: Processor::Cpu, threads: Some(threads), ..Options::default() }
}

fn values(bytes: &[u8]) -> Vec<f64> {
    bytes.as_chunks().0.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect()
}

/// Whether results are those of a plain loop, within what the roundings of both may come to.
fn assert_near(y: &[f64], wanted: &[(f64, f64)], terms: usize) {
    assert_eq!(y.len(), wanted.len());
    for (at, (y, (sum, magnitude))) in y.iter().zip(wanted).enumerate() {
        let bound = 2.0 * terms as f64 * f64::EPSILON / 2.0 * magnitude;
        assert!((y - sum).abs() <= bound, "{at}: {y} instead of {sum} +- {bound}");
    }
}

fn check(matrix: &Matrix, x: Option<&X>, x_transposed: Option<&X>, options: &Options) {
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

fn any_number() -> impl Strategy<Value = NumberType> {
    prop_oneof![Just(NumberType::F32), Just(NumberType::F64), Just(NumberType::Bf16)]
}

prop_compose! {
    fn any_matrix()(
        shape in prop_oneof![
            (0usize..4, 0usize..4),
            (1usize..300, 1usize..80),
            (1usize..20, 1usize..3000),
            (1usize..3000, 1usize..20),
            (60usize..70, 2040usize..2060),
            // Rows that are longer than a chunk.
            (1usize..4, 8000usize..40000),
        ],
        number in any_number(),
        layout in prop_oneof![Just(Layout::Raw), Just(Layout::Npy), Just(Layout::NpyFortran)],
        seed in any::<u64>(),
    ) -> Matrix {
        // NumPy has no bf16.
        let layout = if number == NumberType::Bf16 { Layout::Raw } else { layout };
        Matrix { layout, ..Matrix::random(seed, shape, number) }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn products_are_those_of_a_plain_loop(
        matrix in any_matrix(),
        which in 0usize..3,
        vectors in (1usize..8, 1usize..8),
        number in any_number(),
        is_raw in any::<bool>(),
        threads in 1usize..4,
        slots in 1usize..4,
        chunk_bytes in prop_oneof![Just(1), Just(100_000), Just(1 << 20)],
        access in prop_oneof![Just(AccessPath::Auto), Just(AccessPath::Mapped), Just(AccessPath::Buffered)],
    ) {
        let is_raw = is_raw || number == NumberType::Bf16;
        // How many vectors an empty file holds nobody can tell.
        let x = X::random(1, matrix.columns, vectors.0, number, is_raw && matrix.columns > 0);
        let x_transposed = X::random(2, matrix.rows, vectors.1, number, is_raw && matrix.rows > 0);
        prop_assume!(x.is_raw == x_transposed.is_raw || number != NumberType::Bf16);
        prop_assume!(number != NumberType::Bf16 || x.is_raw);
        let options = Options {
            chunk_bytes: Some(chunk_bytes),
            slots: Some(slots),
            access,
            ..cores(threads)
        };
        check(&matrix, (which != 1).then_some(&x), (which != 0).then_some(&x_transposed), &options);
    }
}

#[test]
fn results_have_the_same_bits_for_any_threads_and_chunks() {
    let shapes = [(1000, 700), (70, 40_000), (3, 100_000), (40_000, 3), (100_000, 1), (1, 100_000)];
    for (shape, number) in shapes.into_iter().zip([NumberType::F32, NumberType::F64].repeat(3)) {
        let matrix = Matrix::random(7, shape, number);
        let x = X::random(8, shape.1, 5, NumberType::F64, true);
        let x_transposed = X::random(9, shape.0, 2, NumberType::F64, true);
        let case = Case::new(&matrix, Some(&x), Some(&x_transposed));
        case.run(&cores(1));
        let wanted = case.results();
        for threads in [1, 2, 3, 7] {
            for chunk_bytes in [1, 3 << 20, 1 << 30] {
                for access in [AccessPath::Auto, AccessPath::Buffered] {
                    let chunk_bytes = Some(chunk_bytes);
                    case.run(&Options { chunk_bytes, access, ..cores(threads) });
                    assert!(case.results() == wanted, "{shape:?}, {threads} threads");
                }
            }
        }
        // And one product alone has those of both in one pass.
        for alone in [
            MatvecJob { transposed: None, ..case.job.clone() },
            MatvecJob { product: None, ..case.job.clone() },
        ] {
            multiply(&alone, &cores(2)).unwrap();
            assert!(case.results() == wanted, "{shape:?} alone");
        }
    }
}

#[test]
fn infinities_and_nan_propagate() {
    let mut matrix = Matrix::random(1, (80, 3000), NumberType::F32);
    let mut x = X::random(2, 3000, 1, NumberType::F32, true);
    let mut x_transposed = X::random(3, 80, 1, NumberType::F32, true);
    matrix.values[5 * 3000 + 2999] = f64::INFINITY;
    matrix.values[6 * 3000 + 17] = f64::NAN;
    matrix.values[7 * 3000] = f64::INFINITY;
    matrix.values[7 * 3000 + 1] = f64::NEG_INFINITY;
    (x.values[0], x.values[1], x.values[2999]) = (1.0, 1.0, -1.0);
    (x_transposed.values[5], x_transposed.values[7]) = (0.0, 2.0);
    let case = Case::new(&matrix, Some(&x), Some(&x_transposed));
    case.run(&cores(2));
    for (result, (x, transposed)) in case.results().iter().zip([(&x, false), (&x_transposed, true)])
    {
        let wanted = matrix.product(&x.values, 1, transposed);
        for (at, (y, (sum, _))) in values(result).into_iter().zip(wanted).enumerate() {
            let is_same = if sum.is_finite() {
                y.is_finite()
            } else {
                y == sum || sum.is_nan() && y.is_nan()
            };
            assert!(is_same, "{at}: {y} instead of {sum}");
        }
    }
}

#[test]
fn results_are_written_as_they_are_asked_for() {
    let matrix = Matrix::random(1, (9, 5), NumberType::F32);
    let x = X::random(2, 5, 1, NumberType::F32, false);
    let many = X::random(2, 5, 3, NumberType::F64, false);
    let folder = TempDir::new().unwrap();
    let matrix_file = matrix.write(folder.path());
    for (x, result, number, shape) in [
        (&x, None, NumberType::F32, vec![9]),
        (&x, Some(NumberType::F64), NumberType::F64, vec![9]),
        (&many, None, NumberType::F64, vec![9, 3]),
        (&many, Some(NumberType::F32), NumberType::F32, vec![9, 3]),
    ] {
        let (x_file, y) = (x.write(folder.path().join("x")), folder.path().join("y.npy"));
        let product = Some(Product { x: x_file, y: y.clone() });
        let matrix_file = matrix_file.clone();
        let job = MatvecJob { matrix: matrix_file, product, transposed: None, result };
        multiply(&job, &cores(2)).unwrap();
        let wanted = matrix.product(&x.values, x.vectors, false).into_iter().map(|(sum, _)| sum);
        let bytes = std::fs::read(&y).unwrap();
        let header = npy::header(number, &shape);
        assert_eq!(bytes[..header.len()], header);
        let wanted = bytes_of(wanted, number);
        // So few terms that the roundings to f32 agree; of f64 only the size is looked at.
        match number {
            NumberType::F32 => assert_eq!(bytes[header.len()..], wanted),
            _ => assert_eq!(bytes[header.len()..].len(), wanted.len()),
        }
    }
}

/// Files with faults.
#[derive(Debug, Default)]
struct Faulty {
    /// Of the matrix.
    read: FaultPlan,
    /// Of the vectors.
    read_vector: FaultPlan,
    write: WriteFaultPlan,
}

impl Files for Faulty {
    fn open(&self, path: &Path) -> headrace_ooc::Result<Arc<dyn ReadAt>> {
        let plan = if path.ends_with("a") { &self.read } else { &self.read_vector };
        Ok(FaultyFile::new(SourceFile::open(path)?, plan.clone()))
    }

    fn create(&self, path: &Path, size_bytes: u64) -> headrace_ooc::Result<Arc<dyn WriteAt>> {
        Ok(FaultySink::new(SinkFile::create(path, size_bytes)?, self.write.clone()))
    }
}

#[test]
fn faults_give_the_right_result_or_an_error_and_nothing_else() {
    let matrix = Matrix { layout: Layout::Npy, ..Matrix::random(1, (700, 2000), NumberType::F32) };
    let x = X::random(2, 2000, 2, NumberType::F64, false);
    let x_transposed = X::random(3, 700, 2, NumberType::F64, false);
    let case = Case::new(&matrix, Some(&x), Some(&x_transposed));
    case.run(&cores(2));
    let wanted = case.results();
    let harmless =
        FaultPlan { short_reads_permille: 300, interrupted_permille: 300, ..FaultPlan::default() };
    let refused = FaultPlan { direct_refused: true, ..FaultPlan::default() };
    let late = FaultPlan { latency: std::time::Duration::from_micros(200), ..FaultPlan::default() };
    let slow_write = WriteFaultPlan {
        short_writes_permille: 500,
        interrupted_permille: 500,
        ..WriteFaultPlan::default()
    };
    let broken = |at| FaultPlan { io_error_at: Some(at), ..FaultPlan::default() };
    let cut = |at| FaultPlan { truncated_at: Some(at), ..FaultPlan::default() };
    let changed = FaultPlan { changed: true, ..FaultPlan::default() };
    let full = |at| WriteFaultPlan { full_at: Some(at), ..WriteFaultPlan::default() };
    let lost = WriteFaultPlan { commit_fails: true, ..WriteFaultPlan::default() };
    let matrix_of = |read| Faulty { read, ..Faulty::default() };
    let vector_of = |read_vector| Faulty { read_vector, ..Faulty::default() };
    let written = |write| Faulty { write, ..Faulty::default() };
    let plans = [
        (matrix_of(harmless.clone()), None),
        (vector_of(harmless), None),
        (matrix_of(refused), None),
        (matrix_of(late), None),
        (written(slow_write), None),
        (matrix_of(broken(5)), Some("Input/output error")),
        (matrix_of(broken(3_000_000)), Some("could not be read")),
        (matrix_of(cut(3_000_000)), Some("could not be read")),
        (matrix_of(changed.clone()), Some("changed")),
        (vector_of(broken(1000)), Some("Input/output error")),
        (vector_of(cut(4000)), Some("the file ends at offset 4000")),
        (vector_of(changed), Some("changed")),
        (written(full(100)), Some("No space left")),
        (written(lost), Some("Input/output error")),
    ];
    for access in [AccessPath::Auto, AccessPath::Mapped, AccessPath::Buffered, AccessPath::Direct] {
        for (files, error) in &plans {
            let direct_refused = files.read.direct_refused && access == AccessPath::Direct;
            case.job.product.iter().chain(&case.job.transposed).for_each(|product| {
                let _ = std::fs::remove_file(&product.y);
            });
            let files = Faulty {
                read: files.read.clone(),
                read_vector: files.read_vector.clone(),
                write: files.write.clone(),
            };
            let text = format!("{access:?} {files:?}");
            let options =
                Options { access, chunk_bytes: Some(1 << 20), files: Arc::new(files), ..cores(2) };
            let outcome = multiply(&case.job, &options);
            match (outcome, error) {
                (Ok(_), None) => assert!(case.results() == wanted, "{text}"),
                (Err(error), Some(wanted)) => {
                    assert!(error.to_string().contains(wanted), "{text}: {error}");
                    assert_eq!(case.left(), Vec::<String>::new(), "{text}");
                }
                (Err(error), None) if direct_refused => drop(error),
                (outcome, error) => panic!("{text}: {outcome:?} instead of {error:?}"),
            }
        }
    }
}

#[test]
fn the_first_result_is_not_there_without_the_second() {
    let matrix = Matrix::random(1, (30, 20), NumberType::F32);
    let (x, x_transposed) =
        (X::random(2, 20, 1, NumberType::F32, true), X::random(3, 30, 1, NumberType::F32, true));
    let mut case = Case::new(&matrix, Some(&x), Some(&x_transposed));
    case.job.transposed.as_mut().unwrap().y = "/nowhere/at/all".into();
    let error = multiply(&case.job, &cores(1)).unwrap_err();
    assert!(error.to_string().contains("/nowhere/at/all"), "{error}");
    assert_eq!(case.left(), Vec::<String>::new());
}

#[test]
fn inputs_that_do_not_fit_are_told() {
    let matrix = Matrix { layout: Layout::Npy, ..Matrix::random(1, (30, 20), NumberType::F32) };
    let x = X::random(2, 21, 1, NumberType::F32, false);
    let case = Case::new(&matrix, Some(&x), None);
    let fault = |job: &MatvecJob| {
        let error = multiply(job, &cores(1)).unwrap_err().to_string();
        assert!(error.contains("hint:"), "{error}");
        assert_eq!(case.left(), Vec::<String>::new());
        error
    };
    let error = fault(&case.job);
    assert!(error.contains("has 21 values") && error.contains("takes 20"), "{error}");
    let transposed =
        MatvecJob { product: None, transposed: case.job.product.clone(), ..case.job.clone() };
    assert!(fault(&transposed).contains("takes 30"));
    assert!(
        fault(&MatvecJob { product: None, ..case.job.clone() }).contains("nothing to multiply")
    );
    let raw = |rows, columns, number| {
        let raw = Some(RawMatrix { rows, columns, number });
        let matrix = MatrixFile { path: case.job.matrix.path.clone(), raw };
        MatvecJob { matrix, ..case.job.clone() }
    };
    assert!(fault(&raw(30, 20, NumberType::F32)).contains("30 rows of 20"));
    assert!(fault(&raw(u64::MAX, u64::MAX, NumberType::F32)).contains("more than any file"));
    assert!(fault(&raw(317, 2, NumberType::I32)).contains("i32"));
    assert!(
        fault(&MatvecJob { result: Some(NumberType::Bf16), ..case.job.clone() }).contains("bf16")
    );
    let both = MatvecJob { transposed: case.job.product.clone(), ..case.job.clone() };
    assert!(fault(&both).contains("one file"));
    let mut bytes = std::fs::read(&case.job.matrix.path).unwrap();
    bytes.pop();
    std::fs::write(&case.job.matrix.path, &bytes).unwrap();
    let error = fault(&case.job);
    assert!(error.contains("[30, 20]") && error.contains("cut short"), "{error}");
    std::fs::write(&case.job.matrix.path, "no matrix").unwrap();
    assert!(fault(&case.job).contains("neither .npy"));
    std::fs::write(&case.job.matrix.path, npy::header(NumberType::F32, &[0, 0, 0])).unwrap();
    assert!(fault(&case.job).contains("3 axes"));
    std::fs::write(&case.job.matrix.path, npy::header(NumberType::F32, &[1 << 63, 0])).unwrap();
    assert!(fault(&case.job).contains("an axis of"));
}

#[test]
fn memory_stays_within_its_limit() {
    let matrix = Matrix::random(1, (2000, 3000), NumberType::F32);
    let (x, x_transposed) = (
        X::random(2, 3000, 3, NumberType::F64, true),
        X::random(3, 2000, 3, NumberType::F64, true),
    );
    let case = Case::new(&matrix, Some(&x), Some(&x_transposed));
    let limited = |bytes| Options {
        memory_limit_bytes: Some(bytes),
        access: AccessPath::Buffered,
        ..cores(2)
    };
    case.run(&cores(2));
    let wanted = case.results();
    let report = case.run(&limited(8 << 20)).report;
    assert!(case.results() == wanted);
    assert!(report.host_peak_bytes <= 8 << 20 && report.host_peak_bytes > 1 << 20, "{report:?}");
    let error = multiply(&case.job, &limited(1 << 20)).unwrap_err();
    assert!(error.to_string().contains("out of host memory"), "{error}");
    std::fs::write(&case.job.matrix.path, npy::header(NumberType::F32, &[1 << 60, 0])).unwrap();
    let empty = X { values: Vec::new(), vectors: 1, number: NumberType::F32, is_raw: true };
    let x = empty.write(case.folder.path().join("empty.x"));
    let product = Some(Product { x, y: case.folder.path().join("y") });
    let matrix = MatrixFile { path: case.job.matrix.path.clone(), raw: None };
    let huge = MatvecJob { matrix, product, transposed: None, result: None };
    let error = multiply(&huge, &limited(8 << 20)).unwrap_err();
    assert!(error.to_string().contains("out of host memory"), "{error}");
}
