//! One execution of a pipeline on a GPU: kernels, launches, and the answer.

mod filling;
mod growing;
mod launch;
mod steps_left;

pub use growing::{rehash_params, rehash_source};
pub use steps_left::StepsLeft;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use headrace_gpu::{DeviceBuffer, Event, Stream};
use headrace_io::Kept;
use headrace_pipeline::ExecError;
use headrace_pipeline::bound::{Bound, BoundSink, BoundStep, Grouping};
use headrace_pipeline::state::DenseState;

use crate::build_pieces::build_piece;
use crate::decode::chunks;
use crate::device::CudaDevice;
use crate::device_state::DeviceState;
use crate::error::CudaError;
use crate::fields::Param;
use crate::kernels::Kernel;
use crate::layout::SegmentLayout;
use crate::program::{DeviceSegment, OutputColumn};
use crate::progress::{Again, Progress};
use crate::room::{OUTPUT_ROWS_MAX, RowRoom, tile_ranges};
use crate::rows::{RowOutput, RowTransfer};
use crate::stats::CudaStats;
use crate::status::{STATUS_BYTES, STATUS_ERROR_AT};
use crate::tuning::Tuning;
use crate::words::word_bytes;

/// Rows of one launch: counts within a block are 32 bits.
pub const LAUNCH_ROWS_MAX: u64 = 1 << 31;

/// Bits of the error word that number a kernel's failures.
const PLACE_BITS: u32 = 16;

/// One execution.
pub struct CudaExecution {
    device: Arc<CudaDevice>,
    bound: Arc<Bound>,
    stream: Arc<Stream>,
    kernels: Vec<LoadedProgram>,
    by_layout: HashMap<SegmentLayout, usize>,
    remaps: Vec<(Arc<Kept<DeviceBuffer>>, u64)>,
    /// `None` before the first kernel.
    state: Option<DeviceState>,
    /// Whether the state came back since the last launch.
    is_fetched: bool,
    /// How often the table of groups was renewed: made larger, or emptied.
    renewals: u64,
    /// Whether it was emptied: groups were handed over.
    has_flushed: bool,
    /// Around the kernels over resident columns.
    timing: (Event, Event),
    /// Of rows in an order: see [`Param::LastWanted`].
    pub(crate) last_wanted: i64,
    /// The counters.
    pub stats: CudaStats,
}

struct LoadedProgram {
    kernel: Kernel,
    /// What lies behind the parameters that stay the same, by position in the struct: a buffer, and the place in it.
    fixed: HashMap<usize, (Arc<Kept<DeviceBuffer>>, u64)>,
}

/// Segments of one layout that one launch takes, described in device memory.
pub(crate) struct Described {
    layout: SegmentLayout,
    descriptors: Arc<Kept<DeviceBuffer>>,
    tiles: Range<u64>,
    /// Rows of these tiles at most.
    rows: u64,
}

impl Described {
    /// Device memory of the descriptors.
    pub(crate) fn bytes(&self) -> u64 {
        // Launches that share descriptors are told apart by where they begin.
        if self.tiles.start == 0 { self.descriptors.capacity_bytes() } else { 0 }
    }
}

impl CudaExecution {
    /// Loads the kernels for the layouts and prepares accumulators.
    ///
    /// # Errors
    /// [`CudaError`] when a kernel does not compile, or memory or the device fails.
    pub fn new(
        device: &Arc<CudaDevice>,
        bound: &Arc<Bound>,
        layouts: &[SegmentLayout],
    ) -> Result<Self, CudaError> {
        let gpu = device.device();
        let mut execution = Self {
            device: Arc::clone(device),
            bound: Arc::clone(bound),
            stream: Arc::new(gpu.stream()?),
            kernels: Vec::new(),
            by_layout: HashMap::new(),
            remaps: Vec::new(),
            state: None,
            is_fetched: false,
            renewals: 0,
            has_flushed: false,
            timing: (gpu.event()?, gpu.event()?),
            last_wanted: 0,
            stats: CudaStats::default(),
        };
        execution.upload_remaps()?;
        for layout in layouts {
            execution.kernel_for(layout)?;
        }
        Ok(execution)
    }

    /// The pipeline.
    pub fn bound(&self) -> &Arc<Bound> {
        &self.bound
    }

    /// The device.
    pub fn device(&self) -> &Arc<CudaDevice> {
        &self.device
    }

    /// The stream of its own launches; a race has others.
    pub(crate) fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }

    /// What it gathers; `None` before the first kernel.
    pub(crate) fn state(&self) -> Option<&DeviceState> {
        self.state.as_ref()
    }

    /// Whether the table of groups began anew, so that not all groups are in it.
    pub(crate) fn has_flushed(&self) -> bool {
        self.has_flushed
    }

    /// Loads the kernel of a layout.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn prepare(&mut self, layout: &SegmentLayout) -> Result<(), CudaError> {
        self.kernel_for(layout).map(|_| ())
    }

    /// The kernel of a layout and its shape, for diagnosis.
    pub fn kernels(&self) -> impl Iterator<Item = &Kernel> {
        self.kernels.iter().map(|loaded| &loaded.kernel)
    }

    /// Whether a kernel is another pipeline's: a better one may be compiled later.
    pub(crate) fn is_borrowed(&self) -> bool {
        self.kernels().any(|kernel| kernel.is_borrowed)
    }

    /// Device memory of what it gathers.
    pub(crate) fn state_bytes(&self) -> u64 {
        self.state.as_ref().map_or(0, DeviceState::device_bytes)
    }

    /// Bytes of the descriptor of one segment.
    pub(crate) fn descriptor_bytes(&self) -> usize {
        self.kernels().map(|k| k.program.segment_bytes()).max().unwrap_or(0)
    }

    fn upload_remaps(&mut self) -> Result<(), CudaError> {
        for remap in &self.bound.remaps {
            let bytes: Vec<u8> = remap.iter().flat_map(|code| code.to_le_bytes()).collect();
            self.remaps.push((self.device.upload(&bytes)?, remap.len() as u64));
        }
        Ok(())
    }

    /// Whether all that these launches need is loaded, so that queueing them asks for no memory.
    pub(crate) fn has_kernels_of(&self, launches: &[Described]) -> bool {
        launches.iter().all(|launch| self.by_layout.contains_key(&launch.layout))
    }

    fn kernel_for(&mut self, layout: &SegmentLayout) -> Result<usize, CudaError> {
        if let Some(index) = self.by_layout.get(layout) {
            return Ok(*index);
        }
        let kernel = self.device.kernel(&self.bound, layout)?;
        if self.state.is_none() {
            let state = self.state.insert(DeviceState::new(&self.device, &kernel.program)?);
            // SAFETY: the state lives as long as the execution, which waits for the stream when
            // it is dropped; races wait for it before they begin.
            unsafe { state.clear(&self.stream) }?;
        }
        let mut fixed = HashMap::new();
        for (position, param) in kernel.program.params.iter().enumerate() {
            let buffer = match *param {
                Param::Build { step, piece } => {
                    // A borrowed kernel has an order of its own.
                    let steps = &kernel.program.bound.steps;
                    let Some(BoundStep::Probe(probe)) = steps.get(step) else {
                        return Err(ExecError::Internal(format!("step {step} is no probe")).into());
                    };
                    build_piece(&self.device, &probe.build, piece)?
                }
                Param::Table(table) => (self.device.upload(&kernel.program.tables[table])?, 0),
                _ => continue,
            };
            fixed.insert(position, buffer);
        }
        self.kernels.push(LoadedProgram { kernel, fixed });
        self.by_layout.insert(layout.clone(), self.kernels.len() - 1);
        Ok(self.kernels.len() - 1)
    }

    /// Where the output rows of up to `rows` streamed rows go; `None` for an aggregation.
    pub(crate) fn row_transfer(&self, rows: u64) -> Result<Option<RowTransfer>, CudaError> {
        match self.outputs()? {
            None => Ok(None),
            Some((outputs, matches_max)) => {
                let tile_rows = u64::from(Tuning::FULL.tile_rows());
                let room = RowRoom::of(rows, matches_max, tile_rows, OUTPUT_ROWS_MAX);
                RowTransfer::new(&self.device, outputs, room).map(Some)
            }
        }
    }

    /// Columns of a rows sink, and most output rows of a streamed row.
    fn outputs(&self) -> Result<Option<(&[OutputColumn], u64)>, CudaError> {
        if !matches!(self.bound.sink, BoundSink::Rows { .. } | BoundSink::Sorted { .. }) {
            return Ok(None);
        }
        let Some(first) = self.kernels.first() else {
            return Err(ExecError::Internal("no kernel is loaded".into()).into());
        };
        let program = &first.kernel.program;
        Ok(Some((&program.outputs, program.matches_max.max(1))))
    }

    /// As [`CudaProgram::describe`](crate::CudaProgram::describe) of the layout's kernel.
    ///
    /// # Errors
    /// As there, and what loading the kernel gives.
    pub fn describe(
        &mut self,
        layout: &SegmentLayout,
        segments: &[DeviceSegment],
    ) -> Result<(Vec<u64>, u64), CudaError> {
        let index = self.kernel_for(layout)?;
        let program = &self.kernels[index].kernel.program;
        let remaps: Vec<(u64, u64)> =
            self.remaps.iter().map(|(buffer, length)| (buffer.ptr(), *length)).collect();
        Ok(program.describe(segments, u64::from(program.tuning.tile_rows()), &remaps)?)
    }

    /// Waits until the stream of the execution is done, so that others may use what it made.
    pub(crate) fn synchronize(&self) -> Result<(), CudaError> {
        Ok(self.stream.synchronize()?)
    }

    /// As [`Self::synchronize`], for whoever gives up what kernels may still use.
    pub(crate) fn wait(&self) {
        if let Err(error) = self.synchronize() {
            tracing::warn!(%error, "waiting for a GPU that failed");
        }
    }

    /// Describes segments that lie in device memory for as few launches as can be: one, as long
    /// as that is at most [`LAUNCH_ROWS_MAX`] rows, or may yield at most `row_capacity` rows for a
    /// rows sink; but at least a segment each.
    pub(crate) fn describe_launches(
        &mut self,
        layout: &SegmentLayout,
        segments: &[DeviceSegment],
        row_capacity: u64,
    ) -> Result<Vec<Described>, CudaError> {
        let index = self.kernel_for(layout)?;
        let limit = match self.outputs()? {
            Some((_, matches_max)) => (row_capacity / matches_max).min(LAUNCH_ROWS_MAX),
            None => LAUNCH_ROWS_MAX,
        };
        let mut launches = Vec::new();
        let mut rest = segments;
        while !rest.is_empty() {
            let mut rows = 0;
            let fits = |s: &&DeviceSegment| {
                rows += u64::from(s.rows);
                rows <= limit
            };
            let count = rest.iter().take_while(fits).count().max(1);
            let (now, later) = rest.split_at(count);
            rest = later;
            let (words, tiles) = self.describe(layout, now)?;
            if tiles == 0 {
                continue;
            }
            let descriptors = self.device.upload(&word_bytes(&words))?;
            let rows = now.iter().map(|s| u64::from(s.rows)).sum::<u64>();
            let tile_rows = u64::from(self.kernels[index].kernel.program.tuning.tile_rows());
            let first = launches.is_empty() && self.drops_later(index);
            let ranges = tile_ranges(tiles, first.then_some(tile_rows));
            launches.extend(ranges.into_iter().map(|tiles| Described {
                layout: layout.clone(),
                descriptors: Arc::clone(&descriptors),
                rows: rows.min((tiles.end - tiles.start) * tile_rows),
                tiles,
            }));
        }
        Ok(launches)
    }

    /// Whether a kernel drops rows that come after the last wanted one.
    fn drops_later(&self, kernel: usize) -> bool {
        self.kernels[kernel].kernel.program.params.contains(&Param::LastWanted)
    }

    /// Runs over segments that lie in device memory and waits. Output rows go to `output`.
    ///
    /// # Errors
    /// The failure of a row, as the CPU processor gives it, or [`CudaError::Gpu`].
    ///
    /// # Safety
    /// Each segment's buffers must be device memory of this device that holds as many rows as
    /// the segment says, in the layout given, complete (or written earlier on this execution's
    /// stream) and unchanged during the call.
    pub unsafe fn run(
        &mut self,
        layout: &SegmentLayout,
        segments: &[DeviceSegment],
        row_capacity: u64,
        output: &RowOutput<'_>,
    ) -> Result<(), CudaError> {
        let launches = self.describe_launches(layout, segments, row_capacity)?;
        // SAFETY: the caller's promise.
        unsafe { self.run_described(&launches, output) }
    }

    /// Runs what [`Self::describe_launches`] described, and waits.
    ///
    /// # Safety
    /// As [`Self::run`], for the segments that were described.
    pub(crate) unsafe fn run_described(
        &mut self,
        launches: &[Described],
        output: &RowOutput<'_>,
    ) -> Result<(), CudaError> {
        if launches.is_empty() {
            return Ok(());
        }
        // SAFETY: as promised; `finish_aggregation` waits for the kernels, and if anything fails, the
        // execution waits for its stream before it goes.
        if unsafe { self.queue_described(launches) }? {
            return self.finish_aggregation();
        }
        let most = launches.iter().map(|l| l.rows).max().unwrap_or(0);
        let mut rows = self.row_transfer(most)?;
        let mut progress = self.progress(rows.as_ref())?;
        for described in launches {
            if output.is_enough() {
                return Ok(());
            }
            let watched = (rows.as_mut(), progress.as_mut());
            // SAFETY: as promised; this function waits for the kernel, also if it fails: the
            // execution waits for its stream before it goes.
            unsafe { self.launch_described(described, watched, output) }?;
        }
        Ok(())
    }

    /// Queues what was described if nothing is to be done before the kernels' end: if they leave
    /// neither rows nor a table that may fill. Whether that is so: [`Self::finish_aggregation`] is
    /// what is left to do then.
    ///
    /// # Errors
    /// [`CudaError::Gpu`]; kernels may be under way then.
    ///
    /// # Safety
    /// As [`Self::run`], until the stream has done the kernels.
    pub(crate) unsafe fn queue_described(
        &mut self,
        launches: &[Described],
    ) -> Result<bool, CudaError> {
        let Some(status) = self.state.as_ref().map(DeviceState::status) else { return Ok(false) };
        if self.outputs()?.is_some() || self.groups_may_leave() {
            return Ok(false);
        }
        let stream = Arc::clone(&self.stream);
        self.timing.0.record(&stream)?;
        for Described { layout, descriptors, tiles, .. } in launches {
            let at = (descriptors.ptr(), tiles.clone());
            // SAFETY: as promised; the execution, which has the status, outlives its kernels.
            unsafe { self.launch(&stream, layout, at, status, None, None) }?;
        }
        self.timing.1.record(&stream)?;
        Ok(true)
    }

    /// # Safety
    /// As [`Self::run_described`].
    unsafe fn launch_described(
        &mut self,
        described: &Described,
        (rows, progress): (Option<&mut RowTransfer>, Option<&mut Progress>),
        output: &RowOutput<'_>,
    ) -> Result<(), CudaError> {
        let Described { layout, descriptors, tiles, .. } = described;
        let Some(status) = self.state.as_ref().map(DeviceState::status) else {
            return Err(ExecError::Internal("a launch without a state".into()).into());
        };
        let stream = Arc::clone(&self.stream);
        let at = (descriptors.ptr(), tiles.clone());
        let (rows, mut progress) = match (rows, progress) {
            (Some(rows), progress) => (rows, progress),
            (None, Some(progress)) => {
                // SAFETY: as promised; what the launches use outlives the waits in it.
                return unsafe { self.launch_to_the_end(layout, at, progress, output) };
            }
            (None, None) => {
                return Err(ExecError::Internal("an aggregation that was not queued".into()).into());
            }
        };
        let mut again = Again::First;
        loop {
            self.timing.0.record(&stream)?;
            self.last_wanted = output.last_wanted();
            let at = at.clone();
            let seen = progress.as_deref_mut().map(|progress| (progress, again));
            // SAFETY: as promised; descriptors, status and row buffers outlive the waits below, and the
            // execution.
            unsafe { self.launch(&stream, layout, at, status, Some(&rows.buffers), seen) }?;
            self.timing.1.record(&stream)?;
            let used = self.take_status()?;
            self.add_kernel_ms()?;
            rows.begin(used)?;
            while rows.advance(&stream, output)? {
                stream.synchronize()?;
            }
            let has_left = progress.as_ref().is_some_and(|progress| progress.has_left(used));
            if !has_left || output.is_enough() {
                return Ok(());
            }
            again = Again::Resumed;
        }
    }

    fn add_kernel_ms(&mut self) -> Result<(), CudaError> {
        self.stats.kernel_ms += f64::from(self.timing.0.elapsed_ms(&self.timing.1)?);
        Ok(())
    }

    /// Brings the state back, which waits for the kernels, and looks for failures.
    pub(crate) fn finish_aggregation(&mut self) -> Result<(), CudaError> {
        let Some(state) = &mut self.state else { return Ok(()) };
        let status = if state.is_pinned() {
            state.begin_fetch(&self.stream)?;
            self.is_fetched = true;
            state.fetch(&self.stream)?.status()
        } else {
            state.take_status(&self.stream)?
        };
        self.add_kernel_ms()?;
        self.read_status(&status).map(|_| ())
    }

    /// Waits for the stream, reads the status and resets the number of rows.
    fn take_status(&mut self) -> Result<u64, CudaError> {
        let Some(state) = &mut self.state else { return Ok(0) };
        let status = state.take_status(&self.stream)?;
        self.read_status(&status)
    }

    /// The number of output rows in a status, or the failure that it tells of.
    ///
    /// # Errors
    /// The failure, as the CPU processor gives it.
    pub fn read_status(&self, status: &[u8; STATUS_BYTES]) -> Result<u64, CudaError> {
        let word = chunks::<4>(&status[STATUS_ERROR_AT..]).next().map_or(0, u32::from_le_bytes);
        if let Some(loaded) = self.kernels.get((word >> PLACE_BITS) as usize)
            && let Some(error) = loaded.kernel.program.error_of(word & ((1 << PLACE_BITS) - 1))
        {
            return Err(error.into());
        }
        Ok(chunks::<8>(status).next().map_or(0, u64::from_le_bytes))
    }

    /// Forgets all rows, so that the execution can run again.
    pub(crate) fn reset(&mut self) -> Result<(), CudaError> {
        self.stats = CudaStats::default();
        self.is_fetched = false;
        self.has_flushed = false;
        if let Some(state) = &self.state {
            // SAFETY: as at its first clearing.
            unsafe { state.clear(&self.stream) }?;
        }
        Ok(())
    }

    /// Waits for all launches and reads the accumulators; `None` for a rows sink, and for hashed
    /// groups, which [`Self::hand_over`] takes.
    ///
    /// Accumulator 0 tells which groups exist; the number of their rows is exact only where an
    /// output column depends on it.
    ///
    /// # Errors
    /// [`CudaError::Gpu`] when the device fails.
    pub fn take_dense(&mut self) -> Result<Option<DenseState>, CudaError> {
        let BoundSink::Aggregate { accumulators, grouping: Grouping::Dense { groups }, .. } =
            &self.bound.sink
        else {
            return Ok(None);
        };
        let Some(state) = &mut self.state else {
            // An empty table has no segments, and so no layout and no kernel.
            return Ok(Some(DenseState::new(accumulators, *groups as usize)));
        };
        if !self.is_fetched {
            state.begin_fetch(&self.stream)?;
        }
        let accumulators = state.fetch(&self.stream)?.accumulators();
        Ok(Some(DenseState { accumulators }))
    }
}

impl Drop for CudaExecution {
    fn drop(&mut self) {
        // Kernels that are still running use buffers that are about to go back to the pool.
        self.wait();
    }
}
