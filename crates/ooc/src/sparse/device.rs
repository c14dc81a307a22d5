//! Products on a GPU: x, y and heads lie in its memory, and of repeated passes as many chunks as fit.

use std::sync::Arc;

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
use crate::{DeviceRoom, OocError, Result, Room};

/// The calls of the race.
type Outcome<T> = std::result::Result<T, BoxError>;

/// Bytes that are brought back at once.
const BLOCK_BYTES: usize = 8 << 20;

/// A GPU that multiplies a matrix, perhaps repeatedly.
pub(crate) struct OnDevice {
    // First, so that it is dropped first: nothing may be at work on the memory below.
    slots: CudaSlots,
    device: DeviceRoom,
    /// In the order of [`KERNELS`].
    kernels: Vec<Function>,
    kept: Kept,
    lying: Option<Arc<Lying>>,
    /// Where ranks are made of the products.
    pub(super) ranked: Option<Arc<Ranked>>,
    /// Where levels are searched.
    pub(super) searched: Option<Arc<Searched>>,
    _memory: Reservation,
}

/// The vectors of products, and what belongs to a pass.
pub(super) struct Lying {
    x: DeviceBuffer,
    y: DeviceBuffer,
    head_rows: DeviceBuffer,
    heads: DeviceBuffer,
    wrong: DeviceBuffer,
    vectors: usize,
    tiles: usize,
}

/// What ranks are made of, beside the vectors of the products.
pub(super) struct Ranked {
    pub lying: Arc<Lying>,
    pub ranks: DeviceBuffer,
    pub degrees: DeviceBuffer,
    pub sums: DeviceBuffer,
    pub vertices: usize,
}

/// What is known of the vertices of a graph.
pub(super) struct Searched {
    pub levels: DeviceBuffer,
    /// Bits of the vertices of even levels and of odd ones: one of them is the frontier, the other one the next.
    pub bits: [DeviceBuffer; 2],
    pub open: DeviceBuffer,
    pub counts: DeviceBuffer,
    pub wrong: DeviceBuffer,
}

/// What is done with the chunks of a race.
pub(super) struct Work<'a> {
    /// The plan's chunks, in the race's order.
    pub chunks: &'a [usize],
    /// The launches for a chunk whose arrays lie at these addresses.
    pub calls: &'a (dyn Fn(Piece, &[u64]) -> Vec<Call> + Sync),
    /// Two numbers of which the kernels say what is wrong.
    pub wrong: &'a DeviceBuffer,
}

impl Lying {
    pub(super) fn memory(&self) -> Memory {
        Memory {
            x: self.x.ptr(),
            y: self.y.ptr(),
            vectors: self.vectors,
            head_rows: self.head_rows.ptr(),
            heads: self.heads.ptr(),
            faults: self.wrong.ptr(),
        }
    }
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
            lying: None,
            ranked: None,
            searched: None,
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
        matrix: (&Csr, &Plan),
        x: &Vectors,
        sums: &mut Sums,
        faults: &Faults,
    ) -> Result<RaceReport> {
        let lying = self.put(matrix.0, x)?;
        let report = self.pass(&lying, race, matrix, faults)?;
        bring_back(self.slots.compute_stream(), &lying.y, sums)?;
        Ok(report)
    }

    /// Puts the vectors of a product into the device's memory, and zeros for y.
    pub(super) fn put(&mut self, csr: &Csr, x: &Vectors) -> Result<Arc<Lying>> {
        let (tiles, vectors) = (csr.entries.div_ceil(TILE), x.count);
        let lying = match &self.lying {
            Some(lying) if lying.vectors == vectors => Arc::clone(lying),
            _ => {
                self.lying = None;
                let lying = Lying {
                    x: self.room(x.values.len())?,
                    y: self.room(csr.rows * vectors)?,
                    head_rows: self.room(tiles)?,
                    heads: self.room(tiles * vectors)?,
                    wrong: self.room(2)?,
                    vectors,
                    tiles,
                };
                Arc::clone(self.lying.insert(Arc::new(lying)))
            }
        };
        let stream = self.slots.compute_stream();
        stream.upload(&lying.x, 0, bytemuck::cast_slice(&x.values))?;
        // SAFETY: the buffer stays with this device, which waits for its streams before it goes; nothing else is queued that
        // touches it.
        unsafe { stream.fill_async(&lying.y, 0, csr.rows * vectors * 8, 0)? };
        Ok(lying)
    }

    /// Room for values of eight bytes.
    pub(super) fn room(&self, values: usize) -> Result<DeviceBuffer> {
        Ok(self.device.pool.alloc((values * 8).max(1))?)
    }

    /// The stream that everything is ordered by.
    pub(super) fn stream(&self) -> &Stream {
        self.slots.compute_stream()
    }

    /// Queues calls behind what was queued.
    pub(super) fn enqueue(&self, calls: &[Call]) -> Result<()> {
        enqueue(&self.kernels, self.slots.compute_stream(), calls)
    }

    /// One pass over the matrix with what [`put`](Self::put) has put there; y lies in the device's memory then, unless
    /// something is wrong.
    pub(super) fn pass(
        &mut self,
        lying: &Lying,
        race: &Race<Piece>,
        (csr, plan): (&Csr, &Plan),
        faults: &Faults,
    ) -> Result<RaceReport> {
        // SAFETY: as in `put`.
        unsafe { self.stream().fill_async(&lying.head_rows, 0, lying.tiles * 8, 0xff)? };
        let (memory, chunks) = (lying.memory(), (0..plan.chunks()).collect::<Vec<_>>());
        let calls = |piece: Piece, addresses: &[u64]| memory.multiply(csr, piece, addresses);
        let work = Work { chunks: &chunks, calls: &calls, wrong: &lying.wrong };
        let report = self.stream_through(&work, race, (csr, plan), faults)?;
        if !faults.are_any() {
            self.enqueue(&[memory.add_heads(csr)])?;
        }
        Ok(report)
    }

    /// Streams the chunks of a race, and those that are kept, through kernels, and notes what these find to be wrong.
    pub(super) fn stream_through(
        &mut self,
        work: &Work<'_>,
        race: &Race<Piece>,
        (csr, plan): (&Csr, &Plan),
        faults: &Faults,
    ) -> Result<RaceReport> {
        // SAFETY: as in `put`.
        unsafe { self.stream().fill_async(work.wrong, 0, 16, 0xff)? };
        self.kept.use_free(&self.device);
        let (kernels, kept, device) = (&self.kernels[..], &mut self.kept, &self.device);
        let program = Program { kernels, csr, plan, work, kept, device };
        let report = race.run_device(&mut self.slots.lane(program))?;
        let mut found = [0u64; 2];
        self.stream().download(work.wrong, 0, bytemuck::cast_slice_mut(&mut found))?;
        if let Some(fault) = fault(csr, found)? {
            drop(faults.note(fault));
        }
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
            OocError::usage("a chunk of more blocks than a launch has", "smaller chunks")
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
    work: &'a Work<'a>,
    kept: &'a mut Kept,
    device: &'a DeviceRoom,
}

// SAFETY: it puts nothing out.
unsafe impl DeviceProgram<Piece> for Program<'_> {
    fn is_resident(&mut self, chunk: usize, _buffer: usize) -> bool {
        self.kept.has(self.work.chunks[chunk])
    }

    fn launch(&mut self, stream: &Stream, at: SlotChunk, buffers: &[DeviceSlice]) -> Outcome<()> {
        let chunk = self.work.chunks[at.chunk];
        let piece = self.plan.piece(chunk);
        if !self.kept.has(chunk) {
            self.kept.keep(self.device, stream, chunk, buffers)?;
        }
        let addresses = self.kept.addresses(chunk, &reads(self.csr, piece), buffers);
        Ok(enqueue(self.kernels, stream, &(self.work.calls)(piece, &addresses))?)
    }
}
