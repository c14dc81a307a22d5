//! What workers of one execution share.

use std::sync::atomic::{AtomicI64, AtomicU64};
use std::sync::{Arc, OnceLock};

use arrow_array::RecordBatch;
use headrace_columns::simd::Tier;
use headrace_flow::CancelToken;
use headrace_io::MemoryBudget;
use headrace_spill::SpillFolder;

use crate::ExecError;
use crate::bound::Bound;
use crate::cpu::aside::CACHE_BYTES;
use crate::cpu::hash_sink::{HashLevel, HashOptions};
use crate::partial::PartialSchema;
use crate::partial::spill::{SpillPlace, SpillReport};

/// Rows of a batch: the columns of a batch stay in a core's L1 and L2 caches.
pub(crate) const BATCH_ROWS: usize = 4096;

/// Takes finished batches, from any thread; `false`: nobody wants more.
pub type Emit<'a> = &'a (dyn Fn(RecordBatch) -> bool + Send + Sync);

/// What all workers of one execution share. Clone it for each worker.
#[derive(Clone, Debug)]
pub struct WorkerOptions {
    /// Pays for the states of all workers and for merging them.
    pub memory: Arc<MemoryBudget>,
    /// Where groups go that do not fit; `None`: they must.
    pub spill: Option<Arc<SpillFolder>>,
    /// Workers at the same time, threads that merge included.
    pub workers: usize,
    /// Rows of a batch; 4096 but for tests.
    pub batch_rows: usize,
    /// Vector instructions; the best of the machine but for tests.
    pub tier: Tier,
    /// Groups of a table that are spilled whatever they take; tests set it.
    pub groups_max: usize,
    /// Bytes of a worker's table of groups that lies in its core's cache; tests set it.
    pub cache_bytes: u64,
    /// Rows that reached a row sink with a limit.
    pub emitted_rows: Arc<AtomicU64>,
    /// Of rows in an order, the first key of the last that is wanted, as a column's statistics have it, once somebody knows:
    /// ever smaller, or ever larger where the largest come first. See [`Bound::first_by`].
    pub last_wanted: Option<Arc<AtomicI64>>,
    /// Ends merging early.
    pub cancel: CancelToken,
    /// What was spilled.
    pub spilled: Arc<SpillReport>,
    level: Arc<OnceLock<Arc<HashLevel>>>,
}

impl WorkerOptions {
    /// Options of one execution with an account of its own and no place to spill to.
    pub fn new(memory_limit_bytes: u64) -> Self {
        Self::with_memory(MemoryBudget::new(memory_limit_bytes))
    }

    /// Options of one execution that shares an account with others.
    pub fn with_memory(memory: Arc<MemoryBudget>) -> Self {
        Self {
            memory,
            spill: None,
            workers: 1,
            batch_rows: BATCH_ROWS,
            tier: Tier::best(),
            groups_max: usize::MAX,
            cache_bytes: CACHE_BYTES,
            emitted_rows: Arc::default(),
            last_wanted: None,
            cancel: CancelToken::new(),
            spilled: Arc::default(),
            level: Arc::default(),
        }
    }

    pub(crate) fn hash_options(&self, form: PartialSchema) -> HashOptions {
        let place = SpillPlace { folder: self.spill.clone(), report: Arc::clone(&self.spilled) };
        let account = Arc::clone(&self.memory);
        let Self { groups_max, cache_bytes, .. } = *self;
        HashOptions { form, account, place, groups_max, cache_bytes }
    }

    /// What the hash tables of all workers share.
    pub(crate) fn hash_level(&self, bound: &Bound) -> Result<Arc<HashLevel>, ExecError> {
        let form = PartialSchema::local(bound)?;
        let new = || HashLevel::first(self.hash_options(form), self.workers);
        Ok(Arc::clone(self.level.get_or_init(new)))
    }
}
