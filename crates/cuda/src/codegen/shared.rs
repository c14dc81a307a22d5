//! What lies in a block's shared memory: accumulators, and the build tables that most rows
//! look into.

use headrace_ir::ProbeKind;
use headrace_pipeline::bind::is_near_on_gpu;
use headrace_pipeline::bound::{Bound, BoundProbe, BoundStep};
use headrace_pipeline::build::{BuildIndex, PayloadData, Presence};

use super::sink::{SinkPlan, Where};
use crate::program::{BuildPiece, Tuning};

/// A bitmap is looked into before the payload when it keeps at most this share of the rows.
const BITMAP_FIRST_SELECTIVITY_MAX: f64 = 0.6;

/// What an entry of the shared memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SharedItem {
    /// Accumulator of the sink, all replicas.
    Accumulator(usize),
    /// Part of the build that the step probes.
    Build { step: usize, piece: BuildPiece },
    /// Rows that wait to be taken one by one.
    Queue,
}

/// One entry.
#[derive(Clone, Debug)]
pub(super) struct SharedEntry {
    pub(super) item: SharedItem,
    pub(super) offset: u64,
    pub(super) bytes: u64,
    /// Name in the kernel, once something uses it.
    pub(super) name: Option<String>,
}

/// The block's dynamic shared memory.
#[derive(Debug, Default)]
pub(super) struct SharedPlan {
    pub(super) entries: Vec<SharedEntry>,
    pub(super) bytes: u32,
    /// Tables that rows look into before they are taken one by one.
    pub(super) builds: usize,
}

impl SharedPlan {
    pub(super) fn of(
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
    pub(super) fn has(&self, step: usize, piece: BuildPiece) -> bool {
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
pub(super) fn bitmap_bytes(domain: u64) -> u64 {
    (domain + 1).div_ceil(64) * 8
}

/// How payload values lie.
pub(crate) struct PayloadShape {
    /// C++ type of the entries.
    pub(super) c_type: &'static str,
    pub(crate) width_bytes: u64,
    /// Base of narrow raw values.
    pub(super) base: Option<i64>,
    /// The entry that marks an absent key of a direct build.
    pub(super) absent: Option<u32>,
}

pub(crate) fn payload_shape(data: &PayloadData) -> PayloadShape {
    let shape =
        |c_type, width_bytes, base, absent| PayloadShape { c_type, width_bytes, base, absent };
    match data {
        PayloadData::U8 { base, .. } => shape("u8", 1, Some(*base), Some(u32::from(u8::MAX))),
        PayloadData::U16 { base, .. } => shape("u16", 2, Some(*base), Some(u32::from(u16::MAX))),
        PayloadData::U32 { base, .. } => shape("u32", 4, Some(*base), Some(u32::MAX)),
        PayloadData::I64(_) => shape("i64", 8, None, None),
        PayloadData::U64(_) => shape("u64", 8, None, None),
        PayloadData::F64(_) => shape("f64", 8, None, None),
        PayloadData::I128(_) => shape("i128", 16, None, None),
        PayloadData::Bool(_) => shape("u8", 1, None, Some(u32::from(u8::MAX))),
    }
}

/// The narrowest payload column of a probe whose entries tell absent keys.
pub(super) fn marked_payload(probe: &BoundProbe) -> Option<usize> {
    if !matches!(probe.kind, ProbeKind::Inner | ProbeKind::Left) {
        return None;
    }
    probe
        .payload
        .iter()
        .copied()
        .filter_map(|column| {
            let shape = payload_shape(&probe.build.payload[column].data);
            shape.absent.map(|_| (shape.width_bytes, column))
        })
        .min()
        .map(|(_, column)| column)
}
