//! The scan to predict.

use serde::Serialize;

use super::ModelError;

/// Rows in a 64-byte sector of 4-byte values: a kernel skips a sector when none of them survives.
const ROWS_PER_SECTOR: i32 = 16;

/// Where chunks are processed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// GPUs, behind a link.
    Gpu,
    /// CPU cores.
    Host,
}

/// Where data is decompressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Decode {
    /// In the processing of a chunk: compressed bytes cross the link.
    InPlace,
    /// CPU cores, before the link: uncompressed bytes cross it.
    Host,
}

/// A scan: the bytes, their locations, and the target. Shares are between 0 and 1; bytes that are
/// neither in the page cache nor registered nor in device memory come from storage.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Scan {
    /// Bytes of the table, uncompressed.
    pub table_bytes: u64,
    /// Share of them in the needed columns.
    pub column_share: f64,
    /// Share of the needed bytes that statistics rule out before they are read.
    pub pruned_share: f64,
    /// Compression ratio.
    pub compression_ratio: f64,
    /// Where data is decompressed.
    pub decode: Decode,
    /// Share in the page cache.
    pub page_cache_share: f64,
    /// Share in memory registered with the device, which copies it directly.
    pub registered_share: f64,
    /// Share that is already in device memory.
    pub device_share: f64,
    /// Share of rows that survive the first filter.
    pub selectivity: f64,
    /// Share of the needed bytes that the first filter reads.
    pub first_filter_share: f64,
    /// How often a kernel reads the bytes that it touches.
    pub kernel_passes: f64,
    /// Bytes of the answer, copied back from the device.
    pub result_bytes: u64,
    /// Whether the answer is written to storage.
    pub result_written: bool,
    /// Where chunks are processed.
    pub target: Target,
    /// Stored bytes of a chunk.
    pub chunk_bytes: u64,
    /// Slots of each GPU's ring, or of the host's.
    pub slots: u32,
    /// Seconds before the first read: context, planning, pinning.
    pub startup_s: f64,
}

impl Scan {
    /// A plain scan of `bytes` from storage by a GPU, or the host: every column, every row,
    /// uncompressed; 8 slots of 8 MiB.
    pub fn of_bytes(bytes: u64, target: Target) -> Scan {
        Scan {
            table_bytes: bytes,
            column_share: 1.0,
            pruned_share: 0.0,
            compression_ratio: 1.0,
            decode: Decode::InPlace,
            page_cache_share: 0.0,
            registered_share: 0.0,
            device_share: 0.0,
            selectivity: 1.0,
            first_filter_share: 1.0,
            kernel_passes: 1.0,
            result_bytes: 0,
            result_written: false,
            target,
            chunk_bytes: 8 << 20,
            slots: 8,
            startup_s: 0.0,
        }
    }

    /// Like [`Scan::of_bytes`], for bytes with known access paths.
    pub fn of_paths(
        storage_bytes: u64,
        page_cache_bytes: u64,
        registered_bytes: u64,
        device_bytes: u64,
        target: Target,
    ) -> Scan {
        let total = storage_bytes + page_cache_bytes + registered_bytes + device_bytes;
        let share = |bytes: u64| if total == 0 { 0.0 } else { bytes as f64 / total as f64 };
        Scan {
            page_cache_share: share(page_cache_bytes),
            registered_share: share(registered_bytes),
            device_share: share(device_bytes),
            ..Scan::of_bytes(total, target)
        }
    }

    /// Bytes of the needed columns, uncompressed, before pruning: the basis of a table's GB/s.
    pub fn needed_bytes(&self) -> f64 {
        self.table_bytes as f64 * self.column_share
    }

    /// Processed bytes, uncompressed.
    pub fn logical_bytes(&self) -> f64 {
        self.needed_bytes() * (1.0 - self.pruned_share)
    }

    /// Processed bytes, as stored.
    pub fn wire_bytes(&self) -> f64 {
        self.logical_bytes() / self.compression_ratio
    }

    /// Share that comes from storage.
    pub fn storage_share(&self) -> f64 {
        // Shares that add up to one in decimals may miss it by a rounding.
        (1.0 - self.page_cache_share - self.registered_share - self.device_share).max(0.0)
    }

    /// Bytes that cross the link to the device.
    pub fn link_bytes(&self) -> f64 {
        if self.target == Target::Host {
            return 0.0;
        }
        let decoded = match self.decode {
            Decode::InPlace => 1.0,
            Decode::Host => self.compression_ratio,
        };
        // Registered memory is copied as it lies there.
        let read = (self.storage_share() + self.page_cache_share) * decoded;
        self.wire_bytes() * (read + self.registered_share)
    }

    /// Share of the logical bytes that a kernel reads, see the [module](super).
    pub fn touched_share(&self) -> f64 {
        let sector_survives = 1.0 - (1.0 - self.selectivity).powi(ROWS_PER_SECTOR);
        self.first_filter_share + (1.0 - self.first_filter_share) * sector_survives
    }

    /// Bytes that kernels move in device memory: chunks arrive and are read. Columns that stay
    /// compressed are read compressed.
    pub fn device_memory_bytes(&self) -> f64 {
        let read = match self.decode {
            Decode::InPlace => self.wire_bytes(),
            Decode::Host => self.logical_bytes(),
        };
        self.link_bytes() + read * self.touched_share() * self.kernel_passes
    }

    /// # Errors
    /// [`ModelError::Input`] for the first invalid member.
    pub(super) fn check(&self) -> Result<(), ModelError> {
        let shares = [
            ("column share", self.column_share),
            ("pruned share", self.pruned_share),
            ("page-cache share", self.page_cache_share),
            ("registered share", self.registered_share),
            ("device share", self.device_share),
            ("selectivity", self.selectivity),
            ("share of the first filter", self.first_filter_share),
        ];
        let wrong = |what: &'static str, value: f64, wanted: &'static str| {
            Err(ModelError::Input { what, value, wanted })
        };
        for (what, value) in shares {
            if !(0.0..=1.0).contains(&value) {
                return wrong(what, value, "between 0 and 1");
            }
        }
        let held = self.page_cache_share + self.registered_share + self.device_share;
        if held > 1.0 + 1e-9 {
            return wrong("sum of the shares held in memory", held, "at most 1");
        }
        for (what, value) in
            [("compression ratio", self.compression_ratio), ("kernel passes", self.kernel_passes)]
        {
            if !(value.is_finite() && value > 0.0) {
                return wrong(what, value, "a positive number");
            }
        }
        if !(self.startup_s.is_finite() && self.startup_s >= 0.0) {
            return wrong("start-up time", self.startup_s, "0 or more seconds");
        }
        for (what, value) in
            [("chunk", self.chunk_bytes as f64), ("number of slots", f64::from(self.slots))]
        {
            if value < 1.0 {
                return wrong(what, value, "at least 1");
            }
        }
        if self.target == Target::Host && self.registered_share + self.device_share > 0.0 {
            let share = self.registered_share + self.device_share;
            return wrong("share held for a device", share, "0 when the target is the host");
        }
        Ok(())
    }
}
