//! The network interface towards an address: by the routing table, down to the cards below it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::pci::PciAddress;
use super::root::{Fact, SysRoot, Unknown};

/// A network interface and what lies below it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Interface {
    /// `eth0`, `bond0`.
    pub name: String,
    /// Longest packet in bytes; `None` if the kernel does not say.
    pub mtu: Option<u32>,
    /// Speed of the link in 10^6 bits per second; `None` where the driver names none.
    pub speed_mbit_per_s: Option<u32>,
    /// The cards: several below a bond, none for a purely virtual interface.
    pub pci: Vec<PciAddress>,
}

/// The interface by which packets to an address leave, by longest prefix, then lowest metric, of
/// the main table. Policy routing and addresses of this machine itself (other than loopback) are
/// not looked at.
///
/// # Errors
/// [`Unknown`] if the routing table cannot be read or has no route there.
pub fn interface_to(root: &SysRoot, address: IpAddr) -> Fact<Interface> {
    let name = match address {
        address if address.is_loopback() => "lo".to_string(),
        IpAddr::V4(address) => route_v4(root, address)?,
        IpAddr::V6(address) => match address.to_ipv4_mapped() {
            Some(mapped) => return interface_to(root, IpAddr::V4(mapped)),
            None => route_v6(root, address)?,
        },
    };
    Ok(interface(root, &name))
}

fn interface(root: &SysRoot, name: &str) -> Interface {
    let folder = Path::new("/sys/class/net").join(name);
    let mut pci = Vec::new();
    cards_below(root, &folder, &mut pci, 0);
    pci.sort_unstable();
    pci.dedup();
    Interface {
        name: name.to_string(),
        mtu: root.parsed(folder.join("mtu")).ok(),
        // -1, or an error of the read, while there is no link.
        speed_mbit_per_s: root.parsed(folder.join("speed")).ok(),
        pci,
    }
}

/// Bonds, bridges and VLANs list the interfaces below them as links `lower_…`.
fn cards_below(root: &SysRoot, folder: &Path, found: &mut Vec<PciAddress>, depth: u32) {
    const DEPTH_MAX: u32 = 8;
    if let Ok(device) = root.canonical(folder.join("device")) {
        found.extend(PciAddress::of_sysfs_path(&device));
        return;
    }
    if depth == DEPTH_MAX {
        return;
    }
    let names = root.names(folder).unwrap_or_default();
    for lower in names.iter().filter_map(|name| name.strip_prefix("lower_")) {
        let below: PathBuf = Path::new("/sys/class/net").join(lower);
        cards_below(root, &below, found, depth + 1);
    }
}

const UP: u32 = 0x1;
const REJECT: u32 = 0x200;

/// `/proc/net/route`: addresses are eight digits of hexadecimal in the order of this machine's
/// memory, which on the machines that we run on is the reverse of the written order.
fn route_v4(root: &SysRoot, address: Ipv4Addr) -> Fact<String> {
    const TABLE: &str = "/proc/net/route";
    let table = root.text(TABLE)?;
    let wanted = u32::from(address);
    let routes = table.lines().skip(1).filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let number = |at: usize| u32::from_str_radix(fields.get(at)?, 16).ok();
        let (destination, mask) = (number(1)?.swap_bytes(), number(7)?.swap_bytes());
        let metric: u32 = fields.get(6)?.parse().ok()?;
        (usable(number(3)?) && wanted & mask == destination)
            .then(|| (mask.count_ones(), metric, fields[0].to_string()))
    });
    nearest(routes).ok_or_else(|| no_route(TABLE, &address.to_string()))
}

/// `/proc/net/ipv6_route`: destination, its length, source, its length, next hop, metric,
/// references, uses, flags, interface; all hexadecimal.
fn route_v6(root: &SysRoot, address: Ipv6Addr) -> Fact<String> {
    const TABLE: &str = "/proc/net/ipv6_route";
    let table = root.text(TABLE)?;
    let wanted = u128::from(address);
    let routes = table.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let number = |at: usize| u32::from_str_radix(fields.get(at)?, 16).ok();
        let destination = u128::from_str_radix(fields.first()?, 16).ok()?;
        let length = number(1).filter(|length| *length <= 128)?;
        let mask = u128::MAX.checked_shl(128 - length).unwrap_or(0);
        let name = fields.get(9)?.to_string();
        (usable(number(8)?) && wanted & mask == destination).then_some((length, number(5)?, name))
    });
    nearest(routes).ok_or_else(|| no_route(TABLE, &address.to_string()))
}

fn usable(flags: u32) -> bool {
    flags & UP != 0 && flags & REJECT == 0
}

fn nearest(routes: impl Iterator<Item = (u32, u32, String)>) -> Option<String> {
    let best = routes.min_by_key(|(length, metric, _)| (std::cmp::Reverse(*length), *metric));
    best.map(|(_, _, name)| name)
}

fn no_route(table: &str, address: &str) -> Unknown {
    Unknown::not_published(table, format!("no route to {address}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::system::testing::Tree;

    const ROUTES: &str = "\
Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth0\t00000000\t010200C0\t0003\t0\t0\t100\t00000000\t0\t0\t0
wlan0\t00000000\t010200C0\t0003\t0\t0\t600\t00000000\t0\t0\t0
bond0\t0000000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
down0\t0100000A\t00000000\t0000\t0\t0\t0\tFFFFFFFF\t0\t0\t0
null0\t0200000A\t00000000\t0205\t0\t0\t0\tFFFFFFFF\t0\t0\t0
";
    const ROUTES_V6: &str = "\
fd000000000000000000000000000000 40 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000001 00000000 00000001     ens1
00000000000000000000000000000000 00 00000000000000000000000000000000 00 fe800000000000000000000000000001 00000400 00000001 00000000 00000003     eth0
00000000000000000000000000000000 00 00000000000000000000000000000000 00 00000000000000000000000000000000 ffffffff 00000001 00000000 00200200       lo
";

    fn name(root: &SysRoot, address: &str) -> Fact<String> {
        interface_to(root, address.parse().unwrap()).map(|interface| interface.name)
    }

    #[test]
    fn the_longest_prefix_and_the_lowest_metric() {
        let tree = Tree::new();
        tree.file("/proc/net/route", ROUTES).file("/proc/net/ipv6_route", ROUTES_V6);
        let root = tree.root();
        assert_eq!(name(&root, "10.0.0.1").unwrap(), "bond0");
        assert_eq!(name(&root, "10.0.1.1").unwrap(), "eth0");
        assert_eq!(name(&root, "127.0.0.9").unwrap(), "lo");
        assert_eq!(name(&root, "fd00::7").unwrap(), "ens1");
        assert_eq!(name(&root, "2001:db8::1").unwrap(), "eth0");
        assert_eq!(name(&root, "::1").unwrap(), "lo");
        assert_eq!(name(&root, "::ffff:10.0.0.1").unwrap(), "bond0");
    }

    #[test]
    fn no_route_and_no_table() {
        let tree = Tree::new();
        assert!(name(&tree.root(), "10.0.0.1").unwrap_err().is_missing());
        tree.file("/proc/net/route", ROUTES.lines().next().unwrap());
        let none = name(&tree.root(), "10.0.0.1").unwrap_err();
        assert_eq!(none.to_string(), "/proc/net/route: no route to 10.0.0.1");
    }

    #[test]
    fn a_bond_over_two_cards() {
        let tree = Tree::new();
        tree.file("/proc/net/route", ROUTES);
        let bond = "/sys/devices/virtual/net/bond0";
        tree.file(&format!("{bond}/mtu"), "9000\n").file(&format!("{bond}/speed"), "200000\n");
        tree.link_to("/sys/class/net/bond0", bond);
        for (card, at) in [("ens1", "0000:41:00.0"), ("ens2", "0000:42:00.0")] {
            let net = format!("/sys/devices/pci0000:40/{at}/net/{card}");
            tree.file(&format!("{net}/speed"), "-1\n");
            tree.link(&format!("{net}/device"), &format!("../../../{at}"));
            tree.link_to(&format!("/sys/class/net/{card}"), &net);
            tree.link_to(&format!("{bond}/lower_{card}"), &net);
        }
        let found = interface_to(&tree.root(), "10.0.0.1".parse().unwrap()).unwrap();
        assert_eq!((found.mtu, found.speed_mbit_per_s), (Some(9000), Some(200_000)));
        let shown: Vec<String> = found.pci.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["0000:41:00.0", "0000:42:00.0"]);
        assert_eq!(interface(&tree.root(), "ens1").speed_mbit_per_s, None);
    }
}
