//! What the kernel of heap pages runs on: this machine's processor, or a GPU.

use std::sync::Arc;

use headrace_cuda::parts::{COMPILE_OPTIONS, PAGES_KERNEL_NAME, pages_source};
use headrace_cuda::{CudaDevice, CudaOptions};
use headrace_gpu::{Compiler, DeviceBuffer, Function, Grid, LaunchArgs, Module, Stream, launch};

use crate::shim::{Memory, build_library, run};

/// Blocks on the host, threads of a block on a GPU.
const HOST_BLOCKS: u64 = 3;
const THREADS: u32 = 64;

pub enum Machine {
    Host { _folder: tempfile::TempDir, library: std::path::PathBuf },
    Gpu { device: Arc<CudaDevice>, function: Function, stream: Stream },
}

pub enum Held {
    Host(Memory),
    Gpu(DeviceBuffer),
}

impl Held {
    pub fn address(&mut self) -> u64 {
        match self {
            Self::Host(memory) => memory.address(),
            Self::Gpu(buffer) => buffer.ptr(),
        }
    }
}

impl Machine {
    pub fn host() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let library = build_library(folder.path(), pages_source().text, PAGES_KERNEL_NAME);
        Self::Host { _folder: folder, library }
    }

    pub fn gpu() -> Self {
        let device = CudaDevice::open(0, CudaOptions::default()).unwrap();
        let arch = device.device().info().arch();
        let compiler = Compiler::load(None).unwrap();
        let cubin = compiler.compile(&pages_source(), &arch, &COMPILE_OPTIONS).unwrap();
        let module = Module::load(device.device(), &cubin).unwrap();
        let function = module.function(PAGES_KERNEL_NAME).unwrap();
        let stream = device.device().stream().unwrap();
        Self::Gpu { device, function, stream }
    }

    /// Memory with these bytes.
    pub fn memory(&self, bytes: &[u8]) -> Held {
        match self {
            Self::Host { .. } => Held::Host(Memory::of(bytes)),
            Self::Gpu { device, stream, .. } => {
                let buffer = device.alloc(bytes.len()).unwrap();
                stream.upload(&buffer, 0, bytes).unwrap();
                Held::Gpu(buffer)
            }
        }
    }

    pub fn bytes(&self, held: &Held, count: usize) -> Vec<u8> {
        match (self, held) {
            (_, Held::Host(memory)) => memory.bytes(count),
            (Self::Gpu { stream, .. }, Held::Gpu(buffer)) => {
                let mut bytes = vec![0; count];
                stream.download(buffer, 0, &mut bytes).unwrap();
                bytes
            }
            _ => panic!("memory of another machine"),
        }
    }

    /// Runs the kernel, and waits for it.
    pub fn run(&self, params: &[u64; 10], shared_bytes: u32) {
        match self {
            Self::Host { library, .. } => run(library, params, HOST_BLOCKS),
            Self::Gpu { function, stream, .. } => {
                let mut args = LaunchArgs::new();
                args.push_bytes(&params.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<_>>());
                let grid = Grid { blocks: params[1] as u32, threads: THREADS, shared_bytes };
                // SAFETY: whoever calls has memory of the sizes that the parameters ask for, and
                // keeps it until the stream was waited for, below.
                unsafe { launch(function, grid, stream, &mut args) }.unwrap();
                stream.synchronize().unwrap();
            }
        }
    }
}
