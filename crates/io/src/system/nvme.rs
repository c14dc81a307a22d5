//! NVMe controllers behind a namespace: local ones on the PCI bus, remote ones over a fabric, and
//! several of them where the kernel's multipath joins them.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::net::interface_to;
use super::pci::{PciAddress, numa_node_in, numa_node_of};
use super::root::SysRoot;

/// One controller through which a namespace is reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NvmeController {
    /// `nvme0`.
    pub name: String,
    /// `pcie`, or a fabric: `rdma`, `tcp`, `fc`, `loop`.
    pub transport: String,
    /// As the kernel says it: a PCI address, or `traddr=10.0.0.1,trsvcid=4420`.
    pub address: String,
    /// `live` when it works; `None` if the kernel does not say.
    pub state: Option<String>,
    /// The PCI device on the data path: the drive, or the network card towards the target. `None`
    /// if unknown.
    pub pci: Option<PciAddress>,
    /// The network interface towards the target.
    pub interface: Option<String>,
    /// NUMA node; `None` if none is named.
    pub numa_node: Option<u32>,
}

impl NvmeController {
    /// Address of the target of a fabric.
    pub fn target(&self) -> Option<&str> {
        part_of(&self.address, "traddr")
    }

    /// Whether the namespace lies in another machine.
    pub fn is_fabric(&self) -> bool {
        self.transport != "pcie"
    }
}

/// The controllers of a namespace whose link `device` leads to `folder`.
pub(super) fn controllers(root: &SysRoot, folder: &Path) -> Vec<NvmeController> {
    controller_folders(root, folder).iter().filter_map(|it| controller(root, it)).collect()
}

/// That folder itself, or those that the multipath subsystem lists in it.
fn controller_folders(root: &SysRoot, folder: &Path) -> Vec<PathBuf> {
    if root.exists(folder.join("transport")) {
        return vec![folder.to_path_buf()];
    }
    let names = root.names(folder).unwrap_or_default();
    let numbered = names.iter().filter(|name| name.strip_prefix("nvme").is_some_and(is_number));
    numbered.filter_map(|name| root.canonical(folder.join(name)).ok()).collect()
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn controller(root: &SysRoot, folder: &Path) -> Option<NvmeController> {
    let transport = root.value(folder.join("transport")).ok()?;
    let address = root.value(folder.join("address")).unwrap_or_default();
    let (pci, interface) = match transport.as_str() {
        "pcie" => (PciAddress::of_sysfs_path(folder), None),
        "rdma" | "tcp" => towards(root, &address),
        _ => (None, None),
    };
    Some(NvmeController {
        name: folder.file_name()?.to_string_lossy().into_owned(),
        transport,
        state: root.value(folder.join("state")).ok(),
        numa_node: numa_node_in(root, folder)
            .or_else(|| pci.and_then(|pci| numa_node_of(root, &pci))),
        pci,
        interface,
        address,
    })
}

/// The hidden devices through which the controllers reach a namespace joined by multipath:
/// `nvme0c1n1` for `nvme0n1`. Before Linux 6.5 only they count reads. Empty for other devices.
pub(super) fn hidden_paths(root: &SysRoot, namespace: &str) -> Vec<String> {
    let Ok(device) = root.canonical(format!("/sys/class/block/{namespace}/device")) else {
        return Vec::new();
    };
    let Some((subsystem, number)) = namespace.rsplit_once('n') else { return Vec::new() };
    let is_path = |name: &String| {
        let rest = name.strip_prefix(subsystem).and_then(|rest| rest.strip_prefix('c'));
        let ends = rest.and_then(|rest| rest.rsplit_once('n'));
        ends.is_some_and(|(controller, end)| is_number(controller) && end == number)
    };
    let folders = controller_folders(root, &device);
    let entries = folders.iter().flat_map(|folder| root.names(folder).unwrap_or_default());
    entries.filter(is_path).collect()
}

/// The network card on the route to a target.
fn towards(root: &SysRoot, address: &str) -> (Option<PciAddress>, Option<String>) {
    let Some(target) = part_of(address, "traddr").and_then(|target| target.parse().ok()) else {
        return (None, None);
    };
    match interface_to(root, target) {
        Ok(interface) => (interface.pci.first().copied(), Some(interface.name)),
        Err(_) => (None, None),
    }
}

fn part_of<'a>(address: &'a str, name: &str) -> Option<&'a str> {
    address.split(',').find_map(|part| part.trim().strip_prefix(name)?.strip_prefix('='))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::system::testing::{Tree, address};

    #[test]
    fn a_local_drive() {
        let tree = Tree::new();
        tree.nvme("pci0000:80/0000:80:01.0", "0000:81:00.0", 1, 3);
        let folder = "/sys/devices/pci0000:80/0000:80:01.0/0000:81:00.0/nvme/nvme3";
        let found = controllers(&tree.root(), Path::new(folder));
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].name.as_str(), found[0].is_fabric()), ("nvme3", false));
        assert_eq!((found[0].pci, found[0].numa_node), (Some(address("0000:81:00.0")), Some(1)));
        assert_eq!(found[0].target(), None);
    }

    #[test]
    fn a_target_over_rdma_is_reached_through_its_network_card() {
        let tree = Tree::new();
        tree.pci("pci0000:40/0000:40:01.0", "0000:41:00.0", 0, ("16.0 GT/s PCIe", "16"));
        tree.file("/sys/devices/pci0000:40/0000:40:01.0/0000:41:00.0/net/ens1/mtu", "4200\n");
        tree.link_to(
            "/sys/class/net/ens1",
            "/sys/devices/pci0000:40/0000:40:01.0/0000:41:00.0/net/ens1",
        );
        let net = "/sys/devices/pci0000:40/0000:40:01.0/0000:41:00.0/net/ens1";
        tree.link(&format!("{net}/device"), "../../../0000:41:00.0");
        tree.file(
            "/proc/net/route",
            "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n\
             ens1\t0000000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n",
        );
        let folder = "/sys/devices/virtual/nvme-fabrics/ctl/nvme1";
        tree.file(&format!("{folder}/transport"), "rdma\n");
        tree.file(&format!("{folder}/address"), "traddr=10.0.0.1,trsvcid=4420\n");
        tree.file(&format!("{folder}/state"), "live\n");
        let found = controllers(&tree.root(), Path::new(folder));
        assert_eq!(found[0].target(), Some("10.0.0.1"));
        assert_eq!(found[0].pci, Some(address("0000:41:00.0")));
        assert_eq!(found[0].interface.as_deref(), Some("ens1"));
        assert_eq!((found[0].state.as_deref(), found[0].is_fabric()), (Some("live"), true));
    }

    #[test]
    fn a_multipath_subsystem_lists_its_controllers() {
        let tree = Tree::new();
        let subsystem = "/sys/devices/virtual/nvme-subsystem/nvme-subsys0";
        for (index, bridges, at) in
            [(0, "pci0000:80/0000:80:01.0", "0000:81:00.0"), (1, "pci0000:c0", "0000:c0:05.0")]
        {
            tree.nvme(bridges, at, index, index as u32);
            let controller = format!("/sys/devices/{bridges}/{at}/nvme/nvme{index}");
            tree.link_to(&format!("{subsystem}/nvme{index}"), &controller);
        }
        tree.folder(&format!("{subsystem}/nvme0n1"));
        let found = controllers(&tree.root(), Path::new(subsystem));
        let places: Vec<_> = found.iter().filter_map(|controller| controller.pci).collect();
        assert_eq!(places, [address("0000:81:00.0"), address("0000:c0:05.0")]);
        assert_eq!(found[1].numa_node, Some(1));
    }

    #[test]
    fn hidden_paths_of_a_namespace() {
        let tree = Tree::new();
        let plain = tree.nvme("pci0000:80/0000:80:01.0", "0000:81:00.0", 1, 0);
        let subsystem = "/sys/devices/virtual/nvme-subsystem/nvme-subsys9";
        let controller = plain.trim_end_matches("/nvme0n1");
        tree.link_to(&format!("{subsystem}/nvme0"), controller);
        tree.block(&format!("{subsystem}/nvme9n1"), "259:90", 4096);
        tree.link(&format!("{subsystem}/nvme9n1/device"), "../../nvme-subsys9");
        for name in ["nvme9c0n1", "nvme9c0n11", "nvme91c0n1", "nvme9cn1"] {
            tree.folder(&format!("{controller}/{name}"));
        }
        assert_eq!(hidden_paths(&tree.root(), "nvme9n1"), ["nvme9c0n1"]);
        assert!(hidden_paths(&tree.root(), "nvme0n1").is_empty());
        assert!(hidden_paths(&tree.root(), "md0").is_empty());
    }
}
