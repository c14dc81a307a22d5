//! Recorded trees for tests: files and links of another machine in a temporary folder. Other
//! crates' tests that read such facts include this file too, in a module that knows these two
//! types.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::{PciAddress, SysRoot};

/// A recorded tree; removed when dropped.
pub(super) struct Tree {
    folder: tempfile::TempDir,
}

impl Tree {
    pub fn new() -> Self {
        Tree { folder: tempfile::tempdir().unwrap() }
    }

    pub fn root(&self) -> SysRoot {
        SysRoot::at(self.folder.path())
    }

    fn place(&self, path: &str) -> PathBuf {
        let place = self.folder.path().join(path.trim_start_matches('/'));
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        place
    }

    pub fn file(&self, path: &str, text: impl AsRef<[u8]>) -> &Self {
        fs::write(self.place(path), text).unwrap();
        self
    }

    pub fn folder(&self, path: &str) -> &Self {
        fs::create_dir_all(self.place(path)).unwrap();
        self
    }

    /// A link whose target is a relative path, as those of sysfs are.
    pub fn link(&self, path: &str, target: &str) -> &Self {
        symlink(target, self.place(path)).unwrap();
        self
    }

    /// A link from one absolute path of the tree to another.
    pub fn link_to(&self, path: &str, target: &str) -> &Self {
        let up = "../".repeat(Path::new(path).components().count() - 2);
        self.link(path, &format!("{up}{}", target.trim_start_matches('/')))
    }

    pub fn mountinfo(&self, text: &str) -> &Self {
        self.file("/proc/self/mountinfo", text)
    }

    /// A PCI device below `bridges` ("pci0000:80/0000:80:01.0"), with a link at `speed` and width.
    pub fn pci(&self, bridges: &str, address: &str, node: i32, link: (&str, &str)) -> &Self {
        let at = format!("/sys/devices/{bridges}/{address}");
        self.file(&format!("{at}/numa_node"), format!("{node}\n"));
        for kind in ["current", "max"] {
            self.file(&format!("{at}/{kind}_link_speed"), link.0);
            self.file(&format!("{at}/{kind}_link_width"), link.1);
        }
        self.link_to(&format!("/sys/bus/pci/devices/{address}"), &at)
    }

    /// A block device at a folder of sysfs, known by number and by name.
    pub fn block(&self, at: &str, number: &str, size_bytes: u64) -> &Self {
        let name = at.rsplit('/').next().unwrap();
        self.file(&format!("{at}/dev"), format!("{number}\n"));
        self.file(&format!("{at}/size"), format!("{}\n", size_bytes / 512));
        self.link_to(&format!("/sys/dev/block/{number}"), at);
        self.link_to(&format!("/sys/class/block/{name}"), at)
    }

    /// An NVMe drive on the PCI bus with one namespace; returns the namespace's folder.
    pub fn nvme(&self, bridges: &str, address: &str, node: i32, index: u32) -> String {
        self.pci(bridges, address, node, ("16.0 GT/s PCIe\n", "4\n"));
        let controller = format!("/sys/devices/{bridges}/{address}/nvme/nvme{index}");
        self.file(&format!("{controller}/transport"), "pcie\n");
        self.file(&format!("{controller}/address"), format!("{address}\n"));
        self.file(&format!("{controller}/model"), "Test Drive 7T            \n");
        self.link(&format!("{controller}/device"), &format!("../../../{address}"));
        let namespace = format!("{controller}/nvme{index}n1");
        self.block(&namespace, &format!("259:{index}"), 7_000_000_000_000 / 512 * 512);
        self.link(&format!("{namespace}/device"), &format!("../../nvme{index}"));
        self.queue(&namespace);
        namespace
    }

    /// Queue settings as an NVMe drive has them.
    pub fn queue(&self, at: &str) -> &Self {
        for (name, value) in [
            ("scheduler", "[none] mq-deadline kyber"),
            ("nr_requests", "1023"),
            ("read_ahead_kb", "128"),
            ("max_sectors_kb", "128"),
            ("max_hw_sectors_kb", "2048"),
            ("logical_block_size", "512"),
            ("physical_block_size", "4096"),
            ("minimum_io_size", "4096"),
            ("optimal_io_size", "0"),
            ("nomerges", "0"),
            ("rotational", "0"),
            ("write_cache", "write through"),
        ] {
            self.file(&format!("{at}/queue/{name}"), format!("{value}\n"));
        }
        self
    }

    /// A partition of a disk.
    pub fn partition(&self, disk: &str, name: &str, number: &str) -> &Self {
        let at = format!("{disk}/{name}");
        self.block(&at, number, 1 << 30);
        self.file(&format!("{at}/partition"), "1\n")
    }

    /// An md or dm device over members (folders of sysfs).
    pub fn stacked(&self, name: &str, number: &str, members: &[&str]) -> String {
        let at = format!("/sys/devices/virtual/block/{name}");
        self.block(&at, number, 1 << 40);
        self.queue(&at);
        for member in members {
            let member_name = member.rsplit('/').next().unwrap();
            self.link_to(&format!("{at}/slaves/{member_name}"), member);
        }
        at
    }
}

/// Parses an address that a test wrote.
pub(super) fn address(text: &str) -> PciAddress {
    text.parse().unwrap()
}

/// Tests that any bytes, and nearly right ones, in place of each file do no harm to who asks.
macro_rules! asked_of_nonsense {
    ($files:expr, $machine:expr, $ask:expr) => {
        proptest! {
            #![proptest_config(ProptestConfig::with_cases(64))]

            #[test]
            fn any_bytes(which in 0..$files.len(), bytes in prop::collection::vec(any::<u8>(), 0..200)) {
                let tree = $machine();
                tree.file($files[which].0, bytes);
                $ask(&tree);
            }

            #[test]
            fn nearly_right(
                which in 0..$files.len(),
                at in any::<prop::sample::Index>(),
                byte in prop::sample::select(b"09fx :,.-/[]\\\n\t\xff".to_vec()),
                cut in any::<prop::sample::Index>(),
            ) {
                let tree = $machine();
                let mut bytes = $files[which].1.as_bytes().to_vec();
                let place = at.index(bytes.len());
                bytes[place] = byte;
                tree.file($files[which].0, &bytes);
                $ask(&tree);
                bytes.truncate(cut.index(bytes.len()));
                tree.file($files[which].0, &bytes);
                $ask(&tree);
            }
        }
    };
}
pub(super) use asked_of_nonsense;
