//! Launches whose room may fill before they are at their end: that of hashed groups (see `groups.rs`), or of
//! output rows (`room.rs`).

use std::sync::Arc;

use headrace_gpu::{DeviceBuffer, Stream};
use headrace_pipeline::ExecError;
use headrace_pipeline::group_states::GroupStates;

use super::{CudaExecution, STATUS_BYTES};
use crate::decode::chunks;
use crate::hand_over::hand_over;
use crate::layout::SegmentLayout;
use crate::rows::{RowOutput, RowTransfer};

/// Where the host puts the number of hashed groups (`u32`) beside a status that came back.
const STATUS_GROUPS_AT: usize = 12;

/// Whether a launch takes up its tiles for the first time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Again {
    /// It does.
    First,
    /// It goes on where the warps left.
    Resumed,
}

/// Where the warps of a launch stand among their runs, while their room may fill.
pub(crate) struct Progress {
    runs: DeviceBuffer,
    /// Groups or output rows beyond which warps left.
    limit: Option<u64>,
    /// How often the table had begun anew when they were launched.
    flushes: u64,
}

impl Progress {
    /// Notes a launch; where its warps begin, and where they write down the run at which they leave.
    pub(super) fn launched(
        &mut self,
        again: Again,
        limit: Option<u64>,
        flushes: u64,
    ) -> (u64, u64) {
        (self.limit, self.flushes) = (limit, flushes);
        let runs = self.runs.ptr();
        match again {
            Again::First => (0, runs),
            Again::Resumed => (runs, runs),
        }
    }

    /// Nothing was launched, and so nobody left.
    pub(super) fn forget(&mut self) {
        self.limit = None;
    }

    /// Whether the launch left, and so perhaps before its end, if there were so many groups or output rows.
    pub(crate) fn has_left(&self, used: u64) -> bool {
        self.limit.is_some_and(|limit| used > limit)
    }
}

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
    ) -> Result<Option<Progress>, ExecError> {
        if !self.groups_may_leave() && !rows.is_some_and(|rows| rows.buffers.room.may_fill) {
            return Ok(None);
        }
        // Of whatever kernel: chunks that nobody knows yet may want another.
        let info = self.device.device().info();
        let warps = info.sm_count * info.threads_per_sm / 32;
        let runs = self.device.alloc(warps as usize * 4)?;
        Ok(Some(Progress { runs, limit: None, flushes: 0 }))
    }

    /// Launches, and hands the groups over and launches again as long as their table fills.
    ///
    /// # Safety
    /// As [`Self::launch`].
    pub(super) unsafe fn launch_to_the_end(
        &mut self,
        layout: &SegmentLayout,
        at: (u64, u64),
        status: u64,
        progress: &mut Progress,
        output: &RowOutput<'_>,
    ) -> Result<(), ExecError> {
        let stream = Arc::clone(&self.stream);
        let mut again = Again::First;
        loop {
            self.timing.0.record(&stream)?;
            // SAFETY: the caller's promise.
            unsafe { self.launch(&stream, layout, at, status, None, Some((progress, again))) }?;
            self.timing.1.record(&stream)?;
            self.take_status()?;
            self.add_kernel_ms()?;
            let state = self.state.as_ref();
            let used = state.map_or(Ok(0), |state| state.take_groups_used(&stream))?;
            if !progress.has_left(used.into()) {
                return Ok(());
            }
            self.flush(&stream, output)?;
            again = Again::Resumed;
        }
    }

    /// Hands all groups over, and begins with none. Waits for `stream`, in which the kernels so far
    /// come before, and all later ones must come after.
    pub(crate) fn flush(
        &mut self,
        stream: &Stream,
        output: &RowOutput<'_>,
    ) -> Result<(), ExecError> {
        let Some(state) = &self.state else { return Ok(()) };
        output.groups().into_iter().for_each(GroupStates::count_flush);
        hand_over(&self.device, stream, state, output, false)?;
        // SAFETY: the state lives as long as the execution; whoever launches waits for it, as
        // promised.
        unsafe { state.clear(stream) }?;
        self.flushes += 1;
        Ok(())
    }

    /// How many groups there were when a status came back.
    pub(crate) fn groups_of(status: &[u8; STATUS_BYTES]) -> u64 {
        let used = chunks::<4>(&status[STATUS_GROUPS_AT..]).next().map_or(0, u32::from_le_bytes);
        used.into()
    }

    /// Whether the table that a launch left above its limit is still as it was.
    pub(crate) fn is_full_since(&self, progress: &Progress) -> bool {
        progress.flushes == self.flushes
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
    ) -> Result<(), ExecError> {
        let Some(state) = &self.state else { return Ok(()) };
        let to = &mut status[STATUS_GROUPS_AT..STATUS_GROUPS_AT + 4];
        // SAFETY: the caller's promise.
        unsafe { state.queue_groups_used(stream, to) }
    }

    /// Waits for all launches and hands hashed groups over to `output`, if these are the groups.
    /// `is_only`: no other device has any.
    ///
    /// # Errors
    /// Totals that overflow, memory, the spill store, the device, [`ExecError::Cancelled`].
    pub fn hand_over(&mut self, output: &RowOutput<'_>, is_only: bool) -> Result<(), ExecError> {
        // No segment, no kernel, no group.
        let (Some(state), Some(_)) = (&self.state, output.groups()) else { return Ok(()) };
        self.stream.synchronize()?;
        hand_over(&self.device, &self.stream, state, output, is_only)
    }
}
