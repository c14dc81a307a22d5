//! The memory of a ring of slots, and where the extents of a chunk lie in a slot.

use headrace_io::{AlignedBuffer, EXTENT_ALIGN_BYTES, Placement, Window};

use crate::{ChunkSpec, RaceError};

/// Slots of equal size in one piece of memory, which is taken from the system when it is used.
#[derive(Debug)]
pub(crate) struct SlotRing {
    memory: AlignedBuffer,
    slot_bytes: usize,
    slots: usize,
}

impl SlotRing {
    pub fn allocate(slots: usize, slot_bytes: usize) -> Result<SlotRing, RaceError> {
        let slot_bytes = slot_bytes.next_multiple_of(EXTENT_ALIGN_BYTES);
        let bytes = slots.saturating_mul(slot_bytes);
        let memory = AlignedBuffer::allocate(bytes).map_err(RaceError::StartUp)?;
        Ok(SlotRing { memory, slot_bytes, slots })
    }

    pub fn slots(&self) -> usize {
        self.slots
    }

    pub fn window(&self, slot: usize) -> Window {
        // Inside the memory: a slot's number is below `slots`.
        Window::new(self.memory.as_ptr().wrapping_add(slot * self.slot_bytes), self.slot_bytes)
    }

    pub fn whole(&self) -> Window {
        Window::new(self.memory.as_ptr(), self.memory.len())
    }
}

/// The window for the next extent in a slot: extents follow each other, each on a block boundary.
#[derive(Debug)]
pub(crate) struct SlotLayout {
    slot: Window,
    used_bytes: usize,
}

impl SlotLayout {
    pub fn new(slot: Window) -> SlotLayout {
        SlotLayout { slot, used_bytes: 0 }
    }

    /// The window for an extent, and the part of it where the wanted bytes will lie.
    ///
    /// The caller has made sure that the chunk fits the slot.
    pub fn place(&mut self, offset: u64, bytes: u64) -> (Window, Window) {
        let placement = Placement::of(offset, bytes);
        // Inside the slot, because the chunk fits.
        let start = self.slot.as_ptr().wrapping_add(self.used_bytes);
        self.used_bytes += placement.window_bytes;
        debug_assert!(self.used_bytes <= self.slot.bytes());
        let wanted = Window::new(start.wrapping_add(placement.head_bytes), bytes as usize);
        (Window::new(start, placement.window_bytes), wanted)
    }
}

/// Error unless every chunk fits a slot of `slot_bytes`.
pub(crate) fn check_chunks_fit(chunks: &[ChunkSpec], slot_bytes: usize) -> Result<(), RaceError> {
    for (chunk, spec) in chunks.iter().enumerate() {
        let needed_bytes = spec.slot_bytes();
        if needed_bytes > slot_bytes {
            return Err(RaceError::ChunkTooLarge { chunk, needed_bytes, slot_bytes });
        }
    }
    Ok(())
}
