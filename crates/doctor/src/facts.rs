//! The observed facts, before any judgement.

use std::fmt;
use std::path::{Path, PathBuf};

use headrace_gpu::Property;
use headrace_gpu::measure::{AllDevices, CopySpeed, HostCopySpeed};
use headrace_io::system::{
    Limits, NearestGpu, NumaNode, PciAddress, Seccomp, StorageHome, UringProbe,
};
use serde::{Serialize, Serializer};

use crate::system::{HugePages, Iommu, Kernel, PciDevice, PciLink};

/// A fact, or the reason why it is unknown. In JSON the value itself, or `{"unknown": "…"}`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Known<T> {
    /// The fact.
    Value(T),
    /// Unknown.
    Unknown {
        /// The reason.
        unknown: String,
    },
}

impl<T> Known<T> {
    /// Unknown, for `reason`.
    pub fn unknown(reason: impl ToString) -> Known<T> {
        Known::Unknown { unknown: reason.to_string() }
    }

    /// The fact, if it is known.
    pub fn value(&self) -> Option<&T> {
        match self {
            Known::Value(value) => Some(value),
            Known::Unknown { .. } => None,
        }
    }

    /// The fact, or the reason why it is unknown.
    pub fn as_result(&self) -> Result<&T, &str> {
        match self {
            Known::Value(value) => Ok(value),
            Known::Unknown { unknown } => Err(unknown),
        }
    }
}

impl<T, E: ToString> From<Result<T, E>> for Known<T> {
    fn from(result: Result<T, E>) -> Known<T> {
        match result {
            Ok(value) => Known::Value(value),
            Err(error) => Known::unknown(error),
        }
    }
}

/// A run of this duration can be compared, however many bytes it moved.
const LONG_RUN_S: f64 = 0.1;

/// From this share on a file counts as being in the page cache.
const RESIDENT_SHARE: f64 = 0.99;

/// All facts.
#[derive(Debug, Clone, Serialize)]
pub struct Facts {
    /// Facts about the machine and this process.
    pub machine: MachineFacts,
    /// Facts about CUDA.
    pub gpu: GpuFacts,
    /// One measured ceiling per stage.
    pub ceilings: Vec<StageCeiling>,
    /// The examined paths.
    pub paths: Vec<PathFacts>,
    /// Where the ceilings were recorded, or why not; absent if there were none.
    pub record: Option<String>,
}

/// The best rate of a stage, measured just now.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StageCeiling {
    /// The stage: "storage, /data", "memory copy", "gpu 0, host to device".
    pub stage: String,
    /// GB/s (GB = 10^9 bytes), or the reason why it was not measured.
    pub gb_per_s: Known<f64>,
}

/// Facts about the machine and this process.
#[derive(Debug, Clone, Serialize)]
pub struct MachineFacts {
    /// Release, and the kernel's support for transfers between storage and GPUs.
    pub kernel: Kernel,
    /// Logical processors that this process may use.
    pub cores: usize,
    /// Limits of the process and its control group.
    pub limits: Limits,
    /// The filter of system calls.
    pub seccomp: Known<Seccomp>,
    /// Whether the kernel allows a ring, and registers as much memory with it as a race needs.
    pub uring: UringProbe,
    /// Huge pages.
    pub huge_pages: HugePages,
    /// NUMA nodes.
    pub numa: Known<Vec<NumaNode>>,
    /// The IOMMU.
    pub iommu: Iommu,
    /// Names of the RDMA devices, empty without any.
    pub rdma_devices: Vec<String>,
    /// The rate of host memory copies.
    pub memory_copy: Known<HostCopySpeed>,
}

/// Facts about CUDA.
#[derive(Debug, Clone, Serialize)]
pub struct GpuFacts {
    /// NVIDIA GPUs on the PCI bus, with or without a driver.
    pub on_bus: Known<Vec<PciDevice>>,
    /// The CUDA version that the driver supports.
    pub driver: Known<String>,
    /// Version and file of the run-time compiler.
    pub nvrtc: Known<String>,
    /// Why no device can be used; absent if one can.
    pub no_device: Option<String>,
    /// The usable devices.
    pub devices: Vec<GpuFact>,
    /// Host to device, all of them at once; absent with a single device.
    pub all_h2d: Option<Known<AllDevices>>,
    /// cuFile.
    pub cufile: CuFileFact,
}

/// One GPU.
#[derive(Debug, Clone, Serialize)]
pub struct GpuFact {
    /// Position among the devices visible to this process.
    pub ordinal: usize,
    /// The product's name.
    pub name: String,
    /// Its address on the PCI bus.
    pub address: Known<PciAddress>,
    /// Its NUMA node.
    pub numa_node: Option<u32>,
    /// The window through which other devices reach its memory (NVIDIA's BAR1).
    pub window_bytes: Known<u64>,
    /// Links from the root port down to the device, read under load (or just after opening, if
    /// nothing was measured).
    pub links: Known<Vec<PciLink>>,
    /// Total and free device memory, including other processes' use. Unknown if the device could
    /// not be opened.
    pub memory: Known<DeviceMemoryFact>,
    /// Pinned host memory to device, the other links idle.
    pub h2d: Known<CopySpeed>,
    /// Device to pinned host memory, the other links idle.
    pub d2h: Known<CopySpeed>,
    /// Device memory, read and written bytes counted.
    pub memory_speed: Known<CopySpeed>,
    /// Device memory bandwidth by data sheet, GB/s; 0 if the driver does not report it.
    pub nominal_memory_gb_per_s: f64,
    /// All of the driver's properties.
    pub properties: Vec<Property>,
}

/// Memory of a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct DeviceMemoryFact {
    /// All of it.
    pub total_bytes: u64,
    /// Unused memory.
    pub free_bytes: u64,
}

/// cuFile: reads from storage straight to device memory.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CuFileFact {
    /// Version of the library, or why it cannot be used.
    pub library: Known<String>,
    /// The remedy.
    pub remedy: Option<String>,
    /// Its mode in words.
    pub mode: Known<String>,
    /// Whether operations in this mode were counted; otherwise the mode is what the state of its
    /// driver makes possible.
    pub proven: bool,
    /// The evidence.
    pub evidence: Vec<String>,
    /// Its configuration in force.
    pub parameters: Vec<Property>,
}

/// An examined path.
#[derive(Debug, Clone, Serialize)]
pub struct PathFacts {
    /// As given.
    #[serde(serialize_with = "lossy")]
    pub path: PathBuf,
    /// Its kind.
    pub kind: PathKind,
    /// Files below a folder, and their bytes.
    pub below: Option<FilesBelow>,
    /// The file (or device) that was read, or why none was.
    pub examined: Known<FileFact>,
    /// Mount, block devices, PCIe addresses, NFS.
    pub home: StorageHome,
    /// PCIe links of the drives and network cards below it.
    pub links: Vec<LinkFact>,
    /// The nearest GPU, as an index into [`GpuFacts`]; absent without a GPU, or if the address of
    /// one is unknown.
    pub nearest_gpu: Option<NearestGpu>,
    /// The best recent O_DIRECT rate of this storage, GB/s, from the record of ceilings; absent if
    /// there is none.
    pub earlier_gb_per_s: Option<f64>,
    /// One entry per tried access path.
    pub access: Vec<AccessProbe>,
    /// The result of the write probe, if requested.
    pub write: Option<AccessProbe>,
}

/// The path of a device to the processor.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LinkFact {
    /// The device's location.
    pub address: PciAddress,
    /// Links from the root port down to it.
    pub links: Known<Vec<PciLink>>,
}

/// The kind of a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PathKind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A block device.
    BlockDevice,
    /// A path without data to stream: a pipe, a socket, a character device.
    Other,
    /// A missing path.
    Missing,
    /// It cannot be examined, for this reason.
    Unreachable(String),
}

impl PathKind {
    /// Whether a file can be written to it, or beside it.
    pub fn can_be_written(&self) -> bool {
        matches!(self, PathKind::File | PathKind::Folder)
    }
}

/// The content of a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct FilesBelow {
    /// Regular files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Folders and files that could not be examined.
    pub unreadable: u64,
    /// Whether counting stopped at the limit.
    pub more: bool,
}

/// The file that was read.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FileFact {
    /// Its path.
    #[serde(serialize_with = "lossy")]
    pub path: PathBuf,
    /// Its size.
    pub size_bytes: u64,
    /// Bytes stored: fewer than its size if it has holes or is compressed.
    pub allocated_bytes: u64,
    /// Filesystem as mounted.
    pub filesystem: String,
    /// Whether it lies in memory.
    pub memory_backed: bool,
    /// Alignment for O_DIRECT, or why it is not available.
    pub direct: Known<DirectAlignment>,
    /// Share of the file in the page cache, 0 to 1, before anything was read.
    pub resident_share: Known<f64>,
}

/// Alignment for O_DIRECT.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct DirectAlignment {
    /// Of memory.
    pub memory_bytes: usize,
    /// Of offsets and lengths.
    pub offset_bytes: usize,
}

/// A tried access path.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AccessProbe {
    /// The access path.
    pub way: Way,
    /// The outcome.
    pub outcome: Outcome,
}

/// An access path from storage to the consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// The automatic choice of queries.
    Automatic,
    /// A mapping.
    Mapped,
    /// Threads through the page cache.
    Buffered,
    /// O_DIRECT through io_uring.
    Uring,
    /// O_DIRECT by threads.
    DirectThreads,
    /// O_DIRECT into pinned slots, copied to a GPU.
    GpuSlotsDirect(usize),
    /// The page cache into pinned slots, copied to a GPU.
    GpuSlotsBuffered(usize),
    /// A mapping that is registered with the driver and copied from in place.
    GpuRegistered(usize),
    /// cuFile.
    GpuCuFile(usize),
    /// Writing.
    Write,
}

impl Way {
    /// Whether bytes come through O_DIRECT: past the page cache, from the device itself.
    pub fn is_direct(self) -> bool {
        matches!(self, Way::Uring | Way::DirectThreads)
    }

    /// Whether it ends on a GPU.
    pub fn gpu(self) -> Option<usize> {
        match self {
            Way::GpuSlotsDirect(gpu)
            | Way::GpuSlotsBuffered(gpu)
            | Way::GpuRegistered(gpu)
            | Way::GpuCuFile(gpu) => Some(gpu),
            _ => None,
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Way::Automatic => "automatic".to_string(),
            Way::Mapped => "mapped".to_string(),
            Way::Buffered => "page cache, threads".to_string(),
            Way::Uring => "O_DIRECT, io_uring".to_string(),
            Way::DirectThreads => "O_DIRECT, threads".to_string(),
            Way::GpuSlotsDirect(gpu) => format!("gpu {gpu}: O_DIRECT, slots"),
            Way::GpuSlotsBuffered(gpu) => format!("gpu {gpu}: page cache, slots"),
            Way::GpuRegistered(gpu) => format!("gpu {gpu}: registered mapping"),
            Way::GpuCuFile(gpu) => format!("gpu {gpu}: cuFile"),
            Way::Write => "write".to_string(),
        };
        f.pad(&text)
    }
}

/// The outcome of an access path.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The bytes arrived and match plain reads.
    Works {
        /// Bytes that were compared.
        checked_bytes: u64,
        /// The real readers, and bytes by access path.
        taken: String,
        /// Why nothing better was used, if known.
        reasons: Vec<String>,
        /// GB/s; unknown if it was not measured.
        gb_per_s: Known<f64>,
        /// Bytes behind `gb_per_s`.
        timed_bytes: u64,
        /// Threads, or requests in flight of one thread, behind `gb_per_s`.
        requests_at_once: u32,
    },
    /// It is not available.
    Refused {
        /// The reason.
        reason: String,
        /// The remedy.
        remedy: Option<String>,
    },
    /// Wrong bytes arrived.
    Wrong {
        /// The difference in words.
        what: String,
    },
    /// It was not tried.
    NotTried {
        /// The reason.
        reason: String,
    },
}

impl AccessProbe {
    /// Bytes behind the rate; 0 without one.
    pub fn timed_bytes(&self) -> u64 {
        match &self.outcome {
            Outcome::Works { timed_bytes, .. } => *timed_bytes,
            _ => 0,
        }
    }

    /// GB/s, if it worked and was measured.
    pub fn gb_per_s(&self) -> Option<f64> {
        match &self.outcome {
            Outcome::Works { gb_per_s, .. } => gb_per_s.value().copied(),
            _ => None,
        }
    }
}

impl GpuFact {
    /// GB/s of copies from pinned host memory, if they were measured.
    pub fn h2d_gb_per_s(&self) -> Option<f64> {
        self.h2d.value().map(|speed| speed.gb_per_s)
    }
}

impl FileFact {
    /// Whether part of it is not on storage, so that rates say nothing about the storage.
    pub fn has_holes(&self) -> bool {
        // Filesystems round, and some keep small files in their metadata.
        let missing = self.size_bytes.saturating_sub(self.allocated_bytes);
        missing > self.size_bytes / 100 && missing > 64 << 10
    }
}

impl PathFacts {
    /// The rate of page cache reads, GB/s, if all of the file was in it.
    pub fn page_cache_gb_per_s(&self) -> Option<f64> {
        let file = self.examined.value()?;
        let resident = file.resident_share.value().is_some_and(|share| *share >= RESIDENT_SHARE);
        (resident && !file.memory_backed)
            .then(|| self.best_gb_per_s(|way| way == Way::Buffered))
            .flatten()
    }

    /// The best measured rate of the access paths selected by `wanted`.
    pub fn best_gb_per_s(&self, wanted: impl Fn(Way) -> bool) -> Option<f64> {
        self.best_gb_per_s_over(0, wanted)
    }

    /// Like [`best_gb_per_s`](Self::best_gb_per_s), for runs over at least `bytes_min` bytes or a
    /// tenth of a second: shorter ones are dominated by the start of the ring.
    pub fn best_gb_per_s_over(&self, bytes_min: u64, wanted: impl Fn(Way) -> bool) -> Option<f64> {
        let probes = self.access.iter().filter(|probe| wanted(probe.way));
        let long_enough = probes.filter_map(|probe| {
            let rate = probe.gb_per_s()?;
            let bytes = probe.timed_bytes();
            (bytes >= bytes_min || bytes as f64 >= rate * 1e9 * LONG_RUN_S).then_some(rate)
        });
        long_enough.max_by(f64::total_cmp)
    }
}

fn lossy<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&path.display())
}
