//! Examines the GPUs: driver, compiler, links, speeds, cuFile.

use std::sync::Arc;

use headrace_gpu::cufile::{CuFile, CuFileModeKind};
use headrace_gpu::measure::{self, AllDevices, CopySpeed};
use headrace_gpu::{Device, DeviceInfo, GpuError, GpuProbe};
use headrace_io::system::{PciAddress, SysRoot};

use crate::access::NOT_MEASURED_QUICK;
use crate::facts::{CuFileFact, DeviceMemoryFact, GpuFact, GpuFacts, Known};
use crate::system::{nvidia_gpus, pci_device, pci_links, window_bytes};

/// Everything except the access paths from files to them.
pub(crate) fn look(root: &SysRoot, quick: bool) -> GpuFacts {
    let probe = headrace_gpu::probe();
    let devices = probe.devices.iter().map(|info| device(root, info, quick)).collect();
    GpuFacts {
        on_bus: nvidia_gpus(root).into(),
        driver: driver_fact(&probe),
        nvrtc: nvrtc_fact(&probe),
        no_device: probe.reason.clone(),
        all_h2d: all_h2d(&probe, quick),
        devices,
        cufile: cufile_fact(),
    }
}

/// The CUDA version that the driver supports.
pub(crate) fn driver_fact(probe: &GpuProbe) -> Known<String> {
    match &probe.driver_version {
        Ok((major, minor)) => Known::Value(format!("CUDA {major}.{minor}")),
        Err(reason) => Known::unknown(reason),
    }
}

/// Version and file of the run-time compiler.
pub(crate) fn nvrtc_fact(probe: &GpuProbe) -> Known<String> {
    match &probe.nvrtc {
        Ok(found) => {
            Known::Value(format!("{}.{} ({})", found.major, found.minor, found.path.display()))
        }
        Err(reason) => Known::unknown(reason),
    }
}

/// All links at once; `None` with a single one.
fn all_h2d(probe: &GpuProbe, quick: bool) -> Option<Known<AllDevices>> {
    if probe.devices.len() < 2 {
        return None;
    }
    if quick {
        return Some(Known::unknown(NOT_MEASURED_QUICK));
    }
    let opened: Result<Vec<_>, _> =
        probe.devices.iter().map(|info| Device::open(info.ordinal)).collect();
    Some(opened.and_then(|devices| measure::h2d_all(&devices)).into())
}

fn device(root: &SysRoot, info: &DeviceInfo, quick: bool) -> GpuFact {
    let address: Known<PciAddress> = info.pcie_id.parse::<PciAddress>().into();
    let opened = Device::open(info.ordinal);
    let measured = |what: fn(&Arc<Device>) -> Result<CopySpeed, GpuError>| match &opened {
        _ if quick => Known::unknown(NOT_MEASURED_QUICK),
        Ok(device) => what(device).into(),
        Err(error) => Known::unknown(error),
    };
    let h2d = measured(measure::h2d);
    let d2h = measured(measure::d2h);
    // Now, while the link is still awake from the copies.
    let links = match &address {
        Known::Value(address) => pci_links(root, address).into(),
        Known::Unknown { unknown } => Known::unknown(unknown),
    };
    GpuFact {
        ordinal: info.ordinal,
        name: info.name.clone(),
        numa_node: address
            .value()
            .and_then(|address| pci_device(root, address).ok())
            .and_then(|device| device.numa_node)
            .or(info.host_numa_node),
        window_bytes: match &address {
            Known::Value(address) => window_bytes(root, address).into(),
            Known::Unknown { unknown } => Known::unknown(unknown),
        },
        address,
        links,
        memory: match &opened {
            Ok(device) => device_memory_fact(device),
            Err(error) => Known::unknown(error),
        },
        h2d,
        d2h,
        memory_speed: measured(measure::device_memory),
        nominal_memory_gb_per_s: info.nominal_memory_gb_per_s(),
        properties: info.properties(),
    }
}

/// Total and free memory of an opened device.
pub(crate) fn device_memory_fact(device: &Device) -> Known<DeviceMemoryFact> {
    match device.free_and_total_memory() {
        Ok((free_bytes, total_bytes)) => Known::Value(DeviceMemoryFact { total_bytes, free_bytes }),
        Err(error) => Known::unknown(error),
    }
}

/// Whether the library is present, and its mode: proven by its transfers so far, if any.
pub(crate) fn cufile_fact() -> CuFileFact {
    match CuFile::open() {
        Ok(cufile) => {
            let mode = cufile.mode();
            CuFileFact {
                library: Known::Value(match cufile.version() {
                    Some((major, minor)) => {
                        format!("{major}.{minor} ({})", cufile.path().display())
                    }
                    None => cufile.path().display().to_string(),
                }),
                remedy: None,
                mode: Known::Value(kind_text(mode.kind).to_string()),
                proven: mode.proven,
                evidence: mode.evidence,
                parameters: cufile.parameters(),
            }
        }
        Err(unavailable) => CuFileFact {
            library: Known::unknown(&unavailable.reason),
            remedy: Some(unavailable.remedy.to_string()),
            mode: Known::unknown(&unavailable.reason),
            proven: false,
            evidence: Vec::new(),
            parameters: Vec::new(),
        },
    }
}

fn kind_text(kind: CuFileModeKind) -> &'static str {
    match kind {
        CuFileModeKind::Gds => "GPUDirect Storage through nvidia-fs",
        CuFileModeKind::P2pDma => "GPUDirect Storage through the kernel's P2PDMA",
        CuFileModeKind::Compatibility => "compatibility mode: through host memory",
        CuFileModeKind::Mixed => "several ways, some of them through host memory",
    }
}
