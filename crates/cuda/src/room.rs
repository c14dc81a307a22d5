//! How a launch is cut so that there is room on the device for what it leaves, and how much output rows have.
//!
//! Where no streamed row becomes several, there is room for all rows of a launch. Otherwise they may fill
//! their buffers in the middle of it, and the warps leave as they do when a table of groups fills
//! (`groups.rs`): above a limit nobody begins a run of tiles, and below it there is room for one run of every
//! warp. The host takes the rows, and launches again where the warps left.

use std::ops::Range;

use headrace_pipeline::ExecError;

/// Output rows of a launch at most, where rows multiply.
pub(crate) const OUTPUT_ROWS_MAX: u64 = 32 << 20;

/// Streamed rows of the first launch, if its result tells later launches which rows to drop.
const FIRST_ROWS: u64 = 8 << 10;

/// How many times as many the next launch has: of rows in no order it leaves about so many times the wanted ones.
const LATER_TIMES: u64 = 16;

/// The tiles of each launch over descriptors of so many: one launch, or, given the rows of a tile, ones that grow.
pub(crate) fn tile_ranges(tiles: u64, growing_by_rows: Option<u64>) -> Vec<Range<u64>> {
    let (mut ranges, mut first) = (Vec::new(), 0);
    let mut count = growing_by_rows.map_or(tiles, |rows| (FIRST_ROWS / rows.max(1)).max(1));
    while first < tiles {
        let end = first.saturating_add(count).min(tiles);
        ranges.push(first..end);
        (first, count) = (end, count.saturating_mul(LATER_TIMES));
    }
    ranges
}

/// How a launch is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchShape {
    /// Blocks at most.
    pub blocks_max: u64,
    /// Tiles that a block takes in a row.
    pub run_tiles: u64,
    /// Groups or output rows beyond which no warp begins a run; `None`: all that there can be have room, and
    /// their texts.
    pub limit: Option<u64>,
}

impl LaunchShape {
    /// Of so many blocks and tiles at most that the runs of all warps together have `spare` entries, if a tile
    /// has up to `tile`; but at least one of each.
    pub(crate) fn within(spare: u64, tile: u64, (blocks_max, run_tiles): (u64, u64)) -> Self {
        let blocks_max = (spare / tile).clamp(1, blocks_max);
        let run_tiles = (spare / (blocks_max * tile)).clamp(1, run_tiles);
        Self { blocks_max, run_tiles, limit: None }
    }

    /// Entries of the runs that may have begun.
    pub(crate) fn begun(&self, tile: u64) -> u64 {
        self.blocks_max.saturating_mul(self.run_tiles).saturating_mul(tile)
    }
}

/// For how many output rows a launch has room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowRoom {
    /// Rows.
    pub capacity: u64,
    /// Whether there can be more.
    pub may_fill: bool,
    /// Rows of a tile at most.
    tile_outputs: u64,
}

impl RowRoom {
    /// Room for what `rows` streamed rows become, up to `matches_max` each: for up to `capacity_max` rows if
    /// they multiply, but at least for two tiles of `tile_rows` streamed rows.
    pub fn of(rows: u64, matches_max: u64, tile_rows: u64, capacity_max: u64) -> Self {
        let all = rows.saturating_mul(matches_max);
        let tile_outputs = tile_rows.saturating_mul(matches_max);
        let capacity = match matches_max {
            0 | 1 => all,
            _ => capacity_max.max(tile_outputs.saturating_mul(2)).min(all),
        };
        Self { capacity, may_fill: capacity < all, tile_outputs }
    }

    /// Cuts a launch of up to `blocks_max` blocks and `run_tiles` tiles a run so that at most half of the room
    /// is kept for runs that have begun.
    ///
    /// # Errors
    /// [`ExecError::Internal`] if there is not room for a tile.
    pub fn shape(&self, (blocks_max, run_tiles): (u64, u64)) -> Result<LaunchShape, ExecError> {
        if !self.may_fill {
            return Ok(LaunchShape { blocks_max, run_tiles, limit: None });
        }
        let cut =
            LaunchShape::within(self.capacity / 2, self.tile_outputs, (blocks_max, run_tiles));
        match self.capacity.checked_sub(cut.begun(self.tile_outputs)) {
            Some(limit) => Ok(LaunchShape { limit: Some(limit), ..cut }),
            None => Err(ExecError::Internal(format!("{self:?} for output rows"))),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn runs_that_have_begun_have_room_above_the_limit() {
        for (rows, matches, capacity_max) in
            [(1 << 23, 100, OUTPUT_ROWS_MAX), (10_000, 7, 1), (1 << 40, 2000, OUTPUT_ROWS_MAX)]
        {
            let room = RowRoom::of(rows, matches, 8192, capacity_max);
            let shape = room.shape((132, 16)).unwrap();
            let Some(limit) = shape.limit else {
                assert!(!room.may_fill && room.capacity == rows * matches);
                continue;
            };
            assert!(room.may_fill && limit >= room.capacity / 2, "{room:?} {shape:?}");
            let begun = shape.blocks_max * shape.run_tiles * 8192 * matches;
            assert!(limit + begun <= room.capacity, "{room:?} {shape:?}");
        }
    }

    #[test]
    fn rows_that_stay_single_have_room_for_all() {
        let room = RowRoom::of(1 << 30, 1, 8192, OUTPUT_ROWS_MAX);
        assert_eq!((room.capacity, room.may_fill), (1 << 30, false));
        assert_eq!(room.shape((132, 16)).unwrap().limit, None);
    }

    #[test]
    fn growing_launches_take_every_tile_once() {
        assert!(tile_ranges(7, None).into_iter().eq(std::iter::once(0..7)));
        assert!(tile_ranges(0, Some(512)).is_empty());
        let ranges = tile_ranges(20_000, Some(512));
        assert_eq!(ranges, [0..16, 16..272, 272..4368, 4368..20_000]);
        assert_eq!(tile_ranges(3, Some(1 << 20)), [0..1, 1..3]);
    }
}
