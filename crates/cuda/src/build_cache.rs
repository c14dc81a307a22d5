//! Parts of builds that stay on a device between queries.

use std::sync::Arc;

use headrace_gpu::DeviceBuffer;
use headrace_io::{Kept, LastUsed};
use headrace_pipeline::build::BuildId;

use crate::tables::BuildPiece;

/// Parts of builds on the device, under a budget. A build is known by its number: the entry
/// keeps nothing of it on the host.
#[derive(Default)]
pub(crate) struct BuildCache {
    pieces: LastUsed<(BuildId, BuildPiece), DeviceBuffer>,
    bytes_max: u64,
}

impl BuildCache {
    pub(crate) fn new(bytes_max: u64) -> Self {
        Self { bytes_max, ..Self::default() }
    }

    pub(crate) fn get(&mut self, key: (BuildId, BuildPiece)) -> Option<Arc<Kept<DeviceBuffer>>> {
        let round = self.pieces.next_round();
        self.pieces.get(&key, round)
    }

    /// Keeps a piece and answers it, or the one that another query has put there meanwhile: which slot a key of a hash table
    /// has differs from table to table, so that all who ask for a build's must have the same one.
    pub(crate) fn put(
        &mut self,
        key: (BuildId, BuildPiece),
        buffer: Arc<Kept<DeviceBuffer>>,
    ) -> Arc<Kept<DeviceBuffer>> {
        if let Some(earlier) = self.get(key) {
            return earlier;
        }
        let round = self.pieces.next_round();
        self.pieces.insert(key, Arc::clone(&buffer), buffer.capacity_bytes(), round);
        while self.pieces.bytes() > self.bytes_max && self.evict_oldest() {}
        buffer
    }

    /// Drops the piece that was used longest ago and that no query holds.
    pub(crate) fn evict_oldest(&mut self) -> bool {
        self.pieces.take_idle(u64::MAX).is_some()
    }
}
