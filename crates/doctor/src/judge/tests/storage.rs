//! Where paths lie: drives, arrays, file servers, the way to the GPUs.

use super::*;

#[test]
fn overlayfs_where_o_direct_opens_and_then_fails() {
    let mut path = good_path();
    path.home = StorageHome { below: vec![mount("ext4")], ..home("overlay") };
    let why = "the probing O_DIRECT read failed: Invalid argument (os error 22)";
    path.examined = Known::Value(FileFact {
        filesystem: "overlay".to_string(),
        direct: Known::unknown(why),
        ..file()
    });
    path.access = vec![
        works(Way::Automatic, 2.0),
        refused(Way::Uring, why),
        refused(Way::DirectThreads, why),
        works(Way::Buffered, 2.0),
        works(Way::Mapped, 2.0),
    ];
    let report = of_path(path);
    let found = one(&report, Level::Slow, "Invalid argument");
    assert!(found.remedy.contains("docker -v"), "{found:?}");
    // Reads through the page cache are read ahead: only then does its size matter.
    one(&report, Level::Slow, "reads ahead 128 KiB");
    assert_eq!(report.counts.slow, 2);
}

pub(super) fn nfs(proto: &str, nconnect: Option<u32>, mtu: u32) -> NfsMount {
    NfsMount {
        server: "store".to_string(),
        export: "/export".to_string(),
        address: Some("10.0.0.1".parse().unwrap()),
        version: Some("4.2".to_string()),
        proto: Some(proto.to_string()),
        nconnect,
        rsize_bytes: Some(1 << 20),
        wsize_bytes: Some(1 << 20),
        read_ahead_bytes: None,
        interface: Ok(Interface {
            name: "eth0".to_string(),
            mtu: Some(mtu),
            speed_mbit_per_s: Some(100_000),
            pci: Vec::new(),
        }),
    }
}

pub(super) fn on_nfs(mount: NfsMount) -> PathFacts {
    let mut path = good_path();
    path.home = StorageHome {
        medium: Ok(Medium::Nfs),
        stack: Vec::new(),
        devices: Vec::new(),
        nfs: Some(mount),
        ..home("nfs4")
    };
    path
}

#[test]
fn nfs_over_tcp_with_and_without_rdma_hardware() {
    let tcp = || on_nfs(nfs("tcp", None, 1500));
    let plain = of_path(tcp());
    assert!(one(&plain, Level::Slow, "1 connection(s)").remedy.contains("nconnect=16"));
    assert!(one(&plain, Level::Slow, "packets of 1500 bytes").remedy.contains("mtu 9000"));
    let mut machine = machine();
    machine.rdma_devices = vec!["mlx5_0".to_string()];
    let hardware = report(machine, no_gpu(), vec![tcp()]);
    let found = one(&hardware, Level::Slow, "mlx5_0");
    assert!(found.remedy.contains("proto=rdma,port=20049"), "{found:?}");
    only_ok(&of_path(on_nfs(nfs("tcp", Some(16), 9000))));
}

#[test]
fn nfs_over_rdma_is_well_until_gpudirect_wants_hooks_that_are_not_there() {
    let rdma = || on_nfs(nfs("rdma", Some(16), 1500));
    only_ok(&of_path(rdma()));
    let with_hooks = |nvfs_ops: bool| {
        let mut machine = machine();
        machine.kernel.nvfs = Ok(NvfsSymbols {
            modules: vec![NvfsModule { name: "rpcrdma".to_string(), nvfs_ops }],
            nvidia_fs: Some("2.25".to_string()),
        });
        report(machine, one_gpu(h200()), vec![rdma()])
    };
    let without = with_hooks(false);
    let found = one(&without, Level::Slow, "rpcrdma was built without nvfs_ops");
    assert!(found.remedy.contains("modprobe -r rpcrdma"), "{found:?}");
    assert_eq!(without.exit_code, 1);
    only_ok(&with_hooks(true));
}

#[test]
fn hooks_that_cannot_be_read_are_unknown() {
    let mut machine = machine();
    machine.kernel.nvfs =
        Ok(NvfsSymbols { modules: Vec::new(), nvidia_fs: Some("2.25".to_string()) });
    let report = report(machine, one_gpu(h200()), vec![on_nfs(nfs("rdma", Some(16), 9000))]);
    one(&report, Level::Unknown, "rpcrdma is not listed");
}

#[test]
fn nvme_without_hooks_for_a_loaded_nvidia_fs() {
    let mut machine = machine();
    machine.kernel.nvfs = Ok(NvfsSymbols {
        modules: vec![NvfsModule { name: "nvme".to_string(), nvfs_ops: false }],
        nvidia_fs: Some("2.25".to_string()),
    });
    one(
        &report(machine, one_gpu(h200()), vec![good_path()]),
        Level::Slow,
        "nvme was built without",
    );
}

#[test]
fn a_gpu_far_from_the_storage() {
    let mut path = good_path();
    path.nearest_gpu = Some(NearestGpu {
        gpu: Some(0),
        reason: "nvme0n1 and GPU 0 are on different NUMA nodes; it is the only GPU".to_string(),
        distances: vec![Distance::OtherNode],
    });
    let report = report(machine(), one_gpu(h200()), vec![path]);
    let found = one(&report, Level::Slow, "different NUMA nodes");
    assert!(found.remedy.contains("numactl"), "{found:?}");
}

#[test]
fn a_distance_that_is_not_known() {
    let mut path = good_path();
    path.nearest_gpu = Some(NearestGpu {
        gpu: None,
        reason: "how far vda and the GPUs are from each other is not known".to_string(),
        distances: vec![Distance::Unknown, Distance::Unknown],
    });
    one(&report(machine(), one_gpu(h200()), vec![path]), Level::Unknown, "is not known");
}

#[test]
fn a_drive_on_a_narrow_link() {
    let mut path = good_path();
    let address = "0000:41:00.0".parse().unwrap();
    let narrow = PciLink { address, max_width: 4, ..pcie(16.0, 2) };
    path.links = vec![LinkFact { address, links: Known::Value(vec![narrow]) }];
    one(&of_path(path), Level::Slow, "PCIe 4 x2");
}

#[test]
fn holes_make_rates_meaningless() {
    let mut path = good_path();
    path.examined = Known::Value(FileFact { allocated_bytes: 4096, ..file() });
    one(&of_path(path), Level::Unknown, "holes or compression");
}

#[test]
fn drives_arrays_and_queues() {
    let member = |name: &str| BlockDevice { name: name.to_string(), ..drive() };
    let array = BlockDevice {
        name: "md0".to_string(),
        number: (9, 0),
        kind: BlockKind::Raid {
            level: "raid5".to_string(),
            chunk_bytes: Some(512 << 10),
            degraded: Some(1),
        },
        members: vec![member("nvme0n1"), member("nvme1n1")],
        transport: Transport::Stacked,
        ..drive()
    };
    let mut path = good_path();
    path.home.stack = vec![array];
    assert!(one(&of_path(path), Level::Slow, "members missing").remedy.contains("mdadm"));

    let mut slow = drive();
    slow.queue.scheduler = Some("mq-deadline".to_string());
    slow.queue.max_request_bytes = Some(128 << 10);
    let mut path = good_path();
    path.home.stack = vec![slow];
    let report = of_path(path);
    let scheduler = one(&report, Level::Slow, "mq-deadline");
    assert_eq!(scheduler.remedy, "echo none > /sys/block/nvme0n1/queue/scheduler");
    let requests = one(&report, Level::Slow, "at most 128 KiB");
    assert_eq!(requests.remedy, "echo 1024 > /sys/block/nvme0n1/queue/max_sectors_kb");
}

#[test]
fn a_disk_that_turns_is_slow_unless_a_virtual_machine_says_so() {
    let with = |transport: Transport| {
        let mut path = good_path();
        path.home.stack = vec![BlockDevice { rotational: Some(true), transport, ..drive() }];
        of_path(path)
    };
    one(&with(Transport::Sata), Level::Slow, "a disk that turns");
    only_ok(&with(Transport::Virtio));
}

#[test]
fn the_same_drive_below_two_paths_is_judged_once() {
    let mut other = good_path();
    other.path = PathBuf::from("/data/u.arrow");
    let report = report(machine(), no_gpu(), vec![good_path(), other]);
    assert_eq!(report.findings.iter().filter(|f| f.subject == "nvme0n1").count(), 1);
}
