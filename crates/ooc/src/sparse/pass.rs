//! Races over a matrix: any work on the cores, products and levels on the cores or a GPU.

use std::sync::Arc;
use std::sync::atomic::AtomicI32;

use headrace_flow::{HostConsumer, Race, RaceOptions, RaceReport};
use headrace_io::MemoryBudget;

use super::csr::Csr;
use super::device::OnDevice;
use super::device_search::Found;
use super::faults::Faults;
use super::plan::{Feed, Piece, Plan};
use super::product::Multiplier;
use super::sums::Sums;
use crate::vectors::Vectors;
use crate::{Options, Result, Room};

/// Bytes of a chunk: its bookkeeping is negligible beside that.
const CHUNK_BYTES: u64 = 16 << 20;

/// On a device that keeps chunks, where the per-chunk work is not hidden behind its copy.
const KEPT_CHUNK_BYTES: u64 = 64 << 20;

/// Chunks per thread for small matrices.
const CHUNKS_PER_THREAD: u64 = 8;

/// Chunks that are being read, or are not multiplied yet.
const SLOTS: usize = 8;

/// On a device that keeps chunks.
const KEEPING_SLOTS: usize = 3;

/// A matrix, its chunks, and how they are read.
pub(crate) struct Passes<'a> {
    pub csr: Csr,
    pub plan: Arc<Plan>,
    room: &'a Room,
    options: &'a Options,
    race_options: RaceOptions,
    device: Option<OnDevice>,
}

impl<'a> Passes<'a> {
    /// Products run where the room says. If there is to be more than one pass, what is read is kept where there is
    /// room.
    ///
    /// # Errors
    /// Those of the plan and of the device.
    pub fn new(
        csr: Csr,
        room: &'a Room,
        options: &'a Options,
        repeats: bool,
    ) -> Result<Passes<'a>> {
        let keeps_on_device = repeats && room.device.is_some();
        let chunk_bytes = options.chunk_bytes.unwrap_or_else(|| {
            let wanted = if keeps_on_device { KEPT_CHUNK_BYTES } else { CHUNK_BYTES };
            let of_thread = csr.bytes() / (room.threads as u64 * CHUNKS_PER_THREAD);
            let of_limit = room.memory.limit_bytes() / (4 * SLOTS as u64);
            let of_device =
                room.device.as_ref().map_or(u64::MAX, |device| device.free_bytes() / 16);
            wanted.min(of_thread).min(of_limit).min(of_device).max(1) as usize
        });
        let plan = Arc::new(Plan::new(&csr, chunk_bytes, &room.memory)?);
        let slots = if keeps_on_device { KEEPING_SLOTS } else { SLOTS };
        let slots = options.slots.unwrap_or(slots).max(1);
        let race_options = room.race(options, slots, repeats.then_some(csr.arrays().count()));
        let open = |device| OnDevice::new(device, room, (&csr, &plan), slots, repeats);
        let device = room.device.as_ref().map(open).transpose()?;
        Ok(Passes { csr, plan, room, options, race_options, device })
    }

    /// The memory that everything is reserved in.
    pub fn memory(&self) -> &'a Arc<MemoryBudget> {
        &self.room.memory
    }

    /// All chunks.
    pub fn all(&self) -> Vec<usize> {
        (0..self.plan.chunks()).collect()
    }

    /// Streams chunks once through as many consumers as there are threads.
    ///
    /// # Errors
    /// [`OocError::Input`](crate::OocError::Input) for a fault; errors of the race.
    pub fn run<C: HostConsumer<Piece>>(
        &self,
        chunks: Vec<usize>,
        faults: &Faults,
        consumer: impl Fn() -> C,
    ) -> Result<(Vec<C>, RaceReport)> {
        on_cores(&self.race(chunks), self.room.threads, (&self.csr, faults), consumer)
    }

    /// Multiplies all chunks once; `sums` are zeros before.
    ///
    /// # Errors
    /// [`OocError::Input`](crate::OocError::Input) for a fault; errors of the race and the device.
    pub fn multiply(&mut self, x: &Vectors, sums: &mut Sums) -> Result<RaceReport> {
        let (faults, race) = (Faults::default(), self.race(self.all()));
        let csr = &self.csr;
        let Some(device) = &mut self.device else {
            let multiplier = || Multiplier::new(csr, x, sums, &faults);
            let (_, report) = on_cores(&race, self.room.threads, (csr, &faults), multiplier)?;
            sums.finish();
            return Ok(report);
        };
        let report = device.multiply(&race, (csr, &self.plan), x, sums, &faults)?;
        match faults.found(csr) {
            Some(error) => Err(error),
            None => Ok(report),
        }
    }

    /// Has ranks, their shares and degrees lie on the device; whether there is one.
    ///
    /// # Errors
    /// Of the device and its memory.
    pub fn begin_ranks(
        &mut self,
        ranks: &[f64],
        shares: &Vectors,
        degrees: impl Iterator<Item = Vec<u64>>,
    ) -> Result<bool> {
        match &mut self.device {
            Some(device) => device.begin_ranks(&self.csr, ranks, shares, degrees).map(|()| true),
            None => Ok(false),
        }
    }

    /// A product and new ranks on the device where they lie: what the ranks of each block have changed, and what dangles.
    ///
    /// # Errors
    /// As [`multiply`](Self::multiply).
    pub fn iterate_ranks(&mut self, constants: (f64, f64)) -> Result<(RaceReport, Vec<[f64; 2]>)> {
        let (faults, race) = (Faults::default(), self.race(self.all()));
        let Some(device) = &mut self.device else { return Ok(Default::default()) };
        let made = device.iterate_ranks(&race, (&self.csr, &self.plan), constants, &faults)?;
        match faults.found(&self.csr) {
            Some(error) => Err(error),
            None => Ok(made),
        }
    }

    /// Brings the ranks back that lie on the device.
    ///
    /// # Errors
    /// Of the device.
    pub fn end_ranks(&mut self, ranks: &mut [f64]) -> Result<()> {
        self.device.as_mut().map_or(Ok(()), |device| device.end_ranks(ranks))
    }

    /// Has a search for levels lie on the device; whether there is one.
    ///
    /// # Errors
    /// Of the device and its memory.
    pub fn begin_search(&mut self, source: usize) -> Result<bool> {
        match &mut self.device {
            Some(device) => device.begin_search((&self.csr, &self.plan), source).map(|()| true),
            None => Ok(false),
        }
    }

    /// A level on the device, in some chunks.
    ///
    /// # Errors
    /// As [`multiply`](Self::multiply).
    pub fn search(&mut self, chunks: Vec<usize>, level: u64) -> Result<(RaceReport, Found)> {
        let (faults, race) = (Faults::default(), self.race(chunks.clone()));
        let Some(device) = &mut self.device else { return Ok(Default::default()) };
        let matrix = (&self.csr, &*self.plan);
        let found = device.search((&race, &chunks), matrix, level, &faults)?;
        match faults.found(&self.csr) {
            Some(error) => Err(error),
            None => Ok(found),
        }
    }

    /// Brings the levels back that lie on the device.
    ///
    /// # Errors
    /// Of the device.
    pub fn end_search(&mut self, levels: &mut [AtomicI32]) -> Result<()> {
        self.device.as_mut().map_or(Ok(()), |device| device.end_search(levels))
    }

    fn race(&self, chunks: Vec<usize>) -> Race<Piece> {
        let feed = Feed::new(&self.csr, &self.plan, chunks);
        let bounds = feed.bounds();
        let (race_options, token) = (self.race_options.clone(), self.options.token.clone());
        Race::fed(Box::new(feed), bounds, race_options, token)
    }
}

fn on_cores<C: HostConsumer<Piece>>(
    race: &Race<Piece>,
    threads: usize,
    (csr, faults): (&Csr, &Faults),
    consumer: impl Fn() -> C,
) -> Result<(Vec<C>, RaceReport)> {
    let run = race.run_host((0..threads).map(|_| consumer()).collect());
    run.map_err(|error| faults.explain(error.into(), csr))
}
