//! Generated graphs.

use headrace_ooc::generate::{RmatJob, rmat};
use headrace_ooc::sparse::{CsrFile, RanksJob, ranks};
use headrace_ooc::{Options, npy::Npy};
use tempfile::TempDir;

use crate::support::*;

fn job(folder: &TempDir) -> RmatJob {
    RmatJob {
        folder: folder.path().join("graph"),
        scale: 12,
        edges_per_vertex: 16,
        is_undirected: false,
        keeps_repeats: false,
        seed: 1,
    }
}

fn array_of(job: &RmatJob, name: &str) -> Vec<u64> {
    let bytes = std::fs::read(job.folder.join(format!("{name}.npy"))).unwrap();
    let npy = Npy::parse(&bytes).unwrap();
    let values = &bytes[npy.data_offset as usize..];
    assert_eq!(npy.data_bytes(), Some(values.len() as u64));
    match npy.number.bytes() {
        4 => values.as_chunks().0.iter().map(|v| u64::from(u32::from_le_bytes(*v))).collect(),
        _ => values.as_chunks().0.iter().map(|v| u64::from_le_bytes(*v)).collect(),
    }
}

/// Edges, from and to, in the order of rows.
fn edges_of(job: &RmatJob) -> Vec<(u64, u64)> {
    let (indptr, indices) = (array_of(job, "indptr"), array_of(job, "indices"));
    assert_eq!(indptr.len(), (1 << job.scale) + 1);
    let rows = indptr.windows(2).enumerate();
    rows.flat_map(|(row, ends)| {
        indices[ends[0] as usize..ends[1] as usize].iter().map(move |column| (*column, row as u64))
    })
    .collect()
}

#[test]
fn graphs_are_sorted_and_the_same_for_any_threads() {
    let folder = TempDir::new().unwrap();
    let job = job(&folder);
    let report = rmat(&job, &cores(1)).unwrap();
    let edges = edges_of(&job);
    assert_eq!((report.vertices, report.edges), (4096, edges.len() as u64));
    assert_eq!(report.drawn_edges, 65_536);
    assert!(edges.len() < 65_536 && edges.len() > 40_000, "{}", edges.len());
    assert!(edges.windows(2).all(|pair| (pair[0].1, pair[0].0) < (pair[1].1, pair[1].0)));
    assert_eq!(array_of(&job, "shape"), [4096, 4096]);
    let names = std::fs::read_dir(&job.folder).unwrap().count();
    assert_eq!(names, 3, "nothing else is left");
    for threads in [2, 3] {
        rmat(&job, &cores(threads)).unwrap();
        assert!(edges_of(&job) == edges);
    }
    rmat(&RmatJob { seed: 2, ..job.clone() }, &cores(2)).unwrap();
    assert!(edges_of(&job) != edges);
}

#[test]
fn repeats_stay_if_they_are_to_and_edges_lead_both_ways() {
    let folder = TempDir::new().unwrap();
    let keeps = RmatJob { keeps_repeats: true, ..job(&folder) };
    assert_eq!(rmat(&keeps, &cores(2)).unwrap().edges, 65_536);
    let mut all = edges_of(&keeps);
    assert_eq!(all.len(), 65_536);
    all.dedup();
    rmat(&job(&folder), &cores(2)).unwrap();
    assert!(edges_of(&keeps) == all);
    let undirected = RmatJob { is_undirected: true, ..job(&folder) };
    assert_eq!(rmat(&undirected, &cores(2)).unwrap().drawn_edges, 131_072);
    let both = edges_of(&undirected);
    let turned: std::collections::BTreeSet<_> =
        both.iter().map(|(from, to)| (*to, *from)).collect();
    assert!(both.iter().all(|edge| turned.contains(edge)));
    assert!(all.iter().all(|edge| turned.contains(edge)));
}

#[test]
fn edges_across_chunks_are_counted_once() {
    let folder = TempDir::new().unwrap();
    // Several chunks of keys, and rows across their ends.
    let job = RmatJob { scale: 6, edges_per_vertex: 50_000, ..job(&folder) };
    let report = rmat(&job, &cores(3)).unwrap();
    let edges = edges_of(&job);
    assert!(edges.windows(2).all(|pair| (pair[0].1, pair[0].0) < (pair[1].1, pair[1].0)));
    assert_eq!(report.edges, edges.len() as u64);
    assert!(report.edges > 3000 && report.edges <= 4096);
    // The keys do not fit: they are sorted through temporary files.
    let limited = Options { memory_limit_bytes: Some(32 << 20), ..cores(2) };
    let limited = rmat(&job, &limited).unwrap().report;
    assert!(limited.host_peak_bytes <= 32 << 20 && limited.temporary_bytes > 3_200_000 * 8);
    assert!(edges_of(&job) == edges);
    let keeps = RmatJob { keeps_repeats: true, ..job.clone() };
    assert_eq!(rmat(&keeps, &cores(3)).unwrap().edges, 3_200_000);
    let graph = CsrFile { path: job.folder };
    let output = folder.path().join("ranks.npy");
    let ranked =
        RanksJob { graph, output, damping: 0.85, tolerance: 1e-9, iterations: 90, result: None };
    assert!(ranks(&ranked, &cores(2)).unwrap().has_converged);
}

#[test]
fn graphs_of_one_vertex_and_of_no_edges_are_graphs() {
    let folder = TempDir::new().unwrap();
    for (scale, edges_per_vertex) in [(0, 3), (5, 0), (1, 1)] {
        let job = RmatJob { scale, edges_per_vertex, ..job(&folder) };
        let report = rmat(&job, &cores(2)).unwrap();
        assert_eq!(edges_of(&job).len() as u64, report.edges);
    }
}
