//! Builds that are kept for the next query.
//!
//! A build is known by the text of its stage, of the stages that it reads and probes, and by the
//! identities of their tables' files: the same text over the same files is the same build.

use std::fmt;
use std::sync::{Arc, Weak};

use headrace_io::{
    FileIdentity, Kept, LastUsed, MemoryBudget, MemoryUse, OutOfBudget, Reclaim, Reservation,
};
use headrace_ir::{PassedOn, Pipeline};
use headrace_pipeline::BuildTable;
use parking_lot::Mutex;

use crate::table::StreamTable;

/// What makes two builds the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BuildKey {
    text: Arc<str>,
    files: Vec<FileIdentity>,
    /// What the rows have besides.
    beyond_files: Option<String>,
    inputs: Vec<Arc<BuildKey>>,
}

impl BuildKey {
    /// The text of a stage and of what its probes ask of it: whether NULL equals NULL, and what becomes of its payload.
    pub fn text(pipeline: &Pipeline, asked: (bool, PassedOn)) -> String {
        // Debug text says everything, the columns' places in the table included.
        format!("{asked:?} {pipeline:?}")
    }

    /// The key of what a stage gives, from its [text](Self::text), its table if it reads one, and the keys of the
    /// stages that it reads and probes; `None` where nothing of the table may be kept.
    pub fn of(text: Arc<str>, table: Option<&StreamTable>, inputs: Vec<Arc<Self>>) -> Option<Self> {
        let source = table.map(StreamTable::source);
        if source.is_some_and(|source| !source.policy().keeps()) {
            return None;
        }
        let files = source
            .into_iter()
            .flat_map(|source| (0..source.file_count()).map(|file| source.file_identity(file)));
        Some(Self {
            text,
            files: files.collect(),
            beyond_files: source.and_then(|source| source.beyond_files()),
            inputs,
        })
    }
}

/// A build with the memory that is reserved for it, until its last user is done.
pub struct HeldBuild {
    /// The build.
    pub table: Arc<BuildTable>,
    _memory: Reservation,
}

impl HeldBuild {
    /// Reserves the memory of a build that was just made.
    pub fn new(
        table: BuildTable,
        budget: &Arc<MemoryBudget>,
    ) -> Result<Arc<Kept<Self>>, OutOfBudget> {
        let memory = budget.reserve(MemoryUse::Builds, table.bytes)?;
        Ok(Kept::new(Self { table: Arc::new(table), _memory: memory }))
    }
}

/// Builds under a bound of their own; the least recently used leaves first. Those that no run uses
/// give way to whoever needs memory.
pub struct BuildCache {
    bytes_max: u64,
    builds: Mutex<LastUsed<Arc<BuildKey>, HeldBuild>>,
}

impl fmt::Debug for BuildCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let builds = self.builds.lock();
        write!(f, "BuildCache({} builds, {} bytes)", builds.len(), builds.bytes())
    }
}

impl BuildCache {
    /// A cache of at most `bytes_max` that gives way when the budget asks.
    pub fn new(bytes_max: u64, budget: &MemoryBudget) -> Arc<Self> {
        let cache = Arc::new(Self { bytes_max, builds: Mutex::default() });
        let weak: Weak<Self> = Arc::downgrade(&cache);
        budget.add_cache(weak);
        cache
    }

    /// A build, if it is here.
    pub fn get(&self, key: &Arc<BuildKey>) -> Option<Arc<Kept<HeldBuild>>> {
        let mut builds = self.builds.lock();
        let round = builds.next_round();
        builds.get(key, round)
    }

    /// Keeps a build, at the cost of those not used for longest. One that alone exceeds the bound
    /// is not kept.
    pub fn put(&self, key: Arc<BuildKey>, build: &Arc<Kept<HeldBuild>>) {
        let bytes = build.table.bytes;
        if bytes > self.bytes_max {
            return;
        }
        let mut builds = self.builds.lock();
        let round = builds.next_round();
        // What leaves is dropped without the lock.
        let mut left = Vec::from_iter(builds.insert(key, Arc::clone(build), bytes, round));
        while builds.bytes() > self.bytes_max {
            left.extend(builds.take_oldest());
        }
        drop(builds);
    }

    /// Forgets everything.
    pub fn clear(&self) {
        let forgotten = std::mem::take(&mut *self.builds.lock());
        drop(forgotten);
    }
}

impl Reclaim for BuildCache {
    fn reclaim(&self, bytes: u64) -> bool {
        let mut left = Vec::new();
        let mut left_bytes = 0;
        while left_bytes < bytes {
            let Some(build) = self.builds.lock().take_idle(u64::MAX) else { break };
            left_bytes += build.table.bytes;
            left.push(build);
        }
        !left.is_empty()
    }
}
