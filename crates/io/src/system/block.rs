//! Block devices as sysfs shows them: partitions, device mapper and md down to the drives.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::mounts::parse_number;
use super::nvme::{NvmeController, controllers};
use super::pci::{PciAddress, numa_node_in, numa_node_of};
use super::root::{Fact, SysRoot, Unknown};

/// Stacks deeper than this are not followed; the kernel itself allows no deeper ones.
const STACK_DEPTH_MAX: u32 = 16;

/// A block device and the devices below it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BlockDevice {
    /// Name in sysfs: `nvme0n1p2`, `md0`, `dm-3`.
    pub name: String,
    /// Device number: major, minor.
    pub number: (u32, u32),
    /// What sort of device it is.
    pub kind: BlockKind,
    /// Model as reported by the drive; `None` for devices without one.
    pub model: Option<String>,
    /// Size.
    pub size_bytes: u64,
    /// Whether it is rotational; `None` if the kernel does not say.
    pub rotational: Option<bool>,
    /// Settings of its request queue (for a partition, that of its disk).
    pub queue: QueueSettings,
    /// The devices below it: the disk of a partition, the members of an array or a mapping. Empty
    /// for a drive.
    pub members: Vec<BlockDevice>,
    /// How it is attached.
    pub transport: Transport,
    /// The PCI device on its data path, the first if there are several paths; `None` for devices on
    /// no bus.
    pub pci: Option<PciAddress>,
    /// The controllers of an NVMe namespace: several where multipath joins them.
    pub controllers: Vec<NvmeController>,
    /// NUMA node of the PCI device; `None` if none is named.
    pub numa_node: Option<u32>,
}

/// What sort of block device it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockKind {
    /// A whole drive, real or virtual.
    Disk,
    /// A partition of one.
    Partition,
    /// An md array.
    Raid {
        /// `raid0`, `raid1`, `linear`.
        level: String,
        /// Bytes on one member before the next; `None` for levels without stripes.
        chunk_bytes: Option<u64>,
        /// Missing members; `None` for levels that cannot miss any.
        degraded: Option<u32>,
    },
    /// A device-mapper mapping.
    Mapping {
        /// Its name, as under `/dev/mapper`.
        name: String,
        /// Its maker, from the start of its identifier: `LVM`, `CRYPT`, `mpath`.
        subsystem: Option<String>,
    },
    /// A file seen as a device.
    Loop {
        /// The file, as named by the machine that set it up; `None` if nothing is attached.
        backing_file: Option<String>,
    },
}

/// How a block device is attached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// NVMe on the PCI bus.
    NvmePcie,
    /// NVMe over a fabric.
    NvmeFabric {
        /// `rdma`, `tcp`, `fc`, `loop`.
        fabric: String,
        /// Address of the target.
        target: Option<String>,
    },
    /// SATA.
    Sata,
    /// SAS.
    Sas,
    /// SCSI over Fibre Channel.
    FibreChannel,
    /// SCSI over TCP.
    Iscsi,
    /// SCSI by another or an unknown way.
    Scsi,
    /// A virtio disk of a virtual machine.
    Virtio,
    /// A disk of a Xen or Hyper-V machine.
    Paravirtual,
    /// USB.
    Usb,
    /// An SD or eMMC card.
    Mmc,
    /// Another machine, through a network block device (`nbd`, `rbd`).
    Network,
    /// Memory of this machine: `ram`, `zram`, `pmem`.
    Memory,
    /// Other devices or files of this machine: md, device mapper, loop.
    Stacked,
    /// None of these.
    Unknown,
}

/// Settings of a request queue. `None` where this kernel or device has no such setting.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct QueueSettings {
    /// The scheduler in use: `none`, `mq-deadline`.
    pub scheduler: Option<String>,
    /// Requests that may wait in the queue.
    pub nr_requests: Option<u32>,
    /// Read-ahead of buffered reads.
    pub read_ahead_bytes: Option<u64>,
    /// Longest request that the kernel sends.
    pub max_request_bytes: Option<u64>,
    /// Longest request that the device accepts.
    pub max_hw_request_bytes: Option<u64>,
    /// Smallest addressable unit.
    pub logical_block_bytes: Option<u32>,
    /// Unit that the drive writes without reading first.
    pub physical_block_bytes: Option<u32>,
    /// Preferred smallest request.
    pub minimum_io_bytes: Option<u32>,
    /// Preferred request (for an array, a full stripe); 0 if the device names none.
    pub optimal_io_bytes: Option<u32>,
    /// 0 merges all requests, 1 only simple ones, 2 none.
    pub nomerges: Option<u32>,
    /// `write back` or `write through`.
    pub write_cache: Option<String>,
    /// Whether completions can be polled.
    pub io_poll: Option<bool>,
}

impl QueueSettings {
    fn of(root: &SysRoot, device: &Path) -> Self {
        let file = |name: &str| device.join("queue").join(name);
        let number = |name: &str| root.parsed::<u32>(file(name)).ok();
        let kib = |name: &str| root.parsed::<u64>(file(name)).ok()?.checked_mul(1024);
        QueueSettings {
            scheduler: root.chosen(file("scheduler")).ok(),
            nr_requests: number("nr_requests"),
            read_ahead_bytes: kib("read_ahead_kb"),
            max_request_bytes: kib("max_sectors_kb"),
            max_hw_request_bytes: kib("max_hw_sectors_kb"),
            logical_block_bytes: number("logical_block_size"),
            physical_block_bytes: number("physical_block_size"),
            minimum_io_bytes: number("minimum_io_size"),
            optimal_io_bytes: number("optimal_io_size"),
            nomerges: number("nomerges"),
            write_cache: root.value(file("write_cache")).ok(),
            io_poll: number("io_poll").map(|value| value != 0),
        }
    }
}

impl BlockDevice {
    /// The drives at the bottom, each once, in the order in which they are found.
    pub fn leaves(&self) -> Vec<&BlockDevice> {
        let mut found: Vec<&BlockDevice> = Vec::new();
        self.collect_leaves(&mut found);
        found
    }

    fn collect_leaves<'a>(&'a self, found: &mut Vec<&'a BlockDevice>) {
        if self.members.is_empty() && !found.iter().any(|leaf| leaf.number == self.number) {
            found.push(self);
        }
        for member in &self.members {
            member.collect_leaves(found);
        }
    }

    /// The PCI devices on its own data path: one for each path to the drive, else the one it is
    /// attached to. Empty for arrays and mappings, whose members have them.
    pub fn pci_addresses(&self) -> Vec<PciAddress> {
        let mut addresses: Vec<_> = self.controllers.iter().filter_map(|c| c.pci).collect();
        addresses.extend(self.pci);
        addresses.sort_unstable();
        addresses.dedup();
        addresses
    }
}

/// The block device with a number.
///
/// # Errors
/// [`Unknown`] if sysfs has no such device: major 0 is never one.
pub fn block_device_of(root: &SysRoot, (major, minor): (u32, u32)) -> Fact<BlockDevice> {
    let folder = root.canonical(format!("/sys/dev/block/{major}:{minor}"))?;
    at_folder(root, &folder, 0)
}

/// The block device with a name: `nvme0n1`, `/dev/nvme0n1p2`, `/dev/mapper/vg-lv`.
///
/// # Errors
/// [`Unknown`] if there is no such device.
pub fn block_device_named(root: &SysRoot, name: &str) -> Fact<BlockDevice> {
    let device_file = Path::new("/dev").join(name);
    // Links such as those under /dev/mapper and /dev/disk lead to the kernel's own name.
    let real = root.canonical(&device_file).unwrap_or(device_file);
    let below_dev = real.strip_prefix("/dev").unwrap_or(&real);
    // A slash in a device's name is an exclamation mark in sysfs.
    let in_sysfs = below_dev.to_string_lossy().replace('/', "!");
    let folder = root.canonical(Path::new("/sys/class/block").join(in_sysfs))?;
    at_folder(root, &folder, 0)
}

/// The device whose folder in sysfs (without links) this is.
fn at_folder(root: &SysRoot, folder: &Path, depth: u32) -> Fact<BlockDevice> {
    /// Sizes in sysfs are in units of 512 bytes, whatever the block size.
    const SECTOR_BYTES: u64 = 512;
    let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let number_text = root.value(folder.join("dev"))?;
    let number = parse_number(&number_text)
        .ok_or_else(|| Unknown::malformed(folder.join("dev"), &number_text))?;
    let sectors: u64 = root.parsed(folder.join("size"))?;
    let kind = kind_of(root, folder, &name);
    let disk = match kind {
        BlockKind::Partition => folder.parent().unwrap_or(folder),
        _ => folder,
    };
    let members = member_folders(root, folder, &kind)
        .iter()
        .filter(|_| depth < STACK_DEPTH_MAX)
        .map(|member| at_folder(root, member, depth + 1))
        .collect::<Fact<Vec<_>>>()?;
    let device = root.canonical(disk.join("device")).ok();
    let controllers = device
        .as_ref()
        .filter(|_| disk.file_name().is_some_and(|disk| disk.to_string_lossy().starts_with("nvme")))
        .map(|device| controllers(root, device))
        .unwrap_or_default();
    let pci = match controllers.iter().find_map(|controller| controller.pci) {
        Some(pci) => Some(pci),
        None => PciAddress::of_sysfs_path(disk),
    };
    Ok(BlockDevice {
        number,
        model: device.as_ref().and_then(|device| model(root, device, &controllers)),
        size_bytes: sectors.saturating_mul(SECTOR_BYTES),
        rotational: root.parsed::<u32>(disk.join("queue/rotational")).ok().map(|turns| turns != 0),
        queue: QueueSettings::of(root, disk),
        members,
        transport: transport_of(disk, &kind, &controllers),
        numa_node: match pci {
            Some(pci) => numa_node_of(root, &pci),
            None => device.and_then(|device| numa_node_in(root, &device)),
        },
        pci,
        controllers,
        kind,
        name,
    })
}

fn kind_of(root: &SysRoot, folder: &Path, name: &str) -> BlockKind {
    let value = |file: &str| root.value(folder.join(file)).ok();
    if root.exists(folder.join("partition")) {
        return BlockKind::Partition;
    }
    if let Some(mapping) = value("dm/name") {
        let identifier = value("dm/uuid").filter(|identifier| !identifier.is_empty());
        let subsystem = identifier.and_then(|it| it.split('-').next().map(str::to_string));
        return BlockKind::Mapping { name: mapping, subsystem };
    }
    if let Some(level) = value("md/level") {
        let number = |file: &str| value(file)?.parse::<u64>().ok();
        return BlockKind::Raid {
            level,
            chunk_bytes: number("md/chunk_size").filter(|bytes| *bytes != 0),
            degraded: number("md/degraded").and_then(|missing| u32::try_from(missing).ok()),
        };
    }
    if name.starts_with("loop") {
        return BlockKind::Loop { backing_file: value("loop/backing_file") };
    }
    BlockKind::Disk
}

fn member_folders(root: &SysRoot, folder: &Path, kind: &BlockKind) -> Vec<PathBuf> {
    if *kind == BlockKind::Partition {
        return folder.parent().map(Path::to_path_buf).into_iter().collect();
    }
    let slaves = folder.join("slaves");
    let names = root.names(&slaves).unwrap_or_default();
    names.iter().filter_map(|name| root.canonical(slaves.join(name)).ok()).collect()
}

fn model(root: &SysRoot, device: &Path, controllers: &[NvmeController]) -> Option<String> {
    let text = |folder: &Path, file: &str| {
        root.value(folder.join(file)).ok().filter(|text| !text.is_empty())
    };
    let model = text(device, "model")?;
    // SCSI tells the vendor apart; NVMe has it in the model. Virtio numbers are no vendor's name.
    match text(device, "vendor").filter(|vendor| !vendor.starts_with("0x")) {
        Some(vendor) if controllers.is_empty() && vendor != "ATA" => {
            Some(format!("{vendor} {model}"))
        }
        _ => Some(model),
    }
}

fn transport_of(disk: &Path, kind: &BlockKind, controllers: &[NvmeController]) -> Transport {
    if let Some(controller) = controllers.first() {
        if !controller.is_fabric() {
            return Transport::NvmePcie;
        }
        return Transport::NvmeFabric {
            fabric: controller.transport.clone(),
            target: controller.target().map(str::to_string),
        };
    }
    match kind {
        BlockKind::Raid { .. } | BlockKind::Mapping { .. } | BlockKind::Loop { .. } => {
            Transport::Stacked
        }
        BlockKind::Disk | BlockKind::Partition => transport_by_path(disk),
    }
}

/// From the bus names on the way to the device, the most specific first: a USB disk is also a SCSI
/// disk.
fn transport_by_path(disk: &Path) -> Transport {
    let parts: Vec<String> =
        disk.components().map(|part| part.as_os_str().to_string_lossy().into_owned()).collect();
    let has = |prefix: &str| {
        parts.iter().any(|part| {
            part.strip_prefix(prefix)
                .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        })
    };
    let name = parts.last().map(String::as_str).unwrap_or_default();
    match name {
        _ if has("usb") => Transport::Usb,
        _ if has("virtio") => Transport::Virtio,
        _ if has("vbd-") || parts.iter().any(|part| part.starts_with("VMBUS")) => {
            Transport::Paravirtual
        }
        _ if has("mmc") => Transport::Mmc,
        _ if has("ata") => Transport::Sata,
        _ if has("end_device-") => Transport::Sas,
        _ if has("rport-") => Transport::FibreChannel,
        _ if has("session") => Transport::Iscsi,
        _ if has("host") => Transport::Scsi,
        name if name.starts_with("nbd") || name.starts_with("rbd") => Transport::Network,
        name if ["ram", "zram", "pmem"].iter().any(|it| name.starts_with(it)) => Transport::Memory,
        _ => Transport::Unknown,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::system::testing::{Tree, address};

    #[test]
    fn a_partition_leads_to_its_drive() {
        let tree = Tree::new();
        let disk = tree.nvme("pci0000:80/0000:80:01.0", "0000:81:00.0", 1, 0);
        tree.partition(&disk, "nvme0n1p2", "259:12");
        let part = block_device_of(&tree.root(), (259, 12)).unwrap();
        assert_eq!((part.name.as_str(), &part.kind), ("nvme0n1p2", &BlockKind::Partition));
        assert_eq!(part.size_bytes, 1 << 30);
        assert_eq!((part.rotational, part.numa_node), (Some(false), Some(1)));
        let leaves = part.leaves();
        assert_eq!(leaves.len(), 1);
        assert_eq!((leaves[0].name.as_str(), leaves[0].number), ("nvme0n1", (259, 0)));
        assert_eq!(leaves[0].model.as_deref(), Some("Test Drive 7T"));
        assert_eq!(leaves[0].transport, Transport::NvmePcie);
        assert_eq!(leaves[0].pci, Some(address("0000:81:00.0")));
        let queue = &leaves[0].queue;
        assert_eq!(queue.scheduler.as_deref(), Some("none"));
        assert_eq!(queue.max_hw_request_bytes, Some(2 << 20));
        assert_eq!((queue.optimal_io_bytes, queue.io_poll), (Some(0), None));
    }

    #[test]
    fn a_volume_on_an_array_of_partitions() {
        let tree = Tree::new();
        let mut parts = Vec::new();
        for index in 0..4 {
            let at = format!("0000:8{index}:00.0");
            let disk = tree.nvme("pci0000:80/0000:80:01.0", &at, 0, index);
            tree.partition(&disk, &format!("nvme{index}n1p1"), &format!("259:1{index}"));
            parts.push(format!("{disk}/nvme{index}n1p1"));
        }
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let array = tree.stacked("md0", "9:0", &parts);
        tree.file(&format!("{array}/md/level"), "raid0\n");
        tree.file(&format!("{array}/md/chunk_size"), "524288\n");
        let volume = tree.stacked("dm-3", "253:3", &[&array]);
        tree.file(&format!("{volume}/dm/name"), "vg-tables\n");
        tree.file(&format!("{volume}/dm/uuid"), "LVM-abcdef\n");
        tree.link("/dev/mapper/vg-tables", "../dm-3").file("/dev/dm-3", "");
        let root = tree.root();
        let found = block_device_named(&root, "/dev/mapper/vg-tables").unwrap();
        assert_eq!(found, block_device_of(&root, (253, 3)).unwrap());
        let subsystem = Some("LVM".to_string());
        assert_eq!(found.kind, BlockKind::Mapping { name: "vg-tables".into(), subsystem });
        assert_eq!((&found.transport, found.pci), (&Transport::Stacked, None));
        let raid =
            BlockKind::Raid { level: "raid0".into(), chunk_bytes: Some(512 << 10), degraded: None };
        assert_eq!(found.members[0].kind, raid);
        let names: Vec<_> = found.leaves().iter().map(|leaf| leaf.name.clone()).collect();
        assert_eq!(names, ["nvme0n1", "nvme1n1", "nvme2n1", "nvme3n1"]);
    }

    #[test]
    fn a_multipath_namespace_has_the_controllers_below_it() {
        let tree = Tree::new();
        tree.nvme("pci0000:80/0000:80:01.0", "0000:81:00.0", 1, 0);
        let subsystem = "/sys/devices/virtual/nvme-subsystem/nvme-subsys0";
        let controller = "/sys/devices/pci0000:80/0000:80:01.0/0000:81:00.0/nvme/nvme0";
        tree.link_to(&format!("{subsystem}/nvme0"), controller);
        tree.file(&format!("{subsystem}/model"), "Dual Port\n");
        tree.block(&format!("{subsystem}/nvme9n1"), "259:90", 4096);
        tree.link(&format!("{subsystem}/nvme9n1/device"), "../../nvme-subsys0");
        let found = block_device_of(&tree.root(), (259, 90)).unwrap();
        assert_eq!(found.pci_addresses(), [address("0000:81:00.0")]);
        assert_eq!((found.transport, found.numa_node), (Transport::NvmePcie, Some(1)));
        assert_eq!(found.model.as_deref(), Some("Dual Port"));
    }

    #[test]
    fn transports_by_the_way_to_the_device() {
        let by = |path: &str| transport_by_path(Path::new(path));
        let pci = "/sys/devices/pci0000:00/0000:00:02.0";
        for (below, transport) in [
            ("virtio1/block/vda", Transport::Virtio),
            ("ata3/host2/target2:0:0/2:0:0:0/block/sda", Transport::Sata),
            ("host0/port-0:0/end_device-0:0/target0:0:0/0:0:0:0/block/sdb", Transport::Sas),
            ("usb2/2-1/2-1:1.0/host6/target6:0:0/6:0:0:0/block/sdc", Transport::Usb),
            ("host7/rport-7:0-0/target7:0:0/7:0:0:0/block/sdd", Transport::FibreChannel),
            ("host1/target1:0:0/1:0:0:0/block/sde", Transport::Scsi),
            ("strange/block/xyz", Transport::Unknown),
        ] {
            assert_eq!(by(&format!("{pci}/{below}")), transport, "{below}");
        }
        let iscsi = "/sys/devices/platform/host3/session1/target3:0:0/3:0:0:1/block/sdf";
        assert_eq!(by(iscsi), Transport::Iscsi);
        assert_eq!(by("/sys/devices/virtual/block/nbd0"), Transport::Network);
        assert_eq!(by("/sys/devices/virtual/block/zram0"), Transport::Memory);
    }

    #[test]
    fn a_virtio_disk_and_a_loop_device() {
        let tree = Tree::new();
        tree.pci("pci0000:00", "0000:00:02.0", -1, ("Unknown\n", "0\n"));
        let disk = "/sys/devices/pci0000:00/0000:00:02.0/virtio1/block/vda";
        tree.block(disk, "254:0", 1 << 36);
        tree.file("/sys/devices/pci0000:00/0000:00:02.0/virtio1/vendor", "0x1af4\n");
        tree.link(&format!("{disk}/device"), "../../../virtio1");
        let found = block_device_of(&tree.root(), (254, 0)).unwrap();
        assert_eq!((&found.transport, found.model.as_deref()), (&Transport::Virtio, None));
        assert_eq!((found.pci, found.numa_node), (Some(address("0000:00:02.0")), None));
        assert_eq!((found.rotational, &found.queue), (None, &QueueSettings::default()));

        let file = "/sys/devices/virtual/block/loop0";
        tree.block(file, "7:0", 4096).file(&format!("{file}/loop/backing_file"), "/data/a.img\n");
        let found = block_device_of(&tree.root(), (7, 0)).unwrap();
        assert_eq!(found.kind, BlockKind::Loop { backing_file: Some("/data/a.img".into()) });
    }

    #[test]
    fn no_such_device() {
        let tree = Tree::new();
        assert!(block_device_of(&tree.root(), (0, 42)).unwrap_err().is_missing());
        assert!(block_device_named(&tree.root(), "nvme0n1").unwrap_err().is_missing());
        tree.block("/sys/devices/virtual/block/odd", "1:1", 0);
        tree.file("/sys/devices/virtual/block/odd/size", "many\n");
        assert!(!block_device_of(&tree.root(), (1, 1)).unwrap_err().is_missing());
    }
}
