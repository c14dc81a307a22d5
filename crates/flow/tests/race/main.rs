//! The race under every path and every fault: right bytes exactly once, or the right error, and
//! nothing left behind.

#![allow(clippy::unwrap_used)]

mod appended;
mod cancel;
mod device;
mod devices;
mod faults;
mod feed;
mod host;
mod lane;
mod outbox;
mod outputs;
mod paths;
mod support;
mod ways;
