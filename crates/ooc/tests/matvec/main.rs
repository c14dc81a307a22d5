//! The matrix-vector product against plain loops: shapes, formats, faults, and the same bits whoever computes
//! them. `speed_` and `gpu_` tests are for a machine that is quiet, or has a GPU.
#![allow(clippy::unwrap_used)]

mod faults;
mod gpu;
mod iterate;
mod products;
mod speed;
mod support;
