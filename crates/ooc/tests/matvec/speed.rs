//! How fast products are, beside a plain sum of the same bytes.
//!
//!     HEADRACE_MATVEC_DIR=/folder cargo test -p headrace-ooc --test matvec -- --ignored --nocapture speed::

use std::path::PathBuf;
use std::time::Instant;

use headrace_flow::{
    BoxError, CancelToken, ChunkSpec, FedChunk, HostConsumer, HostMemory, Race, RaceOptions,
    ReadSpec, Verdict,
};
use headrace_io::{SourceFile, drop_cache};
use headrace_ooc::generate::{self, MatrixJob, MatrixKind};
use headrace_ooc::matvec::{MatrixFile, MatvecJob, Product, RawMatrix, multiply};
use headrace_ooc::{NumberType, Options};

use crate::support::*;

/// Bytes of the matrix.
const BYTES: u64 = 2 << 30;

/// Adds up the bytes of chunks, as 64-bit words.
struct Sum(u64);

impl HostConsumer for Sum {
    fn consume(&mut self, _chunk: &FedChunk, buffers: &[&[u8]]) -> Result<Verdict, BoxError> {
        let words = buffers.iter().flat_map(|buffer| buffer.as_chunks().0);
        self.0 = words.fold(self.0, |sum, word| sum.wrapping_add(u64::from_ne_bytes(*word)));
        Ok(Verdict::Continue)
    }
}

/// GB/s of a plain sum through the race.
fn sum_rate(path: &std::path::Path, threads: usize) -> f64 {
    let chunk_bytes = 16 << 20;
    let chunk = |chunk| ChunkSpec {
        reads: vec![ReadSpec { file: 0, offset: chunk * chunk_bytes, bytes: chunk_bytes }],
    };
    let chunks = (0..BYTES / chunk_bytes).map(chunk).collect();
    let file = SourceFile::open(path).unwrap();
    let start = Instant::now();
    let race = Race::new(vec![file], chunks, RaceOptions::default(), CancelToken::new()).unwrap();
    let (sums, _) = race.run_host((0..threads).map(|_| Sum(0)).collect()).unwrap();
    assert!(sums.iter().any(|sum| sum.0 != 0));
    BYTES as f64 / start.elapsed().as_nanos() as f64
}

/// Reads all of a file through the page cache.
fn fill_cache(path: &std::path::Path) {
    std::io::copy(&mut std::fs::File::open(path).unwrap(), &mut std::io::sink()).unwrap();
}

pub fn folder() -> PathBuf {
    std::env::var_os("HEADRACE_MATVEC_DIR").map_or_else(std::env::temp_dir, PathBuf::from)
}

#[test]
#[ignore = "measures: needs a quiet machine, 2 GB of storage and as much memory"]
fn speed_of_cores() {
    let (folder, threads) = (folder(), Options::default().threads());
    // Type, columns, product, as far as only some are wanted.
    let only = std::env::var("HEADRACE_MATVEC_ONLY").ok();
    let path = folder.join("headrace-matvec.raw");
    for (number, columns) in [
        (NumberType::F32, 1 << 15),
        (NumberType::F64, 1 << 14),
        (NumberType::Bf16, 1 << 15),
        (NumberType::F32, 1 << 10),
        (NumberType::F32, 16),
        (NumberType::F32, 1 << 20),
    ] {
        let rows = BYTES / number.bytes() as u64 / columns;
        let (seed, kind) = (1, MatrixKind::Uniform);
        let of_shape = format!("{number} {columns} ");
        if only.as_ref().is_some_and(|only| !only.starts_with(&of_shape)) {
            continue;
        }
        let made = MatrixJob { path: path.clone(), rows, columns, number, seed, kind };
        let made = generate::matrix(&made, &cores(threads)).unwrap();
        println!(
            "{number} {rows} x {columns}: made at {:.2} GB/s",
            BYTES as f64 / made.wall_ns as f64
        );
        let matrix =
            MatrixFile { path: path.clone(), raw: Some(RawMatrix { rows, columns, number }) };
        let vector = |length: u64, vectors: usize, name: &str| {
            let x = X::random(1, length as usize, vectors, NumberType::F32, false);
            let at = |end: &str| folder.join(format!("headrace-matvec-{name}-{vectors}.{end}.npy"));
            Product { x: x.write(at("x")), y: at("y") }
        };
        let product = |vectors| Some(vector(columns, vectors, "product"));
        let transposed = |vectors| Some(vector(rows, vectors, "transposed"));
        let (matrix, result) = (|| matrix.clone(), None);
        for (name, product, transposed) in [
            ("A x", product(1), None),
            ("Atx", None, transposed(1)),
            ("both", product(1), transposed(1)),
            ("A X of 4", product(4), None),
            ("A X of 16", product(16), None),
            ("AtX of 4", None, transposed(4)),
            ("AtX of 16", None, transposed(16)),
        ] {
            let is_wanted = only
                .as_ref()
                .is_none_or(|only| format!("{number} {columns} {name}").contains(only));
            if !is_wanted {
                continue;
            }
            let job = MatvecJob {
                matrix: matrix(),
                product,
                transposed,
                result,
                memory: HostMemory::Pinned,
            };
            let rate = || {
                let report = multiply(&job, &cores(threads)).unwrap();
                report.report.passes[0].race.gb_per_s()
            };
            fill_cache(&path);
            let mut rates: Vec<(f64, f64)> =
                (0..15).map(|_| (sum_rate(&path, threads), rate())).collect();
            rates.sort_by(|a, b| (a.1 / a.0).total_cmp(&(b.1 / b.0)));
            let (sum, hot) = rates[7];
            println!(
                "  {name}: hot {hot:.2} GB/s, a plain sum {sum:.2}, {:.0} %",
                hot / sum * 100.0
            );
            if name == "A x" {
                let file = SourceFile::open(&path).unwrap();
                drop_cache(&*file).unwrap();
                let cold = rate();
                drop_cache(&*file).unwrap();
                println!(
                    "  {name}: cold {cold:.2} GB/s, a plain sum {:.2}",
                    sum_rate(&path, threads)
                );
            }
        }
    }
    std::fs::remove_file(&path).unwrap();
}

#[test]
#[ignore = "measures: needs 2 GB of storage, and a process of its own"]
fn speed_of_cores_in_little_memory() {
    let (path, columns, number) =
        (folder().join("headrace-matvec-cold.raw"), 1 << 15, NumberType::F32);
    let rows = BYTES / number.bytes() as u64 / columns;
    let (seed, kind) = (1, MatrixKind::Uniform);
    let made = MatrixJob { path: path.clone(), rows, columns, number, seed, kind };
    let limited = Options { memory_limit_bytes: Some(64 << 20), ..cores(2) };
    generate::matrix(&made, &limited).unwrap();
    drop_cache(&*SourceFile::open(&path).unwrap()).unwrap();
    let x = X::random(1, columns as usize, 1, NumberType::F32, false);
    let x = x.write(path.with_extension("x.npy"));
    let job = MatvecJob {
        matrix: MatrixFile { path: path.clone(), raw: Some(RawMatrix { rows, columns, number }) },
        product: Some(Product { x, y: path.with_extension("y.npy") }),
        transposed: None,
        result: None,
        memory: HostMemory::Pinned,
    };
    let report = multiply(&job, &limited).unwrap().report;
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let high = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    let (gb_per_s, peak_bytes) = (report.gb_per_s(), report.host_peak_bytes);
    println!("cold in 64 MiB: {gb_per_s:.2} GB/s, {peak_bytes} bytes reserved at most, {high}");
    std::fs::remove_file(&path).unwrap();
}
