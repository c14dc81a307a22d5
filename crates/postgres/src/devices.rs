//! The GPUs of this machine, as the process that owns them tells: the view `headrace.devices`.

use std::path::Path;

use headrace_service::client::{Connection, Failure, HELLO_PATIENCE};
use headrace_service::devices::{self, Device, Devices};
use pgrx::iter::TableIterator;
use pgrx::name;

use crate::executor::service;
use crate::executor::threads::interruptibly;

fn ask() -> Result<Devices, Failure> {
    let start = service::start();
    let asked = interruptibly(move |token| {
        let data = Path::new(service::DATA);
        // One that runs is asked in any case.
        let connection = match (Connection::open(data, HELLO_PATIENCE, token), devices::why_none())
        {
            (Ok(connection), _) => connection,
            (Err(_), Some(why)) => return Ok(Devices { devices: Vec::new(), why_none: Some(why) }),
            (Err(_), None) => service::connect(&start, token)?,
        };
        connection.devices(token)
    });
    asked.unwrap_or_else(|cause| Err(Failure::lost(cause.to_string())))
}

/// A row a GPU; a notice says why there is none.
#[pgrx::pg_extern(volatile, parallel_restricted)]
#[allow(clippy::type_complexity)]
fn devices() -> TableIterator<
    'static,
    (
        name!(ordinal, i32),
        name!(name, String),
        name!(uuid, String),
        name!(pci_address, String),
        name!(compute_capability, String),
        name!(memory_bytes, i64),
        name!(memory_used_bytes, Option<i64>),
        name!(memory_gb_per_s, f64),
        name!(multiprocessors, i32),
        name!(clock_mhz, i32),
        name!(utilization_percent, Option<f64>),
        name!(temperature_c, Option<f64>),
        name!(power_w, Option<f64>),
        name!(power_limit_w, Option<f64>),
        name!(pcie_generation, Option<i32>),
        name!(pcie_lanes, Option<i32>),
        name!(uncorrected_errors, Option<i64>),
        name!(driver_version, Option<String>),
        name!(cuda_version, Option<String>),
    ),
> {
    let found = ask()
        .unwrap_or_else(|failure| Devices { devices: Vec::new(), why_none: Some(failure.message) });
    if let Some(why) = &found.why_none {
        pgrx::notice!("no GPU: {why}");
    }
    let row = |device: Device| {
        let now = device.now;
        (
            device.ordinal, device.name, device.uuid, device.pci_address,
            device.compute_capability, device.memory_bytes, now.memory_used_bytes,
            device.memory_gb_per_s, device.multiprocessors, device.clock_mhz,
            now.utilization_percent, now.temperature_c, now.power_w, now.power_limit_w,
            now.pcie_generation, now.pcie_lanes, now.uncorrected_errors, now.driver_version,
            device.cuda_version,
        )
    };
    TableIterator::new(found.devices.into_iter().map(row))
}
