//! The errors of the GPU side, by cause.

use std::sync::Arc;

/// The result of every fallible call of this crate.
pub type Result<T, E = GpuError> = std::result::Result<T, E>;

/// A fault of the CUDA driver, NVRTC, a memory tier or the caller.
///
/// Cheap to clone, so that one device fault can be handed to every stage that waits
/// for the device.
#[derive(Debug, Clone, thiserror::Error)]
pub enum GpuError {
    /// There is no usable CUDA device or driver on this machine.
    #[error("no usable GPU: {reason}\nhint: {remedy}")]
    NotPresent {
        /// What is absent, and the evidence.
        reason: String,
        /// What to do about it.
        remedy: String,
    },

    /// A memory tier is exhausted: its budget or the memory behind it.
    #[error(
        "out of {tier}: asked for {asked_bytes} bytes with {in_use_bytes} in use of a budget of \
         {budget_bytes} bytes ({cause})\nhint: {remedy}"
    )]
    OutOfMemory {
        /// The tier, for instance `device memory` or `pinned host memory`.
        tier: &'static str,
        /// Bytes asked for, after rounding to the allocator's granule.
        asked_bytes: u64,
        /// Bytes of this tier in use by live buffers when the request was refused.
        in_use_bytes: u64,
        /// The budget of the tier; the memory's size where there is no budget.
        budget_bytes: u64,
        /// Which limit was hit.
        cause: String,
        /// What to do about it.
        remedy: String,
    },

    /// A kernel did not compile.
    #[error("CUDA source `{name}` does not compile for {arch}:\n{log}")]
    Compile {
        /// The name given to the source.
        name: String,
        /// The architecture compiled for, for instance `sm_90`.
        arch: String,
        /// NVRTC's log with the source lines it speaks of.
        log: String,
    },

    /// NVRTC was not found or could not be opened.
    #[error("NVRTC, the CUDA run-time compiler, could not be loaded: {reason}\nhint: {remedy}")]
    NvrtcNotPresent {
        /// What was tried and how it failed.
        reason: String,
        /// What to do about it.
        remedy: String,
    },

    /// An NVRTC call failed for another reason than an error in the source.
    #[error("NVRTC call {call} failed for `{place}`: {text} (code {code})")]
    Nvrtc {
        /// The function that failed.
        call: &'static str,
        /// The `nvrtcResult` value.
        code: i32,
        /// NVRTC's text for the code, with its log where there is one.
        text: String,
        /// The source or option concerned.
        place: String,
    },

    /// A CUDA driver call failed.
    #[error("CUDA call {call} failed at {place}: {name} (code {code}): {text}{}", hint(.remedy))]
    Driver {
        /// The driver function that failed. An asynchronous fault of earlier work may
        /// surface here.
        call: &'static str,
        /// The `CUresult` value.
        code: u32,
        /// The code's symbolic name, for instance `CUDA_ERROR_ILLEGAL_ADDRESS`.
        name: String,
        /// The driver's text for the code.
        text: String,
        /// What was being done: the device, kernel or copy concerned.
        place: String,
        /// The remedy, if one is known.
        remedy: Option<&'static str>,
    },

    /// The caller's request is impossible: a range outside a buffer, a block size above the
    /// kernel's limit, an unaligned address.
    #[error("invalid argument to {operation}: {reason}")]
    InvalidArgument {
        /// The operation refused.
        operation: &'static str,
        /// Why, with the numbers concerned.
        reason: String,
    },

    /// A call of cuFile failed.
    #[error(transparent)]
    CuFile(#[from] crate::cufile::CuFileError),

    /// The operating system refused host memory or a property of it.
    #[error("{call} of {bytes} bytes of host memory failed: {source}\nhint: {remedy}")]
    HostMemory {
        /// The system call that failed.
        call: &'static str,
        /// Bytes concerned.
        bytes: usize,
        /// The system's error.
        source: Arc<std::io::Error>,
        /// What to do about it.
        remedy: &'static str,
    },
}

fn hint(remedy: &Option<&'static str>) -> String {
    remedy.map_or_else(String::new, |remedy| format!("\nhint: {remedy}"))
}

impl GpuError {
    /// Whether a memory tier was exhausted: a caller may release memory and retry.
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::OutOfMemory { .. })
    }

    /// Whether everything that this process has on the GPU is lost with it.
    pub fn loses_context(&self) -> bool {
        matches!(self, Self::Driver { code: 700 | 702 | 710 | 714..=719, .. })
    }

    pub(crate) fn invalid(operation: &'static str, reason: impl Into<String>) -> Self {
        Self::InvalidArgument { operation, reason: reason.into() }
    }
}

/// The known remedy for a driver error code.
pub(crate) fn remedy_of(code: u32) -> Option<&'static str> {
    Some(match code {
        2 => {
            "lower the device memory budget or end other processes on this GPU (nvidia-smi lists them)"
        }
        3 | 35 | 803 | 804 => {
            "the CUDA driver and its kernel module disagree or are too old: update the NVIDIA \
             driver (580 or later for what CUDA 13 compiled) and reboot or reload its modules"
        }
        34 => {
            "the toolkit's stub libcuda was found instead of the driver: remove its `stubs` \
             folder from LD_LIBRARY_PATH"
        }
        46 => "the GPU is unavailable (exclusive mode or held by another process): see nvidia-smi",
        100 => {
            "no GPU is visible: check nvidia-smi and CUDA_VISIBLE_DEVICES; in a container, \
             start it with GPU access (for Docker: --gpus all)"
        }
        101 => {
            "the ordinal is not among the visible devices: see nvidia-smi -L and CUDA_VISIBLE_DEVICES"
        }
        200 | 209 | 218 | 222 | 223 => {
            "the compiled kernel does not fit this GPU or driver: compile for the device's own \
             architecture, with an NVRTC no newer than the driver"
        }
        304 | 999 => {
            "the driver could not set itself up: check that /dev/nvidia* exist and that \
             nvidia-uvm is loaded (nvidia-modprobe -u), and see dmesg for Xid messages"
        }
        700 | 716 | 717 | 718 | 719 => {
            "a kernel faulted; the context is lost: run the same command under \
             compute-sanitizer to find the access"
        }
        701 => {
            "the launch asks for more registers or shared memory than the GPU has: use a smaller block"
        }
        712 => "this memory is already pinned: register it once and share the registration",
        802 => "the GPUs' fabric is not ready: start nvidia-fabricmanager",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn driver_error_shows_cause_place_and_remedy() {
        let error = GpuError::Driver {
            call: "cuCtxSynchronize",
            code: 700,
            name: "CUDA_ERROR_ILLEGAL_ADDRESS".into(),
            text: "an illegal memory access was encountered".into(),
            place: "device 0".into(),
            remedy: remedy_of(700),
        };
        let shown = error.to_string();
        assert!(shown.contains("cuCtxSynchronize failed at device 0"), "{shown}");
        assert!(shown.contains("\nhint: a kernel faulted"), "{shown}");
        assert!(!error.is_out_of_memory());
    }

    #[test]
    fn driver_error_without_remedy_has_no_hint() {
        let error = GpuError::Driver {
            call: "cuEventQuery",
            code: 400,
            name: "CUDA_ERROR_INVALID_HANDLE".into(),
            text: "invalid resource handle".into(),
            place: "device 0".into(),
            remedy: remedy_of(400),
        };
        assert!(!error.to_string().contains("hint"));
    }
}
