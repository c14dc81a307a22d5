//! The kernels: compiled everywhere, compared with the cores where there is a GPU.
//!
//!     cargo test -p headrace-ooc --test matvec -- --ignored nvrtc_      (HEADRACE_NVRTC names the library)
//!     matvec --ignored gpu_                                             (on a machine with a GPU)
//!     HEADRACE_MATVEC_DIR=/dev/shm matvec --ignored --nocapture speed_of_products

use headrace_flow::{AccessPath, HostMemory};
use headrace_gpu::{Compiler, Source};
use headrace_ooc::generate::{self, MatrixJob, MatrixKind};
use headrace_ooc::matvec::{
    IterateJob, MatrixFile, MatvecJob, Product, RawMatrix, iterate, kernels, multiply,
};
use headrace_ooc::{NumberType, Options, Processor};
use tempfile::TempDir;

use crate::iterate::{assert_found, dominant};
use crate::speed::folder;
use crate::support::*;

fn gpu() -> Options {
    Options { processor: Processor::Cuda, ..Options::default() }
}

#[test]
#[ignore = "needs NVRTC"]
fn nvrtc_all_kernels_compile() {
    let compiler = Compiler::load(None).unwrap();
    for number in [NumberType::F32, NumberType::F64, NumberType::Bf16] {
        let text = kernels(number);
        let source = Source { name: "matvec.cu", text: &text, headers: &[] };
        for arch in ["sm_80", "sm_90"] {
            let cubin = compiler.compile(&source, arch, &[]).unwrap();
            assert_eq!(cubin.warnings, "", "{number}, {arch}");
        }
    }
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_products_are_those_of_a_plain_loop() {
    let shapes = [
        (1, 1),
        (0, 5),
        (5, 0),
        (1, 100_000),
        (100_000, 1),
        (3, 50_000),
        (50_000, 3),
        (1000, 17),
        (777, 1001),
        (65, 2049),
        (64, 4096),
        (130, 20_001),
        (9, 33_000),
        (2000, 500),
    ];
    for (at, shape) in shapes.into_iter().enumerate() {
        for number in [NumberType::F32, NumberType::F64, NumberType::Bf16] {
            // All of them with all shapes and types would only take longer.
            let ways = [(1, Layout::Npy), (4, Layout::NpyFortran), (7, Layout::Raw)];
            let (vectors, layout) = ways[(at + number.bytes()) % ways.len()];
            let layout = if number == NumberType::Bf16 { Layout::Raw } else { layout };
            let matrix = Matrix { layout, ..Matrix::random(at as u64, shape, number) };
            let x = X::random(1, shape.1, vectors, NumberType::F64, false);
            let x_transposed = X::random(2, shape.0, vectors + 1, NumberType::F32, false);
            for (chunk_bytes, slots, access) in [
                (1, 3, AccessPath::Auto),
                (1 << 20, 1, AccessPath::Buffered),
                (64 << 20, 6, AccessPath::Auto),
            ] {
                let (chunk_bytes, slots) = (Some(chunk_bytes), Some(slots));
                let options = Options { chunk_bytes, slots, access, ..gpu() };
                check(&matrix, Some(&x), Some(&x_transposed), &options);
            }
        }
    }
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_tables_are_multiplied() {
    for (shape, batch_rows) in [((120_000, 70), 50_000), ((3000, 3), 1000), ((500, 200), 333)] {
        for number in [NumberType::F32, NumberType::F64] {
            let layout = Layout::Arrow(batch_rows);
            let matrix = Matrix { layout, ..Matrix::random(7, shape, number) };
            let x = X::random(8, shape.1, 5, NumberType::F64, true);
            let x_transposed = X::random(9, shape.0, 2, NumberType::F64, true);
            for access in [AccessPath::Auto, AccessPath::Buffered] {
                check(&matrix, Some(&x), Some(&x_transposed), &Options { access, ..gpu() });
            }
        }
    }
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_results_have_the_same_bits_for_any_chunks() {
    for (shape, number) in [
        ((1000, 700), NumberType::F32),
        ((1000, 701), NumberType::F32),
        ((70, 40_000), NumberType::F64),
        ((300, 40_003), NumberType::Bf16),
    ] {
        let matrix = Matrix::random(7, shape, number);
        let x = X::random(8, shape.1, 5, NumberType::F64, true);
        let x_transposed = X::random(9, shape.0, 2, NumberType::F64, true);
        let case = Case::new(&matrix, Some(&x), Some(&x_transposed));
        case.run(&gpu());
        let wanted = case.results();
        for chunk_bytes in [1, 3 << 20, 1 << 30] {
            for slots in [1, 2, 5] {
                let (chunk_bytes, slots) = (Some(chunk_bytes), Some(slots));
                case.run(&Options { chunk_bytes, slots, ..gpu() });
                assert!(case.results() == wanted, "{shape:?} {chunk_bytes:?} {slots:?}");
            }
        }
        let pageable = MatvecJob { memory: HostMemory::Pageable, ..case.job.clone() };
        multiply(&pageable, &Options { access: AccessPath::Buffered, ..gpu() }).unwrap();
        assert!(case.results() == wanted, "{shape:?} pageable");
    }
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_the_largest_eigenvalue_is_found_and_what_fits_stays() {
    let folder = TempDir::new().unwrap();
    for number in [NumberType::F32, NumberType::F64, NumberType::Bf16] {
        let (job, eigenvalue, vector) = dominant(folder.path(), 3000, number);
        assert_found(&job, &gpu(), eigenvalue, &vector);
        let bytes = 3000 * 3000 * number.bytes() as u64;
        let all = iterate(&job, &gpu()).unwrap();
        assert_eq!(all.iterations[0].resident_bytes, 0);
        assert!(all.iterations[1..].iter().all(|i| i.resident_bytes == bytes), "{all:?}");
        // Room for a part of it.
        let device_limit_bytes = Some(bytes / 2 + (100 << 20));
        let (chunk_bytes, slots) = (Some(1 << 20), Some(2));
        let limited = Options { device_limit_bytes, chunk_bytes, slots, ..gpu() };
        assert_found(&job, &limited, eigenvalue, &vector);
    }
}

#[test]
#[ignore = "measures: needs a GPU, and 8 GB in HEADRACE_MATVEC_DIR, which had better be /dev/shm"]
fn speed_of_products_on_a_gpu() {
    let folder = folder();
    for number in [NumberType::F32, NumberType::F64, NumberType::Bf16] {
        let columns = 1 << 15;
        let rows = (8u64 << 30) / number.bytes() as u64 / columns;
        let path = folder.join("headrace-matvec-gpu.raw");
        let (seed, kind) = (1, MatrixKind::Uniform);
        let made = MatrixJob { path: path.clone(), rows, columns, number, seed, kind };
        generate::matrix(&made, &Options::default()).unwrap();
        let matrix = MatrixFile { path, raw: Some(RawMatrix { rows, columns, number }) };
        let product = |length: u64, vectors: usize, name: &str| {
            let x = X::random(1, length as usize, vectors, NumberType::F32, false);
            let at = |end: &str| folder.join(format!("headrace-matvec-gpu-{name}.{end}.npy"));
            Some(Product { x: x.write(at("x")), y: at("y") })
        };
        println!("{number} {rows} x {columns}, streamed (GB/s of the race, of the kernels)");
        for (name, vectors, forward, transposed) in [
            ("A x", 1, true, false),
            ("Atx", 1, false, true),
            ("both", 1, true, true),
            ("A X of 16", 16, true, false),
            ("AtX of 16", 16, false, true),
        ] {
            for (memory, access, slots, chunk_mb) in [
                (HostMemory::Pinned, AccessPath::Auto, None, None),
                (HostMemory::Pinned, AccessPath::Buffered, None, None),
                (HostMemory::Pinned, AccessPath::Buffered, Some(4), Some(35)),
                (HostMemory::Pinned, AccessPath::Buffered, Some(4), Some(70)),
                (HostMemory::Pinned, AccessPath::Buffered, Some(1), None),
                (HostMemory::Pageable, AccessPath::Buffered, None, None),
                (HostMemory::Pageable, AccessPath::Buffered, Some(1), None),
            ] {
                if name != "A x" && access != AccessPath::Auto {
                    continue;
                }
                let job = MatvecJob {
                    matrix: matrix.clone(),
                    product: product(columns, vectors, "product").filter(|_| forward),
                    transposed: product(rows, vectors, "transposed").filter(|_| transposed),
                    result: None,
                    memory,
                };
                let chunk_bytes = chunk_mb.map(|mb: usize| mb * 1_000_000);
                let report = multiply(&job, &Options { access, slots, chunk_bytes, ..gpu() });
                let report = report.unwrap();
                let race = &report.report.passes[0].race;
                let bytes = race.bytes_by_path.total() as f64;
                println!(
                    "  {name}, {} {access} slots {slots:?} chunks of {} MB: {:.1}, {:.0}; whole call {:.1}",
                    memory.name(),
                    report.chunk_bytes / 1_000_000,
                    race.gb_per_s(),
                    bytes / race.kernel_ns.max(1) as f64,
                    report.report.gb_per_s(),
                );
            }
        }
    }
    let rows = 1 << 15;
    let path = folder.join("headrace-matvec-gpu.npy");
    let (number, seed, kind) = (NumberType::F32, 1, MatrixKind::Dominant);
    let made = MatrixJob { path: path.clone(), rows, columns: rows, number, seed, kind };
    generate::matrix(&made, &Options::default()).unwrap();
    for chunk_mb in [16, 64, 256] {
        let job = IterateJob {
            matrix: MatrixFile { path: path.clone(), raw: None },
            start: None,
            output: None,
            iterations: 20,
            tolerance: 0.0,
            result: None,
            memory: HostMemory::Pinned,
        };
        let report =
            iterate(&job, &Options { chunk_bytes: Some(chunk_mb << 20), ..gpu() }).unwrap();
        let race = &report.report.passes[1].race;
        let last = report.iterations.last().unwrap();
        println!(
            "iterate {rows} x {rows} f32, chunks of {chunk_mb} MiB: {} of {} bytes resident, {:.0} GB/s of the race, \
             {:.0} of the kernels",
            last.resident_bytes,
            last.resident_bytes + last.streamed_bytes,
            race.gb_per_s(),
            race.bytes_by_path.total() as f64 / race.kernel_ns.max(1) as f64,
        );
    }
    for name in ["headrace-matvec-gpu.npy", "headrace-matvec-gpu.raw"] {
        std::fs::remove_file(folder.join(name)).unwrap();
    }
}
