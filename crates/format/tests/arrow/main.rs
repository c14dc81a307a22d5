//! Arrow files written, read, planned and damaged.
#![allow(clippy::unwrap_used)]

mod chunks;
mod claims;
mod damage;
mod dictionaries;
mod files;
mod foreign;
mod streams;
mod support;
mod unstable;
mod writer;
