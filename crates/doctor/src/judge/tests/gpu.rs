//! GPUs: driver, compiler, links, memory.

use super::*;

#[test]
fn four_lanes_instead_of_sixteen() {
    let mut gpu = h200();
    gpu.links = Known::Value(vec![pcie(32.0, 4)]);
    gpu.h2d = speed(13.5);
    let report = of_gpu(one_gpu(gpu));
    let found = one(&report, Level::Slow, "4 lanes");
    assert!(found.found.contains("the GPU has 16"), "{found:?}");
    assert!(found.remedy.contains("lspci"), "{found:?}");
    assert_eq!(report.exit_code, 1);
}

#[test]
fn a_bridge_above_the_gpu_can_be_the_narrow_one() {
    let mut gpu = h200();
    let mut bridge = pcie(32.0, 8);
    bridge.address = "0000:c0:01.0".parse().unwrap();
    gpu.links = Known::Value(vec![bridge, pcie(32.0, 16)]);
    gpu.h2d = speed(27.0);
    one(&of_gpu(one_gpu(gpu)), Level::Slow, "8 lanes at 0000:c0:01.0");
}

#[test]
fn a_lower_generation_counts_under_load_only() {
    let mut gpu = h200();
    gpu.links = Known::Value(vec![pcie(16.0, 16)]);
    gpu.h2d = speed(26.0);
    let loaded = of_gpu(one_gpu(gpu.clone()));
    one(&loaded, Level::Slow, "generation 4 under load");
    assert_eq!(loaded.exit_code, 1);
    // The same link, read too late, while copies ran at full speed: the copies are right.
    gpu.h2d = speed(55.4);
    only_ok(&of_gpu(one_gpu(gpu.clone())));
    // Nothing was copied: an idle GPU looks just like that.
    gpu.h2d = Known::unknown("--quick measures nothing");
    let idle = of_gpu(one_gpu(gpu));
    one(&idle, Level::Unknown, "an idle GPU lowers it");
    assert_eq!(idle.exit_code, 0);
}

#[test]
fn a_full_link_that_copies_slowly() {
    let mut gpu = h200();
    gpu.h2d = speed(20.0);
    one(&of_gpu(one_gpu(gpu)), Level::Slow, "32% of what it carries");
}

#[test]
fn a_virtual_machine_shows_no_link() {
    let mut gpu = h200();
    gpu.links = Known::Value(Vec::new());
    let report = of_gpu(one_gpu(gpu));
    one(&report, Level::Unknown, "pinned copies reach 55.4 GB/s");
    assert_eq!(report.exit_code, 0);
}

#[test]
fn a_gpu_on_the_bus_without_a_driver_is_broken() {
    let device = PciDevice {
        address: GPU.parse().unwrap(),
        vendor: 0x10de,
        device: 0x2335,
        class: 0x0003_0200,
        driver: None,
        numa_node: Some(0),
    };
    let gpu = GpuFacts { on_bus: Known::Value(vec![device]), ..no_gpu() };
    let report = of_gpu(gpu);
    let found = one(&report, Level::Broken, GPU);
    assert_eq!(found.remedy, "install the driver");
    assert_eq!(report.exit_code, 2);
}

#[test]
fn a_driver_without_a_gpu_could_be_faster() {
    let gpu = GpuFacts {
        driver: Known::Value("CUDA 13.0".to_string()),
        no_device: Some("no usable GPU: it sees no device\nhint: docker --gpus all".to_string()),
        ..no_gpu()
    };
    assert!(one(&of_gpu(gpu), Level::Slow, "no GPU").remedy.contains("--gpus all"));
}

#[test]
fn a_bus_that_cannot_be_read_leaves_it_open() {
    let gpu = GpuFacts { on_bus: Known::unknown("/sys/bus/pci: no such file"), ..no_gpu() };
    one(&of_gpu(gpu), Level::Unknown, "/sys/bus/pci");
}

#[test]
fn a_driver_without_nvrtc_is_broken() {
    let gpu = GpuFacts {
        nvrtc: Known::unknown("libnvrtc.so.13 not found\nhint: pip install nvidia-cuda-nvrtc"),
        ..one_gpu(h200())
    };
    let report = of_gpu(gpu);
    let found = one(&report, Level::Broken, "libnvrtc.so.13 not found");
    assert_eq!(found.remedy, "pip install nvidia-cuda-nvrtc");
}

#[test]
fn a_gpu_that_cannot_be_opened_and_one_that_is_full() {
    let mut gpu = h200();
    gpu.memory = Known::unknown("CUDA call failed\nhint: see nvidia-smi");
    assert_eq!(
        one(&of_gpu(one_gpu(gpu)), Level::Broken, "cannot be opened").remedy,
        "see nvidia-smi"
    );
    let mut gpu = h200();
    gpu.memory = Known::Value(DeviceMemoryFact { total_bytes: 100, free_bytes: 5 });
    one(&of_gpu(one_gpu(gpu)), Level::Slow, "device memory free");
}

#[test]
fn memory_slower_than_the_link() {
    let mut machine = machine();
    machine.memory_copy =
        Known::Value(HostCopySpeed { threads: 2, gb_per_s: 12.0, traffic_gb_per_s: 24.0 });
    one(&report(machine, one_gpu(h200()), Vec::new()), Level::Slow, "take 55.4");
}

#[test]
fn several_gpus_that_share_a_way() {
    let with = |total_gb_per_s: f64| {
        let mut gpu = one_gpu(h200());
        gpu.devices.push(GpuFact { ordinal: 1, ..h200() });
        gpu.all_h2d = Some(Known::Value(AllDevices {
            ordinals: vec![0, 1],
            per_device_gb_per_s: vec![total_gb_per_s / 2.0; 2],
            total_gb_per_s,
        }));
        let mut machine = machine();
        machine.memory_copy = Known::unknown("--quick measures nothing");
        report(machine, gpu, Vec::new())
    };
    only_ok(&with(105.0));
    assert!(one(&with(56.0), Level::Slow, "56.0 GB/s to 2 GPUs").remedy.contains("topo -m"));
}
