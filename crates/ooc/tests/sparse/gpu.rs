//! The kernels: compiled everywhere, compared with the cores where there is a GPU.
//!
//!     cargo test -p headrace-ooc --test sparse -- --ignored nvrtc_      (HEADRACE_NVRTC names the library)
//!     sparse --ignored gpu_                                             (on a machine with a GPU)

use headrace_flow::AccessPath;
use headrace_gpu::{Compiler, Source};
use headrace_ooc::eigen::{AnyMatrix, EigenJob, eigen};
use headrace_ooc::sparse::{LevelsJob, LevelsReport, RanksJob, kernels, levels, multiply, ranks};
use headrace_ooc::{NumberType, Options, Processor};
use tempfile::TempDir;

use crate::support::*;

fn gpu() -> Options {
    Options { processor: Processor::Cuda, ..Options::default() }
}

/// Rows of all kinds, more than a chunk has.
fn lengths() -> Vec<usize> {
    let mut lengths: Vec<usize> = (0..60_000).map(|row| row * 7 % 31).collect();
    lengths[100] = 400_000;
    lengths[2000] = 1025;
    lengths.splice(500..500, [0; 50_000]);
    lengths
}

#[test]
#[ignore = "needs NVRTC"]
fn nvrtc_all_kernels_compile() {
    let compiler = Compiler::load(None).unwrap();
    let (narrow, wide) = (NumberType::I32, NumberType::U64);
    for indptr in [narrow, wide] {
        for indices in [narrow, wide] {
            for data in [None, Some(NumberType::F32), Some(NumberType::F64)] {
                let text = kernels(indptr, indices, data);
                let source = Source { name: "sparse.cu", text: &text, headers: &[] };
                for arch in ["sm_80", "sm_90"] {
                    let cubin = compiler.compile(&source, arch, &[]).unwrap();
                    assert_eq!(cubin.warnings, "", "{indptr}, {indices}, {data:?}, {arch}");
                }
            }
        }
    }
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_products_have_the_bits_of_the_cores() {
    for layout in [WIDE, NARROW, GRAPH] {
        for vectors in [1, 3] {
            let matrix = Sparse::random(7, &lengths(), 50_000, layout);
            let case = Case::new(&matrix, &numbers(8, 50_000 * vectors), vectors);
            case.run(&cores(2));
            let wanted = case.result();
            for chunk_bytes in [20_000, 3 << 20, 1 << 30] {
                for (slots, access) in [(1, AccessPath::Buffered), (5, AccessPath::Auto)] {
                    let (chunk_bytes, slots) = (Some(chunk_bytes), Some(slots));
                    case.run(&Options { chunk_bytes, slots, access, ..gpu() });
                    assert!(case.result() == wanted, "{layout:?} {chunk_bytes:?} {slots:?}");
                }
            }
        }
    }
    for lengths in [vec![], vec![0; 3000], vec![1]] {
        let matrix = Sparse::random(7, &lengths, 5, GRAPH);
        let case = Case::new(&matrix, &numbers(8, 5), 1);
        case.run(&cores(1));
        let wanted = case.result();
        case.run(&gpu());
        assert!(case.result() == wanted);
    }
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_damaged_matrices_are_told_with_the_place() {
    let error = |change: &dyn Fn(&mut Sparse)| {
        let mut matrix = Sparse::random(1, &lengths(), 300, NARROW);
        change(&mut matrix);
        let case = Case::new(&matrix, &numbers(2, 300), 1);
        case.error(&Options { chunk_bytes: Some(1 << 18), ..gpu() })
    };
    let told = error(&|matrix| matrix.indices[700_000] = 300);
    assert!(told.contains("entry 700000 is in column 300, there are 300"), "{told}");
    for value in [0, 1 << 30, u64::from(u32::MAX)] {
        let told = error(&|matrix| matrix.indptr[90_000] = value);
        assert!(told.contains("indptr"), "{told}");
    }
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_ranks_have_the_bits_of_the_cores_and_what_fits_stays() {
    let columns = lengths().len();
    let matrix = Sparse::random(3, &lengths(), columns, GRAPH);
    let folder = TempDir::new().unwrap();
    let job = RanksJob {
        graph: matrix.write(folder.path()),
        output: folder.path().join("ranks"),
        damping: 0.85,
        tolerance: 0.0,
        iterations: 8,
        result: None,
    };
    ranks(&job, &cores(2)).unwrap();
    let wanted = std::fs::read(&job.output).unwrap();
    let limited = Options { device_limit_bytes: Some(68 << 20), slots: Some(2), ..gpu() };
    for options in [gpu(), Options { chunk_bytes: Some(1 << 18), ..limited }] {
        let all_fits = options.device_limit_bytes.is_none();
        let report = ranks(&job, &options).unwrap();
        assert!(std::fs::read(&job.output).unwrap() == wanted);
        let last = &report.report.passes.last().unwrap().race.bytes_by_path;
        assert!(last.resident_device > 0 || !all_fits, "{last:?}");
        assert!(!all_fits || last.resident_device == last.total(), "{last:?}");
    }
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_eigenpairs_have_the_bits_of_the_cores() {
    let mut matrix = Sparse::random(3, &vec![9; 30_000], 30_000, GRAPH);
    // Everybody with the next ones, and all with the first.
    matrix.indices.iter_mut().enumerate().for_each(|(at, column)| {
        let (row, place) = (at as u64 / 9, at as u64 % 9);
        *column = (row + 30_000 + place - 4) % 30_000;
    });
    let folder = TempDir::new().unwrap();
    let job = EigenJob {
        matrix: AnyMatrix::Sparse(matrix.write(folder.path())),
        pairs: 5,
        vectors: Some(folder.path().join("vectors")),
        values: None,
        tolerance: 0.0,
        iterations: 12,
        seed: 1,
        result: None,
    };
    let wanted = eigen(&job, &cores(2)).unwrap();
    let bytes = std::fs::read(folder.path().join("vectors")).unwrap();
    for options in [gpu(), Options { chunk_bytes: Some(1 << 18), slots: Some(2), ..gpu() }] {
        let report = eigen(&job, &options).unwrap();
        assert_eq!(report.eigenvalues, wanted.eigenvalues);
        assert!(std::fs::read(folder.path().join("vectors")).unwrap() == bytes);
        let last = &report.report.passes.last().unwrap().race.bytes_by_path;
        assert_eq!(last.resident_device, last.total());
    }
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_levels_are_those_of_the_cores_streamed_and_kept() {
    let vertices = lengths().len();
    let mut matrix = Sparse::random(3, &lengths(), vertices, NARROW);
    // Few are pointed at by others than their neighbours: many levels.
    for (row, ends) in matrix.indptr.windows(2).enumerate().filter(|(row, _)| row % 11 != 0) {
        for at in ends[0]..ends[1] {
            matrix.indices[at as usize] = (row as u64 + at % 3).min(vertices as u64 - 1);
        }
    }
    let folder = TempDir::new().unwrap();
    let graph = matrix.write(folder.path());
    let output = folder.path().join("levels");
    for source in [0, 110, vertices as u64 - 1] {
        let job = LevelsJob { graph: graph.clone(), source, output: output.clone() };
        let wanted = levels(&job, &cores(2)).unwrap();
        let bytes = std::fs::read(&output).unwrap();
        let limited = Options { device_limit_bytes: Some(68 << 20), slots: Some(2), ..gpu() };
        for options in [gpu(), Options { chunk_bytes: Some(1 << 18), ..limited }] {
            let found = levels(&job, &options).unwrap();
            assert!(std::fs::read(&output).unwrap() == bytes, "from {source}");
            let counts = |report: &LevelsReport| -> Vec<u64> {
                report.levels.iter().map(|level| level.vertices).collect()
            };
            assert_eq!(counts(&found), counts(&wanted));
            assert_eq!(found.reached_edges, wanted.reached_edges);
        }
    }
    let mut wrong = matrix.clone();
    wrong.indices[700_000] = vertices as u64;
    let job = LevelsJob { graph: wrong.write(folder.path()), source: 0, output };
    let told = levels(&job, &gpu()).unwrap_err().to_string();
    assert!(told.contains("entry 700000 is in column"), "{told}");
}

#[test]
fn a_gpu_that_is_not_there_is_no_reason_to_run_elsewhere() {
    let folder = TempDir::new().unwrap();
    let graph = Sparse::random(1, &[1, 2, 3], 3, GRAPH).write(folder.path());
    let job = LevelsJob { graph, source: 0, output: folder.path().join("levels") };
    assert!(levels(&job, &Options { device: 77, ..gpu() }).is_err());
    let matrix = Sparse::random(1, &[1, 2, 3], 3, GRAPH);
    let case = Case::new(&matrix, &numbers(1, 3), 1);
    assert!(multiply(&case.job, &Options { device: 77, ..gpu() }).is_err());
}
