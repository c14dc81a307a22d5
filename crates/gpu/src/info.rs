//! What a GPU is: fixed properties, read once.

use std::ffi::c_char;

use cudarc::driver::sys::{CUdevice, CUdevice_attribute as Attribute, CUuuid};
use serde::Serialize;

use crate::api;
use crate::driver::check;
use crate::error::{GpuError, Result};
use crate::properties::{self, Property};

/// What a GPU is: fixed properties, read once. Clocks are the maximum clocks that the
/// driver reports, not the present ones.
///
/// The fields are the properties that this project computes with; [`DeviceInfo::properties`] is the
/// complete list, for display.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeviceInfo {
    /// Position among the devices visible to this process, from 0.
    pub ordinal: usize,
    /// The product's name, for instance `NVIDIA H200`.
    pub name: String,
    /// `GPU-` and the device's identity as nvidia-smi writes it; the same in every process.
    pub uuid: String,
    /// PCIe address as sysfs writes it, `0000:c1:00.0`: domain, bus, device and function
    /// in hexadecimal.
    pub pcie_id: String,
    /// Compute capability, (major, minor).
    pub compute_capability: (u32, u32),
    /// Device memory in bytes.
    pub total_memory_bytes: u64,
    /// Streaming multiprocessors.
    pub sm_count: u32,
    /// Maximum clock of the multiprocessors in kHz.
    pub clock_khz: u32,
    /// Maximum memory clock in kHz.
    pub memory_clock_khz: u32,
    /// Width of the memory bus in bits.
    pub memory_bus_bits: u32,
    /// L2 cache in bytes.
    pub l2_bytes: u32,
    /// Copy engines that run beside kernels.
    pub async_engine_count: u32,
    /// Shared memory a block may ask for after opting in, in bytes.
    pub shared_per_block_optin_bytes: u32,
    /// Shared memory of one multiprocessor in bytes.
    pub shared_per_sm_bytes: u32,
    /// Threads resident on one multiprocessor.
    pub threads_per_sm: u32,
    /// Whether host memory can be registered for reading only: what read-only mappings of
    /// files need.
    pub read_only_host_register: bool,
    /// Whether other PCIe devices may read and write the device's memory: what GPUDirect
    /// Storage builds on.
    pub gpudirect_rdma: bool,
    /// The NUMA node the device hangs on, where the driver knows it.
    pub host_numa_node: Option<u32>,
    /// What each of the driver's listed attributes is; see [`crate::properties`].
    #[serde(skip)]
    pub(crate) attributes: Vec<Option<i32>>,
}

impl DeviceInfo {
    /// The architecture name that a cubin for this device is compiled for, `sm_90` for
    /// compute capability 9.0.
    pub fn arch(&self) -> String {
        let (major, minor) = self.compute_capability;
        format!("sm_{major}{minor}")
    }

    /// Nominal bandwidth of the device memory in GB/s (GB = 10^9 bytes): two transfers a
    /// clock over the whole bus. 0 where the driver reports no clock.
    pub fn nominal_memory_gb_per_s(&self) -> f64 {
        2.0 * f64::from(self.memory_clock_khz) * 1e3 * f64::from(self.memory_bus_bits) / 8.0 / 1e9
    }

    /// All known properties of the device, in a fixed order, ready for display: a door prints the
    /// list without knowing its content.
    pub fn properties(&self) -> Vec<Property> {
        properties::of(self)
    }

    /// Reads the properties of the device at `ordinal`. The driver must be initialised.
    pub(crate) fn read(ordinal: usize) -> Result<Self> {
        let device = raw_device(ordinal)?;
        let attribute = |attribute| read_attribute(device, ordinal, attribute);
        let optional = |attribute| read_optional(device, attribute);
        Ok(Self {
            ordinal,
            name: read_name(device, ordinal)?,
            uuid: read_uuid(device, ordinal)?,
            pcie_id: read_pcie_id(device, ordinal)?,
            compute_capability: (
                attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
                attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
            ),
            total_memory_bytes: read_total_memory_bytes(device, ordinal)?,
            sm_count: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            clock_khz: attribute(Attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE)?,
            memory_clock_khz: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE)?,
            memory_bus_bits: attribute(Attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH)?,
            l2_bytes: attribute(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?,
            async_engine_count: attribute(Attribute::CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT)?,
            shared_per_block_optin_bytes: attribute(
                Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
            )?,
            shared_per_sm_bytes: attribute(
                Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR,
            )?,
            threads_per_sm: attribute(
                Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR,
            )?,
            read_only_host_register: optional(
                Attribute::CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED,
            ) == Some(1),
            gpudirect_rdma: optional(Attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED)
                == Some(1),
            // -1 on machines without NUMA.
            host_numa_node: optional(Attribute::CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID)
                .and_then(|node| u32::try_from(node).ok()),
            attributes: properties::LISTED
                .iter()
                .map(|listed| optional(listed.attribute))
                .collect(),
        })
    }
}

pub(crate) fn place_of(ordinal: usize) -> String {
    format!("device {ordinal}")
}

pub(crate) fn raw_device(ordinal: usize) -> Result<CUdevice> {
    let index = i32::try_from(ordinal).map_err(|_| {
        GpuError::invalid("cuDeviceGet", format!("no device has ordinal {ordinal}"))
    })?;
    let mut device = 0;
    // SAFETY: the driver is initialised and the out-pointer is live.
    let code = unsafe { api::cuDeviceGet(&mut device, index) };
    check("cuDeviceGet", code, || place_of(ordinal))?;
    Ok(device)
}

fn read_attribute(device: CUdevice, ordinal: usize, attribute: Attribute) -> Result<u32> {
    let mut value = 0;
    // SAFETY: `device` is a device of the initialised driver; the out-pointer is live.
    let code = unsafe { api::cuDeviceGetAttribute(&mut value, attribute, device) };
    check("cuDeviceGetAttribute", code, || format!("{} ({attribute:?})", place_of(ordinal)))?;
    Ok(u32::try_from(value).unwrap_or(0))
}

/// `None` when the installed driver does not know the attribute.
pub(crate) fn read_optional(device: CUdevice, attribute: Attribute) -> Option<i32> {
    let mut value = 0;
    // SAFETY: as in `read_attribute`; an unknown attribute is refused with a code.
    let code = unsafe { api::cuDeviceGetAttribute(&mut value, attribute, device) };
    (code == api::SUCCESS).then_some(value)
}

fn read_total_memory_bytes(device: CUdevice, ordinal: usize) -> Result<u64> {
    let mut bytes = 0usize;
    // SAFETY: as in `read_attribute`.
    let code = unsafe { api::cuDeviceTotalMem_v2(&mut bytes, device) };
    check("cuDeviceTotalMem", code, || place_of(ordinal))?;
    Ok(bytes as u64)
}

fn read_name(device: CUdevice, ordinal: usize) -> Result<String> {
    let mut text = [0 as c_char; 256];
    // SAFETY: the driver writes at most `len` bytes, NUL included, into the live array.
    let code = unsafe { api::cuDeviceGetName(text.as_mut_ptr(), text.len() as i32, device) };
    check("cuDeviceGetName", code, || place_of(ordinal))?;
    Ok(text_of_array(&text))
}

fn read_uuid(device: CUdevice, ordinal: usize) -> Result<String> {
    let mut uuid = CUuuid { bytes: [0; 16] };
    // SAFETY: as in `read_attribute`.
    let code = unsafe { api::cuDeviceGetUuid_v2(&mut uuid, device) };
    check("cuDeviceGetUuid", code, || place_of(ordinal))?;
    Ok(uuid_text(uuid.bytes.map(|byte| byte as u8)))
}

fn read_pcie_id(device: CUdevice, ordinal: usize) -> Result<String> {
    let mut text = [0 as c_char; 64];
    // SAFETY: as in `read_name`.
    let code = unsafe { api::cuDeviceGetPCIBusId(text.as_mut_ptr(), text.len() as i32, device) };
    check("cuDeviceGetPCIBusId", code, || place_of(ordinal))?;
    Ok(sysfs_address(&text_of_array(&text)))
}

/// `GPU-` and five groups of hexadecimal digits, as nvidia-smi writes it.
fn uuid_text(bytes: [u8; 16]) -> String {
    let mut text = String::from("GPU-");
    for (index, byte) in bytes.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

/// The driver's `domain:bus:device.function` the way sysfs writes it: lower case, four
/// digits of domain (more only where they are needed).
fn sysfs_address(address: &str) -> String {
    let address = address.to_lowercase();
    match address.split_once(':') {
        Some((domain, rest)) => {
            let domain = domain.trim_start_matches('0');
            format!("{domain:0>4}:{rest}")
        }
        None => address,
    }
}

/// The text before the first NUL, or all of it where there is none.
fn text_of_array(text: &[c_char]) -> String {
    let bytes: Vec<u8> = text.iter().take_while(|&&c| c != 0).map(|&c| c as u8).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    pub(crate) fn example() -> DeviceInfo {
        DeviceInfo {
            ordinal: 1,
            name: "NVIDIA H200".into(),
            uuid: uuid_text([0xab; 16]),
            pcie_id: "0000:c1:00.0".into(),
            compute_capability: (9, 0),
            total_memory_bytes: 150_000_000_000,
            sm_count: 132,
            clock_khz: 1_980_000,
            memory_clock_khz: 3_201_000,
            memory_bus_bits: 6144,
            l2_bytes: 60 << 20,
            async_engine_count: 3,
            shared_per_block_optin_bytes: 227 << 10,
            shared_per_sm_bytes: 228 << 10,
            threads_per_sm: 2048,
            read_only_host_register: true,
            gpudirect_rdma: true,
            host_numa_node: None,
            attributes: properties::LISTED.iter().map(|_| Some(1)).collect(),
        }
    }

    #[test]
    fn addresses_are_written_as_sysfs_writes_them() {
        assert_eq!(sysfs_address("0000:C1:00.0"), "0000:c1:00.0");
        assert_eq!(sysfs_address("00000000:1F:00.0"), "0000:1f:00.0");
        assert_eq!(sysfs_address("00010000:1F:00.0"), "10000:1f:00.0");
        assert_eq!(sysfs_address("odd"), "odd");
    }

    #[test]
    fn identities_are_written_as_nvidia_smi_writes_them() {
        let bytes = std::array::from_fn(|index| index as u8);
        assert_eq!(uuid_text(bytes), "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f");
    }

    #[test]
    fn the_whole_of_it_serialises() {
        let json = serde_json::to_value(example()).unwrap();
        assert_eq!(json["name"], "NVIDIA H200");
        assert_eq!(json["pcie_id"], "0000:c1:00.0");
        assert!(json.get("attributes").is_none());
    }

    #[test]
    fn nominal_bandwidth_is_two_transfers_a_clock() {
        let info = example();
        assert!((info.nominal_memory_gb_per_s() - 4917.0).abs() < 1.0);
        assert_eq!(info.arch(), "sm_90");
    }
}
