//! What can go wrong: files, inputs, memory.

use std::path::Path;
use std::sync::Arc;

use headrace_flow::AccessPath;
use headrace_io::write::{FaultySink, SinkFile, WriteAt};
use headrace_io::{FaultPlan, FaultyFile, ReadAt, SourceFile};
use headrace_ooc::sparse::multiply;
use headrace_ooc::{Files, NumberType, Options, Processor, npy};

use crate::support::*;

/// Files with faults.
#[derive(Debug, Default)]
struct Faulty {
    /// Of this array.
    name: &'static str,
    read: FaultPlan,
    write: FaultPlan,
}

impl Files for Faulty {
    fn open(&self, path: &Path) -> headrace_ooc::Result<Arc<dyn ReadAt>> {
        let is_meant = path.file_name().is_some_and(|name| name == self.name);
        let plan = if is_meant { self.read.clone() } else { FaultPlan::default() };
        Ok(FaultyFile::new(SourceFile::open(path)?, plan))
    }

    fn create(&self, path: &Path, size_bytes: u64) -> headrace_ooc::Result<Arc<dyn WriteAt>> {
        Ok(FaultySink::new(SinkFile::create(path, size_bytes)?, self.write.clone()))
    }
}

#[test]
fn faults_give_the_right_result_or_an_error_and_nothing_else() {
    let lengths: Vec<usize> = (0..40_000).map(|row| row % 33).collect();
    let matrix = Sparse::random(1, &lengths, 3000, WIDE);
    let case = Case::new(&matrix, &numbers(2, 3000), 1);
    case.run(&cores(2));
    let wanted = case.result();
    let harmless =
        FaultPlan { short_permille: 300, interrupted_permille: 300, ..FaultPlan::default() };
    let broken = |at| FaultPlan { io_error_at: Some(at), ..FaultPlan::default() };
    let cut = |at| FaultPlan { truncated_at: Some(at), ..FaultPlan::default() };
    let changed = FaultPlan { changed: true, ..FaultPlan::default() };
    let full = FaultPlan { full_at: Some(100), ..FaultPlan::default() };
    let of = |name, read| Faulty { name, read, ..Faulty::default() };
    let plans = [
        (of("indptr.npy", harmless.clone()), None),
        (of("data.npy", harmless.clone()), None),
        (Faulty { write: harmless, ..Faulty::default() }, None),
        (of("indptr.npy", broken(100_000)), Some("could not be read")),
        (of("indices.npy", broken(3_000_000)), Some("could not be read")),
        (of("data.npy", cut(3_000_000)), Some("could not be read")),
        (of("data.npy", changed.clone()), Some("changed")),
        (of("indptr.npy", changed), Some("changed")),
        (Faulty { write: full, ..Faulty::default() }, Some("No space left")),
    ];
    for access in [AccessPath::Auto, AccessPath::Mapped, AccessPath::Buffered] {
        for (files, error) in &plans {
            let _ = std::fs::remove_file(&case.job.y);
            let files =
                Faulty { name: files.name, read: files.read.clone(), write: files.write.clone() };
            let text = format!("{access:?} {files:?}");
            let options =
                Options { access, chunk_bytes: Some(1 << 18), files: Arc::new(files), ..cores(2) };
            match (multiply(&case.job, &options), error) {
                (Ok(_), None) => assert!(case.result() == wanted, "{text}"),
                (Err(error), Some(wanted)) => {
                    let is_told = error.to_string().contains(wanted)
                        || error.to_string().contains("Input/output error");
                    assert!(is_told, "{text}: {error}");
                    assert_eq!(left(case.folder.path()), Vec::<String>::new(), "{text}");
                }
                (outcome, error) => panic!("{text}: {outcome:?} instead of {error:?}"),
            }
        }
    }
}

/// The error of a matrix after a change, for chunks of several sizes.
fn errors(change: impl Fn(&mut Sparse), layout: Layout) -> Vec<String> {
    let lengths: Vec<usize> = (0..4000).map(|row| row % 7).collect();
    let mut matrix = Sparse::random(1, &lengths, 300, layout);
    change(&mut matrix);
    let case = Case::new(&matrix, &numbers(2, 300), 1);
    let error = |chunk_bytes| case.error(&Options { chunk_bytes: Some(chunk_bytes), ..cores(2) });
    [2000, 50_000, 1 << 30].map(error).into()
}

#[test]
fn damaged_matrices_are_told_with_the_place() {
    for layout in [WIDE, NARROW, GRAPH] {
        for error in errors(|matrix| matrix.indices[7000] = 300, layout) {
            assert!(error.contains("entry 7000 is in column 300, there are 300"), "{error}");
            assert!(error.contains("hint:"), "{error}");
        }
        for error in errors(|matrix| matrix.indices[7000] = u64::MAX, layout) {
            assert!(error.contains("entry 7000 is in column"), "{error}");
        }
        // It decreases, or goes beyond the end, anywhere.
        for row in [1, 100, 1234, 3998, 3999] {
            for value in [0, u64::from(u32::MAX), u64::MAX, 1 << 30] {
                if row == 1 && value == 0 {
                    continue;
                }
                for error in errors(|matrix| matrix.indptr[row] = value, layout) {
                    assert!(error.contains("indptr"), "{error}");
                }
            }
        }
        for error in errors(|matrix| matrix.indptr[0] = 1, layout) {
            assert!(error.contains("indptr goes from 1"), "{error}");
        }
        for error in errors(|matrix| *matrix.indptr.last_mut().unwrap() -= 1, layout) {
            assert!(error.contains("indptr goes from 0 to"), "{error}");
        }
    }
}

#[test]
fn arrays_that_are_no_matrix_are_told() {
    let matrix = Sparse::random(1, &[3, 4, 5], 6, WIDE);
    let with = |name: &str, bytes: Option<Vec<u8>>| {
        let case = Case::new(&matrix, &numbers(1, 6), 1);
        let path = case.job.matrix.path.join(format!("{name}.npy"));
        match bytes {
            None => std::fs::remove_file(path).unwrap(),
            Some(bytes) => std::fs::write(path, bytes).unwrap(),
        }
        case.error(&cores(1))
    };
    let floats = |count: usize| Some(array(vec![0.0; count].into_iter(), NumberType::F64));
    assert!(with("indptr", None).contains("there is no indptr.npy"));
    assert!(with("indices", None).contains("there is no indices.npy"));
    assert!(with("indptr", floats(4)).contains("indptr has values of f64"));
    assert!(with("indices", floats(12)).contains("indices has values of f64"));
    assert!(with("data", floats(11)).contains("data has 11 values, indices has 12"));
    let two_axes = npy::header(NumberType::I64, &[0, 2]);
    assert!(with("indptr", Some(two_axes)).contains("array of shape [0, 2]"));
    assert!(with("indptr", Some(npy::header(NumberType::I64, &[0]))).contains("indptr is empty"));
    assert!(with("data", Some(npy::header(NumberType::I64, &[0]))).contains("values of i64"));
    assert!(with("indptr", Some(npy::header(NumberType::I64, &[4]))).contains("cut short"));
    assert!(with("indptr", Some(b"nothing".to_vec())).contains("no .npy header"));
    // Without a shape it is square, and some column is none.
    assert!(with("shape", None).contains("values, the matrix takes 3"));
    assert!(with("format", Some([npy::MAGIC, b"csc"].concat())).contains("in format \"csc\""));
}

#[test]
fn archives_that_are_none_are_told() {
    let matrix = Sparse::random(1, &[3, 4, 5], 6, NARROW);
    let case = Case::new(&matrix, &numbers(1, 6), 1);
    case.run(&cores(1));
    let wanted = case.result();
    let path = &case.job.matrix.path;
    let bytes = std::fs::read(path).unwrap();
    let error = |bytes: &[u8]| {
        let _ = std::fs::remove_file(&case.job.y);
        std::fs::write(path, bytes).unwrap();
        case.error(&cores(1))
    };
    assert!(error(b"").contains("no ZIP archive"));
    assert!(error(&bytes[..bytes.len() - 1]).contains("no ZIP archive") || bytes.is_empty());
    let directory = bytes.windows(4).position(|window| window == b"PK\x01\x02").unwrap();
    let mut compressed = bytes.clone();
    compressed[directory + 10] = 8;
    assert!(error(&compressed).contains("is compressed"));
    // Any byte that is changed gives an error or a result, and no panic.
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 0xff;
        std::fs::write(path, &changed).unwrap();
        if let Err(error) = multiply(&case.job, &cores(1)) {
            assert!(!error.to_string().contains("panic"), "byte {at}: {error}");
        }
    }
    std::fs::write(path, &bytes).unwrap();
    case.run(&cores(1));
    assert!(case.result() == wanted);
}

#[test]
fn requests_that_contradict_themselves_are_told() {
    let matrix = Sparse::random(1, &[3, 4, 5], 6, WIDE);
    let mut case = Case::new(&matrix, &numbers(1, 7), 1);
    assert!(case.error(&cores(1)).contains("x has 7 values, the matrix takes 6"));
    case = Case::new(&matrix, &numbers(1, 6), 1);
    case.job.result = Some(NumberType::I32);
    assert!(case.error(&cores(1)).contains("a result of i32"));
    case.job.result = None;
    case.job.y = case.job.matrix.path.join("data.npy");
    assert!(case.error(&cores(1)).contains("would replace it"));
    case.job.y = case.folder.path().join("y");
    let cuda = Options { processor: Processor::Cuda, device: 77, ..cores(1) };
    assert!(case.error(&cuda).contains("hint:"));
}

#[test]
fn memory_stays_within_its_limit() {
    let lengths = vec![100; 40_000];
    let matrix = Sparse::random(1, &lengths, 40_000, WIDE);
    let case = Case::new(&matrix, &numbers(2, 40_000), 1);
    let limited = |bytes| Options {
        memory_limit_bytes: Some(bytes),
        access: AccessPath::Buffered,
        ..cores(2)
    };
    case.run(&cores(2));
    let wanted = case.result();
    let report = case.run(&limited(8 << 20)).report;
    assert!(case.result() == wanted);
    assert!(report.host_peak_bytes <= 8 << 20 && report.host_peak_bytes > 1 << 19, "{report:?}");
    std::fs::remove_file(&case.job.y).unwrap();
    assert!(case.error(&limited(1 << 19)).contains("out of host memory"));
}
