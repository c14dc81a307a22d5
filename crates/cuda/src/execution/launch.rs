//! One launch: how it is cut, and the words of its parameters.

use std::ops::Range;

use headrace_gpu::{DeviceBuffer, Grid, LaunchArgs, Stream, launch};
use headrace_pipeline::ExecError;

use crate::error::CudaError;
use crate::execution::{CudaExecution, LoadedProgram, PLACE_BITS};
use crate::fields::Param;
use crate::layout::SegmentLayout;
use crate::progress::{Again, Progress};
use crate::room::LaunchShape;
use crate::rows::RowBuffers;
use crate::status::STATUS_ERROR_AT;

/// Tiles that a block takes in a row, so that it seldom looks for the segment of a tile.
const RUN_TILES_MAX: u64 = 8;

/// Runs for each block, at least: what makes up for blocks that are done early.
const RUNS_PER_BLOCK_MIN: u64 = 16;

impl CudaExecution {
    /// Queues the kernel of `layout` over descriptors that lie at the device address
    /// `descriptors`; output rows and failures are counted in the [`STATUS_BYTES`](crate::status::STATUS_BYTES) at `status`.
    /// With a progress the warps begin at their first run, or `again` where they left in the launch
    /// before, which had the same descriptors.
    ///
    /// # Errors
    /// [`CudaError::Gpu`] when the driver refuses.
    ///
    /// # Safety
    /// The descriptors, made by [`Self::describe`] for this layout, the buffers that they point
    /// to, the status (zeroed but for an earlier failure), the row buffers and this execution must
    /// stay valid device memory, ordered with the stream, until that has done the kernel.
    pub(crate) unsafe fn launch(
        &mut self,
        stream: &Stream,
        layout: &SegmentLayout,
        (descriptors, range): (u64, Range<u64>),
        status: u64,
        rows: Option<&RowBuffers>,
        progress: Option<(&mut Progress, Again)>,
    ) -> Result<(), CudaError> {
        let tiles = range.end.saturating_sub(range.start);
        if tiles == 0 {
            // What an earlier launch left says nothing about this one.
            progress.into_iter().for_each(|(progress, _)| progress.forget());
            return Ok(());
        }
        let index = self.kernel_for(layout)?;
        let LoadedProgram { kernel, fixed } = &self.kernels[index];
        let Some(state) = &self.state else {
            return Err(ExecError::Internal("a kernel without a state".into()).into());
        };
        let groups = state.groups.as_ref();
        let blocks_max = u64::from(kernel.blocks_max);
        let most = (blocks_max, run_tiles(tiles, blocks_max));
        let most = progress.as_ref().map_or(most, |(progress, again)| progress.most(*again, most));
        let shape = match (groups, rows) {
            (Some(groups), _) => {
                let program = &kernel.program;
                let tile_groups = program.tuning.tile_groups(program.matches_max);
                groups.room.shape(most, tile_groups)?
            }
            (None, Some(rows)) => rows.room.shape(most)?,
            (None, None) => LaunchShape { blocks_max: most.0, run_tiles: most.1, limit: None },
        };
        let LaunchShape { blocks_max, run_tiles, limit } = shape;
        let (runs_left, runs_leave) = match progress {
            Some((progress, again)) => progress.launched(again, shape, self.renewals),
            None if limit.is_none() => (0, 0),
            None => return Err(ExecError::Internal("room that may fill unseen".into()).into()),
        };
        let mut bytes = Vec::with_capacity(kernel.program.params.len() * 8);
        for (position, param) in kernel.program.params.iter().enumerate() {
            let word = match *param {
                Param::Segments => descriptors,
                Param::Tiles => range.end,
                Param::FirstTile => range.start,
                Param::LastWanted => self.last_wanted as u64,
                Param::Error => status + STATUS_ERROR_AT as u64,
                Param::FirstPlace => (index as u64) << PLACE_BITS,
                Param::RunTiles => run_tiles,
                Param::Constant(i) => kernel.program.constants[i],
                Param::RowsLeft(step) => state.rows_left_at(kernel.program.bound.places[step]),
                Param::RowsUsed => status,
                Param::Accumulator(i) => state.accumulator(i),
                Param::GroupSlots => groups.map_or(0, |g| g.slots.ptr()),
                Param::GroupSlotMask => groups.map_or(0, |g| g.room.slots() - 1),
                Param::GroupKeys => groups.map_or(0, |g| g.keys.ptr()),
                Param::GroupsUsed => state.groups_used(),
                Param::GroupCapacity => groups.map_or(0, |g| g.room.capacity),
                Param::GroupTexts => {
                    groups.and_then(|g| g.texts.as_ref()).map_or(0, |texts| texts.ptr())
                }
                Param::GroupTextsUsed => state.group_texts_used(),
                Param::GroupTextsCapacity => groups.map_or(0, |g| g.room.texts_bytes),
                Param::GroupLimit => limit.unwrap_or(u64::from(u32::MAX)),
                Param::RowLimit => limit.unwrap_or(u64::MAX),
                Param::RunsLeft => runs_left,
                Param::RunsLeave => runs_leave,
                Param::RowsCapacity => rows.map_or(0, |r| r.room.capacity),
                Param::RowsValues(c) => rows.map_or(0, |r| r.values[c].ptr()),
                Param::RowsValidity(c) => {
                    rows.and_then(|r| r.validity[c].as_ref()).map_or(0, DeviceBuffer::ptr)
                }
                Param::Build { .. } | Param::Table(_) => {
                    fixed.get(&position).map(|(buffer, at)| buffer.ptr() + at).ok_or_else(|| {
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
        // SAFETY: the parameter struct was filled field by field as the program declares it;
        // accumulators, builds and tables are held by this execution, the rest is the caller's
        // promise.
        unsafe { launch(&kernel.function, grid, stream, &mut args) }?;
        self.stats.launches += 1;
        self.is_fetched = false;
        Ok(())
    }
}

/// Tiles that a block takes in a row. Blocks take turns, so that some stand idle in the last round:
/// of the longer half of lengths, the one with which the busiest block has fewest tiles.
fn run_tiles(tiles: u64, blocks: u64) -> u64 {
    let most = (tiles / (blocks * RUNS_PER_BLOCK_MIN)).clamp(1, RUN_TILES_MAX);
    let busiest = |length: &u64| tiles.div_ceil(length * blocks) * length;
    (most.div_ceil(2)..=most).rev().min_by_key(busiest).unwrap_or(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_leave_few_blocks_idle_in_the_last_round() {
        assert_eq!([run_tiles(1, 528), run_tiles(528 * 16 * 3, 528)], [1, 3]);
        // 8 would be 18 rounds of 8: 144 tiles for the busiest block.
        assert_eq!(run_tiles(73_242, 528), 7);
        for tiles in [10_000, 73_242, 146_484, 1_000_000] {
            let length = run_tiles(tiles, 396);
            let busiest = tiles.div_ceil(length * 396) * length;
            assert!(busiest <= (tiles / 396) * 104 / 100 + 1, "{tiles} tiles in runs of {length}");
        }
    }
}
