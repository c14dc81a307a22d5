//! The pinned host memory of a device: rings of slots, and buffers, kept between queries.
//!
//! Mapping and pinning memory takes longer than many a query, so what a query gives back is kept
//! for the next one. All of it, used or not, counts against the budget of host memory; what nobody
//! uses makes room first. A query that finds no room for its ring waits while others have theirs:
//! whoever has a ring has all that it waits for, and gives it back.

use std::sync::{Arc, Weak};
use std::time::Duration;

use headrace_columns::ColumnError;
use headrace_flow::{CancelToken, CudaSlots};
use headrace_gpu::{GpuError, PinnedBuffer};
use headrace_io::{MemoryBudget, MemoryUse, Reclaim, Reservation};
use headrace_pipeline::ExecError;
use parking_lot::{Condvar, Mutex};

use crate::error::CudaError;

/// What a ring takes in host memory, and again on the device: while it stays in the processor's
/// last-level cache, neither the readers nor the device wait for memory.
const RING_BYTES: usize = 72 << 20;

/// One is read, one copied, one executed: more help only where several must be read at a time.
const SLOTS_MAX: usize = 8;

/// Fewer cannot overlap anything.
pub(crate) const SLOTS_MIN: usize = 2;

/// Rings that are kept for later queries.
const RINGS_KEPT: usize = 4;

/// Slots are made in sizes of which there are few, so that they fit the next query as well.
const SLOT_STEP_BYTES: usize = 1 << 20;

/// Who waits for a ring looks at least so often whether it is still wanted.
const LOOK: Duration = Duration::from_millis(20);

/// What a ring is for.
#[derive(Clone, Copy, Debug)]
pub struct RingNeeds {
    /// Bytes of the largest chunk.
    pub chunk_bytes: usize,
    /// Chunks that come.
    pub chunks: usize,
    /// Chunks that must be read at a time so that every reader has work. One is enough where readers share a read; one
    /// that decodes takes a read alone.
    pub read_together: usize,
}

/// Pinned memory, its rings under a bound of their own and all of it under the budget that all host
/// memory shares.
pub(crate) struct HostMemory {
    ring_bytes_max: u64,
    budget: Option<Arc<MemoryBudget>>,
    state: Mutex<State>,
    /// A ring came back.
    returned: Condvar,
}

#[derive(Default)]
struct State {
    rings: Vec<Pinned<CudaSlots>>,
    buffers: Vec<Pinned<PinnedBuffer>>,
    /// All that is pinned, used or not.
    held_bytes: u64,
    /// What rings have of it.
    ring_bytes: u64,
    rings_in_use: usize,
}

/// Something of pinned memory, and what it takes of the budget.
pub(crate) struct Pinned<T> {
    pub(crate) value: T,
    bytes: u64,
    _reservation: Option<Reservation>,
}

impl HostMemory {
    /// Nothing yet. What is idle is given back when others need memory of the budget, which alone
    /// bounds the smallest ring: a share of a small limit may be less than that.
    pub(crate) fn new(ring_bytes_max: u64, budget: Option<&Arc<MemoryBudget>>) -> Arc<Self> {
        let ring_bytes_max = ring_bytes_max.max((SLOTS_MIN * SLOT_STEP_BYTES) as u64);
        let (budget, state, returned) = (budget.cloned(), Mutex::default(), Condvar::new());
        let memory = Arc::new(Self { ring_bytes_max, budget, state, returned });
        if let Some(budget) = &memory.budget {
            let cache: Weak<Self> = Arc::downgrade(&memory);
            budget.add_cache(cache);
        }
        memory
    }

    /// Bytes that are pinned, used or not.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.state.lock().held_bytes
    }

    /// Unpins and frees what no query uses, and the rings' device memory; whether there was any.
    pub(crate) fn release_idle(&self) -> bool {
        self.state.lock().release(u64::MAX) > 0
    }

    /// What `make` pins, `bytes` bytes of it, counted before they are; what is idle makes room.
    pub(crate) fn pin<T>(
        &self,
        bytes: u64,
        what: &str,
        make: impl FnOnce() -> Result<T, GpuError>,
    ) -> Result<Pinned<T>, CudaError> {
        let reserve = |budget: &Arc<MemoryBudget>| budget.reserve(MemoryUse::Slots, bytes);
        let _reservation = self.budget.as_ref().map(reserve).transpose().map_err(|refused| {
            out_of_memory(what, refused.uses.total_bytes() + bytes, refused.limit_bytes)
        })?;
        let value = make()?;
        self.state.lock().held_bytes += bytes;
        Ok(Pinned { value, bytes, _reservation })
    }

    /// As [`Self::pin`], within the bound of rings.
    pub(crate) fn pin_ring(
        &self,
        bytes: u64,
        make: impl FnOnce() -> Result<CudaSlots, GpuError>,
    ) -> Result<Pinned<CudaSlots>, CudaError> {
        const WHAT: &str = "the slots of a race";
        let mut state = self.state.lock();
        while state.ring_bytes + bytes > self.ring_bytes_max {
            if !state.drop_ring() {
                let needed_bytes = state.ring_bytes + bytes;
                return Err(out_of_memory(WHAT, needed_bytes, self.ring_bytes_max).into());
            }
        }
        state.ring_bytes += bytes;
        drop(state);
        self.pin(bytes, WHAT, make).inspect_err(|_| self.state.lock().ring_bytes -= bytes)
    }
}

impl HostMemory {
    /// An idle buffer of at least `bytes` bytes.
    pub(crate) fn idle_buffer(&self, bytes: usize) -> Option<Pinned<PinnedBuffer>> {
        self.state.lock().take_buffer(bytes)
    }

    /// Takes a buffer back.
    pub(crate) fn return_buffer(&self, buffer: Pinned<PinnedBuffer>) {
        self.state.lock().buffers.push(buffer);
    }

    /// Size and number of the slots of a ring.
    pub(crate) fn ring_shape(&self, needs: RingNeeds) -> (usize, usize) {
        ring_shape(needs, self.ring_bytes_max)
    }

    /// An idle ring of at least so many slots of at least so many bytes.
    pub(crate) fn idle_ring(&self, bytes: usize, slots: usize) -> Option<Pinned<CudaSlots>> {
        self.state.lock().take_ring(bytes, slots)
    }

    /// Counts a ring that a query has from now on.
    pub(crate) fn lend_ring(&self) {
        self.state.lock().rings_in_use += 1;
    }

    /// Takes a ring back, and tells those who wait.
    pub(crate) fn return_ring(&self, ring: Pinned<CudaSlots>) {
        let mut state = self.state.lock();
        state.rings_in_use -= 1;
        state.rings.push(ring);
        if state.rings.len() > RINGS_KEPT {
            state.drop_ring();
        }
        drop(state);
        self.returned.notify_all();
    }

    /// Waits a while for a ring that another query has; whether any query has one.
    ///
    /// # Errors
    /// [`ExecError::Cancelled`].
    pub(crate) fn wait_for_ring(&self, token: &CancelToken) -> Result<bool, CudaError> {
        let mut state = self.state.lock();
        if state.rings_in_use == 0 {
            return Ok(false);
        }
        if token.is_cancelled() {
            return Err(ExecError::Cancelled.into());
        }
        self.returned.wait_for(&mut state, LOOK);
        Ok(true)
    }
}

/// The lever is the limit of all host memory: the bound of pinned memory is a part of that.
fn out_of_memory(what: &str, needed_bytes: u64, limit_bytes: u64) -> ExecError {
    let what = format!("{what} (raise the memory limit, or run fewer queries at a time)");
    ColumnError::Memory { tier: "pinned host memory", what, needed_bytes, limit_bytes }.into()
}

impl Reclaim for HostMemory {
    fn reclaim(&self, bytes: u64) -> bool {
        self.state.lock().release(bytes) > 0
    }
}

impl State {
    /// Frees idle memory until `bytes` are free or none is left; how many were.
    fn release(&mut self, bytes: u64) -> u64 {
        let mut freed = 0;
        while freed < bytes {
            let before = self.held_bytes;
            if let Some(buffer) = self.buffers.pop() {
                self.held_bytes -= buffer.bytes;
            } else if !self.drop_ring() {
                break;
            }
            freed += before - self.held_bytes;
        }
        freed
    }

    /// Frees the ring that is idle for longest; whether there was one.
    fn drop_ring(&mut self) -> bool {
        if self.rings.is_empty() {
            return false;
        }
        let ring = self.rings.remove(0);
        self.held_bytes -= ring.bytes;
        self.ring_bytes -= ring.bytes;
        true
    }

    /// The smallest idle buffer of at least `bytes` bytes that is not more than four times as large.
    fn take_buffer(&mut self, bytes: usize) -> Option<Pinned<PinnedBuffer>> {
        let bytes = bytes as u64;
        let fits = |have: u64| have >= bytes && have / 4 <= bytes.max(4096);
        let found = self.buffers.iter().enumerate().filter(|(_, buffer)| fits(buffer.bytes));
        let index = found.min_by_key(|(_, buffer)| buffer.bytes).map(|(index, _)| index)?;
        Some(self.buffers.swap_remove(index))
    }

    /// The idle ring of the smallest slots that have at least `bytes` bytes and are enough.
    fn take_ring(&mut self, bytes: usize, slots: usize) -> Option<Pinned<CudaSlots>> {
        let fits = |ring: &CudaSlots| ring.slot_bytes() >= bytes && ring.slots() >= slots;
        let found = self.rings.iter().enumerate().filter(|(_, ring)| fits(&ring.value));
        let index =
            found.min_by_key(|(_, ring)| ring.value.slot_bytes()).map(|(index, _)| index)?;
        Some(self.rings.swap_remove(index))
    }
}

/// Size and number of slots, within a budget.
fn ring_shape(needs: RingNeeds, budget_bytes: u64) -> (usize, usize) {
    let slot_bytes = needs.chunk_bytes.max(1).next_multiple_of(SLOT_STEP_BYTES);
    let cached = (RING_BYTES / slot_bytes).clamp(SLOTS_MIN + 1, SLOTS_MAX);
    let wanted = cached.max(needs.read_together + SLOTS_MIN).min(needs.chunks);
    let affordable = usize::try_from(budget_bytes / slot_bytes as u64).unwrap_or(usize::MAX);
    (slot_bytes, wanted.min(affordable).max(SLOTS_MIN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_are_as_large_as_the_cache_or_the_budget_allows() {
        let mib = |mib: usize| mib << 20;
        let shape = |chunk_bytes, chunks, budget_bytes| {
            ring_shape(RingNeeds { chunk_bytes, chunks, read_together: 1 }, budget_bytes)
        };
        assert_eq!(shape(mib(24) - 1, 1000, u64::MAX), (mib(24), 3));
        assert_eq!(shape(mib(9), 1000, u64::MAX), (mib(9), 8));
        assert_eq!(shape(1, 1000, u64::MAX), (mib(1), 8));
        assert_eq!(shape(mib(100), 1000, u64::MAX), (mib(100), 3), "chunks that are large");
        assert_eq!(shape(mib(23), 1, u64::MAX), (mib(23), 2), "one chunk");
        assert_eq!(shape(mib(9), 1000, mib(40) as u64), (mib(9), 4));
        assert_eq!(shape(mib(23), 1000, 1), (mib(23), 2), "which the budget then refuses");
        let decoded = RingNeeds { chunk_bytes: mib(28), chunks: 64, read_together: 8 };
        assert_eq!(ring_shape(decoded, u64::MAX), (mib(28), 10));
        assert_eq!(ring_shape(decoded, mib(100) as u64), (mib(28), 3));
    }
}
