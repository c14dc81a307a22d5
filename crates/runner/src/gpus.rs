//! The GPUs of a runner, opened when they are first asked for.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use headrace_cuda::{CudaDevice, CudaOptions, compile_fixed};
use headrace_io::MemoryBudget;
use headrace_io::system::PciAddress;
use headrace_pipeline::WhyNot;
use parking_lot::Mutex;

use crate::settings::Devices;

/// A GPU once it was asked for.
type Opened = Result<Arc<CudaDevice>, WhyNot>;

/// The GPUs of this machine.
#[derive(Debug)]
pub(crate) struct Gpus {
    options: CudaOptions,
    budget: Arc<MemoryBudget>,
    /// By ordinal, as far as they are known.
    addresses: OnceLock<Vec<Option<PciAddress>>>,
    /// By ordinal. Locked while one is opened: a second one would only wait for the driver.
    opened: Mutex<BTreeMap<usize, Opened>>,
    /// Those that are open. Reading them does not wait for one that is being opened.
    ready: Mutex<Vec<Arc<CudaDevice>>>,
}

impl Gpus {
    /// GPUs of which none is open. What is pinned for them is divided among those that there are.
    pub(crate) fn new(options: CudaOptions, budget: &Arc<MemoryBudget>) -> Self {
        let budget = Arc::clone(budget);
        Self {
            options,
            budget,
            addresses: OnceLock::new(),
            opened: Mutex::default(),
            ready: Mutex::default(),
        }
    }

    fn all_addresses(&self) -> &[Option<PciAddress>] {
        let find = || CudaDevice::addresses().iter().map(|address| address.parse().ok()).collect();
        self.addresses.get_or_init(find)
    }

    fn count(&self) -> usize {
        self.all_addresses().len()
    }

    /// Where GPUs are on the PCI bus; `None` where nobody knows that of one.
    pub(crate) fn addresses(&self, ordinals: &[usize]) -> Option<Vec<PciAddress>> {
        let all = self.all_addresses();
        ordinals.iter().map(|&ordinal| all.get(ordinal).copied().flatten()).collect()
    }

    /// The GPUs to use: those that were asked for, or all that did not fail to open. Of the
    /// others it is said why.
    pub(crate) fn ordinals(&self, devices: &Devices) -> (Vec<usize>, Vec<String>) {
        match devices {
            Devices::These(ordinals) => (ordinals.clone(), Vec::new()),
            Devices::All => {
                let opened = self.opened.lock();
                let failure = |ordinal: usize| opened.get(&ordinal)?.as_ref().err();
                // Where all fail, the first tells the reason.
                let all = 0..self.count().max(1);
                let usable: Vec<_> = all.clone().filter(|&o| failure(o).is_none()).collect();
                if usable.is_empty() {
                    return (vec![0], Vec::new());
                }
                let note = |o| Some(format!("GPU {o} is not used: {}", failure(o)?));
                (usable, all.filter_map(note).collect())
            }
        }
    }

    /// A GPU.
    pub(crate) fn open(&self, ordinal: usize) -> Opened {
        let open = || {
            let share = self.options.pinned_bytes_max / self.count().max(1) as u64;
            let options = CudaOptions { pinned_bytes_max: share, ..self.options };
            let opened = CudaDevice::open_within(ordinal, options, Some(&self.budget));
            let opened = opened.inspect(|device| {
                compile_fixed(device);
                self.ready.lock().push(Arc::clone(device));
            });
            opened.map_err(|error| {
                // Remedies follow on lines of their own; EXPLAIN has room for the cause.
                let text = error.to_string();
                WhyNot::new(text.lines().next().unwrap_or("no GPU"))
            })
        };
        self.opened.lock().entry(ordinal).or_insert_with(open).clone()
    }

    /// Those that are open.
    pub(crate) fn all_open(&self) -> Vec<Arc<CudaDevice>> {
        self.ready.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_that_does_not_open_is_left_out_and_named() {
        let gpus = Gpus::new(CudaOptions::default(), &MemoryBudget::new(0));
        gpus.addresses.set(vec![None; 3]).unwrap_or_default();
        assert_eq!(gpus.ordinals(&Devices::All), (vec![0, 1, 2], vec![]));
        gpus.opened.lock().insert(1, Err(WhyNot::new("broken")));
        let note = "GPU 1 is not used: broken".to_string();
        assert_eq!(gpus.ordinals(&Devices::All), (vec![0, 2], vec![note]));
        // What was asked for by number is not exchanged for something else.
        assert_eq!(gpus.ordinals(&Devices::These(vec![1])), (vec![1], vec![]));
        for ordinal in [0, 2] {
            gpus.opened.lock().insert(ordinal, Err(WhyNot::new("gone")));
        }
        assert_eq!(gpus.ordinals(&Devices::All).0, [0]);
    }
}
