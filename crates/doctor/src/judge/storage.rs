//! The meaning of the facts about drives, arrays and file servers.

use headrace_io::system::{BlockDevice, BlockKind, NfsMount, Transport};

use crate::finding::Finding;
use crate::system::PciLink;

/// Below this request size a drive's per-request cost is visible.
const REQUEST_BYTES_MIN: u64 = 256 << 10;

/// Below this read-ahead a drive waits between buffered reads.
const READ_AHEAD_BYTES_MIN: u64 = 1 << 20;

/// Longest NFS read that every current server accepts.
const NFS_READ_BYTES: u64 = 1 << 20;

/// One TCP connection carries a few GB/s at most; from here on several pay off.
const NFS_CONNECTIONS_MIN: u32 = 8;

const ETHERNET_MTU: u32 = 1500;

/// The stack of devices below a filesystem.
pub(crate) fn judge_device(device: &BlockDevice, direct_works: bool) -> Vec<Finding> {
    let mut findings = arrays(device);
    for leaf in device.leaves() {
        findings.push(drive(leaf));
        findings.extend(queue(leaf, direct_works));
    }
    findings
}

/// Arrays with missing members, and mappings that cost time.
fn arrays(device: &BlockDevice) -> Vec<Finding> {
    let mut findings = Vec::new();
    match &device.kind {
        BlockKind::Raid { level, degraded, .. } => {
            findings.push(match degraded {
                Some(missing) if *missing > 0 => Finding::slow(
                    &device.name,
                    format!("{level} array, {missing} of its members missing"),
                    "missing members are computed from the others, and the next failure loses data",
                    format!(
                        "mdadm --detail /dev/{}; replace the member and add it again",
                        device.name
                    ),
                ),
                _ => Finding::ok(&device.name, format!("{level} over {}", names(&device.members))),
            });
        }
        BlockKind::Mapping { name, subsystem } if subsystem.as_deref() == Some("CRYPT") => {
            findings.push(Finding::slow(
                &device.name,
                format!("{name} is encrypted in software (dm-crypt)"),
                "every byte passes the processor before it can be read; a GPU can not be fed directly",
                "use drives that encrypt by themselves, or measure whether it matters: cryptsetup benchmark",
            ));
        }
        BlockKind::Loop { backing_file } => findings.push(Finding::slow(
            &device.name,
            format!("a file seen as a device: {}", backing_file.as_deref().unwrap_or("unknown")),
            "reads pass two filesystems and, by default, the page cache twice",
            format!(
                "put the data on the filesystem itself, or losetup --direct-io=on /dev/{}",
                device.name
            ),
        )),
        _ => {}
    }
    findings.extend(device.members.iter().flat_map(arrays));
    findings
}

fn names(devices: &[BlockDevice]) -> String {
    let names: Vec<&str> = devices.iter().map(|device| device.name.as_str()).collect();
    if names.is_empty() { "no member that is shown".to_string() } else { names.join(", ") }
}

fn drive(drive: &BlockDevice) -> Finding {
    let model = drive.model.as_deref().unwrap_or("model unknown");
    let found = format!(
        "{model}, {:.1} GB, {}",
        drive.size_bytes as f64 / 1e9,
        transport_text(&drive.transport)
    );
    // Virtual machines say that their disks turn, whatever lies behind them.
    let is_real = !matches!(drive.transport, Transport::Virtio | Transport::Paravirtual);
    match (drive.rotational, &drive.transport) {
        (Some(true), _) if is_real => Finding::slow(
            &drive.name,
            format!("{found}, a disk that turns"),
            "it delivers some 0.2 GB/s in sequence and far less otherwise",
            "keep the tables on flash, or spread them over many such disks",
        ),
        (_, Transport::Usb) => Finding::slow(
            &drive.name,
            found,
            "the link of USB is the limit",
            "copy the tables to a drive on PCIe",
        ),
        _ => Finding::ok(&drive.name, found),
    }
}

fn transport_text(transport: &Transport) -> String {
    match transport {
        Transport::NvmePcie => "NVMe on PCIe".to_string(),
        Transport::NvmeFabric { fabric, target } => {
            format!("NVMe over {fabric} at {}", target.as_deref().unwrap_or("an unknown address"))
        }
        Transport::Sata => "SATA".to_string(),
        Transport::Sas => "SAS".to_string(),
        Transport::FibreChannel => "Fibre Channel".to_string(),
        Transport::Iscsi => "iSCSI".to_string(),
        Transport::Scsi => "SCSI".to_string(),
        Transport::Virtio => {
            "virtio (a virtual machine's disk; what lies behind is not shown)".to_string()
        }
        Transport::Paravirtual => {
            "a virtual machine's disk; what lies behind is not shown".to_string()
        }
        Transport::Usb => "USB".to_string(),
        Transport::Mmc => "a memory card".to_string(),
        Transport::Network => "a network block device".to_string(),
        Transport::Memory => "memory".to_string(),
        Transport::Stacked => "made of what is not shown".to_string(),
        Transport::Unknown => "attached in a way that is not known".to_string(),
    }
}

fn queue(drive: &BlockDevice, direct_works: bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    let queue = &drive.queue;
    let setting = |file: &str| format!("/sys/block/{}/queue/{file}", drive.name);
    let is_flash = drive.transport == Transport::NvmePcie
        || matches!(drive.transport, Transport::NvmeFabric { .. });
    if let Some(scheduler) = &queue.scheduler
        && is_flash
        && matches!(scheduler.as_str(), "bfq" | "mq-deadline" | "kyber")
    {
        findings.push(Finding::slow(
            &drive.name,
            format!("its scheduler is {scheduler}"),
            "a scheduler costs processor time for each request and gains nothing on NVMe",
            format!("echo none > {}", setting("scheduler")),
        ));
    }
    if let Some(bytes) = queue.max_request_bytes
        && bytes < REQUEST_BYTES_MIN
    {
        let hardware = queue.max_hw_request_bytes;
        let (why, remedy) = match hardware {
            Some(most) if most > bytes => (
                "large reads are cut into many requests".to_string(),
                format!("echo {} > {}", most.min(1 << 20) >> 10, setting("max_sectors_kb")),
            ),
            Some(_) => (
                "large reads are cut into many requests; the drive takes no longer ones"
                    .to_string(),
                String::new(),
            ),
            None => (
                "large reads are cut into many requests".to_string(),
                format!("see {}", setting("max_hw_sectors_kb")),
            ),
        };
        findings.push(Finding::slow(
            &drive.name,
            format!("requests of at most {} KiB", bytes >> 10),
            why,
            remedy,
        ));
    }
    // Only what goes through the page cache is read ahead.
    if let Some(bytes) = queue.read_ahead_bytes
        && bytes < READ_AHEAD_BYTES_MIN
        && !direct_works
    {
        findings.push(Finding::slow(
            &drive.name,
            format!("reads ahead {} KiB", bytes >> 10),
            "O_DIRECT cannot be had here, so reads go through the page cache, which asks for this \
             much at once",
            format!("echo 4096 > {}", setting("read_ahead_kb")),
        ));
    }
    findings
}

/// The PCIe links of a drive or network card, from the root port down.
pub(crate) fn judge_links(subject: &str, links: &[PciLink]) -> Option<Finding> {
    let own = links.last()?;
    let slowest = links.iter().min_by(|a, b| a.gb_per_s().total_cmp(&b.gb_per_s()))?;
    let found = format!(
        "PCIe {} x{} ({:.1} GB/s)",
        slowest.generation().map_or_else(|| "?".to_string(), |number| number.to_string()),
        slowest.width,
        slowest.gb_per_s()
    );
    // The loss that counts is that of the whole way against what the device itself could do.
    if slowest.gb_per_s() >= 0.99 * own.max_gb_per_s() {
        return Some(Finding::ok(subject, found));
    }
    Some(Finding::slow(
        subject,
        format!(
            "{found} at {}, where the device could use PCIe {} x{} ({:.1} GB/s)",
            slowest.address,
            own.max_generation().map_or_else(|| "?".to_string(), |number| number.to_string()),
            own.max_width,
            own.max_gb_per_s()
        ),
        "the link is the limit before the device is",
        format!(
            "use a slot with {} lanes of generation {}; `lspci -vv -s {}` shows LnkCap and LnkSta",
            own.max_width,
            own.max_generation().map_or_else(|| "?".to_string(), |number| number.to_string()),
            own.address
        ),
    ))
}

/// The environment of an NFS mount on this machine.
#[derive(Debug, Clone)]
pub(crate) struct NfsContext<'a> {
    /// RDMA devices of the machine.
    pub rdma_devices: &'a [String],
    /// Whether a GPU and nvidia-fs are present, so that GPUDirect Storage is expected.
    pub gpudirect_wanted: bool,
    /// Whether the module that carries NFS over RDMA has nvfs_ops; `None` if it is not loaded, an
    /// error if the kernel's symbols cannot be read.
    pub rpcrdma_has_nvfs: Result<Option<bool>, String>,
}

/// An NFS mount.
pub(crate) fn judge_nfs(mount: &NfsMount, context: NfsContext<'_>) -> Vec<Finding> {
    let subject = format!("nfs {}:{}", mount.server, mount.export);
    let mut findings = vec![protocol(&subject, mount, context.rdma_devices)];
    if let Some(bytes) = mount.rsize_bytes
        && bytes < NFS_READ_BYTES
    {
        findings.push(Finding::slow(
            &subject,
            format!("rsize is {} KiB", bytes >> 10),
            "every read of a chunk becomes many calls to the server",
            "mount with rsize=1048576,wsize=1048576, and raise the server's max_block_size",
        ));
    }
    if !mount.is_rdma() {
        findings.push(mtu(&subject, mount));
    }
    if mount.is_rdma() && context.gpudirect_wanted {
        findings.push(gpudirect(&subject, &context.rpcrdma_has_nvfs));
    }
    findings
}

fn protocol(subject: &str, mount: &NfsMount, rdma_devices: &[String]) -> Finding {
    let version = mount.version.as_deref().unwrap_or("of unknown version");
    let Some(proto) = mount.proto.as_deref() else {
        return Finding::unknown(
            subject,
            format!("NFS {version}; the mount table names no protocol"),
        );
    };
    let connections = mount.nconnect.unwrap_or(1);
    let found = format!("NFS {version} over {proto}, {connections} connection(s)");
    if !mount.is_rdma() && !rdma_devices.is_empty() {
        return Finding::slow(
            subject,
            format!("{found}, while there is RDMA hardware: {}", rdma_devices.join(", ")),
            "over TCP every byte is copied by the processor, and cannot go straight to a GPU",
            format!(
                "mount -o proto=rdma,port=20049,nconnect=16,vers={} {}:{} MOUNTPOINT (the server must \
                 listen: echo rdma 20049 > /proc/fs/nfsd/portlist)",
                mount.version.as_deref().unwrap_or("4.2"),
                mount.server,
                mount.export
            ),
        );
    }
    if connections < NFS_CONNECTIONS_MIN {
        return Finding::slow(
            subject,
            found,
            "one connection is served by one queue of the network card and few processors",
            "umount, then mount with nconnect=16 (it is taken from the first mount of a server)",
        );
    }
    Finding::ok(subject, found)
}

fn mtu(subject: &str, mount: &NfsMount) -> Finding {
    match &mount.interface {
        Ok(interface) => match interface.mtu {
            Some(mtu) if mtu <= ETHERNET_MTU => Finding::slow(
                subject,
                format!("packets of {mtu} bytes on {}", interface.name),
                "the processor handles six times as many packets as with jumbo frames",
                format!(
                    "ip link set {} mtu 9000, on the server and the switches too",
                    interface.name
                ),
            ),
            Some(mtu) => {
                Finding::ok(subject, format!("packets of {mtu} bytes on {}", interface.name))
            }
            None => Finding::unknown(
                subject,
                format!("MTU of {}: the kernel does not say", interface.name),
            ),
        },
        Err(unknown) => {
            Finding::unknown(subject, format!("the interface to the server: {unknown}"))
        }
    }
}

/// A client without nvfs_ops mounts and reads, but never says why cuFile does not bypass host
/// memory.
fn gpudirect(subject: &str, rpcrdma_has_nvfs: &Result<Option<bool>, String>) -> Finding {
    let subject = format!("{subject}, GPUDirect");
    match rpcrdma_has_nvfs {
        Ok(Some(true)) => Finding::ok(subject, "rpcrdma has nvfs_ops"),
        Ok(Some(false)) => Finding::slow(
            subject,
            "rpcrdma was built without nvfs_ops",
            "NFS over RDMA works, but cuFile cannot go straight to the GPU and falls back to host \
             memory without a word",
            "install the NFS client of DOCA-OFED or MLNX_OFED with GPUDirect Storage \
             (mlnxofedinstall --with-nfsrdma --enable-gds), then umount, modprobe -r rpcrdma, \
             modprobe rpcrdma; grep nvfs_ops /proc/kallsyms must list [rpcrdma]",
        ),
        Ok(None) => Finding::unknown(subject, "the module rpcrdma is not listed in /proc/kallsyms"),
        Err(unknown) => Finding::unknown(subject, unknown.as_str()),
    }
}
