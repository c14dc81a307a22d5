//! Products on a GPU: x, y and heads lie in its memory, and of repeated passes as many chunks as fit.

use headrace_flow::{BoxError, CudaSlots, DeviceProgram, DeviceSlice, Race, RaceReport, SlotChunk};
use headrace_gpu::{DeviceBuffer, Function, Grid, LaunchArgs, Source, Stream, launch};
use headrace_io::{MemoryUse, Reservation};

use super::chunk::Fault;
use super::csr::Csr;
use super::faults::Faults;
use super::launches::{BLOCK, Call, KERNELS, Memory, source};
use super::plan::{Piece, Plan, TILE, reads};
use super::sums::Sums;
use crate::kept::Kept;
use crate::vectors::Vectors;
use crate::{DeviceRoom, Result, Room};

/// The calls of the race.
type Outcome<T> = std::result::Result<T, BoxError>;

/// Bytes that are set or brought back at once.
const BLOCK_BYTES: usize = 8 << 20;

/// A GPU that multiplies a matrix, perhaps repeatedly.
pub(crate) struct OnDevice {
    // First, so that it is dropped first: nothing may be at work on the memory below.
    slots: CudaSlots,
    device: DeviceRoom,
    /// In the order of [`KERNELS`].
    kernels: Vec<Function>,
    kept: Kept,
    _memory: Reservation,
}

impl OnDevice {
    /// Slots for the chunks of a plan. If `keeps`, as many chunks as fit stay on the device.
    ///
    /// # Errors
    /// Of the compiler, the driver and the memory.
    pub fn new(
        device: &DeviceRoom,
        room: &Room,
        (csr, plan): (&Csr, &Plan),
        slots: usize,
        keeps: bool,
    ) -> Result<OnDevice> {
        let slots = slots.min(plan.chunks()).max(1);
        let host_bytes = slots * plan.slot_bytes().max(1) + BLOCK_BYTES;
        let reserved = room.memory.reserve(MemoryUse::Slots, host_bytes as u64)?;
        let text = source(csr.indptr.number, csr.indices.number, csr.number());
        let module = device.module(&Source { name: "sparse.cu", text: &text, headers: &[] })?;
        let kernels = KERNELS.iter().map(|name| Ok(module.function(name)?));
        Ok(OnDevice {
            kernels: kernels.collect::<Result<_>>()?,
            slots: CudaSlots::new(&device.pool, slots, plan.slot_bytes())?,
            device: device.clone(),
            kept: Kept::new(if keeps { plan.chunks() } else { 0 }),
            _memory: reserved,
        })
    }

    /// Streams all chunks of a race, and those that are kept, through the kernels; `sums` gets y.
    ///
    /// # Errors
    /// Of the race and the device; the caller looks at the faults.
    pub fn multiply(
        &mut self,
        race: &Race<Piece>,
        (csr, plan): (&Csr, &Plan),
        x: &Vectors,
        sums: &mut Sums,
        faults: &Faults,
    ) -> Result<RaceReport> {
        let (pool, tiles) = (&self.device.pool, csr.entries.div_ceil(TILE));
        let room = |values: usize| pool.alloc((values * 8).max(1));
        let (on_device, y) = (room(x.values.len())?, room(csr.rows * x.count)?);
        let (head_rows, heads, wrong) = (room(tiles)?, room(tiles * x.count)?, room(2)?);
        let stream = self.slots.compute_stream();
        stream.upload(&on_device, 0, bytemuck::cast_slice(&x.values))?;
        set(stream, &y, csr.rows * x.count * 8, 0)?;
        set(stream, &head_rows, tiles * 8, 0xff)?;
        set(stream, &wrong, 16, 0xff)?;
        let memory = Memory {
            x: on_device.ptr(),
            y: y.ptr(),
            vectors: x.count,
            head_rows: head_rows.ptr(),
            heads: heads.ptr(),
            faults: wrong.ptr(),
        };
        self.kept.use_free(&self.device);
        let (kernels, kept, device) = (&self.kernels[..], &mut self.kept, &self.device);
        let program = Program { kernels, csr, plan, memory, kept, device };
        let report = race.run_device(&mut self.slots.lane(program))?;
        let stream = self.slots.compute_stream();
        let mut found = [0u64; 2];
        stream.download(&wrong, 0, bytemuck::cast_slice_mut(&mut found))?;
        if let Some(fault) = fault(csr, found)? {
            faults.note(fault);
            return Ok(report);
        }
        enqueue(&self.kernels, stream, &[memory.add_heads(csr)])?;
        bring_back(stream, &y, sums)?;
        Ok(report)
    }
}

/// What the kernels found to be wrong.
fn fault(csr: &Csr, [row, entry]: [u64; 2]) -> Result<Option<Fault>> {
    if row != u64::MAX {
        return Ok(Some(Fault::Indptr { row: row as usize }));
    }
    let Some(entry) = usize::try_from(entry).ok().filter(|entry| *entry < csr.entries) else {
        return Ok(None);
    };
    let column = csr.indices.integers(entry, entry + 1)?[0];
    Ok(Some(Fault::Index { entry, column }))
}

/// Fills the start of a buffer with a byte.
fn set(stream: &Stream, buffer: &DeviceBuffer, bytes: usize, byte: u8) -> Result<()> {
    let block = vec![byte; bytes.min(BLOCK_BYTES)];
    for offset in (0..bytes).step_by(BLOCK_BYTES) {
        stream.upload(buffer, offset, &block[..BLOCK_BYTES.min(bytes - offset)])?;
    }
    Ok(())
}

/// y, after all kernels of the stream.
fn bring_back(stream: &Stream, y: &DeviceBuffer, sums: &mut Sums) -> Result<()> {
    let mut block = vec![0.0; BLOCK_BYTES / 8];
    for (number, values) in sums.blocks(BLOCK_BYTES / 8).enumerate() {
        let block = &mut block[..values.len()];
        stream.download(y, number * BLOCK_BYTES, bytemuck::cast_slice_mut(block))?;
        values.put(block);
    }
    Ok(())
}

fn enqueue(kernels: &[Function], stream: &Stream, calls: &[Call]) -> Result<()> {
    for Call { kernel, blocks, args } in calls.iter().filter(|call| call.blocks > 0) {
        let blocks = u32::try_from(*blocks).map_err(|_| {
            crate::OocError::usage("a chunk of more blocks than a launch has", "smaller chunks")
        })?;
        let grid = Grid { blocks, threads: BLOCK, shared_bytes: 0 };
        let mut list = LaunchArgs::new();
        list.push_bytes(bytemuck::cast_slice(args));
        // SAFETY: the words are those of the kernels' parameters. The chunk's arrays lie in its slot until it is
        // retired, or in memory that stays, and have the lengths that the plan says; the other buffers have room for
        // the matrix's rows, columns and tiles, and live until the lane was synchronised. What is read in the arrays
        // becomes an address after it was compared with these lengths only.
        unsafe { launch(&kernels[*kernel], grid, stream, &mut list)? };
    }
    Ok(())
}

/// The work on the chunks of one race.
struct Program<'a> {
    kernels: &'a [Function],
    csr: &'a Csr,
    plan: &'a Plan,
    memory: Memory,
    kept: &'a mut Kept,
    device: &'a DeviceRoom,
}

// SAFETY: it puts nothing out.
unsafe impl DeviceProgram<Piece> for Program<'_> {
    fn is_resident(&mut self, chunk: usize, _buffer: usize) -> bool {
        self.kept.has(chunk)
    }

    fn launch(&mut self, stream: &Stream, at: SlotChunk, buffers: &[DeviceSlice]) -> Outcome<()> {
        let piece = self.plan.piece(at.chunk);
        if !self.kept.has(at.chunk) {
            self.kept.keep(self.device, stream, at.chunk, buffers)?;
        }
        let addresses = self.kept.addresses(at.chunk, &reads(self.csr, piece), buffers);
        Ok(enqueue(self.kernels, stream, &self.memory.multiply(self.csr, piece, &addresses))?)
    }
}
