//! Huge pages: when the kernel provides them by default, and reserved ones.

use headrace_io::system::{Fact, SysRoot, fact};
use serde::Serialize;

const TRANSPARENT: &str = "/sys/kernel/mm/transparent_hugepage";
const POOLS: &str = "/sys/kernel/mm/hugepages";

/// Settings of huge pages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HugePages {
    /// Policy for anonymous memory: `always`, `madvise` or `never`.
    #[serde(serialize_with = "fact")]
    pub thp: Fact<String>,
    /// Policy for waiting until they are made: `always`, `defer`, `defer+madvise`, `madvise`,
    /// `never`.
    #[serde(serialize_with = "fact")]
    pub defrag: Fact<String>,
    /// Policy for tmpfs files: `always`, `within_size`, `advise`, `never`, `deny`, `force`.
    #[serde(serialize_with = "fact")]
    pub shmem: Fact<String>,
    /// Reserved pages by size; empty if none are possible.
    pub pools: Vec<HugePagePool>,
}

/// Reserved huge pages of one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct HugePagePool {
    /// Size of a page.
    pub page_bytes: u64,
    /// Reserved pages.
    pub total: u64,
    /// Of these, unused.
    pub free: u64,
}

/// The settings of this machine.
pub fn huge_pages(root: &SysRoot) -> HugePages {
    let chosen = |name: &str| root.chosen(format!("{TRANSPARENT}/{name}"));
    let names = root.names(POOLS).unwrap_or_default();
    let mut pools: Vec<_> = names.iter().filter_map(|name| pool(root, name)).collect();
    pools.sort_by_key(|pool| pool.page_bytes);
    HugePages {
        thp: chosen("enabled"),
        defrag: chosen("defrag"),
        shmem: chosen("shmem_enabled"),
        pools,
    }
}

/// `hugepages-2048kB`
fn pool(root: &SysRoot, name: &str) -> Option<HugePagePool> {
    let kib: u64 = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
    let number = |file: &str| root.parsed(format!("{POOLS}/{name}/{file}")).ok();
    Some(HugePagePool {
        page_bytes: kib.checked_mul(1024)?,
        total: number("nr_hugepages")?,
        free: number("free_hugepages")?,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::system::testing::Tree;

    #[test]
    fn settings_and_pools() {
        let tree = Tree::new();
        tree.file(&format!("{TRANSPARENT}/enabled"), "always [madvise] never\n");
        tree.file(&format!("{TRANSPARENT}/defrag"), "always defer [defer+madvise] madvise never\n");
        for (name, total, free) in [("1048576kB", 2, 1), ("2048kB", 512, 500), ("odd", 1, 1)] {
            let at = format!("{POOLS}/hugepages-{name}");
            tree.file(&format!("{at}/nr_hugepages"), format!("{total}\n"));
            tree.file(&format!("{at}/free_hugepages"), format!("{free}\n"));
        }
        let found = huge_pages(&tree.root());
        assert_eq!(found.thp.unwrap(), "madvise");
        assert_eq!(found.defrag.unwrap(), "defer+madvise");
        assert!(found.shmem.unwrap_err().is_missing());
        let small = HugePagePool { page_bytes: 2 << 20, total: 512, free: 500 };
        let large = HugePagePool { page_bytes: 1 << 30, total: 2, free: 1 };
        assert_eq!(found.pools, [small, large]);
    }
}
