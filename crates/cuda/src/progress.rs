//! Where the warps of a launch stand that may leave before its end: see `groups.rs` and `room.rs`.

use headrace_gpu::DeviceBuffer;

use crate::room::LaunchShape;

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
    /// How the launch was cut, and the groups or output rows beyond which warps left.
    shape: Option<LaunchShape>,
    /// How often the table had been renewed when they were launched.
    renewals: u64,
}

impl Progress {
    /// Nothing launched yet; each warp has a word of `runs`.
    pub(crate) fn new(runs: DeviceBuffer) -> Self {
        Self { runs, shape: None, renewals: 0 }
    }

    /// Most blocks, and tiles a run: those of the launch that goes on, whose warps count runs by them.
    pub(crate) fn most(&self, again: Again, most: (u64, u64)) -> (u64, u64) {
        match (again, self.shape) {
            (Again::Resumed, Some(shape)) => (shape.blocks_max, shape.run_tiles),
            _ => most,
        }
    }

    /// Notes a launch; where its warps begin, and where they write down the run at which they leave.
    pub(crate) fn launched(
        &mut self,
        again: Again,
        shape: LaunchShape,
        renewals: u64,
    ) -> (u64, u64) {
        (self.shape, self.renewals) = (Some(shape), renewals);
        let runs = self.runs.ptr();
        match again {
            Again::First => (0, runs),
            Again::Resumed => (runs, runs),
        }
    }

    /// Nothing was launched, and so nobody left.
    pub(crate) fn forget(&mut self) {
        self.shape = None;
    }

    /// Whether the launch left, and so perhaps before its end, if there were so many groups or output rows.
    pub(crate) fn has_left(&self, used: u64) -> bool {
        self.shape.and_then(|shape| shape.limit).is_some_and(|limit| used > limit)
    }

    /// Whether the table was not renewed since the launch, if it was so many times in all.
    pub(crate) fn is_since(&self, renewals: u64) -> bool {
        self.renewals == renewals
    }
}
