//! Whole machines, recorded.

#![allow(clippy::unwrap_used)]
use super::*;
use crate::system::testing::{Tree, address};
use crate::system::{BlockKind, Transport};

const GEN5: (&str, &str) = ("32.0 GT/s PCIe\n", "16\n");

fn home(tree: &Tree, path: &str) -> StorageHome {
    StorageHome::of(&tree.root(), Path::new(path))
}

fn names(home: &StorageHome) -> Vec<&str> {
    home.devices.iter().map(|device| device.name.as_str()).collect()
}

/// Two GPUs, each on its node: GPU 0 below the switch of four drives, GPU 1 elsewhere. The first
/// drive has the root filesystem on a partition.
fn two_gpus() -> (Tree, [PciAddress; 2]) {
    let tree = Tree::new();
    let switch = "pci0000:80/0000:80:01.0/0000:81:00.0";
    tree.pci(&format!("{switch}/0000:82:00.0"), "0000:83:00.0", 0, GEN5);
    tree.pci("pci0000:c0/0000:c0:01.0", "0000:c1:00.0", 1, GEN5);
    for index in 0..4 {
        let bridges = format!("{switch}/0000:82:0{}.0", index + 1);
        let drive = tree.nvme(&bridges, &format!("0000:9{index}:00.0"), 0, index);
        tree.partition(&drive, &format!("nvme{index}n1p1"), &format!("259:2{index}"));
    }
    for node in 0..2 {
        tree.file(&format!("/sys/devices/system/node/node{node}/cpulist"), "0\n");
    }
    (tree, [address("0000:83:00.0"), address("0000:c1:00.0")])
}

fn drive(index: u32) -> String {
    format!(
        "/sys/devices/pci0000:80/0000:80:01.0/0000:81:00.0/0000:82:0{}.0/0000:9{index}:00.0\
         /nvme/nvme{index}/nvme{index}n1",
        index + 1
    )
}

#[test]
fn ext4_on_a_partition() {
    let (tree, gpus) = two_gpus();
    tree.mountinfo("27 1 259:21 / / rw - ext4 /dev/nvme1n1p1 rw\n");
    let found = home(&tree, "/tables/a.arrow");
    assert_eq!(found.medium, Ok(Medium::Block));
    assert_eq!(found.stack[0].kind, BlockKind::Partition);
    assert_eq!(names(&found), ["nvme1n1"]);
    assert_eq!(found.pci, [address("0000:91:00.0")]);
    let nearest = nearest_gpu(&tree.root(), &found, &gpus);
    assert_eq!(nearest.gpu, Some(0));
    assert_eq!(nearest.reason, "nvme1n1 and GPU 0 share the switch 0000:81:00.0, 4 hops");
    assert_eq!(nearest.distances, [Distance::SameSwitch(4), Distance::OtherNode]);
}

#[test]
fn xfs_on_an_array_and_a_volume_upon_it() {
    let (tree, gpus) = two_gpus();
    let drives: Vec<String> = (0..4).map(drive).collect();
    let drives: Vec<&str> = drives.iter().map(String::as_str).collect();
    let array = tree.stacked("md0", "9:0", &drives);
    tree.file(&format!("{array}/md/level"), "raid0\n");
    let volume = tree.stacked("dm-0", "253:0", &[&array]);
    tree.file(&format!("{volume}/dm/name"), "vg-lv\n");
    tree.mountinfo(
        "27 1 259:20 / / rw - ext4 /dev/nvme0n1p1 rw\n\
         40 27 9:0 / /array rw - xfs /dev/md0 rw\n\
         41 27 253:0 / /volume rw - xfs /dev/mapper/vg-lv rw\n",
    );
    let all = ["nvme0n1", "nvme1n1", "nvme2n1", "nvme3n1"];
    for path in ["/array/a", "/volume/a"] {
        let found = home(&tree, path);
        assert_eq!(names(&found), all, "{path}");
        assert_eq!(found.pci.len(), 4);
        let nearest = nearest_gpu(&tree.root(), &found, &gpus);
        assert_eq!(nearest.gpu, Some(0));
        let reason =
            "nvme0n1, nvme1n1, nvme2n1, nvme3n1 and GPU 0 share the switch 0000:81:00.0, 4 hops";
        assert_eq!(nearest.reason, reason);
    }
}

/// Drives on two nodes, a GPU on each.
fn drives_on_two_nodes(on_node_0: u32, on_node_1: u32) -> (Tree, [PciAddress; 2]) {
    let tree = Tree::new();
    tree.pci("pci0000:10/0000:10:01.0", "0000:11:00.0", 0, GEN5);
    tree.pci("pci0000:c0/0000:c0:01.0", "0000:c1:00.0", 1, GEN5);
    let mut drives = Vec::new();
    for index in 0..on_node_0 + on_node_1 {
        let node = i32::from(index >= on_node_0);
        let bus = if node == 0 { "20" } else { "d0" };
        let bridges = format!("pci0000:{bus}/0000:{bus}:0{}.0", index + 1);
        drives.push(tree.nvme(&bridges, &format!("0000:{bus}:1{index}.0"), node, index));
    }
    for node in 0..2 {
        tree.file(&format!("/sys/devices/system/node/node{node}/cpulist"), "0\n");
    }
    let drives: Vec<&str> = drives.iter().map(String::as_str).collect();
    tree.stacked("md0", "9:0", &drives);
    tree.mountinfo("27 1 9:0 / / rw - xfs /dev/md0 rw\n");
    (tree, [address("0000:11:00.0"), address("0000:c1:00.0")])
}

#[test]
fn an_array_over_both_nodes() {
    let (tree, gpus) = drives_on_two_nodes(2, 2);
    let nearest = nearest_gpu(&tree.root(), &home(&tree, "/a"), &gpus);
    assert_eq!(nearest.gpu, None);
    assert!(nearest.reason.starts_with("GPU 0 and GPU 1 are equally near"), "{}", nearest.reason);

    // The farthest drive is equally far from both; more of the others are near GPU 1.
    let (tree, gpus) = drives_on_two_nodes(1, 3);
    let nearest = nearest_gpu(&tree.root(), &home(&tree, "/a"), &gpus);
    assert_eq!(nearest.gpu, Some(1), "{}", nearest.reason);

    let (tree, gpus) = drives_on_two_nodes(3, 0);
    let nearest = nearest_gpu(&tree.root(), &home(&tree, "/a"), &gpus);
    let reason = "nvme0n1, nvme1n1, nvme2n1 and GPU 0 are on the same NUMA node";
    assert_eq!((nearest.gpu, nearest.reason.as_str()), (Some(0), reason));
}

/// A network card next to GPU 1, with the route to 10.0.0.0/24.
fn network_card(tree: &Tree) {
    tree.pci("pci0000:c0/0000:c0:01.0", "0000:c2:00.0", 1, GEN5);
    let net = "/sys/devices/pci0000:c0/0000:c0:01.0/0000:c2:00.0/net/ens1";
    tree.file(&format!("{net}/mtu"), "4200\n").link_to("/sys/class/net/ens1", net);
    tree.link(&format!("{net}/device"), "../../../0000:c2:00.0");
    tree.file("/proc/net/route", "header\nens1 0000000A 00000000 0001 0 0 0 00FFFFFF 0 0 0\n");
}

#[test]
fn nvme_over_fabrics_and_nfs_pass_the_network_card() {
    let (tree, gpus) = two_gpus();
    network_card(&tree);
    let controller = "/sys/devices/virtual/nvme-fabrics/ctl/nvme7";
    tree.file(&format!("{controller}/transport"), "rdma\n");
    tree.file(&format!("{controller}/address"), "traddr=10.0.0.1,trsvcid=4420\n");
    let namespace = format!("{controller}/nvme7n1");
    tree.block(&namespace, "259:70", 1 << 40);
    tree.link(&format!("{namespace}/device"), "../../nvme7");
    tree.mountinfo(
        "27 1 259:20 / / rw - ext4 /dev/nvme0n1p1 rw\n\
         40 27 259:70 / /fabric rw - xfs /dev/nvme7n1 rw\n\
         41 27 0:58 / /nfs rw - nfs4 store:/t rw,vers=4.2,proto=rdma,nconnect=16,addr=10.0.0.1\n\
         42 27 0:59 / /far rw - nfs4 far:/t rw,vers=4.2,proto=tcp,addr=172.16.0.1\n",
    );
    let fabric = home(&tree, "/fabric/a");
    let rdma = Transport::NvmeFabric { fabric: "rdma".into(), target: Some("10.0.0.1".into()) };
    assert_eq!(fabric.devices[0].transport, rdma);
    let nearest = nearest_gpu(&tree.root(), &fabric, &gpus);
    assert_eq!(nearest.reason, "nvme7n1 and GPU 1 share the switch 0000:c0:01.0, 2 hops");
    assert_eq!(nearest.gpu, Some(1));

    let nfs = home(&tree, "/nfs/a");
    assert_eq!((nfs.medium.clone(), nfs.devices.len()), (Ok(Medium::Nfs), 0));
    assert_eq!(nfs.nfs.as_ref().unwrap().interface.as_ref().unwrap().mtu, Some(4200));
    let nearest = nearest_gpu(&tree.root(), &nfs, &gpus);
    assert_eq!(nearest.reason, "ens1 and GPU 1 share the switch 0000:c0:01.0, 2 hops");

    let far = nearest_gpu(&tree.root(), &home(&tree, "/far/a"), &gpus);
    assert_eq!((far.gpu, far.distances), (None, vec![Distance::Unknown; 2]));
    assert!(far.reason.contains("no route to 172.16.0.1"), "{}", far.reason);
}

#[test]
fn overlay_over_ext4_and_overlay_in_a_container() {
    let (tree, _) = two_gpus();
    tree.mountinfo(
        "27 1 259:20 / / rw - ext4 /dev/nvme0n1p1 rw\n\
         40 27 259:22 / /data rw - ext4 /dev/nvme2n1p1 rw\n\
         41 27 0:50 / /merged rw - overlay overlay rw,lowerdir=/low:/lower,upperdir=/data/up,workdir=/data/w\n\
         42 27 0:51 / /reading ro - overlay overlay ro,lowerdir=/data/a:/low\n",
    );
    let found = home(&tree, "/merged/x");
    assert_eq!(names(&found), ["nvme2n1"]);
    assert_eq!(found.mount.as_ref().unwrap().filesystem, "overlay");
    assert_eq!(found.below[0].mount_point, Path::new("/data"));
    assert_eq!(names(&home(&tree, "/reading/x")), ["nvme2n1"]);

    tree.mountinfo(
        "27 1 0:50 / / rw - overlay overlay rw,lowerdir=/var/l,upperdir=/var/u,workdir=/w\n",
    );
    let contained = home(&tree, "/x");
    let reason = contained.medium.unwrap_err().to_string();
    assert!(reason.contains("outside of this container"), "{reason}");
    assert!(contained.devices.is_empty());
}

#[test]
fn memory_and_a_virtual_disk() {
    let tree = Tree::new();
    let disk = "/sys/devices/pci0000:00/0000:00:02.0/virtio1/block/vda";
    tree.pci("pci0000:00", "0000:00:02.0", -1, ("Unknown\n", "0\n"));
    tree.pci("pci0000:00", "0000:00:05.0", -1, GEN5);
    tree.block(disk, "254:0", 1 << 36).link(&format!("{disk}/device"), "../../../virtio1");
    tree.mountinfo(
        "27 1 254:0 / / rw - ext4 /dev/vda rw\n25 27 0:23 / /dev/shm rw - tmpfs tmpfs rw\n",
    );
    let found = home(&tree, "/a");
    assert_eq!((names(&found), &found.devices[0].transport), (vec!["vda"], &Transport::Virtio));
    let gpu = [address("0000:00:05.0")];
    let nearest = nearest_gpu(&tree.root(), &found, &gpu);
    let reason = "vda and GPU 0 share a root complex; it is the only GPU";
    assert_eq!((nearest.gpu, nearest.reason.as_str()), (Some(0), reason));

    let memory = home(&tree, "/dev/shm/a");
    assert_eq!((memory.medium.clone(), memory.pci.len()), (Ok(Medium::Memory), 0));
    let nearest = nearest_gpu(&tree.root(), &memory, &[gpu[0], gpu[0]]);
    assert_eq!(nearest.gpu, None);
    assert!(nearest.reason.contains("in memory"));
    assert_eq!(nearest_gpu(&tree.root(), &memory, &[]).reason, "there is no GPU");
}

#[test]
fn filesystems_with_anonymous_numbers() {
    let (tree, gpus) = two_gpus();
    for member in ["nvme1n1", "nvme3n1"] {
        tree.folder(&format!("/sys/fs/btrfs/0a1b/devices/{member}"));
    }
    tree.folder("/sys/fs/btrfs/features").folder("/sys/fs/btrfs/ffff/devices/nvme0n1");
    tree.mountinfo(
        "27 1 259:20 / / rw - ext4 /dev/nvme0n1p1 rw\n\
         40 27 0:40 /@tables /many rw - btrfs /dev/nvme3n1 rw,subvol=/@tables\n\
         41 27 0:41 / /one rw - btrfs /dev/nvme2n1p1 rw\n\
         42 27 0:42 / /pool rw - zfs tank/tables rw\n\
         43 27 0:43 / /stripes rw - bcachefs /dev/nvme0n1:/dev/nvme1n1 rw\n\
         44 27 0:44 / /host rw - virtiofs share rw\n\
         45 27 0:45 / /served rw - fuse.s3 bucket rw\n\
         46 27 259:99 / /gone rw - ext4 /dev/nvme9n1 rw\n",
    );
    assert_eq!(names(&home(&tree, "/many/a")), ["nvme1n1", "nvme3n1"]);
    assert_eq!(names(&home(&tree, "/one/a")), ["nvme2n1"]);
    assert_eq!(names(&home(&tree, "/stripes/a")), ["nvme0n1", "nvme1n1"]);
    for (path, reason) in [
        ("/pool/a", "zpool status tank"),
        ("/host/a", "host of this virtual machine"),
        ("/served/a", "a program serves the files (bucket)"),
        ("/gone/a", "/sys/dev/block/259:99: no such file"),
    ] {
        let found = home(&tree, path);
        let unknown = found.medium.clone().unwrap_err().to_string();
        assert!(unknown.contains(reason), "{path}: {unknown}");
        let nearest = nearest_gpu(&tree.root(), &found, &gpus);
        assert_eq!((nearest.gpu, nearest.reason), (None, unknown));
    }
}

#[test]
fn a_block_device_by_its_own_name() {
    let (tree, _) = two_gpus();
    tree.mountinfo("24 1 0:6 / /dev rw - devtmpfs devtmpfs rw\n").file("/dev/nvme2n1", "");
    let found = home(&tree, "/dev/nvme2n1");
    assert_eq!((found.medium.clone(), names(&found)), (Ok(Medium::Block), vec!["nvme2n1"]));
}

#[test]
fn nothing_known_is_said() {
    let found = home(&Tree::new(), "/a");
    assert!(found.mount.clone().unwrap_err().is_missing());
    let text = serde_json::to_value(&found).unwrap();
    assert_eq!(text["medium"]["unknown"], "/proc/self/mountinfo: no such file");
}

#[test]
fn this_machine_says_where_its_files_are() {
    let root = SysRoot::host();
    let memory = StorageHome::of(&root, Path::new("/dev/shm"));
    assert_eq!(memory.medium, Ok(Medium::Memory));
    let exe = std::env::current_exe().unwrap();
    let found = StorageHome::of(&root, &exe);
    assert!(found.mount.is_ok());
    // What cannot be known here (a container, perhaps) has a reason.
    match &found.medium {
        Ok(Medium::Block) => assert!(!found.devices.is_empty()),
        Ok(_) => assert!(found.devices.is_empty()),
        Err(unknown) => assert!(!unknown.to_string().is_empty()),
    }
    serde_json::to_string(&found).unwrap();
}
