//! Ranks of a graph's vertices: PageRank.
//!
//! `rank[v] = (1 - d) / n + d (sum of rank[u] / out[u] over the edges from u to v + what dangles / n)`, where `d` is the
//! damping, `out[u]` counts the edges that leave `u`, repeated ones included, and the ranks of vertices that no edge
//! leaves dangle. One product with the entries of the matrix an iteration; its values are not looked at.
//!
//! Memory: 32 bytes a vertex, and as much of a GPU. Sums over all vertices are of lanes of blocks, then of the lanes in pairs, then of the
//! blocks in order: the same bits for any number of threads, and on a GPU.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use headrace_flow::RaceReport;
use headrace_io::{MemoryBudget, MemoryUse, Reservation, for_each, huge};
use serde::Serialize;

use super::csr::{Csr, CsrFile};
use super::degrees::Degrees;
use super::pass::Passes;
use super::sums::Sums;
use crate::files::check_outputs;
use crate::vectors::{Shape, Vectors, Written, check_result, commit};
use crate::{NumberType, OocError, Options, Report, Result, Room};

/// Vertices of a block.
const BLOCK: usize = super::launches::RANKED;

/// Sums of a block, as many as a kernel has threads for it: vertex `v` goes into sum `v % LANES`.
const LANES: usize = super::launches::BLOCK as usize;

/// The ranks to compute.
#[derive(Debug, Clone)]
pub struct RanksJob {
    /// The graph: row `r` lists who points at `r`. A square matrix.
    pub graph: CsrFile,
    /// Destination of the ranks, which add up to 1: a `.npy` file if the name ends so, else raw values.
    pub output: PathBuf,
    /// The share of a vertex's rank that goes on along its edges, from 0 to 1.
    pub damping: f64,
    /// Ends when the ranks of an iteration differ from those before by no more than this, in sum.
    pub tolerance: f64,
    /// Maximum of iterations, at least 1.
    pub iterations: usize,
    /// Type of the output: `f32` or `f64`; `None`: `f64`.
    pub result: Option<NumberType>,
}

/// One iteration.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct RanksIteration {
    /// The sum of the ranks' changes.
    pub change: f64,
    /// The sum of the ranks that dangled.
    pub dangling: f64,
    /// Its time.
    pub wall_ns: u64,
    /// Bytes of the graph that it went through.
    pub bytes: u64,
    /// Of these, bytes that were read: the others were in memory.
    pub read_bytes: u64,
}

/// The result of the iterations.
#[derive(Debug, Clone, Serialize)]
pub struct RanksReport {
    /// Vertices of the graph.
    pub vertices: u64,
    /// Its edges.
    pub edges: u64,
    /// Every iteration.
    pub iterations: Vec<RanksIteration>,
    /// Whether the last change was within the tolerance.
    pub has_converged: bool,
    /// The report, with the count of edges, the first product and the last.
    pub report: Report,
}

/// Computes ranks.
///
/// # Errors
/// [`OocError::Usage`] for a damping or a tolerance that is none; [`OocError::Input`] for a graph without vertices, or a
/// matrix that is not square; otherwise as [`multiply`](super::multiply).
pub fn ranks(job: &RanksJob, options: &Options) -> Result<RanksReport> {
    let start = Instant::now();
    check(job)?;
    let files = &*options.files;
    let csr = Csr::open(files, &job.graph)?;
    csr.check_graph()?;
    let room = Room::for_repeated(options, csr.without_values().bytes())?;
    let inputs: Vec<&Path> = csr.arrays().map(|array| array.file.path()).collect();
    check_outputs(&[&job.output], &inputs)?;
    let (vertices, edges, has_values) = (csr.rows, csr.entries, csr.data.is_some());
    let mut state = State::new(&room, &csr, job.damping)?;
    let number = job.result.unwrap_or(NumberType::F64);
    let shape = Shape { length: vertices, count: 1, is_flat: true, number };
    let sink = Written::begin(files, &job.output, shape)?;
    let mut passes = Passes::new(csr.without_values(), &room, options, true)?;
    let plan_ns = start.elapsed().as_nanos() as u64;
    let mut races = vec![("count", state.degrees.count(&passes)?)];
    state.share(room.threads);
    state.lie(&mut passes)?;
    let mut iterations: Vec<RanksIteration> = Vec::new();
    let mut has_converged = false;
    while iterations.len() < job.iterations.max(1) && !has_converged {
        let (iteration, race) = state.iterate(&mut passes, room.threads)?;
        has_converged = iteration.change <= job.tolerance;
        iterations.push(iteration);
        let name = if races.len() == 1 { "first product" } else { "last product" };
        races.truncate(2);
        races.push((name, race));
    }
    passes.end_ranks(&mut state.ranks)?;
    sink.write(&state.ranks)?;
    let output_bytes = commit(std::iter::once(&sink), options.sync)?;
    let mut report = room.report(races);
    report.input_bytes = passes.csr.bytes() * (1 + iterations.len() as u64);
    (report.output_bytes, report.plan_ns) = (output_bytes, plan_ns);
    report.wall_ns = start.elapsed().as_nanos() as u64;
    report
        .notes
        .extend(has_values.then(|| "the values of the matrix were not looked at".to_string()));
    let (vertices, edges) = (vertices as u64, edges as u64);
    Ok(RanksReport { vertices, edges, iterations, has_converged, report })
}

fn check(job: &RanksJob) -> Result<()> {
    check_result(job.result)?;
    if !(0.0..=1.0).contains(&job.damping) {
        let what = format!("a damping of {}", job.damping);
        return Err(OocError::usage(what, "it is a share, from 0 to 1: 0.85"));
    }
    if job.tolerance.is_nan() || job.tolerance < 0.0 {
        let what = format!("a tolerance of {}", job.tolerance);
        return Err(OocError::usage(what, "it is a sum of changes: 1e-6; 0 runs all iterations"));
    }
    Ok(())
}

/// The vectors of an iteration.
struct State {
    damping: f64,
    ranks: Vec<f64>,
    /// The share of its rank that each edge of a vertex carries.
    shares: Vectors,
    sums: Sums,
    degrees: Degrees,
    /// The sum of the ranks that dangle.
    dangling: f64,
    /// Whether the ranks lie on a device.
    is_on_device: bool,
    _memory: Reservation,
}

/// Sums over a block of vertices.
#[derive(Debug, Clone, Copy, Default)]
struct BlockSums {
    change: f64,
    dangling: f64,
}

impl BlockSums {
    fn plus(self, other: Self) -> Self {
        Self { change: self.change + other.change, dangling: self.dangling + other.dangling }
    }

    /// The lanes in pairs: those of the second half to those of the first, again and again.
    fn of_lanes(mut lanes: [Self; LANES]) -> Self {
        let mut half = LANES / 2;
        while half > 0 {
            for lane in 0..half {
                lanes[lane] = lanes[lane].plus(lanes[lane + half]);
            }
            half /= 2;
        }
        lanes[0]
    }
}

impl State {
    fn new(room: &Room, csr: &Csr, damping: f64) -> Result<State> {
        let memory: &Arc<MemoryBudget> = &room.memory;
        let vertices = csr.rows;
        let sums = Sums::zero(memory, (vertices, csr.entries), 1)?;
        let degrees = Degrees::zero(memory, vertices)?;
        let reserved = memory.reserve(MemoryUse::Pipelines, vertices as u64 * 8)?;
        let ranks = huge::filled(1.0 / vertices as f64, vertices, room.threads);
        let shares = Vectors::one(memory, std::iter::repeat(0.0), vertices)?;
        Ok(State {
            damping,
            ranks,
            shares,
            sums,
            degrees,
            dangling: 0.0,
            is_on_device: false,
            _memory: reserved,
        })
    }

    /// The first shares, when degrees are known.
    fn share(&mut self, threads: usize) {
        self.update(threads, |_, rank| rank);
    }

    /// From now on the ranks are on the device, if there is one.
    fn lie(&mut self, passes: &mut Passes<'_>) -> Result<()> {
        self.is_on_device =
            passes.begin_ranks(&self.ranks, &self.shares, self.degrees.blocks(BLOCK))?;
        Ok(())
    }

    /// One product, and the ranks behind it.
    fn iterate(
        &mut self,
        passes: &mut Passes<'_>,
        threads: usize,
    ) -> Result<(RanksIteration, RaceReport)> {
        let start = Instant::now();
        let (damping, dangling, vertices) = (self.damping, self.dangling, self.ranks.len() as f64);
        let base = (1.0 - damping) / vertices + damping * dangling / vertices;
        let (race, change) = if self.is_on_device {
            let (race, sums) = passes.iterate_ranks((base, damping))?;
            let sums = sums.into_iter().map(|[change, dangling]| BlockSums { change, dangling });
            (race, self.add_up(sums))
        } else {
            self.sums.clear(threads);
            let race = passes.multiply(&self.shares, &mut self.sums)?;
            (race, self.update(threads, |sum, _| base + damping * sum))
        };
        let wall_ns = start.elapsed().as_nanos() as u64;
        let (bytes, read_bytes) = (race.bytes_by_path.total(), race.read_bytes);
        Ok((RanksIteration { change, dangling, wall_ns, bytes, read_bytes }, race))
    }

    /// New ranks, from the sum of a vertex and its old rank, and their shares. Returns the change.
    fn update(&mut self, threads: usize, rank: impl Fn(f64, f64) -> f64 + Sync) -> f64 {
        let (y, degrees) = (&self.sums.y, &self.degrees);
        let mut of_blocks = vec![BlockSums::default(); self.ranks.len().div_ceil(BLOCK)];
        let vectors = self.ranks.chunks_mut(BLOCK).zip(self.shares.values.chunks_mut(BLOCK));
        for_each(
            vectors.zip(&mut of_blocks).enumerate(),
            threads,
            |(block, ((ranks, shares), sums))| {
                let mut lanes = [BlockSums::default(); LANES];
                for (vertex, (old, share)) in (block * BLOCK..).zip(ranks.iter_mut().zip(shares)) {
                    let (new, lane) = (rank(y.get(vertex), *old), &mut lanes[vertex % LANES]);
                    lane.change += (new - std::mem::replace(old, new)).abs();
                    match degrees.of(vertex) {
                        0 => lane.dangling += new,
                        degree => *share = new / degree as f64,
                    }
                }
                *sums = BlockSums::of_lanes(lanes);
            },
        );
        self.add_up(of_blocks.into_iter())
    }

    /// Keeps what dangles in all blocks; returns how much they have changed.
    fn add_up(&mut self, blocks: impl Iterator<Item = BlockSums>) -> f64 {
        let all = blocks.fold(BlockSums::default(), BlockSums::plus);
        self.dangling = all.dangling;
        all.change
    }
}
