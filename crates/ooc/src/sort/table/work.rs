//! The shared state of a table sort.

use std::sync::atomic::AtomicU64;
use std::time::Instant;

use parking_lot::Mutex;
use serde::Serialize;

use super::columns::Columns;
use super::keys::KeyMaker;
use super::sizes::Sizes;
use super::turns::Turns;
use crate::Result;

/// A stage of the work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Stage {
    /// Its purpose.
    pub name: &'static str,
    /// Its duration.
    pub wall_ns: u64,
}

/// One call and its progress.
#[derive(Debug)]
pub(super) struct Work<'a> {
    pub columns: &'a Columns,
    pub maker: &'a KeyMaker,
    pub turns: Turns,
    pub sizes: Sizes,
    /// Whether pages of mapped files are released after reading.
    pub releases_mapped: bool,
    pub stages: Mutex<Vec<Stage>>,
    pub temporary_bytes: AtomicU64,
}

impl Work<'_> {
    /// Runs a stage and records its duration.
    pub fn staged<T>(&self, name: &'static str, run: impl FnOnce() -> Result<T>) -> Result<T> {
        let started = Instant::now();
        let done = run()?;
        let wall_ns = started.elapsed().as_nanos() as u64;
        let mut stages = self.stages.lock();
        match stages.last_mut() {
            Some(last) if last.name == name => last.wall_ns += wall_ns,
            _ => stages.push(Stage { name, wall_ns }),
        }
        Ok(done)
    }
}
