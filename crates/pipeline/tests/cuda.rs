//! The CUDA processor: generated sources against golden files, compilation by NVRTC, the
//! generated code run on the host, and on a GPU.
//!
//! `nvrtc_` tests need NVRTC (and no GPU), `gpu_` tests a GPU, `alone_` tests
//! one that nothing else uses, `two_gpus_` tests two, `host_shim_` tests `g++`.

#![allow(clippy::unwrap_used, missing_docs)]

#[path = "cuda/corpus/mod.rs"]
mod corpus;
#[path = "cuda/data.rs"]
mod data;
#[path = "cuda/differential.rs"]
mod differential;
#[path = "cuda/dsl.rs"]
mod dsl;
#[path = "cuda/full_tables.rs"]
mod full_tables;
#[path = "cuda/golden.rs"]
mod golden;
#[path = "cuda/gpu.rs"]
mod gpu;
#[path = "cuda/narrow.rs"]
mod narrow;
#[path = "cuda/nvrtc.rs"]
mod nvrtc;
#[path = "cuda/pages.rs"]
mod pages;
#[path = "cuda/prepared.rs"]
mod prepared;
#[path = "cuda/shim.rs"]
mod shim;
#[path = "cuda/ssb.rs"]
mod ssb;
#[path = "cuda/stream_speed.rs"]
mod stream_speed;
#[path = "cuda/timing.rs"]
mod timing;
