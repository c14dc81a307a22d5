//! The transfer benchmark to host memory: every path, every kind of file, every way to fail. And
//! the benchmark of the out-of-core operators.

#![allow(clippy::unwrap_used)]

mod against_ceilings;
#[path = "../../../io/tests/common/child.rs"]
mod child;
mod faults;
mod gpu;
mod inputs;
mod ooc;
mod paths;
mod support;
mod sweep;
mod writes;
