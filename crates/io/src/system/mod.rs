//! Facts about the machine that affect storage speed: mounts, block devices, PCI addresses, NFS,
//! limits. Data only: `doctor` judges it.
//!
//! ```text
//!   path ─► StorageHome ─┬─ Mount (mountinfo)                    overlay ─► the mount below
//!                        ├─ BlockDevice tree: partition, dm, md ─► leaves (NVMe, SCSI, virtio)
//!                        ├─ NfsMount ─► Interface (route, MTU)
//!                        └─ PCI addresses ─► Distance to each GPU ─► nearest_gpu
//!   process ─► Limits (rlimits, cgroup), Seccomp, CpuTimes, UringProbe
//!   machine ─► NumaNode
//! ```
//!
//! * Everything that the kernel publishes as a file is read below a [`SysRoot`], so a recorded tree
//!   of another machine yields that machine's facts.
//! * Unknowns are data too: a [`Fact`] is a value or an [`Unknown`] with the place and the cause.
//!   An `Option` is used where a missing file has only one, documented meaning. Nothing here
//!   guesses.
//! * All structs are serialisable: a known fact as its value, an unknown one as
//!   `{"unknown": "place: cause"}`.

mod block;
mod cpu_times;
mod disk_stats;
mod distance;
mod gpu_for;
mod limits;
mod mounts;
mod net;
mod nfs;
mod numa;
mod nvme;
mod pci;
mod root;
mod seccomp;
mod storage_home;
mod uring_probe;

#[cfg(test)]
mod robustness;
#[cfg(test)]
mod testing;

pub use block::{BlockDevice, BlockKind, QueueSettings, Transport};
pub use cpu_times::CpuTimes;
pub use disk_stats::{DiskRates, DiskSampler};
pub use distance::Distance;
pub use gpu_for::{GpuFor, Taker};
pub use limits::{
    Cgroup, Limit, Limits, available_memory_bytes, cores, limits, memory_bytes, peak_memory_bytes,
};
pub use mounts::Mount;
pub(crate) use mounts::mount_of_descriptor;
pub use net::Interface;
pub use nfs::NfsMount;
pub use numa::{NumaNode, numa_nodes};
pub use nvme::NvmeController;
pub use pci::{NotPciAddress, PCI_DEVICES, PciAddress, numa_node_of, pci_path};
pub use root::{Fact, SysRoot, Unknown, UnknownCause, fact};
pub use seccomp::{Seccomp, SeccompMode, seccomp};
pub use storage_home::{Medium, NearestGpu, StorageHome, nearest_gpu};
pub use uring_probe::{UringProbe, UringRefusal, uring_probe};
