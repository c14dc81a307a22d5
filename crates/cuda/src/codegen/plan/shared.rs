//! What lies in a block's shared memory: accumulators, and the build tables that most rows
//! look into.
//!
//! A large bitmap takes shared memory only where most rows look into it (`pipeline::bind::order`): more blocks hide
//! more latency than it spares.

use headrace_pipeline::bind::is_near_on_gpu;
use headrace_pipeline::bound::{Bound, BoundProbe, BoundStep};
use headrace_pipeline::build::{BuildIndex, Presence};

use crate::codegen::plan::pairs::CountedPairs;
use crate::codegen::plan::probes::marked_payload;
use crate::codegen::plan::sink::{SinkPlan, Where};
use crate::tables::{BuildPiece, payload_shape};
use crate::tuning::Tuning;

/// A bitmap is looked into before the payload when it keeps at most this share of the rows.
const BITMAP_FIRST_SELECTIVITY_MAX: f64 = 0.6;

/// What an entry of the shared memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SharedItem {
    /// Accumulator of the sink, all replicas.
    Accumulator(usize),
    /// Part of the build that the step probes.
    Build { step: usize, piece: BuildPiece },
    /// Rows that wait to be taken one by one.
    Queue,
    /// Counts of pairs of rows.
    Pairs,
}

/// One entry.
#[derive(Clone, Debug)]
pub(crate) struct SharedEntry {
    pub(crate) item: SharedItem,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    /// Name in the kernel, once something uses it.
    pub(crate) name: Option<String>,
}

/// The block's dynamic shared memory.
#[derive(Debug, Default)]
pub(crate) struct SharedPlan {
    pub(crate) entries: Vec<SharedEntry>,
    pub(crate) bytes: u32,
    /// Tables that rows look into before they are taken one by one.
    pub(crate) builds: usize,
    /// What is counted there.
    pub(crate) pairs: Option<CountedPairs>,
}

impl SharedPlan {
    pub(crate) fn of(
        bound: &Bound,
        sink: &SinkPlan,
        tuning: Tuning,
        queue_step: Option<usize>,
    ) -> Self {
        let mut plan = Self::default();
        let replicas = match sink.place {
            Where::Registers => 1,
            Where::Shared { replicas } => u64::from(replicas),
            Where::Global | Where::Rows => 0,
        };
        if replicas > 0 {
            for (index, accumulator) in sink.accumulators.iter().enumerate() {
                let bytes = accumulator.shared_bytes() * sink.groups * replicas;
                plan.add(SharedItem::Accumulator(index), bytes);
            }
        }
        if queue_step.is_some() {
            let threads = u64::from(tuning.block_threads);
            plan.add(SharedItem::Queue, threads * (u64::from(tuning.rows_per_thread) + 1) * 2);
        }
        // Rows that are taken one by one lie anywhere.
        let pairs = CountedPairs::of(bound).filter(|_| queue_step.is_none());
        if let Some(pairs) = pairs {
            let bytes = pairs.shared_bytes(tuning);
            if plan.fits(bytes, u64::from(tuning.shared_bytes_max)) {
                plan.add(SharedItem::Pairs, bytes);
                plan.pairs = Some(pairs);
            }
        }
        let mut rate = 1.0;
        for (step, kind) in bound.steps.iter().enumerate() {
            match kind {
                BoundStep::Filter { selectivity, .. } => rate *= selectivity.clamp(0.0, 1.0),
                BoundStep::Compute { .. } => {}
                BoundStep::Probe(probe) => {
                    let before = plan.entries.len();
                    plan.add_probe(step, probe, rate, u64::from(tuning.shared_bytes_max));
                    let added = plan.entries.len() > before;
                    let vector = queue_step.is_none_or(|queue| step < queue);
                    plan.builds += usize::from(added && vector);
                    rate *= probe.selectivity.clamp(0.0, 1.0);
                }
            }
        }
        plan
    }

    fn add(&mut self, item: SharedItem, bytes: u64) {
        let offset = u64::from(self.bytes);
        let bytes = bytes.next_multiple_of(16);
        self.entries.push(SharedEntry { item, offset, bytes, name: None });
        self.bytes += bytes as u32;
    }

    fn fits(&self, bytes: u64, limit: u64) -> bool {
        u64::from(self.bytes) + bytes.next_multiple_of(16) <= limit
    }

    /// Whether an entry is planned.
    pub(crate) fn has(&self, step: usize, piece: BuildPiece) -> bool {
        self.entries.iter().any(|e| e.item == SharedItem::Build { step, piece })
    }

    /// The first look of a probe goes to shared memory if that table fits: the narrow payload
    /// with absent marks if it is small, else the bitmap where it removes enough rows.
    fn add_probe(&mut self, step: usize, probe: &BoundProbe, rate: f64, limit: u64) {
        let BuildIndex::Direct(Presence { domain, .. }) = &probe.build.index else { return };
        let bitmap_bytes = bitmap_bytes(*domain);
        let marked = marked_payload(probe).map(|column| {
            let width = payload_shape(&probe.build.payload[column].data).width_bytes;
            (column, (domain + 1) * width)
        });
        let belongs = |bytes| is_near_on_gpu(bytes, rate) && self.fits(bytes, limit);
        match marked {
            Some((column, bytes)) if bytes <= limit / 2 && belongs(bytes) => {
                self.add(SharedItem::Build { step, piece: BuildPiece::Payload(column) }, bytes);
            }
            marked => {
                let worth = marked.is_none() || probe.selectivity <= BITMAP_FIRST_SELECTIVITY_MAX;
                if worth && belongs(bitmap_bytes) {
                    let piece = BuildPiece::Present;
                    self.add(SharedItem::Build { step, piece }, bitmap_bytes);
                }
            }
        }
    }
}

/// Bytes of a bitmap over a domain as the device holds it, with an absent key behind the last.
pub(crate) fn bitmap_bytes(domain: u64) -> u64 {
    (domain + 1).div_ceil(64) * 8
}
