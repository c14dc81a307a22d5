//! How the memory of a runner is divided.
//!
//! A stage that reads the rows of another plan has its own memory account, because the stage below it may hold the
//! whole budget. The second grouping of DISTINCT has one for the same reason.

use headrace_io::system::{SysRoot, available_memory_bytes};

/// Bounds of the parts of one memory limit.
///
/// All parts together never exceed the limit: they are reserved from one budget. A part's own bound
/// keeps it from crowding out the others; what caches hold gives way to running queries.
///
/// | bound | for |
/// |---|---|
/// | 1/4 | the host chunk cache |
/// | 1/8 | slots of a race |
/// | 1/8 | builds kept for later queries |
/// | 1/4 | groups, rows and new builds of running pipelines |
/// | 1/4 | the planner's own operators (joins, windows) |
/// | 1/2 | an out-of-core operator: a sort of rows |
///
/// Pages of files in memory (tmpfs) that are pinned for GPUs to copy from are not memory of ours;
/// they are pinned up to as many bytes as all of this, and not at all under a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemorySplit {
    /// All of it.
    pub limit_bytes: u64,
    /// The host chunk cache.
    pub cache_bytes: u64,
    /// Slots of a race, on the CPU or pinned for GPUs.
    pub slots_bytes: u64,
    /// Pages of files in memory that may be pinned for GPUs; `None`: none.
    pub registered_bytes: Option<u64>,
    /// Builds kept.
    pub builds_bytes: u64,
    /// State of running pipelines.
    pub groups_bytes: u64,
    /// An out-of-core operator.
    pub operator_bytes: u64,
    /// The planner's own operators; `None`: not limited.
    pub planner_bytes: Option<u64>,
    /// Whether mapped pages are given back after use, so that the process stays small.
    pub release_mapped: bool,
}

impl MemorySplit {
    /// Divides a limit; without one, half of what can be had.
    pub fn of(limit_bytes: Option<u64>) -> Self {
        /// Where the system does not tell.
        const AVAILABLE_BYTES: u64 = 4 << 30;
        let available = || available_memory_bytes(&SysRoot::host()).unwrap_or(AVAILABLE_BYTES);
        let total = limit_bytes.unwrap_or_else(|| available() / 2);
        Self {
            limit_bytes: total,
            cache_bytes: total / 4,
            slots_bytes: total / 8,
            registered_bytes: limit_bytes.is_none().then_some(total),
            builds_bytes: total / 8,
            groups_bytes: total / 4,
            operator_bytes: total / 2,
            planner_bytes: limit_bytes.map(|limit| limit / 4),
            release_mapped: limit_bytes.is_some(),
        }
    }
}
