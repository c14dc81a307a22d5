//! The memory of a ring of slots, and the layout of a chunk's extents in a slot.

use std::sync::Arc;

use headrace_io::{
    AlignedBuffer, EXTENT_ALIGN_BYTES, MemoryBudget, MemoryUse, OutOfBudget, Placement, ReadSpec,
    Reservation, Window,
};

use crate::RaceError;

/// Equal slots in one piece of memory, which the system allocates on use.
#[derive(Debug)]
pub(crate) struct SlotRing {
    memory: AlignedBuffer,
    slot_bytes: usize,
    slots: usize,
    _reserved: Option<Reservation>,
}

impl SlotRing {
    /// As many slots as the budget has room for, between one and `slots`.
    pub fn allocate(
        slots: usize,
        slot_bytes: usize,
        budget: Option<&Arc<MemoryBudget>>,
    ) -> Result<SlotRing, RaceError> {
        let slot_bytes = slot_bytes.next_multiple_of(EXTENT_ALIGN_BYTES);
        let (slots, reserved) = match budget {
            Some(budget) => {
                let (slots, reserved) = reserve(slots, slot_bytes, budget)?;
                (slots, Some(reserved))
            }
            None => (slots, None),
        };
        let bytes = slots.saturating_mul(slot_bytes);
        let memory = AlignedBuffer::allocate(bytes).map_err(RaceError::StartUp)?;
        Ok(SlotRing { memory, slot_bytes, slots, _reserved: reserved })
    }

    pub fn slots(&self) -> usize {
        self.slots
    }

    pub fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    pub fn window(&self, slot: usize) -> Window {
        // Inside the memory: a slot's number is below `slots`.
        Window::new(self.memory.as_ptr().wrapping_add(slot * self.slot_bytes), self.slot_bytes)
    }

    pub fn whole(&self) -> Window {
        Window::new(self.memory.as_ptr(), self.memory.len())
    }
}

fn reserve(
    mut slots: usize,
    slot_bytes: usize,
    budget: &Arc<MemoryBudget>,
) -> Result<(usize, Reservation), OutOfBudget> {
    loop {
        let bytes = slots.saturating_mul(slot_bytes) as u64;
        match budget.reserve(MemoryUse::Slots, bytes) {
            Ok(reserved) => return Ok((slots, reserved)),
            Err(_) if slots > 1 => slots /= 2,
            Err(refused) => return Err(refused),
        }
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
    /// The caller has checked that the chunk fits the slot.
    pub fn place(&mut self, offset: u64, bytes: u64) -> (Window, Window) {
        let placement = Placement::of(offset, bytes);
        // Inside the slot, because the chunk fits.
        let start = self.slot.as_ptr().wrapping_add(self.used_bytes);
        self.used_bytes += placement.window_bytes;
        assert!(self.used_bytes <= self.slot.bytes(), "a chunk that does not fit its slot");
        let wanted = Window::new(start.wrapping_add(placement.head_bytes), bytes as usize);
        (Window::new(start, placement.window_bytes), wanted)
    }
}

/// Error unless a chunk fits a slot of `slot_bytes`.
pub(crate) fn check_fits(
    chunk: usize,
    reads: &[ReadSpec],
    slot_bytes: usize,
) -> Result<(), RaceError> {
    let needed_bytes = ReadSpec::slot_bytes_of(reads);
    match needed_bytes <= slot_bytes {
        true => Ok(()),
        false => Err(RaceError::ChunkTooLarge { chunk, needed_bytes, slot_bytes }),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_small_budget_makes_a_small_ring_and_an_empty_one_an_error() {
        let budget = MemoryBudget::new(5 << 12);
        let ring = SlotRing::allocate(16, 1 << 12, Some(&budget)).unwrap();
        assert_eq!(ring.slots(), 4);
        let second = SlotRing::allocate(16, 1 << 12, Some(&budget)).unwrap();
        assert_eq!(second.slots(), 1);
        let refused = SlotRing::allocate(16, 1 << 12, Some(&budget)).unwrap_err();
        assert!(matches!(refused, RaceError::OutOfMemory(_)), "{refused}");
        drop((ring, second));
        assert_eq!(budget.uses().total_bytes(), 0);
    }
}
