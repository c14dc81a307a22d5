//! The machine that scans.

use serde::Serialize;

use super::ModelError;
use crate::record::{Ceilings, Measure, StoreKey};

/// Fixed cost of a copy in seconds: 53.6 GB/s were measured in pieces of 4 MiB and 55.1 in pieces
/// of 16 MiB on a link of 55.5 GB/s, which is 2.7 and 2.2 microseconds.
const COPY_OVERHEAD_S: f64 = 2.5e-6;

/// Seconds between kernels of one stream, a typical value.
const LAUNCH_OVERHEAD_S: f64 = 4e-6;

/// Seconds from the submission of a read to its first byte: an NVMe drive.
const READ_LATENCY_S: f64 = 100e-6;

/// A device, or another source of reads.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StorageDevice {
    /// Its name.
    pub name: String,
    /// Sequential reads, GB/s.
    pub read_gb_per_s: f64,
    /// Sequential writes, GB/s, if known.
    pub write_gb_per_s: Option<f64>,
}

/// The layout of a table on several devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Placement {
    /// Every chunk is striped over all of them (RAID 0): as fast as the slowest, times their
    /// number.
    Striped,
    /// Whole files, equal bytes on each: the slowest is the last to finish.
    Even,
    /// Whole files, more bytes on faster devices: all finish together.
    Proportional,
}

/// Shared resources of storage, or of the GPUs' links, on the way to memory.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Topology {
    /// Every device has its own path.
    Direct,
    /// All reads from storage pass through `uplinks` equal paths (root complexes, inter-socket
    /// links, host adapters, NICs), among which devices are divided evenly.
    Shared {
        /// Their number.
        uplinks: u32,
        /// Rate of each, GB/s.
        gb_per_s: f64,
    },
    /// Storage and GPU sit together in independent boxes: only answers leave them, over a path of
    /// this rate.
    Local {
        /// GB/s of all boxes together.
        gb_per_s: f64,
    },
}

/// A GPU and its link.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Gpu {
    /// Its name.
    pub name: String,
    /// Copies from pinned host memory, GB/s.
    pub h2d_gb_per_s: f64,
    /// Copies to pinned host memory, GB/s, if known.
    pub d2h_gb_per_s: Option<f64>,
    /// Its memory: bytes read plus written, GB/s, if known.
    pub memory_gb_per_s: Option<f64>,
}

/// The ceilings of a machine, measured or stated. Rates are GB/s; `None` is not modelled, and the
/// prediction says so.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Machine {
    /// Storage.
    pub storage: Vec<StorageDevice>,
    /// The layout of the table on it.
    pub placement: Placement,
    /// Shared resources of reads.
    pub topology: Topology,
    /// From the page cache into slots (for a host target: to the CPU).
    pub page_cache_gb_per_s: Option<f64>,
    /// Host memory, bytes read plus written by cores and DMA.
    pub host_memory_gb_per_s: Option<f64>,
    /// Decompression by the CPU, uncompressed bytes.
    pub host_decode_gb_per_s: Option<f64>,
    /// Work of all CPU cores on chunks, uncompressed bytes.
    pub cpu_gb_per_s: Option<f64>,
    /// Cores that process different chunks in parallel.
    pub cpu_workers: u32,
    /// GPUs.
    pub gpus: Vec<Gpu>,
    /// Rate of the links to all GPUs together, if less than their sum.
    pub all_links_gb_per_s: Option<f64>,
    /// From the submission of a read to its first byte, seconds.
    pub read_latency_s: f64,
    /// Fixed cost of a copy to a device, seconds.
    pub copy_overhead_s: f64,
    /// Fixed cost of a kernel, seconds.
    pub launch_overhead_s: f64,
}

impl Default for Machine {
    /// No storage, no GPU, no known rates; typical latencies.
    fn default() -> Machine {
        Machine {
            storage: Vec::new(),
            placement: Placement::Striped,
            topology: Topology::Direct,
            page_cache_gb_per_s: None,
            host_memory_gb_per_s: None,
            host_decode_gb_per_s: None,
            cpu_gb_per_s: None,
            cpu_workers: 1,
            gpus: Vec::new(),
            all_links_gb_per_s: None,
            read_latency_s: READ_LATENCY_S,
            copy_overhead_s: COPY_OVERHEAD_S,
            launch_overhead_s: LAUNCH_OVERHEAD_S,
        }
    }
}

impl Machine {
    /// The measured machine: the best of each ceiling. GPUs (by PCI address) without a measured
    /// link are omitted.
    pub fn measured(ceilings: &Ceilings, store: Option<&StoreKey>, gpus: &[String]) -> Machine {
        let value = |measure: Measure| ceilings.get(&measure).map(|ceiling| ceiling.value);
        let found = store.map(|store| (store, ceilings.for_store(store)));
        let storage = found.and_then(|(store, ceilings)| {
            Some(StorageDevice {
                name: store.to_string(),
                read_gb_per_s: ceilings.read?.value,
                write_gb_per_s: ceilings.write.map(|ceiling| ceiling.value),
            })
        });
        let gpus: Vec<Gpu> = gpus
            .iter()
            .filter_map(|gpu| {
                Some(Gpu {
                    name: gpu.clone(),
                    h2d_gb_per_s: value(Measure::HostToDevice { gpu: gpu.clone() })?,
                    d2h_gb_per_s: value(Measure::DeviceToHost { gpu: gpu.clone() }),
                    memory_gb_per_s: value(Measure::DeviceMemory { gpu: gpu.clone() }),
                })
            })
            .collect();
        let together = Measure::AllHostToDevice { gpus: gpus.len() as u32 };
        Machine {
            storage: storage.into_iter().collect(),
            page_cache_gb_per_s: ceilings
                .best(|m| matches!(m, Measure::PageCacheRead { .. }))
                .map(|ceiling| ceiling.value),
            all_links_gb_per_s: value(together),
            gpus,
            ..Machine::default()
        }
    }

    /// Rate of storage before any shared resource; 0 without storage.
    pub fn storage_read_gb_per_s(&self) -> f64 {
        self.together(self.storage.iter().map(|device| device.read_gb_per_s))
    }

    /// Write rate of storage; `None` if that of a device is unknown or there is none.
    pub fn storage_write_gb_per_s(&self) -> Option<f64> {
        let rates: Option<Vec<f64>> =
            self.storage.iter().map(|device| device.write_gb_per_s).collect();
        rates.filter(|rates| !rates.is_empty()).map(|rates| self.together(rates.into_iter()))
    }

    fn together(&self, rates: impl Iterator<Item = f64> + Clone) -> f64 {
        if self.storage.is_empty() {
            return 0.0;
        }
        match self.placement {
            Placement::Proportional => rates.sum(),
            Placement::Striped | Placement::Even => {
                rates.fold(f64::INFINITY, f64::min) * self.storage.len() as f64
            }
        }
    }

    /// Rate of the links to all GPUs, GB/s; 0 without a GPU.
    pub fn h2d_gb_per_s(&self) -> f64 {
        let sum: f64 = self.gpus.iter().map(|gpu| gpu.h2d_gb_per_s).sum();
        self.all_links_gb_per_s.map_or(sum, |together| sum.min(together))
    }

    /// The sum over GPUs of a rate; `None` if one is unknown or there is no GPU.
    pub(super) fn sum_over_gpus(&self, rate: impl Fn(&Gpu) -> Option<f64>) -> Option<f64> {
        if self.gpus.is_empty() {
            return None;
        }
        self.gpus.iter().map(rate).sum()
    }

    /// # Errors
    /// [`ModelError::Input`] for the first invalid rate or latency.
    pub(super) fn check(&self) -> Result<(), ModelError> {
        let mut rates: Vec<(&'static str, f64)> = Vec::new();
        let mut rate = |what, value: Option<f64>| rates.extend(value.map(|value| (what, value)));
        for device in &self.storage {
            rate("storage read rate", Some(device.read_gb_per_s));
            rate("storage write rate", device.write_gb_per_s);
        }
        for gpu in &self.gpus {
            rate("link rate", Some(gpu.h2d_gb_per_s));
            rate("rate of the link back", gpu.d2h_gb_per_s);
            rate("device memory rate", gpu.memory_gb_per_s);
        }
        match self.topology {
            Topology::Direct => {}
            Topology::Shared { uplinks, gb_per_s } => {
                rate("rate of a shared way", Some(gb_per_s));
                rate("number of shared ways", Some(f64::from(uplinks)));
            }
            Topology::Local { gb_per_s } => rate("rate of the way out of boxes", Some(gb_per_s)),
        }
        rate("page-cache rate", self.page_cache_gb_per_s);
        rate("host memory rate", self.host_memory_gb_per_s);
        rate("host decode rate", self.host_decode_gb_per_s);
        rate("CPU rate", self.cpu_gb_per_s);
        rate("rate of all links", self.all_links_gb_per_s);
        rate("number of CPU workers", Some(f64::from(self.cpu_workers)));
        for (what, value) in rates {
            if !(value.is_finite() && value > 0.0) {
                return Err(ModelError::Input { what, value, wanted: "a positive number" });
            }
        }
        for (what, value) in [
            ("read latency", self.read_latency_s),
            ("copy overhead", self.copy_overhead_s),
            ("launch overhead", self.launch_overhead_s),
        ] {
            if !(value.is_finite() && value >= 0.0) {
                return Err(ModelError::Input { what, value, wanted: "0 or more seconds" });
            }
        }
        Ok(())
    }
}
