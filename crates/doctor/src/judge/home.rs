//! The meaning of a path's location: medium, drives, links, limits on them, the way to the GPUs.

use headrace_io::system::{BlockDevice, Distance, Medium, NearestGpu, StorageHome, Transport};

use crate::facts::{GpuFacts, LinkFact, MachineFacts, PathFacts, PathKind};
use crate::finding::Finding;

use super::machine::gpudirect_loaded;
use super::storage::{NfsContext, judge_device, judge_links, judge_nfs};

/// The path's location.
pub(crate) fn judge(path: &PathFacts, machine: &MachineFacts, gpu: &GpuFacts) -> Vec<Finding> {
    // What cannot be reached was said to be broken; where it would lie helps nobody.
    if matches!(path.kind, PathKind::Missing | PathKind::Unreachable(_) | PathKind::Other) {
        return Vec::new();
    }
    let home = &path.home;
    let subject = path.path.display().to_string();
    let mut findings = vec![medium(&subject, home)];
    let direct_works = path.examined.value().is_none_or(|file| file.direct.value().is_some());
    findings.extend(home.stack.iter().flat_map(|device| judge_device(device, direct_works)));
    findings.extend(path.examined.value().filter(|file| file.has_holes()).map(|file| {
        Finding::unknown(
            &subject,
            format!(
                "storage holds {} of the {} bytes of {} (holes or compression): rates say little \
                 about the storage",
                file.allocated_bytes,
                file.size_bytes,
                file.path.display()
            ),
        )
    }));
    findings.extend(path.links.iter().map(link));
    findings.extend(throttled(home, machine));
    if let Some(nfs) = &home.nfs {
        findings.extend(judge_nfs(nfs, nfs_context(machine, gpu)));
    }
    findings.extend(nvme_hooks(home, machine, gpu));
    if let Some(nearest) = &path.nearest_gpu {
        findings.push(distance(&subject, nearest));
    }
    findings
}

fn medium(subject: &str, home: &StorageHome) -> Finding {
    let mount = match &home.mount {
        Ok(mount) => {
            let options = mount.options.join(",");
            format!("{} at {} ({options})", mount.filesystem, mount.mount_point.display())
        }
        Err(unknown) => format!("mount not known: {unknown}"),
    };
    match &home.medium {
        Ok(Medium::Memory) => Finding::ok(subject, format!("lies in memory: {mount}")),
        Ok(Medium::Block | Medium::Nfs) => {
            let below: Vec<String> = home
                .below
                .iter()
                .map(|mount| {
                    format!(", on {} at {}", mount.filesystem, mount.mount_point.display())
                })
                .collect();
            Finding::ok(subject, format!("lies on {mount}{}", below.concat()))
        }
        Err(unknown) => {
            Finding::unknown(subject, format!("lies on {mount}; the devices below it: {unknown}"))
        }
    }
}

fn link(link: &LinkFact) -> Finding {
    let subject = format!("{} (storage)", link.address);
    match link.links.as_result() {
        Ok(links) => judge_links(&subject, links).unwrap_or_else(|| {
            Finding::unknown(subject, "no PCIe link is shown (a virtual machine?)")
        }),
        Err(reason) => Finding::unknown(subject, reason),
    }
}

/// Limits of the control group on the devices below the path.
fn throttled(home: &StorageHome, machine: &MachineFacts) -> Vec<Finding> {
    let Ok(group) = &machine.limits.cgroup else { return Vec::new() };
    let mut numbers = Vec::new();
    home.stack.iter().for_each(|device| collect_numbers(device, &mut numbers));
    let of_these = |line: &&String| {
        let device = line.split_whitespace().next().unwrap_or_default();
        numbers.iter().any(|(major, minor)| device == format!("{major}:{minor}"))
    };
    group
        .io_max
        .iter()
        .filter(of_these)
        .map(|line| {
            Finding::slow(
                "control group, storage",
                format!("the device is throttled: {line}"),
                "storage delivers no more than that to this process, whatever the drive could do",
                "raise io.max of the group (docker run --device-read-bps …, blkio of a pod), or run \
                 outside of it",
            )
        })
        .collect()
}

fn collect_numbers(device: &BlockDevice, numbers: &mut Vec<(u32, u32)>) {
    numbers.push(device.number);
    device.members.iter().for_each(|member| collect_numbers(member, numbers));
}

fn nfs_context<'a>(machine: &'a MachineFacts, gpu: &GpuFacts) -> NfsContext<'a> {
    NfsContext {
        rdma_devices: &machine.rdma_devices,
        gpudirect_wanted: !gpu.devices.is_empty() && gpudirect_loaded(machine),
        rpcrdma_has_nvfs: machine
            .kernel
            .nvfs
            .as_ref()
            .map(|symbols| symbols.has("rpcrdma"))
            .map_err(ToString::to_string),
    }
}

/// nvidia-fs is loaded, but the driver of the drives does not support it.
fn nvme_hooks(home: &StorageHome, machine: &MachineFacts, gpu: &GpuFacts) -> Option<Finding> {
    if gpu.devices.is_empty() || !gpudirect_loaded(machine) {
        return None;
    }
    let symbols = machine.kernel.nvfs.as_ref().ok()?;
    let module = home.devices.iter().find_map(|device| match &device.transport {
        Transport::NvmePcie => Some("nvme"),
        Transport::NvmeFabric { fabric, .. } if fabric == "rdma" => Some("nvme_rdma"),
        Transport::NvmeFabric { fabric, .. } if fabric == "tcp" => Some("nvme_tcp"),
        _ => None,
    })?;
    let subject = format!("{module}, GPUDirect");
    Some(match symbols.has(module) {
        Some(true) => Finding::ok(subject, format!("{module} has nvfs_ops")),
        Some(false) => Finding::slow(
            subject,
            format!("nvidia-fs is loaded, and {module} was built without nvfs_ops"),
            "cuFile cannot go straight to the GPU and falls back to host memory without a word",
            "install the NVMe drivers of DOCA-OFED or MLNX_OFED with GPUDirect Storage \
             (mlnxofedinstall --with-nvmf --enable-gds), update-initramfs -u, reboot; or use the \
             kernel's P2PDMA with CUDA 12.8 or later: grep nvfs_ops /proc/kallsyms",
        ),
        None => Finding::unknown(
            subject,
            format!("{module} is not listed in /proc/kallsyms (built into the kernel?)"),
        ),
    })
}

fn distance(subject: &str, nearest: &NearestGpu) -> Finding {
    let subject = format!("{subject}, GPU");
    let far = |gpu: usize| nearest.distances.get(gpu) == Some(&Distance::OtherNode);
    match nearest.gpu {
        Some(gpu) if far(gpu) => Finding::slow(
            subject,
            &nearest.reason,
            "every byte crosses between the processors",
            "move the drives or the card to slots of one processor; until then run on the GPU's: \
             numactl --cpunodebind=NODE --membind=NODE",
        ),
        Some(_) => Finding::ok(subject, &nearest.reason),
        None if nearest.distances.contains(&Distance::Unknown) => {
            Finding::unknown(subject, &nearest.reason)
        }
        None => Finding::ok(subject, &nearest.reason),
    }
}
