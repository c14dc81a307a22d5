//! What a GPU does with the chunks that a race brings: one launch a chunk and layout.
//!
//! ```text
//! copy stream:     chunk 1 columns ──► event ─┐        chunk 2 columns ──► ...
//! compute stream:                  wait ◄─────┘ descriptors, kernel, keep columns, status ──► event
//! return stream:                              rows, a portion at a time; or the rest of the chunk ◄┘
//! ```
//!
//! A chunk that filled the table of hashed groups is not done: its program hands the groups over
//! and launches the chunk again, which goes on where it was (`groups.rs`). That
//! comes after all kernels so far, which found the table full and are launched again in their turn,
//! and before all later ones. The chunk's buffers are its own until it is retired.
//!
//! A chunk of heap pages is launched twice: a kernel looks at its pages, and when its verdicts are back,
//! and the pages' owner was asked, those that are taken become columns and the chunk is launched over
//! these, in the stream and the order of what is launched again (`pages.rs`, `page_slots.rs`).
//!
//! Columns that a chunk brought are copied within the device to the resident columns while
//! their budget lasts, narrow where that is known how: at terabytes a second that is nothing
//! beside their way over the link.

mod keep;
mod pages;

use headrace_flow::{BoxError, DeviceProgram, DeviceSlice, FedChunk, More, SlotChunk, Verdict};
use headrace_gpu::{DeviceBuffer, Event, Function, Stream};
use headrace_pipeline::ExecError;

use crate::error::CudaError;
use crate::execution::CudaExecution;
use crate::layout::SegmentLayout;
use crate::page_slots::PageSlots;
use crate::pinned::PinnedLease;
use crate::program::{CudaProgram, DeviceColumn, DeviceSegment};
use crate::progress::{Again, Progress};
use crate::resident::{ColumnKey, ResidentColumn};
use crate::rows::{RowOutput, RowTransfer};
use crate::status::{STATUS_BYTES, groups_of};
use crate::stream_chunks::ChunkSource;
use crate::stream_plan::{ColumnOrigin, PlannedChunk, PlannedPages, PlannedSegment, StreamPlan};
use crate::upload::{UPLOAD_KERNEL_NAME, queue_upload, upload_source};

/// Alignment of the parts of a slot's control memory.
const CONTROL_ALIGN_BYTES: usize = 256;

/// Where the descriptors lie behind the status.
const DESCRIPTORS_AT: usize = STATUS_BYTES.next_multiple_of(CONTROL_ALIGN_BYTES);

/// Where the flags of columns that did not become narrow lie in the status, and how many there are
/// room for: further columns of a chunk share the last.
const MISFITS_AT: usize = 64;
const MISFITS_MAX: usize = (STATUS_BYTES - MISFITS_AT) / 4;

/// A column on its way to where it stays.
struct Kept {
    key: ColumnKey,
    column: ResidentColumn,
    /// Which flag tells that it must not be used.
    misfit: Option<usize>,
}

/// A column as a chunk brought it: the offsets of texts are its values.
#[derive(Clone, Copy)]
struct Brought {
    values: DeviceSlice,
    texts: Option<DeviceSlice>,
    validity: Option<DeviceSlice>,
}

/// What one slot has of its own, beside the race's.
struct Slot {
    /// Status, then descriptors, on both sides.
    control_host: PinnedLease,
    control_device: DeviceBuffer,
    rows: Option<RowTransfer>,
    kept: Vec<Kept>,
    /// Its chunk was launched, and nobody has looked at the status yet.
    is_launched: bool,
    /// What its descriptors were made for: the plan's layout may have grown since.
    layout: Option<SegmentLayout>,
    /// Tiles of its chunk.
    tiles: u64,
    progress: Option<Progress>,
    /// Its chunk left when the output rows that come back now had filled their room.
    has_left: bool,
    /// Its chunk's pages are looked at, and not launched yet.
    is_checking: bool,
}

/// What the largest chunk of a race takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChunkBounds {
    /// Of a slot, on the host and on the device.
    pub slot_bytes: usize,
    pub rows: u64,
    pub segments: usize,
    /// Chunks come that nobody knows yet: they may lie otherwise.
    pub may_grow: bool,
}

/// A query's part in a race on one GPU.
pub struct StreamProgram<'a> {
    execution: CudaExecution,
    plan: StreamPlan,
    bounds: ChunkBounds,
    slots: Vec<Slot>,
    /// What the pages of chunks need; `None`: there are none.
    pages: Option<PageSlots>,
    output: &'a RowOutput<'a>,
    upload: Function,
    /// All chunks so far are launched.
    launched: Event,
    /// What was launched again is done.
    resumed: Event,
    /// Something was launched again since the last chunk was launched.
    has_resumed: bool,
}

impl<'a> StreamProgram<'a> {
    /// A program for a lane of `slots` slots.
    ///
    /// # Errors
    /// [`CudaError::Gpu`] or [`headrace_columns::ColumnError::Memory`] when pinned or device memory is lacking.
    pub(crate) fn new(
        execution: CudaExecution,
        plan: StreamPlan,
        (slots, bounds): (usize, ChunkBounds),
        output: &'a RowOutput<'a>,
    ) -> Result<Self, CudaError> {
        let gpu = execution.device().device();
        let (launched, resumed) = (gpu.event()?, gpu.event()?);
        let upload = execution.device().function(&upload_source(), UPLOAD_KERNEL_NAME)?;
        let mut program = Self {
            execution,
            plan,
            bounds,
            slots: Vec::with_capacity(slots),
            pages: None,
            output,
            upload,
            launched,
            resumed,
            has_resumed: false,
        };
        for _ in 0..slots {
            let slot = program.slot()?;
            program.slots.push(slot);
        }
        // The race works in another stream than what was queued so far.
        program.execution.synchronize()?;
        Ok(program)
    }

    fn slot(&self) -> Result<Slot, CudaError> {
        let device = self.execution.device();
        let descriptor_bytes = match self.bounds.may_grow {
            true => CudaProgram::segment_bytes_max(self.execution.bound().source_registers),
            false => self.execution.descriptor_bytes(),
        };
        let descriptors = descriptor_bytes + CONTROL_ALIGN_BYTES;
        let control_bytes = DESCRIPTORS_AT + self.bounds.segments * descriptors;
        let control_device = device.alloc(control_bytes)?;
        device.upload_into(&control_device, &[0; STATUS_BYTES])?;
        let rows = self.execution.row_transfer(self.bounds.rows.max(1))?;
        Ok(Slot {
            control_host: PinnedLease::take(device, control_bytes)?,
            control_device,
            progress: self.execution.progress(rows.as_ref())?,
            rows,
            kept: Vec::new(),
            is_launched: false,
            layout: None,
            tiles: 0,
            has_left: false,
            is_checking: false,
        })
    }

    /// The execution with all that the race left in it.
    pub(crate) fn into_execution(self) -> CudaExecution {
        self.execution
    }

    fn launch_chunk(
        &mut self,
        stream: &Stream,
        at: SlotChunk,
        buffers: &[DeviceSlice],
    ) -> Result<(), CudaError> {
        let unknown = || ExecError::Internal(format!("chunk {} was not begun", at.chunk));
        let planned = std::mem::take(self.plan.chunk_mut(at.chunk).ok_or_else(unknown)?);
        let launched = self.launch_planned(stream, at.slot, &planned, buffers);
        // Resident columns are held until the chunk is retired.
        *self.plan.chunk_mut(at.chunk).ok_or_else(unknown)? = planned;
        launched
    }

    fn launch_planned(
        &mut self,
        stream: &Stream,
        slot: usize,
        chunk: &PlannedChunk,
        buffers: &[DeviceSlice],
    ) -> Result<(), CudaError> {
        self.execution.stats.resident_bytes += chunk.resident_bytes;
        self.execution.stats.h2d_bytes += buffers.iter().map(|b| b.bytes as u64).sum::<u64>();
        let is_read = |pages: &PlannedPages| pages.read.is_some();
        if chunk.segments.iter().any(|segment| segment.pages.as_ref().is_some_and(is_read)) {
            return self.check_pages(stream, slot, chunk, buffers);
        }
        self.tell_kept(chunk)?;
        let segments: Vec<DeviceSegment> =
            chunk.segments.iter().map(|segment| on_device(segment, buffers)).collect();
        if std::mem::take(&mut self.has_resumed) {
            stream.wait_event(&self.resumed)?;
        }
        self.slots[slot].is_launched = true;
        self.reset_rows(stream, slot)?;
        self.launch_segments(stream, slot, &segments)?;
        self.keep_columns(stream, slot, chunk, buffers)?;
        self.fetch_status(stream, slot)?;
        Ok(self.launched.record(stream)?)
    }

    /// Sets the number of output rows of a slot and its flags to 0. The error word stays.
    fn reset_rows(&mut self, stream: &Stream, slot: usize) -> Result<(), CudaError> {
        let control = &self.slots[slot].control_device;
        // SAFETY: the program keeps the buffer until the lane was synchronised; the last chunk in
        // the slot is retired, so that only this stream touches it.
        unsafe {
            stream.fill_async(control, 0, 8, 0)?;
            stream.fill_async(control, MISFITS_AT, STATUS_BYTES - MISFITS_AT, 0)?;
        }
        Ok(())
    }

    fn launch_segments(
        &mut self,
        stream: &Stream,
        slot: usize,
        segments: &[DeviceSegment],
    ) -> Result<(), CudaError> {
        let Some(layout) = self.plan.layout.clone() else { return Ok(()) };
        let (words, tiles) = self.execution.describe(&layout, segments)?;
        let (number, at) = (slot, DESCRIPTORS_AT);
        let slot = &mut self.slots[slot];
        (slot.layout, slot.tiles) = (Some(layout), tiles);
        let bytes = words.len() * 8;
        let room = slot.control_host.as_slice().len().min(slot.control_device.bytes());
        if at + bytes > room {
            return Err(ExecError::Internal(format!("{bytes} bytes of descriptors at {at}")).into());
        }
        let staging = &mut slot.control_host.as_mut_slice()[at..at + bytes];
        for (to, word) in staging.chunks_exact_mut(8).zip(&words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        let Slot { control_host, control_device, .. } = &*slot;
        // SAFETY: both belong to the slot, and are written again only when its execution is done.
        unsafe {
            queue_upload(&self.upload, stream, control_host, control_device, at..at + bytes)
        }?;
        // SAFETY: the descriptors are made for this layout; the slot's buffers and the resident
        // columns, which the plan holds, stay until the slot's execution is done.
        unsafe { self.launch_slot(stream, number, Again::First) }
    }

    /// Queues the kernel over the descriptors of a slot.
    ///
    /// # Safety
    /// What they point to must stay until the stream has done it.
    unsafe fn launch_slot(
        &mut self,
        stream: &Stream,
        slot: usize,
        again: Again,
    ) -> Result<(), CudaError> {
        let Slot { control_device, rows, layout, tiles, progress, .. } = &mut self.slots[slot];
        let Some(layout) = layout else { return Ok(()) };
        let status = control_device.ptr();
        let descriptors = (status + DESCRIPTORS_AT as u64, 0..*tiles);
        self.execution.last_wanted = self.output.last_wanted();
        let rows = rows.as_ref().map(|rows| &rows.buffers);
        let progress = progress.as_mut().map(|progress| (progress, again));
        // SAFETY: the caller's promise; the slot's own memory stays as long as the program.
        unsafe { self.execution.launch(stream, layout, descriptors, status, rows, progress) }
    }

    /// Launches the chunk of a slot again if it filled the table of groups before its end; whether
    /// it did.
    fn resume_groups(&mut self, stream: &Stream, slot: usize) -> Result<bool, CudaError> {
        let Slot { control_host, progress: Some(progress), rows: None, .. } = &self.slots[slot]
        else {
            return Ok(false);
        };
        if !progress.has_left(groups_of(&status_of(control_host))) {
            return Ok(false);
        }
        stream.wait_event(&self.launched)?;
        if self.execution.is_full_since(progress) {
            self.execution.renew(stream, self.output)?;
        }
        // SAFETY: the chunk is not retired: its buffers, the slot's and the plan's columns are as
        // they were for its first launch.
        unsafe { self.launch_slot(stream, slot, Again::Resumed) }?;
        self.fetch_status(stream, slot)?;
        self.resumed.record(stream)?;
        self.has_resumed = true;
        self.slots[slot].is_launched = true;
        Ok(true)
    }

    /// Launches the chunk of a slot again, whose output rows filled their room and have come back. They are
    /// the slot's own: no other launch has to wait.
    fn resume_rows(&mut self, stream: &Stream, slot: usize) -> Result<(), CudaError> {
        self.reset_rows(stream, slot)?;
        // SAFETY: as in `resume_groups`.
        unsafe { self.launch_slot(stream, slot, Again::Resumed) }?;
        self.fetch_status(stream, slot)?;
        self.slots[slot].is_launched = true;
        Ok(())
    }

    fn fetch_status(&mut self, stream: &Stream, slot: usize) -> Result<(), CudaError> {
        let slot = &mut self.slots[slot];
        let to = &mut slot.control_host.as_mut_slice()[..STATUS_BYTES];
        // SAFETY: the pinned memory belongs to the slot and is read when its execution is done.
        unsafe { stream.copy_d2h_async(&slot.control_device, 0, to) }?;
        if slot.progress.is_some() && slot.rows.is_none() {
            // SAFETY: as above.
            unsafe { self.execution.queue_groups_used(stream, to) }?;
        }
        Ok(())
    }

    /// Looks at the status of a slot whose kernels are done, and keeps its columns; the number of
    /// output rows.
    fn kernels_done(&mut self, slot: usize) -> Result<u64, CudaError> {
        let slot = &mut self.slots[slot];
        let status = status_of(&slot.control_host);
        let used = self.execution.read_status(&status)?;
        let resident = self.execution.device().resident();
        for Kept { key, column, misfit } in slot.kept.drain(..) {
            let at = |flag: usize| MISFITS_AT + 4 * flag;
            match misfit {
                // What is claimed of the column is wrong here; it comes again as it is.
                Some(flag) if status[at(flag)..at(flag) + 4] != [0; 4] => resident.keep_plain(key),
                _ => drop(resident.put(key, column, self.plan.query)),
            }
        }
        Ok(used)
    }

    /// What is left of the chunk is done first; then rows come back portion by portion, while there
    /// are any.
    fn advance(&mut self, stream: &Stream, slot: usize) -> Result<Option<More>, CudaError> {
        if std::mem::take(&mut self.slots[slot].is_checking) {
            return self.launch_checked(stream, slot).map(|()| Some(More::Work));
        }
        if std::mem::take(&mut self.slots[slot].is_launched) {
            let used = self.kernels_done(slot)?;
            if self.resume_groups(stream, slot)? {
                return Ok(Some(More::Work));
            }
            let Slot { rows, progress, has_left, .. } = &mut self.slots[slot];
            if let Some(rows) = rows {
                rows.begin(used)?;
                *has_left = progress.as_ref().is_some_and(|progress| progress.has_left(used));
            }
        }
        let Slot { rows, has_left, .. } = &mut self.slots[slot];
        let Some(rows) = rows else { return Ok(None) };
        if rows.advance(stream, self.output)? {
            return Ok(Some(More::Copies));
        }
        if !std::mem::take(has_left) || self.output.is_enough() {
            return Ok(None);
        }
        self.resume_rows(stream, slot).map(|()| Some(More::Work))
    }
}

// SAFETY: it has no output. What its kernels and copies use lies in the slots' buffers, the
// execution and the plan, which live as long as the program; a slot's own memory is used for the
// next chunk only when the race gives it out again.
unsafe impl DeviceProgram<ChunkSource> for StreamProgram<'_> {
    fn begin(&mut self, chunk: &FedChunk<ChunkSource>) -> Result<(), BoxError> {
        Ok(self.plan.begin(&mut self.execution, chunk.number, &chunk.payload)?)
    }

    fn is_resident(&mut self, chunk: usize, buffer: usize) -> bool {
        let planned = self.plan.chunk_mut(chunk);
        planned.and_then(|chunk| chunk.resident.get(buffer).copied()).unwrap_or(false)
    }

    fn launch(
        &mut self,
        stream: &Stream,
        at: SlotChunk,
        buffers: &[DeviceSlice],
    ) -> Result<(), BoxError> {
        Ok(self.launch_chunk(stream, at, buffers)?)
    }

    fn bring_back(&mut self, stream: &Stream, at: SlotChunk) -> Result<Option<More>, BoxError> {
        Ok(self.advance(stream, at.slot)?)
    }

    fn retire(&mut self, at: SlotChunk) -> Result<Verdict, BoxError> {
        self.plan.retire(at.chunk);
        Ok(if self.output.is_enough() { Verdict::Enough } else { Verdict::Continue })
    }
}

/// The status of a slot that came back.
fn status_of(control: &PinnedLease) -> [u8; STATUS_BYTES] {
    let mut status = [0u8; STATUS_BYTES];
    status.copy_from_slice(&control.as_slice()[..STATUS_BYTES]);
    status
}

/// Addresses of a segment whose reads lie where `buffers` says.
pub(crate) fn on_device(segment: &PlannedSegment, buffers: &[DeviceSlice]) -> DeviceSegment {
    let at = |read: usize| buffers[read].address;
    let columns = segment
        .columns
        .iter()
        .zip(&segment.remaps)
        .map(|(origin, remap)| match origin {
            // Those of pages are told when they are decoded.
            ColumnOrigin::Unread | ColumnOrigin::Decoded(_) => DeviceColumn::default(),
            ColumnOrigin::Resident(column) => DeviceColumn {
                values: column.buffer.ptr(),
                form: column.form,
                base: column.base,
                validity: column.validity.map(|(offset, _)| column.buffer.ptr() + offset),
                remap: *remap,
                bytes: column.texts.map(|(offset, bytes)| (column.buffer.ptr() + offset, bytes)),
            },
            ColumnOrigin::Read { values, offsets, base, validity, form, .. } => DeviceColumn {
                values: at(offsets.unwrap_or(*values)),
                form: *form,
                base: *base,
                validity: validity.map(at),
                remap: *remap,
                bytes: offsets.map(|_| (at(*values), buffers[*values].bytes as u64)),
            },
        })
        .collect();
    DeviceSegment { rows: segment.rows, columns }
}
