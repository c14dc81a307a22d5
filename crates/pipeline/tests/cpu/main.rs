//! The CPU processor through its public door: bind, compile, execute, finish.
#![allow(clippy::unwrap_used)]

mod builds;
mod claims;
mod corrupt;
mod expressions;
mod functions;
mod grouping;
mod joins;
mod moments;
mod partial;
mod random;
mod reference;
mod scan;
mod sorted;
mod spilling;
mod spread;
mod star;
mod support;
mod texts;
mod timing;
