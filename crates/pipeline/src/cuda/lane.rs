//! The device's end of the race: slots, copies, one launch a chunk and layout.
//!
//! ```text
//! copy stream:     chunk 1 columns ──► event ─┐        chunk 2 columns ──► ...
//! compute stream:                  wait ◄─────┘ descriptors, kernel, keep columns, status ──► event
//! ```
//!
//! Columns that a chunk brought are copied within the device to the resident columns while
//! their budget lasts: at terabytes a second that is nothing beside their way over the link.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use headrace_flow::{BoxError, DeviceLane, DeviceRange, DeviceTimes, StageSpans, Verdict};
use headrace_gpu::{DeviceBuffer, Event, EventFlags, PinnedBuffer, Stream};
use headrace_io::Window;

use crate::cuda::execution::{CudaExecution, CudaStats, RowBuffers, STATUS_BYTES};
use crate::cuda::program::{DeviceColumn, DeviceSegment};
use crate::cuda::resident::{ColumnKey, ResidentColumn};
use crate::cuda::stream_plan::{ColumnOrigin, PlannedChunk, PlannedSegment, StreamPlan};
use crate::error::ExecError;
use crate::state::DenseState;

/// Alignment of the parts of a slot's control memory.
const CONTROL_ALIGN_BYTES: usize = 256;

/// What one slot owns.
struct Slot {
    host: PinnedBuffer,
    device: DeviceBuffer,
    /// Status, then descriptors, on both sides.
    control_host: PinnedBuffer,
    control_device: DeviceBuffer,
    rows: Option<RowBuffers>,
    copied: Event,
    executed: Event,
    /// Around the kernels, for the trace.
    kernels: (Event, Event),
    copies: Vec<(Event, Event)>,
    /// Those from here on are of the chunk in the slot.
    first_copy: usize,
    kept: Vec<(ColumnKey, Arc<ResidentColumn>)>,
}

/// A query's end of the race on one GPU.
pub struct CudaLane {
    execution: CudaExecution,
    plan: StreamPlan,
    copy_stream: Stream,
    slots: Vec<Slot>,
    batches: Vec<RecordBatch>,
    emitted_rows: u64,
    times: DeviceTimes,
    /// A moment on both clocks: what ties the device's events to the host's time.
    clock: (Event, Instant),
}

/// What a query leaves.
#[derive(Debug)]
pub struct CudaAnswer {
    /// Accumulators of an aggregation by dense groups.
    pub state: Option<DenseState>,
    /// Hashed groups, or rows of a rows sink, in no order. With a limit there may be more rows than that: whoever
    /// puts out the answer cuts it.
    pub batches: Vec<RecordBatch>,
    /// What was done.
    pub stats: CudaStats,
}

impl CudaLane {
    /// A lane with `slots` slots, of the sizes that the plan's largest chunk needs.
    ///
    /// # Errors
    /// [`ExecError::Gpu`] when pinned or device memory is lacking.
    pub fn new(
        mut execution: CudaExecution,
        plan: StreamPlan,
        slots: usize,
    ) -> Result<Self, ExecError> {
        let device = Arc::clone(execution.device());
        let words_max = execution.kernels().map(|k| k.program.segment_fields.len()).max();
        let descriptor_bytes = words_max.unwrap_or(0) * 8;
        let control_bytes = STATUS_BYTES.next_multiple_of(CONTROL_ALIGN_BYTES)
            + plan.chunk_segments_max() * (descriptor_bytes + CONTROL_ALIGN_BYTES);
        let rows_max = plan.chunk_rows_max();
        let slots = (0..slots.max(1))
            .map(|_| {
                let gpu = device.device();
                let control_device = device.alloc(control_bytes)?;
                // SAFETY: the lane holds the buffer and waits for the stream when it is dropped.
                unsafe { execution.stream().fill_async(&control_device, 0, STATUS_BYTES, 0) }?;
                Ok(Slot {
                    host: device.take_pinned(plan.host_bytes_max())?,
                    device: device.alloc(plan.device_bytes_max())?,
                    control_host: device.take_pinned(control_bytes)?,
                    control_device,
                    rows: execution.row_buffers(rows_max.max(1))?,
                    copied: gpu.event(EventFlags::ORDER)?,
                    executed: gpu.event(EventFlags::ORDER_BLOCKING)?,
                    kernels: (gpu.event(EventFlags::TIMING)?, gpu.event(EventFlags::TIMING)?),
                    copies: Vec::new(),
                    first_copy: 0,
                    kept: Vec::new(),
                })
            })
            .collect::<Result<Vec<_>, ExecError>>()?;
        execution.stream().synchronize()?;
        execution.stats = CudaStats::default();
        let copy_stream = device.device().stream()?;
        let zero = device.device().event(EventFlags::TIMING)?;
        zero.record(&copy_stream)?;
        zero.synchronize()?;
        Ok(Self {
            clock: (zero, Instant::now()),
            copy_stream,
            execution,
            plan,
            slots,
            batches: Vec::new(),
            emitted_rows: 0,
            times: DeviceTimes::default(),
        })
    }

    /// The answer, after the race.
    ///
    /// # Errors
    /// [`ExecError::Gpu`] when the device fails.
    pub fn finish(mut self) -> Result<CudaAnswer, ExecError> {
        self.collect_times()?;
        self.batches.extend(self.execution.take_groups()?);
        let (state, mut stats) = self.execution.finish()?;
        stats.kernel_ms += self.times.kernel_ns as f64 / 1e6;
        Ok(CudaAnswer { state, batches: self.take_batches(), stats })
    }

    /// Output rows that are there already.
    pub fn take_batches(&mut self) -> Vec<RecordBatch> {
        std::mem::take(&mut self.batches)
    }

    fn collect_times(&mut self) -> Result<(), ExecError> {
        self.times.kernel_ns += (self.execution.kernel_ms()? * 1e6) as u64;
        for slot in &mut self.slots {
            for (start, end) in slot.copies.drain(..) {
                end.synchronize()?;
                self.times.h2d_ns += (f64::from(start.elapsed_ms(&end)?) * 1e6) as u64;
            }
        }
        Ok(())
    }

    /// The host's time of an event that has happened.
    fn host_time(&self, event: &Event) -> Option<Instant> {
        let (zero, at) = &self.clock;
        let ms = f64::from(zero.elapsed_ms(event).ok()?).max(0.0);
        Some(*at + Duration::from_secs_f64(ms / 1e3))
    }

    fn launch_chunk(
        &mut self,
        slot: usize,
        chunk: usize,
        buffers: &[DeviceRange],
    ) -> Result<(), ExecError> {
        let planned = std::mem::take(&mut self.plan.chunks[chunk]);
        let launched = self.launch_planned(slot, &planned, buffers);
        self.plan.chunks[chunk] = planned;
        launched
    }

    fn launch_planned(
        &mut self,
        slot_index: usize,
        chunk: &PlannedChunk,
        buffers: &[DeviceRange],
    ) -> Result<(), ExecError> {
        self.execution.stats.resident_bytes += chunk.resident_bytes;
        self.execution.stats.h2d_bytes += buffers.iter().map(|b| b.bytes as u64).sum::<u64>();
        let base = self.slots[slot_index].device.ptr();
        let segments: Vec<DeviceSegment> =
            chunk.segments.iter().map(|segment| on_device(segment, base, buffers)).collect();
        self.reset_rows(slot_index)?;
        self.launch_segments(slot_index, &segments)?;
        self.keep_columns(slot_index, chunk, buffers)?;
        self.fetch_status(slot_index)
    }

    /// Sets the number of output rows of a slot to 0. The error words stay.
    fn reset_rows(&mut self, slot: usize) -> Result<(), ExecError> {
        let control = &self.slots[slot].control_device;
        // SAFETY: the lane holds the buffer and waits for the stream when it is dropped; only
        // this stream touches it.
        unsafe { self.execution.stream().fill_async(control, 0, 8, 0) }?;
        Ok(())
    }

    fn launch_segments(
        &mut self,
        slot: usize,
        segments: &[DeviceSegment],
    ) -> Result<(), ExecError> {
        let Some(layout) = self.plan.layout.clone() else { return Ok(()) };
        let (words, tiles) = self.execution.describe(&layout, segments)?;
        let at = STATUS_BYTES.next_multiple_of(CONTROL_ALIGN_BYTES);
        let slot = &mut self.slots[slot];
        let bytes = words.len() * 8;
        let room = slot.control_host.bytes().min(slot.control_device.bytes());
        if at + bytes > room {
            return Err(ExecError::Internal(format!("{bytes} bytes of descriptors at {at}")));
        }
        let staging = &mut slot.control_host.as_mut_slice()[at..at + bytes];
        for (to, word) in staging.chunks_exact_mut(8).zip(&words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        let descriptors = slot.control_device.ptr() + at as u64;
        let status = slot.control_device.ptr();
        // SAFETY: the staging memory is pinned, belongs to the slot and is written again only
        // when the slot's execution is done; the descriptors are made for this layout; the
        // slot's buffers and the resident columns, which the plan holds, stay until then too.
        unsafe {
            self.execution.stream().copy_h2d_async(&slot.control_device, at, staging)?;
            self.execution.launch(&layout, descriptors, tiles, status, slot.rows.as_ref())?;
        }
        Ok(())
    }

    /// Copies the columns that the chunk brought to where they may stay.
    fn keep_columns(
        &mut self,
        slot: usize,
        chunk: &PlannedChunk,
        buffers: &[DeviceRange],
    ) -> Result<(), ExecError> {
        let device = Arc::clone(self.execution.device());
        for origin in chunk.segments.iter().flat_map(|s| &s.columns) {
            let ColumnOrigin::Read { values, validity, form, key } = origin else { continue };
            let values = buffers[*values];
            let validity = validity.map(|v| buffers[v]);
            let validity_at = values.bytes.next_multiple_of(CONTROL_ALIGN_BYTES);
            let bytes = validity_at + validity.map_or(0, |v| v.bytes);
            if !device.resident().make_room(bytes as u64, self.plan.query) {
                continue;
            }
            let Ok(buffer) = device.pool().alloc(bytes.max(16)) else { continue };
            let stream = self.execution.stream();
            let from = &self.slots[slot].device;
            // SAFETY: the slot keeps the new buffer, and its own memory unchanged, until its
            // execution is done; both copies lie inside the buffers.
            unsafe {
                stream.copy_d2d_async(&buffer, 0, from, values.offset, values.bytes)?;
                if let Some(v) = validity {
                    stream.copy_d2d_async(&buffer, validity_at, from, v.offset, v.bytes)?;
                }
            }
            self.execution.stats.admitted_bytes += bytes as u64;
            let column = ResidentColumn {
                buffer,
                form: *form,
                base: 0,
                values_bytes: values.bytes as u64,
                validity: validity.map(|v| (validity_at as u64, v.bytes as u64)),
            };
            self.slots[slot].kept.push((key.clone(), Arc::new(column)));
        }
        Ok(())
    }

    fn fetch_status(&mut self, slot: usize) -> Result<(), ExecError> {
        let slot = &mut self.slots[slot];
        let to = &mut slot.control_host.as_mut_slice()[..STATUS_BYTES];
        // SAFETY: the pinned memory belongs to the slot and is read when its execution is done.
        unsafe { self.execution.stream().copy_d2h_async(&slot.control_device, 0, to) }?;
        Ok(())
    }

    fn retire_slot(&mut self, slot_index: usize) -> Result<Verdict, ExecError> {
        let slot = &mut self.slots[slot_index];
        let mut status = [0u8; STATUS_BYTES];
        status.copy_from_slice(&slot.control_host.as_slice()[..STATUS_BYTES]);
        let used = self.execution.read_status(&status)?;
        for (key, column) in slot.kept.drain(..) {
            self.execution.device().resident().put(key, column, self.plan.query);
        }
        if let Some(rows) = &slot.rows {
            self.batches.extend(self.execution.download_rows(rows, used)?);
            self.emitted_rows += used;
        }
        let enough = self.execution.is_enough(self.emitted_rows);
        Ok(if enough { Verdict::Enough } else { Verdict::Continue })
    }
}

/// Addresses of a segment whose reads lie in a slot.
fn on_device(segment: &PlannedSegment, base: u64, buffers: &[DeviceRange]) -> DeviceSegment {
    let at = |read: usize| base + buffers[read].offset as u64;
    let columns = segment
        .columns
        .iter()
        .zip(&segment.remaps)
        .map(|(origin, remap)| match origin {
            ColumnOrigin::Unread => DeviceColumn::default(),
            ColumnOrigin::Resident(column) => DeviceColumn {
                values: column.buffer.ptr(),
                form: column.form,
                base: column.base,
                validity: column.validity.map(|(offset, _)| column.buffer.ptr() + offset),
                remap: *remap,
            },
            ColumnOrigin::Read { values, validity, form, .. } => DeviceColumn {
                values: at(*values),
                form: *form,
                base: 0,
                validity: validity.map(at),
                remap: *remap,
            },
        })
        .collect();
    DeviceSegment { rows: segment.rows, columns }
}

/// Runs a plan all of whose columns are resident: one launch.
///
/// # Errors
/// The failure of a row, or [`ExecError::Gpu`]; [`ExecError::Internal`] for a plan with reads.
pub fn run_resident(
    mut execution: CudaExecution,
    plan: &StreamPlan,
    row_capacity: u64,
) -> Result<CudaAnswer, ExecError> {
    if !plan.is_resident() {
        return Err(ExecError::Internal("a plan that is not resident".into()));
    }
    let segments = plan.chunks.iter().flat_map(|chunk| &chunk.segments);
    let segments: Vec<DeviceSegment> = segments.map(|segment| on_device(segment, 0, &[])).collect();
    let mut batches = Vec::new();
    if let Some(layout) = &plan.layout {
        // SAFETY: the plan holds the resident columns, which are complete (they were entered
        // when their copies were done), as long as their extents were for these rows, and
        // nobody writes to them.
        batches.extend(unsafe { execution.run(layout, &segments, row_capacity) }?);
    }
    execution.stats.resident_bytes += plan.chunks.iter().map(|c| c.resident_bytes).sum::<u64>();
    batches.extend(execution.take_groups()?);
    let (state, stats) = execution.finish()?;
    Ok(CudaAnswer { state, batches, stats })
}

// SAFETY: each window is a whole pinned buffer of its slot, which starts on a page, is mapped
// readable and writable and initialised (zero pages), overlaps no other, is used by nothing else,
// and lives as long as the lane.
unsafe impl DeviceLane for CudaLane {
    fn slots(&self) -> usize {
        self.slots.len()
    }

    fn host_window(&self, slot: usize) -> Window {
        let host = &self.slots[slot].host;
        Window::new(host.ptr().as_ptr(), host.bytes())
    }

    fn device_slot_bytes(&self) -> usize {
        self.slots.iter().map(|slot| slot.device.bytes()).min().unwrap_or(0)
    }

    fn resident_bytes(&mut self, chunk: usize) -> Option<u64> {
        let chunk = self.plan.chunks.get(chunk)?;
        chunk.reads.is_empty().then_some(chunk.resident_bytes)
    }

    unsafe fn copy_to_device(
        &mut self,
        slot: usize,
        offset: usize,
        from: &[u8],
    ) -> Result<(), BoxError> {
        let start = self.execution.device().device().event(EventFlags::TIMING)?;
        let end = self.execution.device().device().event(EventFlags::TIMING)?;
        let slot = &mut self.slots[slot];
        start.record(&self.copy_stream)?;
        // SAFETY: the caller keeps `from` until the slot's execution is done; the slot's device
        // memory belongs to this lane, and the kernel that read it before is done.
        unsafe { self.copy_stream.copy_h2d_async(&slot.device, offset, from) }?;
        end.record(&self.copy_stream)?;
        slot.copies.push((start, end));
        Ok(())
    }

    fn mark_copied(&mut self, slot: usize) -> Result<(), BoxError> {
        Ok(self.slots[slot].copied.record(&self.copy_stream)?)
    }

    fn launch(
        &mut self,
        slot: usize,
        chunk: usize,
        buffers: &[DeviceRange],
    ) -> Result<(), BoxError> {
        self.execution.stream().wait_event(&self.slots[slot].copied)?;
        self.slots[slot].kernels.0.record(self.execution.stream())?;
        Ok(self.launch_chunk(slot, chunk, buffers)?)
    }

    fn launch_resident(&mut self, slot: usize, chunk: usize) -> Result<(), BoxError> {
        self.slots[slot].kernels.0.record(self.execution.stream())?;
        Ok(self.launch_chunk(slot, chunk, &[])?)
    }

    fn mark_executed(&mut self, slot: usize) -> Result<(), BoxError> {
        self.slots[slot].kernels.1.record(self.execution.stream())?;
        Ok(self.slots[slot].executed.record(self.execution.stream())?)
    }

    fn poll(&mut self, slot: usize) -> Result<bool, BoxError> {
        Ok(self.slots[slot].executed.is_complete()?)
    }

    fn wait(&mut self, slot: usize) -> Result<(), BoxError> {
        Ok(self.slots[slot].executed.synchronize()?)
    }

    fn stage_spans(&mut self, slot: usize) -> Option<StageSpans> {
        let slot = &self.slots[slot];
        let copied = slot.copies.get(slot.first_copy).zip(slot.copies.last());
        let copied = copied.and_then(|((start, _), (_, end))| {
            Some((self.host_time(start)?, self.host_time(end)?))
        });
        let executed = self.host_time(&slot.kernels.0).zip(self.host_time(&slot.kernels.1));
        Some(StageSpans { copied, executed })
    }

    fn retire(&mut self, slot: usize, _chunk: usize) -> Result<Verdict, BoxError> {
        self.slots[slot].first_copy = self.slots[slot].copies.len();
        Ok(self.retire_slot(slot)?)
    }

    fn synchronize(&mut self) -> Result<(), BoxError> {
        self.copy_stream.synchronize()?;
        self.execution.stream().synchronize()?;
        Ok(self.collect_times()?)
    }

    fn times(&mut self) -> DeviceTimes {
        self.times
    }
}

impl Drop for CudaLane {
    fn drop(&mut self) {
        let copies = self.copy_stream.synchronize();
        let work = self.execution.stream().synchronize();
        if let Err(error) = copies.and(work) {
            // The device is lost; its memory must not be used again.
            tracing::warn!(%error, "waiting for a GPU that failed");
            return;
        }
        for slot in self.slots.drain(..) {
            self.execution.device().give_pinned(slot.host);
            self.execution.device().give_pinned(slot.control_host);
        }
    }
}
