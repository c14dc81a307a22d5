//! The time of each stage alone; the formulae are in the documentation of the [module](super).

use super::path::{Ring, Station};
use super::stage::BYTES_PER_GB;
use super::{
    Decode, Machine, ModelError, ModelStage, Placement, Scan, StagePrediction, Target, Topology,
};

/// The stages of a scan on a machine, and their overlap.
pub(super) struct Stages {
    pub stages: Vec<StagePrediction>,
    /// One per element of `stages`.
    pub stations: Vec<Station>,
    pub ring: Ring,
    pub not_modelled: Vec<ModelStage>,
}

impl Stages {
    /// # Errors
    /// [`ModelError::MissingCeiling`] if a rate is unknown that the prediction depends on.
    pub fn of(scan: &Scan, machine: &Machine) -> Result<Stages, ModelError> {
        let mut build = Build::new(scan, machine);
        build.add_sources()?;
        build.add_host()?;
        match scan.target {
            Target::Gpu => build.add_devices()?,
            Target::Host => build.add_cpu(),
        }
        build.add_results();
        Ok(build.stages)
    }
}

struct Build<'a> {
    scan: &'a Scan,
    machine: &'a Machine,
    chunks: f64,
    stages: Stages,
}

impl<'a> Build<'a> {
    fn new(scan: &'a Scan, machine: &'a Machine) -> Build<'a> {
        let streamed_bytes = scan.wire_bytes() * (1.0 - scan.device_share);
        let chunks = (streamed_bytes / scan.chunk_bytes as f64).ceil().max(1.0);
        let ring = Ring {
            chunks,
            slots: ring_slots(scan, machine),
            latency_s: if scan.storage_share() > 0.0 { machine.read_latency_s } else { 0.0 },
        };
        let stages =
            Stages { stages: Vec::new(), stations: Vec::new(), ring, not_modelled: Vec::new() };
        Build { scan, machine, chunks, stages }
    }

    fn add(
        &mut self,
        stage: ModelStage,
        (bytes, gb_per_s): (f64, f64),
        overhead_s: f64,
        parallel: Option<f64>,
        limit: String,
    ) {
        let seconds = bytes / BYTES_PER_GB / gb_per_s + overhead_s;
        self.stages.stages.push(StagePrediction { stage, bytes, gb_per_s, seconds, limit });
        self.stages.stations.push(Station { seconds, parallel });
    }

    /// Storage and page cache fill the slots.
    fn add_sources(&mut self) -> Result<(), ModelError> {
        let Machine { storage, placement, topology, .. } = self.machine;
        let storage_bytes = self.scan.wire_bytes() * self.scan.storage_share();
        if storage_bytes > 0.0 {
            let gb_per_s = self.machine.storage_read_gb_per_s();
            if storage.is_empty() {
                let remedy = "measure it with `headrace bench io`, or state it: --storage 2.5GB/s";
                return Err(ModelError::MissingCeiling { stage: ModelStage::StorageRead, remedy });
            }
            let parallel = match placement {
                Placement::Striped => 1.0,
                Placement::Even | Placement::Proportional => storage.len() as f64,
            };
            let limit = self.storage_in_words();
            self.add(
                ModelStage::StorageRead,
                (storage_bytes, gb_per_s),
                0.0,
                Some(parallel),
                limit,
            );
            if let Topology::Shared { uplinks, gb_per_s } = *topology {
                let limit = format!("{uplinks} x {gb_per_s} GB/s, shared by all storage");
                let together = f64::from(uplinks) * gb_per_s;
                self.add(ModelStage::SharedUplink, (storage_bytes, together), 0.0, None, limit);
            }
        }
        let cached_bytes = self.scan.wire_bytes() * self.scan.page_cache_share;
        if cached_bytes > 0.0 {
            let Some(gb_per_s) = self.machine.page_cache_gb_per_s else {
                let remedy = "measure it with `headrace doctor`, or state it: --page-cache 50GB/s";
                return Err(ModelError::MissingCeiling {
                    stage: ModelStage::PageCacheCopy,
                    remedy,
                });
            };
            // Cores work on it in place: no chunk waits for a copy.
            let parallel = (self.scan.target == Target::Gpu).then_some(1.0);
            let limit = "copies out of the page cache".to_string();
            self.add(ModelStage::PageCacheCopy, (cached_bytes, gb_per_s), 0.0, parallel, limit);
        }
        Ok(())
    }

    fn storage_in_words(&self) -> String {
        let Machine { storage, placement, .. } = self.machine;
        let same = storage.windows(2).all(|pair| pair[0] == pair[1]);
        match (storage.as_slice(), placement) {
            ([one], _) => one.name.clone(),
            ([one, ..], _) if same => {
                format!("{} x {} of {} GB/s", storage.len(), one.name, one.read_gb_per_s)
            }
            (_, Placement::Proportional) => format!("{} devices, each at its rate", storage.len()),
            _ => format!("{} devices, each at the rate of the slowest", storage.len()),
        }
    }

    /// The host's work on bytes in transit.
    fn add_host(&mut self) -> Result<(), ModelError> {
        let scan = self.scan;
        let read_share = scan.storage_share() + scan.page_cache_share;
        let read_wire_bytes = scan.wire_bytes() * read_share;
        let decodes = scan.decode == Decode::Host && scan.compression_ratio != 1.0;
        let decoded_bytes = if decodes { scan.logical_bytes() * read_share } else { 0.0 };
        if decoded_bytes > 0.0 {
            let Some(gb_per_s) = self.machine.host_decode_gb_per_s else {
                let remedy = "state how fast the CPU decompresses: --host-decode 4GB/s";
                return Err(ModelError::MissingCeiling { stage: ModelStage::HostDecode, remedy });
            };
            let limit = "decompression by the CPU".to_string();
            let stage = ModelStage::HostDecode;
            self.add(stage, (decoded_bytes, gb_per_s), 0.0, Some(1.0), limit);
        }
        let decode_crossings = if decodes { read_wire_bytes + decoded_bytes } else { 0.0 };
        let crossings = scan.wire_bytes() * scan.storage_share()
            + self.page_cache_crossings()
            + decode_crossings
            + scan.link_bytes()
            + if scan.target == Target::Host { scan.logical_bytes() } else { 0.0 };
        match self.machine.host_memory_gb_per_s {
            _ if crossings == 0.0 => {}
            None => self.stages.not_modelled.push(ModelStage::HostMemory),
            Some(gb_per_s) => {
                let limit = "reads and writes of host memory".to_string();
                self.add(ModelStage::HostMemory, (crossings, gb_per_s), 0.0, None, limit);
            }
        }
        Ok(())
    }

    /// A copy reads and writes; in-place processing does neither beforehand.
    fn page_cache_crossings(&self) -> f64 {
        let cached_bytes = self.scan.wire_bytes() * self.scan.page_cache_share;
        match self.scan.target {
            Target::Gpu => 2.0 * cached_bytes,
            Target::Host => 0.0,
        }
    }

    fn add_devices(&mut self) -> Result<(), ModelError> {
        let gpus = self.machine.gpus.len() as f64;
        if self.machine.gpus.is_empty() {
            let remedy = "name a GPU: --gpu h200; or predict for the host";
            return Err(ModelError::MissingCeiling { stage: ModelStage::CopyToDevice, remedy });
        }
        let link_bytes = self.scan.link_bytes();
        let launches = self.chunks / gpus;
        if link_bytes > 0.0 {
            let gb_per_s = self.machine.h2d_gb_per_s();
            let limit = self.links_in_words();
            let overhead_s = self.machine.copy_overhead_s * launches;
            let stage = ModelStage::CopyToDevice;
            self.add(stage, (link_bytes, gb_per_s), overhead_s, Some(gpus), limit);
        }
        match self.machine.sum_over_gpus(|gpu| gpu.memory_gb_per_s) {
            None => self.stages.not_modelled.push(ModelStage::Kernel),
            Some(gb_per_s) => {
                let bytes = self.scan.device_memory_bytes();
                let limit = format!("memory of {}", self.gpus_in_words());
                let overhead_s = self.machine.launch_overhead_s * launches;
                self.add(ModelStage::Kernel, (bytes, gb_per_s), overhead_s, Some(gpus), limit);
            }
        }
        Ok(())
    }

    fn gpus_in_words(&self) -> String {
        let gpus = &self.machine.gpus;
        match gpus.as_slice() {
            [one] => one.name.clone(),
            [one, rest @ ..] if rest.iter().all(|gpu| gpu == one) => {
                format!("{} x {}", gpus.len(), one.name)
            }
            _ => format!("{} GPUs", gpus.len()),
        }
    }

    fn links_in_words(&self) -> String {
        let sum: f64 = self.machine.gpus.iter().map(|gpu| gpu.h2d_gb_per_s).sum();
        match self.machine.all_links_gb_per_s {
            Some(together) if together < sum => {
                format!("links of {}, {together} GB/s together", self.gpus_in_words())
            }
            _ => format!("link of {}", self.gpus_in_words()),
        }
    }

    fn add_cpu(&mut self) {
        match self.machine.cpu_gb_per_s {
            None => self.stages.not_modelled.push(ModelStage::Cpu),
            Some(gb_per_s) => {
                let workers = self.machine.cpu_workers;
                let bytes = self.scan.logical_bytes();
                let limit = format!("{workers} CPU workers");
                let parallel = Some(f64::from(workers));
                self.add(ModelStage::Cpu, (bytes, gb_per_s), 0.0, parallel, limit);
            }
        }
    }

    fn add_results(&mut self) {
        let bytes = self.scan.result_bytes as f64;
        if bytes == 0.0 {
            return;
        }
        if self.scan.target == Target::Gpu {
            let rate = self.machine.sum_over_gpus(|gpu| gpu.d2h_gb_per_s);
            self.add_result_stage(ModelStage::CopyToHost, bytes, rate, "links back");
        }
        if let Topology::Local { gb_per_s } = self.machine.topology {
            self.add_result_stage(ModelStage::BoxUplink, bytes, Some(gb_per_s), "way out of boxes");
        }
        if self.scan.result_written {
            let rate = self.machine.storage_write_gb_per_s();
            self.add_result_stage(ModelStage::StorageWrite, bytes, rate, "storage, written");
        }
    }

    fn add_result_stage(&mut self, stage: ModelStage, bytes: f64, rate: Option<f64>, limit: &str) {
        match rate {
            None => self.stages.not_modelled.push(stage),
            Some(rate) => self.add(stage, (bytes, rate), 0.0, Some(1.0), limit.to_string()),
        }
    }
}

/// Slots of all rings; `None` if no bytes pass through a ring.
fn ring_slots(scan: &Scan, machine: &Machine) -> Option<f64> {
    let (streams, rings) = match scan.target {
        Target::Gpu => (scan.device_share < 1.0, machine.gpus.len()),
        // What is in the page cache is worked on in place.
        Target::Host => (scan.storage_share() > 0.0, 1),
    };
    let slots = f64::from(scan.slots) * rings as f64;
    (streams && scan.wire_bytes() > 0.0 && slots > 0.0).then_some(slots)
}
