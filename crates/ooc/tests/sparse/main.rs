//! Sparse products, ranks, levels and eigenpairs against plain loops: shapes, formats, faults, generated graphs, and the same bits
//! whoever computes them. `speed_` tests are for a machine that is quiet.
#![allow(clippy::unwrap_used)]

mod eigen;
mod faults;
mod generated;
mod gpu;
mod graphs;
mod products;
mod speed;
mod support;
