//! The operator: the keys that two sorted lists without duplicates have in common, of `i64`.
//!
//! A chunk is a range of the first list, and the range of the second that its keys may lie in. How many
//! keys they share is known when both were looked at, so the race appends them.

use std::sync::Arc;

use headrace_flow::{
    BoxError, DeviceProgram, DeviceSlice, FedChunk, HostProducer, More, Outbox, SlotChunk, Verdict,
};
use headrace_gpu::{
    Compiler, DeviceBuffer, DevicePool, Function, Grid, LaunchArgs, Module, PinnedBuffer, Source,
    Stream, launch,
};

/// Bytes of a key.
pub const KEY_BYTES: usize = 8;

/// On the processor.
pub struct OnHost;

impl HostProducer for OnHost {
    fn produce(
        &mut self,
        _chunk: &FedChunk,
        lists: &[&[u8]],
        outbox: &mut Outbox<'_>,
    ) -> Result<Verdict, BoxError> {
        let [a, b] = [lists[0], lists[1]].map(|list| list.as_chunks::<KEY_BYTES>().0);
        let key = |bytes: &[u8; KEY_BYTES]| i64::from_le_bytes(*bytes);
        let mut common = outbox.append(0, a.len().min(b.len()) * KEY_BYTES)?;
        let out = common.as_chunks_mut::<KEY_BYTES>().0;
        let (mut i, mut j, mut found) = (0, 0, 0);
        while i < a.len() && j < b.len() {
            let (x, y) = (key(&a[i]), key(&b[j]));
            if x == y {
                out[found] = a[i];
            }
            found += usize::from(x == y);
            i += usize::from(x <= y);
            j += usize::from(y <= x);
        }
        common.send_first(found * KEY_BYTES);
        Ok(Verdict::Continue)
    }
}

/// Threads of a block, which looks at that many keys of the first list.
const BLOCK_THREADS: u32 = 1024;

/// `look` counts the matches of each block, `keep` writes them behind those of the blocks before it.
pub const KERNELS: &str = r#"
typedef long long i64;
typedef unsigned int u32;

struct Params { const i64* a; const i64* b; u32* counts; i64* out; u32* total; u32 a_keys; u32 b_keys; };

__device__ bool is_common(const Params& p, u32 i) {
    if (i >= p.a_keys) return false;
    const i64 key = p.a[i];
    u32 low = 0, high = p.b_keys;
    while (low < high) {
        const u32 middle = low + (high - low) / 2;
        if (p.b[middle] < key) low = middle + 1; else high = middle;
    }
    return low < p.b_keys && p.b[low] == key;
}

extern "C" __global__ void look(const Params p) {
    const u32 found = __syncthreads_count(is_common(p, blockIdx.x * blockDim.x + threadIdx.x));
    if (threadIdx.x == 0) p.counts[blockIdx.x] = found;
}

extern "C" __global__ void keep(const Params p) {
    __shared__ u32 before, of_warp[32];
    if (threadIdx.x == 0) before = 0;
    __syncthreads();
    u32 sum = 0;
    for (u32 block = threadIdx.x; block < blockIdx.x; block += blockDim.x) sum += p.counts[block];
    if (sum > 0) atomicAdd(&before, sum);
    const u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    const bool found = is_common(p, i);
    const u32 of_lanes = __ballot_sync(~0u, found), lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (lane == 0) of_warp[warp] = __popc(of_lanes);
    __syncthreads();
    u32 at = before + __popc(of_lanes & ((1u << lane) - 1));
    for (u32 w = 0; w < warp; w++) at += of_warp[w];
    if (found) p.out[at] = p.a[i];
    if (blockIdx.x == gridDim.x - 1 && threadIdx.x == blockDim.x - 1) *p.total = at + found;
}
"#;

/// On a GPU.
pub struct OnGpu {
    look: Function,
    keep: Function,
    slots: Vec<Slot>,
}

/// Memory of a slot: counts of blocks, then the total; keys; the total on the host.
struct Slot {
    counts: DeviceBuffer,
    out: DeviceBuffer,
    total: PinnedBuffer,
    is_told: bool,
}

/// Where the total lies in the counts.
fn total_at(counts: &DeviceBuffer) -> usize {
    counts.bytes() - 4
}

impl OnGpu {
    /// For a lane of so many slots of so many bytes.
    pub fn new(pool: &Arc<DevicePool>, slots: usize, slot_bytes: usize) -> Result<Self, BoxError> {
        let source = Source { name: "intersect.cu", text: KERNELS, headers: &[] };
        let arch = pool.device().info().arch();
        let module =
            Module::load(pool.device(), &Compiler::load(None)?.compile(&source, &arch, &[])?)?;
        let blocks = (slot_bytes / KEY_BYTES).div_ceil(BLOCK_THREADS as usize);
        let slot = |_| -> Result<Slot, BoxError> {
            Ok(Slot {
                counts: pool.alloc(blocks * 4 + 4)?,
                out: pool.alloc(slot_bytes)?,
                total: PinnedBuffer::new(pool.device(), 4)?,
                is_told: false,
            })
        };
        Ok(Self {
            look: module.function("look")?,
            keep: module.function("keep")?,
            slots: (0..slots).map(slot).collect::<Result<_, _>>()?,
        })
    }
}

// SAFETY: what it appends lies in memory of its own for each slot, and is not written before the slot has
// another chunk.
unsafe impl DeviceProgram for OnGpu {
    fn launch(
        &mut self,
        stream: &Stream,
        at: SlotChunk,
        lists: &[DeviceSlice],
    ) -> Result<(), BoxError> {
        let slot = &mut self.slots[at.slot];
        slot.is_told = false;
        let keys = |list: &DeviceSlice| (list.bytes / KEY_BYTES) as u64;
        let total = slot.counts.ptr() + total_at(&slot.counts) as u64;
        let (a, b) = (&lists[0], &lists[1]);
        let words = [
            a.address,
            b.address,
            slot.counts.ptr(),
            slot.out.ptr(),
            total,
            keys(a) | keys(b) << 32,
        ];
        let blocks = (keys(a) as u32).div_ceil(BLOCK_THREADS).max(1);
        let grid = Grid { blocks, threads: BLOCK_THREADS, shared_bytes: 0 };
        for kernel in [&self.look, &self.keep] {
            let mut args = LaunchArgs::new();
            args.push_bytes(words.map(u64::to_le_bytes).as_flattened());
            // SAFETY: the struct is the kernels'; the lists are the slot's until the chunk is retired, and
            // its own memory has room for a slot of keys.
            unsafe { launch(kernel, grid, stream, &mut args)? };
        }
        Ok(())
    }

    fn bring_back(&mut self, stream: &Stream, at: SlotChunk) -> Result<Option<More>, BoxError> {
        let Slot { counts, total, is_told, .. } = &mut self.slots[at.slot];
        if std::mem::replace(is_told, true) {
            return Ok(None);
        }
        let from = total_at(counts);
        // SAFETY: the slot's own memory, which nobody looks at before the copy is done.
        unsafe { stream.copy_d2h_async(counts, from, &mut total.as_mut_slice()[..4])? };
        Ok(Some(More::Copies))
    }

    fn appended(&mut self, at: SlotChunk) -> Result<Vec<(usize, DeviceSlice)>, BoxError> {
        let Slot { out, total, .. } = &self.slots[at.slot];
        let found = total.as_slice().first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        let bytes = found as usize * KEY_BYTES;
        Ok(vec![(0, DeviceSlice { address: out.ptr(), bytes })])
    }
}
