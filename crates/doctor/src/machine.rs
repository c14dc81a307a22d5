//! Facts about the machine and this process.

use headrace_gpu::measure::{self, HostCopySpeed};
use headrace_io::system::{Limits, SysRoot, cores, limits, numa_nodes, seccomp, uring_probe};

use crate::access::NOT_MEASURED_QUICK;
use crate::facts::{Known, MachineFacts};
use crate::system::{huge_pages, iommu, kernel};

/// Approximate memory of a race's slots: this much is registered as a test, to hit the limit that
/// really applies.
const RING_BYTES: usize = 128 << 20;

/// Threads for measuring host memory copies: enough to saturate it on known machines.
const COPY_THREADS_MAX: usize = 16;

pub(crate) fn look(root: &SysRoot, quick: bool) -> MachineFacts {
    let cores = cores();
    let limits = limits(root);
    let memory_copy = match quick {
        true => Known::unknown(NOT_MEASURED_QUICK),
        false => memory_copy(cores, &limits),
    };
    MachineFacts {
        kernel: kernel(root),
        cores,
        limits,
        seccomp: seccomp(root).into(),
        uring: uring_probe(root, RING_BYTES),
        huge_pages: huge_pages(root),
        numa: numa_nodes(root).into(),
        iommu: iommu(root),
        rdma_devices: rdma_devices(),
        memory_copy,
    }
}

/// Each thread takes 128 MiB; a measurement must not exhaust a small container.
fn memory_copy(cores: usize, limits: &Limits) -> Known<HostCopySpeed> {
    const THREAD_BYTES: u64 = 128 << 20;
    let room = limits.cgroup.as_ref().ok().and_then(|group| group.memory_max_bytes.amount());
    let fitting = room.map_or(u64::MAX, |bytes| bytes / 4 / THREAD_BYTES);
    let threads = cores.min(COPY_THREADS_MAX).min(usize::try_from(fitting).unwrap_or(usize::MAX));
    if threads == 0 {
        return Known::unknown("the control group leaves too little memory to measure with");
    }
    measure::host_copy(threads).into()
}

/// Names of the RDMA devices; a machine without any has no such folder.
fn rdma_devices() -> Vec<String> {
    let Ok(entries) = std::fs::read_dir("/sys/class/infiniband") else { return Vec::new() };
    let mut names: Vec<String> = entries
        .filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()))
        .collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_facts() {
        let facts = look(&SysRoot::host(), true);
        assert!(facts.cores > 0);
        assert_eq!(facts.uring.register_bytes, RING_BYTES);
        assert!(matches!(facts.seccomp, Known::Value(_)), "{:?}", facts.seccomp);
        assert_eq!(facts.memory_copy, Known::unknown(NOT_MEASURED_QUICK));
    }
}
