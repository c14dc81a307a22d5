//! What can go wrong: files, inputs, memory.

use std::path::Path;
use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, Float32Array, Float64Array, Int32Array, RecordBatch, RecordBatchOptions,
};
use arrow_schema::{Field, Schema};
use headrace_flow::{AccessPath, HostMemory};
use headrace_format::arrow::{ArrowWriter, WriterOptions};
use headrace_io::write::{FaultySink, SinkFile, WriteAt};
use headrace_io::{FaultPlan, FaultyFile, ReadAt, SourceFile};
use headrace_ooc::generate::{self, MatrixJob, MatrixKind};
use headrace_ooc::matvec::{MatrixFile, MatvecJob, Product, RawMatrix, multiply};
use headrace_ooc::{Files, NumberType, Options, npy};

use tempfile::TempDir;

use crate::support::*;

/// Files with faults.
#[derive(Debug, Default)]
struct Faulty {
    /// Of the matrix.
    read: FaultPlan,
    /// Of the vectors.
    read_vector: FaultPlan,
    write: FaultPlan,
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
        FaultPlan { short_permille: 300, interrupted_permille: 300, ..FaultPlan::default() };
    let refused = FaultPlan { direct_refused: true, ..FaultPlan::default() };
    let late = FaultPlan { latency: std::time::Duration::from_micros(200), ..FaultPlan::default() };
    let slow_write =
        FaultPlan { short_permille: 500, interrupted_permille: 500, ..FaultPlan::default() };
    let broken = |at| FaultPlan { io_error_at: Some(at), ..FaultPlan::default() };
    let cut = |at| FaultPlan { truncated_at: Some(at), ..FaultPlan::default() };
    let changed = FaultPlan { changed: true, ..FaultPlan::default() };
    let full = |at| FaultPlan { full_at: Some(at), ..FaultPlan::default() };
    let lost = FaultPlan { commit_fails: true, ..FaultPlan::default() };
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
    assert!(fault(&both).contains("two results"));
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
fn tables_that_are_no_matrices_are_told() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("a");
    let float = |values: Vec<Option<f32>>| -> ArrayRef { Arc::new(Float32Array::from(values)) };
    let wide: ArrayRef = Arc::new(Float64Array::from(vec![1.0, 2.0]));
    let integers: ArrayRef = Arc::new(Int32Array::from(vec![1, 2]));
    let fault = |columns: Vec<ArrayRef>| {
        let column = |(at, column): (usize, &ArrayRef)| {
            Field::new(format!("c{at}"), column.data_type().clone(), true)
        };
        let schema = Schema::new(columns.iter().enumerate().map(column).collect::<Vec<_>>());
        let mut writer = ArrowWriter::create(&path, &schema, WriterOptions::default()).unwrap();
        let rows = RecordBatchOptions::new().with_row_count(Some(2));
        let batch = RecordBatch::try_new_with_options(Arc::new(schema), columns, &rows).unwrap();
        writer.write(&batch).unwrap();
        writer.finish().unwrap();
        let x = X::random(1, 1, 1, NumberType::F32, false).write(folder.path().join("x"));
        let product = Some(Product { x, y: folder.path().join("y") });
        let matrix = MatrixFile { path: path.clone(), raw: None };
        let memory = HostMemory::Pinned;
        let job = MatvecJob { matrix, product, transposed: None, result: None, memory };
        let outcome = multiply(&job, &cores(1));
        outcome.map_err(|error| error.to_string())
    };
    assert!(fault(vec![float(vec![Some(1.0), Some(2.0)])]).is_ok());
    let error = fault(vec![float(vec![Some(1.0), None])]).unwrap_err();
    assert!(error.contains("column c0 has NULLs"), "{error}");
    let error = fault(vec![float(vec![Some(1.0), Some(2.0)]), wide]).unwrap_err();
    assert!(error.contains("column c1 is of f64"), "{error}");
    let error = fault(vec![integers]).unwrap_err();
    assert!(error.contains("is of Int32"), "{error}");
    let error = fault(Vec::new()).unwrap_err();
    assert!(error.contains("without columns"), "{error}");
    let empty = Matrix { layout: Layout::Arrow(8), ..Matrix::random(1, (0, 3), NumberType::F32) };
    let x = X::random(1, 3, 1, NumberType::F32, false);
    let none = X::random(1, 0, 1, NumberType::F32, false);
    check(&empty, Some(&x), Some(&none), &cores(2));
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
    // So many vectors that the sums of few chunks have room at a time.
    let many = X::random(3, 2000, 64, NumberType::F32, true);
    let wide = Case::new(&matrix, None, Some(&many));
    wide.run(&cores(2));
    let wanted = wide.results();
    let report = wide.run(&limited(20 << 20)).report;
    assert!(wide.results() == wanted && report.host_peak_bytes <= 20 << 20, "{report:?}");
    std::fs::write(&case.job.matrix.path, npy::header(NumberType::F32, &[1 << 60, 0])).unwrap();
    let empty = X { values: Vec::new(), vectors: 1, number: NumberType::F32, is_raw: true };
    let x = empty.write(case.folder.path().join("empty.x"));
    let product = Some(Product { x, y: case.folder.path().join("y") });
    let matrix = MatrixFile { path: case.job.matrix.path.clone(), raw: None };
    let huge =
        MatvecJob { matrix, product, transposed: None, result: None, memory: HostMemory::Pinned };
    let error = multiply(&huge, &limited(8 << 20)).unwrap_err();
    assert!(error.to_string().contains("out of host memory"), "{error}");
}

#[test]
fn results_that_would_replace_an_input_or_each_other_are_refused() {
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name);
    let made = MatrixJob {
        path: at("m.npy"),
        rows: 4,
        columns: 4,
        number: NumberType::F64,
        seed: 1,
        kind: MatrixKind::Uniform,
    };
    generate::matrix(&made, &Options::default()).unwrap();
    let x = X::random(1, 4, 1, NumberType::F64, false).write(at("x.npy"));
    let before = std::fs::read(at("m.npy")).unwrap();
    let run = |y: &str, w: Option<&str>| {
        let product = |y: &str| Product { x: x.clone(), y: folder.path().join(".").join(y) };
        let job = MatvecJob {
            matrix: MatrixFile { path: at("m.npy"), raw: None },
            product: Some(product(y)),
            transposed: w.map(product),
            result: None,
            memory: HostMemory::Pinned,
        };
        multiply(&job, &Options::default()).map(|_| ()).map_err(|error| error.to_string())
    };
    assert!(run("m.npy", None).unwrap_err().contains("would replace it"));
    assert!(run("x.npy", None).unwrap_err().contains("would replace it"));
    assert!(run("y.npy", Some("./y.npy")).unwrap_err().contains("two results"));
    assert_eq!(run("y.npy", Some("w.npy")), Ok(()));
    assert!(std::fs::read(at("m.npy")).unwrap() == before);
}
