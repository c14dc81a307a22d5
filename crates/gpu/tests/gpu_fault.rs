//! A kernel that faults. It costs the process its CUDA context, so it is a test binary of
//! its own.
#![allow(clippy::unwrap_used)]

mod support;

use headrace_gpu::{GpuError, LaunchArgs, launch};
use support::{Bench, grid};

#[test]
#[ignore = "needs a GPU"]
fn gpu_a_faulting_kernel_is_reported_as_a_lost_context() {
    let bench = Bench::new();
    let buffer = bench.pool.alloc(4096).unwrap();
    let mut args = LaunchArgs::new();
    args.push_ptr(16).push_bytes(&1i32.to_ne_bytes());
    let grid = grid(1, 1);
    // SAFETY: address 16 is no memory of anyone's: the device refuses the store, which is
    // what this test is about.
    unsafe { launch(&bench.function("store"), grid, &bench.stream, &mut args) }.unwrap();
    let error = bench.stream.synchronize().unwrap_err();
    assert!(matches!(error, GpuError::Driver { code: 700, .. }), "{error}");
    assert!(error.to_string().contains("hint: "), "{error}");
    let later = bench.stream.synchronize().unwrap_err();
    assert!(matches!(later, GpuError::Driver { code: 700, .. }), "{later}");
    // Dropping what the context held neither panics nor hangs.
    drop(buffer);
    drop(bench);
}
