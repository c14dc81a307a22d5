//! What a pipeline wants of the compiler: its text for every rung of the ladder, and by what it is known.

use std::sync::Arc;

use headrace_gpu::DeviceInfo;
use headrace_pipeline::ExecError;
use headrace_pipeline::bind::Lookups;
use headrace_pipeline::bound::Bound;

use crate::error::CudaError;
use crate::layout::SegmentLayout;
use crate::program::CudaProgram;
use crate::tuning::Tuning;

/// What is expected of each step where nothing is: relatives become the same text.
const UNEXPECTED: f64 = 0.5;

/// What a block keeps for itself of a multiprocessor's shared memory.
const SHARED_RESERVED_BYTES: u32 = 1024;

/// Shared memory that the blocks of a multiprocessor may take together where one block would do:
/// what is left is the cache for tables that lie elsewhere.
const SHARED_OF_SEVERAL_BYTES_MAX: u32 = 112 * 1024;

/// A pipeline's text for the roomiest rung, and its shared memory there: says which rung is taken.
pub(super) type RungKey = (String, u32);

/// What is compiled of a program: nothing of the builds that the program holds.
pub(super) struct Rung {
    pub(super) text: String,
    pub(super) shared_bytes: u32,
    pub(super) tuning: Tuning,
}

impl Rung {
    pub(super) fn of(program: &CudaProgram) -> Self {
        let (text, tuning) = (program.source.clone(), program.tuning);
        Self { text, shared_bytes: program.shared_bytes, tuning }
    }
}

/// The search for the rung of a pipeline.
pub(super) struct Search {
    pub(super) rungs: Vec<Rung>,
    pub(super) key: RungKey,
    pub(super) family: String,
    /// What the pipeline expects.
    pub(super) selectivities: Vec<f64>,
}

impl Search {
    pub(super) fn new(wanted: &Wanted, family: String, programs: &[Arc<CudaProgram>]) -> Self {
        let rungs = programs.iter().map(|program| Rung::of(program)).collect();
        let selectivities = wanted.bound.selectivities();
        Self { rungs, key: wanted.rung_key(), family, selectivities }
    }
}

/// A pipeline that wants a kernel.
pub(super) struct Wanted {
    pub(super) bound: Arc<Bound>,
    layout: SegmentLayout,
    ladder: Vec<Tuning>,
    /// For the rung with most shared memory.
    pub(super) roomiest: Arc<CudaProgram>,
}

impl Wanted {
    pub(super) fn new(
        ladder: Vec<Tuning>,
        bound: &Arc<Bound>,
        layout: &SegmentLayout,
    ) -> Result<Self, CudaError> {
        let ladder = counting(ladder, bound, layout)?;
        let roomiest = ladder.iter().max_by_key(|tuning| tuning.shared_bytes_max);
        let roomiest = roomiest.ok_or_else(|| ExecError::Internal("a ladder without rungs".into()));
        let roomiest = Arc::new(compile(bound, layout, *roomiest?)?);
        Ok(Self { bound: Arc::clone(bound), layout: layout.clone(), ladder, roomiest })
    }

    pub(super) fn program(&self, tuning: Tuning) -> Result<Arc<CudaProgram>, CudaError> {
        if tuning == self.roomiest.tuning {
            return Ok(Arc::clone(&self.roomiest));
        }
        Ok(Arc::new(compile(&self.bound, &self.layout, tuning)?))
    }

    /// Its programs, rung by rung, of those that have most builds in shared memory.
    pub(super) fn programs(&self) -> Result<Vec<Arc<CudaProgram>>, CudaError> {
        let mut programs = Vec::with_capacity(self.ladder.len());
        for &tuning in &self.ladder {
            let program = self.program(tuning)?;
            let shared_bytes = program.shared_bytes * tuning.blocks_per_sm;
            let crowded = tuning.blocks_per_sm > 1 && shared_bytes > SHARED_OF_SEVERAL_BYTES_MAX;
            let lacks_builds = program.shared_builds < self.roomiest.shared_builds;
            if self.ladder.len() == 1 || !(crowded || lacks_builds) {
                programs.push(program);
            }
        }
        Ok(programs)
    }

    pub(super) fn rung_key(&self) -> RungKey {
        (self.roomiest.source.clone(), self.roomiest.shared_bytes)
    }

    pub(super) fn expecting(&self, selectivities: &[f64]) -> Result<Self, CudaError> {
        let bound = Arc::new(self.bound.expecting(selectivities, Lookups::Gpu));
        Self::new(self.ladder.clone(), &bound, &self.layout)
    }

    /// What all that differ in constants alone have in common.
    pub(super) fn family(&self) -> Result<String, CudaError> {
        Ok(self.expecting(&vec![UNEXPECTED; self.bound.steps.len()])?.roomiest.source.clone())
    }
}

/// The rungs where warps have room to count pairs, if the pipeline has some that can be counted: that is worth more than
/// threads. All rungs, if there are none.
fn counting(
    ladder: Vec<Tuning>,
    bound: &Arc<Bound>,
    layout: &SegmentLayout,
) -> Result<Vec<Tuning>, CudaError> {
    if !CudaProgram::may_count_pairs(bound) {
        return Ok(ladder);
    }
    let mut counting = Vec::new();
    for &tuning in &ladder {
        if compile(bound, layout, tuning)?.counts_pairs {
            counting.push(tuning);
        }
    }
    Ok(if counting.is_empty() { ladder } else { counting })
}

fn compile(
    bound: &Arc<Bound>,
    layout: &SegmentLayout,
    tuning: Tuning,
) -> Result<CudaProgram, ExecError> {
    CudaProgram::compile(Arc::clone(bound), layout, tuning)
        .map_err(|why| ExecError::Internal(format!("not for the CUDA processor: {why}")))
}

/// The ladder cut to a device: fewer threads and less shared memory where it has less.
pub(super) fn tunings(info: &DeviceInfo) -> Vec<Tuning> {
    Tuning::LADDER
        .iter()
        .map(|rung| {
            let blocks = rung.blocks_per_sm.min(info.threads_per_sm / rung.block_threads).max(1);
            let room = (info.shared_per_sm_bytes / blocks)
                .min(info.shared_per_block_optin_bytes + SHARED_RESERVED_BYTES)
                .saturating_sub(SHARED_RESERVED_BYTES);
            Tuning {
                blocks_per_sm: blocks,
                shared_bytes_max: rung.shared_bytes_max.min(room),
                ..*rung
            }
        })
        .collect()
}
