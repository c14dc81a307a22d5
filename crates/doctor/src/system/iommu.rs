//! The IOMMU: whether devices see memory through a translation, and which.

use std::collections::BTreeMap;

use headrace_io::system::SysRoot;
use serde::Serialize;

const GROUPS: &str = "/sys/kernel/iommu_groups";

/// The IOMMU of this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Iommu {
    /// Enabled units (`dmar0`, `ivhd0`); none means that devices see physical memory.
    pub units: Vec<String>,
    /// Number of device groups by kind of translation: `DMA`, `DMA-FQ`, or `identity` for none.
    /// Groups of unknown kind count under `unknown`.
    pub groups_by_kind: BTreeMap<String, u32>,
    /// The options on the kernel's command line.
    pub command_line: Vec<String>,
}

/// How this machine's IOMMU is set.
pub fn iommu(root: &SysRoot) -> Iommu {
    let mut groups_by_kind = BTreeMap::new();
    for group in root.names(GROUPS).unwrap_or_default() {
        let kind = kind_of(root, &group).unwrap_or_else(|| "unknown".to_string());
        *groups_by_kind.entry(kind).or_insert(0) += 1;
    }
    let command_line = root.value("/proc/cmdline").unwrap_or_default();
    let about_it = |word: &&str| word.split('=').next().is_some_and(|name| name.contains("iommu"));
    Iommu {
        units: root.names("/sys/class/iommu").unwrap_or_default(),
        groups_by_kind,
        command_line: command_line
            .split_whitespace()
            .filter(about_it)
            .map(str::to_string)
            .collect(),
    }
}

fn kind_of(root: &SysRoot, group: &str) -> Option<String> {
    root.value(format!("{GROUPS}/{group}/type")).ok().filter(|kind| !kind.is_empty())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::system::testing::Tree;

    #[test]
    fn a_machine_with_translation() {
        let tree = Tree::new();
        tree.folder("/sys/class/iommu/dmar0").folder(&format!("{GROUPS}/2"));
        tree.file(&format!("{GROUPS}/0/type"), "DMA-FQ\n");
        tree.file(&format!("{GROUPS}/1/type"), "identity\n");
        tree.file("/proc/cmdline", "quiet intel_iommu=on iommu=pt root=UUID=1 iommu.strict=0\n");
        let found = iommu(&tree.root());
        assert_eq!(found.units, ["dmar0"]);
        assert_eq!(found.groups_by_kind.len(), 3);
        assert_eq!(found.groups_by_kind["unknown"], 1);
        assert_eq!(found.command_line, ["intel_iommu=on", "iommu=pt", "iommu.strict=0"]);
    }

    #[test]
    fn a_machine_without() {
        let found = iommu(&Tree::new().root());
        assert!(found.units.is_empty() && found.groups_by_kind.is_empty());
    }
}
