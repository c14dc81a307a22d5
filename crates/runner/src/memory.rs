//! How the memory of a runner is divided.

/// How a session's memory is divided.
///
/// | share | for |
/// |---|---|
/// | 1/4 | the host chunk cache |
/// | 1/8 | slots of running races |
/// | 1/8 | builds kept for later queries |
/// | 1/4 | groups, rows and new builds of running pipelines |
/// | 1/4 | the planner's own operators (sorts, joins) |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemorySplit {
    /// The host chunk cache.
    pub cache_bytes: u64,
    /// Slots of a race.
    pub slots_bytes: u64,
    /// Builds kept.
    pub builds_bytes: u64,
    /// State of running pipelines.
    pub groups_bytes: u64,
    /// The planner's own operators; `None`: not limited.
    pub planner_bytes: Option<u64>,
    /// Whether mapped pages are given back after use, so that the process stays small.
    pub release_mapped: bool,
}

impl MemorySplit {
    /// Divides a limit.
    pub fn of(limit_bytes: Option<u64>) -> Self {
        let total = limit_bytes.unwrap_or_else(|| available_bytes() / 2);
        Self {
            cache_bytes: total / 4,
            slots_bytes: total / 8,
            builds_bytes: total / 8,
            groups_bytes: total / 4,
            planner_bytes: limit_bytes.map(|limit| limit / 4),
            release_mapped: limit_bytes.is_some(),
        }
    }
}

/// Memory that can be had without swapping; 4 GiB if the system does not tell.
fn available_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    text.lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))
        .and_then(|rest| rest.trim().trim_end_matches("kB").trim().parse::<u64>().ok())
        .map_or(4 << 30, |kib| kib << 10)
}
