//! The PCI bus: addresses and topology.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Serialize, Serializer};

use super::root::{Fact, SysRoot, Unknown};

/// Where sysfs lists what is on the bus.
pub const PCI_DEVICES: &str = "/sys/bus/pci/devices";

/// Address of a PCI function: `0000:c1:00.0`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PciAddress {
    /// Domain (segment); above 0xffff for drives behind a volume management device.
    pub domain: u32,
    /// Bus.
    pub bus: u8,
    /// Device on the bus, 0 to 31.
    pub device: u8,
    /// Function of the device, 0 to 7.
    pub function: u8,
}

/// The text is not an address of the form `domain:bus:device.function`, all hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a PCI address: {0:?}; it looks like 0000:c1:00.0")]
pub struct NotPciAddress(String);

impl FromStr for PciAddress {
    type Err = NotPciAddress;

    /// Accepts capital letters and eight digits of domain too, as NVIDIA's tools print them.
    fn from_str(text: &str) -> Result<Self, NotPciAddress> {
        parse_address(text).ok_or_else(|| NotPciAddress(text.to_string()))
    }
}

fn parse_address(text: &str) -> Option<PciAddress> {
    let (domain, rest) = text.split_once(':')?;
    let (bus, rest) = rest.split_once(':')?;
    let (device, function) = rest.split_once('.')?;
    let digits = |text: &str, longest: usize| {
        let plain = !text.is_empty() && text.len() <= longest;
        (plain && text.bytes().all(|byte| byte.is_ascii_hexdigit()))
            .then(|| u32::from_str_radix(text, 16).ok())?
    };
    if domain.len() < 4 {
        return None;
    }
    let address = PciAddress {
        domain: digits(domain, 8)?,
        bus: u8::try_from(digits(bus, 2)?).ok()?,
        device: u8::try_from(digits(device, 2)?).ok()?,
        function: u8::try_from(digits(function, 1)?).ok()?,
    };
    (address.device < 32 && address.function < 8).then_some(address)
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PciAddress { domain, bus, device, function } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function:x}")
    }
}

impl Serialize for PciAddress {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl PciAddress {
    /// The address of the device that a folder of sysfs lies in: the last one on its path.
    pub(super) fn of_sysfs_path(path: &Path) -> Option<PciAddress> {
        path.components().rev().find_map(|part| part.as_os_str().to_str()?.parse().ok())
    }

    /// The sysfs folder of a PCI device.
    pub fn folder(&self) -> PathBuf {
        Path::new(PCI_DEVICES).join(self.to_string())
    }

    pub(super) fn same_device(&self, other: &Self) -> bool {
        (self.domain, self.bus, self.device) == (other.domain, other.bus, other.device)
    }
}

/// The bridges from the root port down to the device, which is the last.
///
/// # Errors
/// [`Unknown`] if there is no such device.
pub fn pci_path(root: &SysRoot, address: &PciAddress) -> Fact<Vec<PciAddress>> {
    Way::of(root, address).map(|way| way.steps)
}

/// NUMA node of a device; `None` if there is no such device or the firmware names no node.
pub fn numa_node_of(root: &SysRoot, address: &PciAddress) -> Option<u32> {
    numa_node_in(root, &address.folder())
}

/// The file `numa_node` of a folder of sysfs; -1 means that none is known.
pub(super) fn numa_node_in(root: &SysRoot, folder: &Path) -> Option<u32> {
    root.parsed::<i32>(folder.join("numa_node")).ok().and_then(|node| u32::try_from(node).ok())
}

/// The location of a device: `/sys/devices/pci0000:80/0000:80:01.0/0000:81:00.0`.
pub(super) struct Way {
    /// `pci0000:80`
    pub host_bridge: String,
    /// From the root port down to the device itself.
    pub steps: Vec<PciAddress>,
}

impl Way {
    pub fn of(root: &SysRoot, address: &PciAddress) -> Fact<Way> {
        let folder = address.folder();
        let real = root.canonical(&folder)?;
        let names: Vec<&str> = real.components().filter_map(|c| c.as_os_str().to_str()).collect();
        let host_bridge = names.iter().find(|name| name.starts_with("pci") && name.contains(':'));
        let steps: Vec<PciAddress> = names.iter().filter_map(|name| name.parse().ok()).collect();
        match (host_bridge, steps.last()) {
            (Some(bridge), Some(last)) if last == address => {
                Ok(Way { host_bridge: bridge.to_string(), steps })
            }
            // On Hyper-V and the like the bus hangs elsewhere than below a host bridge.
            (None, Some(last)) if last == address => {
                let above = real.parent().map(|p| p.display().to_string()).unwrap_or_default();
                Ok(Way { host_bridge: above, steps })
            }
            _ => Err(Unknown::malformed(folder, &real.display().to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::system::testing::{Tree, address};

    const GEN5: (&str, &str) = ("32.0 GT/s PCIe\n", "16\n");

    #[test]
    fn addresses_as_different_tools_print_them() {
        for (text, shown) in [
            ("0000:c1:00.0", "0000:c1:00.0"),
            ("0000:C1:00.0", "0000:c1:00.0"),
            ("00000000:C1:00.0", "0000:c1:00.0"),
            ("10000:01:1f.7", "10000:01:1f.7"),
        ] {
            assert_eq!(address(text).to_string(), shown);
        }
        for bad in [
            "", "c1:00.0", "0000:c1:00", "0000:c1:20.0", "0000:c1:00.8", "0000:+1:00.0",
            "pci0000:80", "0000:c1:00.0 ",
        ] {
            assert!(bad.parse::<PciAddress>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_drive_behind_a_volume_management_device() {
        let tree = Tree::new();
        let bridges = "pci0000:5d/0000:5d:05.5/pci10000:00/10000:00:02.0";
        tree.pci(bridges, "10000:01:00.0", 0, GEN5);
        let path = pci_path(&tree.root(), &address("10000:01:00.0")).unwrap();
        assert_eq!(path[0], address("0000:5d:05.5"));
        assert_eq!(path.len(), 3);
    }
}
