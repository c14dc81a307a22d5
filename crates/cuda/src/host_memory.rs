//! Pinned host memory of a device: rings of slots, and buffers, kept between queries.
//!
//! Mapping and pinning memory takes longer than many a query, so what a query gives back is kept
//! for the next one. All of it, used or not, counts against the budget of host memory; what nobody
//! uses makes room first. A query that finds no room for its ring waits while others have theirs:
//! whoever has a ring has all that it waits for, and gives it back.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::Duration;

use headrace_flow::{CancelToken, CudaSlots};
use headrace_gpu::{GpuError, PinnedBuffer};
use headrace_io::{MemoryBudget, MemoryUse, Reclaim, Reservation};
use headrace_pipeline::ExecError;

use crate::device::{CudaDevice, lock};

/// What a ring takes in host memory, and again on the device: while it stays in the processor's
/// last-level cache, neither the readers nor the device wait for memory.
const RING_BYTES: usize = 72 << 20;

/// One is read, one copied, one executed; more do not help.
const SLOTS_MAX: usize = 8;

/// Fewer cannot overlap anything.
const SLOTS_MIN: usize = 2;

/// Rings that are kept for later queries.
const RINGS_KEPT: usize = 4;

/// Slots are made in sizes of which there are few, so that they fit the next query as well.
const SLOT_STEP_BYTES: usize = 1 << 20;

/// Who waits for a ring looks at least so often whether it is still wanted.
const LOOK: Duration = Duration::from_millis(20);

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
struct Pinned<T> {
    value: T,
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
        lock(&self.state).held_bytes
    }

    /// Unpins and frees what no query uses, and the rings' device memory; whether there was any.
    pub(crate) fn release_idle(&self) -> bool {
        lock(&self.state).release(u64::MAX) > 0
    }

    /// What `make` pins, `bytes` bytes of it, counted before they are; what is idle makes room.
    fn pin<T>(
        &self,
        bytes: u64,
        what: &str,
        make: impl FnOnce() -> Result<T, GpuError>,
    ) -> Result<Pinned<T>, ExecError> {
        let reserve = |budget: &Arc<MemoryBudget>| budget.reserve(MemoryUse::Slots, bytes);
        let _reservation = self.budget.as_ref().map(reserve).transpose().map_err(|refused| {
            out_of_memory(what, refused.uses.total_bytes() + bytes, refused.limit_bytes)
        })?;
        let value = make()?;
        lock(&self.state).held_bytes += bytes;
        Ok(Pinned { value, bytes, _reservation })
    }

    /// As [`Self::pin`], within the bound of rings.
    fn pin_ring(
        &self,
        bytes: u64,
        make: impl FnOnce() -> Result<CudaSlots, GpuError>,
    ) -> Result<Pinned<CudaSlots>, ExecError> {
        const WHAT: &str = "the slots of a race";
        let mut state = lock(&self.state);
        while state.ring_bytes + bytes > self.ring_bytes_max {
            if !state.drop_ring() {
                return Err(out_of_memory(WHAT, state.ring_bytes + bytes, self.ring_bytes_max));
            }
        }
        state.ring_bytes += bytes;
        drop(state);
        self.pin(bytes, WHAT, make).inspect_err(|_| lock(&self.state).ring_bytes -= bytes)
    }
}

/// The lever is the limit of all host memory: the bound of pinned memory is a part of that.
fn out_of_memory(what: &str, needed_bytes: u64, limit_bytes: u64) -> ExecError {
    let what = format!("{what} (raise the memory limit, or run fewer queries at a time)");
    ExecError::Memory { tier: "pinned host memory", what, needed_bytes, limit_bytes }
}

impl Reclaim for HostMemory {
    fn reclaim(&self, bytes: u64) -> bool {
        lock(&self.state).release(bytes) > 0
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

/// Size and number of slots for chunks that need up to `chunk_bytes`, within a budget.
fn ring_shape(chunk_bytes: usize, chunks: usize, budget_bytes: u64) -> (usize, usize) {
    let slot_bytes = chunk_bytes.max(1).next_multiple_of(SLOT_STEP_BYTES);
    let affordable = (budget_bytes / slot_bytes as u64).min(SLOTS_MAX as u64) as usize;
    let wanted = (RING_BYTES / slot_bytes).clamp(SLOTS_MIN + 1, SLOTS_MAX).min(chunks);
    (slot_bytes, wanted.min(affordable).max(SLOTS_MIN))
}

/// Pinned memory of a query; goes back when it is dropped. No queued copy may use it then.
pub(crate) struct PinnedLease {
    device: Arc<CudaDevice>,
    /// `None` only while it is being dropped.
    buffer: Option<Pinned<PinnedBuffer>>,
}

impl PinnedLease {
    /// At least `bytes` bytes.
    ///
    /// # Errors
    /// [`ExecError`] when the budget or the system refuses.
    pub(crate) fn take(device: &Arc<CudaDevice>, bytes: usize) -> Result<Self, ExecError> {
        let host = device.host_memory();
        let known = lock(&host.state).take_buffer(bytes);
        let buffer = match known {
            Some(buffer) => buffer,
            None => {
                let pages = bytes.max(1).next_multiple_of(headrace_gpu::page_bytes());
                let make = || PinnedBuffer::new(device.device(), pages);
                host.pin(pages as u64, "what comes back from a GPU", make)?
            }
        };
        Ok(Self { device: Arc::clone(device), buffer: Some(buffer) })
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        self.buffer.as_ref().map_or(&[], |buffer| buffer.value.as_slice())
    }

    /// Where the device finds it.
    pub(crate) fn device_address(&self) -> u64 {
        self.buffer.as_ref().map_or(0, |buffer| buffer.value.device_address())
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        self.buffer.as_mut().map_or(&mut [], |buffer| buffer.value.as_mut_slice())
    }
}

impl Drop for PinnedLease {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            lock(&self.device.host_memory().state).buffers.push(buffer);
        }
    }
}

/// The slots of a query; they go back when it is dropped, which must be after its race.
pub struct Ring {
    device: Arc<CudaDevice>,
    /// `None` only while it is being dropped.
    slots: Option<Pinned<CudaSlots>>,
}

impl Ring {
    /// Slots for `chunks` chunks that need up to `chunk_bytes` bytes each: those of an earlier
    /// query, or new ones. Where the device has too little memory, what is kept on it makes room;
    /// if that is not enough, there are fewer slots. Where there is no room for two, because other
    /// queries have theirs, it waits for one of those.
    ///
    /// Who takes several must be the only one who takes any meanwhile, or two might wait for each
    /// other.
    ///
    /// # Errors
    /// [`ExecError::Memory`] or [`ExecError::Gpu`] when two slots cannot be had although no other
    /// query has any; [`ExecError::Cancelled`].
    pub fn take(
        device: &Arc<CudaDevice>,
        chunk_bytes: usize,
        chunks: usize,
        token: &CancelToken,
    ) -> Result<Self, ExecError> {
        let host = device.host_memory();
        let (slot_bytes, count) = ring_shape(chunk_bytes, chunks, host.ring_bytes_max);
        loop {
            let known = lock(&host.state).take_ring(chunk_bytes, count);
            let slots = known.map_or_else(|| new_ring(device, slot_bytes, count), Ok);
            let mut state = lock(&host.state);
            match slots {
                Ok(slots) => {
                    state.rings_in_use += 1;
                    return Ok(Self { device: Arc::clone(device), slots: Some(slots) });
                }
                Err(error) if !error.is_out_of_memory() => return Err(error),
                Err(error) if state.rings_in_use == 0 => return Err(error),
                Err(_) if token.is_cancelled() => return Err(ExecError::Cancelled),
                Err(_) => {
                    let waited = host.returned.wait_timeout(state, LOOK);
                    drop(waited.unwrap_or_else(PoisonError::into_inner));
                }
            }
        }
    }
}

fn new_ring(
    device: &Arc<CudaDevice>,
    slot_bytes: usize,
    mut count: usize,
) -> Result<Pinned<CudaSlots>, ExecError> {
    let host = device.host_memory();
    loop {
        let bytes = (count * slot_bytes) as u64;
        let make = || device.with_room(|| CudaSlots::new(device.pool(), count, slot_bytes));
        match host.pin_ring(bytes, make) {
            Err(error) if count > SLOTS_MIN && error.is_out_of_memory() => count -= 1,
            outcome => return outcome,
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let Some(slots) = self.slots.take() else { return };
        let host = self.device.host_memory();
        let mut state = lock(&host.state);
        state.rings_in_use -= 1;
        state.rings.push(slots);
        if state.rings.len() > RINGS_KEPT {
            state.drop_ring();
        }
        drop(state);
        host.returned.notify_all();
    }
}

impl Deref for Ring {
    type Target = CudaSlots;

    fn deref(&self) -> &CudaSlots {
        // Taken out by nobody but the drop.
        let slots = self.slots.as_ref().map(|slots| &slots.value);
        slots.unwrap_or_else(|| unreachable!("a ring is there until it is dropped"))
    }
}

impl DerefMut for Ring {
    fn deref_mut(&mut self) -> &mut CudaSlots {
        let slots = self.slots.as_mut().map(|slots| &mut slots.value);
        slots.unwrap_or_else(|| unreachable!("a ring is there until it is dropped"))
    }
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").field("slots", &self.slots()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_are_as_large_as_the_cache_or_the_budget_allows() {
        let mib = |mib: usize| mib << 20;
        assert_eq!(ring_shape(mib(24) - 1, 1000, u64::MAX), (mib(24), 3));
        assert_eq!(ring_shape(mib(9), 1000, u64::MAX), (mib(9), 8));
        assert_eq!(ring_shape(1, 1000, u64::MAX), (mib(1), 8));
        assert_eq!(ring_shape(mib(100), 1000, u64::MAX), (mib(100), 3), "chunks that are large");
        assert_eq!(ring_shape(mib(23), 1, u64::MAX), (mib(23), 2), "one chunk");
        assert_eq!(ring_shape(mib(9), 1000, mib(40) as u64), (mib(9), 4));
        assert_eq!(ring_shape(mib(23), 1000, 1), (mib(23), 2), "which the budget then refuses");
    }
}
