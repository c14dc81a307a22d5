//! The machine's description in benchmark records.

use headrace_io::system::{SysRoot, cores, memory_bytes};
use serde::Serialize;

/// The machine.
#[derive(Debug, Serialize)]
pub struct Machine {
    /// Processor model.
    pub cpu: String,
    /// Logical cores that this process may use.
    pub cores: usize,
    /// Physical memory in bytes.
    pub memory_bytes: u64,
    /// Kernel release.
    pub kernel: String,
    /// Names of usable GPUs.
    pub gpus: Vec<String>,
}

impl Machine {
    /// Reads it from the kernel and the CUDA driver; unknown members are empty.
    pub fn read() -> Self {
        Self {
            cpu: value_of("/proc/cpuinfo", "model name").unwrap_or_default(),
            cores: cores(),
            memory_bytes: memory_bytes(&SysRoot::host()).unwrap_or_default(),
            kernel: std::fs::read_to_string("/proc/sys/kernel/osrelease")
                .map(|release| release.trim().to_string())
                .unwrap_or_default(),
            gpus: headrace_gpu::probe().devices.into_iter().map(|device| device.name).collect(),
        }
    }
}

fn value_of(file: &str, key: &str) -> Option<String> {
    let text = std::fs::read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.starts_with(key))?;
    line.split_once(':').map(|(_, value)| value.trim().to_string())
}
