//! Chunks of heap pages: looked at first, and launched when it is known which pages are taken.

use std::sync::Arc;

use headrace_flow::DeviceSlice;
use headrace_gpu::Stream;
use headrace_pipeline::ExecError;

use super::{Brought, StreamProgram};
use crate::error::CudaError;
use crate::layout::ColumnForm;
use crate::page_slots::{PageRun, PageSlots};
use crate::pages::{PageOwner, bitmap_bytes};
use crate::program::{DeviceColumn, DeviceSegment};
use crate::resident::PagesKey;
use crate::stream_plan::{PlannedChunk, PlannedPages};

impl StreamProgram<'_> {
    /// The same for a stream of pages that have an owner.
    ///
    /// # Errors
    /// As [`PageSlots::new`].
    pub(crate) fn with_pages(
        mut self,
        owner: Option<&Arc<dyn PageOwner>>,
    ) -> Result<Self, CudaError> {
        if let (Some(decoding), Some(owner)) = (self.plan.pages.clone(), owner) {
            let device = self.execution.device();
            let shape = (self.slots.len(), self.bounds.slot_bytes, self.bounds.segments);
            self.pages = Some(PageSlots::new(device, decoding, Arc::clone(owner), shape)?);
        }
        Ok(self)
    }

    /// Says which pages of a chunk are not looked at.
    pub(super) fn tell_kept(&mut self, chunk: &PlannedChunk) -> Result<(), CudaError> {
        for segment in &chunk.segments {
            if let Some(pages) = &segment.pages {
                self.pages()?.kept(&pages.segment, segment.rows);
            }
        }
        Ok(())
    }

    /// Has the pages of a chunk looked at.
    pub(super) fn check_pages(
        &mut self,
        stream: &Stream,
        slot: usize,
        chunk: &PlannedChunk,
        buffers: &[DeviceSlice],
    ) -> Result<(), CudaError> {
        let pages = chunk.segments.iter().filter_map(|segment| segment.pages.as_ref());
        let run = |pages: &PlannedPages| {
            let (segment, key) = (pages.segment.clone(), pages.key.clone());
            Some(PageRun { segment, bytes: buffers[pages.read?], key })
        };
        let runs = pages.filter_map(run).collect();
        self.slots[slot].is_checking = true;
        // SAFETY: the race keeps the slot's buffers as they are until its chunk is retired, which is
        // not before all that was queued for it is done.
        unsafe { self.pages()?.check(stream, slot, runs) }
    }

    /// Launches a chunk whose pages were looked at, after all launches so far and before all later
    /// ones, as [`resume_groups`](Self::resume_groups) does.
    pub(super) fn launch_checked(&mut self, stream: &Stream, slot: usize) -> Result<(), CudaError> {
        let registers = self.execution.bound().source_registers;
        // SAFETY: the chunk is not retired: its buffers are as they were, and the work that was
        // queued for it is done.
        let decoded = unsafe { self.pages()?.decode(stream, slot, registers) }?;
        stream.wait_event(&self.launched)?;
        self.slots[slot].is_launched = true;
        self.reset_rows(stream, slot)?;
        let (segments, keys): (Vec<_>, Vec<_>) =
            decoded.into_iter().map(|pages| (pages.segment, pages.key)).unzip();
        self.launch_segments(stream, slot, &segments)?;
        for (segment, key) in segments.iter().zip(keys) {
            if let Some(key) = key {
                self.keep_pages(stream, slot, segment, &key)?;
            }
        }
        self.fetch_status(stream, slot)?;
        self.resumed.record(stream)?;
        self.has_resumed = true;
        Ok(())
    }

    /// Copies the columns of a segment's pages to where they may stay; of no columns what stands for
    /// their rows.
    fn keep_pages(
        &mut self,
        stream: &Stream,
        slot: usize,
        segment: &DeviceSegment,
        key: &PagesKey,
    ) -> Result<(), CudaError> {
        let slice = |address, bytes| DeviceSlice { address, bytes: bytes as usize };
        let columns: Vec<_> = self.pages()?.columns().to_vec();
        if columns.is_empty() {
            let rows = (key.key, (ColumnForm::Plain, 0), segment.rows);
            let nothing = Brought { values: slice(0, 0), texts: None, validity: None };
            return self.keep_column(stream, slot, nothing, rows, None);
        }
        // Texts lie in their pages, which do not stay.
        for column in columns.into_iter().filter(|column| column.form != ColumnForm::Text) {
            let key = key.of(column.register);
            if self.execution.device().resident().has(&key) {
                continue;
            }
            let DeviceColumn { values, validity, .. } = segment.columns[column.register];
            let validity = validity.map(|at| slice(at, bitmap_bytes(segment.rows)));
            let values = slice(values, column.values_bytes(segment.rows));
            let from = Brought { values, texts: None, validity };
            let narrowing = self.narrowing(slot, column.register, column.form, &key);
            let lie = (column.form, 0);
            self.keep_column(stream, slot, from, (key, lie, segment.rows), narrowing)?;
        }
        Ok(())
    }

    fn pages(&mut self) -> Result<&mut PageSlots, CudaError> {
        let lacking = || ExecError::Internal("pages of a stream that has none".into());
        Ok(self.pages.as_mut().ok_or_else(lacking)?)
    }
}
