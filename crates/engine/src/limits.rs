//! A race beside what this machine was measured to deliver.

use std::path::Path;

use headrace_ceilings::Ceilings;
use headrace_ceilings::model::{Machine, Scan, Target, beside_measured, predict};
use headrace_ceilings::{Place, StoreKey};
use headrace_flow::RaceReport;

use crate::catalog::remote::is_address;
use crate::exec::PipelineExec;

/// The record of ceilings, and the part of it that concerns one pipeline.
pub struct Limits {
    ceilings: Ceilings,
    place: Place,
}

impl Limits {
    /// What concerns a pipeline: the storage of its streamed table, and the GPU that ran it.
    ///
    /// # Errors
    /// Why there is none, with a remedy, in words.
    pub fn of(node: &PipelineExec) -> Result<Self, String> {
        let ceilings = Ceilings::load().map_err(|error| error.to_string().replace('\n', "; "))?;
        let planned = node.planned();
        let streamed = planned.streamed_table();
        let path = streamed.and_then(|table| table.source().file_path(0)).map(Path::to_path_buf);
        if path.as_deref().is_some_and(is_address) {
            return Err("no ceiling is known of what lies elsewhere".to_string());
        }
        if ceilings.is_empty() {
            let path = path.map_or("PATH".to_string(), |path| path.display().to_string());
            return Err(format!("nothing was measured yet; hint: headrace doctor {path}"));
        }
        // A table whose device cannot be told has no ceilings, like one never measured.
        let store = path.and_then(|path| StoreKey::of_path(&path).ok());
        let gpus = node.gpu_address().into_iter().collect();
        Ok(Self { ceilings, place: Place { store, gpus } })
    }

    /// The stage that was the limit, with its share of the ceiling where that is known.
    pub fn bottleneck(&self, race: &RaceReport) -> Option<String> {
        let bottleneck = race.bottleneck()?;
        Some(self.ceilings.describe_bottleneck(&bottleneck, &self.place))
    }

    /// What the ceilings let expect of the race, beside what it took.
    pub fn prediction(&self, race: &RaceReport) -> String {
        let on_device = race.h2d_ns > 0 || race.kernel_ns > 0;
        let bytes = &race.bytes_by_path;
        let (target, gpus) = match on_device {
            true => (Target::Gpu, self.place.gpus.as_slice()),
            false => (Target::Host, [].as_slice()),
        };
        let scan = Scan::of_paths(
            bytes.direct + bytes.cufile,
            bytes.mapped + bytes.cached + bytes.buffered,
            bytes.registered,
            bytes.resident_device,
            target,
        );
        let machine = Machine::measured(&self.ceilings, self.place.store.as_ref(), gpus);
        match predict(&scan, &machine) {
            Ok(prediction) => {
                let mut text = beside_measured(prediction.total_s, race.wall_ns as f64 / 1e9);
                if !prediction.stages.is_empty() {
                    text += &format!(", expected limit {}", prediction.bottleneck);
                }
                if !prediction.not_modelled.is_empty() {
                    let names: Vec<String> =
                        prediction.not_modelled.iter().map(ToString::to_string).collect();
                    text += &format!("; without a ceiling: {}", names.join(", "));
                }
                text
            }
            Err(error) => error.to_string().replace('\n', "; "),
        }
    }
}
