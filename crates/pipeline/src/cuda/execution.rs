//! One execution of a pipeline on a GPU: accumulators, launches, and the answer.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::RecordBatch;
use headrace_gpu::{DeviceBuffer, Event, EventFlags, Grid, LaunchArgs, Stream, launch};
use headrace_ir::Field;

use crate::bound::{Bound, BoundExpr, BoundSink, BoundStep, Grouping, Repr};
use crate::column::{arrow_field, vector_array};
use crate::cpu::vector::{Data, Vector};
use crate::cuda::device::{CudaDevice, Kernel};
use crate::cuda::groups::{GroupTableLayout, hashed_batch};
use crate::cuda::layout::SegmentLayout;
use crate::cuda::program::{DeviceAccumulator, DeviceSegment, Param};
use crate::error::ExecError;
use crate::state::{AccumulatorState, DenseState};

/// Rows of one launch: counts within a block are 32 bits.
pub const LAUNCH_ROWS_MAX: u64 = 1 << 31;

/// Bytes of the status that launches leave: the number of output rows (`u64`), then an error
/// word (`u32`): the number of the kernel and, as each numbers its failures itself, of the failure.
pub const STATUS_BYTES: usize = 256;

/// Where the error word lies.
const STATUS_ERROR_AT: usize = 8;

/// Bits of the error word that number a kernel's failures.
const PLACE_BITS: u32 = 16;

/// Tiles that a block takes in a row, so that it seldom looks for the segment of a tile.
const RUN_TILES_MAX: u64 = 8;

/// Runs for each block, at least: what makes up for blocks that are done early.
const RUNS_PER_BLOCK_MIN: u64 = 16;

/// Where a launch writes rows.
#[derive(Debug)]
pub struct RowBuffers {
    values: Vec<DeviceBuffer>,
    validity: Vec<Option<DeviceBuffer>>,
    value_bytes: Vec<u32>,
    capacity_rows: u64,
}

/// What an execution did on the device.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CudaStats {
    /// Kernels launched.
    pub launches: u64,
    /// Milliseconds of kernels, by events.
    pub kernel_ms: f64,
    /// Bytes copied from the host for segments (builds, tables and descriptors not counted).
    pub h2d_bytes: u64,
    /// Bytes of segments found on the device.
    pub resident_bytes: u64,
    /// Bytes of segments left on the device for later queries.
    pub admitted_bytes: u64,
}

/// One execution.
pub struct CudaExecution {
    device: Arc<CudaDevice>,
    bound: Arc<Bound>,
    stream: Stream,
    kernels: Vec<LoadedProgram>,
    by_layout: HashMap<SegmentLayout, usize>,
    remaps: Vec<(Arc<DeviceBuffer>, u64)>,
    accumulators: Vec<DeviceBuffer>,
    groups: Option<GroupBuffers>,
    status: DeviceBuffer,
    timings: Vec<(Event, Event)>,
    /// The counters.
    pub stats: CudaStats,
}

/// The table of hashed groups.
struct GroupBuffers {
    layout: GroupTableLayout,
    slots: DeviceBuffer,
    keys: DeviceBuffer,
    used: DeviceBuffer,
}

struct LoadedProgram {
    kernel: Kernel,
    /// Buffers behind the parameters that stay the same, by position in the struct.
    fixed: HashMap<usize, Arc<DeviceBuffer>>,
}

impl CudaExecution {
    /// Loads the kernels for the layouts and prepares accumulators.
    ///
    /// # Errors
    /// [`ExecError`] when a kernel does not compile, or memory or the device fails.
    pub fn new(
        device: &Arc<CudaDevice>,
        bound: &Arc<Bound>,
        layouts: &[SegmentLayout],
    ) -> Result<Self, ExecError> {
        let stream = device.device().stream()?;
        let status = device.alloc(STATUS_BYTES)?;
        let mut execution = Self {
            device: Arc::clone(device),
            bound: Arc::clone(bound),
            stream,
            kernels: Vec::new(),
            by_layout: HashMap::new(),
            remaps: Vec::new(),
            accumulators: Vec::new(),
            groups: None,
            status,
            timings: Vec::new(),
            stats: CudaStats::default(),
        };
        // SAFETY: the buffer lives as long as the execution, which waits for the stream when
        // it is dropped.
        unsafe { execution.stream.fill_async(&execution.status, 0, STATUS_BYTES, 0) }?;
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

    /// The stream on which kernels run.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Loads the kernel of a layout.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn prepare(&mut self, layout: &SegmentLayout) -> Result<(), ExecError> {
        self.kernel_for(layout).map(|_| ())
    }

    /// The kernel of a layout and its shape, for diagnosis.
    pub fn kernels(&self) -> impl Iterator<Item = &Kernel> {
        self.kernels.iter().map(|loaded| &loaded.kernel)
    }

    fn upload_remaps(&mut self) -> Result<(), ExecError> {
        for remap in &self.bound.remaps {
            let bytes: Vec<u8> = remap.iter().flat_map(|code| code.to_le_bytes()).collect();
            self.remaps.push((self.device.upload(&bytes)?, remap.len() as u64));
        }
        Ok(())
    }

    fn kernel_for(&mut self, layout: &SegmentLayout) -> Result<usize, ExecError> {
        if let Some(index) = self.by_layout.get(layout) {
            return Ok(*index);
        }
        let kernel = self.device.kernel(&self.bound, layout)?;
        if self.accumulators.is_empty() {
            self.create_accumulators(&kernel)?;
        }
        let mut fixed = HashMap::new();
        for (position, param) in kernel.program.params.iter().enumerate() {
            let buffer = match *param {
                Param::Build { step, piece } => {
                    let Some(BoundStep::Probe(probe)) = self.bound.steps.get(step) else {
                        return Err(ExecError::Internal(format!("step {step} is no probe")));
                    };
                    self.device.build_piece(&probe.build, piece)?
                }
                Param::Table(table) => self.device.upload(&kernel.program.tables[table])?,
                _ => continue,
            };
            fixed.insert(position, buffer);
        }
        self.kernels.push(LoadedProgram { kernel, fixed });
        self.by_layout.insert(layout.clone(), self.kernels.len() - 1);
        Ok(self.kernels.len() - 1)
    }

    fn create_accumulators(&mut self, kernel: &Kernel) -> Result<(), ExecError> {
        let groups = kernel.program.groups;
        for accumulator in &kernel.program.accumulators {
            let bytes = (accumulator.bytes() * groups) as usize;
            let buffer = self.device.alloc(bytes)?;
            let [low, high] = accumulator.initial_words();
            if low == high {
                // SAFETY: the buffer lives as long as the execution, which waits for the
                // stream when it is dropped; only this stream touches it.
                unsafe { self.stream.fill_u32_async(&buffer, 0, bytes / 4, low) }?;
            } else {
                let entry: Vec<u8> = [low, high].iter().flat_map(|w| w.to_le_bytes()).collect();
                self.stream.upload(&buffer, 0, &entry.repeat(bytes / 8))?;
            }
            self.accumulators.push(buffer);
        }
        if let Some(layout) = &kernel.program.group_table {
            self.create_groups(layout)?;
        }
        Ok(())
    }

    fn create_groups(&mut self, layout: &GroupTableLayout) -> Result<(), ExecError> {
        let slots = layout.slots() as usize;
        let buffers = GroupBuffers {
            slots: self.device.alloc(slots * 4)?,
            keys: self.device.alloc(layout.capacity as usize * layout.words * 8)?,
            used: self.device.alloc(16)?,
            layout: layout.clone(),
        };
        // SAFETY: the buffers live as long as the execution, which waits for the stream when it
        // is dropped; only this stream touches them. A free slot is all ones.
        unsafe {
            self.stream.fill_u32_async(&buffers.slots, 0, slots, u32::MAX)?;
            self.stream.fill_u32_async(&buffers.used, 0, 4, 0)?;
        }
        self.groups = Some(buffers);
        Ok(())
    }

    /// Buffers for all output rows of up to `rows` streamed rows; `None` for an aggregation.
    ///
    /// # Errors
    /// [`ExecError::Gpu`] when there is no memory.
    pub fn row_buffers(&self, rows: u64) -> Result<Option<RowBuffers>, ExecError> {
        let Some(first) = self.kernels.first() else {
            return Err(ExecError::Internal("no kernel is loaded".into()));
        };
        let outputs = &first.kernel.program.outputs;
        if !matches!(self.bound.sink, BoundSink::Rows { .. }) {
            return Ok(None);
        }
        let rows = rows.saturating_mul(first.kernel.program.matches_max);
        let mut buffers = RowBuffers {
            values: Vec::new(),
            validity: Vec::new(),
            value_bytes: outputs.iter().map(|output| output.value_bytes).collect(),
            capacity_rows: rows,
        };
        for output in outputs {
            let bytes = rows.saturating_mul(u64::from(output.value_bytes));
            buffers.values.push(self.device.alloc(bytes as usize)?);
            let validity =
                if output.nullable { Some(self.device.alloc(rows as usize)?) } else { None };
            buffers.validity.push(validity);
        }
        Ok(Some(buffers))
    }

    /// As [`CudaProgram::describe`](crate::cuda::CudaProgram::describe) of the layout's kernel.
    ///
    /// # Errors
    /// As there, and what loading the kernel gives.
    pub fn describe(
        &mut self,
        layout: &SegmentLayout,
        segments: &[DeviceSegment],
    ) -> Result<(Vec<u64>, u64), ExecError> {
        let index = self.kernel_for(layout)?;
        let program = &self.kernels[index].kernel.program;
        let remaps: Vec<(u64, u64)> =
            self.remaps.iter().map(|(buffer, length)| (buffer.ptr(), *length)).collect();
        program.describe(segments, u64::from(program.tuning.tile_rows()), &remaps)
    }

    /// Queues the kernel of `layout` over descriptors that lie at the device address
    /// `descriptors`; output rows and failures are counted in the [`STATUS_BYTES`] at `status`.
    ///
    /// # Errors
    /// [`ExecError::Gpu`] when the driver refuses.
    ///
    /// # Safety
    /// The descriptors, made by [`Self::describe`] for this layout, the buffers that they point
    /// to, the status (zeroed but for an earlier failure) and the row buffers must stay valid
    /// device memory, ordered with this execution's stream, until the stream has done the kernel.
    pub unsafe fn launch(
        &mut self,
        layout: &SegmentLayout,
        descriptors: u64,
        tiles: u64,
        status: u64,
        rows: Option<&RowBuffers>,
    ) -> Result<(), ExecError> {
        if tiles == 0 {
            return Ok(());
        }
        let index = self.kernel_for(layout)?;
        let LoadedProgram { kernel, fixed } = &self.kernels[index];
        let blocks_max = u64::from(kernel.blocks_max);
        let run_tiles = (tiles / (blocks_max * RUNS_PER_BLOCK_MIN)).clamp(1, RUN_TILES_MAX);
        let mut bytes = Vec::with_capacity(kernel.program.params.len() * 8);
        for (position, param) in kernel.program.params.iter().enumerate() {
            let word = match *param {
                Param::Segments => descriptors,
                Param::Tiles => tiles,
                Param::Error => status + STATUS_ERROR_AT as u64,
                Param::FirstPlace => (index as u64) << PLACE_BITS,
                Param::RunTiles => run_tiles,
                Param::Constant(i) => kernel.program.constants[i],
                Param::RowsUsed => status,
                Param::Accumulator(i) => self.accumulators[i].ptr(),
                Param::GroupSlots => self.groups.as_ref().map_or(0, |g| g.slots.ptr()),
                Param::GroupSlotMask => self.groups.as_ref().map_or(0, |g| g.layout.slots() - 1),
                Param::GroupKeys => self.groups.as_ref().map_or(0, |g| g.keys.ptr()),
                Param::GroupsUsed => self.groups.as_ref().map_or(0, |g| g.used.ptr()),
                Param::GroupCapacity => self.groups.as_ref().map_or(0, |g| g.layout.capacity),
                Param::RowsCapacity => rows.map_or(0, |r| r.capacity_rows),
                Param::RowsValues(c) => rows.map_or(0, |r| r.values[c].ptr()),
                Param::RowsValidity(c) => {
                    rows.and_then(|r| r.validity[c].as_ref()).map_or(0, DeviceBuffer::ptr)
                }
                Param::Build { .. } | Param::Table(_) => {
                    fixed.get(&position).map(|buffer| buffer.ptr()).ok_or_else(|| {
                        ExecError::Internal(format!("parameter {position} was not prepared"))
                    })?
                }
            };
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        let mut args = LaunchArgs::new();
        args.push_bytes(&bytes);
        let grid = Grid {
            blocks: blocks_max.min(tiles.div_ceil(run_tiles)) as u32,
            threads: kernel.program.tuning.block_threads,
            shared_bytes: kernel.program.shared_bytes,
        };
        let start = self.device.device().event(EventFlags::TIMING)?;
        let end = self.device.device().event(EventFlags::TIMING)?;
        start.record(&self.stream)?;
        // SAFETY: the parameter struct was filled field by field as the program declares it;
        // accumulators, builds and tables are held by this execution, the rest is the caller's
        // promise.
        unsafe { launch(&kernel.function, grid, &self.stream, &mut args) }?;
        end.record(&self.stream)?;
        self.timings.push((start, end));
        self.stats.launches += 1;
        Ok(())
    }

    /// Runs over segments that lie in device memory, waits, and returns output rows (none for
    /// an aggregation). One launch a layout, as long as that is at most [`LAUNCH_ROWS_MAX`]
    /// rows, or may yield at most `row_capacity` rows for a rows sink; but at least a segment.
    ///
    /// # Errors
    /// The failure of a row, as the CPU processor gives it, or [`ExecError::Gpu`].
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
    ) -> Result<Vec<RecordBatch>, ExecError> {
        let index = self.kernel_for(layout)?;
        let is_rows = matches!(self.bound.sink, BoundSink::Rows { .. });
        let fitting = row_capacity / self.kernels[index].kernel.program.matches_max.max(1);
        let limit = if is_rows { fitting.min(LAUNCH_ROWS_MAX) } else { LAUNCH_ROWS_MAX };
        let largest = segments.iter().map(|s| u64::from(s.rows)).max().unwrap_or(0);
        let limit = limit.max(largest);
        let buffers = self.row_buffers(limit.min(total_rows(segments)))?;
        let mut batches = Vec::new();
        let mut emitted = 0;
        let mut rest = segments;
        while !rest.is_empty() && !self.is_enough(emitted) {
            let mut rows = 0;
            let count = rest
                .iter()
                .take_while(|s| {
                    rows += u64::from(s.rows);
                    rows <= limit
                })
                .count()
                .max(1);
            let (now, later) = rest.split_at(count);
            rest = later;
            let (words, tiles) = self.describe(layout, now)?;
            if tiles == 0 {
                continue;
            }
            let descriptors = self.device.upload(&word_bytes(&words))?;
            let status = self.status.ptr();
            // SAFETY: descriptors and buffers live until the wait below (an error of the launch
            // itself queued no kernel); the segments are the caller's promise.
            unsafe { self.launch(layout, descriptors.ptr(), tiles, status, buffers.as_ref()) }?;
            let used = self.take_status()?;
            if let Some(buffers) = &buffers {
                batches.extend(self.download_rows(buffers, used)?);
                emitted += used;
            }
        }
        Ok(batches)
    }

    /// Whether a rows sink has as many rows as its limit.
    pub fn is_enough(&self, emitted: u64) -> bool {
        matches!(&self.bound.sink, BoundSink::Rows { limit: Some(limit), .. } if emitted >= *limit)
    }

    /// Waits for the stream, reads the status and resets the number of rows.
    fn take_status(&mut self) -> Result<u64, ExecError> {
        let mut status = [0u8; STATUS_BYTES];
        self.stream.download(&self.status, 0, &mut status)?;
        // SAFETY: the status lives as long as the execution, which waits for the stream when it
        // is dropped.
        unsafe { self.stream.fill_async(&self.status, 0, STATUS_ERROR_AT, 0) }?;
        self.read_status(&status)
    }

    /// The number of output rows in a status, or the failure that it tells of.
    ///
    /// # Errors
    /// The failure, as the CPU processor gives it.
    pub fn read_status(&self, status: &[u8; STATUS_BYTES]) -> Result<u64, ExecError> {
        let word = chunks::<4>(&status[STATUS_ERROR_AT..]).next().map_or(0, u32::from_le_bytes);
        if let Some(loaded) = self.kernels.get((word >> PLACE_BITS) as usize)
            && let Some(error) = loaded.kernel.program.error_of(word & ((1 << PLACE_BITS) - 1))
        {
            return Err(error);
        }
        Ok(chunks::<8>(status).next().map_or(0, u64::from_le_bytes))
    }

    /// Output rows of one launch that is done.
    ///
    /// # Errors
    /// [`ExecError`] when the device fails, or a code lies outside its dictionary.
    pub fn download_rows(
        &self,
        buffers: &RowBuffers,
        used: u64,
    ) -> Result<Option<RecordBatch>, ExecError> {
        let BoundSink::Rows { columns, .. } = &self.bound.sink else {
            return Err(ExecError::Internal("rows of a sink that has none".into()));
        };
        if used > buffers.capacity_rows {
            return Err(ExecError::Internal(format!(
                "{used} output rows where {} fit",
                buffers.capacity_rows
            )));
        }
        if used == 0 {
            return Ok(None);
        }
        let rows = used as usize;
        let stream = self.device.device().stream()?;
        let mut downloaded = Vec::with_capacity(columns.len());
        for (index, values) in buffers.values.iter().enumerate() {
            let mut bytes = vec![0u8; rows * buffers.value_bytes[index] as usize];
            stream.download(values, 0, &mut bytes)?;
            let validity = match &buffers.validity[index] {
                None => None,
                Some(buffer) => {
                    let mut valid = vec![0u8; rows];
                    stream.download(buffer, 0, &mut valid)?;
                    Some(valid)
                }
            };
            downloaded.push((bytes, validity));
        }
        rows_batch(columns, downloaded, rows).map(Some)
    }

    /// Waits for all launches and reads hashed groups; `None` for another sink.
    ///
    /// # Errors
    /// [`ExecError::Gpu`] when the device fails, or the failure of a total.
    pub fn take_groups(&mut self) -> Result<Option<RecordBatch>, ExecError> {
        self.stream.synchronize()?;
        let BoundSink::Aggregate { grouping: Grouping::Hash, accumulators, .. } = &self.bound.sink
        else {
            return Ok(None);
        };
        let (Some(groups), Some(first)) = (&self.groups, self.kernels.first()) else {
            // No segment, no kernel, no group.
            let state = DenseState::new(accumulators, 0);
            return hashed_batch(&self.bound, None, &[], &state.accumulators).map(Some);
        };
        let mut used = [0u8; 4];
        self.stream.download(&groups.used, 0, &mut used)?;
        let used = u64::from(u32::from_le_bytes(used)).min(groups.layout.capacity) as usize;
        let mut keys = vec![0u8; used * groups.layout.words * 8];
        if used > 0 {
            self.stream.download(&groups.keys, 0, &mut keys)?;
        }
        let kinds = &first.kernel.program.accumulators;
        let mut states = Vec::with_capacity(self.accumulators.len());
        for (buffer, kind) in self.accumulators.iter().zip(kinds) {
            let mut bytes = vec![0u8; kind.bytes() as usize * used];
            if used > 0 {
                self.stream.download(buffer, 0, &mut bytes)?;
            }
            states.push(accumulator_state(*kind, &bytes));
        }
        hashed_batch(&self.bound, Some(&groups.layout), &keys, &states).map(Some)
    }

    /// Waits for all launches and reads the accumulators; `None` for a rows sink, and for hashed
    /// groups, which [`Self::take_groups`] reads.
    ///
    /// Accumulator 0 tells which groups exist; the number of their rows is exact only where an
    /// output column depends on it.
    ///
    /// # Errors
    /// [`ExecError::Gpu`] when the device fails.
    pub fn finish(&mut self) -> Result<(Option<DenseState>, CudaStats), ExecError> {
        self.stream.synchronize()?;
        self.stats.kernel_ms += self.kernel_ms()?;
        let BoundSink::Aggregate { accumulators, grouping: Grouping::Dense { groups }, .. } =
            &self.bound.sink
        else {
            return Ok((None, self.stats));
        };
        let Some(first) = self.kernels.first() else {
            // An empty table has no segments, and so no layout and no kernel.
            return Ok((Some(DenseState::new(accumulators, *groups as usize)), self.stats));
        };
        let program = Arc::clone(&first.kernel.program);
        let mut accumulators = Vec::with_capacity(self.accumulators.len());
        for (buffer, kind) in self.accumulators.iter().zip(&program.accumulators) {
            let mut bytes = vec![0u8; (kind.bytes() * program.groups) as usize];
            self.stream.download(buffer, 0, &mut bytes)?;
            accumulators.push(accumulator_state(*kind, &bytes));
        }
        Ok((Some(DenseState { accumulators }), self.stats))
    }

    /// Milliseconds of the launches that are done; forgets them.
    pub fn kernel_ms(&mut self) -> Result<f64, ExecError> {
        let mut total = 0.0;
        for (start, end) in self.timings.drain(..) {
            end.synchronize()?;
            total += f64::from(start.elapsed_ms(&end)?);
        }
        Ok(total)
    }
}

impl Drop for CudaExecution {
    fn drop(&mut self) {
        // Kernels that are still running use buffers that are about to go back to the pool.
        if let Err(error) = self.stream.synchronize() {
            tracing::warn!(%error, "waiting for a GPU that failed");
        }
    }
}

/// Output rows as the device leaves them (values and validity bytes of each column) as a batch.
///
/// # Errors
/// [`ExecError`] when a code lies outside its dictionary.
pub fn rows_batch(
    columns: &[(Field, BoundExpr)],
    downloaded: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    rows: usize,
) -> Result<RecordBatch, ExecError> {
    let mut arrays = Vec::with_capacity(columns.len());
    for ((field, expr), (bytes, validity)) in columns.iter().zip(downloaded) {
        let data = data_of(&expr.repr, &bytes, rows)?;
        let vector = Vector { data, validity: validity.map(Cow::Owned), constant: false };
        arrays.push(vector_array(&vector, &expr.repr, &field.data_type, rows)?);
    }
    let fields: Vec<_> = columns.iter().map(|(field, _)| arrow_field(field)).collect();
    let schema = Arc::new(arrow_schema::Schema::new(fields));
    let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(schema, arrays, &options)
        .map_err(|e| ExecError::Internal(e.to_string()))
}

fn total_rows(segments: &[DeviceSegment]) -> u64 {
    segments.iter().map(|s| u64::from(s.rows)).sum()
}

/// The bytes of descriptor words.
pub fn word_bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn chunks<const N: usize>(bytes: &[u8]) -> impl Iterator<Item = [u8; N]> + '_ {
    bytes.as_chunks::<N>().0.iter().copied()
}

/// The inverse of `hr::ordered` in `aggregate.cuh`.
fn from_ordered(key: u64) -> f64 {
    match key {
        key if key == u64::MAX - 1 => f64::NAN,
        key if key >> 63 == 1 => f64::from_bits(key & !(1 << 63)),
        key => f64::from_bits(!key),
    }
}

/// Accumulators of the device as the state that both processors share.
pub fn accumulator_state(kind: DeviceAccumulator, bytes: &[u8]) -> AccumulatorState {
    let unsigned = || chunks::<8>(bytes).map(u64::from_le_bytes).collect();
    let signed = || chunks::<8>(bytes).map(i64::from_le_bytes).collect();
    match kind {
        DeviceAccumulator::Count | DeviceAccumulator::WideCount => {
            AccumulatorState::Count(unsigned())
        }
        DeviceAccumulator::Total64 => AccumulatorState::SumI64(signed()),
        DeviceAccumulator::Limbs(4) => {
            AccumulatorState::SumI128(chunks::<16>(bytes).map(i128::from_le_bytes).collect())
        }
        DeviceAccumulator::Limbs(_) => {
            let (low, carry) = chunks::<24>(bytes).map(|b| wide_total(&b)).unzip();
            AccumulatorState::SumWide { low, carry }
        }
        DeviceAccumulator::Float => {
            AccumulatorState::SumF64(chunks::<8>(bytes).map(f64::from_le_bytes).collect())
        }
        DeviceAccumulator::MinSigned | DeviceAccumulator::MaxSigned => {
            AccumulatorState::ExtremeI64(signed())
        }
        DeviceAccumulator::MinUnsigned | DeviceAccumulator::MaxUnsigned => {
            AccumulatorState::ExtremeU64(unsigned())
        }
        DeviceAccumulator::MinFloat | DeviceAccumulator::MaxFloat => AccumulatorState::ExtremeF64(
            chunks::<8>(bytes).map(u64::from_le_bytes).map(from_ordered).collect(),
        ),
        DeviceAccumulator::MinWide | DeviceAccumulator::MaxWide => {
            let none = if kind.is_min() { i128::MAX } else { i128::MIN };
            AccumulatorState::ExtremeI128(
                chunks::<32>(bytes).map(|b| wide_extreme(&b).unwrap_or(none)).collect(),
            )
        }
    }
}

/// A 128-bit extreme, if there was any value.
fn wide_extreme(entry: &[u8; 32]) -> Option<i128> {
    let (value, rest) = entry.split_first_chunk::<16>()?;
    let version = rest.first_chunk::<4>()?;
    (*version != [0; 4]).then(|| i128::from_le_bytes(*value))
}

/// A 192-bit total as `low + carry * 2^128` with signed `low`.
fn wide_total(bytes: &[u8; 24]) -> (i128, i64) {
    let mut low = [0u8; 16];
    low.copy_from_slice(&bytes[..16]);
    let mut high = [0u8; 8];
    high.copy_from_slice(&bytes[16..]);
    let low = i128::from_le_bytes(low);
    (low, i64::from_le_bytes(high).wrapping_add(i64::from(low < 0)))
}

pub(super) fn data_of(repr: &Repr, bytes: &[u8], rows: usize) -> Result<Data<'static>, ExecError> {
    macro_rules! values {
        ($native:ty) => {
            chunks::<{ size_of::<$native>() }>(bytes)
                .take(rows)
                .map(<$native>::from_le_bytes)
                .collect()
        };
    }
    Ok(match repr {
        Repr::Bool => Data::Bool(bytes[..rows].to_vec().into()),
        Repr::I8 => Data::I8(values!(i8)),
        Repr::I16 => Data::I16(values!(i16)),
        Repr::I32 | Repr::Code(_) => Data::I32(values!(i32)),
        Repr::I64 => Data::I64(values!(i64)),
        Repr::U8 => Data::U8(values!(u8)),
        Repr::U16 => Data::U16(values!(u16)),
        Repr::U32 => Data::U32(values!(u32)),
        Repr::U64 => Data::U64(values!(u64)),
        Repr::F32 => Data::F32(values!(f32)),
        Repr::F64 => Data::F64(values!(f64)),
        Repr::I128 => Data::I128(values!(i128)),
        Repr::Str => return Err(ExecError::Internal("text from the device".into())),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_totals_split_into_low_and_carry() {
        let split = |low: u128, high: i64| {
            let mut bytes = [0u8; 24];
            bytes[..16].copy_from_slice(&low.to_le_bytes());
            bytes[16..].copy_from_slice(&high.to_le_bytes());
            wide_total(&bytes)
        };
        assert_eq!(split(5, 0), (5, 0));
        assert_eq!(split(u128::MAX, -1), (-1, 0));
        assert_eq!(split(1 << 127, 0), (i128::MIN, 1), "2^127 = -2^127 + 2^128");
        assert_eq!(split(0, 1), (0, 1));
    }

    #[test]
    fn floats_come_back_from_their_order() {
        let ordered = |value: f64| {
            let bits = value.to_bits();
            if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
        };
        for value in [0.0, 1.5, -1.5, f64::MAX, f64::MIN, f64::INFINITY, f64::NEG_INFINITY] {
            assert_eq!(from_ordered(ordered(value)), value);
        }
        assert!(from_ordered(u64::MAX - 1).is_nan());
        assert!(ordered(f64::INFINITY) < u64::MAX - 1);
    }
}
