//! The kernels of the benchmark, compiled for one device.

use std::sync::Arc;

use headrace_gpu::{
    Compiler, CubinCache, Device, Function, GpuError, Grid, LaunchArgs, Module, Source, Stream,
    launch,
};

/// The source of the kernels, for tests that compile all kernels.
pub const KERNELS: Source<'static> =
    Source { name: "bench.cu", text: include_str!("../kernels/checksum.cuh"), headers: &[] };

const BLOCK_THREADS: u32 = 256;

/// Blocks that keep a device busy; each block then loops.
const BLOCKS_MAX: u64 = 1024;

/// Words per thread before more blocks pay off.
const WORDS_PER_THREAD: u64 = 8;

/// The kernels, loaded on a device.
#[derive(Debug)]
pub(super) struct Kernels {
    checksum: Function,
    fill: Function,
}

impl Kernels {
    pub fn load(device: &Arc<Device>) -> Result<Kernels, GpuError> {
        let compiler = Compiler::load(None)?;
        let arch = device.info().arch();
        let (cubin, _) = CubinCache::open_default().compile(&compiler, &KERNELS, &arch, &[])?;
        let module = Module::load(device, &cubin)?;
        Ok(Kernels {
            checksum: module.function("headrace_checksum")?,
            fill: module.function("headrace_fill")?,
        })
    }

    /// Queues the checksum of `bytes` bytes at `data`, which begin with word `first_word` of their
    /// file; it is added to the two words at `sums`.
    ///
    /// # Safety
    /// Both are addresses of this device's memory that stays until the stream is done; `data` is
    /// aligned to 8 bytes and not written meanwhile; nobody else uses `sums`.
    pub unsafe fn checksum(
        &self,
        stream: &Stream,
        (data, bytes): (u64, u64),
        first_word: u64,
        sums: u64,
    ) -> Result<(), GpuError> {
        let mut args = LaunchArgs::new();
        args.push_ptr(data).push_u64(bytes).push_u64(first_word).push_ptr(sums);
        // SAFETY: the arguments are those of the kernel, which touches the two ranges that the
        // caller vouches for.
        unsafe { launch(&self.checksum, grid(bytes / 8), stream, &mut args) }
    }

    /// Queues the filling of `words` words at `data` with the content from word `first_word` on.
    ///
    /// # Safety
    /// `data` is memory of this device, of that many words, that nobody else uses until the
    /// stream is done.
    pub unsafe fn fill(
        &self,
        stream: &Stream,
        data: u64,
        words: u64,
        first_word: u64,
    ) -> Result<(), GpuError> {
        let mut args = LaunchArgs::new();
        args.push_ptr(data).push_u64(words).push_u64(first_word);
        // SAFETY: the arguments are those of the kernel, which touches the range that the caller
        // vouches for.
        unsafe { launch(&self.fill, grid(words), stream, &mut args) }
    }
}

fn grid(words: u64) -> Grid {
    let per_block = u64::from(BLOCK_THREADS) * WORDS_PER_THREAD;
    let blocks = words.div_ceil(per_block).clamp(1, BLOCKS_MAX) as u32;
    Grid { blocks, threads: BLOCK_THREADS, shared_bytes: 0 }
}
