//! What the GPU tests share: a device of their own for the time of a test, kernels, data.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::sync::Arc;

use headrace_gpu::{
    Compiler, Device, DeviceBuffer, DevicePool, Function, Grid, LaunchArgs, Module, Source, Stream,
    launch,
};
use parking_lot::{Mutex, MutexGuard};

static TURN: Mutex<()> = Mutex::new(());

const POOL_BYTES: u64 = 1 << 30;

pub const KERNELS: Source<'static> = Source {
    name: "kernels.cu",
    text: r#"
#include "clock.cuh"

extern "C" __global__ void add(const int* a, const int* b, int* sum, unsigned long long count) {
    unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) sum[i] = a[i] + b[i];
}

struct Scale { const long long* in; __int128* out; int factor; int count; };

extern "C" __global__ void scale128(Scale s) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < s.count) s.out[i] = (__int128)s.in[i] * s.factor;
}

extern "C" __global__ void spin(unsigned long long duration_ns) {
    unsigned long long start = now_ns();
    while (now_ns() - start < duration_ns) {}
}

extern "C" __global__ void through_shared(const unsigned* in, unsigned* out, unsigned words) {
    extern __shared__ unsigned tile[];
    for (unsigned i = threadIdx.x; i < words; i += blockDim.x) tile[i] = in[i];
    __syncthreads();
    for (unsigned i = threadIdx.x; i < words; i += blockDim.x) out[i] = tile[words - 1 - i];
}

extern "C" __global__ void store(int* where, int value) { *where = value; }
"#,
    headers: &[(
        "clock.cuh",
        "inline unsigned long long now_ns() {\n\
           unsigned long long ns;\n\
           asm volatile(\"mov.u64 %0, %globaltimer;\" : \"=l\"(ns));\n\
           return ns;\n\
         }\n",
    )],
};

/// Device 0, alone: other tests of this binary wait.
pub struct Bench {
    pub device: Arc<Device>,
    pub pool: Arc<DevicePool>,
    pub stream: Stream,
    pub module: Arc<Module>,
    // Last, so that the turn ends when everything else is gone.
    _turn: MutexGuard<'static, ()>,
}

impl Bench {
    pub fn new() -> Self {
        let turn = TURN.lock();
        let device = Device::open(0).expect("these tests need a GPU");
        let cubin = Compiler::load(None)
            .expect("these tests need NVRTC: set HEADRACE_NVRTC")
            .compile(&KERNELS, &device.info().arch(), &[])
            .expect("the test kernels are right");
        Self {
            pool: DevicePool::new(&device, POOL_BYTES),
            stream: device.stream().unwrap(),
            module: Module::load(&device, &cubin).unwrap(),
            device,
            _turn: turn,
        }
    }

    pub fn function(&self, name: &str) -> Function {
        self.module.function(name).unwrap()
    }

    /// A new buffer with `values` in it.
    pub fn upload<T: Number>(&self, values: &[T]) -> DeviceBuffer {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_bytes()).collect();
        let buffer = self.pool.alloc(bytes.len()).unwrap();
        self.stream.upload(&buffer, 0, &bytes).unwrap();
        buffer
    }

    /// The first `count` values of `buffer`, once the stream's work is done.
    pub fn download<T: Number>(&self, buffer: &DeviceBuffer, count: usize) -> Vec<T> {
        let mut bytes = vec![0; count * size_of::<T>()];
        self.stream.download(buffer, 0, &mut bytes).unwrap();
        bytes.chunks_exact(size_of::<T>()).map(T::of_bytes).collect()
    }
}

/// A number and its bytes in memory.
pub trait Number: Copy {
    fn to_bytes(self) -> Vec<u8>;
    fn of_bytes(bytes: &[u8]) -> Self;
}

macro_rules! number {
    ($($type:ty),*) => {$(
        impl Number for $type {
            fn to_bytes(self) -> Vec<u8> {
                self.to_ne_bytes().to_vec()
            }
            fn of_bytes(bytes: &[u8]) -> Self {
                Self::from_ne_bytes(bytes.try_into().unwrap())
            }
        }
    )*};
}
number!(i32, u32, i64, i128);

/// One thread an item.
pub fn grid(items: usize, threads: u32) -> Grid {
    Grid { blocks: items.div_ceil(threads as usize) as u32, threads, shared_bytes: 0 }
}

/// Queues a kernel that keeps one multiprocessor busy for `duration_ms`.
pub fn spin(bench: &Bench, stream: &Stream, duration_ms: u64) {
    let mut args = LaunchArgs::new();
    args.push_u64(duration_ms * 1_000_000);
    // SAFETY: the kernel touches no memory.
    unsafe { launch(&bench.function("spin"), grid(1, 1), stream, &mut args) }.unwrap();
}

/// Bytes without a short period.
pub fn pattern(bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    (0..bytes)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        })
        .collect()
}
