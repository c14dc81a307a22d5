//! The long list of a device's properties, for showing.
//!
//! One table names every attribute worth showing, its unit and its format; attributes that a driver
//! does not know are omitted.

use cudarc::driver::sys::CUdevice_attribute::{self as Attribute, *};
use serde::Serialize;

use crate::info::DeviceInfo;

/// One property of a device or a library: a name, and a value that can be printed as it is.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Property {
    /// What it is, in words, for instance `L2 cache`.
    pub name: &'static str,
    /// The value in words, with its unit: `60 MiB`, `yes`, `NVIDIA H200`.
    pub value: String,
    /// The value as a number in `unit`, where it is one.
    pub number: Option<f64>,
    /// The unit of `number`, for instance `bytes`, `kHz`; empty without a unit.
    pub unit: &'static str,
}

impl Property {
    /// A property that is words alone.
    pub(crate) fn text(name: &'static str, value: impl Into<String>) -> Self {
        Self { name, value: value.into(), number: None, unit: "" }
    }

    /// A number, and how its kind is written.
    pub(crate) fn number(name: &'static str, kind: Kind, number: f64) -> Self {
        Self { name, value: kind.write(number), number: Some(number), unit: kind.unit() }
    }
}

/// How an attribute's number is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Count,
    Bytes,
    Kilohertz,
    Bits,
    YesNo,
    Hexadecimal,
    /// 0 default, 2 prohibited, 3 exclusive to a process (`CUcomputemode`).
    ComputeMode,
}

impl Kind {
    fn unit(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Kilohertz => "kHz",
            Self::Bits => "bits",
            Self::Count | Self::YesNo | Self::Hexadecimal | Self::ComputeMode => "",
        }
    }

    fn write(self, number: f64) -> String {
        match self {
            Self::Count => format!("{number}"),
            Self::Bytes => bytes_text(number),
            Self::Kilohertz => format!("{:.0} MHz", number / 1e3),
            Self::Bits => format!("{number} bits"),
            Self::YesNo => if number == 0.0 { "no" } else { "yes" }.to_string(),
            Self::Hexadecimal => format!("{:#x}", number as u64),
            Self::ComputeMode => match number as i64 {
                0 => "default".to_string(),
                2 => "prohibited".to_string(),
                3 => "exclusive to one process".to_string(),
                other => format!("{other}"),
            },
        }
    }
}

/// The largest binary unit that leaves at least 1, with one decimal where it is needed.
fn bytes_text(bytes: f64) -> String {
    let (value, unit) = match bytes {
        _ if bytes >= (1u64 << 30) as f64 => (bytes / (1u64 << 30) as f64, "GiB"),
        _ if bytes >= (1u64 << 20) as f64 => (bytes / (1u64 << 20) as f64, "MiB"),
        _ if bytes >= (1u64 << 10) as f64 => (bytes / (1u64 << 10) as f64, "KiB"),
        _ => (bytes, "bytes"),
    };
    if value.fract() == 0.0 { format!("{value:.0} {unit}") } else { format!("{value:.1} {unit}") }
}

/// A line of the table.
pub(crate) struct Listed {
    pub(crate) attribute: Attribute,
    name: &'static str,
    kind: Kind,
}

const fn listed(attribute: Attribute, name: &'static str, kind: Kind) -> Listed {
    Listed { attribute, name, kind }
}

/// The attributes that are shown beside the fields of [`DeviceInfo`], in their order.
pub(crate) const LISTED: &[Listed] = &[
    listed(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, "threads per block, maximum", Kind::Count),
    listed(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, "blocks per SM", Kind::Count),
    listed(CU_DEVICE_ATTRIBUTE_WARP_SIZE, "warp size", Kind::Count),
    listed(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, "registers per block", Kind::Count),
    listed(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, "registers per SM", Kind::Count),
    listed(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, "shared memory per block", Kind::Bytes),
    listed(
        CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK,
        "shared memory reserved per block",
        Kind::Bytes,
    ),
    listed(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, "constant memory", Kind::Bytes),
    listed(CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE, "persisting L2, maximum", Kind::Bytes),
    listed(CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, "concurrent kernels", Kind::YesNo),
    listed(CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, "cooperative launch", Kind::YesNo),
    listed(CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED, "compute preemption", Kind::YesNo),
    listed(CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT, "kernels have a time limit", Kind::YesNo),
    listed(CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, "compute mode", Kind::ComputeMode),
    listed(CU_DEVICE_ATTRIBUTE_TCC_DRIVER, "TCC driver (Windows)", Kind::YesNo),
    listed(CU_DEVICE_ATTRIBUTE_MPS_ENABLED, "MPS", Kind::YesNo),
    listed(CU_DEVICE_ATTRIBUTE_ECC_ENABLED, "ECC", Kind::YesNo),
    listed(CU_DEVICE_ATTRIBUTE_INTEGRATED, "shares memory with the host", Kind::YesNo),
    listed(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, "unified addressing", Kind::YesNo),
    listed(CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, "managed memory", Kind::YesNo),
    listed(CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, "concurrent managed access", Kind::YesNo),
    listed(CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, "pageable memory access", Kind::YesNo),
    listed(
        CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES,
        "pageable access uses host page tables",
        Kind::YesNo,
    ),
    listed(CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, "host memory can be mapped", Kind::YesNo),
    listed(CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, "host register", Kind::YesNo),
    listed(
        CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED,
        "read-only host register",
        Kind::YesNo,
    ),
    listed(
        CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM,
        "registered memory has the host's address",
        Kind::YesNo,
    ),
    listed(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED, "GPUDirect RDMA", Kind::YesNo),
    listed(CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, "dma-buf export", Kind::YesNo),
    listed(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, "memory pools", Kind::YesNo),
    listed(
        CU_DEVICE_ATTRIBUTE_VIRTUAL_ADDRESS_MANAGEMENT_SUPPORTED,
        "virtual address management",
        Kind::YesNo,
    ),
    listed(CU_DEVICE_ATTRIBUTE_GENERIC_COMPRESSION_SUPPORTED, "compressible memory", Kind::YesNo),
    listed(CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD, "several GPUs on the board", Kind::YesNo),
    listed(CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD_GROUP_ID, "board group", Kind::Count),
    listed(
        CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO,
        "single to double precision speed",
        Kind::Count,
    ),
    listed(CU_DEVICE_ATTRIBUTE_GPU_PCI_DEVICE_ID, "PCI device and vendor", Kind::Hexadecimal),
    listed(CU_DEVICE_ATTRIBUTE_GPU_PCI_SUBSYSTEM_ID, "PCI subsystem", Kind::Hexadecimal),
];

/// The fields of `info` and its listed attributes.
pub(crate) fn of(info: &DeviceInfo) -> Vec<Property> {
    let mut properties = headlines(info);
    let listed = LISTED.iter().zip(&info.attributes).filter_map(|(listed, value)| {
        value.map(|value| {
            // An identifier of 32 bits comes as a signed number.
            let number = match listed.kind {
                Kind::Hexadecimal => f64::from(value as u32),
                _ => f64::from(value),
            };
            Property::number(listed.name, listed.kind, number)
        })
    });
    properties.extend(listed);
    properties
}

fn headlines(info: &DeviceInfo) -> Vec<Property> {
    let (major, minor) = info.compute_capability;
    let number = Property::number;
    let mut properties = vec![
        Property::text("name", &info.name),
        Property::text("UUID", &info.uuid),
        Property::text("PCIe address", &info.pcie_id),
        Property::text("compute capability", format!("{major}.{minor}")),
        number("memory", Kind::Bytes, info.total_memory_bytes as f64),
        number("SMs", Kind::Count, f64::from(info.sm_count)),
        number("clock, maximum", Kind::Kilohertz, f64::from(info.clock_khz)),
        number("memory clock, maximum", Kind::Kilohertz, f64::from(info.memory_clock_khz)),
        number("memory bus", Kind::Bits, f64::from(info.memory_bus_bits)),
        Property {
            name: "memory bandwidth, nominal",
            value: format!("{:.0} GB/s", info.nominal_memory_gb_per_s()),
            number: Some(info.nominal_memory_gb_per_s()),
            unit: "GB/s",
        },
        number("L2 cache", Kind::Bytes, f64::from(info.l2_bytes)),
        number("copy engines", Kind::Count, f64::from(info.async_engine_count)),
        number("threads per SM", Kind::Count, f64::from(info.threads_per_sm)),
        number("shared memory per SM", Kind::Bytes, f64::from(info.shared_per_sm_bytes)),
        number(
            "shared memory per block, opt-in",
            Kind::Bytes,
            f64::from(info.shared_per_block_optin_bytes),
        ),
    ];
    if let Some(node) = info.host_numa_node {
        properties.push(number("NUMA node", Kind::Count, f64::from(node)));
    }
    properties
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::info::tests::example;

    fn value_of<'a>(properties: &'a [Property], name: &str) -> Option<&'a str> {
        properties.iter().find(|property| property.name == name).map(|p| p.value.as_str())
    }

    #[test]
    fn the_list_is_ready_to_print_and_names_are_unique() {
        let properties = example().properties();
        assert_eq!(value_of(&properties, "name"), Some("NVIDIA H200"));
        assert_eq!(value_of(&properties, "memory"), Some("139.7 GiB"));
        assert_eq!(value_of(&properties, "L2 cache"), Some("60 MiB"));
        assert_eq!(value_of(&properties, "clock, maximum"), Some("1980 MHz"));
        assert_eq!(value_of(&properties, "ECC"), Some("yes"));
        assert_eq!(value_of(&properties, "NUMA node"), None);
        let names: BTreeSet<_> = properties.iter().map(|property| property.name).collect();
        assert_eq!(names.len(), properties.len());
        assert!(properties.iter().all(|property| !property.value.is_empty()));
    }

    #[test]
    fn what_the_driver_does_not_know_is_left_out() {
        let mut info = example();
        let all = info.properties().len();
        info.attributes[0] = None;
        assert_eq!(info.properties().len(), all - 1);
    }

    #[test]
    fn identifiers_and_modes_are_written_in_words() {
        let vendor = f64::from(0x2335_10deu32);
        assert_eq!(Kind::Hexadecimal.write(vendor), "0x233510de");
        assert_eq!(Kind::ComputeMode.write(3.0), "exclusive to one process");
        assert_eq!(Kind::Bytes.write(512.0), "512 bytes");
        assert_eq!(Kind::Bytes.write(232_448.0), "227 KiB");
    }
}
