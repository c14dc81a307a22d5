//! How fast products are, beside what memory delivers.
//!
//!     HEADRACE_SPARSE_DIR=/folder cargo test -p headrace-ooc --release --test sparse -- --ignored --nocapture speed::
//!
//! The graph stays in the folder, for whoever compares.

use std::time::Instant;

use headrace_ooc::generate::{RmatJob, rmat};
use headrace_ooc::matvec::VectorFile;
use headrace_ooc::sparse::{CsrFile, LevelsJob, RanksJob, SpmvJob, levels, multiply, ranks};
use headrace_ooc::{NumberType, Options};

use crate::support::*;

/// GB/s of a plain sum of memory, on so many threads.
fn memory_rate(threads: usize) -> f64 {
    let words = vec![1u64; 64 << 20];
    let start = Instant::now();
    let sums: Vec<u64> = std::thread::scope(|scope| {
        let parts = words.chunks(words.len().div_ceil(threads));
        let sum = |part: &[u64]| part.iter().fold(0u64, |sum, word| sum.wrapping_add(*word));
        let handles: Vec<_> = parts.map(|part| scope.spawn(move || sum(part))).collect();
        handles.into_iter().map(|handle| handle.join().unwrap()).collect()
    });
    assert_eq!(sums.iter().sum::<u64>(), words.len() as u64);
    (words.len() * 8) as f64 / start.elapsed().as_nanos() as f64
}

#[test]
#[ignore = "measures: needs a quiet machine, and 2 GB of storage and memory"]
fn speed_of_cores() {
    let scale = std::env::var("HEADRACE_SPARSE_SCALE").map_or(22, |scale| scale.parse().unwrap());
    let (threads, folder) = (Options::default().threads(), folder());
    let graph = folder.join(format!("headrace-rmat-{scale}"));
    let job = RmatJob {
        folder: graph.clone(),
        scale,
        edges_per_vertex: 16,
        is_undirected: true,
        keeps_repeats: false,
        seed: 42,
    };
    let made = rmat(&job, &cores(threads)).unwrap();
    let seconds = made.report.wall_ns as f64 / 1e9;
    println!(
        "scale {scale}: {} vertices, {} of {} edges, {seconds:.1} s, {:.1} million edges/s",
        made.vertices,
        made.edges,
        made.drawn_edges,
        made.drawn_edges as f64 / seconds / 1e6
    );
    println!(
        "memory: {:.1} GB/s on 1 thread, {:.1} on {threads}",
        memory_rate(1),
        memory_rate(threads)
    );
    let x = folder.join("headrace-rmat-x.npy");
    std::fs::write(&x, array(numbers(1, made.vertices as usize).into_iter(), NumberType::F64))
        .unwrap();
    for threads in [1, threads] {
        let job = SpmvJob {
            matrix: CsrFile { path: graph.clone() },
            x: VectorFile { path: x.clone(), raw: None },
            y: folder.join("headrace-rmat-y.npy"),
            result: Some(NumberType::F64),
        };
        let times = (0..5).map(|_| {
            let report = multiply(&job, &cores(threads)).unwrap().report;
            report.passes[0].race.wall_ns
        });
        let best = times.min().unwrap() as f64;
        let bytes = made.edges * 4 + made.vertices * (4 + 16);
        println!(
            "A x on {threads}: {:.3} s, {:.1} million entries/s, {:.2} GB/s of the matrix, {:.2} with x and y once, {:.2} \
             with 8 bytes a factor",
            best / 1e9,
            made.edges as f64 / best * 1e3,
            (made.edges * 4 + made.vertices * 4) as f64 / best,
            bytes as f64 / best,
            (bytes + made.edges * 8) as f64 / best
        );
    }
    let output = folder.join("headrace-rmat-ranks.npy");
    let graph = || CsrFile { path: graph.clone() };
    let job = RanksJob {
        graph: graph(),
        output,
        damping: 0.85,
        tolerance: 1e-6,
        iterations: 100,
        result: None,
    };
    let told = ranks(&job, &cores(threads)).unwrap();
    let best = told.iterations.iter().map(|iteration| iteration.wall_ns).min().unwrap() as f64;
    println!(
        "ranks: {} iterations, {:.3} s each at best, {:.1} million edges/s, {:.3} s in all",
        told.iterations.len(),
        best / 1e9,
        told.edges as f64 / best * 1e3,
        told.report.wall_ns as f64 / 1e9
    );
    let output = folder.join("headrace-rmat-levels.npy");
    let told = levels(&LevelsJob { graph: graph(), source: 3, output }, &cores(threads)).unwrap();
    println!(
        "levels: {}, {} vertices, {:.1} million edges/s",
        told.levels.len(),
        told.reached_vertices,
        told.edges_per_s() / 1e6
    );
    for level in &told.levels {
        println!("  {level:?}");
    }
}
