//! Every writer under every fault: the right file, or an error and no file at all.

#![allow(clippy::unwrap_used)]

#[path = "../common/child.rs"]
mod child;
mod device;
mod engines;
mod faults;
#[path = "../common/kinds.rs"]
mod kinds;
mod limits;
mod sink;
mod support;
