//! Where the warps of a launch stand that may leave before its end: see `groups.rs` and `room.rs`.

use headrace_gpu::DeviceBuffer;

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
    /// Nothing launched yet; each warp has a word of `runs`.
    pub(crate) fn new(runs: DeviceBuffer) -> Self {
        Self { runs, limit: None, flushes: 0 }
    }

    /// Notes a launch; where its warps begin, and where they write down the run at which they leave.
    pub(crate) fn launched(
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
    pub(crate) fn forget(&mut self) {
        self.limit = None;
    }

    /// Whether the launch left, and so perhaps before its end, if there were so many groups or output rows.
    pub(crate) fn has_left(&self, used: u64) -> bool {
        self.limit.is_some_and(|limit| used > limit)
    }

    /// Whether the table has not begun anew since the launch, if it has so many times in all.
    pub(crate) fn is_since(&self, flushes: u64) -> bool {
        self.flushes == flushes
    }
}
