//! Making builds, and keeping them for the next query.
//!
//! A build is known by the text of its pipeline (and of the builds that it probes) and the
//! identities of its table's files: the same text over the same files is the same build.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use headrace_io::FileIdentity;
use headrace_ir::Pipeline;
use headrace_pipeline::BuildTable;
use parking_lot::Mutex;

use crate::table::StreamTable;

/// What makes two builds the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BuildKey {
    text: String,
    files: Vec<FileIdentity>,
    probed: Vec<BuildKey>,
}

impl BuildKey {
    /// The key of a build from a pipeline over a table, and from the builds that it probes.
    pub fn of(
        pipeline: &Pipeline,
        table: &StreamTable,
        nulls_equal: bool,
        probed: Vec<BuildKey>,
    ) -> Self {
        let files = 0..table.source().file_count();
        Self {
            // Debug text says everything, the columns' places in the table included.
            text: format!("{nulls_equal} {pipeline:?}"),
            files: files.map(|file| table.source().file_identity(file)).collect(),
            probed,
        }
    }
}

#[derive(Default)]
struct Entries {
    tick: u64,
    bytes: u64,
    builds: HashMap<BuildKey, (u64, Arc<BuildTable>)>,
}

/// Builds under a budget; the least recently used leaves first.
pub struct BuildCache {
    budget_bytes: u64,
    entries: Mutex<Entries>,
}

impl fmt::Debug for BuildCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries = self.entries.lock();
        write!(f, "BuildCache({} builds, {} bytes)", entries.builds.len(), entries.bytes)
    }
}

impl BuildCache {
    /// A cache of at most `budget_bytes`.
    pub fn new(budget_bytes: u64) -> Self {
        Self { budget_bytes, entries: Mutex::default() }
    }

    /// A build, if it is here.
    pub fn get(&self, key: &BuildKey) -> Option<Arc<BuildTable>> {
        let mut entries = self.entries.lock();
        entries.tick += 1;
        let tick = entries.tick;
        let (used, build) = entries.builds.get_mut(key)?;
        *used = tick;
        Some(Arc::clone(build))
    }

    /// Keeps a build, at the cost of those not used for longest. One that alone exceeds the
    /// budget is not kept.
    pub fn put(&self, key: BuildKey, build: &Arc<BuildTable>) {
        if build.bytes > self.budget_bytes {
            return;
        }
        let mut entries = self.entries.lock();
        entries.tick += 1;
        let tick = entries.tick;
        if let Some((_, old)) = entries.builds.insert(key, (tick, Arc::clone(build))) {
            entries.bytes -= old.bytes;
        }
        entries.bytes += build.bytes;
        while entries.bytes > self.budget_bytes {
            let oldest = entries.builds.iter().min_by_key(|(_, (used, _))| *used);
            let Some(oldest) = oldest.map(|(key, _)| key.clone()) else { break };
            if let Some((_, old)) = entries.builds.remove(&oldest) {
                entries.bytes -= old.bytes;
            }
        }
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        self.entries.lock().bytes
    }

    /// Forgets everything.
    pub fn clear(&self) {
        *self.entries.lock() = Entries::default();
    }
}
