//! Eigenpairs: of matrices whose eigenvalues are known, sparse and dense, and what has none.

use std::path::{Path, PathBuf};

use headrace_ooc::eigen::{AnyMatrix, EigenJob, EigenReport, eigen};
use headrace_ooc::matvec::MatrixFile;
use headrace_ooc::{NumberType, Options, npy};
use tempfile::TempDir;

use crate::support::*;

/// A symmetric matrix from entries on and above its diagonal.
fn symmetric(size: usize, upper: &[(usize, usize, f64)], layout: Layout) -> Sparse {
    let mut rows = vec![Vec::new(); size];
    for &(row, column, value) in upper {
        rows[row].push((column, value));
        if row != column {
            rows[column].push((row, value));
        }
    }
    let (mut indptr, mut indices, mut data) = (vec![0], Vec::new(), Vec::new());
    for row in rows {
        indices.extend(row.iter().map(|entry| entry.0 as u64));
        data.extend(row.iter().map(|entry| entry.1));
        indptr.push(indices.len() as u64);
    }
    Sparse { columns: size, layout, indptr, indices, data }
}

fn job(matrix: AnyMatrix, folder: &Path, pairs: usize) -> EigenJob {
    EigenJob {
        matrix,
        pairs,
        vectors: Some(folder.join("vectors")),
        values: Some(folder.join("values.npy")),
        tolerance: 1e-9,
        iterations: 2000,
        seed: 1,
        result: None,
    }
}

fn sparse_job(matrix: &Sparse, folder: &Path, pairs: usize) -> EigenJob {
    job(AnyMatrix::Sparse(matrix.write(folder)), folder, pairs)
}

/// All values, row by row.
fn dense_file(matrix: &Sparse, folder: &Path) -> AnyMatrix {
    let size = matrix.rows();
    let mut values = vec![0.0; size * size];
    for (row, ends) in matrix.indptr.windows(2).enumerate() {
        for at in ends[0] as usize..ends[1] as usize {
            values[row * size + matrix.indices[at] as usize] += matrix.data[at];
        }
    }
    let path = folder.join("dense.npy");
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let header = npy::header(NumberType::F64, &[size as u64; 2]);
    std::fs::write(&path, [header, bytes].concat()).unwrap();
    AnyMatrix::Dense(MatrixFile { path, raw: None })
}

/// The vectors in their file, each by itself.
fn vectors(job: &EigenJob) -> Vec<Vec<f64>> {
    let all = values(&std::fs::read(job.vectors.as_ref().unwrap()).unwrap());
    (0..job.pairs).map(|j| all.iter().skip(j).step_by(job.pairs).copied().collect()).collect()
}

/// Values are these, vectors are of length 1, orthogonal, and what the matrix makes longer by them.
fn assert_pairs(matrix: &Sparse, job: &EigenJob, report: &EigenReport, wanted: &[f64]) {
    assert!(report.has_converged, "{:?}", report.residuals);
    let scale = wanted[0].abs().max(f64::MIN_POSITIVE);
    for (found, wanted) in report.eigenvalues.iter().zip(wanted) {
        assert!((found - wanted).abs() <= 1e-8 * scale, "{:?}", report.eigenvalues);
    }
    let file = std::fs::read(job.values.as_ref().unwrap()).unwrap();
    assert_eq!(values(&file[128..]), report.eigenvalues);
    let vectors = vectors(job);
    for (j, v) in vectors.iter().enumerate() {
        let product = matrix.product(v, 1);
        let away = |i: usize| product[i].0 / scale - report.eigenvalues[j] / scale * v[i];
        let residual = (0..v.len()).map(|i| away(i).powi(2)).sum::<f64>().sqrt();
        assert!(residual < 2e-9, "{j}: {residual}");
        assert!((residual - report.residuals[j]).abs() < 1e-12, "{j}: {residual}");
        for (other, w) in vectors.iter().enumerate() {
            let dot: f64 = v.iter().zip(w).map(|(v, w)| v * w).sum();
            assert!((dot - f64::from(j == other)).abs() < 1e-12, "{j} {other}: {dot}");
        }
        let largest = v.iter().fold(0.0, |a: f64, b| if b.abs() > a.abs() { *b } else { a });
        assert!(largest > 0.0, "{j} points down");
    }
}

/// A path's differences: eigenvalues `2 - 2 cos(pi j / n)`; with a few large numbers on the diagonal in their place,
/// so that they lie apart.
fn spread(size: usize, layout: Layout) -> Sparse {
    let mut upper: Vec<_> = (0..size)
        .map(|row| (row, row, if row < 40 { 100.0 - row as f64 * 2.0 } else { 2.0 }))
        .collect();
    upper.extend((0..size - 1).map(|row| (row, row + 1, -1.0)));
    symmetric(size, &upper, layout)
}

#[test]
fn eigenvalues_of_a_diagonal_are_its_largest_numbers() {
    for layout in [WIDE, NARROW] {
        let size = 9000;
        let value = |row: usize| match row % 3000 {
            17 => -40.0 + (row / 3000) as f64,
            18 => 30.0 - 4.0 * (row / 3000) as f64,
            _ => (row % 7) as f64 / 7.0,
        };
        let upper: Vec<_> = (0..size).map(|row| (row, row, value(row))).collect();
        let matrix = symmetric(size, &upper, layout);
        let folder = TempDir::new().unwrap();
        let wanted = [-40.0, -39.0, -38.0, 30.0, 26.0];
        for pairs in [1, 2, 5] {
            let job = sparse_job(&matrix, folder.path(), pairs);
            let report = eigen(&job, &cores(2)).unwrap();
            assert_pairs(&matrix, &job, &report, &wanted[..pairs]);
            assert_eq!(report.block_vectors as usize, pairs + pairs.max(4));
        }
    }
}

#[test]
fn opposite_values_a_small_rank_and_zeros_are_no_trouble() {
    // Complete bipartite: two values, and all others 0.
    let (left, right) = (30, 120);
    let edges: Vec<_> =
        (0..left).flat_map(|l| (left..left + right).map(move |r| (l, r, 1.0))).collect();
    let matrix = symmetric(left + right, &edges, GRAPH);
    let folder = TempDir::new().unwrap();
    let job = sparse_job(&matrix, folder.path(), 4);
    let report = eigen(&job, &cores(2)).unwrap();
    assert_pairs(&matrix, &job, &report, &[60.0, -60.0, 0.0, 0.0]);
    for size in [1, 2, 700] {
        let nothing = symmetric(size, &[], WIDE);
        let job = sparse_job(&nothing, folder.path(), size.min(3));
        let report = eigen(&job, &cores(2)).unwrap();
        assert_pairs(&nothing, &job, &report, &[0.0; 3][..size.min(3)]);
    }
}

#[test]
fn huge_and_tiny_values_have_eigenvalues() {
    for scale in [1e300, 1e-290] {
        let matrix = symmetric(3, &[(0, 0, 2.0 * scale), (0, 1, scale), (1, 1, 2.0 * scale)], WIDE);
        let folder = TempDir::new().unwrap();
        let job = sparse_job(&matrix, folder.path(), 3);
        let report = eigen(&job, &cores(1)).unwrap();
        assert_pairs(&matrix, &job, &report, &[3.0 * scale, scale, 0.0]);
    }
}

#[test]
fn the_bits_are_the_same_for_any_threads_and_chunks_and_another_seed_finds_the_same() {
    let matrix = spread(20_000, NARROW);
    let folder = TempDir::new().unwrap();
    let mut job = EigenJob { iterations: 60, ..sparse_job(&matrix, folder.path(), 3) };
    let first = eigen(&job, &cores(1)).unwrap();
    let bytes = std::fs::read(job.vectors.as_ref().unwrap()).unwrap();
    for (threads, chunk_bytes) in [(2, 5000), (3, 1 << 20), (5, 20_000)] {
        let options = Options { chunk_bytes: Some(chunk_bytes), ..cores(threads) };
        assert_eq!(eigen(&job, &options).unwrap().eigenvalues, first.eigenvalues);
        assert!(
            std::fs::read(job.vectors.as_ref().unwrap()).unwrap() == bytes,
            "{threads} threads"
        );
    }
    // They settle to the same.
    job.iterations = 2000;
    let first = eigen(&job, &cores(2)).unwrap();
    job.seed = 77;
    let other = eigen(&job, &cores(2)).unwrap();
    assert_pairs(&matrix, &job, &other, &other.eigenvalues.clone());
    assert_ne!(other.eigenvalues, first.eigenvalues, "another beginning has other last bits");
    for (a, b) in other.eigenvalues.iter().zip(&first.eigenvalues) {
        assert!((a - b).abs() < 1e-8 * b.abs(), "{a} {b}");
    }
}

#[test]
fn dense_matrices_have_the_pairs_of_sparse_ones() {
    let matrix = spread(300, WIDE);
    let folder = TempDir::new().unwrap();
    let sparse = eigen(&sparse_job(&matrix, folder.path(), 4), &cores(2)).unwrap();
    let job = job(dense_file(&matrix, folder.path()), folder.path(), 4);
    let report = eigen(&job, &Options { chunk_bytes: Some(50_000), ..cores(2) }).unwrap();
    assert_pairs(&matrix, &job, &report, &sparse.eigenvalues);
    assert_eq!((report.entries, sparse.entries), (None, Some(300 + 2 * 299)));
}

#[test]
fn pairs_that_have_not_converged_are_told_so() {
    let matrix = spread(2000, WIDE);
    let folder = TempDir::new().unwrap();
    let job = EigenJob { iterations: 3, ..sparse_job(&matrix, folder.path(), 3) };
    let report = eigen(&job, &cores(2)).unwrap();
    assert!(!report.has_converged && report.iterations.len() == 3);
    assert!(report.residuals.iter().any(|residual| *residual > job.tolerance));
    let exact = EigenJob { tolerance: 0.0, iterations: 40, ..job };
    assert_eq!(eigen(&exact, &cores(2)).unwrap().iterations.len(), 40);
}

/// The error of a job, which leaves nothing.
fn error(job: &EigenJob, folder: &Path, options: &Options) -> String {
    let error = eigen(job, options).unwrap_err().to_string();
    let made = left(folder).into_iter().filter(|name| name != "dense.npy");
    assert_eq!(made.collect::<Vec<_>>(), Vec::<String>::new(), "{error}");
    error
}

#[test]
fn what_has_no_such_pairs_is_refused() {
    let folder = TempDir::new().unwrap();
    let of = |matrix: &Sparse, pairs| {
        error(&sparse_job(matrix, folder.path(), pairs), folder.path(), &cores(2))
    };
    let square = spread(100, WIDE);
    assert!(of(&square, 0).contains("0 eigenpairs"));
    assert!(of(&square, 101).contains("101 eigenpairs of a matrix of 100 rows"));
    assert!(of(&spread(2000, WIDE), 257).contains("1 to 256"));
    let wide = Sparse::random(1, &[1, 2, 3], 4, WIDE);
    assert!(of(&wide, 1).contains("3 rows and 4 columns have no eigenvalue"));
    assert!(of(&Sparse::random(1, &[], 0, WIDE), 1).contains("0 rows and 0 columns"));
    for (tolerance, iterations) in [(f64::NAN, 1), (-1.0, 1), (0.1, 0)] {
        let job = EigenJob { tolerance, iterations, ..sparse_job(&square, folder.path(), 1) };
        assert!(error(&job, folder.path(), &cores(1)).contains("hint:"));
    }
    let same: PathBuf = folder.path().join("vectors");
    let job = EigenJob { values: Some(same), ..sparse_job(&square, folder.path(), 1) };
    assert!(error(&job, folder.path(), &cores(1)).contains("two results"));
    let limited = Options { memory_limit_bytes: Some(1 << 20), ..cores(1) };
    let job = sparse_job(&spread(50_000, WIDE), folder.path(), 2);
    assert!(error(&job, folder.path(), &limited).contains("memory"));
}

#[test]
fn what_is_not_symmetric_or_not_finite_is_refused() {
    let folder = TempDir::new().unwrap();
    let lengths = vec![5; 3000];
    for pairs in [1, 4] {
        let any = Sparse::random(1, &lengths, 3000, WIDE);
        let told = error(&sparse_job(&any, folder.path(), pairs), folder.path(), &cores(2));
        assert!(told.contains("is not symmetric"), "{told}");
        // One entry of thousands.
        let mut nearly = spread(3000, WIDE);
        nearly.data[4000] += 1.0;
        let told = error(&sparse_job(&nearly, folder.path(), pairs), folder.path(), &cores(2));
        assert!(told.contains("is not symmetric"), "{told}");
        let mut turned = symmetric(2, &[(0, 1, 1.0)], WIDE);
        turned.data[0] = -1.0;
        let pairs = pairs.min(2);
        let told = error(&sparse_job(&turned, folder.path(), pairs), folder.path(), &cores(1));
        assert!(told.contains("is not symmetric"), "{told}");
        let dense = job(dense_file(&nearly, folder.path()), folder.path(), pairs);
        assert!(error(&dense, folder.path(), &cores(1)).contains("is not symmetric"));
    }
    // Roundings of f32 are none.
    let mut rounded = spread(3000, WIDE);
    rounded.data.iter_mut().step_by(2).for_each(|value| *value *= 1.0 + 3e-8);
    assert!(eigen(&sparse_job(&rounded, folder.path(), 2), &cores(2)).is_ok());
    std::fs::remove_file(folder.path().join("vectors")).unwrap();
    std::fs::remove_file(folder.path().join("values.npy")).unwrap();
    for value in [f64::NAN, f64::INFINITY, f64::MAX] {
        let mut wrong = spread(3000, WIDE);
        let (from, to) = (wrong.indptr[7] as usize, wrong.indptr[8] as usize);
        wrong.data[from..to].fill(value);
        let told = error(&sparse_job(&wrong, folder.path(), 2), folder.path(), &cores(2));
        assert!(told.contains("not finite") || told.contains("not symmetric"), "{told}");
    }
}
