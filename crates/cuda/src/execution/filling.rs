//! Launches whose room may fill before they are at their end: that of hashed groups (see `groups.rs`), or of
//! output rows (`room.rs`).

use std::ops::Range;
use std::sync::Arc;

use headrace_gpu::Stream;
use headrace_pipeline::group_states::GroupStates;

use super::CudaExecution;
use crate::device_state::DeviceState;
use crate::error::CudaError;
use crate::first_groups::first_groups;
use crate::hand_over::hand_over;
use crate::layout::SegmentLayout;
use crate::progress::{Again, Progress};
use crate::rows::{RowOutput, RowTransfer};
use crate::status::STATUS_GROUPS_AT;

impl CudaExecution {
    /// Whether the table of groups, or the room of their texts, may fill before the end.
    pub(super) fn groups_may_leave(&self) -> bool {
        let groups = self.state.as_ref().and_then(|state| state.groups.as_ref());
        groups.is_some_and(|groups| groups.room.may_leave())
    }

    /// Where the warps of a launch to these rows write down how far they came; `None` if they always get to
    /// the end.
    pub(crate) fn progress(
        &self,
        rows: Option<&RowTransfer>,
    ) -> Result<Option<Progress>, CudaError> {
        if !self.groups_may_leave() && !rows.is_some_and(|rows| rows.buffers.room.may_fill) {
            return Ok(None);
        }
        // Of whatever kernel: chunks that nobody knows yet may want another.
        let info = self.device.device().info();
        let warps = info.sm_count * info.threads_per_sm / 32;
        let runs = self.device.alloc(warps as usize * 4)?;
        Ok(Some(Progress::new(runs)))
    }

    /// Launches, and hands the groups over and launches again as long as their table fills.
    ///
    /// # Safety
    /// As [`Self::launch`].
    pub(super) unsafe fn launch_to_the_end(
        &mut self,
        layout: &SegmentLayout,
        at: (u64, Range<u64>),
        progress: &mut Progress,
        output: &RowOutput<'_>,
    ) -> Result<(), CudaError> {
        let stream = Arc::clone(&self.stream);
        let mut again = Again::First;
        loop {
            // That of the table as it is by now.
            let status = self.state.as_ref().map_or(0, DeviceState::status);
            self.timing.0.record(&stream)?;
            // SAFETY: the caller's promise.
            unsafe {
                self.launch(&stream, layout, at.clone(), status, None, Some((progress, again)))
            }?;
            self.timing.1.record(&stream)?;
            self.take_status()?;
            self.add_kernel_ms()?;
            let state = self.state.as_ref();
            let used = state.map_or(Ok(0), |state| state.take_groups_used(&stream))?;
            if !progress.has_left(used.into()) {
                return Ok(());
            }
            self.renew(&stream, output)?;
            again = Again::Resumed;
        }
    }

    /// Makes room in a table that is full: makes it larger, or hands all groups over and begins with none. Waits for `stream`,
    /// in which the kernels so far come before, and all later ones must come after.
    pub(crate) fn renew(
        &mut self,
        stream: &Stream,
        output: &RowOutput<'_>,
    ) -> Result<(), CudaError> {
        self.renewals += 1;
        if !self.has_flushed && self.grow(stream)? {
            return Ok(());
        }
        let Some(state) = &self.state else { return Ok(()) };
        output.groups().into_iter().for_each(GroupStates::count_flush);
        self.stats.groups_brought += hand_over(&self.device, stream, state, output, false)?;
        // SAFETY: the state lives as long as the execution; whoever launches waits for it, as
        // promised.
        unsafe { state.clear_groups(stream) }?;
        self.has_flushed = true;
        Ok(())
    }

    /// Whether the table that a launch left above its limit is still as it was.
    pub(crate) fn is_full_since(&self, progress: &Progress) -> bool {
        progress.is_since(self.renewals)
    }

    /// Queues the copy of the number of hashed groups beside a status.
    ///
    /// # Safety
    /// `status` must be pinned and untouched until the stream has done it, which the execution must
    /// outlive.
    pub(crate) unsafe fn queue_groups_used(
        &self,
        stream: &Stream,
        status: &mut [u8],
    ) -> Result<(), CudaError> {
        let Some(state) = &self.state else { return Ok(()) };
        let to = &mut status[STATUS_GROUPS_AT..STATUS_GROUPS_AT + 4];
        // SAFETY: the caller's promise.
        unsafe { state.queue_groups_used(stream, to) }
    }

    /// Waits for all launches and hands hashed groups over to `output`, if these are the groups: the first of them, where no
    /// others are wanted. `is_only`: no other device has any.
    ///
    /// # Errors
    /// Totals that overflow, memory, a temporary file, the device, [`ExecError::Cancelled`](headrace_pipeline::ExecError::Cancelled).
    pub fn hand_over(&mut self, output: &RowOutput<'_>, is_only: bool) -> Result<(), CudaError> {
        // No segment, no kernel, no group.
        let (Some(state), Some(_)) = (&self.state, output.groups()) else { return Ok(()) };
        self.stream.synchronize()?;
        let chosen = match self.kernels.first() {
            Some(loaded) if is_only && !self.has_flushed => {
                first_groups(&self.device, &self.stream, &loaded.kernel.program, state)?
            }
            _ => None,
        };
        let state = chosen.as_ref().unwrap_or(state);
        self.stats.groups_brought += hand_over(&self.device, &self.stream, state, output, is_only)?;
        Ok(())
    }
}
