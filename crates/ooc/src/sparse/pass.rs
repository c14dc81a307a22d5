//! Races over a matrix on the cores.

use std::sync::Arc;

use headrace_flow::{BoxError, HostConsumer, Race, RaceOptions, RaceReport};
use parking_lot::Mutex;

use super::chunk::Fault;
use super::csr::Csr;
use super::plan::{Feed, Piece, Plan};
use crate::{OocError, Options, Result, Room};

/// Bytes of a chunk: its bookkeeping is negligible beside that.
const CHUNK_BYTES: u64 = 16 << 20;

/// Chunks per thread for small matrices.
const CHUNKS_PER_THREAD: u64 = 8;

/// Chunks that are being read, or are not multiplied yet.
const SLOTS: usize = 8;

/// The first fault that a thread found.
#[derive(Debug, Default)]
pub(crate) struct Faults(Mutex<Option<Fault>>);

impl Faults {
    /// Notes a fault; the error ends the race.
    pub fn note(&self, fault: Fault) -> BoxError {
        self.0.lock().get_or_insert(fault);
        "the matrix is damaged".into()
    }

    /// The cause of a failed race: the fault, if one was seen.
    fn explain(&self, error: OocError, csr: &Csr) -> OocError {
        let (OocError::Race(_), Some(fault)) = (&error, self.0.lock().take()) else { return error };
        match fault {
            Fault::Indptr { row } => {
                let what = format!(
                    "indptr at row {row} is below the row before, or beyond the last entry"
                );
                let remedy =
                    "it never decreases, from 0 to the number of indices: write the matrix anew";
                OocError::input(csr.indptr.file.path(), what, remedy)
            }
            Fault::Index { entry, column } => {
                let columns = csr.columns;
                let what = format!(
                    "entry {entry} is in column {column}, there are {columns}, counted from 0"
                );
                let remedy =
                    "a matrix that is not square has its shape in shape.npy: rows, columns";
                OocError::input(csr.indices.file.path(), what, remedy)
            }
        }
    }
}

/// A matrix, its chunks, and how they are read.
pub(crate) struct Passes<'a> {
    pub csr: Csr,
    pub plan: Arc<Plan>,
    room: &'a Room,
    options: &'a Options,
    race_options: RaceOptions,
}

impl<'a> Passes<'a> {
    /// If there is to be more than one pass, data is cached where there is room.
    ///
    /// # Errors
    /// Those of the plan.
    pub fn new(
        csr: Csr,
        room: &'a Room,
        options: &'a Options,
        repeats: bool,
    ) -> Result<Passes<'a>> {
        let chunk_bytes = options.chunk_bytes.unwrap_or_else(|| {
            let of_thread = csr.bytes() / (room.threads as u64 * CHUNKS_PER_THREAD);
            let of_limit = room.memory.limit_bytes() / (4 * SLOTS as u64);
            CHUNK_BYTES.min(of_thread).min(of_limit).max(1) as usize
        });
        let plan = Arc::new(Plan::new(&csr, chunk_bytes, &room.memory)?);
        let slots = options.slots.unwrap_or(SLOTS).max(1);
        let race_options = room.race(options, slots, repeats.then_some(csr.arrays().count()));
        Ok(Passes { csr, plan, room, options, race_options })
    }

    /// All chunks.
    pub fn all(&self) -> Vec<usize> {
        (0..self.plan.chunks()).collect()
    }

    /// Streams chunks once through as many consumers as there are threads.
    ///
    /// # Errors
    /// [`OocError::Input`] for a fault; errors of the race.
    pub fn run<C: HostConsumer<Piece>>(
        &self,
        chunks: Vec<usize>,
        faults: &Faults,
        consumer: impl Fn() -> C,
    ) -> Result<(Vec<C>, RaceReport)> {
        let feed = Feed::new(&self.csr, &self.plan, chunks);
        let bounds = feed.bounds();
        let (race_options, token) = (self.race_options.clone(), self.options.token.clone());
        let race = Race::fed(Box::new(feed), bounds, race_options, token);
        let consumers = (0..self.room.threads).map(|_| consumer()).collect();
        race.run_host(consumers).map_err(|error| faults.explain(error.into(), &self.csr))
    }
}
