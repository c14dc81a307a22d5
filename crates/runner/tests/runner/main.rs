//! Programs over small tables, without a planner.

#![allow(clippy::unwrap_used)]

mod inputs;
mod producers;
mod requests;
mod runs;
mod support;
