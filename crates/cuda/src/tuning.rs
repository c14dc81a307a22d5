//! How a kernel is cut to a device.

/// How a kernel is cut to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tuning {
    /// Threads a block, a power of two from 32 to 1024.
    pub block_threads: u32,
    /// Blocks that must fit a multiprocessor at a time: bounds the registers.
    pub blocks_per_sm: u32,
    /// Rows that one thread handles at a time: 4 or 8.
    pub rows_per_thread: u32,
    /// Most dynamic shared memory of a block, in bytes.
    pub shared_bytes_max: u32,
    /// Whether columns are loaded ahead of the step that needs them.
    pub ahead: bool,
    /// Rows are taken one by one once at most this share of them is left, in percent; 0: never.
    pub queue_percent: u32,
}

impl Tuning {
    /// One block a multiprocessor with 64 registers a thread and nearly all of the shared memory
    /// (227 KB on sm_90 and sm_100): as many rows are on their way as with twice the threads of
    /// four rows each, and the bitmaps of large dimensions fit.
    pub const FULL: Self = Self {
        block_threads: 1024,
        blocks_per_sm: 1,
        rows_per_thread: 8,
        shared_bytes_max: 226 * 1024,
        ahead: true,
        queue_percent: 5,
    };

    /// From most threads to most registers a row. The first is taken whose kernel does not spill,
    /// has as many builds in shared memory as [`Self::FULL`] has, and leaves enough of it to the
    /// cache if its blocks are several.
    pub const LADDER: [Self; 6] = [
        Self { block_threads: 512, blocks_per_sm: 4, shared_bytes_max: 55 * 1024, ..Self::FULL },
        Self { block_threads: 512, blocks_per_sm: 3, shared_bytes_max: 74 * 1024, ..Self::FULL },
        Self::FULL,
        Self { rows_per_thread: 4, ..Self::FULL },
        Self { block_threads: 512, rows_per_thread: 4, ..Self::FULL },
        Self { block_threads: 256, rows_per_thread: 4, ..Self::FULL },
    ];

    /// Rows of a tile.
    pub fn tile_rows(&self) -> u32 {
        self.block_threads * self.rows_per_thread
    }

    /// Most groups of a tile, of which each row becomes up to `matches_max` at the sink.
    pub(crate) fn tile_groups(&self, matches_max: u64) -> u64 {
        u64::from(self.tile_rows()).saturating_mul(matches_max)
    }
}
