//! The CUDA capabilities of this machine; never fails.

use std::path::PathBuf;

use crate::api;
use crate::compiler::Compiler;
use crate::device::device_count;
use crate::driver;
use crate::error::{GpuError, Result, remedy_of};
use crate::info::DeviceInfo;

/// NVRTC as found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NvrtcInfo {
    /// Major version.
    pub major: u32,
    /// Minor version.
    pub minor: u32,
    /// The library file.
    pub path: PathBuf,
}

/// What there is of CUDA on this machine. Errors are rendered texts with a `hint:` line.
#[derive(Debug, Clone)]
pub struct GpuProbe {
    /// The CUDA version that the driver supports, (major, minor).
    pub driver_version: Result<(u32, u32), String>,
    /// The run-time compiler.
    pub nvrtc: Result<NvrtcInfo, String>,
    /// The devices visible to this process; empty when `reason` says why.
    pub devices: Vec<DeviceInfo>,
    /// Why no device can be used. `None` exactly when `devices` is not empty.
    pub reason: Option<String>,
}

impl GpuProbe {
    /// Whether kernels can be both compiled and run: the first reason why not.
    pub fn why_unusable(&self) -> Option<&str> {
        self.reason.as_deref().or(self.nvrtc.as_ref().err().map(String::as_str))
    }
}

/// Looks for the driver, its devices and NVRTC. Creates no context, so it is quick and
/// takes no device memory; the driver's start-up takes some milliseconds on a machine
/// with GPUs.
pub fn probe() -> GpuProbe {
    let (devices, reason) = match devices() {
        Ok(devices) => (devices, None),
        Err(error) => (Vec::new(), Some(error.to_string())),
    };
    GpuProbe {
        driver_version: driver::version().map_err(|error| error.to_string()),
        nvrtc: Compiler::load(None)
            .map(|compiler| NvrtcInfo {
                major: compiler.version().0,
                minor: compiler.version().1,
                path: compiler.path().to_path_buf(),
            })
            .map_err(|error| error.to_string()),
        devices,
        reason,
    }
}

/// At least one device, or the reason why there is none.
fn devices() -> Result<Vec<DeviceInfo>> {
    driver::initialise()?;
    let count = device_count()?;
    if count == 0 {
        return Err(GpuError::NotPresent {
            reason: "the CUDA driver works and sees no device".into(),
            remedy: remedy_of(api::NO_DEVICE).unwrap_or_default().into(),
        });
    }
    (0..count).map(DeviceInfo::read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_lists_devices_or_says_why_not() {
        let found = probe();
        assert_eq!(found.devices.is_empty(), found.reason.is_some(), "{found:?}");
        for (index, device) in found.devices.iter().enumerate() {
            assert_eq!(device.ordinal, index);
            assert!(device.total_memory_bytes > 0 && device.sm_count > 0, "{device:?}");
        }
        for text in [&found.reason, &found.nvrtc.as_ref().err().cloned()].into_iter().flatten() {
            assert!(text.contains("hint: "), "{text}");
        }
    }

    #[test]
    fn opening_a_device_that_is_not_there_is_an_error() {
        let error = crate::Device::open(10_000).expect_err("no machine has that many");
        assert!(matches!(error, GpuError::NotPresent { .. } | GpuError::Driver { .. }), "{error}");
    }
}
