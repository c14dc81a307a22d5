//! The GPUs as users see them: facts from the driver, and the current state from `nvidia-smi`.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// Present on a machine with an NVIDIA driver.
const CONTROL_FILE: &str = "/dev/nvidiactl";

/// How long `nvidia-smi` may take: it is slow on a machine that has just started.
const SMI_PATIENCE: Duration = Duration::from_secs(5);

/// The queried fields, in the order of [`Now`]'s fields.
const SMI_FIELDS: &str = "uuid,driver_version,memory.used,utilization.gpu,temperature.gpu,power.draw,\
    power.limit,pcie.link.gen.current,pcie.link.width.current,ecc.errors.uncorrected.volatile.total";

/// Why this machine has no GPU, as far as that is known without a driver; `None` if it may have one.
pub fn why_none() -> Option<String> {
    let has = Path::new(CONTROL_FILE).exists();
    (!has).then(|| format!("this machine has no NVIDIA device: there is no {CONTROL_FILE}"))
}

/// The GPUs, or why there are none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Devices {
    /// Each of them.
    pub devices: Vec<Device>,
    /// Why there are none.
    pub why_none: Option<String>,
}

/// A GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Device {
    /// Its number.
    pub ordinal: i32,
    /// The product's name.
    pub name: String,
    /// `GPU-` and its identity.
    pub uuid: String,
    /// Its address on the bus.
    pub pci_address: String,
    /// Such as 9.0.
    pub compute_capability: String,
    /// All of its memory.
    pub memory_bytes: i64,
    /// Multiprocessors.
    pub multiprocessors: i32,
    /// Their largest clock.
    pub clock_mhz: i32,
    /// The memory's nominal speed.
    pub memory_gb_per_s: f64,
    /// The CUDA version that the driver supports.
    pub cuda_version: Option<String>,
    /// The current state.
    pub now: Now,
}

/// Output of `nvidia-smi`, if there is any.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Now {
    /// The driver's version.
    pub driver_version: Option<String>,
    /// Memory in use by processes.
    pub memory_used_bytes: Option<i64>,
    /// Share of time with a kernel.
    pub utilization_percent: Option<f64>,
    /// Temperature.
    pub temperature_c: Option<f64>,
    /// Power drawn.
    pub power_w: Option<f64>,
    /// The power limit.
    pub power_limit_w: Option<f64>,
    /// Generation of the link.
    pub pcie_generation: Option<i32>,
    /// Its lanes.
    pub pcie_lanes: Option<i32>,
    /// Uncorrected memory errors since the driver's start.
    pub uncorrected_errors: Option<i64>,
}

/// Queries the GPUs. Creates no context on any of them.
pub fn look() -> Devices {
    let probe = headrace_gpu::probe();
    let now = match probe.devices.is_empty() {
        true => Vec::new(),
        false => smi().as_deref().map(parse_smi).unwrap_or_default(),
    };
    let version = probe.driver_version.ok().map(|(major, minor)| format!("{major}.{minor}"));
    let device = |info: &headrace_gpu::DeviceInfo| Device {
        ordinal: i32::try_from(info.ordinal).unwrap_or(i32::MAX),
        name: info.name.clone(),
        uuid: info.uuid.clone(),
        pci_address: info.pcie_id.clone(),
        compute_capability: format!("{}.{}", info.compute_capability.0, info.compute_capability.1),
        memory_bytes: i64::try_from(info.total_memory_bytes).unwrap_or(i64::MAX),
        multiprocessors: i32::try_from(info.sm_count).unwrap_or(i32::MAX),
        clock_mhz: i32::try_from(info.clock_khz / 1000).unwrap_or(i32::MAX),
        memory_gb_per_s: info.nominal_memory_gb_per_s(),
        cuda_version: version.clone(),
        now: now
            .iter()
            .find(|(uuid, _)| *uuid == info.uuid)
            .map(|(_, n)| n.clone())
            .unwrap_or_default(),
    };
    let devices = probe.devices.iter().map(device).collect();
    // Remedies follow on lines of their own.
    let why_none = probe.reason.and_then(|reason| reason.lines().next().map(str::to_string));
    Devices { devices, why_none }
}

/// The output of `nvidia-smi`; `None` if it is missing or hangs.
fn smi() -> Option<String> {
    let query = format!("--query-gpu={SMI_FIELDS}");
    let mut command = Command::new("nvidia-smi");
    command.args([&query, "--format=csv,noheader,nounits"]);
    command.stdin(Stdio::null()).stderr(Stdio::null()).stdout(Stdio::piped());
    let (mut child, started) = (command.spawn().ok()?, Instant::now());
    while child.try_wait().ok()?.is_none() {
        if started.elapsed() > SMI_PATIENCE {
            let _ = child.kill();
            let _ = child.wait();
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut text = String::new();
    child.stdout.take()?.take(1 << 16).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Lines of fields; a field that the device does not have is in brackets, as `[N/A]`.
fn parse_smi(text: &str) -> Vec<(String, Now)> {
    fn number<T: std::str::FromStr>(field: Option<&&str>) -> Option<T> {
        field.and_then(|text| text.parse().ok())
    }
    let line = |line: &str| {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let uuid = fields.first().filter(|uuid| uuid.starts_with("GPU-"))?;
        let driver = fields.get(1).filter(|text| !text.is_empty() && !text.starts_with('['));
        let now = Now {
            driver_version: driver.map(|text| text.to_string()),
            memory_used_bytes: number::<i64>(fields.get(2)).map(|mib| mib << 20),
            utilization_percent: number(fields.get(3)),
            temperature_c: number(fields.get(4)),
            power_w: number(fields.get(5)),
            power_limit_w: number(fields.get(6)),
            pcie_generation: number(fields.get(7)),
            pcie_lanes: number(fields.get(8)),
            uncorrected_errors: number(fields.get(9)),
        };
        Some((uuid.to_string(), now))
    };
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_nvidia_smi_are_read_and_what_is_not_there_is_left_out() {
        let text = "GPU-1c6b, 570.86.15, 1234, 87, 41, 512.33, 700.00, 5, 16, 0\n\
                    GPU-2, 570.86.15, 0, [N/A], 30, [Not Supported], 700.00, 4, 8, [N/A]\n\
                    NVIDIA-SMI has failed\n";
        let found = parse_smi(text);
        assert_eq!(found.len(), 2);
        let (uuid, now) = &found[0];
        assert_eq!((uuid.as_str(), now.driver_version.as_deref()), ("GPU-1c6b", Some("570.86.15")));
        assert_eq!((now.memory_used_bytes, now.power_w), (Some(1234 << 20), Some(512.33)));
        assert_eq!((now.pcie_generation, now.pcie_lanes), (Some(5), Some(16)));
        let now = &found[1].1;
        assert_eq!(
            (now.utilization_percent, now.power_w, now.temperature_c),
            (None, None, Some(30.0))
        );
        assert_eq!((now.uncorrected_errors, now.memory_used_bytes), (None, Some(0)));
    }
}
