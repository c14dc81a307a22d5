//! The transfer benchmark to host memory: every path, every kind of file, every way to fail.

#![allow(clippy::unwrap_used)]

mod faults;
mod gpu;
mod inputs;
mod judged;
mod paths;
#[path = "../support/restricted.rs"]
mod restricted;
mod support;
mod sweep;
mod writes;
