//! Every reader under every fault: the same bytes, or an error that names file, offset and cause.

#![allow(clippy::unwrap_used)]

#[path = "../common/child.rs"]
mod child;
mod engines;
mod environment;
#[path = "../common/kinds.rs"]
mod kinds;
mod mapping;
mod support;
mod uring_setup;
