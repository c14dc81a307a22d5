//! The table of GPUDirect Storage.

use super::storage::{nfs, on_nfs};
use super::*;
use crate::gds::{GdsWay, Met, gds, render_gds};

fn facts(machine: MachineFacts, gpu: GpuFacts, paths: Vec<PathFacts>) -> Facts {
    report(machine, gpu, paths).facts
}

fn ways(facts: &Facts) -> [Met; 3] {
    let table = gds(facts);
    GdsWay::ALL.map(|way| table.ways.iter().find(|(of, _)| *of == way).unwrap().1)
}

fn ready() -> MachineFacts {
    let mut machine = machine();
    let module = |name: &str| NvfsModule { name: name.to_string(), nvfs_ops: true };
    machine.kernel.nvfs = Ok(NvfsSymbols {
        modules: vec![module("nvme"), module("rpcrdma")],
        nvidia_fs: Some("2.26".to_string()),
    });
    let open = "NVIDIA UNIX Open Kernel Module for x86_64  580.65.06";
    machine.kernel.p2pdma.nvidia_module = Ok(open.to_string());
    machine.rdma_devices = vec!["mlx5_0".to_string()];
    machine
}

fn with_cufile() -> GpuFacts {
    let mut gpu = one_gpu(h200());
    gpu.cufile.library = Known::Value("1.15".to_string());
    gpu
}

#[test]
fn a_way_is_open_if_nothing_is_missing() {
    use Met::{No, Unknown, Yes};
    assert_eq!(ways(&facts(machine(), no_gpu(), vec![])), [No, No, No]);
    assert_eq!(ways(&facts(ready(), with_cufile(), vec![])), [Yes, Yes, Yes]);
    // A drive is no server, and a server no drive; one path of each opens all.
    let (drive, server) = (good_path(), on_nfs(nfs("rdma", Some(16), 9000)));
    assert_eq!(ways(&facts(ready(), with_cufile(), vec![drive.clone()])), [Yes, Yes, No]);
    assert_eq!(ways(&facts(ready(), with_cufile(), vec![server.clone()])), [No, No, Yes]);
    assert_eq!(ways(&facts(ready(), with_cufile(), vec![drive, server])), [Yes, Yes, Yes]);
    let tcp = on_nfs(nfs("tcp", Some(16), 9000));
    assert_eq!(ways(&facts(ready(), with_cufile(), vec![tcp])), [No, No, No]);
    let mut hidden = ready();
    hidden.kernel.nvfs = unknown();
    assert_eq!(ways(&facts(hidden, with_cufile(), vec![])), [Unknown, Yes, Unknown]);
    let mut translated = ready();
    translated.iommu.units = vec!["dmar0".to_string()];
    translated.iommu.groups_by_kind = BTreeMap::from([("DMA-FQ".to_string(), 3)]);
    assert_eq!(ways(&facts(translated, with_cufile(), vec![])), [No, No, Yes]);
    let mut closed = ready();
    closed.kernel.p2pdma.nvidia_module = Ok("NVIDIA UNIX x86_64 Kernel Module".to_string());
    assert_eq!(ways(&facts(closed, with_cufile(), vec![])), [Yes, No, Yes]);
    let mut without = ready();
    without.kernel.nvfs = Ok(NvfsSymbols {
        modules: vec![NvfsModule { name: "nvme".to_string(), nvfs_ops: false }],
        nvidia_fs: Some("2.26".to_string()),
    });
    assert_eq!(ways(&facts(without, with_cufile(), vec![])), [No, Yes, No]);
}

#[test]
fn the_table_says_what_is_here() {
    let mut gpu = with_cufile();
    gpu.cufile.mode = Known::Value("compatibility mode: through host memory".to_string());
    gpu.cufile.proven = true;
    gpu.cufile.evidence = vec!["7 reads by the CPU".to_string()];
    let text = render_gds(&gds(&facts(ready(), gpu, vec![good_path()])));
    let line = |begin: &str| {
        let line = text.lines().find(|line| line.starts_with(begin));
        line.unwrap_or_else(|| panic!("{begin} in\n{text}")).split_whitespace().collect::<Vec<_>>()
    };
    assert_eq!(line("module nvme")[2..], ["yes", "-", "-", "with", "nvfs_ops"]);
    assert_eq!(line("all together")[2..], ["yes", "yes", "no"]);
    assert!(text.contains("BAR1 262144 MiB") && text.contains("ext4 on nvme0n1"), "{text}");
    assert!(text.ends_with("through host memory (7 reads by the CPU)\n"), "{text}");
}
