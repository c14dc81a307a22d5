//! Device memory under a budget, with freed blocks kept for reuse.
//!
//! Blocks come from `cuMemAlloc`. A freed block goes to a free list by size, because `cuMemFree`
//! waits for the whole device. If a request would exceed the budget, or the driver has no memory
//! left, free blocks are returned to the driver before the request is refused.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::api;
use crate::device::Device;
use crate::driver::check_in_drop;
use crate::error::{GpuError, Result};
use crate::size_class::{class_of, largest_reusable};

const TIER: &str = "device memory";

/// A budget of device memory and the blocks allocated from it.
pub struct DevicePool {
    device: Arc<Device>,
    state: Mutex<State>,
}

/// State and counters of a [`DevicePool`]. Bytes count whole blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PoolStats {
    /// The maximum of `in_use_bytes + free_bytes`.
    pub budget_bytes: u64,
    /// In live buffers.
    pub in_use_bytes: u64,
    /// In free blocks, ready for reuse.
    pub free_bytes: u64,
    /// The largest `in_use_bytes` so far.
    pub peak_in_use_bytes: u64,
    /// Requests served by a new driver allocation.
    pub driver_allocations: u64,
    /// Requests served from a free block.
    pub reuses: u64,
    /// Requests refused.
    pub refusals: u64,
}

#[derive(Default)]
struct State {
    stats: PoolStats,
    /// Free block addresses by block size.
    free: BTreeMap<u64, Vec<u64>>,
}

/// A driver allocation: `bytes` is a size class.
#[derive(Debug, Clone, Copy)]
struct Block {
    address: u64,
    bytes: u64,
}

impl std::fmt::Debug for DevicePool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DevicePool")
            .field("device", &self.device.ordinal())
            .field("stats", &self.stats())
            .finish()
    }
}

impl DevicePool {
    /// A pool that never holds more than `budget_bytes` of the device's memory. Nothing
    /// is allocated yet.
    pub fn new(device: &Arc<Device>, budget_bytes: u64) -> Arc<Self> {
        Arc::new(Self {
            device: Arc::clone(device),
            state: Mutex::new(State {
                stats: PoolStats { budget_bytes, ..PoolStats::default() },
                ..State::default()
            }),
        })
    }

    /// The device whose memory this is.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// What the pool holds and has done.
    pub fn stats(&self) -> PoolStats {
        self.state.lock().stats
    }

    /// Gives every free block back to the driver. Waits for the device.
    pub fn trim(&self) {
        let mut state = self.state.lock();
        self.free_blocks_until(&mut state, |_| false);
    }

    /// A buffer of `bytes` bytes of uninitialised device memory, aligned to
    /// 256 bytes.
    ///
    /// # Errors
    /// [`GpuError::OutOfMemory`] when the budget or the device is exhausted,
    /// [`GpuError::Driver`] when the context is lost.
    pub fn alloc(self: &Arc<Self>, bytes: usize) -> Result<DeviceBuffer> {
        self.device.bind()?;
        let class = class_of(bytes as u64).ok_or_else(|| {
            GpuError::invalid("DevicePool::alloc", format!("{bytes} bytes are too many"))
        })?;
        let mut state = self.state.lock();
        let block = match state.reuse(class) {
            Some(block) => block,
            None => self.buy(&mut state, class).inspect_err(|_| {
                state.stats.refusals += 1;
            })?,
        };
        state.stats.in_use_bytes += block.bytes;
        state.stats.peak_in_use_bytes = state.stats.peak_in_use_bytes.max(state.stats.in_use_bytes);
        drop(state);
        Ok(DeviceBuffer { pool: Arc::clone(self), block, bytes })
    }

    /// A block of `class` bytes within the budget, not on the free list now: from the
    /// driver, after giving back free blocks to make room for it.
    fn buy(&self, state: &mut State, class: u64) -> Result<Block> {
        let budget = state.stats.budget_bytes;
        if state.stats.in_use_bytes.saturating_add(class) > budget {
            return Err(self.out_of_memory(&state.stats, class, "the budget is spent".into()));
        }
        self.free_blocks_until(state, |stats| held_bytes(stats).saturating_add(class) <= budget);
        if let Some(block) = self.buy_from_driver(state, class)? {
            return Ok(block);
        }
        // What the device has no room for beside the free blocks, it may have without.
        self.free_blocks_until(state, |_| false);
        if let Some(block) = self.buy_from_driver(state, class)? {
            return Ok(block);
        }
        let (free, total) = self.device.free_and_total_memory()?;
        let cause = format!("the budget allows it, but the GPU has {free} of {total} bytes free");
        Err(self.out_of_memory(&state.stats, class, cause))
    }

    /// A new driver allocation; `None` when the device has no room for it.
    fn buy_from_driver(&self, state: &mut State, class: u64) -> Result<Option<Block>> {
        let Ok(bytes) = usize::try_from(class) else {
            return Ok(None);
        };
        let mut address = 0;
        self.device.bind()?;
        // SAFETY: the context is current, the out-pointer is live and `bytes` is not 0.
        let code = unsafe { api::cuMemAlloc_v2(&mut address, bytes) };
        if code == api::OUT_OF_MEMORY {
            return Ok(None);
        }
        self.device.check("cuMemAlloc", code)?;
        state.stats.driver_allocations += 1;
        Ok(Some(Block { address, bytes: class }))
    }

    /// Gives free blocks back to the driver, largest first, until `enough` or none is left.
    fn free_blocks_until(&self, state: &mut State, enough: impl Fn(&PoolStats) -> bool) {
        while !enough(&state.stats) {
            let Some(block) = state.take_largest_free() else {
                return;
            };
            self.release(block);
        }
    }

    fn release(&self, block: Block) {
        if self.device.bind().is_ok() {
            // SAFETY: the address came from cuMemAlloc in this context and is given back
            // once: it was just taken off the free list.
            check_in_drop("cuMemFree", unsafe { api::cuMemFree_v2(block.address) });
        }
    }

    fn out_of_memory(&self, stats: &PoolStats, asked_bytes: u64, cause: String) -> GpuError {
        GpuError::OutOfMemory {
            tier: TIER,
            asked_bytes,
            in_use_bytes: stats.in_use_bytes,
            budget_bytes: stats.budget_bytes,
            cause: format!("device {}: {cause}", self.device.ordinal()),
            remedy: "raise the device memory budget, drop cached columns, or use fewer or \
                     smaller slots"
                .into(),
        }
    }
}

impl Drop for DevicePool {
    fn drop(&mut self) {
        let state = std::mem::take(self.state.get_mut());
        for (size, addresses) in &state.free {
            for &address in addresses {
                self.release(Block { address, bytes: *size });
            }
        }
    }
}

impl State {
    fn reuse(&mut self, class: u64) -> Option<Block> {
        let block = self.take_free(class)?;
        self.stats.reuses += 1;
        Some(block)
    }

    fn take_free(&mut self, class: u64) -> Option<Block> {
        let size = *self.free.range(class..=largest_reusable(class)).next()?.0;
        self.take_free_of_size(size)
    }

    fn take_largest_free(&mut self) -> Option<Block> {
        let size = *self.free.last_key_value()?.0;
        self.take_free_of_size(size)
    }

    fn take_free_of_size(&mut self, size: u64) -> Option<Block> {
        let addresses = self.free.get_mut(&size)?;
        let address = addresses.pop()?;
        if addresses.is_empty() {
            self.free.remove(&size);
        }
        self.stats.free_bytes -= size;
        Some(Block { address, bytes: size })
    }

    fn put_free(&mut self, block: Block) {
        self.stats.free_bytes += block.bytes;
        self.free.entry(block.bytes).or_default().push(block.address);
    }
}

fn held_bytes(stats: &PoolStats) -> u64 {
    stats.in_use_bytes + stats.free_bytes
}

/// Device memory from a [`DevicePool`]; goes back to it on drop.
///
/// Dropping does not wait for the device: the block may be reused at once. Keep a buffer while
/// queued work touches it.
pub struct DeviceBuffer {
    pool: Arc<DevicePool>,
    block: Block,
    bytes: usize,
}

impl std::fmt::Debug for DeviceBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeviceBuffer")
            .field("ptr", &format_args!("{:#x}", self.block.address))
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

impl DeviceBuffer {
    /// The device address: a multiple of 256.
    pub fn ptr(&self) -> u64 {
        self.block.address
    }

    /// The bytes that were asked for.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The actual size of the block: `bytes` rounded up, at least to the next multiple of 256; it
    /// may be read to its end.
    pub fn capacity_bytes(&self) -> u64 {
        self.block.bytes
    }

    /// The device whose memory this is.
    pub fn device(&self) -> &Arc<Device> {
        &self.pool.device
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        let mut state = self.pool.state.lock();
        state.stats.in_use_bytes -= self.block.bytes;
        state.put_free(self.block);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state_with_free(blocks: &[(u64, u64)]) -> State {
        let mut state = State::default();
        for &(address, bytes) in blocks {
            state.put_free(Block { address, bytes });
        }
        state
    }

    #[test]
    fn the_closest_free_block_is_reused_and_a_far_larger_one_is_not() {
        let mib = 1 << 20;
        let mut state = state_with_free(&[(1, 32 * mib), (2, 36 * mib), (3, 64 * mib)]);
        assert_eq!(state.take_free(32 * mib).map(|b| b.address), Some(1));
        assert_eq!(state.take_free(32 * mib).map(|b| b.address), Some(2));
        assert!(state.take_free(32 * mib).is_none(), "64 MiB would waste half");
        assert_eq!(state.stats.free_bytes, 64 * mib);
    }

    #[test]
    fn free_blocks_leave_largest_first() {
        let mut state = state_with_free(&[(1, 256), (2, 1024), (3, 512)]);
        let order: Vec<u64> =
            std::iter::from_fn(|| state.take_largest_free()).map(|b| b.address).collect();
        assert_eq!(order, [2, 3, 1]);
        assert_eq!(state.stats.free_bytes, 0);
    }
}
