//! The meaning of the facts about the machine and this process.

use headrace_io::system::{Cgroup, Limit, Limits, NumaNode, Seccomp, SeccompMode, UringProbe};

use crate::facts::{Known, MachineFacts};
use crate::finding::Finding;
use crate::system::{HugePages, Iommu};

/// Fewer open files than this are soon used up by a folder of tables, slots and libraries.
const OPEN_FILES_MIN: u64 = 1024;

/// Below this, slots, host cache and builds leave no room for caching.
const CGROUP_BYTES_MIN: u64 = 2 << 30;

/// Facts about the machine that do not depend on a path.
pub(crate) fn judge(machine: &MachineFacts, has_gpu: bool) -> Vec<Finding> {
    let limits = &machine.limits;
    let mut findings = uring(&machine.uring, limits);
    findings.push(seccomp(&machine.seccomp));
    findings.extend(open_files(limits));
    findings.extend(cgroup(limits));
    findings.push(huge_pages(&machine.huge_pages));
    findings.push(numa(&machine.numa));
    if has_gpu {
        findings.push(iommu(&machine.iommu, gpudirect_loaded(machine)));
    }
    findings
}

/// Whether nvidia-fs is loaded, so that GPUDirect Storage is expected.
pub(crate) fn gpudirect_loaded(machine: &MachineFacts) -> bool {
    machine.kernel.nvfs.as_ref().is_ok_and(|found| found.nvidia_fs.is_some())
}

/// A ring, and registered memory.
fn uring(probe: &UringProbe, limits: &Limits) -> Vec<Finding> {
    const WHY: &str = "cold reads go through threads, which costs processor time and, on fast \
                       drives, speed";
    let refused = probe.setup.as_ref().err().or(match &probe.enter {
        Some(Err(refusal)) => Some(refusal),
        _ => None,
    });
    if let Some(refusal) = refused {
        return vec![Finding::slow("io_uring", refusal.to_string(), WHY, &refusal.remedy)];
    }
    let mut findings = vec![Finding::ok("io_uring", "a ring can be had")];
    findings.push(match &probe.register {
        Some(Ok(())) => Finding::ok(
            "locked memory",
            format!("{} MiB could be registered with io_uring", probe.register_bytes >> 20),
        ),
        Some(Err(refusal)) => Finding::slow(
            "locked memory",
            format!(
                "{} MiB could not be registered with io_uring ({refusal}){}",
                probe.register_bytes >> 20,
                memlock_text(limits)
            ),
            "without registration the kernel maps the slots anew for every read",
            &refusal.remedy,
        ),
        None => Finding::unknown("locked memory", "registration with io_uring was not tried"),
    });
    findings
}

fn memlock_text(limits: &Limits) -> String {
    match &limits.memlock_bytes {
        Ok(Limit::At(bytes)) => format!("; the limit is {} KiB", bytes >> 10),
        Ok(Limit::Unlimited) => "; there is no limit".to_string(),
        Err(unknown) => format!("; the limit is not known: {unknown}"),
    }
}

/// A filter by itself is no fault: what it forbids was tried.
fn seccomp(found: &Known<Seccomp>) -> Finding {
    match found.as_result() {
        Ok(seccomp) => Finding::ok(
            "seccomp",
            match (seccomp.mode, seccomp.filters) {
                (SeccompMode::Disabled, _) => "no filter of system calls".to_string(),
                (_, Some(filters)) => {
                    format!(
                        "{filters} filter(s) of system calls; what was tried is listed above or below"
                    )
                }
                (_, None) => "system calls are filtered".to_string(),
            },
        ),
        Err(reason) => Finding::unknown("seccomp", reason),
    }
}

fn open_files(limits: &Limits) -> Option<Finding> {
    match &limits.open_files {
        Ok(limit) if limit.allows(OPEN_FILES_MIN) => None,
        Ok(limit) => Some(Finding::slow(
            "open files",
            format!("at most {}", limit.amount().unwrap_or_default()),
            "a folder of many files cannot be read as one table",
            "ulimit -n 65536",
        )),
        Err(unknown) => Some(Finding::unknown("open files", unknown.to_string())),
    }
}

fn cgroup(limits: &Limits) -> Vec<Finding> {
    match &limits.cgroup {
        Ok(group) => cgroup_limits(group, limits.cpus.as_ref().ok().copied()),
        Err(unknown) => vec![Finding::unknown("control group", unknown.to_string())],
    }
}

fn cgroup_limits(group: &Cgroup, cpus: Option<u32>) -> Vec<Finding> {
    let mut findings = Vec::new();
    match group.memory_max_bytes {
        Limit::At(bytes) if bytes < CGROUP_BYTES_MIN => findings.push(Finding::slow(
            "control group, memory",
            format!("at most {} MiB, page cache included", bytes >> 20),
            "slots, caches and builds share it, and what was read is not kept",
            "raise memory.max of the group (docker run --memory=…, resources.limits.memory of a pod)",
        )),
        Limit::At(bytes) => findings.push(Finding::ok(
            "control group, memory",
            format!("at most {:.1} GB, page cache included", bytes as f64 / 1e9),
        )),
        Limit::Unlimited => {}
    }
    if let (Some(quota), Some(cpus)) = (group.cpu_quota_cores, cpus)
        && quota < f64::from(cpus)
    {
        findings.push(Finding::slow(
            "control group, processors",
            format!("{quota:.1} cores' worth of time on {cpus} processors"),
            "threads that run on all of them are stopped for most of each period",
            format!(
                "raise cpu.max of the group (docker run --cpus=…), or run with --threads {}",
                (quota.floor() as u64).max(1)
            ),
        ));
    }
    findings
}

fn huge_pages(found: &HugePages) -> Finding {
    match &found.thp {
        Ok(setting) if setting == "never" => Finding::slow(
            "huge pages",
            "transparent huge pages are off",
            "slots and builds consist of 4 KiB pages: they take longer to prepare and to pin, and \
             probes miss the TLB",
            "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
        ),
        Ok(setting) => Finding::ok("huge pages", format!("transparent huge pages: {setting}")),
        Err(unknown) if unknown.is_missing() => Finding::unknown(
            "huge pages",
            "this kernel publishes no setting of transparent huge pages",
        ),
        Err(unknown) => Finding::unknown("huge pages", unknown.to_string()),
    }
}

fn numa(found: &Known<Vec<NumaNode>>) -> Finding {
    match found.as_result() {
        Ok(nodes) if nodes.len() > 1 => {
            let sizes: Vec<String> = nodes
                .iter()
                .map(|node| {
                    let memory = node
                        .memory_bytes
                        .map_or_else(|| "?".to_string(), |b| format!("{:.0}", b as f64 / 1e9));
                    format!("node {}: {} processors, {memory} GB", node.number, node.cpus.len())
                })
                .collect();
            Finding::ok("numa", sizes.join("; "))
        }
        Ok(_) => Finding::ok("numa", "one node"),
        Err(reason) => Finding::unknown("numa", reason),
    }
}

/// Address translation prevents direct transfers between devices; for the path through host memory
/// it hardly matters.
fn iommu(found: &Iommu, gpudirect_wanted: bool) -> Finding {
    if found.units.is_empty() {
        return Finding::ok("iommu", "off");
    }
    let translated: u32 = found
        .groups_by_kind
        .iter()
        .filter(|(kind, _)| kind.starts_with("DMA"))
        .map(|(_, n)| n)
        .sum();
    let kinds: Vec<String> =
        found.groups_by_kind.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    let text = format!("{} unit(s); groups: {}", found.units.len(), kinds.join(", "));
    if translated > 0 && gpudirect_wanted {
        return Finding::slow(
            "iommu",
            format!("{text}; addresses are translated"),
            "GPUDirect Storage between drives and GPUs then passes the root complex, or fails",
            "boot with intel_iommu=on iommu=pt (amd_iommu=on iommu=pt), or switch it off",
        );
    }
    Finding::ok("iommu", text)
}
