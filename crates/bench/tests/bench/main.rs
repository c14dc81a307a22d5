//! The transfer benchmark to host memory: every path, every kind of file, every way to fail. And
//! the benchmark of the out-of-core operators.

#![allow(clippy::unwrap_used)]

mod against_ceilings;
mod faults;
mod gpu;
mod inputs;
mod ooc;
mod paths;
#[path = "../support/restricted.rs"]
mod restricted;
mod support;
mod sweep;
mod writes;
