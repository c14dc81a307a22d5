//! What is decided before any text is written, of the pipeline and its layout alone.

pub(super) mod eager;
pub(super) mod pairs;
pub(super) mod probes;
pub(super) mod queue;
pub(super) mod shared;
pub(super) mod sink;
