//! The PCI bus: devices and links.

use std::path::Path;

use headrace_io::system::{
    Fact, PCI_DEVICES, PciAddress, SysRoot, Unknown, numa_node_of, pci_path,
};
use serde::Serialize;

/// The device at an address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PciDevice {
    /// Where.
    pub address: PciAddress,
    /// Vendor number (0x10de is NVIDIA).
    pub vendor: u16,
    /// Device number of the vendor.
    pub device: u16,
    /// Class: base class, subclass and programming interface (0x010802 is NVMe).
    pub class: u32,
    /// The kernel driver bound to it; `None` if there is none.
    pub driver: Option<String>,
    /// NUMA node; `None` if the firmware names none.
    pub numa_node: Option<u32>,
}

/// The PCIe link of a device to the port above it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PciLink {
    /// The device at the lower end.
    pub address: PciAddress,
    /// Current transfers per second and lane, in 10^9/s. Idle GPUs lower it to save power: measure
    /// under load.
    pub speed_gt_per_s: f64,
    /// Lanes in use.
    pub width: u32,
    /// The device's maximum.
    pub max_speed_gt_per_s: f64,
    /// Lanes that the device has.
    pub max_width: u32,
    /// NUMA node; `None` if the firmware names none.
    pub numa_node: Option<u32>,
}

impl PciLink {
    /// PCIe generation of the current speed; `None` for a speed that no generation has.
    pub fn generation(&self) -> Option<u32> {
        generation_of(self.speed_gt_per_s)
    }

    /// PCIe generation that the device could use.
    pub fn max_generation(&self) -> Option<u32> {
        generation_of(self.max_speed_gt_per_s)
    }

    /// Bytes per second on the wire in one direction, in 10^9, after line coding and before packet
    /// headers: copies reach some 85 to 90 % of it.
    pub fn gb_per_s(&self) -> f64 {
        wire_gb_per_s(self.speed_gt_per_s, self.width)
    }

    /// The same for the best speed and width of the device.
    pub fn max_gb_per_s(&self) -> f64 {
        wire_gb_per_s(self.max_speed_gt_per_s, self.max_width)
    }
}

fn generation_of(speed_gt_per_s: f64) -> Option<u32> {
    const SPEEDS: [f64; 7] = [2.5, 5.0, 8.0, 16.0, 32.0, 64.0, 128.0];
    let at = SPEEDS.iter().position(|speed| (speed - speed_gt_per_s).abs() < 0.05)?;
    u32::try_from(at + 1).ok()
}

/// Line coding by generation: 8b/10b for 1 and 2, 128b/130b for 3 to 5, and flits of 256 bytes
/// that carry 242 since 6 (PCI Express Base Specification 6.0, 4.2.3).
fn wire_gb_per_s(speed_gt_per_s: f64, width: u32) -> f64 {
    let coding = match speed_gt_per_s {
        slow if slow < 7.0 => 8.0 / 10.0,
        middle if middle < 60.0 => 128.0 / 130.0,
        _ => 242.0 / 256.0,
    };
    speed_gt_per_s * f64::from(width) * coding / 8.0
}

/// The device at an address.
///
/// # Errors
/// [`Unknown`] if there is no such device.
pub fn pci_device(root: &SysRoot, address: &PciAddress) -> Fact<PciDevice> {
    let folder = address.folder();
    let number = |name: &str| hexadecimal(root, &folder.join(name));
    let short = |name: &str| {
        let value = number(name)?;
        u16::try_from(value).map_err(|_| Unknown::malformed(folder.join(name), "too large"))
    };
    Ok(PciDevice {
        address: *address,
        vendor: short("vendor")?,
        device: short("device")?,
        class: number("class")?,
        driver: root.link_name(folder.join("driver")),
        numa_node: numa_node_of(root, address),
    })
}

/// Bytes of a device's largest window, as its `resource` file says: first and last address of a window a line. The window to a
/// GPU's memory is its largest; which number it has depends on the generation.
///
/// # Errors
/// [`Unknown`] if there is no such device, or no window.
pub fn window_bytes(root: &SysRoot, address: &PciAddress) -> Fact<u64> {
    let file = address.folder().join("resource");
    let text = root.text(&file)?;
    let hexadecimal = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok();
    let window = |line: &str| {
        let mut words = line.split_whitespace();
        let (first, last) = (hexadecimal(words.next()?)?, hexadecimal(words.next()?)?);
        last.checked_sub(first)?.checked_add(1).filter(|bytes| *bytes > 1)
    };
    let largest = text.lines().filter_map(window).max();
    largest.ok_or_else(|| Unknown::not_published(file.display().to_string(), "there is no window"))
}

fn hexadecimal(root: &SysRoot, path: &Path) -> Fact<u32> {
    let text = root.value(path)?;
    u32::from_str_radix(text.trim_start_matches("0x"), 16)
        .map_err(|_| Unknown::malformed(path, &text))
}

/// NVIDIA GPUs on the bus, with or without a driver, by address.
///
/// # Errors
/// [`Unknown`] if there is no PCI bus.
pub fn nvidia_gpus(root: &SysRoot) -> Fact<Vec<PciDevice>> {
    const NVIDIA: u16 = 0x10de;
    const DISPLAY_CLASS: u32 = 0x03;
    let addresses = root.names(PCI_DEVICES)?.into_iter().filter_map(|name| name.parse().ok());
    let devices = addresses.filter_map(|address| pci_device(root, &address).ok());
    let mut gpus: Vec<PciDevice> = devices
        .filter(|device| device.vendor == NVIDIA && device.class >> 16 == DISPLAY_CLASS)
        .collect();
    gpus.sort_by_key(|device| device.address);
    Ok(gpus)
}

/// The link of a device to the port above it.
///
/// # Errors
/// [`Unknown`] for devices without a PCIe link (virtual or built into the processor) and missing
/// ones.
pub fn pci_link(root: &SysRoot, address: &PciAddress) -> Fact<PciLink> {
    let folder = address.folder();
    let speed = |name: &str| link_speed(root, &folder.join(name));
    let width = |name: &str| match root.parsed::<u32>(folder.join(name))? {
        // Zero is no link; 255 is what a device says that is not there any more.
        0 | 255 => Err(Unknown::not_published(
            folder.join(name).display().to_string(),
            "the device has no PCIe link",
        )),
        lanes => Ok(lanes),
    };
    Ok(PciLink {
        address: *address,
        speed_gt_per_s: speed("current_link_speed")?,
        width: width("current_link_width")?,
        max_speed_gt_per_s: speed("max_link_speed")?,
        max_width: width("max_link_width")?,
        numa_node: numa_node_of(root, address),
    })
}

/// `32.0 GT/s PCIe`; `8 GT/s` on older kernels; `Unknown` without a link.
fn link_speed(root: &SysRoot, path: &Path) -> Fact<f64> {
    let text = root.value(path)?;
    let speed = text.split_once(" GT/s").and_then(|(number, _)| number.trim().parse().ok());
    speed
        .filter(|speed: &f64| speed.is_finite() && *speed > 0.0)
        .ok_or_else(|| Unknown::malformed(path, &text))
}

/// The links from the root port down to the device, each named by its lower end: the slowest one
/// limits the device. Parts of the path without a link are omitted.
///
/// # Errors
/// [`Unknown`] if there is no such device.
pub fn pci_links(root: &SysRoot, address: &PciAddress) -> Fact<Vec<PciLink>> {
    let path = pci_path(root, address)?;
    Ok(path.iter().filter_map(|step| pci_link(root, step).ok()).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::system::testing::{Tree, address};

    const GEN5: (&str, &str) = ("32.0 GT/s PCIe\n", "16\n");

    #[test]
    fn links_and_what_they_carry() {
        let tree = Tree::new();
        tree.pci("pci0000:c0/0000:c0:01.0", "0000:c1:00.0", 1, GEN5);
        tree.pci("pci0000:80/0000:80:01.0", "0000:81:00.0", -1, ("8 GT/s\n", "4\n"));
        tree.file("/sys/devices/pci0000:80/0000:80:01.0/0000:81:00.0/max_link_width", "8\n");
        tree.pci("pci0000:00", "0000:00:02.0", 0, ("Unknown\n", "0\n"));
        let root = tree.root();
        let gpu = pci_link(&root, &address("0000:c1:00.0")).unwrap();
        assert_eq!((gpu.generation(), gpu.width, gpu.numa_node), (Some(5), 16, Some(1)));
        assert!((gpu.gb_per_s() - 63.015).abs() < 0.01, "{}", gpu.gb_per_s());
        let drive = pci_link(&root, &address("0000:81:00.0")).unwrap();
        assert_eq!((drive.generation(), drive.numa_node), (Some(3), None));
        assert!((drive.gb_per_s() - 3.938).abs() < 0.01);
        assert!((drive.max_gb_per_s() - 7.877).abs() < 0.01);
        let none = pci_link(&root, &address("0000:00:02.0")).unwrap_err();
        assert!(none.to_string().contains("Unknown"), "{none}");
        assert!(pci_link(&root, &address("0000:99:00.0")).unwrap_err().is_missing());
        assert!((wire_gb_per_s(2.5, 1) - 0.25).abs() < 1e-9);
        assert!((wire_gb_per_s(64.0, 16) - 121.0).abs() < 0.01);
    }

    #[test]
    fn gpus_are_found_without_a_driver() {
        let tree = Tree::new();
        for (name, vendor, class, driver) in [
            ("0000:c1:00.0", "0x10de", "0x030200", Some("nvidia")),
            ("0000:41:00.0", "0x10de", "0x030000", None),
            ("0000:41:00.1", "0x10de", "0x040300", None),
            ("0000:05:00.0", "0x1a03", "0x030000", Some("ast")),
        ] {
            tree.pci("pci0000:00", name, 0, GEN5);
            let at = format!("/sys/devices/pci0000:00/{name}");
            tree.file(&format!("{at}/vendor"), format!("{vendor}\n"));
            tree.file(&format!("{at}/device"), "0x2335\n").file(&format!("{at}/class"), class);
            if let Some(driver) = driver {
                tree.link(&format!("{at}/driver"), &format!("../../../bus/pci/drivers/{driver}"));
            }
        }
        let gpus = nvidia_gpus(&tree.root()).unwrap();
        let found: Vec<_> = gpus.iter().map(|g| (g.address.bus, g.driver.as_deref())).collect();
        assert_eq!(found, [(0x41, None), (0xc1, Some("nvidia"))]);
        assert!(nvidia_gpus(&Tree::new().root()).unwrap_err().is_missing());
    }
}
