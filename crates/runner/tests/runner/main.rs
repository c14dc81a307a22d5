//! Programs over small tables, without a planner.

#![allow(clippy::unwrap_used)]

mod distinct;
mod first_rows;
mod heaps;
mod inputs;
mod parameters;
mod partial;
mod partitioned;
mod producers;
mod runs;
mod stages;
mod support;
mod windows;
