//! Power iteration on matrices whose largest eigenvalue is known.

use std::path::Path;

use headrace_flow::{AccessPath, HostMemory};
use headrace_io::MemoryBudget;
use headrace_ooc::generate::{self, MatrixContent, MatrixJob, MatrixKind};
use headrace_ooc::matvec::{
    IterateJob, MatrixFile, MatvecJob, Product, RawMatrix, iterate, multiply,
};
use headrace_ooc::{NumberType, Options};
use tempfile::TempDir;

use crate::support::*;

/// A matrix of this many rows with a known eigenvalue: its file, the value, its vector.
pub fn dominant(folder: &Path, rows: u64, number: NumberType) -> (IterateJob, f64, Vec<f64>) {
    let name = if number == NumberType::Bf16 { "a" } else { "a.npy" };
    let (path, kind) = (folder.join(name), MatrixKind::Dominant);
    let job = MatrixJob { path: path.clone(), rows, columns: rows, number, seed: 3, kind };
    generate::matrix(&job, &cores(2)).unwrap();
    let content = MatrixContent::new(&job, &MemoryBudget::new(1 << 30)).unwrap();
    let (eigenvalue, vector) = content.dominant().unwrap();
    let raw = (number == NumberType::Bf16).then_some(RawMatrix { rows, columns: rows, number });
    let job = IterateJob {
        matrix: MatrixFile { path, raw },
        start: None,
        output: Some(folder.join("vector")),
        iterations: 50,
        tolerance: 1e-14,
        result: Some(NumberType::F64),
        memory: HostMemory::Pinned,
    };
    (job, eigenvalue, vector.to_vec())
}

/// Whether an iteration has found what is known.
pub fn assert_found(job: &IterateJob, options: &Options, wanted: f64, vector: &[f64]) {
    let report = iterate(job, options).unwrap();
    let last = report.iterations.last().unwrap();
    assert!(report.has_converged && report.iterations.len() < 20, "{report:?}");
    assert!((last.eigenvalue - wanted).abs() <= 1e-12 * wanted, "{last:?}, {wanted}");
    assert!(last.residual <= 1e-6 * wanted, "{last:?}");
    let found = values(&std::fs::read(job.output.as_ref().unwrap()).unwrap());
    let ratio = found[0] / vector[0];
    for (found, wanted) in found.iter().zip(vector) {
        assert!((found - ratio * wanted).abs() <= 1e-6 * ratio.abs() * wanted, "{found}");
    }
}

#[test]
fn the_largest_eigenvalue_is_found() {
    for (number, rows) in [
        (NumberType::F32, 700),
        (NumberType::F64, 3000),
        (NumberType::Bf16, 512),
        (NumberType::F32, 1),
    ] {
        let folder = TempDir::new().unwrap();
        let (job, eigenvalue, vector) = dominant(folder.path(), rows, number);
        for access in [AccessPath::Auto, AccessPath::Buffered, AccessPath::Mapped] {
            let chunk_bytes = Some(1 << 20);
            assert_found(&job, &Options { access, chunk_bytes, ..cores(2) }, eigenvalue, &vector);
        }
    }
}

#[test]
fn what_fits_the_memory_stays_there() {
    let folder = TempDir::new().unwrap();
    let (job, eigenvalue, vector) = dominant(folder.path(), 3000, NumberType::F64);
    let bytes = 3000 * 3000 * 8;
    let cold = |memory_limit_bytes| Options {
        memory_limit_bytes: Some(memory_limit_bytes),
        chunk_bytes: Some(4 << 20),
        slots: Some(2),
        ..cores(2)
    };
    // Written past the page cache, if the file system can; else all of it is there, and stays there.
    let all = iterate(&job, &cold(1 << 30)).unwrap();
    let last = all.iterations.last().unwrap();
    assert_eq!((last.streamed_bytes, last.resident_bytes), (0, bytes));
    let some = iterate(&job, &cold(64 << 20)).unwrap();
    for iteration in &some.iterations {
        assert_eq!(iteration.streamed_bytes + iteration.resident_bytes, bytes);
    }
    assert!(some.report.host_peak_bytes <= 64 << 20);
    assert_found(&job, &cold(64 << 20), eigenvalue, &vector);
}

#[test]
fn the_same_bits_for_any_threads() {
    let folder = TempDir::new().unwrap();
    let (job, ..) = dominant(folder.path(), 1000, NumberType::F32);
    let run = |threads, chunk_bytes| {
        iterate(&job, &Options { chunk_bytes: Some(chunk_bytes), ..cores(threads) }).unwrap();
        std::fs::read(job.output.as_ref().unwrap()).unwrap()
    };
    let wanted = run(1, 1 << 30);
    for threads in [2, 3, 5] {
        assert!(run(threads, 1) == wanted && run(threads, 1 << 20) == wanted);
    }
}

#[test]
fn what_has_no_answer_is_told() {
    let folder = TempDir::new().unwrap();
    let zero = |rows: u64, columns: u64, first: f32| {
        let path = folder.path().join("zero");
        let mut bytes = vec![0; (rows * columns * 4) as usize];
        if let Some(value) = bytes.first_chunk_mut() {
            *value = first.to_le_bytes();
        }
        std::fs::write(&path, bytes).unwrap();
        let raw = Some(RawMatrix { rows, columns, number: NumberType::F32 });
        IterateJob {
            matrix: MatrixFile { path, raw },
            start: None,
            output: Some(folder.path().join("y")),
            iterations: 5,
            tolerance: 0.0,
            result: None,
            memory: HostMemory::Pinned,
        }
    };
    for (rows, columns, first, what) in [
        (3, 4, 0.0, "no eigenvalue"),
        (0, 0, 0.0, "no eigenvalue"),
        (4, 4, 0.0, "maps the vector to 0"),
        (4, 4, f32::NAN, "not finite"),
        (4, 4, f32::INFINITY, "not finite"),
    ] {
        let job = zero(rows, columns, first);
        let error = iterate(&job, &cores(1)).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
        assert!(!folder.path().join("y").exists());
    }
    let start = X::random(1, 4, 2, NumberType::F32, false).write(folder.path().join("x"));
    let error = iterate(&IterateJob { start: Some(start), ..zero(4, 4, 1.0) }, &cores(1));
    assert!(error.unwrap_err().to_string().contains("one vector"));
    let nothing = X { values: vec![0.0; 4], vectors: 1, number: NumberType::F32, is_raw: false };
    let start = Some(nothing.write(folder.path().join("x")));
    let error = iterate(&IterateJob { start, ..zero(4, 4, 1.0) }, &cores(1));
    assert!(error.unwrap_err().to_string().contains("no direction"));
}

#[test]
fn generated_matrices_are_what_they_are_said_to_be() {
    let folder = TempDir::new().unwrap();
    for (number, kind, name) in [
        (NumberType::F32, MatrixKind::Uniform, "a.npy"),
        (NumberType::F64, MatrixKind::Uniform, "a"),
        (NumberType::Bf16, MatrixKind::Dominant, "a"),
        (NumberType::F32, MatrixKind::Dominant, "a.npy"),
    ] {
        // More than one window of the file.
        let (rows, path) = (1500, folder.path().join(name));
        let job = MatrixJob { path: path.clone(), rows, columns: rows, number, seed: 5, kind };
        generate::matrix(&job, &cores(2)).unwrap();
        let content = MatrixContent::new(&job, &MemoryBudget::new(1 << 30)).unwrap();
        let x: Vec<f64> = random(1, 1500, NumberType::F64);
        let column = X { values: x.clone(), vectors: 1, number: NumberType::F64, is_raw: false };
        let y = folder.path().join("y");
        let product = Product { x: column.write(folder.path().join("x")), y: y.clone() };
        let raw = (name == "a").then_some(RawMatrix { rows, columns: rows, number });
        let job = MatvecJob {
            matrix: MatrixFile { path, raw },
            product: Some(product),
            transposed: None,
            result: None,
            memory: HostMemory::Pinned,
        };
        multiply(&job, &cores(2)).unwrap();
        for (row, y) in values(&std::fs::read(&y).unwrap()).into_iter().enumerate() {
            let terms = (0..rows).map(|c| content.value(row as u64, c) * x[c as usize]);
            let (sum, magnitude) = terms.fold((0.0, 0.0), |(s, m), t: f64| (s + t, m + t.abs()));
            assert!((y - sum).abs() <= 1e-12 * magnitude, "{row}: {y} instead of {sum}");
        }
    }
    let job = MatrixJob {
        path: folder.path().join("b.npy"),
        rows: 3,
        columns: 4,
        number: NumberType::Bf16,
        seed: 1,
        kind: MatrixKind::Dominant,
    };
    for (job, what) in [
        (job.clone(), "cannot have bf16"),
        (MatrixJob { number: NumberType::F32, ..job.clone() }, "no eigenvalue"),
        (MatrixJob { number: NumberType::I32, ..job }, "i32"),
    ] {
        let error = generate::matrix(&job, &cores(1)).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
        assert!(!folder.path().join("b.npy").exists());
    }
}
