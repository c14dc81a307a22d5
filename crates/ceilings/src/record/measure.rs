//! What is measured, and how often it was.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::key::StoreKey;

/// The subject of a measurement, with everything that affects the result.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Measure {
    /// Sequential reads from storage to host memory, past the page cache.
    StorageRead {
        /// The device or mount.
        store: StoreKey,
        /// Access path, such as "uring" or "pread".
        access: String,
        /// Threads, or requests in flight of one thread.
        threads: u32,
    },
    /// Sequential writes from host memory to storage.
    StorageWrite {
        /// The device or mount.
        store: StoreKey,
        /// Access path.
        access: String,
        /// Threads, or requests in flight of one thread.
        threads: u32,
    },
    /// Random reads: operations per second instead of GB/s.
    RandomRead {
        /// The device or mount.
        store: StoreKey,
        /// Access path.
        access: String,
        /// Threads, or requests in flight of one thread.
        threads: u32,
        /// Bytes of a read, such as 4096.
        block_bytes: u64,
    },
    /// From the page cache into other host memory.
    PageCacheRead {
        /// Threads that copy.
        threads: u32,
    },
    /// Copies within host memory: copied bytes, counted once.
    HostCopy {
        /// Threads that copy.
        threads: u32,
    },
    /// Pinning: touching and registering host memory for a device.
    Pinning {
        /// Threads that touch.
        threads: u32,
    },
    /// From pinned host memory to one GPU, the other links idle.
    HostToDevice {
        /// The GPU: PCI address.
        gpu: String,
    },
    /// From one GPU to pinned host memory, the other links idle.
    DeviceToHost {
        /// The GPU: PCI address.
        gpu: String,
    },
    /// From pinned host memory to several GPUs at once: the sum.
    AllHostToDevice {
        /// Their number.
        gpus: u32,
    },
    /// From several GPUs at once to pinned host memory: the sum.
    AllDeviceToHost {
        /// Their number.
        gpus: u32,
    },
    /// Memory of a GPU: bytes read plus bytes written.
    DeviceMemory {
        /// The GPU: PCI address.
        gpu: String,
    },
}

impl Measure {
    /// The unit of its values.
    pub fn unit(&self) -> &'static str {
        match self {
            Measure::RandomRead { .. } => "IOPS",
            _ => "GB/s",
        }
    }

    /// The storage concerned, if any.
    pub fn store(&self) -> Option<&StoreKey> {
        match self {
            Measure::StorageRead { store, .. }
            | Measure::StorageWrite { store, .. }
            | Measure::RandomRead { store, .. } => Some(store),
            _ => None,
        }
    }
}

/// One stored result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sample {
    /// GB/s, or operations per second.
    pub value: f64,
    /// Time, in seconds since 1970.
    pub unix_s: u64,
    /// Source: the command, or words.
    pub how: String,
    /// Bytes moved by the measurement.
    pub bytes: u64,
}

/// The samples of a machine.
pub(super) type Entries = BTreeMap<Measure, Vec<Sample>>;
