//! Levels of a graph's vertices: how many edges they are away from a source, by breadth-first search.
//!
//! ```text
//!  the level before, as bits ─► each row that has no level yet: is one of its columns among them? ─► the next level, as bits
//! ```
//!
//! A level is a product over booleans, which pulls: a row asks its columns, and no more of them than it must. A chunk
//! whose rows all have a level is not read again. Levels are the same for any threads and chunks: whoever finds a row
//! first finds it at the same level. On a GPU a row is asked in tiles (`kernels/search.cu`).
//!
//! Memory: 4 bytes and 2 bits a vertex, and as much of a GPU.

use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::Serialize;

use super::csr::{Csr, CsrFile};
use super::pass::Passes;
use super::search::{Level, State};
use crate::files::check_outputs;
use crate::{NumberType, OocError, Options, Report, Result, Room, npy};

/// The search to run.
#[derive(Debug, Clone)]
pub struct LevelsJob {
    /// The graph: row `r` lists who points at `r`. A square matrix.
    pub graph: CsrFile,
    /// Where paths begin.
    pub source: u64,
    /// Destination of the levels, i32, -1 for what no path leads to: a `.npy` file if the name ends so, else raw values.
    pub output: PathBuf,
}

/// The result of a search.
#[derive(Debug, Clone, Serialize)]
pub struct LevelsReport {
    /// Vertices of the graph.
    pub vertices: u64,
    /// Its edges.
    pub edges: u64,
    /// Vertices that a path leads to, the source included.
    pub reached_vertices: u64,
    /// Edges that point at them.
    pub reached_edges: u64,
    /// Time of all levels.
    pub search_ns: u64,
    /// The levels, from that of the source on.
    pub levels: Vec<Level>,
    /// The report, with the first race and the last.
    pub report: Report,
}

impl LevelsReport {
    /// Edges that point at what was reached, for each second of the search.
    pub fn edges_per_s(&self) -> f64 {
        self.reached_edges as f64 * 1e9 / self.search_ns.max(1) as f64
    }
}

/// Searches.
///
/// # Errors
/// [`OocError::Input`] for a matrix that is not square, [`OocError::Usage`] for a source that it does not have; otherwise
/// as [`multiply`](super::multiply).
pub fn levels(job: &LevelsJob, options: &Options) -> Result<LevelsReport> {
    let start = Instant::now();
    let files = &*options.files;
    let csr = Csr::open(files, &job.graph)?;
    csr.check_graph()?;
    let room = Room::for_repeated(options, csr.without_values().bytes())?;
    let inputs: Vec<&Path> = csr.arrays().map(|array| array.file.path()).collect();
    check_outputs(&[&job.output], &inputs)?;
    if job.source >= csr.rows as u64 {
        let what = format!("vertex {} of {}, counted from 0", job.source, csr.rows);
        return Err(OocError::usage(what, "begin with one that there is"));
    }
    let header = match job.output.extension().is_some_and(|extension| extension == "npy") {
        true => npy::header(NumberType::I32, &[csr.rows as u64]),
        false => Vec::new(),
    };
    let sink = files.create(&job.output, header.len() as u64 + csr.rows as u64 * 4)?;
    let mut passes = Passes::new(csr.without_values(), &room, options, true)?;
    let mut state = State::new(&room, &mut passes, job.source as usize)?;
    let plan_ns = start.elapsed().as_nanos() as u64;
    let searching = Instant::now();
    let (mut found, mut races) =
        (vec![Level { vertices: 1, edges: 0, wall_ns: 0, bytes: 0 }], Vec::new());
    while found.last().is_some_and(|level| level.vertices > 0) {
        let (level, race) = state.next(&mut passes, found.len() as i32)?;
        found.push(level);
        let name = if races.is_empty() { "first level" } else { "last level" };
        races.truncate(1);
        races.push((name, race));
    }
    state.end(&mut passes)?;
    let search_ns = searching.elapsed().as_nanos() as u64;
    let bytes = found.iter().map(|level| level.bytes).sum();
    // The last search found nothing: it is no level.
    found.pop();
    state.write(&*sink, &header)?;
    sink.commit(options.sync)?;
    let (reached_vertices, reached_edges) = state.reached(&passes.csr)?;
    let mut report = room.report(races);
    (report.input_bytes, report.output_bytes) = (bytes, sink.size_bytes());
    (report.plan_ns, report.wall_ns) = (plan_ns, start.elapsed().as_nanos() as u64);
    let (vertices, edges) = (passes.csr.rows as u64, passes.csr.entries as u64);
    let levels = found;
    Ok(LevelsReport { vertices, edges, reached_vertices, reached_edges, search_ns, levels, report })
}
