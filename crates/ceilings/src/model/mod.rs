//! How long a scan should take on a machine, and which stage is the limit.
//!
//! # The formulae
//!
//! Bytes. With `S` stored table bytes of the needed columns (uncompressed), `p` the share that is
//! pruned and `c` the compression ratio,
//!
//! ```text
//! logical  B = table_bytes x column_share x (1 - p)          what kernels see
//! wire     W = B / c                                         what storage holds
//! W_s, W_p, W_r, W_d = W x shares of storage, page cache, registered mapping, device memory
//! ```
//!
//! Time of each stage alone, all devices of a kind together:
//!
//! ```text
//! storage read        W_s / R        R = sum of the devices, or devices x the slowest (Placement)
//! shared uplink       W_s / U        only where storage shares one (Topology::Shared)
//! page-cache copy     W_p / P
//! host decode         (W_s+W_p) x c / D            only if the CPU decompresses
//! host memory         crossings / M                in by DMA 1, a copy 2, out by DMA 1
//! copy to device      W_l / sum(L)  + n x copy overhead / GPUs      W_l: what crosses the link
//! kernel              (W_l + B x touched x passes) / sum(H)  + launches x launch overhead / GPUs
//! cpu                 B / C                        target is the host
//! copy to host, write results / rate
//! ```
//!
//! `touched` is the share of bytes that a kernel reads when it loads the columns of the first
//! filter whole and, of the others, only the 64-byte sectors in which one of 16 rows survives:
//! `f + (1 - f) x (1 - (1 - s)^16)` with `f` the share of the first columns and `s` the selectivity.
//!
//! The race. A chunk passes the stages of its path one after the other while other chunks are in
//! the other stages. With `n` chunks and `s_i = T_i x p_i / n` the time of one chunk in stage `i`
//! (`p_i` devices serve different chunks at once),
//!
//! ```text
//! ring        n x (sum s_i + latency) / slots      every chunk holds a slot for its whole path
//! path        max_i(T_i - s_i) + sum s_i + latency the slowest stage, and one chunk through all
//! total       start-up + max(path, ring, caps)     caps: shared uplink, host memory
//! ```
//!
//! The bottleneck is the stage with the largest `T_i`, the ring included (then more slots help).
//!
//! # Where they fail
//!
//! - Stages are assumed to be independent except for the stated caps. In reality a page-cache copy
//!   and DMA share memory controllers: links ran at 52 instead of 55 GB/s beside such copies. State
//!   `host_memory_gb_per_s`, or rates that were measured together.
//! - Survivors are assumed to be evenly distributed. If they are clustered, whole sectors drop out
//!   and kernels are faster; kernels with many registers or atomics are slower than memory.
//! - Several GPUs are assumed to share the work in proportion to their speed; a late last chunk, at
//!   most one chunk's time, is not counted. SSDs are assumed to have a constant speed (no thermal
//!   throttling, no garbage collection).
//! - The answer is assumed to leave chunk by chunk. A sort that must read everything before it
//!   writes is two scans in sequence.
//! - `T_i` is the mean rate over a long race: below some ten chunks, latencies dominate.

mod known;
mod machine;
mod parse;
mod path;
mod predict;
mod scan;
mod stage;
mod stages;
mod text;

pub use known::{
    FigureSource, KnownGpu, KnownNic, KnownSsd, PcieGeneration, known_gpus, known_nics, known_ssds,
    pcie_gb_per_s,
};
pub use machine::{Gpu, Machine, Placement, StorageDevice, Topology};
pub use parse::{
    ParseError, parse_bytes, parse_gb_per_s, parse_gpus, parse_link_gb_per_s, parse_storage,
};
pub use predict::{Prediction, predict};
pub use scan::{Decode, Scan, Target};
pub use stage::{ModelError, ModelStage, StagePrediction};
pub use text::beside_measured;

#[cfg(test)]
mod tests;
