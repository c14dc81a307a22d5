//! Machines and paths built by hand, put before the judge.

#![allow(clippy::unwrap_used)]

mod gds;
mod gpu;
mod machine;
mod path;
mod storage;

use std::collections::BTreeMap;
use std::path::PathBuf;

use headrace_gpu::measure::{AllDevices, CopySpeed, HostCopySpeed};
use headrace_io::system::{
    BlockDevice, BlockKind, Cgroup, Distance, Interface, Limit, Limits, Medium, Mount, NearestGpu,
    NfsMount, NumaNode, QueueSettings, Seccomp, SeccompMode, StorageHome, Transport, Unknown,
    UnknownCause, UringProbe, UringRefusal,
};

use super::*;
use crate::facts::{
    AccessProbe, CuFileFact, DeviceMemoryFact, DirectAlignment, FileFact, FilesBelow, GpuFact,
    GpuFacts, LinkFact, MachineFacts, Outcome, PathFacts, PathKind, Way,
};
use crate::system::{
    HugePages, Iommu, Kernel, NvfsModule, NvfsSymbols, P2pdma, PciDevice, PciLink,
};
use crate::{Level, Report};

fn unknown<T>() -> Result<T, Unknown> {
    Err(Unknown { place: "/sys/x".to_string(), cause: UnknownCause::Missing })
}

fn limits() -> Limits {
    Limits {
        memlock_bytes: Ok(Limit::At(8 << 20)),
        memlock_hard_bytes: Ok(Limit::Unlimited),
        may_lock_any: Ok(false),
        open_files: Ok(Limit::At(65536)),
        file_bytes: Ok(Limit::Unlimited),
        cpus: Ok(16),
        cgroup: Ok(Cgroup {
            version: 2,
            path: "/".to_string(),
            memory_max_bytes: Limit::Unlimited,
            memory_current_bytes: None,
            io_max: Vec::new(),
            cpu_quota_cores: None,
        }),
    }
}

/// Nothing stands in the way.
fn machine() -> MachineFacts {
    MachineFacts {
        kernel: Kernel {
            release: Ok("6.8.0".to_string()),
            nvfs: Ok(NvfsSymbols { modules: Vec::new(), nvidia_fs: None }),
            p2pdma: P2pdma {
                in_kernel: Ok(true),
                providers: Vec::new(),
                nvidia_module: unknown(),
                nvidia_registry: unknown(),
            },
        },
        cores: 16,
        limits: limits(),
        seccomp: Known::Value(Seccomp {
            mode: SeccompMode::Disabled,
            filters: Some(0),
            no_new_privs: Some(false),
        }),
        uring: UringProbe {
            disabled_sysctl: Ok(0),
            setup: Ok(()),
            enter: Some(Ok(())),
            register_bytes: 128 << 20,
            register: Some(Ok(())),
        },
        huge_pages: HugePages {
            thp: Ok("madvise".to_string()),
            defrag: Ok("madvise".to_string()),
            shmem: Ok("never".to_string()),
            pools: Vec::new(),
        },
        numa: Known::Value(vec![NumaNode {
            number: 0,
            cpus: (0..16).collect(),
            memory_bytes: Some(128 << 30),
            free_bytes: None,
            distances: vec![10],
        }]),
        iommu: Iommu {
            units: Vec::new(),
            groups_by_kind: BTreeMap::new(),
            command_line: Vec::new(),
        },
        rdma_devices: Vec::new(),
        memory_copy: Known::Value(HostCopySpeed {
            threads: 16,
            gb_per_s: 80.0,
            traffic_gb_per_s: 160.0,
        }),
    }
}

fn no_gpu() -> GpuFacts {
    GpuFacts {
        on_bus: Known::Value(Vec::new()),
        driver: Known::unknown("libcuda.so.1: not found\nhint: install the NVIDIA driver"),
        nvrtc: Known::unknown("not found\nhint: install it"),
        no_device: Some("no usable GPU: libcuda.so.1: not found\nhint: install the driver".into()),
        devices: Vec::new(),
        all_h2d: None,
        cufile: CuFileFact {
            library: Known::unknown("libcufile.so.0 not found"),
            remedy: None,
            mode: Known::unknown("libcufile.so.0 not found"),
            proven: false,
            evidence: Vec::new(),
            parameters: Vec::new(),
        },
    }
}

const GPU: &str = "0000:c1:00.0";

fn pcie(speed_gt_per_s: f64, width: u32) -> PciLink {
    PciLink {
        address: GPU.parse().unwrap(),
        speed_gt_per_s,
        width,
        max_speed_gt_per_s: 32.0,
        max_width: 16,
        numa_node: Some(0),
    }
}

fn speed(gb_per_s: f64) -> Known<CopySpeed> {
    Known::Value(CopySpeed { gb_per_s, bytes: 1 << 28, samples: 3 })
}

fn h200() -> GpuFact {
    GpuFact {
        ordinal: 0,
        name: "NVIDIA H200".to_string(),
        address: Known::Value(GPU.parse().unwrap()),
        numa_node: Some(0),
        window_bytes: Known::Value(256 << 30),
        links: Known::Value(vec![pcie(32.0, 16)]),
        memory: Known::Value(DeviceMemoryFact { total_bytes: 150 << 30, free_bytes: 149 << 30 }),
        h2d: speed(55.4),
        d2h: speed(54.0),
        memory_speed: speed(4100.0),
        nominal_memory_gb_per_s: 4800.0,
        properties: Vec::new(),
    }
}

fn one_gpu(device: GpuFact) -> GpuFacts {
    GpuFacts {
        driver: Known::Value("CUDA 13.0".to_string()),
        nvrtc: Known::Value("13.0 (/lib/libnvrtc.so)".to_string()),
        no_device: None,
        devices: vec![device],
        ..no_gpu()
    }
}

fn drive() -> BlockDevice {
    BlockDevice {
        name: "nvme0n1".to_string(),
        number: (259, 0),
        kind: BlockKind::Disk,
        model: Some("SSD".to_string()),
        size_bytes: 2_000_000_000_000,
        rotational: Some(false),
        queue: QueueSettings {
            scheduler: Some("none".to_string()),
            max_request_bytes: Some(1 << 20),
            max_hw_request_bytes: Some(1 << 20),
            read_ahead_bytes: Some(128 << 10),
            ..QueueSettings::default()
        },
        members: Vec::new(),
        transport: Transport::NvmePcie,
        pci: Some("0000:41:00.0".parse().unwrap()),
        controllers: Vec::new(),
        numa_node: Some(0),
    }
}

fn mount(filesystem: &str) -> Mount {
    Mount {
        id: 1,
        parent_id: 0,
        device: (259, 0),
        root: PathBuf::from("/"),
        mount_point: PathBuf::from("/data"),
        filesystem: filesystem.to_string(),
        source: "/dev/nvme0n1".to_string(),
        options: vec!["rw".to_string()],
    }
}

fn home(filesystem: &str) -> StorageHome {
    StorageHome {
        path: PathBuf::from("/data/t.arrow"),
        mount: Ok(mount(filesystem)),
        below: Vec::new(),
        medium: Ok(Medium::Block),
        stack: vec![drive()],
        devices: vec![drive()],
        pci: Vec::new(),
        nfs: None,
    }
}

fn works(way: Way, gb_per_s: f64) -> AccessProbe {
    AccessProbe {
        way,
        outcome: Outcome::Works {
            checked_bytes: 8 << 20,
            taken: "O_DIRECT, io_uring".to_string(),
            reasons: Vec::new(),
            gb_per_s: Known::Value(gb_per_s),
            timed_bytes: 1 << 30,
            requests_at_once: 64,
        },
    }
}

fn refused(way: Way, reason: &str) -> AccessProbe {
    AccessProbe { way, outcome: Outcome::Refused { reason: reason.to_string(), remedy: None } }
}

fn file() -> FileFact {
    FileFact {
        path: PathBuf::from("/data/t.arrow"),
        size_bytes: 10 << 30,
        allocated_bytes: 10 << 30,
        filesystem: "ext4".to_string(),
        memory_backed: false,
        direct: Known::Value(DirectAlignment { memory_bytes: 512, offset_bytes: 512 }),
        resident_share: Known::Value(0.0),
    }
}

/// A file on a drive, read by every way on the host.
fn good_path() -> PathFacts {
    PathFacts {
        path: PathBuf::from("/data/t.arrow"),
        kind: PathKind::File,
        below: None,
        examined: Known::Value(file()),
        home: home("ext4"),
        links: Vec::new(),
        nearest_gpu: None,
        earlier_gb_per_s: None,
        access: vec![
            works(Way::Automatic, 2.4),
            works(Way::Uring, 2.4),
            works(Way::DirectThreads, 2.4),
            works(Way::Buffered, 2.2),
            works(Way::Mapped, 2.0),
        ],
        write: None,
    }
}

fn report(machine: MachineFacts, gpu: GpuFacts, paths: Vec<PathFacts>) -> Report {
    Report::of(Facts { machine, gpu, ceilings: Vec::new(), paths, record: None })
}

fn of_path(path: PathFacts) -> Report {
    report(machine(), no_gpu(), vec![path])
}

fn of_gpu(gpu: GpuFacts) -> Report {
    report(machine(), gpu, Vec::new())
}

/// The only finding of that level whose text has `word`.
fn one(report: &Report, level: Level, word: &str) -> Finding {
    let texts = |finding: &&Finding| {
        finding.level == level && format!("{}: {}", finding.subject, finding.found).contains(word)
    };
    let found: Vec<&Finding> = report.findings.iter().filter(texts).collect();
    assert_eq!(found.len(), 1, "{level:?} {word:?} in {:#?}", report.findings);
    found[0].clone()
}

fn only_ok(report: &Report) {
    assert_eq!(report.exit_code, 0, "{:#?}", report.findings);
    assert_eq!(report.counts.unknown, 0, "{:#?}", report.findings);
    assert_eq!(report.summary, "all well");
}
