//! The products of chunks on a GPU.
//!
//! The sums of a chunk go to one of several memory areas, as many as chunks may be in flight. Kernels of one stream
//! run in the order in which they were enqueued, so a chunk's sums are added once those of all earlier chunks are
//! enqueued, without waiting.
//!
//! They are added by a kernel enqueued behind those of all earlier chunks, without atomics.

use headrace_flow::{
    BoxError, CudaSlots, DeviceProgram, DeviceSlice, HostMemory, PageableLane, Race, RaceReport,
    SlotChunk, pageable_slots,
};
use headrace_gpu::{DeviceBuffer, Function, Grid, LaunchArgs, Source, Stream, launch};
use headrace_io::{AlignedBuffer, MemoryUse, Reservation};

use super::cores::Operands;
use super::launches::{BLOCK, Call, KERNELS, Products, source};
use super::matrix::Matrix;
use super::plan::Plan;
use super::sums::{Counts, Results};
use super::turns::Turns;
use crate::kept::Kept;
use crate::vectors::Vectors;
use crate::{DeviceRoom, Result, Room};

/// The calls of the race.
type Outcome<T> = std::result::Result<T, BoxError>;

/// A GPU that multiplies a matrix repeatedly.
pub(crate) struct OnDevice {
    // First, so that it is dropped first: nothing may be at work on the memory below.
    slots: CudaSlots,
    device: DeviceRoom,
    /// In the order of [`KERNELS`].
    kernels: Vec<Function>,
    /// Ordinary memory for the slots, unless it is pinned.
    pageable: Option<Vec<AlignedBuffer>>,
    /// No chunks if none are kept.
    kept: Kept,
    _memory: Reservation,
}

impl OnDevice {
    /// Slots for the chunks of a plan. If `keeps`, as many chunks as fit stay on the device.
    pub fn new(
        device: &DeviceRoom,
        room: &Room,
        matrix: &Matrix,
        plan: &Plan,
        slots: usize,
        memory: HostMemory,
        keeps: bool,
    ) -> Result<OnDevice> {
        let slots = slots.min(plan.chunks()).max(1);
        let copies = if memory == HostMemory::Pageable { 2 } else { 1 };
        let host_bytes = (slots * plan.slot_bytes().max(1) * copies) as u64;
        let reserved = room.memory.reserve(MemoryUse::Slots, host_bytes)?;
        let text = source(matrix.number);
        let module = device.module(&Source { name: "matvec.cu", text: &text, headers: &[] })?;
        let slots = CudaSlots::new(&device.pool, slots, plan.slot_bytes())?;
        let pageable = match memory {
            HostMemory::Pinned => None,
            HostMemory::Pageable => Some(pageable_slots(&slots)?),
        };
        let chunks = if keeps { plan.chunks() } else { 0 };
        let kernels = KERNELS.iter().map(|name| Ok(module.function(name)?));
        Ok(OnDevice {
            kernels: kernels.collect::<Result<_>>()?,
            slots,
            device: device.clone(),
            pageable,
            kept: Kept::new(chunks),
            _memory: reserved,
        })
    }

    /// Maximum of chunks begun and not added.
    pub fn window(&self) -> usize {
        2 * self.slots.slots() + 2
    }

    /// Streams the chunks of a race, and the resident ones, through the kernels.
    pub fn run(
        &mut self,
        race: &Race,
        plan: &Plan,
        operands: Operands<'_>,
        turns: &Turns,
        mut results: Results,
    ) -> Result<(Results, RaceReport)> {
        let counts = operands.counts();
        let pool = self.device.pool.clone();
        let sums = plan.sums(counts.forward, counts.transposed);
        let room = |values: usize| pool.alloc((values * 8).max(1));
        let stream = self.slots.compute_stream();
        let upload = |x: Option<&Vectors>| -> Result<DeviceBuffer> {
            let values = x.map_or(&[][..], |x| &x.values);
            let buffer = room(values.len())?;
            stream.upload(&buffer, 0, bytemuck::cast_slice(values))?;
            Ok(buffer)
        };
        let zero = |values: &[f64]| -> Result<DeviceBuffer> {
            let buffer = room(values.len())?;
            stream.upload(&buffer, 0, bytemuck::cast_slice(values))?;
            Ok(buffer)
        };
        let memory = Memory {
            x: [upload(operands.forward)?, upload(operands.transposed)?],
            y: [zero(&results.forward)?, zero(&results.transposed)?],
            sums: room(sums * turns.window())?,
        };
        self.kept.use_free(&self.device);
        let program = Program {
            kernels: &self.kernels,
            plan,
            turns,
            memory: &memory,
            lengths: [operands.forward, operands.transposed].map(|x| x.map_or(0, |x| x.length)),
            y_lengths: results.lengths(),
            counts,
            sums,
            enqueued: vec![false; turns.window()],
            next: 0,
            kept: &mut self.kept,
            device: &self.device,
        };
        let mut lane = self.slots.lane(program);
        let report = match &self.pageable {
            None => race.run_device(&mut lane)?,
            Some(memory) => race.run_device(&mut PageableLane::new(lane, memory))?,
        };
        let stream = self.slots.compute_stream();
        stream.download(&memory.y[0], 0, bytemuck::cast_slice_mut(&mut results.forward))?;
        stream.download(&memory.y[1], 0, bytemuck::cast_slice_mut(&mut results.transposed))?;
        Ok((results, report))
    }
}

/// Device memory of one race.
struct Memory {
    /// Vectors, for the matrix and the transposed one.
    x: [DeviceBuffer; 2],
    y: [DeviceBuffer; 2],
    /// Sums of chunks, by number modulo the window.
    sums: DeviceBuffer,
}

/// The work on the chunks of one race.
struct Program<'a> {
    kernels: &'a [Function],
    plan: &'a Plan,
    turns: &'a Turns,
    memory: &'a Memory,
    /// Of the vectors, and of the results.
    lengths: [usize; 2],
    y_lengths: [usize; 2],
    counts: Counts,
    /// Values that fit in a chunk's sums.
    sums: usize,
    /// Chunks whose products are enqueued and not added, by number modulo the window.
    enqueued: Vec<bool>,
    /// The first chunk that is not added.
    next: usize,
    kept: &'a mut Kept,
    device: &'a DeviceRoom,
}

impl Program<'_> {
    /// The location of a chunk: rows, or their pieces, have a constant distance.
    fn place(&self, chunk: usize, addresses: &[u64]) -> Outcome<(u64, u64)> {
        let row_bytes = match addresses {
            [first, second, ..] => second.wrapping_sub(*first),
            _ => (self.plan.tile(chunk).columns * self.plan.value_bytes()) as u64,
        };
        let are_equal = |pair: &[u64]| pair[1].wrapping_sub(pair[0]) == row_bytes;
        if !addresses.windows(2).all(are_equal) {
            return Err("pieces of rows that do not lie equally far from each other".into());
        }
        Ok((addresses.first().copied().unwrap_or(0), row_bytes))
    }

    /// The products of a chunk at `base` with rows `row_bytes` apart.
    fn products(&self, chunk: usize, (base, row_bytes): (u64, u64)) -> Products {
        let (tile, value_bytes) = (self.plan.tile(chunk), self.plan.value_bytes());
        let Counts { forward, transposed } = self.counts;
        let at = self.memory.sums.ptr() + (chunk % self.enqueued.len() * self.sums * 8) as u64;
        let sums = [at, at + (tile.forward_sums() * forward * 8) as u64];
        let vectors = |of: &[DeviceBuffer; 2], lengths: [usize; 2]| {
            [0, 1].map(|which| (of[which].ptr(), lengths[which] as u64))
        };
        let x = vectors(&self.memory.x, self.lengths);
        let y = vectors(&self.memory.y, self.y_lengths);
        let counts = [forward, transposed];
        Products { tile, value_bytes, base, row_bytes, counts, x, sums, y }
    }

    fn enqueue(&self, stream: &Stream, calls: &[Call]) -> Outcome<()> {
        for Call { kernel, threads, args } in calls.iter().filter(|call| call.threads > 0) {
            let blocks = u32::try_from(threads.div_ceil(BLOCK as usize))?;
            let grid = Grid { blocks, threads: BLOCK, shared_bytes: 0 };
            let mut list = LaunchArgs::new();
            list.push_bytes(bytemuck::cast_slice(args));
            // SAFETY: the words are those of the kernels' parameters. The tile lies in the chunk's slot until it is
            // retired, or in memory that stays; vectors, results and sums have room for what the plan says of the
            // tile, and live until the lane was synchronised.
            unsafe { launch(&self.kernels[*kernel], grid, stream, &mut list)? };
        }
        Ok(())
    }
}

// SAFETY: it puts nothing out.
unsafe impl DeviceProgram for Program<'_> {
    fn is_resident(&mut self, chunk: usize, _buffer: usize) -> bool {
        self.kept.has(chunk)
    }

    fn launch(&mut self, stream: &Stream, at: SlotChunk, buffers: &[DeviceSlice]) -> Outcome<()> {
        let chunk = at.chunk;
        if !self.kept.has(chunk) {
            self.kept.keep(self.device, stream, chunk, buffers)?;
        }
        let addresses = self.kept.addresses(chunk, &self.plan.spec(chunk).reads, buffers);
        let place = self.place(chunk, &addresses)?;
        self.enqueue(stream, &self.products(chunk, place).multiply())?;
        let window = self.enqueued.len();
        self.enqueued[chunk % window] = true;
        while std::mem::take(&mut self.enqueued[self.next % window]) {
            self.enqueue(stream, &self.products(self.next, (0, 0)).add())?;
            self.next += 1;
        }
        self.turns.advance(self.next);
        Ok(())
    }
}
