//! Malformed files: every fact stays a fact or becomes unknown, and nothing panics.

#![allow(clippy::unwrap_used)]
use proptest::prelude::*;

use super::testing::{Tree, address, asked_of_nonsense};
use super::*;

/// Files that are parsed, each with a text that makes sense.
const FILES: [(&str, &str); 8] = [
    ("/proc/kallsyms", "0000000000000000 b nvfs_ops\t[nvme]\n"),
    ("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX 580\n"),
    ("/proc/driver/nvidia/params", "RegistryDwords: \"ForceP2P=0\"\n"),
    ("/proc/cmdline", "iommu=pt quiet\n"),
    ("/sys/devices/pci0000:00/0000:00:02.0/current_link_speed", "32.0 GT/s PCIe\n"),
    ("/sys/devices/pci0000:00/0000:00:02.0/class", "0x030200\n"),
    ("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"),
    ("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "512\n"),
];

fn ask_everything(tree: &Tree) {
    let root = tree.root();
    let device = address("0000:00:02.0");
    serde_json::to_string(&kernel(&root)).unwrap();
    let _ = (iommu(&root), huge_pages(&root), nvidia_gpus(&root));
    let _ = (pci_device(&root, &device), pci_link(&root, &device), pci_links(&root, &device));
}

fn machine() -> Tree {
    let tree = Tree::new();
    tree.pci("pci0000:00", "0000:00:02.0", 0, ("8 GT/s", "4"));
    for (name, text) in [("vendor", "0x10de\n"), ("device", "0x2335\n")] {
        tree.file(&format!("/sys/devices/pci0000:00/0000:00:02.0/{name}"), text);
    }
    tree.file("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "500\n");
    for (path, text) in FILES {
        tree.file(path, text);
    }
    tree
}

asked_of_nonsense!(FILES, machine, ask_everything);

#[test]
fn the_machine_without_nonsense_is_understood() {
    let tree = machine();
    let root = tree.root();
    assert_eq!(nvidia_gpus(&root).unwrap().len(), 1);
    assert_eq!(kernel(&root).nvfs.unwrap().has("nvme"), Some(true));
    assert_eq!(pci_link(&root, &address("0000:00:02.0")).unwrap().generation(), Some(5));
    assert_eq!(huge_pages(&root).pools.len(), 1);
    assert_eq!(iommu(&root).command_line, ["iommu=pt"]);
}
