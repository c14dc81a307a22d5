//! Graphs with few vertices of many edges and many of few: R-MAT (Chakrabarti, Zhan, Faloutsos 2004) with the shares of
//! Graph500, in compressed sparse rows.
//!
//! ```text
//! number of an edge ─► from, to ─► key: to, from ─► file of keys ─► sorted ─► without repeats ─► indices.npy
//!     (any order)                                                                  └─► lengths of rows ─► indptr.npy
//! ```
//!
//! An edge depends on the seed and its number alone, and the sort makes one file of them, so the same seed gives the same
//! bytes for any number of threads. A row lists who points at it. Vertices are renamed by a bijection, so that those
//! with many edges do not lie together.
//!
//! Memory: 8 bytes a vertex, and what the sort takes; within a limit it goes through temporary files. The folder needs 8
//! bytes an edge for the keys, and as many once or twice more while they are sorted. They are in `edges.partial`, which a
//! killed process leaves behind.

use std::path::{Path, PathBuf};
use std::time::Instant;

use headrace_io::random::{drawn_at, mixed};
use serde::Serialize;

use super::fill::{Filled, fill, on_cores};
use super::rows::{Rows, write_rows};
use crate::sort::{Order, RecordLayout, SortJob, sort};
use crate::{NumberType, OocError, Options, Processor, Report, Result};

/// Shares of the four quadrants of a matrix, of 2^32: 0.57, 0.19, 0.19, and the rest. Ends of the first three.
const ENDS: [u64; 3] = [2_448_131_358, 3_264_175_144, 4_080_218_931];

/// Numbers of vertices are of 32 bits.
const SCALE_MAX: u32 = 32;

/// Numbers that are drawn for an edge: two levels each.
const DRAWS: u64 = SCALE_MAX as u64 / 2;

/// A graph to be generated.
#[derive(Debug, Clone)]
pub struct RmatJob {
    /// Folder of its files, which is made: `indptr.npy`, `indices.npy`, `shape.npy`.
    pub folder: PathBuf,
    /// It has 2^scale vertices, up to 2^32.
    pub scale: u32,
    /// Edges that are drawn, for each vertex.
    pub edges_per_vertex: u64,
    /// Whether each edge leads both ways.
    pub is_undirected: bool,
    /// Whether an edge that is drawn again is another edge.
    pub keeps_repeats: bool,
    /// Another seed makes another graph.
    pub seed: u64,
}

/// The graph that was made.
#[derive(Debug, Clone, Serialize)]
pub struct RmatReport {
    /// Its vertices.
    pub vertices: u64,
    /// Edges that were drawn, both ways of each if it has both.
    pub drawn_edges: u64,
    /// Edges that it has.
    pub edges: u64,
    /// The operator's report.
    pub report: Report,
}

/// Generates a graph.
///
/// # Errors
/// [`OocError::Usage`] for more vertices or edges than there can be; errors of files, races and the sort. The folder has
/// no matrix then: `indptr.npy` is put in place last.
pub fn rmat(job: &RmatJob, options: &Options) -> Result<RmatReport> {
    let start = Instant::now();
    let edges = Edges::of(job)?;
    std::fs::create_dir_all(&job.folder).map_err(|cause| {
        OocError::usage(format!("{}: {cause}", job.folder.display()), "name another folder")
    })?;
    let options = &Options { processor: Processor::Cpu, ..options.clone() };
    let keys = Temporary(job.folder.join("edges.partial"));
    let room = on_cores(options)?;
    let filled = [Filled { path: keys.0.clone(), bytes: edges.count * 8 }];
    let fill_keys = |_, offset: u64, bytes: &mut [u8]| edges.fill(offset / 8, bytes);
    let written = fill(&filled, options, &room, fill_keys)?;
    drop(room);
    let sorted = sort(
        &SortJob {
            input: keys.0.clone(),
            output: keys.0.clone(),
            layout: RecordLayout::keys(NumberType::U64),
            order: Order::Ascending,
            temporary_folder: Some(job.folder.clone()),
            temporary_limit_bytes: None,
        },
        options,
    )?;
    let rows = Rows { folder: &job.folder, rows: 1 << job.scale, keeps_repeats: job.keeps_repeats };
    let (kept, mut report) = write_rows(&rows, &keys.0, options)?;
    report.passes = written.passes.into_iter().chain(sorted.passes).chain(report.passes).collect();
    report.host_peak_bytes =
        report.host_peak_bytes.max(written.host_peak_bytes).max(sorted.host_peak_bytes);
    report.temporary_bytes = sorted.temporary_bytes + edges.count * 8;
    report.wall_ns = start.elapsed().as_nanos() as u64;
    Ok(RmatReport { vertices: 1 << job.scale, drawn_edges: edges.count, edges: kept, report })
}

/// A file that is removed when it is done with.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        // It may not have been made.
        let _ = std::fs::remove_file(AsRef::<Path>::as_ref(&self.0));
    }
}

/// The edges of a graph, by number.
struct Edges {
    scale: u32,
    /// Keys: of both ways of an edge, one after the other.
    count: u64,
    is_undirected: bool,
    seed: u64,
    /// Odd factors of the renaming.
    factors: [u64; 2],
}

impl Edges {
    fn of(job: &RmatJob) -> Result<Edges> {
        let &RmatJob { scale, edges_per_vertex, is_undirected, seed, .. } = job;
        let ways = if is_undirected { 2 } else { 1 };
        let vertices = if scale <= SCALE_MAX { Some(1u64 << scale) } else { None };
        let count = vertices
            .and_then(|vertices| vertices.checked_mul(edges_per_vertex)?.checked_mul(ways))
            .filter(|count| *count < 1 << 48);
        let Some(count) = count else {
            let what = format!("2^{scale} vertices with {edges_per_vertex} edges each");
            return Err(OocError::usage(what, "at most 2^32 vertices and 2^48 edges"));
        };
        let factors = [seed, !seed].map(|seed| mixed(seed) | 1);
        Ok(Edges { scale, count, is_undirected, seed, factors })
    }

    /// Writes consecutive keys, from an even one on: an edge as a number that sorts by row, where it leads to, then
    /// where it comes from; of an undirected graph each edge, then the same turned round.
    fn fill(&self, first: u64, bytes: &mut [u8]) {
        let key = |row: u64, column: u64| (row << 32 | column).to_le_bytes();
        if self.is_undirected {
            for (edge, into) in (first / 2..).zip(bytes.as_chunks_mut::<16>().0) {
                let (from, to) = self.edge(edge);
                into[..8].copy_from_slice(&key(to, from));
                into[8..].copy_from_slice(&key(from, to));
            }
            return;
        }
        for (edge, into) in (first..).zip(bytes.as_chunks_mut::<8>().0) {
            let (from, to) = self.edge(edge);
            *into = key(to, from);
        }
    }

    /// Where an edge leads from and to.
    fn edge(&self, number: u64) -> (u64, u64) {
        let (mut from, mut to) = (0, 0);
        for pair in 0..self.scale.div_ceil(2) {
            let mut drawn = drawn_at(self.seed, number * DRAWS + u64::from(pair));
            for _ in 2 * pair..self.scale.min(2 * pair + 2) {
                let share = drawn & u64::from(u32::MAX);
                let quadrant: u64 = ENDS.iter().map(|end| u64::from(share >= *end)).sum();
                (from, to) = (from << 1 | quadrant >> 1, to << 1 | quadrant & 1);
                drawn >>= 32;
            }
        }
        (self.renamed(from), self.renamed(to))
    }

    /// A bijection of the vertices: each step can be undone.
    fn renamed(&self, vertex: u64) -> u64 {
        let mask = (1u64 << self.scale) - 1;
        let shift = self.scale.div_ceil(2).max(1);
        self.factors.iter().fold(vertex, |vertex, factor| {
            let vertex = vertex.wrapping_add(*factor >> 32).wrapping_mul(*factor) & mask;
            vertex ^ vertex >> shift
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn job(scale: u32) -> RmatJob {
        let (folder, edges_per_vertex, seed) = (PathBuf::new(), 16, 7);
        RmatJob {
            folder,
            scale,
            edges_per_vertex,
            is_undirected: false,
            keeps_repeats: false,
            seed,
        }
    }

    #[test]
    fn renaming_is_a_bijection() {
        for scale in [0, 1, 2, 3, 7, 12] {
            let edges = Edges::of(&job(scale)).unwrap();
            let mut renamed: Vec<u64> =
                (0..1 << scale).map(|vertex| edges.renamed(vertex)).collect();
            renamed.sort_unstable();
            assert!(renamed.into_iter().eq(0..1 << scale), "{scale}");
        }
    }

    #[test]
    fn quadrants_have_their_shares() {
        let edges = Edges { factors: [1, 1], ..Edges::of(&job(1)).unwrap() };
        let mut counts = [0.0f64; 4];
        for edge in 0..100_000 {
            let (from, to) = edges.edge(edge);
            counts[(from << 1 | to) as usize] += 1.0 / 100_000.0;
        }
        // A renaming of two vertices by factors of 1 leaves them as they are.
        for (share, wanted) in counts.into_iter().zip([0.57, 0.19, 0.19, 0.05]) {
            assert!((share - wanted).abs() < 0.01, "{counts:?}");
        }
    }

    #[test]
    fn what_there_cannot_be_is_refused() {
        assert!(Edges::of(&job(33)).is_err());
        assert!(Edges::of(&RmatJob { edges_per_vertex: 1 << 40, ..job(20) }).is_err());
    }
}
