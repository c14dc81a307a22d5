//! The kernels on a GPU.

use headrace_flow::{BoxError, DeviceProgram, DeviceSlice, More, SlotChunk};
use headrace_gpu::{
    DeviceBuffer, Function, Grid, LaunchArgs, PinnedBuffer, Source, Stream, launch,
};
use serde::Serialize;

use super::found::{CHUNK_PAIRS_MAX, Found, Pair};
use super::{Repeats, SetOperation};
use crate::{DeviceRoom, Number, NumberType, OocError, Result};

/// Threads of a block.
pub(super) const THREADS: u32 = 256;

/// Keys that a thread merges.
const ITEMS: u32 = 16;

/// Keys of a tile.
pub(super) const TILE_KEYS: usize = (THREADS * ITEMS) as usize;

/// Bytes of the struct `Outcome`.
pub(super) const OUTCOME_BYTES: usize = 16;

/// Layout of scratch memory: the outcome, the ticket, the cuts of tiles, then their states.
const OUTCOME_OFFSET: usize = 0;
const TICKET_OFFSET: usize = OUTCOME_BYTES;
const CUTS_OFFSET: usize = 2 * OUTCOME_BYTES;

/// The kernels' source for keys of a type and an operation.
pub fn source(
    number: NumberType,
    operation: SetOperation,
    repeats: Repeats,
    counts_only: bool,
) -> String {
    let (key, bits) = match number {
        NumberType::I32 => ("int", "int"),
        NumberType::U32 => ("unsigned int", "unsigned int"),
        NumberType::I64 => ("long long", "long long"),
        NumberType::U64 => ("unsigned long long", "unsigned long long"),
        NumberType::F32 | NumberType::Bf16 => ("float", "int"),
        NumberType::F64 => ("double", "long long"),
    };
    // Signed, as all of these: the order is that of `Number::ordered`.
    let ordered = match number {
        NumberType::F32 | NumberType::Bf16 => {
            "if (key != key) return 0x7fffffff; \
             const int bits = __float_as_int(key + 0.0f); return bits ^ ((bits >> 31) & 0x7fffffff);"
        }
        NumberType::F64 => {
            "if (key != key) return 0x7fffffffffffffffll; \
             const long long bits = __double_as_longlong(key + 0.0); \
             return bits ^ ((bits >> 63) & 0x7fffffffffffffffll);"
        }
        _ => "return key;",
    };
    let (a, b, both) = operation.puts_out();
    let define = |name: &str, value: u32| format!("#define {name} {value}\n");
    [
        format!("typedef {key} KEY;\ntypedef {bits} BITS;\n"),
        format!("__device__ __forceinline__ BITS ordered(KEY key) {{ {ordered} }}\n"),
        define("REPEATS", u32::from(repeats == Repeats::Allowed)),
        define("OUT_A", u32::from(a)),
        define("OUT_B", u32::from(b)),
        define("OUT_BOTH", u32::from(both)),
        define("COUNT_ONLY", u32::from(counts_only)),
        define("THREADS", THREADS),
        define("ITEMS", ITEMS),
        include_str!("kernels/sets.cu").to_string(),
    ]
    .concat()
}

/// The kernels for keys of a type and an operation.
struct Kernels {
    cut_tiles: Function,
    merge_tiles: Function,
    key_bytes: usize,
}

/// Memory of the kernels: cuts of tiles, their states, the ticket, the outcome.
struct Scratch {
    memory: DeviceBuffer,
    tiles_max: usize,
    outcome: PinnedBuffer,
}

impl Scratch {
    /// For this many keys at a time.
    fn new(room: &DeviceRoom, keys_max: usize) -> Result<Scratch> {
        let tiles_max = keys_max.div_ceil(TILE_KEYS) + 1;
        let memory = room.pool.alloc(scratch_bytes(tiles_max))?;
        let outcome = PinnedBuffer::new(room.pool.device(), OUTCOME_BYTES)?;
        Ok(Scratch { memory, tiles_max, outcome })
    }

    /// Enqueues the copy of the outcome.
    fn bring_back(&mut self, stream: &Stream) -> Result<()> {
        // SAFETY: the memory is its own, and nobody looks at the outcome before the copy is done.
        unsafe {
            let into = &mut self.outcome.as_mut_slice()[..OUTCOME_BYTES];
            stream.copy_d2h_async(&self.memory, OUTCOME_OFFSET, into)?;
        }
        Ok(())
    }

    /// The number of output keys, and the first pair that is out of order.
    fn outcome(&self) -> (u64, Option<usize>) {
        let words = self.outcome.as_slice().as_chunks::<8>().0;
        let word = |at: usize| words.get(at).map_or(0, |bytes| u64::from_le_bytes(*bytes));
        (word(0), usize::try_from(word(1)).ok().filter(|pair| *pair < CHUNK_PAIRS_MAX))
    }
}

fn states_offset(tiles_max: usize) -> usize {
    CUTS_OFFSET + (tiles_max + 1) * 8
}

pub(super) fn scratch_bytes(tiles_max: usize) -> usize {
    states_offset(tiles_max) + tiles_max * 8
}

/// The launches for a pair; both have the same parameters.
#[derive(Debug)]
pub(super) struct Call {
    /// Blocks of `cut_tiles` and of `merge_tiles`.
    pub blocks: [u32; 2],
    /// The members of `Params`, in order.
    pub words: [u64; 9],
}

impl Call {
    /// For lists, output, and scratch memory for this many tiles.
    pub fn new(
        (pair, [a, b]): (usize, [DeviceSlice; 2]),
        key_bytes: usize,
        out: u64,
        (scratch, tiles_max): (u64, usize),
    ) -> Call {
        let keys = |list: DeviceSlice| (list.bytes / key_bytes) as u64;
        let tiles = (keys(a) + keys(b)).div_ceil(TILE_KEYS as u64);
        assert!(tiles <= tiles_max as u64, "{tiles} tiles, {tiles_max} at most");
        let at = |offset: usize| scratch + offset as u64;
        let words = [
            a.address,
            b.address,
            out,
            at(CUTS_OFFSET),
            at(states_offset(tiles_max)),
            at(TICKET_OFFSET),
            at(OUTCOME_OFFSET),
            keys(a) | keys(b) << 32,
            tiles | (pair as u64) << 32,
        ];
        Call { blocks: [(tiles as u32 + 1).div_ceil(THREADS), tiles as u32], words }
    }
}

impl Kernels {
    fn new(
        room: &DeviceRoom,
        number: NumberType,
        operation: SetOperation,
        found: &Found,
    ) -> Result<Kernels> {
        let text = source(number, operation, found.repeats, found.is_counted_only);
        let module = room.module(&Source { name: "sets.cu", text: &text, headers: &[] })?;
        Ok(Kernels {
            cut_tiles: module.function("cut_tiles")?,
            merge_tiles: module.function("merge_tiles")?,
            key_bytes: number.bytes(),
        })
    }

    /// Enqueues the work on a pair. Pairs of a chunk are enqueued consecutively, from pair 0 on.
    ///
    /// # Safety
    /// The lists, the scratch memory and `out`, which has room for all keys of the chunk's pairs unless they are
    /// counted only, stay as they are until the work is done, and nobody else uses the latter two.
    unsafe fn launch(
        &self,
        stream: &Stream,
        scratch: &Scratch,
        out: Option<&DeviceBuffer>,
        pair: (usize, [DeviceSlice; 2]),
    ) -> std::result::Result<(), BoxError> {
        let memory = (scratch.memory.ptr(), scratch.tiles_max);
        let call = Call::new(pair, self.key_bytes, out.map_or(0, DeviceBuffer::ptr), memory);
        let Call { blocks, words } = call;
        for (kernel, blocks) in [&self.cut_tiles, &self.merge_tiles].into_iter().zip(blocks) {
            let mut args = LaunchArgs::new();
            args.push_bytes(words.map(u64::to_le_bytes).as_flattened());
            let grid = Grid { blocks, threads: THREADS, shared_bytes: 0 };
            // SAFETY: the struct is the kernels'; for the memory, as the caller says. What all pairs put out
            // is no more than their keys, also where cuts of unsorted keys contradict each other.
            unsafe { launch(kernel, grid, stream, &mut args)? };
        }
        Ok(())
    }
}

/// The program of a lane.
pub(super) struct OnDevice<'a> {
    kernels: Kernels,
    found: &'a Found,
    chunks: &'a [Vec<Pair>],
    slots: Vec<Slot>,
}

/// Memory of a slot.
struct Slot {
    scratch: Scratch,
    out: Option<DeviceBuffer>,
    is_told: bool,
}

impl<'a> OnDevice<'a> {
    /// For a lane with slots of this number and size.
    pub fn new(
        room: &DeviceRoom,
        (number, operation): (NumberType, SetOperation),
        (slots, slot_bytes): (usize, usize),
        found: &'a Found,
        chunks: &'a [Vec<Pair>],
    ) -> Result<Self> {
        let kernels = Kernels::new(room, number, operation, found)?;
        let slot = |_| -> Result<Slot> {
            let scratch = Scratch::new(room, slot_bytes / number.bytes())?;
            let out = (!found.is_counted_only).then(|| room.pool.alloc(slot_bytes)).transpose()?;
            Ok(Slot { scratch, out, is_told: false })
        };
        let slots = (0..slots).map(slot).collect::<Result<_>>()?;
        Ok(OnDevice { kernels, found, chunks, slots })
    }
}

// SAFETY: what it appends lies in memory of its own for each slot, which is written to by the kernels of the
// slot's chunk alone.
unsafe impl DeviceProgram for OnDevice<'_> {
    fn launch(
        &mut self,
        stream: &Stream,
        at: SlotChunk,
        lists: &[DeviceSlice],
    ) -> std::result::Result<(), BoxError> {
        let slot = &mut self.slots[at.slot];
        slot.is_told = false;
        for pair in lists.as_chunks::<2>().0.iter().copied().enumerate() {
            // SAFETY: the lists are the slot's until the chunk is retired, as is its own memory, which has
            // room for a slot of keys.
            unsafe { self.kernels.launch(stream, &slot.scratch, slot.out.as_ref(), pair)? };
        }
        Ok(())
    }

    fn bring_back(
        &mut self,
        stream: &Stream,
        at: SlotChunk,
    ) -> std::result::Result<Option<More>, BoxError> {
        let slot = &mut self.slots[at.slot];
        if !std::mem::replace(&mut slot.is_told, true) {
            slot.scratch.bring_back(stream)?;
            return Ok(Some(More::Copies));
        }
        match slot.scratch.outcome() {
            (_, Some(pair)) => Err(self.found.unsorted(&self.chunks[at.chunk][pair])),
            (keys, None) => {
                self.found.add(keys);
                Ok(None)
            }
        }
    }

    fn appended(
        &mut self,
        at: SlotChunk,
    ) -> std::result::Result<Vec<(usize, DeviceSlice)>, BoxError> {
        let Slot { scratch, out, .. } = &self.slots[at.slot];
        let (keys, _) = scratch.outcome();
        let piece = |out: &DeviceBuffer| {
            let bytes = keys as usize * self.kernels.key_bytes;
            (0, DeviceSlice { address: out.ptr(), bytes })
        };
        Ok(out.iter().map(piece).collect())
    }
}

/// The result of an operation on lists in device memory.
#[derive(Debug, Clone, Serialize)]
pub struct InDeviceMemory {
    /// Keys of the result.
    pub keys: u64,
    /// Times of the kernels, for each run.
    pub kernel_ns: Vec<u64>,
}

/// An operation on lists that are first copied to device memory, repeated: measures the kernels alone.
///
/// # Errors
/// Lists that are out of order, or do not fit; errors of the device.
pub fn in_device_memory<K: Number>(
    room: &DeviceRoom,
    lists: [&[K]; 2],
    operation: SetOperation,
    (repeats, counts_only, runs): (Repeats, bool, usize),
) -> Result<InDeviceMemory> {
    let keys = lists[0].len() + lists[1].len();
    if u32::try_from(keys + TILE_KEYS).is_err() {
        let what = format!("{keys} keys are more than a kernel counts");
        return Err(OocError::usage(what, "take lists of 2^31 keys at most"));
    }
    let found = Found::new(repeats, counts_only);
    let kernels = Kernels::new(room, K::TYPE, operation, &found)?;
    let stream = room.pool.device().stream()?;
    let memory = lists.map(|list| -> Result<DeviceBuffer> {
        let memory = room.pool.alloc(size_of_val(list).max(1))?;
        stream.upload(&memory, 0, bytemuck::cast_slice(list))?;
        Ok(memory)
    });
    let memory: Vec<DeviceBuffer> = memory.into_iter().collect::<Result<_>>()?;
    let slice =
        |list: usize| DeviceSlice { address: memory[list].ptr(), bytes: size_of_val(lists[list]) };
    let out =
        (!counts_only).then(|| room.pool.alloc((keys * size_of::<K>()).max(1))).transpose()?;
    let mut scratch = Scratch::new(room, keys)?;
    let [begin, end] = [room.pool.device().event()?, room.pool.device().event()?];
    let mut kernel_ns = Vec::with_capacity(runs);
    for _ in 0..runs.max(1) {
        begin.record(&stream)?;
        let pair = (0, [slice(0), slice(1)]);
        // SAFETY: all of the memory is used here alone, and outlives the wait below.
        let launched = unsafe { kernels.launch(&stream, &scratch, out.as_ref(), pair) };
        end.record(&stream)?;
        stream.synchronize()?;
        launched.map_err(|error| OocError::Device {
            what: error.to_string(),
            remedy: "headrace doctor looks at the GPU".into(),
        })?;
        kernel_ns.push((f64::from(begin.elapsed_ms(&end)?) * 1e6) as u64);
    }
    scratch.bring_back(&stream)?;
    stream.synchronize()?;
    match scratch.outcome() {
        (keys, None) => Ok(InDeviceMemory { keys, kernel_ns }),
        (_, Some(_)) => Err(OocError::usage("a list is out of order", "sort it first")),
    }
}
