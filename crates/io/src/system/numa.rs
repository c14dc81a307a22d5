//! NUMA nodes: which processors and how much memory lie near each other.

use serde::Serialize;

use super::root::{Fact, SysRoot, Unknown, parse_list};

const NODES: &str = "/sys/devices/system/node";

/// A NUMA node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NumaNode {
    /// Its number.
    pub number: u32,
    /// Its processors; none for a node of memory only.
    pub cpus: Vec<u32>,
    /// Its memory; `None` if the kernel does not say.
    pub memory_bytes: Option<u64>,
    /// Memory that is in no use at all, not even as page cache.
    pub free_bytes: Option<u64>,
    /// Distance to each node in the order of their numbers, as the firmware says it: 10 is near.
    pub distances: Vec<u32>,
}

/// The nodes of this machine, by number.
///
/// # Errors
/// [`Unknown`] if the kernel publishes none (built without NUMA).
pub fn numa_nodes(root: &SysRoot) -> Fact<Vec<NumaNode>> {
    let numbered = |name: &String| name.strip_prefix("node")?.parse::<u32>().ok();
    let mut numbers: Vec<u32> = root.names(NODES)?.iter().filter_map(numbered).collect();
    numbers.sort_unstable();
    numbers.into_iter().map(|number| node(root, number)).collect()
}

fn node(root: &SysRoot, number: u32) -> Fact<NumaNode> {
    let at = format!("{NODES}/node{number}");
    let cpu_list = root.value(format!("{at}/cpulist"))?;
    let cpus = parse_list(&cpu_list)
        .ok_or_else(|| Unknown::malformed(format!("{at}/cpulist"), &cpu_list))?;
    let memory = root.text(format!("{at}/meminfo")).unwrap_or_default();
    let distances = root.value(format!("{at}/distance")).unwrap_or_default();
    Ok(NumaNode {
        number,
        cpus,
        memory_bytes: memory_field(&memory, "MemTotal:"),
        free_bytes: memory_field(&memory, "MemFree:"),
        distances: distances.split_whitespace().map_while(|word| word.parse().ok()).collect(),
    })
}

/// `Node 0 MemTotal:       65536 kB`
fn memory_field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.split_whitespace().any(|word| word == name))?;
    let kib: u64 = line.split_once(name)?.1.split_whitespace().next()?.parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::system::testing::Tree;

    #[test]
    fn two_nodes_and_one_of_memory_only() {
        let tree = Tree::new();
        for (number, cpus) in [(0, "0-1,4\n"), (1, "2-3\n"), (10, "\n")] {
            tree.file(&format!("{NODES}/node{number}/cpulist"), cpus);
        }
        tree.file(
            &format!("{NODES}/node1/meminfo"),
            "Node 1 MemTotal:       1000 kB\nNode 1 MemFree:         250 kB\n",
        );
        tree.file(&format!("{NODES}/node1/distance"), "21 10 28\n")
            .folder(&format!("{NODES}/power"));
        let nodes = numa_nodes(&tree.root()).unwrap();
        let numbers: Vec<_> = nodes.iter().map(|node| node.number).collect();
        assert_eq!(numbers, [0, 1, 10]);
        assert_eq!(nodes[0].cpus, [0, 1, 4]);
        assert_eq!((nodes[0].memory_bytes, nodes[2].cpus.len()), (None, 0));
        assert_eq!((nodes[1].memory_bytes, nodes[1].free_bytes), (Some(1_024_000), Some(256_000)));
        assert_eq!(nodes[1].distances, [21, 10, 28]);
    }

    #[test]
    fn no_nodes_and_an_odd_list() {
        let tree = Tree::new();
        assert!(numa_nodes(&tree.root()).unwrap_err().is_missing());
        tree.file(&format!("{NODES}/node0/cpulist"), "some\n");
        assert!(!numa_nodes(&tree.root()).unwrap_err().is_missing());
    }
}
