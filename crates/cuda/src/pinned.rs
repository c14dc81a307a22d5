//! Pinned host memory that a query has: buffers, and the ring of slots of its race.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use headrace_flow::{CancelToken, CudaSlots};
use headrace_gpu::PinnedBuffer;

use crate::device::CudaDevice;
use crate::error::CudaError;
use crate::host_memory::{Pinned, RingNeeds, SLOTS_MIN};

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
    /// [`CudaError`] when the budget or the system refuses.
    pub(crate) fn take(device: &Arc<CudaDevice>, bytes: usize) -> Result<Self, CudaError> {
        let host = device.host_memory();
        let buffer = match host.idle_buffer(bytes) {
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
            self.device.host_memory().return_buffer(buffer);
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
    /// Slots for chunks: those of an earlier query, or new ones. Where the device has too little memory, what is kept on it makes room;
    /// if that is not enough, there are fewer slots. Where there is no room for two, because other
    /// queries have theirs, it waits for one of those.
    ///
    /// Who takes several must be the only one who takes any meanwhile, or two might wait for each
    /// other.
    ///
    /// # Errors
    /// [`ColumnError::Memory`](headrace_columns::ColumnError::Memory) or [`CudaError::Gpu`] when two slots cannot be had although no other
    /// query has any; [`ExecError::Cancelled`](headrace_pipeline::ExecError::Cancelled).
    pub fn take(
        device: &Arc<CudaDevice>,
        needs: RingNeeds,
        token: &CancelToken,
    ) -> Result<Self, CudaError> {
        let host = device.host_memory();
        let (slot_bytes, count) = host.ring_shape(needs);
        loop {
            let known = host.idle_ring(needs.chunk_bytes, count);
            match known.map_or_else(|| new_ring(device, slot_bytes, count), Ok) {
                Ok(slots) => {
                    host.lend_ring();
                    return Ok(Self { device: Arc::clone(device), slots: Some(slots) });
                }
                Err(error) if !error.is_out_of_memory() => return Err(error),
                Err(error) => {
                    if !host.wait_for_ring(token)? {
                        return Err(error);
                    }
                }
            }
        }
    }
}

fn new_ring(
    device: &Arc<CudaDevice>,
    slot_bytes: usize,
    mut count: usize,
) -> Result<Pinned<CudaSlots>, CudaError> {
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
        self.device.host_memory().return_ring(slots);
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
