//! Passes over one matrix, on the CPU or on a GPU.

use std::sync::Arc;

use headrace_flow::{HostMemory, Race, RaceOptions, RaceReport};

use super::cores::{Multiplier, Operands};
use super::device::OnDevice;
use super::matrix::Matrix;
use super::plan::Plan;
use super::sums::{Gather, Results};
use super::turns::{Feed, Turns};
use crate::{Options, Result, Room};

/// Bytes of a chunk: large enough to make its bookkeeping negligible and parts of long rows long.
const CHUNK_BYTES: u64 = 16 << 20;

/// On a device that keeps chunks, where the per-chunk work is not hidden behind its copy.
const KEPT_CHUNK_BYTES: u64 = 64 << 20;

/// Chunks per thread for small matrices.
const CHUNKS_PER_THREAD: u64 = 8;

/// Chunks that are being read, or are not multiplied yet.
const SLOTS: usize = 8;

/// On a device that keeps chunks.
const KEEPING_SLOTS: usize = 3;

/// Options of the passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Manner {
    /// Of a device's slots.
    pub memory: HostMemory,
    /// Whether there will be more than one pass: data is cached where there is room.
    pub repeats: bool,
}

/// A matrix and its multiplier.
pub(crate) struct Passes<'a> {
    matrix: &'a Matrix,
    pub plan: Plan,
    room: &'a Room,
    options: &'a Options,
    race_options: RaceOptions,
    device: Option<OnDevice>,
}

impl<'a> Passes<'a> {
    /// Passes on the selected processor. The vectors are reserved already.
    pub fn new(
        matrix: &'a Matrix,
        room: &'a Room,
        options: &'a Options,
        manner: Manner,
    ) -> Result<Passes<'a>> {
        let keeps_on_device = manner.repeats && room.device.is_some();
        let slots = if keeps_on_device { KEEPING_SLOTS } else { SLOTS };
        let slots = options.slots.unwrap_or(slots).max(1);
        let chunk_bytes = chunk_bytes(matrix, options, room, keeps_on_device);
        let plan = Plan::new(matrix, chunk_bytes, &room.memory)?;
        let race_options = room.race(options, slots, manner.repeats.then_some(1));
        let open = |device| {
            let Manner { memory, repeats } = manner;
            OnDevice::new(device, room, matrix, &plan, slots, memory, repeats)
        };
        let device = room.device.as_ref().map(open).transpose()?;
        Ok(Passes { matrix, plan, room, options, race_options, device })
    }

    /// Whether the files hold the transposed matrix.
    pub fn is_transposed(&self) -> bool {
        self.matrix.is_transposed
    }

    /// Streams the matrix once.
    pub fn run(&mut self, operands: Operands<'_>) -> Result<(Results, RaceReport)> {
        let (matrix, plan, memory) = (self.matrix, &self.plan, &self.room.memory);
        let shape = (matrix.rows, matrix.columns);
        let results = Results::zero(memory, shape, operands.counts())?;
        let Some(device) = &mut self.device else {
            let window = (self.race_options.slots + 2 * self.room.threads + 2).min(plan.chunks());
            let gather = Gather::new(memory, plan, window.max(1), results)?;
            let race = self.race(gather.turns());
            let multiplier = || Multiplier::new(plan, matrix.number, operands, &gather);
            let (_, report) =
                race.run_host((0..self.room.threads).map(|_| multiplier()).collect())?;
            return Ok((gather.into_results(), report));
        };
        let turns = Turns::new(device.window());
        let options = (&self.race_options, self.options);
        let race = race(matrix, plan, options, &turns);
        device.run(&race, plan, operands, &turns, results)
    }

    fn race(&self, turns: &Arc<Turns>) -> Race {
        race(self.matrix, &self.plan, (&self.race_options, self.options), turns)
    }
}

fn race(
    matrix: &Matrix,
    plan: &Plan,
    (race_options, options): (&RaceOptions, &Options),
    turns: &Arc<Turns>,
) -> Race {
    let feed = Feed::new(plan.clone(), matrix.file.clone(), turns.clone());
    let bounds = feed.bounds(matrix.bytes());
    Race::fed(Box::new(feed), bounds, race_options.clone(), options.token.clone())
}

fn chunk_bytes(matrix: &Matrix, options: &Options, room: &Room, keeps_on_device: bool) -> usize {
    options.chunk_bytes.unwrap_or_else(|| {
        if matrix.table.is_some() {
            // The order of sums depends on it: nothing else may.
            return CHUNK_BYTES as usize;
        }
        let wanted = if keeps_on_device { KEPT_CHUNK_BYTES } else { CHUNK_BYTES };
        let of_thread = matrix.bytes() / (room.threads as u64 * CHUNKS_PER_THREAD);
        let of_limit = room.memory.limit_bytes() / (4 * SLOTS as u64);
        let of_device = room.device.as_ref().map_or(u64::MAX, |device| device.free_bytes() / 16);
        wanted.min(of_thread).min(of_limit).min(of_device).max(1) as usize
    })
}
