//! Columns that stay in device memory from query to query.
//!
//! An entry is one column of one segment: values, the bytes of texts and validity in one buffer. A query that
//! streams a segment leaves its columns here while the budget lasts; entries that no running
//! query has touched make room for it, the one used longest ago first. Entries that the same
//! query brought or used never make room, so a table larger than the budget keeps a part of
//! itself resident instead of driving itself out.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use headrace_gpu::DeviceBuffer;
use headrace_io::{Kept, LastUsed};
use parking_lot::{Mutex, MutexGuard};

use crate::layout::ColumnForm;

/// Entries at most, however small: each takes about a kilobyte of host memory, most of it the driver's, which no limit
/// knows of. Of a table of very many small record batches a part stays, and the rest is streamed.
const ENTRIES_MAX: usize = 1 << 18;

/// A file as it was when its identity was taken: see [`ResidentColumns::file_id`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(u64);

/// Which column of which segment of which file. Of a segment of pages its first page and their number
/// stand for rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ColumnKey {
    /// The file.
    pub file: FileId,
    /// Index of the column in the file.
    pub column: u32,
    /// Record batch.
    pub batch: u32,
    /// First row within the batch.
    pub first_row: u64,
    /// Number of rows.
    pub rows: u32,
    /// The stamp of pages, which may be written again; 0 of a file as it is.
    pub stamp: u64,
}

/// Under what the columns of a segment of pages stay.
#[derive(Clone, Debug)]
pub(crate) struct PagesKey {
    /// But for the column.
    pub key: ColumnKey,
    /// For each source register, the index of its column in the file.
    pub columns: Arc<[u32]>,
}

impl PagesKey {
    /// The key of a source register's column.
    pub(crate) fn of(&self, register: usize) -> ColumnKey {
        ColumnKey { column: self.columns.get(register).copied().unwrap_or(NO_COLUMN), ..self.key }
    }
}

/// In the key of what stands for the rows of a segment of pages of which no column is read.
pub(crate) const NO_COLUMN: u32 = u32::MAX;

/// The rows of a segment of pages that a device has: all columns that a run reads.
#[derive(Clone, Debug)]
pub struct KeptPages {
    /// The number of the device among those of the run.
    pub device: usize,
    /// How many rows there are.
    pub rows: u32,
    /// In the order in which the run reads them; of no columns one that only stands for the rows.
    pub(crate) columns: Vec<Arc<Kept<ResidentColumn>>>,
}

/// One column of a segment in device memory.
#[derive(Debug)]
pub struct ResidentColumn {
    /// Number of values.
    pub rows: u32,
    /// Values, or the offsets of texts, from its start.
    pub buffer: DeviceBuffer,
    /// How they lie.
    pub form: ColumnForm,
    /// What is added to differences, and what is taken from the offsets of texts.
    pub base: i64,
    /// Where the bytes lie that the offsets of texts point into, and how many they are.
    pub texts: Option<(u64, u64)>,
    /// Where the validity bitmap lies, if there is one, and its bytes.
    pub validity: Option<(u64, u64)>,
}

/// What a [`ResidentColumns`] holds and has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResidentStats {
    /// Bytes that entries may take.
    pub budget_bytes: u64,
    /// Bytes that they take.
    pub bytes: u64,
    /// Number of entries.
    pub entries: u64,
    /// Look-ups that found one.
    pub hits: u64,
    /// Look-ups that did not.
    pub misses: u64,
    /// Entries dropped to make room.
    pub evictions: u64,
    /// Columns that found no room.
    pub refusals: u64,
}

#[derive(Default)]
struct State {
    columns: LastUsed<ColumnKey, ResidentColumn>,
    files: HashMap<Arc<[u8]>, FileId>,
    /// Columns that did not fit what was claimed of them.
    plain: HashSet<ColumnKey>,
    /// How many columns have left, by whatever way.
    departures: u64,
    stats: ResidentStats,
}

/// The cache.
pub struct ResidentColumns {
    state: Mutex<State>,
}

impl ResidentColumns {
    /// An empty cache.
    pub fn new(budget_bytes: u64) -> Self {
        let stats = ResidentStats { budget_bytes, ..ResidentStats::default() };
        Self { state: Mutex::new(State { stats, ..State::default() }) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Whether a column may be kept narrow: it was never found not to fit.
    pub fn may_narrow(&self, key: &ColumnKey) -> bool {
        !self.state().plain.contains(key)
    }

    /// A column is to be kept as it lies in its file.
    pub fn keep_plain(&self, key: ColumnKey) {
        self.state().plain.insert(key);
    }

    /// What it holds and has done.
    pub fn stats(&self) -> ResidentStats {
        let state = self.state();
        ResidentStats {
            bytes: state.columns.bytes(),
            entries: state.columns.len() as u64,
            ..state.stats
        }
    }

    /// Number of a new query, for [`Self::get`] and [`Self::put`].
    pub fn begin_query(&self) -> u64 {
        self.state().columns.next_round()
    }

    /// How many columns have left so far: while it is the same, all that were here then are here.
    pub(crate) fn departures(&self) -> u64 {
        self.state().departures
    }

    /// Does `work` for a new query while no column leaves, if none has since there were so many [`departures`](Self::departures).
    /// The cache is locked meanwhile: it must not ask for device memory, for which columns may have to leave, nor come back
    /// to the cache otherwise.
    pub(crate) fn while_all_stay<T>(
        &self,
        departures: u64,
        work: impl FnOnce(u64) -> T,
    ) -> Option<T> {
        let mut state = self.state();
        let query = state.columns.next_round();
        (state.departures == departures).then(|| work(query))
    }

    /// The number of a file in keys. `identity` is whatever bytes differ when the file does.
    pub fn file_id(&self, identity: &Arc<[u8]>) -> FileId {
        let mut state = self.state();
        let next = FileId(state.files.len() as u64);
        *state.files.entry(Arc::clone(identity)).or_insert(next)
    }

    /// Whether a column is here, for whoever does not use it.
    pub fn has(&self, key: &ColumnKey) -> bool {
        self.state().columns.contains(key)
    }

    /// A column, if it is here.
    pub fn get(&self, key: &ColumnKey, query: u64) -> Option<Arc<Kept<ResidentColumn>>> {
        let mut state = self.state();
        let found = state.columns.get(key, query);
        match &found {
            Some(_) => state.stats.hits += 1,
            None => state.stats.misses += 1,
        }
        found
    }

    /// Makes room for an entry of `bytes` under the budget, if entries of older queries allow it.
    pub fn make_room(&self, bytes: u64, query: u64) -> bool {
        let mut state = self.state();
        while state.columns.bytes() + bytes > state.stats.budget_bytes
            || state.columns.len() >= ENTRIES_MAX
        {
            if !state.evict(query) {
                state.stats.refusals += 1;
                return false;
            }
        }
        true
    }

    /// Keeps a column whose bytes are on their way: it must not be read by work that is not
    /// ordered behind the copy. Another copy of the same column is replaced. While the result lives it does not leave.
    pub fn put(
        &self,
        key: ColumnKey,
        column: ResidentColumn,
        query: u64,
    ) -> Arc<Kept<ResidentColumn>> {
        let (bytes, column) = (column.buffer.capacity_bytes(), Kept::new(column));
        let mut state = self.state();
        let replaced = state.columns.insert(key, Arc::clone(&column), bytes, query);
        state.departures += u64::from(replaced.is_some());
        column
    }

    /// Drops the entry used longest ago that no query holds; whether there was one.
    pub fn evict_oldest(&self) -> bool {
        self.state().evict(u64::MAX)
    }

    /// Drops every entry that no query holds.
    pub fn clear(&self) {
        while self.evict_oldest() {}
    }
}

impl State {
    /// Drops the entry used longest ago among those last used before `query` and held by none.
    fn evict(&mut self, query: u64) -> bool {
        let evicted = self.columns.take_idle(query).is_some();
        self.stats.evictions += u64::from(evicted);
        self.departures += u64::from(evicted);
        evicted
    }
}
