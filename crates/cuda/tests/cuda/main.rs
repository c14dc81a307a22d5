//! The CUDA processor: generated sources against golden files, compilation by NVRTC, the
//! generated code run on the host, and on a GPU.
//!
//! `nvrtc_` tests need NVRTC (and no GPU), `gpu_` tests a GPU, `alone_` tests
//! one that nothing else uses, `two_gpus_` tests two, `host_shim_` tests `g++`.

#![allow(clippy::unwrap_used, missing_docs)]

mod corpus;
mod data;
mod differential;
mod dsl;
mod full_tables;
mod golden;
mod gpu;
mod group_columns;
mod narrow;
mod nvrtc;
mod pages;
mod prepared;
mod shim;
mod ssb;
mod stream_speed;
mod table_functions;
mod timing;
