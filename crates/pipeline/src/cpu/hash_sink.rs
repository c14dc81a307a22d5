//! A table of groups that flushes when its share of memory is full.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow_array::RecordBatch;
use headrace_columns::hash::{FAN_OUT_MAX, LEVELS};
use headrace_columns::memory::{Hold, reserve};
use headrace_io::{MemoryBudget, Reservation};

use crate::ExecError;
use crate::bound::{Accumulator, BoundKey};
use crate::cpu::aside::{Aside, Piece};
use crate::cpu::context::Context;
use crate::cpu::group_table::GroupTable;
use crate::cpu::hash_state::HashState;
use crate::partial::PartialSchema;
use crate::partial::runs::Runs;
use crate::partial::spill::SpillPlace;

/// Groups that a flushed partition shall have at least: a batch of fewer costs more to frame
/// than to hold.
pub const PARTITION_GROUPS_MIN: u64 = 512;
/// A worker's share of memory has room for so many tables in the cache, if they are put aside.
const CACHES_MIN: u64 = 8;
/// A table holds no more than this share of the account ahead of what it takes.
const AHEAD_SHARE: u64 = 1024;
/// Fewest partitions of a level.
const FAN_OUT_MIN: u64 = 4;

/// What an execution groups with.
#[derive(Clone, Debug)]
pub struct HashOptions {
    /// How keys and values are held.
    pub form: PartialSchema,
    /// Pays for everything.
    pub account: Arc<MemoryBudget>,
    /// Where groups go that do not fit.
    pub place: SpillPlace,
    /// Groups of a table that are flushed whatever they take; tests set it.
    pub groups_max: usize,
    /// Bytes of a worker's table that lies in its core's cache.
    pub cache_bytes: u64,
}

/// What the tables of one level share.
#[derive(Debug)]
pub struct HashLevel {
    options: HashOptions,
    /// Bytes of one table.
    share_bytes: u64,
    level: u32,
    runs: Runs,
    flushed: AtomicBool,
}

impl HashLevel {
    /// The level of `workers` tables that grow at the same time. Half of the account is theirs,
    /// an eighth is for flushed groups, and what is left for the list of those in files and
    /// what happens in between.
    pub fn first(options: HashOptions, workers: usize) -> Arc<Self> {
        let bytes = options.account.limit_bytes();
        let share_bytes = match options.place.folder {
            Some(_) => bytes / 2 / workers.max(1) as u64,
            // There is no place to flush to but memory itself.
            None => u64::MAX,
        };
        Self::new(options, share_bytes, bytes / 8, 0)
    }

    /// The level of a partition's partitions, whose table may take `share_bytes`.
    pub fn below(&self, share_bytes: u64) -> Arc<Self> {
        let share = if self.options.place.folder.is_some() { share_bytes } else { u64::MAX };
        Self::new(self.options.clone(), share, 0, self.level + 1)
    }

    fn new(options: HashOptions, share_bytes: u64, kept_bytes: u64, level: u32) -> Arc<Self> {
        let group_bytes = HashState::new(options.form.clone()).group_bytes();
        let groups = (share_bytes / group_bytes).min(options.groups_max as u64);
        let fan_out = (groups / PARTITION_GROUPS_MIN).clamp(FAN_OUT_MIN, FAN_OUT_MAX as u64);
        let runs = Runs::new(
            (level, fan_out.next_power_of_two() as usize),
            Arc::clone(options.form.arrow()),
            &options.account,
            kept_bytes,
            options.place.clone(),
        );
        Arc::new(Self { options, share_bytes, level, runs, flushed: AtomicBool::new(false) })
    }

    /// What was flushed.
    pub fn runs(&self) -> &Runs {
        &self.runs
    }

    /// Where groups are put that leave their table.
    pub fn flush(&self) -> &Runs {
        self.flushed.store(true, Ordering::Relaxed);
        &self.runs
    }

    /// Counts a table that was emptied before its time.
    pub fn count_flush(&self) {
        self.options.place.report.flushed(self.level);
    }

    /// The number of the level.
    pub fn number(&self) -> u32 {
        self.level
    }

    /// Whether anything was flushed.
    pub fn has_flushed(&self) -> bool {
        self.flushed.load(Ordering::Relaxed)
    }

    /// What it groups with.
    pub fn options(&self) -> &HashOptions {
        &self.options
    }

    /// Whether groups can be flushed: below the last level no bits of a hash are left.
    fn can_flush(&self) -> bool {
        self.level < LEVELS && self.options.place.folder.is_some()
    }
}

/// One table.
#[derive(Debug)]
pub struct HashSink {
    level: Arc<HashLevel>,
    state: HashState,
    /// Groups that were put aside before the table outgrew the cache.
    aside: Aside,
    memory: Reservation,
}

impl HashSink {
    /// No groups.
    pub fn new(level: &Arc<HashLevel>) -> Self {
        let options = &level.options;
        let (state, memory) = (HashState::new(options.form.clone()), reserve(&options.account));
        Self { level: Arc::clone(level), state, aside: Aside::default(), memory }
    }

    /// The level of the table.
    pub fn level(&self) -> &Arc<HashLevel> {
        &self.level
    }

    /// The table's groups: what has neither been flushed nor put aside.
    pub fn state(&self) -> &HashState {
        &self.state
    }

    /// Groups that were put aside.
    pub fn pieces(&self) -> &[Piece] {
        self.aside.pieces()
    }

    /// Groups that have not been flushed, with all copies.
    pub fn groups(&self) -> usize {
        self.state.len() + self.aside.groups()
    }

    /// Makes room for so many groups of other tables at once, if there is memory for it.
    pub fn expect(&mut self, groups: usize) -> Result<(), ExecError> {
        let bytes = self.bytes() + GroupTable::slots_bytes(groups);
        let fits = bytes <= self.level.share_bytes && self.memory.hold(bytes, "groups").is_ok();
        if fits { self.state.expect(groups) } else { Ok(()) }
    }

    /// Host bytes that it holds.
    pub fn held_bytes(&self) -> u64 {
        self.memory.bytes()
    }

    /// Folds in the current rows.
    pub fn consume<'a>(
        &mut self,
        context: &mut Context<'a>,
        keys: &'a [BoundKey],
        accumulators: &'a [Accumulator],
    ) -> Result<(), ExecError> {
        self.make_room(context.rows())?;
        self.state.consume(context, keys, accumulators)?;
        self.account()
    }

    /// Folds in partial states.
    pub fn absorb(&mut self, batch: &RecordBatch) -> Result<(), ExecError> {
        self.make_room(batch.num_rows())?;
        self.state.absorb(batch)?;
        self.account()
    }

    /// Folds in the groups of another table that put none aside.
    pub fn merge(&mut self, other: &HashSink) -> Result<(), ExecError> {
        assert!(other.pieces().is_empty(), "groups put aside are merged by partitions");
        self.state.merge(&other.state)?;
        self.account()
    }

    /// Folds in some groups of another table.
    pub fn merge_some(&mut self, other: &HashState, groups: &[u32]) -> Result<(), ExecError> {
        self.make_room(groups.len())?;
        self.state.merge_some(other, groups)?;
        self.account()
    }

    /// Makes sure that there is a group where there are no keys.
    pub fn keep_one_without_keys(&mut self) -> Result<(), ExecError> {
        self.state.keep_one_without_keys()
    }

    /// Hands all groups over to the level.
    pub fn flush(&mut self) -> Result<(), ExecError> {
        let runs = self.level.flush();
        let mut spare = self.memory.split(self.listed_bytes());
        self.aside.flush(runs, &mut spare)?;
        self.state.flush(runs, &mut spare)
    }

    fn flush_early(&mut self) -> Result<(), ExecError> {
        self.level.count_flush();
        self.flush()
    }

    /// With what the lists of its flush will take: it comes when memory is full.
    fn bytes(&self) -> u64 {
        self.state.bytes() + self.aside.bytes() + self.listed_bytes()
    }

    fn listed_bytes(&self) -> u64 {
        let runs = self.level.runs();
        let listed_bytes = |groups, portion| runs.listed_bytes(groups, portion);
        let aside = self.aside.groups();
        // What was put aside is flushed partition by partition, in portions of its own.
        let portion = self.state.portion_groups();
        if aside == 0 {
            listed_bytes(self.state.len(), portion)
        } else {
            2 * listed_bytes(self.groups(), portion)
        }
    }

    fn make_room(&mut self, rows: usize) -> Result<(), ExecError> {
        let wanted = self.bytes().saturating_add(self.state.growth_bytes(rows));
        let full =
            wanted > self.level.share_bytes || self.groups() >= self.level.options.groups_max;
        if full && self.groups() > 0 && self.level.can_flush() {
            return self.flush_early();
        }
        self.put_aside(rows)
    }

    /// Puts the table's groups aside, if they are to be before it takes in more.
    fn put_aside(&mut self, rows: usize) -> Result<(), ExecError> {
        let HashOptions { cache_bytes, ref place, .. } = self.level.options;
        // The tables of partitions are small as they are, and where memory is short, so are others when they are spilled.
        let is_small = self.level.level > 0 || self.level.share_bytes / CACHES_MIN < cache_bytes;
        if is_small || !self.aside.wants(&self.state, rows, cache_bytes) {
            return Ok(());
        }
        // They are there twice for a moment.
        if self.memory.hold(self.bytes() + self.state.bytes(), "groups").is_err() {
            self.aside.end();
        } else if self.aside.relieve(&mut self.state, (self.level.level, cache_bytes))? {
            place.report.count_put_aside();
        }
        Ok(())
    }

    /// Brings the account up to date; flushes if that has not as much, or the table more than its share.
    fn account(&mut self) -> Result<(), ExecError> {
        let can_flush = self.groups() > 0 && self.level.can_flush();
        // More than its share would be taken of the others', who may have nothing to flush then.
        let is_over = can_flush && self.bytes() > self.level.share_bytes;
        if !is_over && self.hold_ahead() {
            return Ok(());
        }
        if !is_over {
            let held = self.memory.hold(self.bytes(), "groups");
            if held.is_ok() || !can_flush {
                return Ok(held?);
            }
        }
        self.flush_early()?;
        let fits = self.bytes() <= self.level.share_bytes;
        if !fits || self.memory.hold(self.bytes(), "groups").is_err() {
            // A batch made it larger than there is memory, and it keeps its room: it begins anew.
            self.state = HashState::new(self.level.options.form.clone());
        }
        Ok(self.memory.hold(self.bytes(), "groups")?)
    }

    /// Whether it has memory for its bytes, and for some more to come: all threads share the account, which they
    /// are not to ask for each few groups.
    fn hold_ahead(&mut self) -> bool {
        let (bytes, held) = (self.bytes(), self.memory.bytes());
        let ahead = (bytes / 8).min(self.level.options.account.limit_bytes() / AHEAD_SHARE);
        let is_held = (bytes..=bytes + ahead).contains(&held);
        is_held || self.memory.hold(bytes + ahead, "groups").is_ok()
    }
}
