//! What every kernel is compiled with.

/// Headers that generated sources include, by name.
pub const HEADERS: [(&str, &str); 16] = [
    ("headrace/types.cuh", include_str!("../kernels/types.cuh")),
    ("headrace/load.cuh", include_str!("../kernels/load.cuh")),
    ("headrace/text.cuh", include_str!("../kernels/text.cuh")),
    ("headrace/search.cuh", include_str!("../kernels/search.cuh")),
    ("headrace/distance.cuh", include_str!("../kernels/distance.cuh")),
    ("headrace/arithmetic.cuh", include_str!("../kernels/arithmetic.cuh")),
    ("headrace/calendar.cuh", include_str!("../kernels/calendar.cuh")),
    ("headrace/probe.cuh", include_str!("../kernels/probe.cuh")),
    ("headrace/pairs.cuh", include_str!("../kernels/pairs.cuh")),
    ("headrace/keys.cuh", include_str!("../kernels/keys.cuh")),
    ("headrace/aggregate.cuh", include_str!("../kernels/aggregate.cuh")),
    ("headrace/groups.cuh", include_str!("../kernels/groups.cuh")),
    ("headrace/queue.cuh", include_str!("../kernels/queue.cuh")),
    ("headrace/rows.cuh", include_str!("../kernels/rows.cuh")),
    ("headrace/user.cuh", include_str!("../kernels/user.cuh")),
    ("headrace/pipeline.cuh", include_str!("../kernels/pipeline.cuh")),
];

/// Options of every compilation: products and sums are not fused, so that floats are those of
/// the CPU processor.
pub const COMPILE_OPTIONS: [&str; 1] = ["--fmad=false"];

/// The same for a kernel that is wanted at once: several times sooner there, and several times slower, as its arrays lie
/// in memory. Since NVRTC 13.
pub const HASTY_OPTIONS: [&str; 2] = ["--fmad=false", "--Ofast-compile=mid"];

/// The first NVRTC that knows [`HASTY_OPTIONS`].
pub(crate) const HASTY_SINCE: (u32, u32) = (13, 0);
