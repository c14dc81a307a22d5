//! Counters of an execution.

/// What an execution did on the device.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CudaStats {
    /// Kernels launched.
    pub launches: u64,
    /// Milliseconds of kernels over resident columns, by events; a race tells of its own.
    pub kernel_ms: f64,
    /// Hashed groups that went to the host: those of a table that filled perhaps more than once.
    pub groups_brought: u64,
    /// Bytes copied from the host for segments (builds, tables and descriptors not counted).
    pub h2d_bytes: u64,
    /// Bytes of segments found on the device.
    pub resident_bytes: u64,
    /// Bytes of segments left on the device for later queries.
    pub admitted_bytes: u64,
}
