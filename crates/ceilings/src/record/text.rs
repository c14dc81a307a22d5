//! A measured rate beside its ceiling, as text.

use std::fmt::Write as _;

use headrace_flow::Bottleneck;

use super::{Ceiling, Ceilings, Measure, StoreKey};

/// Above this share the ceiling was too low, and the text says so.
const ABOVE: f64 = 1.02;

const DAY_S: u64 = 24 * 3600;

/// The location of a race, for finding its ceilings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place {
    /// The storage that it read or wrote.
    pub store: Option<StoreKey>,
    /// PCI addresses of its GPUs.
    pub gpus: Vec<String>,
}

impl Ceilings {
    /// The ceiling of a race's limiting stage, if it was measured. `name` is [`Bottleneck::name`].
    pub fn of_bottleneck(&self, name: &str, place: &Place) -> Option<Ceiling> {
        let store = place.store.as_ref();
        match name {
            "storage-bound" => self.for_store(store?).read,
            "write-bound" => self.for_store(store?).write,
            "page-cache-bound" => self.best(|m| matches!(m, Measure::PageCacheRead { .. })),
            "host-copy-bound" => self.best(|m| matches!(m, Measure::HostCopy { .. })),
            "link-bound" => self.of_links(place, true),
            "registration-bound" => self.best(|m| matches!(m, Measure::Pinning { .. })),
            "d2h-bound" => self.of_links(place, false),
            "kernel-bound" => match place.gpus.as_slice() {
                [gpu] => self.get(&Measure::DeviceMemory { gpu: gpu.clone() }),
                _ => None,
            },
            _ => None,
        }
    }

    /// One link's ceiling, or the measured rate of all of them together.
    fn of_links(&self, place: &Place, to_device: bool) -> Option<Ceiling> {
        let measure = match (place.gpus.as_slice(), to_device) {
            ([], _) => return None,
            ([gpu], true) => Measure::HostToDevice { gpu: gpu.clone() },
            ([gpu], false) => Measure::DeviceToHost { gpu: gpu.clone() },
            (gpus, true) => Measure::AllHostToDevice { gpus: gpus.len() as u32 },
            (gpus, false) => Measure::AllDeviceToHost { gpus: gpus.len() as u32 },
        };
        self.get(&measure)
    }

    /// The bottleneck of a race beside its ceiling: "storage-bound: 2.41 GB/s, 97% of the 2.48 GB/s
    /// this file can deliver". Without a ceiling, how busy the stage was.
    pub fn describe_bottleneck(&self, bottleneck: &Bottleneck, place: &Place) -> String {
        match self.of_bottleneck(bottleneck.name, place) {
            Some(ceiling) => format!(
                "{}: {:.2} GB/s, {}",
                bottleneck.name,
                bottleneck.gb_per_s,
                share_of_ceiling(bottleneck.gb_per_s, &ceiling)
            ),
            None => bottleneck.to_string(),
        }
    }
}

/// "97% of the 2.48 GB/s this file can deliver"; says so when the ceiling is stale or was exceeded.
/// `value` is in the ceiling's unit.
pub fn share_of_ceiling(value: f64, ceiling: &Ceiling) -> String {
    let share = value / ceiling.value;
    let percent = share * 100.0;
    let known = match ceiling.unit {
        "IOPS" => format!("{:.0} IOPS", ceiling.value),
        unit => format!("{:.2} {unit}", ceiling.value),
    };
    let mut text = format!("{percent:.0}% of the {known} {}", can(&ceiling.measure));
    let remark = match &ceiling.measure {
        _ if ceiling.stale => {
            Some(format!("measured {} days ago: measure again", ceiling.age_s / DAY_S))
        }
        // Kernels count the bytes of the columns, and skip those that no row needs.
        Measure::DeviceMemory { .. } if share > ABOVE => {
            Some("not every byte had to be read".to_string())
        }
        _ if share > ABOVE => Some("the ceiling was measured too low".to_string()),
        _ => None,
    };
    if let Some(remark) = remark {
        // Writing to a string does not fail.
        let _ = write!(text, " ({remark})");
    }
    text
}

/// The verb for a ceiling's subject, from the point of view of a race.
fn can(measure: &Measure) -> &'static str {
    match measure {
        Measure::StorageRead { .. } => "this file can deliver",
        Measure::StorageWrite { .. } => "this file can take",
        Measure::RandomRead { .. } => "this file can answer",
        Measure::PageCacheRead { .. } => "the page cache can deliver",
        Measure::HostCopy { .. } => "host memory can copy",
        Measure::Pinning { .. } => "this machine can pin",
        Measure::HostToDevice { .. } | Measure::DeviceToHost { .. } => "this link can carry",
        Measure::AllHostToDevice { .. } | Measure::AllDeviceToHost { .. } => {
            "these links can carry together"
        }
        Measure::DeviceMemory { .. } => "this device's memory can deliver",
    }
}
