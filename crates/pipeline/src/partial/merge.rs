//! From tables and partial states of groups to what comes out: partition by partition.
//!
//! Hash tables of many workers are merged in place: each table's groups are put in the order of hash partitions,
//! and each partition is gathered from all tables. Only what does not fit is encoded and spilled.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use arrow_array::RecordBatch;
use headrace_columns::hash::FAN_OUT_MAX;
use headrace_columns::memory::{Hold, free_bytes, reserve};
use headrace_columns::repr::Repr;
use headrace_flow::CancelToken;
use headrace_io::{Reservation, on_threads};

use crate::ExecError;
use crate::bound::{Bound, BoundSink};
use crate::cpu::hash_sink::{HashLevel, HashSink};
use crate::cpu::hash_state::HashState;
use crate::cpu::{Emit, WorkerOptions};
use crate::partial::PartialSchema;
use crate::partial::runs::by_partition;
use crate::partial::schema::with_portable_values;
use crate::state::{Choice, finish_groups};

/// Groups of a table that lies in a core's own cache.
const PARTITION_GROUPS: usize = 4 * 1024;

/// Tables of fewer groups in all are merged into one at once.
const GROUPS_AT_ONCE: usize = 64 * 1024;

/// Merges partial states of any origin in any order.
#[derive(Debug)]
pub struct PartialMerge {
    bound: Bound,
    sink: HashSink,
    cancel: CancelToken,
}

impl PartialMerge {
    /// Nothing merged yet. The options' memory and spill store are used as by a worker.
    ///
    /// # Errors
    /// The pipeline does not aggregate.
    pub fn new(bound: &Bound, options: &WorkerOptions) -> Result<Self, ExecError> {
        let hash = options.hash_options(PartialSchema::portable(bound)?);
        let bound = with_portable_values(bound);
        let sink = HashSink::new(&HashLevel::first(hash, 1));
        Ok(Self { bound, sink, cancel: options.cancel.clone() })
    }

    /// Folds in a batch of the pipeline's portable [`PartialSchema`].
    ///
    /// # Errors
    /// The batch has another schema; memory; a temporary file.
    pub fn push(&mut self, batch: &RecordBatch) -> Result<(), ExecError> {
        self.sink.absorb(batch)
    }

    /// The finished groups, batch by batch.
    ///
    /// # Errors
    /// Totals that overflow; memory; a temporary file.
    pub fn finish(mut self, emit: Emit<'_>) -> Result<(), ExecError> {
        self.sink.keep_one_without_keys()?;
        Outlet::new(&self.bound, None, &self.cancel, emit).finish(vec![self.sink], 1)
    }
}

/// Where merged groups go, and in which form.
pub(crate) struct Outlet<'a> {
    bound: &'a Bound,
    /// Partial states of this form instead of finished groups.
    partial: Option<PartialSchema>,
    cancel: &'a CancelToken,
    emit: Emit<'a>,
    /// Nobody wants more.
    enough: AtomicBool,
}

impl<'a> Outlet<'a> {
    pub fn new(
        bound: &'a Bound,
        partial: Option<PartialSchema>,
        cancel: &'a CancelToken,
        emit: Emit<'a>,
    ) -> Self {
        Self { bound, partial, cancel, emit, enough: AtomicBool::new(false) }
    }

    /// Merges the tables of one level with everything that they flushed, on `threads` threads.
    pub(crate) fn finish(&self, sinks: Vec<HashSink>, threads: usize) -> Result<(), ExecError> {
        match self.merge(sinks, threads) {
            // That is how the threads were told.
            Err(ExecError::Cancelled) if self.enough.load(Ordering::Relaxed) => Ok(()),
            other => other,
        }
    }

    fn merge(&self, sinks: Vec<HashSink>, threads: usize) -> Result<(), ExecError> {
        let Some(first) = sinks.first() else { return Ok(()) };
        let level = Arc::clone(first.level());
        let groups: usize = sinks.iter().map(HashSink::groups).sum();
        let at_once = sinks.len() == 1 || groups <= GROUPS_AT_ONCE;
        if !level.has_flushed() && at_once && sinks.iter().all(|sink| sink.pieces().is_empty()) {
            return self.merge_at_once(sinks);
        }
        if !level.has_flushed()
            && let Some(held) = Held::new(&sinks, groups, threads)
        {
            let merged = self.merge_held(&held, threads);
            drop(held);
            // They are of gigabytes, which take their time to give back.
            let dropped = in_parallel(threads, sinks, |sink| {
                drop(sink);
                Ok(())
            });
            return merged.and(dropped);
        }
        in_parallel(threads, sinks, |mut sink| {
            self.check()?;
            sink.flush()
        })?;
        self.partitions(&level, threads)
    }

    /// Merges tables all of which lie in memory, partition by partition, straight out of them.
    fn merge_held(&self, held: &Held<'_>, threads: usize) -> Result<(), ExecError> {
        in_parallel(threads, (0..held.tables.len()).collect(), |table| {
            self.check()?;
            held.order(table)
        })?;
        in_parallel(threads, (0..held.fan_out).collect(), |partition| {
            let groups = held.tables.iter().zip(held.groups(partition)?);
            let parts: Vec<_> = groups.filter(|(_, groups)| !groups.is_empty()).collect();
            if let [(table, groups)] = parts.as_slice() {
                return self.put(table.state, groups);
            }
            let mut merged = HashSink::new(&held.level.below(held.share_bytes));
            merged.expect(parts.iter().map(|(_, groups)| groups.len()).sum())?;
            for (table, groups) in parts {
                for some in groups.chunks(table.state.portion_groups()) {
                    self.check()?;
                    merged.merge_some(table.state, some)?;
                }
            }
            self.merge(vec![merged], 1)
        })
    }

    fn merge_at_once(&self, sinks: Vec<HashSink>) -> Result<(), ExecError> {
        let mut sinks = sinks.into_iter();
        let Some(mut all) = sinks.next() else { return Ok(()) };
        for sink in sinks {
            all.merge(&sink)?;
        }
        // The account may have been too short for the last table.
        if all.level().has_flushed() {
            return self.merge(vec![all], 1);
        }
        let groups: Vec<u32> = (0..all.state().len() as u32).collect();
        self.put(all.state(), &groups)
    }

    /// The partitions of a level: the first alone, which tells how many fit memory at a time.
    fn partitions(&self, level: &Arc<HashLevel>, threads: usize) -> Result<(), ExecError> {
        let account = &level.options().account;
        let free = free_bytes(account);
        // The rest is for batches on their way in and out.
        let budget = free / 8 * 7;
        let table_bytes = self.partition(level, 0, budget)?.max(1);
        let at_a_time = (budget / table_bytes.saturating_add(table_bytes / 2)) as usize;
        let at_a_time = at_a_time.clamp(1, threads.max(1));
        let share = budget / at_a_time as u64;
        let others: Vec<usize> = (1..level.runs().fan_out()).collect();
        in_parallel(at_a_time, others, |p| self.partition(level, p, share).map(drop))
    }

    /// Merges one partition; answers what its table took.
    fn partition(
        &self,
        level: &Arc<HashLevel>,
        partition: usize,
        share_bytes: u64,
    ) -> Result<u64, ExecError> {
        let mut sink = HashSink::new(&level.below(share_bytes));
        level.runs().drain(partition, |batch| {
            self.check()?;
            sink.absorb(batch)
        })?;
        let bytes = sink.held_bytes();
        self.merge(vec![sink], 1)?;
        Ok(bytes)
    }

    fn check(&self) -> Result<(), ExecError> {
        let over = self.cancel.is_cancelled() || self.enough.load(Ordering::Relaxed);
        if over { Err(ExecError::Cancelled) } else { Ok(()) }
    }

    /// Hands out some groups of a table.
    fn put(&self, state: &HashState, groups: &[u32]) -> Result<(), ExecError> {
        for some in groups.chunks(state.portion_groups()) {
            self.check()?;
            let batch = self.batch(state, &self.first(state, some)?)?;
            if !(self.emit)(batch) {
                self.enough.store(true, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// Of some groups those that may be wanted.
    fn first<'g>(&self, state: &HashState, groups: &'g [u32]) -> Result<Cow<'g, [u32]>, ExecError> {
        match Choice::of(self.bound) {
            Some(choice) if choice.leaves_out(groups.len()) => {
                let key_column = |key, groups: &[u32]| {
                    let numbers = groups.iter().map(|&group| group as usize);
                    Ok(state.table().key_column(key, numbers)?)
                };
                Ok(choice.among(groups, state.states(), key_column)?.into())
            }
            _ => Ok(groups.into()),
        }
    }

    fn batch(&self, state: &HashState, groups: &[u32]) -> Result<RecordBatch, ExecError> {
        if let Some(form) = &self.partial {
            let BoundSink::Aggregate { accumulators, .. } = &self.bound.sink else {
                return Err(ExecError::Internal("groups of another sink".into()));
            };
            let states = form.convert(state.states(), accumulators);
            return state.encode(form, &states, groups);
        }
        let numbers: Vec<usize> = groups.iter().map(|&group| group as usize).collect();
        let vectors = state.keys(numbers.iter().copied())?;
        let reprs: Vec<&Repr> = state.form().keys().iter().map(|key| &key.held).collect();
        finish_groups(self.bound, (&vectors, &reprs), state.states(), &numbers)
    }
}

/// Tables in memory whose groups are to be merged by partitions: of their hashes or, where each is in order by the same key
/// column, of its values. Then most partitions are one table's alone, as a table's chunks are.
struct Held<'a> {
    level: &'a Arc<HashLevel>,
    tables: Vec<HeldTable<'a>>,
    fan_out: usize,
    /// The column, and between which values the partitions lie.
    by_value: Option<(usize, Vec<i64>)>,
    /// What the table of a partition may take.
    share_bytes: u64,
    _memory: Reservation,
}

/// Groups of a worker.
struct HeldTable<'a> {
    state: &'a HashState,
    /// Where partitions end among groups that were put aside.
    ends: Option<&'a [usize]>,
    /// The numbers of the groups in the order of partitions, and where each ends.
    order: OnceLock<(Vec<u32>, Vec<usize>)>,
}

impl<'a> HeldTable<'a> {
    /// The table of a worker and what it put aside.
    fn all_of(sink: &'a HashSink) -> impl Iterator<Item = Self> {
        let aside = sink.pieces().iter().map(|piece| (&piece.state, Some(piece.ends.as_slice())));
        let all = aside.chain([(sink.state(), None)]);
        all.map(|(state, ends)| Self { state, ends, order: OnceLock::new() })
    }
}

impl<'a> Held<'a> {
    /// `None` where there is no memory for the order of so many groups, and for a table of a partition on each thread.
    fn new(sinks: &'a [HashSink], groups: usize, threads: usize) -> Option<Self> {
        /// A number, and that of the partition.
        const ORDER_BYTES: usize = 5;
        let level = sinks.first()?.level();
        let tables: Vec<_> = sinks.iter().flat_map(HeldTable::all_of).collect();
        let by_value = values_between(&tables);
        let fan_out = match &by_value {
            Some((_, values)) => values.len() + 1,
            None if tables.iter().any(|table| table.ends.is_some()) => FAN_OUT_MAX,
            None => groups.div_ceil(PARTITION_GROUPS).next_power_of_two().min(FAN_OUT_MAX),
        };
        let account = &level.options().account;
        let mut memory = reserve(account);
        memory.hold((groups * ORDER_BYTES) as u64, "groups").ok()?;
        let free_bytes = free_bytes(account);
        // The rest is for batches on their way out.
        let share_bytes = free_bytes / 8 * 7 / threads.max(1) as u64;
        let held_bytes: u64 = sinks.iter().map(HashSink::held_bytes).sum();
        // Slots are doubled as a table grows, and partitions differ.
        let table_bytes = held_bytes / fan_out as u64 * 4;
        let held = Self { level, tables, fan_out, by_value, share_bytes, _memory: memory };
        (table_bytes <= share_bytes).then_some(held)
    }

    /// Puts the groups of a table in order.
    fn order(&self, table: usize) -> Result<(), ExecError> {
        let HeldTable { state, ends, order: place } = &self.tables[table];
        let (level, portion) = (self.level.number(), state.portion_groups());
        let hash = |groups, hashes: &mut _| state.hashes(groups, hashes);
        let order = match (&self.by_value, ends) {
            (_, Some(ends)) => ((0..state.len() as u32).collect(), ends.to_vec()),
            (Some((column, values)), None) => {
                let table = state.table();
                let (_, groups) = table.in_order().unwrap_or_default();
                let is_below = |value: i64| {
                    move |&group: &u32| table.value(*column, group as usize) < Some(value)
                };
                let below = values.iter().map(|&value| groups.partition_point(is_below(value)));
                let ends = below.chain([groups.len()]).collect();
                (groups, ends)
            }
            (None, None) => by_partition((level, self.fan_out), state.len(), portion, hash)?,
        };
        let _ = place.set(order);
        Ok(())
    }

    /// The groups of a partition, table by table.
    fn groups(&self, partition: usize) -> Result<Vec<&[u32]>, ExecError> {
        let groups = self.tables.iter().map(|table| {
            let (order, ends) = table.order.get()?;
            let start = partition.checked_sub(1).map_or(0, |before| ends[before]);
            Some(&order[start..ends[partition]])
        });
        let unordered = || ExecError::Internal("groups that were not put in order".into());
        groups.collect::<Option<_>>().ok_or_else(unordered)
    }
}

/// A key column by whose values all tables are in order, and values between which each has few groups.
fn values_between(tables: &[HeldTable<'_>]) -> Option<(usize, Vec<i64>)> {
    let tables = || tables.iter().map(|table| table.state.table()).filter(|table| table.len() > 0);
    let column = tables().next()?.order()?;
    let mut values = Vec::new();
    for table in tables() {
        let (_, groups) = table.in_order().filter(|(order, _)| *order == column)?;
        let some = groups.iter().step_by(PARTITION_GROUPS).skip(1);
        values.extend(some.filter_map(|&group| table.value(column, group as usize)));
    }
    values.sort_unstable();
    values.dedup();
    Some((column, values))
}

/// Does `work` for all items on up to `threads` threads, this one among them; stops at the
/// first error.
pub(crate) fn in_parallel<T: Send>(
    threads: usize,
    items: Vec<T>,
    work: impl Fn(T) -> Result<(), ExecError> + Sync,
) -> Result<(), ExecError> {
    let threads = threads.min(items.len());
    let items: Vec<_> = items.into_iter().map(|item| std::sync::Mutex::new(Some(item))).collect();
    let next = AtomicUsize::new(0);
    let run = || {
        while let Some(slot) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
            let item = slot.lock().ok().and_then(|mut item| item.take());
            if let Some(Err(error)) = item.map(&work) {
                next.store(items.len(), Ordering::Relaxed);
                return Err(error);
            }
        }
        Ok(())
    };
    let panicked = |_| Err(ExecError::Internal("a merging thread panicked".into()));
    let mut outcomes = on_threads(threads, run).into_iter();
    outcomes.try_for_each(|outcome| outcome.unwrap_or_else(panicked))
}
