//! Malformed files: every fact stays a fact or becomes unknown, and nothing panics.

#![allow(clippy::unwrap_used)]
use std::path::Path;

use proptest::prelude::*;

use super::mounts::mounts;
use super::net::interface_to;
use super::testing::{Tree, address, asked_of_nonsense};
use super::*;

/// Files that are parsed, each with a text that makes sense.
const FILES: [(&str, &str); 12] = [
    (
        "/proc/self/mountinfo",
        "27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,errors=x\n40 27 0:58 /a\\040b /n rw - nfs4 s:/t rw,vers=4.2,rsize=1048576,nconnect=16,addr=10.0.0.1\n",
    ),
    ("/proc/self/cgroup", "4:memory:/a/b\n0::/c\n"),
    (
        "/proc/thread-self/status",
        "CapEff:\t00000000a80425fb\nCpus_allowed_list:\t0-3,8\nSeccomp:\t2\n",
    ),
    ("/proc/self/limits", "Max locked memory         65536      unlimited     bytes\n"),
    ("/proc/diskstats", " 254 0 vda 100 1 8000 50 10 2 800 5 3 40 60 0 0 0 0 0 0\n"),
    ("/proc/net/route", "header\neth0 0000000A 00000000 0001 0 0 0 00FFFFFF 0 0 0\n"),
    (
        "/proc/net/ipv6_route",
        "fd000000000000000000000000000000 40 0 00 0 00000100 1 0 00000001 e\n",
    ),
    ("/sys/devices/pci0000:00/0000:00:02.0/virtio1/block/vda/dev", "254:0\n"),
    ("/sys/devices/pci0000:00/0000:00:02.0/virtio1/block/vda/size", "1024\n"),
    ("/sys/devices/pci0000:00/0000:00:02.0/virtio1/block/vda/queue/scheduler", "[none] bfq\n"),
    ("/sys/devices/pci0000:00/0000:00:02.0/virtio1/block/vda/queue/read_ahead_kb", "128\n"),
    ("/sys/devices/system/node/node0/cpulist", "0-3\n"),
];

fn ask_everything(tree: &Tree) {
    let root = tree.root();
    let device = address("0000:00:02.0");
    for path in ["/a", "/n/x", "/dev/vda"] {
        let home = StorageHome::of(&root, Path::new(path));
        let nearest = nearest_gpu(&root, &home, &[device, address("0000:00:03.0")]);
        assert!(!nearest.reason.is_empty());
        serde_json::to_string(&home).unwrap();
    }
    serde_json::to_string(&limits(&root)).unwrap();
    let _ = (seccomp(&root), numa_nodes(&root), pci_path(&root, &device));
    for target in ["10.0.0.1", "fd00::1"] {
        let _ = interface_to(&root, target.parse().unwrap());
    }
    if let Ok(mut sampler) = DiskSampler::start(&root, &["vda"]) {
        let _ = sampler.sample();
    }
}

fn machine() -> Tree {
    let tree = Tree::new();
    let disk = "/sys/devices/pci0000:00/0000:00:02.0/virtio1/block/vda";
    tree.pci("pci0000:00", "0000:00:02.0", 0, ("8 GT/s", "4"));
    tree.block(disk, "254:0", 1 << 20);
    for (path, text) in FILES {
        tree.file(path, text);
    }
    tree
}

asked_of_nonsense!(FILES, machine, ask_everything);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn addresses_are_read_back(domain in 0u32.., bus: u8, device in 0u8..32, function in 0u8..8) {
        let address = PciAddress { domain, bus, device, function };
        prop_assert_eq!(address.to_string().parse::<PciAddress>().unwrap(), address);
    }
}

#[test]
fn the_machine_without_nonsense_is_understood() {
    let root = machine().root();
    // The tree is gone with the machine; a root without it knows nothing and says so.
    assert!(mounts(&root).is_err());
    let tree = machine();
    let home = StorageHome::of(&tree.root(), Path::new("/a"));
    assert_eq!(home.devices.len(), 1, "{home:?}");
    assert_eq!(home.devices[0].queue.read_ahead_bytes, Some(128 << 10));
    ask_everything(&tree);
}
