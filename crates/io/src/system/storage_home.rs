//! Where the bytes of a path really lie, and which GPU is nearest.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::block::{BlockDevice, block_device_named, block_device_of};
use super::distance::{Distance, pci_relation};
use super::mounts::{Mount, location, mount_of};
use super::nfs::NfsMount;
use super::pci::PciAddress;
use super::root::{Fact, SysRoot, Unknown, fact, lossy};

/// Deeper stacks of filesystems are not followed; overlayfs allows two.
const LAYERS_MAX: u32 = 4;

/// Where the bytes of a path lie.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StorageHome {
    /// The path, absolute and without symbolic links.
    #[serde(serialize_with = "lossy")]
    pub path: PathBuf,
    /// The mount that it lies on (for a block device, that of its device file).
    #[serde(serialize_with = "fact")]
    pub mount: Fact<Mount>,
    /// The mounts below an overlay on which its files really lie, topmost first.
    pub below: Vec<Mount>,
    /// On what sort of thing the bytes lie.
    #[serde(serialize_with = "fact")]
    pub medium: Fact<Medium>,
    /// The block devices that hold the filesystem, with all devices below them.
    pub stack: Vec<BlockDevice>,
    /// The drives at the bottom of them, each once.
    pub devices: Vec<BlockDevice>,
    /// The PCI devices on the data path: drives, or network cards towards a server.
    pub pci: Vec<PciAddress>,
    /// The NFS mount that it lies on.
    pub nfs: Option<NfsMount>,
}

/// On what sort of thing bytes lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Medium {
    /// Memory of this machine.
    Memory,
    /// Block devices.
    Block,
    /// An NFS server.
    Nfs,
}

/// What a filesystem lies on.
enum Ground {
    Memory,
    Block(Vec<BlockDevice>),
    Nfs(Box<NfsMount>),
}

impl StorageHome {
    /// The location of a path: a file, a folder, a block device, or a file that is still to be
    /// written. Unknown parts are in the members, with the reason.
    pub fn of(root: &SysRoot, path: &Path) -> StorageHome {
        let place = location(root, path);
        let mount = mount_of(root, &place);
        let mut below = Vec::new();
        let ground = match (device_at(root, &place), &mount) {
            (Some(device), _) => device.map(|device| Ground::Block(vec![device])),
            (None, Ok(mount)) => ground_of(root, mount, &mut below),
            (None, Err(unknown)) => Err(unknown.clone()),
        };
        let mut home = StorageHome {
            path: place,
            mount,
            below,
            medium: Ok(Medium::Memory),
            stack: Vec::new(),
            devices: Vec::new(),
            pci: Vec::new(),
            nfs: None,
        };
        home.stand_on(ground);
        home
    }

    fn stand_on(&mut self, ground: Fact<Ground>) {
        match ground {
            Err(unknown) => self.medium = Err(unknown),
            Ok(Ground::Memory) => self.medium = Ok(Medium::Memory),
            Ok(Ground::Nfs(nfs)) => {
                self.medium = Ok(Medium::Nfs);
                self.pci = nfs.interface.as_ref().map(|it| it.pci.clone()).unwrap_or_default();
                self.nfs = Some(*nfs);
            }
            Ok(Ground::Block(stack)) => {
                self.medium = Ok(Medium::Block);
                for leaf in stack.iter().flat_map(BlockDevice::leaves) {
                    if !self.devices.iter().any(|known| known.number == leaf.number) {
                        self.devices.push(leaf.clone());
                    }
                }
                self.pci = self.devices.iter().flat_map(BlockDevice::pci_addresses).collect();
                self.pci.sort_unstable();
                self.pci.dedup();
                self.stack = stack;
            }
        }
    }

    /// The devices that the bytes pass on their way into the machine, each with a readable name.
    fn sources(&self) -> Vec<(String, PciAddress)> {
        let drives = self.devices.iter().flat_map(|device| {
            let addresses = device.pci_addresses();
            addresses.into_iter().map(|address| (device.name.clone(), address))
        });
        let cards = self.nfs.iter().filter_map(|nfs| nfs.interface.as_ref().ok());
        let cards =
            cards.flat_map(|card| card.pci.iter().map(|address| (card.name.clone(), *address)));
        drives.chain(cards).collect()
    }
}

/// The block device that the path itself names, if it names one.
fn device_at(root: &SysRoot, place: &Path) -> Option<Fact<BlockDevice>> {
    if root.is_host() {
        let metadata = std::fs::metadata(place).ok()?;
        let number = metadata.rdev();
        return metadata
            .file_type()
            .is_block_device()
            .then(|| block_device_of(root, (libc::major(number), libc::minor(number))));
    }
    // A recorded tree has plain files instead of device files: their names tell.
    place
        .starts_with("/dev")
        .then(|| block_device_named(root, &place.to_string_lossy()).ok())?
        .map(Ok)
}

fn ground_of(root: &SysRoot, mount: &Mount, below: &mut Vec<Mount>) -> Fact<Ground> {
    if mount.is_memory() {
        return Ok(Ground::Memory);
    }
    if let Some(nfs) = NfsMount::of(root, mount) {
        return Ok(Ground::Nfs(Box::new(nfs)));
    }
    if mount.filesystem == "overlay" {
        return below_overlay(root, mount, below);
    }
    if mount.device.0 != 0 {
        return Ok(Ground::Block(vec![block_device_of(root, mount.device)?]));
    }
    match mount.filesystem.as_str() {
        "btrfs" => btrfs_devices(root, &mount.source).map(Ground::Block),
        // One device or several, separated by colons.
        _ if mount.source.starts_with("/dev/") => {
            let names = mount.source.split(':');
            names.map(|name| block_device_named(root, name)).collect::<Fact<_>>().map(Ground::Block)
        }
        _ => Err(not_published(mount)),
    }
}

fn not_published(mount: &Mount) -> Unknown {
    let Mount { filesystem, source, .. } = mount;
    let who_knows = match filesystem.as_str() {
        "zfs" => {
            let pool = source.split('/').next().unwrap_or(source);
            format!("ZFS does not publish the devices of a pool: zpool status {pool} lists them")
        }
        "9p" | "virtiofs" => "the files lie on the host of this virtual machine".to_string(),
        "ceph" | "cifs" | "smb3" | "lustre" | "beegfs" | "wekafs" | "gpfs" | "afs" => {
            format!("the files lie on the servers of {source}")
        }
        other if other.starts_with("fuse") => {
            format!("a program serves the files ({source}); only it knows where they lie")
        }
        other => format!("{other} has no block device"),
    };
    Unknown::not_published(format!("what {filesystem} lies on"), who_knows)
}

/// Follows an overlay to its writable layer, or else to its uppermost read-only layer. Files of
/// lower layers may lie elsewhere; the kernel does not publish which layer a file is in.
fn below_overlay(root: &SysRoot, overlay: &Mount, below: &mut Vec<Mount>) -> Fact<Ground> {
    let unknown = |what: String| Unknown::not_published("what overlay lies on", what);
    let layer = overlay
        .option("upperdir")
        .or_else(|| overlay.option("lowerdir").and_then(|layers| layers.split(':').next()))
        .filter(|layer| layer.starts_with('/'))
        .ok_or_else(|| unknown("the mount table does not say where its layers are".to_string()))?;
    let mount = mount_of(root, Path::new(layer))?;
    // In a container the layers are named as the host names them; here that leads elsewhere.
    if mount.id == overlay.id || below.iter().any(|known| known.id == mount.id) {
        return Err(unknown(format!("its layer {layer} lies outside of this container")));
    }
    if below.len() as u32 >= LAYERS_MAX {
        return Err(unknown("too many layers upon each other".to_string()));
    }
    below.push(mount.clone());
    ground_of(root, &mount, below)
}

/// The devices of a btrfs filesystem, of which the mount table names one.
fn btrfs_devices(root: &SysRoot, source: &str) -> Fact<Vec<BlockDevice>> {
    const FILESYSTEMS: &str = "/sys/fs/btrfs";
    let one = block_device_named(root, source)?;
    let members = root.names(FILESYSTEMS).unwrap_or_default().into_iter().find_map(|identifier| {
        let names = root.names(format!("{FILESYSTEMS}/{identifier}/devices")).ok()?;
        names.contains(&one.name).then_some(names)
    });
    match members {
        Some(names) => names.iter().map(|name| block_device_named(root, name)).collect(),
        None => Ok(vec![one]),
    }
}

/// The GPU that should take the bytes of some storage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NearestGpu {
    /// Its place in the given list; `None` if none is nearest.
    pub gpu: Option<usize>,
    /// Why, in words.
    pub reason: String,
    /// For each GPU, the distance of the farthest of the storage's devices.
    pub distances: Vec<Distance>,
}

/// The GPU nearest to some storage by the PCI bus. With several drives the farthest one counts,
/// then the next. No GPU is preferred if two are equally near or a distance is unknown; the caller
/// then spreads the work freely.
pub fn nearest_gpu(root: &SysRoot, storage: &StorageHome, gpus: &[PciAddress]) -> NearestGpu {
    let sources = storage.sources();
    // For each GPU the distances of all sources, the farthest first.
    let by_gpu: Vec<Vec<Distance>> =
        gpus.iter().map(|gpu| distances(root, &sources, gpu)).collect();
    let farthest = |all: &Vec<Distance>| all.first().copied().unwrap_or(Distance::Unknown);
    let (gpu, reason) = choose(root, storage, &sources, gpus, &by_gpu);
    NearestGpu { gpu, reason, distances: by_gpu.iter().map(farthest).collect() }
}

fn distances(root: &SysRoot, sources: &[(String, PciAddress)], gpu: &PciAddress) -> Vec<Distance> {
    let one = |(_, source): &(String, PciAddress)| pci_relation(root, source, gpu).0;
    let mut found: Vec<Distance> = sources.iter().map(one).collect();
    found.sort_unstable_by(|a, b| b.cmp(a));
    found
}

fn choose(
    root: &SysRoot,
    storage: &StorageHome,
    sources: &[(String, PciAddress)],
    gpus: &[PciAddress],
    by_gpu: &[Vec<Distance>],
) -> (Option<usize>, String) {
    let Some(best) = (0..by_gpu.len()).min_by_key(|gpu| &by_gpu[*gpu]) else {
        return (None, "there is no GPU".to_string());
    };
    if sources.is_empty() {
        let alone = (gpus.len() == 1).then_some(0);
        return (alone, without_source(storage));
    }
    let names = names_of(sources);
    if gpus.len() == 1 {
        return (Some(0), format!("{}; it is the only GPU", relation(root, sources, 0, &gpus[0])));
    }
    if by_gpu.iter().any(|all| all.contains(&Distance::Unknown)) {
        return (None, format!("how far {names} and the GPUs are from each other is not known"));
    }
    let equal: Vec<String> = (0..by_gpu.len())
        .filter(|gpu| by_gpu[*gpu] == by_gpu[best])
        .map(|gpu| format!("GPU {gpu}"))
        .collect();
    if equal.len() > 1 {
        let distance = by_gpu[best][0];
        let equal = equal.join(" and ");
        return (None, format!("{equal} are equally near to {names} ({distance})"));
    }
    (Some(best), relation(root, sources, best, &gpus[best]))
}

fn without_source(storage: &StorageHome) -> String {
    match &storage.medium {
        Ok(Medium::Memory) => "the file lies in memory, near no GPU in particular".to_string(),
        Ok(Medium::Block) => {
            let names: Vec<&str> = storage.devices.iter().map(|it| it.name.as_str()).collect();
            format!("{} hangs on no PCI device", names.join(", "))
        }
        Ok(Medium::Nfs) => match storage.nfs.as_ref().map(|nfs| &nfs.interface) {
            Some(Ok(card)) => format!("the interface {} hangs on no PCI device", card.name),
            Some(Err(unknown)) => unknown.to_string(),
            None => "the network card towards the server is not known".to_string(),
        },
        Err(unknown) => unknown.to_string(),
    }
}

/// The first names, and a count of the rest.
fn names_of(sources: &[(String, PciAddress)]) -> String {
    const SHOWN_MAX: usize = 4;
    let mut names: Vec<&str> = sources.iter().map(|(name, _)| name.as_str()).collect();
    names.dedup();
    match names.len() {
        1..=SHOWN_MAX => names.join(", "),
        many => format!("{} and {} more", names[..SHOWN_MAX].join(", "), many - SHOWN_MAX),
    }
}

/// `nvme0n1 and GPU 1 share the switch 0000:80:01.0, 2 hops`
fn relation(
    root: &SysRoot,
    sources: &[(String, PciAddress)],
    index: usize,
    gpu: &PciAddress,
) -> String {
    let relations = sources.iter().map(|(_, source)| pci_relation(root, source, gpu));
    // The farthest source is what the choice was made by.
    let (distance, bridge) = relations.max().unwrap_or((Distance::Unknown, None));
    let names = names_of(sources);
    match (distance, bridge) {
        (Distance::SameDevice, _) => format!("{names} and GPU {index} are one device"),
        (Distance::SameSwitch(hops), Some(bridge)) => {
            format!("{names} and GPU {index} share the switch {bridge}, {hops} hops")
        }
        (Distance::SameSwitch(_) | Distance::SameRootComplex, _) => {
            format!("{names} and GPU {index} share a root complex")
        }
        (Distance::SameNode, _) => format!("{names} and GPU {index} are on the same NUMA node"),
        (Distance::OtherNode, _) => format!("{names} and GPU {index} are on different NUMA nodes"),
        (Distance::Unknown, _) => format!("how far {names} is from GPU {index} is not known"),
    }
}

#[cfg(test)]
mod tests;
