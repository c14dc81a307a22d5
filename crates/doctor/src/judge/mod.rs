//! The meaning of facts. Every function here is a function of facts alone and examines nothing.

mod gpu;
mod home;
mod machine;
mod path;
mod storage;

#[cfg(test)]
mod tests;

use crate::facts::{Facts, GpuFact, Known};
use crate::finding::Finding;

/// Below this share of a GPU's link rate, memory copies limit reads from the page cache.
const COPY_SHARE_MIN: f64 = 1.0;

/// All findings, in the order of the data path; findings shared by several paths appear once.
pub(crate) fn judge(facts: &Facts) -> Vec<Finding> {
    let has_gpu = !facts.gpu.devices.is_empty();
    let mut findings = Vec::new();
    for path in &facts.paths {
        findings.extend(path::judge(path, &facts.gpu));
        findings.extend(home::judge(path, &facts.machine, &facts.gpu));
    }
    findings.extend(machine::judge(&facts.machine, has_gpu));
    findings.extend(memory_copy(facts));
    findings.extend(gpu::judge(&facts.gpu));
    let mut said: Vec<Finding> = Vec::new();
    for finding in findings {
        if !said.contains(&finding) {
            said.push(finding);
        }
    }
    said
}

/// Whether host memory can feed the links: bytes in the page cache are copied into slots first.
fn memory_copy(facts: &Facts) -> Option<Finding> {
    let copy = match &facts.machine.memory_copy {
        Known::Value(copy) => copy,
        Known::Unknown { .. } => return None,
    };
    let found = format!("{:.1} GB/s with {} threads", copy.gb_per_s, copy.threads);
    let links: f64 = facts.gpu.devices.iter().filter_map(GpuFact::h2d_gb_per_s).sum();
    if copy.gb_per_s >= COPY_SHARE_MIN * links {
        return Some(Finding::ok("memory copy", found));
    }
    Some(Finding::slow(
        "memory copy",
        format!("{found}, the links of the GPUs take {links:.1}"),
        "files in the page cache are copied into pinned slots on their way to a GPU",
        "keep tables on tmpfs (/dev/shm), which is registered and copied from in place, or give the \
         process more cores",
    ))
}
