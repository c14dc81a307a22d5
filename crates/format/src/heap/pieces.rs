//! Values of variable length, in Arrow's layout.

use arrow_buffer::{Buffer, OffsetBuffer};

use super::memory::{give, reuse};

/// Consecutive values and their ends; starts with a zero.
#[derive(Debug)]
pub(super) struct Pieces {
    offsets: Vec<i32>,
    bytes: Vec<u8>,
}

impl Pieces {
    pub(super) fn new() -> Self {
        Self { offsets: vec![0], bytes: Vec::new() }
    }

    /// None: more than 32-bit offsets allow.
    #[inline]
    pub(super) fn push(&mut self, content: &[u8]) -> Option<()> {
        let end = i32::try_from(self.bytes.len() + content.len()).ok()?;
        self.bytes.extend_from_slice(content);
        self.offsets.push(end);
        Some(())
    }

    pub(super) fn truncate(&mut self, rows: usize) {
        self.offsets.truncate(rows + 1);
        let end = self.offsets.last().copied().unwrap_or(0);
        self.bytes.truncate(end as usize);
    }

    pub(super) fn bytes_len(&self) -> usize {
        self.bytes.len()
    }

    /// Reuses the memory of offsets and bytes, while there are none.
    pub(super) fn grow_into(&mut self, offsets: Option<Buffer>, bytes: Option<Buffer>) {
        reuse(&mut self.offsets, offsets);
        self.offsets.clear();
        self.offsets.push(0);
        reuse(&mut self.bytes, bytes);
    }

    pub(super) fn into_buffers(self, given: &mut Vec<Buffer>) -> (OffsetBuffer<i32>, Buffer) {
        let offsets = OffsetBuffer::new(give(self.offsets, given));
        (offsets, give(self.bytes, given).into_inner())
    }
}

#[cfg(test)]
mod tests {
    use super::Pieces;

    #[test]
    fn pieces_end_at_two_gib() {
        const FULL: i32 = i32::MAX - 2;
        // Zeros that nobody touches take no memory.
        let mut pieces = Pieces { offsets: vec![0, FULL], bytes: vec![0; FULL as usize] };
        assert_eq!(pieces.push(&[1; 3]), None);
        assert_eq!((pieces.offsets.len(), pieces.bytes.len()), (2, FULL as usize));
        pieces.truncate(0);
        assert_eq!(pieces.push(&[1; 3]), Some(()));
        assert_eq!((pieces.offsets, pieces.bytes), (vec![0, 3], vec![1; 3]));
    }
}
