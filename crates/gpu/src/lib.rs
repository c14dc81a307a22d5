//! The CUDA side of Headrace: devices, streams, events, device and pinned host
//! memory, run-time compilation with an on-disk cubin cache, and one launch seam.
//!
//! # What flows through it
//!
//! ```text
//! source text ─► Compiler (NVRTC) ─► Cubin ─► Module ─► Function ─┐
//!                     ▲                                           ▼
//!                CubinCache (disk)                    launch(function, grid, stream, args)
//!                                                                 ▲
//! PinnedBuffer / RegisteredHost ──Stream copies──► DeviceBuffer ──┘
//!                                                  (from a DevicePool with a budget)
//! file ──CuFileHandle──────────────────────────────────▲
//! ```
//!
//! Beside it: [`measure`] measures copy speeds, [`DeviceInfo::properties`] describes a device,
//! [`nvtx`] shows the program's work in a profiler.
//!
//! # What it must never know
//!
//! SQL, tables, columns, file formats. It moves bytes and runs kernels by name.
//!
//! # Rules that hold throughout
//!
//! * This crate is the only user of `cudarc`, and it uses only its raw bindings. One
//!   binary runs with and without CUDA: the driver and NVRTC are opened at run time,
//!   and their absence is a value ([`GpuProbe::reason`]), never a panic.
//! * A CUDA context is current per thread. Every public call makes its device's
//!   primary context current first, so any thread may call anything.
//! * Device memory is plain `cuMemAlloc` memory, never managed memory.
//! * Pinned host memory is ordinary memory that was registered afterwards. It is not
//!   write-combined: the CPU reads it at full speed.
//! * Asynchronous copies and launches are `unsafe`: the borrow checker cannot see when
//!   the device is done with a pointer. Each such function says what must outlive what.
//! * The primary context and all memory in it belong to the process that opened them:
//!   nothing here may be used in a child after `fork`.
//!
//! # What it reads from the environment
//!
//! | variable | meaning |
//! |---|---|
//! | `HEADRACE_NVRTC` | the NVRTC library file, or its folder; when set, no other is tried |
//! | `HEADRACE_CUFILE` | the cuFile library file, or its folder; when set, no other is tried |
//! | `HEADRACE_CACHE` | the folder of compiled kernels; else `$XDG_CACHE_HOME/headrace`, else `~/.cache/headrace` |
//! | `NVTX_INJECTION64_PATH` | set by profilers: the library that is told of ranges |

mod api;
mod cache;
mod compile_log;
mod compiler;
pub mod cufile;
mod device;
mod driver;
mod error;
mod event;
mod host_pages;
mod info;
mod ipc;
mod launch;
mod library;
pub mod measure;
mod module;
mod nvrtc;
pub mod nvtx;
mod pinned;
mod pinned_slots;
mod pool;
mod probe;
mod properties;
mod size_class;
mod stream;
mod threads;

pub use cache::{CacheOutcome, CacheStats, CubinCache, cache_folder};
pub use compiler::{Compiler, Cubin, Source};
pub use cufile::{CuFile, CuFileError, CuFileHandle, CuFileUnavailable};
pub use device::Device;
pub use error::{GpuError, Result};
pub use event::Event;
pub use host_pages::{HostPages, page_bytes};
pub use info::DeviceInfo;
pub use ipc::{HANDLE_BYTES, Mapped};
pub use launch::{Grid, LaunchArgs, launch};
pub use module::{Function, FunctionInfo, Module};
pub use pinned::{HostAccess, PinnedBuffer, RegisteredHost};
pub use pinned_slots::PinnedSlots;
pub use pool::{DeviceBuffer, DevicePool, PoolStats};
pub use probe::{GpuProbe, NvrtcInfo, probe};
pub use properties::Property;
pub use stream::{HostCopies, Stream};
