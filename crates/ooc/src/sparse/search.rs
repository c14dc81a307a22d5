//! The search for the next level: on the cores, or where there is a device for it, there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use headrace_flow::{BoxError, FedChunk, HostConsumer, RaceReport, Verdict};
use headrace_io::write::WriteAt;
use headrace_io::{MemoryBudget, MemoryUse, Reservation};
use serde::Serialize;

use super::chunk::{Checked, Chunk, Fault, Word};
use super::csr::Csr;
use super::faults::Faults;
use super::pass::Passes;
use super::plan::Piece;
use super::sums::words;
use crate::files::write_all;
use crate::{Result, Room};

/// The level of what no path leads to.
const UNREACHED: i32 = -1;

/// Values that are read or written at once.
const BLOCK: usize = 1 << 17;

/// One level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Level {
    /// Its vertices.
    pub vertices: u64,
    /// Edges that were looked at to find them; how many depends on where chunks cut long rows, and on the processor.
    pub edges: u64,
    /// Time of the search for them.
    pub wall_ns: u64,
    /// Bytes of the graph that it went through; chunks that are done are not read.
    pub bytes: u64,
}

/// Bits of vertices.
#[derive(Debug)]
struct Bits(Vec<AtomicU64>);

impl Bits {
    fn none(count: usize) -> Bits {
        Bits(words(count.div_ceil(64), 0))
    }

    #[inline(always)]
    fn has(&self, at: usize) -> bool {
        self.0[at / 64].load(Relaxed) >> (at % 64) & 1 == 1
    }

    fn set(&self, at: usize) {
        self.0[at / 64].fetch_or(1 << (at % 64), Relaxed);
    }

    fn count(&self) -> u64 {
        self.0.iter().map(|word| u64::from(word.load(Relaxed).count_ones())).sum()
    }

    fn clear(&mut self) {
        self.0.iter_mut().for_each(|word| *word.get_mut() = 0);
    }
}

/// What is known of the vertices.
pub(super) struct State {
    pub levels: Vec<AtomicI32>,
    /// The level before, and the next one.
    frontier: Bits,
    next: Bits,
    /// Chunks whose rows all have a level, or no entries.
    pub is_done: Vec<AtomicBool>,
    edges: AtomicU64,
    /// Whether levels and frontiers lie on a device.
    is_on_device: bool,
    _memory: Reservation,
}

impl State {
    pub fn new(room: &Room, passes: &mut Passes<'_>, source: usize) -> Result<State> {
        let sizes = (passes.csr.rows, passes.plan.chunks());
        let mut state = State::of_vertices(&room.memory, sizes, source)?;
        state.is_on_device = passes.begin_search(source)?;
        Ok(state)
    }

    pub fn of_vertices(
        memory: &Arc<MemoryBudget>,
        (vertices, chunks): (usize, usize),
        source: usize,
    ) -> Result<State> {
        let bytes = vertices as u64 * 4 + vertices as u64 / 4 + 16 + chunks as u64;
        let reserved = memory.reserve(MemoryUse::Pipelines, bytes)?;
        let state = State {
            levels: (0..vertices).map(|_| AtomicI32::new(UNREACHED)).collect(),
            frontier: Bits::none(vertices),
            next: Bits::none(vertices),
            is_done: (0..chunks).map(|_| AtomicBool::new(false)).collect(),
            edges: AtomicU64::new(0),
            is_on_device: false,
            _memory: reserved,
        };
        state.levels[source].store(0, Relaxed);
        state.frontier.set(source);
        Ok(state)
    }

    /// Finds a level, and makes it the frontier.
    pub fn next(&mut self, passes: &mut Passes<'_>, level: i32) -> Result<(Level, RaceReport)> {
        let start = Instant::now();
        let is_open = |chunk: &usize| !self.is_done[*chunk].load(Relaxed);
        let chunks: Vec<usize> = passes.all().into_iter().filter(is_open).collect();
        let (race, vertices, edges) = match self.is_on_device {
            true => self.next_on_device(passes, chunks, level)?,
            false => self.next_on_cores(passes, chunks, level)?,
        };
        let (wall_ns, bytes) = (start.elapsed().as_nanos() as u64, race.bytes_by_path.total());
        Ok((Level { vertices, edges, wall_ns, bytes }, race))
    }

    fn next_on_cores(
        &mut self,
        passes: &Passes<'_>,
        chunks: Vec<usize>,
        level: i32,
    ) -> Result<(RaceReport, u64, u64)> {
        let faults = Faults::default();
        let searcher = || Searcher::new(&passes.csr, self, level, &faults);
        let (_, race) = passes.run(chunks, &faults, searcher)?;
        let (vertices, edges) = self.advance();
        Ok((race, vertices, edges))
    }

    /// What was found is the frontier: how many vertices, by how many edges.
    pub fn advance(&mut self) -> (u64, u64) {
        let found = (self.next.count(), std::mem::take(self.edges.get_mut()));
        std::mem::swap(&mut self.frontier, &mut self.next);
        self.next.clear();
        found
    }

    fn next_on_device(
        &mut self,
        passes: &mut Passes<'_>,
        chunks: Vec<usize>,
        level: i32,
    ) -> Result<(RaceReport, u64, u64)> {
        let (race, found) = passes.search(chunks, level as u64)?;
        for (is_done, open) in self.is_done.iter_mut().zip(&found.open) {
            // One that was not asked is done already.
            *is_done.get_mut() = *open == 0;
        }
        Ok((race, found.vertices, found.edges))
    }

    /// Has the levels here, behind the last one.
    pub fn end(&mut self, passes: &mut Passes<'_>) -> Result<()> {
        passes.end_search(&mut self.levels)
    }

    pub fn write(&self, sink: &dyn WriteAt, header: &[u8]) -> Result<()> {
        write_all(sink, 0, header)?;
        let mut offset = header.len() as u64;
        for block in self.levels.chunks(BLOCK) {
            let bytes: Vec<u8> =
                block.iter().flat_map(|level| level.load(Relaxed).to_le_bytes()).collect();
            write_all(sink, offset, &bytes)?;
            offset += bytes.len() as u64;
        }
        Ok(())
    }

    /// Vertices with a level, and entries of their rows.
    pub fn reached(&self, csr: &Csr) -> Result<(u64, u64)> {
        let (mut vertices, mut edges) = (0, 0);
        for first in (0..csr.rows).step_by(BLOCK) {
            let end = (first + BLOCK).min(csr.rows);
            let starts = csr.indptr.integers(first, end + 1)?;
            for (level, ends) in self.levels[first..end].iter().zip(starts.windows(2)) {
                if level.load(Relaxed) != UNREACHED {
                    vertices += 1;
                    edges += ends[1].saturating_sub(ends[0]);
                }
            }
        }
        csr.indptr.file.check_unchanged()?;
        Ok((vertices, edges))
    }
}

type Kernel = fn(Piece, &[&[u8]], &Search<'_>) -> Checked<()>;

/// Searches chunks on a thread.
pub(super) struct Searcher<'a> {
    kernel: Kernel,
    search: Search<'a>,
    faults: &'a Faults,
}

#[derive(Clone, Copy)]
struct Search<'a> {
    state: &'a State,
    level: i32,
    index_end: u64,
}

impl<'a> Searcher<'a> {
    pub fn new(csr: &Csr, state: &'a State, level: i32, faults: &'a Faults) -> Searcher<'a> {
        let kernel: Kernel = match (csr.indptr.number.bytes(), csr.indices.number.bytes()) {
            (4, 4) => search::<[u8; 4], [u8; 4]>,
            (4, _) => search::<[u8; 4], [u8; 8]>,
            (_, 4) => search::<[u8; 8], [u8; 4]>,
            _ => search::<[u8; 8], [u8; 8]>,
        };
        Searcher { kernel, search: Search { state, level, index_end: csr.index_end() }, faults }
    }
}

impl HostConsumer<Piece> for Searcher<'_> {
    fn consume(
        &mut self,
        chunk: &FedChunk<Piece>,
        buffers: &[&[u8]],
    ) -> std::result::Result<Verdict, BoxError> {
        (self.kernel)(chunk.payload, buffers, &self.search)
            .map_err(|fault| self.faults.note(fault))?;
        Ok(Verdict::Continue)
    }
}

fn search<P: Word, I: Word>(piece: Piece, buffers: &[&[u8]], search: &Search<'_>) -> Checked<()> {
    let &Search { state, level, index_end } = search;
    let chunk = Chunk::<P, I>::new(piece, buffers[0], buffers[1])?;
    let (mut edges, mut is_done) = (0, true);
    for row in 0..chunk.rows() {
        let (entries, _) = chunk.row(row);
        if entries.is_empty() {
            continue;
        }
        let of_row = &state.levels[piece.from.row + row];
        // Another part of a long row may have found the same level meanwhile: it counts as not found.
        let known = of_row.load(Relaxed);
        if known != UNREACHED && known < level {
            continue;
        }
        let here = entries.start - piece.from.entry..entries.end - piece.from.entry;
        let mut is_found = false;
        for entry in here {
            let column = chunk.indices[entry].value();
            if column >= index_end {
                return Err(Fault::Index { entry: piece.from.entry + entry, column });
            }
            edges += 1;
            if state.frontier.has(column as usize) {
                is_found = true;
                break;
            }
        }
        match is_found {
            true => {
                of_row.store(level, Relaxed);
                state.next.set(piece.from.row + row);
            }
            false => is_done = false,
        }
    }
    state.edges.fetch_add(edges, Relaxed);
    if is_done {
        state.is_done[piece.chunk].store(true, Relaxed);
    }
    Ok(())
}
