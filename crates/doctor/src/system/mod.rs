//! Machine facts that only the doctor needs: the kernel's support for transfers between drives and GPUs, the
//! links of the PCI bus, the IOMMU, huge pages. They are read and serialised like those of
//! [`headrace_io::system`]: data only, below a [`SysRoot`](headrace_io::system::SysRoot), each a value or the
//! reason why it is unknown.

mod hugepages;
mod iommu;
mod kernel;
mod pci;

#[cfg(test)]
mod robustness;
// Recorded trees, as the tests of `io` make them.
#[cfg(test)]
#[allow(dead_code)]
#[path = "../../../io/src/system/testing.rs"]
mod testing;

#[cfg(test)]
use headrace_io::system::{PciAddress, SysRoot};

pub use hugepages::{HugePagePool, HugePages};
pub use iommu::Iommu;
pub use kernel::{Kernel, NvfsModule, NvfsSymbols, P2pMemory, P2pdma};
pub use pci::{PciDevice, PciLink};

pub(crate) use hugepages::huge_pages;
pub(crate) use iommu::iommu;
pub(crate) use kernel::kernel;
pub(crate) use pci::{nvidia_gpus, pci_device, pci_link, pci_links, window_bytes};
