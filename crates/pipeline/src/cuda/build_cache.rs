//! Parts of builds that stay on a device between queries.

use std::collections::HashMap;
use std::sync::Arc;

use headrace_gpu::DeviceBuffer;

use crate::build::BuildId;
use crate::cuda::program::BuildPiece;

/// Parts of builds on the device, under a budget. A build is known by its number: the entry
/// keeps nothing of it on the host.
#[derive(Default)]
pub(super) struct BuildCache {
    pieces: HashMap<(BuildId, BuildPiece), CachedPiece>,
    bytes: u64,
    bytes_max: u64,
    clock: u64,
}

struct CachedPiece {
    buffer: Arc<DeviceBuffer>,
    used: u64,
}

impl BuildCache {
    pub(super) fn new(bytes_max: u64) -> Self {
        Self { bytes_max, ..Self::default() }
    }

    pub(super) fn get(&mut self, key: (BuildId, BuildPiece)) -> Option<Arc<DeviceBuffer>> {
        self.clock += 1;
        let entry = self.pieces.get_mut(&key)?;
        entry.used = self.clock;
        Some(Arc::clone(&entry.buffer))
    }

    pub(super) fn put(&mut self, key: (BuildId, BuildPiece), buffer: &Arc<DeviceBuffer>) {
        self.clock += 1;
        let entry = CachedPiece { buffer: Arc::clone(buffer), used: self.clock };
        self.bytes += buffer.capacity_bytes();
        if let Some(old) = self.pieces.insert(key, entry) {
            self.bytes -= old.buffer.capacity_bytes();
        }
        while self.bytes > self.bytes_max && self.evict_oldest() {}
    }

    /// Drops the piece that was used longest ago and that no query holds.
    pub(super) fn evict_oldest(&mut self) -> bool {
        let oldest = self
            .pieces
            .iter()
            .filter(|(_, entry)| Arc::strong_count(&entry.buffer) == 1)
            .min_by_key(|(_, entry)| entry.used)
            .map(|(key, _)| *key);
        let Some(entry) = oldest.and_then(|key| self.pieces.remove(&key)) else { return false };
        self.bytes -= entry.buffer.capacity_bytes();
        true
    }
}
