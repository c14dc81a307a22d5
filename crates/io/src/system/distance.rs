//! How far two PCI devices are from each other.

use std::fmt;

use serde::Serialize;

use super::numa::numa_nodes;
use super::pci::{PciAddress, Way, numa_node_of};
use super::root::SysRoot;

/// How far two PCI devices are from each other; nearer is less.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Distance {
    /// They are functions of one device.
    SameDevice,
    /// Below one switch (or one root port): traffic between them need not reach the processor.
    /// The number counts the links between them.
    SameSwitch(u32),
    /// Below one host bridge: traffic passes through it.
    SameRootComplex,
    /// On one NUMA node, but below different host bridges.
    SameNode,
    /// On different NUMA nodes: traffic crosses between processors.
    OtherNode,
    /// Not known.
    Unknown,
}

impl fmt::Display for Distance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Distance::SameDevice => f.write_str("same device"),
            Distance::SameSwitch(1) => f.write_str("same switch, 1 hop"),
            Distance::SameSwitch(hops) => write!(f, "same switch, {hops} hops"),
            Distance::SameRootComplex => f.write_str("same root complex"),
            Distance::SameNode => f.write_str("same NUMA node"),
            Distance::OtherNode => f.write_str("another NUMA node"),
            Distance::Unknown => f.write_str("unknown"),
        }
    }
}

/// The distance of two devices, from the common part of their paths from the root, and the lowest
/// common bridge if there is one. In a virtual machine these are the hypervisor's buses, not the
/// real ones.
pub(super) fn pci_relation(
    root: &SysRoot,
    a: &PciAddress,
    b: &PciAddress,
) -> (Distance, Option<PciAddress>) {
    let (Ok(way_a), Ok(way_b)) = (Way::of(root, a), Way::of(root, b)) else {
        return (Distance::Unknown, None);
    };
    if a.same_device(b) {
        return (Distance::SameDevice, None);
    }
    if way_a.host_bridge != way_b.host_bridge {
        return (distance_of_nodes(root, a, b), None);
    }
    let pairs = way_a.steps.iter().zip(&way_b.steps);
    let common = pairs.take_while(|(step_a, step_b)| step_a == step_b).count();
    if common == 0 {
        return (Distance::SameRootComplex, None);
    }
    let hops = way_a.steps.len() + way_b.steps.len() - 2 * common;
    let hops = u32::try_from(hops).unwrap_or(u32::MAX);
    (Distance::SameSwitch(hops), Some(way_a.steps[common - 1]))
}

fn distance_of_nodes(root: &SysRoot, a: &PciAddress, b: &PciAddress) -> Distance {
    match (numa_node_of(root, a), numa_node_of(root, b)) {
        (Some(node_a), Some(node_b)) if node_a == node_b => Distance::SameNode,
        (Some(_), Some(_)) => Distance::OtherNode,
        // Firmware of machines with one node often names none; then there is only one to be on.
        _ if numa_nodes(root).is_ok_and(|nodes| nodes.len() == 1) => Distance::SameNode,
        _ => Distance::Unknown,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::system::pci_path;
    use crate::system::testing::{Tree, address};

    const GEN5: (&str, &str) = ("32.0 GT/s PCIe\n", "16\n");

    /// Two sockets; a switch with a GPU and a drive, one more drive on another port of the switch
    /// below, one on a root port of its own, one below another host bridge, one on node 1.
    fn two_sockets() -> Tree {
        let tree = Tree::new();
        let switch = "pci0000:80/0000:80:01.0/0000:81:00.0";
        tree.pci(&format!("{switch}/0000:82:00.0"), "0000:83:00.0", 0, GEN5);
        tree.pci(&format!("{switch}/0000:82:01.0"), "0000:84:00.0", 0, GEN5);
        tree.pci(&format!("{switch}/0000:82:01.0"), "0000:84:00.1", 0, GEN5);
        tree.pci("pci0000:80/0000:80:03.0", "0000:90:00.0", 0, GEN5);
        tree.pci("pci0000:40/0000:40:01.0", "0000:41:00.0", 0, GEN5);
        tree.pci("pci0000:c0/0000:c0:01.0", "0000:c1:00.0", 1, GEN5);
        tree.pci("pci0000:d0/0000:d0:01.0", "0000:d1:00.0", -1, GEN5);
        tree.file("/sys/devices/system/node/node0/cpulist", "0-1");
        tree.file("/sys/devices/system/node/node1/cpulist", "2-3");
        tree
    }

    #[test]
    fn distances_follow_the_tree() {
        let tree = two_sockets();
        let root = tree.root();
        let gpu = address("0000:83:00.0");
        let to = |other: &str| pci_relation(&root, &gpu, &address(other)).0;
        assert_eq!(to("0000:83:00.0"), Distance::SameDevice);
        assert_eq!(to("0000:84:00.0"), Distance::SameSwitch(4));
        assert_eq!(to("0000:90:00.0"), Distance::SameRootComplex);
        assert_eq!(to("0000:41:00.0"), Distance::SameNode);
        assert_eq!(to("0000:c1:00.0"), Distance::OtherNode);
        assert_eq!(to("0000:d1:00.0"), Distance::Unknown);
        assert_eq!(to("0000:ff:00.0"), Distance::Unknown);
        let functions = pci_relation(&root, &address("0000:84:00.0"), &address("0000:84:00.1"));
        assert_eq!(functions.0, Distance::SameDevice);
        let (_, bridge) = pci_relation(&root, &gpu, &address("0000:84:00.0"));
        assert_eq!(bridge, Some(address("0000:81:00.0")));
        let path = pci_path(&root, &gpu).unwrap();
        assert_eq!(path.first().copied(), Some(address("0000:80:01.0")));
        assert_eq!(path.last().copied(), Some(gpu));
    }

    #[test]
    fn nearer_is_less() {
        let ordered = [
            Distance::SameDevice,
            Distance::SameSwitch(1),
            Distance::SameSwitch(4),
            Distance::SameRootComplex,
            Distance::SameNode,
            Distance::OtherNode,
            Distance::Unknown,
        ];
        assert!(ordered.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn one_node_without_a_number() {
        let tree = Tree::new();
        tree.pci("pci0000:00/0000:00:01.0", "0000:01:00.0", -1, GEN5);
        tree.pci("pci0000:40/0000:40:01.0", "0000:41:00.0", -1, GEN5);
        let (a, b) = (address("0000:01:00.0"), address("0000:41:00.0"));
        assert_eq!(pci_relation(&tree.root(), &a, &b).0, Distance::Unknown);
        tree.file("/sys/devices/system/node/node0/cpulist", "0-1");
        assert_eq!(pci_relation(&tree.root(), &a, &b).0, Distance::SameNode);
    }
}
