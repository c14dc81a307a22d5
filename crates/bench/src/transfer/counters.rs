//! The machine's counters during a run: processor time and block devices.

use std::path::PathBuf;

use headrace_io::system::{CpuTimes, DiskRates, DiskSampler, StorageHome, SysRoot};

use super::record::{CpuRecord, DeviceRecord};

/// The counters to watch. Finding them takes time that does not belong to a run.
#[derive(Debug)]
pub(crate) struct Watched {
    disks: Vec<String>,
    notes: Vec<String>,
}

/// Counts from its creation on.
#[derive(Debug)]
pub(crate) struct Counters {
    cpu: CpuTimes,
    disks: Option<DiskSampler>,
    notes: Vec<String>,
}

/// The counts.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    pub cpu: CpuRecord,
    pub devices: Vec<DeviceRecord>,
    pub notes: Vec<String>,
}

impl Watched {
    /// The drives below these paths.
    pub fn below(paths: &[PathBuf]) -> Watched {
        let root = SysRoot::host();
        let mut notes = Vec::new();
        let mut names: Vec<String> = Vec::new();
        for path in paths {
            let home = StorageHome::of(&root, path);
            if let Err(unknown) = &home.medium {
                let path = path.display();
                notes.push(format!("{path}: the device below it is not known: {unknown}"));
            }
            for device in &home.devices {
                if !names.contains(&device.name) {
                    names.push(device.name.clone());
                }
            }
        }
        Watched { disks: names, notes }
    }

    /// Starts counting.
    pub fn start(&self) -> Counters {
        let mut notes = self.notes.clone();
        let disks = match DiskSampler::start(&SysRoot::host(), &self.disks) {
            Ok(sampler) => (!self.disks.is_empty()).then_some(sampler),
            Err(unknown) => {
                notes.push(format!("what the devices do is not known: {unknown}"));
                None
            }
        };
        Counters { cpu: CpuTimes::of_process(), disks, notes }
    }
}

impl Counters {
    /// The use since the start; the run took `wall_ns` of it.
    pub fn finish(mut self, wall_ns: u64) -> Counted {
        let cpu = CpuTimes::of_process().since(&self.cpu);
        let percent = cpu.cores(wall_ns) * 100.0;
        let devices = match self.disks.as_mut().map(DiskSampler::sample) {
            None => Vec::new(),
            Some(Ok(rates)) => rates.iter().map(device_record).collect(),
            Some(Err(unknown)) => {
                self.notes.push(format!("what the devices did is not known: {unknown}"));
                Vec::new()
            }
        };
        let cpu = CpuRecord { user_ns: cpu.user_ns, system_ns: cpu.system_ns, percent };
        Counted { cpu, devices, notes: self.notes }
    }
}

fn device_record(rates: &DiskRates) -> DeviceRecord {
    let requests = rates.reads + rates.writes;
    let bytes = rates.read_bytes + rates.written_bytes;
    DeviceRecord {
        name: rates.name.clone(),
        read_gb_per_s: rates.read_gb_per_s(),
        write_gb_per_s: rates.written_gb_per_s(),
        read_bytes: rates.read_bytes,
        written_bytes: rates.written_bytes,
        requests_per_s: super::record::per_ns(requests, rates.elapsed_ns) * 1e9,
        mean_request_bytes: bytes.checked_div(requests).unwrap_or(0),
        busy_share: rates.busy_share(),
    }
}
