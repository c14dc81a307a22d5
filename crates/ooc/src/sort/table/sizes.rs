//! The division of memory.

use super::turns::SLACK_SHARE;

/// Default rows of a record batch of the output, if memory allows.
const BATCH_ROWS: usize = 1 << 20;

/// Bytes of a unit, a granule or a leaf beyond which there is no gain.
const PART_BYTES_MAX: u64 = 8 << 20;

const PART_BYTES_MIN: u64 = 8 << 10;

/// Smaller blocks are mostly metadata.
const BLOCK_BYTES_MIN: u64 = 16 << 10;

/// Maximum bytes of a block's entry; all entries may take one in [`SLACK_SHARE`] of all memory.
const BLOCK_NOTE_BYTES: u64 = 64;

/// Maximum buckets: their numbers have 16 bits, and a frequent key splits one into three.
const BUCKETS_MAX: u64 = 4096;

const BUCKETS_MIN: u64 = 4;

/// Rows and bytes that are processed at a time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    /// Threads that work.
    threads: u64,
    /// Rows of a record batch of the output, and its maximum bytes.
    pub batch_rows: usize,
    pub batch_bytes: u64,
    /// Small batches that are read as one.
    pub unit_bytes: u64,
    /// The unit of partitioning, and its total memory.
    pub granule_bytes: u64,
    pub granule_needs_bytes: u64,
    limit_bytes: u64,
    /// Maximum and target size of a bucket.
    pub leaf_bytes_max: u64,
    leaf_bytes: u64,
}

impl Sizes {
    /// For rows of `row_bytes` bytes with keys of `key_bytes`.
    pub fn new(
        limit_bytes: u64,
        threads: usize,
        batch_rows: Option<usize>,
        row_bytes: u64,
        key_bytes: u64,
    ) -> Sizes {
        let batch_rows = batch_rows.unwrap_or(BATCH_ROWS).max(1);
        let batch_bytes = (limit_bytes / 16).min(batch_rows as u64 * row_bytes * 5 / 4).max(1);
        let threads = threads as u64;
        let left_bytes = limit_bytes - Self::output_bytes_of(batch_bytes).min(limit_bytes);
        let part_bytes = |share: u64| (left_bytes / share).clamp(PART_BYTES_MIN, PART_BYTES_MAX);
        let granule_bytes = part_bytes(12 * threads);
        let granule_rows = (granule_bytes / row_bytes).max(1);
        Sizes {
            threads,
            batch_rows,
            batch_bytes,
            unit_bytes: granule_bytes,
            granule_needs_bytes: 4 * granule_bytes + granule_rows * (key_bytes + 8),
            granule_bytes,
            limit_bytes,
            leaf_bytes_max: left_bytes / 8 * 5,
            leaf_bytes: part_bytes(4 * (threads + 1)),
        }
    }

    /// Memory for writing: waiting rows, their batch, its bytes.
    pub fn output_bytes(&self) -> u64 {
        Self::output_bytes_of(self.batch_bytes)
    }

    fn output_bytes_of(batch_bytes: u64) -> u64 {
        3 * batch_bytes
    }

    /// Memory for sorting in one pass, with this many bytes of rows and keys held.
    pub fn one_pass_bytes(&self, bytes: u64) -> u64 {
        bytes + self.output_bytes() + 3 * (self.threads + 1) * self.one_pass_leaf_bytes(bytes)
    }

    fn one_pass_leaf_bytes(&self, bytes: u64) -> u64 {
        (bytes / (8 * self.threads)).clamp(PART_BYTES_MIN, PART_BYTES_MAX)
    }

    /// Rows that are sorted at a time, in one pass over `rows` rows of `bytes` bytes.
    pub fn leaf_rows(&self, bytes: u64, rows: u64) -> u64 {
        (self.one_pass_leaf_bytes(bytes) * rows / bytes.max(1)).max(1)
    }

    /// Number of buckets for this many bytes of rows.
    pub fn buckets(&self, bytes: u64) -> usize {
        let noted =
            (BLOCK_NOTE_BYTES * SLACK_SHARE).saturating_mul(bytes) / self.limit_bytes.max(1);
        let block_bytes = noted.max(BLOCK_BYTES_MIN);
        let most = (self.granule_bytes / block_bytes).clamp(BUCKETS_MIN, BUCKETS_MAX);
        (bytes * 4 / 3 / self.leaf_bytes + 1).clamp(2, most) as usize
    }
}
