//! The kernel: its release, and its support for transfers between drives and GPUs.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};

use headrace_io::system::{Fact, PCI_DEVICES, PciAddress, SysRoot, Unknown, fact};
use serde::Serialize;

const SYMBOLS: &str = "/proc/kallsyms";

/// Modules that can support GPUDirect Storage, if they were built for it.
const STORAGE_MODULES: [&str; 4] = ["nvme", "nvme_rdma", "nvme_tcp", "rpcrdma"];

/// The running kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Kernel {
    /// `6.8.0-45-generic`
    #[serde(serialize_with = "fact")]
    pub release: Fact<String>,
    /// The requirements of NVIDIA's storage module.
    #[serde(serialize_with = "fact")]
    pub nvfs: Fact<NvfsSymbols>,
    /// PCI peer transfers without it.
    pub p2pdma: P2pdma,
}

/// Whether the storage modules were built with the hooks of `nvidia-fs`. NFS over RDMA bypasses
/// host memory only if `rpcrdma` has them, and distributions build it without.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NvfsSymbols {
    /// The storage modules that are loaded, and any other with the hooks; by name.
    pub modules: Vec<NvfsModule>,
    /// Version of `nvidia-fs`; `None` if it is not loaded.
    pub nvidia_fs: Option<String>,
}

impl NvfsSymbols {
    /// Whether a module has the hooks; `None` if it is not loaded.
    pub fn has(&self, module: &str) -> Option<bool> {
        self.modules.iter().find(|found| found.name == module).map(|found| found.nvfs_ops)
    }
}

/// A kernel module.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NvfsModule {
    /// Its name; `vmlinux` for built-in code.
    pub name: String,
    /// Whether it has the symbol `nvfs_ops`.
    pub nvfs_ops: bool,
}

/// PCI peer transfers by the kernel itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct P2pdma {
    /// Whether the kernel was built with CONFIG_PCI_P2PDMA.
    #[serde(serialize_with = "fact")]
    pub in_kernel: Fact<bool>,
    /// Devices that offer memory for it.
    pub providers: Vec<P2pMemory>,
    /// The identification line of NVIDIA's kernel module, which says whether it is the open one.
    #[serde(serialize_with = "fact")]
    pub nvidia_module: Fact<String>,
    /// Its parameter `RegistryDwords`, which enables peer transfers; empty if unset.
    #[serde(serialize_with = "fact")]
    pub nvidia_registry: Fact<String>,
}

/// Device memory that other devices may write to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct P2pMemory {
    /// The device.
    pub address: PciAddress,
    /// Its size; `None` if unknown.
    pub size_bytes: Option<u64>,
    /// Whether programs may use it.
    pub published: Option<bool>,
}

/// Facts about the running kernel. Reads the whole symbol table, which takes some tenths of a
/// second.
pub fn kernel(root: &SysRoot) -> Kernel {
    let symbols = Symbols::of(root);
    Kernel {
        release: root.value("/proc/sys/kernel/osrelease"),
        nvfs: symbols.as_ref().map_err(Clone::clone).map(|symbols| nvfs(root, symbols)),
        p2pdma: P2pdma {
            in_kernel: symbols.map(|symbols| symbols.p2pdma),
            providers: p2p_memories(root),
            nvidia_module: nvidia_module(root),
            nvidia_registry: nvidia_registry(root),
        },
    }
}

/// The searched symbols.
struct Symbols {
    /// Modules with any symbol, which are the loaded ones; and whether `nvfs_ops` is among them.
    modules: BTreeMap<String, bool>,
    p2pdma: bool,
}

impl Symbols {
    /// Line by line: the table has some hundred thousand lines.
    fn of(root: &SysRoot) -> Fact<Symbols> {
        let fail = |cause| Unknown::from_os(SYMBOLS.as_ref(), &cause);
        let mut reader = BufReader::new(File::open(root.resolve(SYMBOLS)).map_err(fail)?);
        let mut found = Symbols { modules: BTreeMap::new(), p2pdma: false };
        let (mut line, mut lines) = (Vec::new(), 0u64);
        while reader.read_until(b'\n', &mut line).map_err(fail)? > 0 {
            found.take(&String::from_utf8_lossy(&line));
            lines += 1;
            line.clear();
        }
        match lines {
            0 => Err(Unknown::not_published(SYMBOLS, "the kernel publishes no symbols")),
            _ => Ok(found),
        }
    }

    /// `address type name`, then `[module]` unless it is built in. Hidden addresses are zero; the
    /// names are present.
    fn take(&mut self, line: &str) {
        let mut fields = line.split_whitespace().skip(2);
        let Some(name) = fields.next() else { return };
        let module = fields.next().map(|module| module.trim_matches(['[', ']']));
        let nvfs_ops = name == "nvfs_ops" || name.starts_with("nvfs_ops.");
        self.p2pdma |= name == "pci_p2pdma_add_resource";
        match module {
            None if !nvfs_ops => {}
            _ => match self.modules.get_mut(module.unwrap_or("vmlinux")) {
                Some(known) => *known |= nvfs_ops,
                None => {
                    self.modules.insert(module.unwrap_or("vmlinux").to_string(), nvfs_ops);
                }
            },
        }
    }
}

fn nvfs(root: &SysRoot, symbols: &Symbols) -> NvfsSymbols {
    // The module itself defines a table of that name too; it is not one that it hooks into.
    let worth_saying = |name: &str, has_ops: bool| {
        name != "nvidia_fs" && (has_ops || STORAGE_MODULES.contains(&name))
    };
    let modules = symbols.modules.iter().filter(|(name, has_ops)| worth_saying(name, **has_ops));
    let loaded = root.exists("/sys/module/nvidia_fs") || symbols.modules.contains_key("nvidia_fs");
    let version = || root.value("/sys/module/nvidia_fs/version").ok();
    NvfsSymbols {
        modules: modules
            .map(|(name, nvfs_ops)| NvfsModule { name: name.clone(), nvfs_ops: *nvfs_ops })
            .collect(),
        nvidia_fs: loaded.then(|| version().unwrap_or_else(|| "unknown version".to_string())),
    }
}

fn p2p_memories(root: &SysRoot) -> Vec<P2pMemory> {
    let names = root.names(PCI_DEVICES).unwrap_or_default();
    let memory = |name: &String| {
        let at = format!("{PCI_DEVICES}/{name}/p2pmem");
        root.exists(&at).then_some(())?;
        Some(P2pMemory {
            address: name.parse().ok()?,
            size_bytes: root.parsed(format!("{at}/size")).ok(),
            published: root.parsed::<u32>(format!("{at}/published")).ok().map(|is| is != 0),
        })
    };
    names.iter().filter_map(memory).collect()
}

fn nvidia_module(root: &SysRoot) -> Fact<String> {
    const FILE: &str = "/proc/driver/nvidia/version";
    let text = root.text(FILE)?;
    let line = text.lines().find_map(|line| line.strip_prefix("NVRM version:"));
    line.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .ok_or_else(|| Unknown::malformed(FILE, &text))
}

fn nvidia_registry(root: &SysRoot) -> Fact<String> {
    const FILE: &str = "/proc/driver/nvidia/params";
    let text = root.text(FILE)?;
    let value = text.lines().find_map(|line| line.strip_prefix("RegistryDwords:"));
    value
        .map(|value| value.trim().trim_matches('"').to_string())
        .ok_or_else(|| Unknown::malformed(FILE, &text))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::system::testing::{Tree, address};

    const PATCHED: &str = "\
0000000000000000 T pci_p2pdma_add_resource
0000000000000000 t nvme_probe\t[nvme]
0000000000000000 b nvfs_ops\t[nvme]
0000000000000000 t xprt_rdma_init\t[rpcrdma]
0000000000000000 t nfs_init\t[nfs]
0000000000000000 b nvfs_ops\t[lustre]
0000000000000000 d nvfs_ops\t[nvidia_fs]
0000000000000000 t nvfs_ops_of_another_name\t[rpcrdma]

odd
";

    #[test]
    fn an_rpcrdma_that_was_built_without_the_hooks() {
        let tree = Tree::new();
        tree.file(SYMBOLS, PATCHED).file("/sys/module/nvidia_fs/version", "2.20.6\n");
        tree.file("/proc/sys/kernel/osrelease", "6.8.0-45-generic\n");
        let found = kernel(&tree.root());
        assert_eq!(found.release.unwrap(), "6.8.0-45-generic");
        let nvfs = found.nvfs.unwrap();
        assert_eq!(nvfs.has("rpcrdma"), Some(false));
        assert_eq!((nvfs.has("nvme"), nvfs.has("lustre")), (Some(true), Some(true)));
        assert_eq!(
            (nvfs.has("nvme_rdma"), nvfs.has("nfs"), nvfs.has("nvidia_fs")),
            (None, None, None)
        );
        assert_eq!(nvfs.nvidia_fs.as_deref(), Some("2.20.6"));
        assert_eq!(found.p2pdma.in_kernel, Ok(true));
    }

    #[test]
    fn hooks_that_are_there_or_built_in() {
        let tree = Tree::new();
        let table = "ffff t nvfs_ops [rpcrdma]\nffff b nvfs_ops\nffff t start_kernel\n";
        tree.file(SYMBOLS, table);
        let found = kernel(&tree.root());
        let nvfs = found.nvfs.unwrap();
        assert_eq!((nvfs.has("rpcrdma"), nvfs.has("vmlinux")), (Some(true), Some(true)));
        assert_eq!((nvfs.nvidia_fs, found.p2pdma.in_kernel), (None, Ok(false)));
    }

    #[test]
    fn a_kernel_that_hides_its_symbols() {
        let tree = Tree::new();
        assert!(kernel(&tree.root()).nvfs.unwrap_err().is_missing());
        tree.file(SYMBOLS, "");
        let found = kernel(&tree.root());
        assert!(found.nvfs.unwrap_err().to_string().contains("publishes no symbols"));
        assert!(found.p2pdma.in_kernel.is_err());
    }

    #[test]
    fn peer_memory_and_the_driver_of_the_gpu() {
        let tree = Tree::new();
        tree.pci("pci0000:c0", "0000:c0:01.0", 0, ("8 GT/s", "1"));
        tree.pci("pci0000:c0", "0000:c0:02.0", 0, ("8 GT/s", "1"));
        let memory = "/sys/devices/pci0000:c0/0000:c0:01.0/p2pmem";
        tree.file(&format!("{memory}/size"), "1048576\n");
        tree.file(&format!("{memory}/published"), "1\n");
        let module = "NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build";
        tree.file(
            "/proc/driver/nvidia/version",
            format!("NVRM version: {module}\nGCC version: 12\n"),
        );
        tree.file("/proc/driver/nvidia/params", "Mobile: 4\nRegistryDwords: \"ForceP2P=0\"\n");
        let found = kernel(&tree.root()).p2pdma;
        let size_bytes = Some(1 << 20);
        let memory =
            P2pMemory { address: address("0000:c0:01.0"), size_bytes, published: Some(true) };
        assert_eq!(found.providers, [memory]);
        assert!(found.nvidia_module.unwrap().starts_with("NVIDIA UNIX Open Kernel Module"));
        assert_eq!(found.nvidia_registry.unwrap(), "ForceP2P=0");
    }
}
