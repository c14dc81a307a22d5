//! The products of chunks on a GPU.
//!
//! The sums of a chunk go to memory of its own, one of as many as chunks may be under way. Kernels of one stream run
//! in the order in which they were enqueued; so a chunk's sums are added as soon as those of all chunks before it
//! were enqueued, without anybody waiting.

use std::sync::Arc;

use headrace_flow::{
    BoxError, ChunkSpec, CudaSlots, DeviceProgram, DeviceSlice, HostMemory, PageableLane, Race,
    RaceReport, SlotChunk, pageable_slots,
};
use headrace_gpu::{DeviceBuffer, Function, Grid, LaunchArgs, Module, Source, Stream, launch};
use headrace_io::{AlignedBuffer, MemoryUse, Reservation};

use super::cores::Operands;
use super::matrix::Matrix;
use super::plan::{Plan, Tile};
use super::sums::{Counts, Results};
use super::turns::Turns;
use super::vectors::Vectors;
use crate::{DeviceRoom, NumberType, Result, Room};

/// Of what the race calls.
type Outcome<T> = std::result::Result<T, BoxError>;

/// Threads of a block.
const BLOCK: u32 = 256;

/// Bytes that a thread loads at once.
const LOAD_BYTES: usize = 16;

/// What is left of the device's memory for others when chunks stay there.
const SPARE_BYTES: u64 = 64 << 20;

/// The source of the kernels for values of a type.
pub(crate) fn source(number: NumberType) -> String {
    let bits = number.bytes() * 8;
    format!("#define VALUE_BITS {bits}\n{}", include_str!("kernels/matvec.cu"))
}

struct Kernels {
    forward: [Function; 2],
    transposed: [Function; 2],
    add_forward: Function,
    add_transposed: Function,
}

impl Kernels {
    fn of(module: &Arc<Module>) -> Result<Kernels> {
        Ok(Kernels {
            forward: [module.function("forward_1")?, module.function("forward_4")?],
            transposed: [module.function("transposed_1")?, module.function("transposed_4")?],
            add_forward: module.function("add_forward")?,
            add_transposed: module.function("add_transposed")?,
        })
    }
}

/// A GPU that multiplies a matrix again and again.
pub(crate) struct OnDevice {
    // First, so that it is dropped first: nothing may be at work on the memory below.
    slots: CudaSlots,
    device: DeviceRoom,
    kernels: Kernels,
    /// Ordinary memory for the slots, if it is not to be pinned.
    pageable: Option<Vec<AlignedBuffer>>,
    /// Chunks that stay, by their number; empty if none are to.
    resident: Vec<Option<DeviceBuffer>>,
    _memory: Reservation,
}

impl OnDevice {
    /// Slots for the chunks of a plan. If `keeps`, as many chunks stay on the device as it has room for.
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
        Ok(OnDevice {
            kernels: Kernels::of(&module)?,
            slots,
            device: device.clone(),
            pageable,
            resident: (0..chunks).map(|_| None).collect(),
            _memory: reserved,
        })
    }

    /// Chunks that may be begun and not added.
    pub fn window(&self) -> usize {
        2 * self.slots.slots() + 2
    }

    /// Streams the chunks of a race, and those that stay, through the kernels.
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
        let rest_bytes = self.device.free_bytes().saturating_sub(SPARE_BYTES);
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
            resident: &mut self.resident,
            device: &self.device,
            rest_bytes,
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

/// What is done with the chunks of one race.
struct Program<'a> {
    kernels: &'a Kernels,
    plan: &'a Plan,
    turns: &'a Turns,
    memory: &'a Memory,
    /// Of the vectors, and of the results.
    lengths: [usize; 2],
    y_lengths: [usize; 2],
    counts: Counts,
    /// Values that a chunk's sums have room for.
    sums: usize,
    /// Chunks whose products are enqueued and not added, by number modulo the window.
    enqueued: Vec<bool>,
    /// The first chunk that is not added.
    next: usize,
    resident: &'a mut [Option<DeviceBuffer>],
    device: &'a DeviceRoom,
    /// What chunks that stay may still take.
    rest_bytes: u64,
}

/// As the kernels have it: words of 64 bits.
struct Params {
    tile: Tile,
    base: u64,
    row_bytes: u64,
    x: (u64, u64),
    vector: u64,
    vectors: u64,
    sums: u64,
    y: (u64, u64),
    group: u64,
}

impl Params {
    fn args(&self) -> LaunchArgs {
        let &Params { tile, base, row_bytes, x, vector, vectors, sums, y, group } = self;
        let of_tile = [
            tile.rows,
            tile.columns,
            tile.first_row,
            tile.first_column,
            tile.band_rows,
            tile.span_columns,
        ];
        let mut words = vec![base, row_bytes];
        words.extend(of_tile.map(|value| value as u64));
        words.extend([x.0, x.1, vector, vectors, sums, y.0, y.1, group]);
        let mut args = LaunchArgs::new();
        args.push_bytes(bytemuck::cast_slice(&words));
        args
    }
}

impl Program<'_> {
    /// Where a chunk lies: rows, or their pieces, are equally far from each other.
    fn params(&self, chunk: usize, addresses: &[u64]) -> Outcome<Params> {
        let tile = self.plan.tile(chunk);
        let row_bytes = match addresses {
            [first, second, ..] => second.wrapping_sub(*first),
            _ => (tile.columns * self.plan.value_bytes()) as u64,
        };
        let are_equal = |pair: &[u64]| pair[1].wrapping_sub(pair[0]) == row_bytes;
        if !addresses.windows(2).all(are_equal) {
            return Err("pieces of rows that do not lie equally far from each other".into());
        }
        let base = addresses.first().copied().unwrap_or(0);
        let (x, y) = ((0, 0), (0, 0));
        let (sums, vector, vectors, group) = (0, 0, 0, 0);
        Ok(Params { tile, base, row_bytes, x, vector, vectors, sums, y, group })
    }

    /// Device addresses of a chunk's sums: of the product with the matrix, with the transposed one.
    fn sums_at(&self, chunk: usize, tile: &Tile) -> [u64; 2] {
        let window = self.enqueued.len();
        let at = self.memory.sums.ptr() + (chunk % window * self.sums * 8) as u64;
        [at, at + (tile.forward_sums() * self.counts.forward * 8) as u64]
    }

    fn x(&self, which: usize) -> (u64, u64) {
        (self.memory.x[which].ptr(), self.lengths[which] as u64)
    }

    fn multiply(&self, stream: &Stream, chunk: usize, mut params: Params) -> Outcome<()> {
        let tile = params.tile;
        let sums = self.sums_at(chunk, &tile);
        let per = LOAD_BYTES / self.plan.value_bytes();
        let counts = [self.counts.forward, self.counts.transposed];
        for (which, count) in counts.into_iter().enumerate() {
            (params.x, params.sums, params.vectors) = (self.x(which), sums[which], count as u64);
            let mut vector = 0;
            while vector < count {
                let fours = usize::from(vector + 4 <= count);
                params.vector = vector as u64;
                let (kernel, threads) = if which == 0 {
                    let loads = tile.span_columns.min(tile.columns).div_ceil(per);
                    let group = if loads > 32 { BLOCK as usize } else { loads.next_power_of_two() };
                    params.group = group as u64;
                    let rows = if fours == 1 { 4 } else { 8 };
                    let units = tile.rows.div_ceil(rows) * tile.spans();
                    (&self.kernels.forward[fours], units * group)
                } else {
                    let units = tile.columns.div_ceil(per) * tile.bands();
                    (&self.kernels.transposed[fours], units)
                };
                enqueue(stream, kernel, threads, &params)?;
                vector += if fours == 1 { 4 } else { 1 };
            }
        }
        Ok(())
    }

    /// Adds the sums of a chunk to the results.
    fn add(&self, stream: &Stream, chunk: usize) -> Outcome<()> {
        let mut params = self.params(chunk, &[])?;
        let tile = params.tile;
        let sums = self.sums_at(chunk, &tile);
        let Counts { forward, transposed } = self.counts;
        for (which, count, results, kernel) in [
            (0, forward, tile.rows, &self.kernels.add_forward),
            (1, transposed, tile.columns, &self.kernels.add_transposed),
        ] {
            if count > 0 {
                (params.sums, params.vectors) = (sums[which], count as u64);
                params.y = (self.memory.y[which].ptr(), self.y_lengths[which] as u64);
                enqueue(stream, kernel, results * count, &params)?;
            }
        }
        Ok(())
    }

    /// Lets a chunk stay, if there is room: its pieces one behind the other, each as aligned as in a slot.
    fn keep(&mut self, stream: &Stream, chunk: usize, buffers: &[DeviceSlice]) -> Outcome<()> {
        let bytes: usize = buffers.iter().map(|buffer| aligned(buffer.bytes)).sum();
        let needed = bytes as u64;
        if chunk >= self.resident.len() || needed > self.rest_bytes {
            return Ok(());
        }
        let Ok(kept) = self.device.pool.alloc(bytes) else {
            // The pool's classes of sizes take more than was asked for: nothing more stays.
            self.rest_bytes = 0;
            return Ok(());
        };
        let mut at = 0;
        for buffer in buffers {
            // SAFETY: the slot's memory is the chunk's until it is retired, after this copy, and the buffer lives
            // as long as the streams that the slots wait for when they are dropped.
            unsafe { stream.copy_d2d_from(&kept, at, buffer.address, buffer.bytes)? };
            at += aligned(buffer.bytes);
        }
        self.rest_bytes -= needed.max(kept.capacity_bytes()).min(self.rest_bytes);
        self.resident[chunk] = Some(kept);
        Ok(())
    }

    /// Where a chunk's buffers lie: in the slot, or where they stay.
    fn addresses(&self, chunk: usize, buffers: &[DeviceSlice]) -> Vec<u64> {
        let Some(kept) = self.resident.get(chunk).and_then(Option::as_ref) else {
            return buffers.iter().map(|buffer| buffer.address).collect();
        };
        let ChunkSpec { reads } = self.plan.spec(chunk);
        let mut at = kept.ptr();
        let place = |bytes: u64| {
            let here = at;
            at += aligned(bytes as usize) as u64;
            here
        };
        reads.iter().map(|read| read.bytes).map(place).collect()
    }
}

/// Bytes of a piece that stays, so that the next one is aligned for any load.
fn aligned(bytes: usize) -> usize {
    bytes.next_multiple_of(headrace_flow::DEVICE_ALIGN_BYTES)
}

fn enqueue(stream: &Stream, kernel: &Function, threads: usize, params: &Params) -> Outcome<()> {
    if threads == 0 {
        return Ok(());
    }
    let blocks = u32::try_from(threads.div_ceil(BLOCK as usize))?;
    let grid = Grid { blocks, threads: BLOCK, shared_bytes: 0 };
    // SAFETY: the words are those of the kernels' parameters. The tile lies in the chunk's slot until it is
    // retired, or in memory that stays; vectors, results and sums have room for what the plan says of the tile,
    // and live until the lane was synchronised.
    unsafe { launch(kernel, grid, stream, &mut params.args())? };
    Ok(())
}

// SAFETY: it puts nothing out.
unsafe impl DeviceProgram for Program<'_> {
    fn is_resident(&mut self, chunk: usize, _buffer: usize) -> bool {
        self.resident.get(chunk).is_some_and(Option::is_some)
    }

    fn launch(&mut self, stream: &Stream, at: SlotChunk, buffers: &[DeviceSlice]) -> Outcome<()> {
        let chunk = at.chunk;
        if !self.is_resident(chunk, 0) {
            self.keep(stream, chunk, buffers)?;
        }
        let addresses = self.addresses(chunk, buffers);
        let params = self.params(chunk, &addresses)?;
        self.multiply(stream, chunk, params)?;
        let window = self.enqueued.len();
        self.enqueued[chunk % window] = true;
        while std::mem::take(&mut self.enqueued[self.next % window]) {
            self.add(stream, self.next)?;
            self.next += 1;
        }
        self.turns.advance(self.next);
        Ok(())
    }
}
