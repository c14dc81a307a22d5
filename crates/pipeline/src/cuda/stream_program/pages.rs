//! Chunks of heap pages: looked at first, and launched when it is known which pages are taken.

use std::sync::Arc;

use headrace_flow::DeviceSlice;
use headrace_gpu::Stream;

use super::StreamProgram;
use crate::cuda::page_slots::{PageRun, PageSlots};
use crate::cuda::pages::PageOwner;
use crate::cuda::stream_plan::PlannedChunk;
use crate::error::ExecError;

impl StreamProgram<'_> {
    /// The same for a stream of pages that have an owner.
    ///
    /// # Errors
    /// As [`PageSlots::new`].
    pub(in crate::cuda) fn with_pages(
        mut self,
        owner: Option<&Arc<dyn PageOwner>>,
    ) -> Result<Self, ExecError> {
        if let (Some(decoding), Some(owner)) = (self.plan.pages.clone(), owner) {
            let device = self.execution.device();
            let shape = (self.slots.len(), self.bounds.slot_bytes);
            self.pages = Some(PageSlots::new(device, decoding, Arc::clone(owner), shape)?);
        }
        Ok(self)
    }

    /// Has the pages of a chunk looked at.
    pub(super) fn check_pages(
        &mut self,
        stream: &Stream,
        slot: usize,
        chunk: &PlannedChunk,
        buffers: &[DeviceSlice],
    ) -> Result<(), ExecError> {
        let pages = chunk.segments.iter().filter_map(|segment| segment.pages.as_ref());
        let run = |(segment, read): &(_, usize)| PageRun {
            segment: headrace_ir::Segment::clone(segment),
            bytes: buffers[*read],
        };
        let runs = pages.map(run).collect();
        self.slots[slot].is_checking = true;
        // SAFETY: the race keeps the slot's buffers as they are until its chunk is retired, which is
        // not before all that was queued for it is done.
        unsafe { self.pages()?.check(stream, slot, runs) }
    }

    /// Launches a chunk whose pages were looked at, after all launches so far and before all later
    /// ones, as [`resume`](Self::resume) does.
    pub(super) fn launch_checked(&mut self, stream: &Stream, slot: usize) -> Result<(), ExecError> {
        let registers = self.execution.bound().source_registers;
        // SAFETY: the chunk is not retired: its buffers are as they were, and the work that was
        // queued for it is done.
        let segment = unsafe { self.pages()?.decode(stream, slot, registers) }?;
        stream.wait_event(&self.launched)?;
        self.slots[slot].is_launched = true;
        self.reset_rows(stream, slot)?;
        self.launch_segments(stream, slot, &[segment])?;
        self.fetch_status(stream, slot)?;
        self.resumed.record(stream)?;
        self.has_resumed = true;
        Ok(())
    }

    fn pages(&mut self) -> Result<&mut PageSlots, ExecError> {
        let lacking = || ExecError::Internal("pages of a stream that has none".into());
        self.pages.as_mut().ok_or_else(lacking)
    }
}
