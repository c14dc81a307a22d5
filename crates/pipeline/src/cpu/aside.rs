//! Groups that left a worker's table before it outgrew the core's cache.
//!
//! A table in the cache takes a row in a fifth of the time that a large one needs. So a table that is about to outgrow the
//! cache hands its groups over, in the order of their partitions, and begins anew. Each partition is merged later in a
//! table that lies in the cache again.
//!
//! That pays while the tables have few groups in common. How many different groups there were is estimated from their
//! hashes. Where groups come again and again, the table grows instead.

use std::ops::Range;

use headrace_columns::hash::{FAN_OUT_MAX, in_order, partition};
use headrace_io::Reservation;

use crate::ExecError;
use crate::cpu::hash_state::HashState;
use crate::distinct::DistinctCount;
use crate::partial::runs::Runs;

/// Bytes of a table that lies in the cache of a core of its own.
pub const CACHE_BYTES: u64 = 2 << 20;

/// A table that is put aside has a group for so many bytes of the cache, at least: some for each partition.
const GROUP_BYTES_MAX: u64 = 1024;

/// Copies of a group among those put aside, at most, on average ..
const COPIES_MAX: f64 = 3.0;
/// .. and among those that are spilled, ..
const COPIES_SPILLED_MAX: f64 = 1.5;
/// .. and where a table of all groups takes no more than so many caches, which the cores' shared cache holds.
const FEW_COPIES_MAX: f64 = 1.25;
const FEW_CACHES: f64 = 4.0;

/// Some groups in the order of their partitions, of which there are [`FAN_OUT_MAX`].
#[derive(Debug)]
pub struct Piece {
    /// The groups, which are no more to come.
    pub state: HashState,
    /// Where each partition ends among them.
    pub ends: Vec<usize>,
}

impl Piece {
    /// The groups of a partition.
    fn partition(&self, place: usize) -> Range<usize> {
        let start = place.checked_sub(1).map_or(0, |before| self.ends[before]);
        start..self.ends[place]
    }
}

/// The groups that one table put aside.
#[derive(Debug, Default)]
pub struct Aside {
    pieces: Vec<Piece>,
    groups: usize,
    bytes: u64,
    distinct: DistinctCount,
    hashes: Vec<u64>,
    /// Too many copies: from now on the table grows.
    is_over: bool,
}

impl Aside {
    /// What was put aside.
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// Number of groups, with all copies.
    pub fn groups(&self) -> usize {
        self.groups
    }

    /// Host bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes + size_of_val::<[u64]>(&self.hashes) as u64
    }

    /// Whether a table is to be put aside before it takes in `rows` more.
    pub fn wants(&self, state: &HashState, rows: usize, cache_bytes: u64) -> bool {
        // Slots are doubled when a table grows, and there is room for as many groups again.
        !self.is_over
            && state.grows(rows)
            && state.is_worth(cache_bytes / GROUP_BYTES_MAX, cache_bytes / 2)
    }

    /// The table grows from now on.
    pub fn end(&mut self) {
        self.is_over = true;
        self.hashes = Vec::new();
    }

    /// Takes the groups of a table, which is empty then, unless too many of them were there before: tells whether.
    pub fn relieve(
        &mut self,
        state: &mut HashState,
        (level, cache_bytes): (u32, u64),
    ) -> Result<bool, ExecError> {
        state.hashes(0..state.len(), &mut self.hashes)?;
        self.distinct.add(&self.hashes);
        let groups = self.groups + state.len();
        let group_bytes = state.bytes() as f64 / state.len() as f64;
        let distinct = self.distinct.estimate();
        let are_few = distinct * group_bytes < cache_bytes as f64 * FEW_CACHES;
        let copies_max = if are_few { FEW_COPIES_MAX } else { COPIES_MAX };
        if groups as f64 > distinct * copies_max {
            self.end();
            return Ok(false);
        }
        let partitions = self.hashes.iter().map(|&hash| partition(hash, level, FAN_OUT_MAX));
        let (order, ends) = in_order(partitions, FAN_OUT_MAX);
        let mut piece = Piece { state: HashState::new(state.form().clone()), ends };
        piece.state.append(state, order.iter().map(|&group| group as usize))?;
        // What it took is kept, unless long texts took much.
        match state.bytes() > cache_bytes.saturating_mul(2) {
            true => *state = HashState::new(state.form().clone()),
            false => state.clear(),
        }
        self.bytes += piece.state.bytes() + size_of_val::<[usize]>(&piece.ends) as u64;
        self.groups = groups;
        self.pieces.push(piece);
        Ok(true)
    }
}

impl Aside {
    /// Hands all groups over to `runs`, whose lists `spare` pays for, and begins anew. What goes to a partition goes together, and copies are merged if there
    /// are many.
    pub fn flush(&mut self, runs: &Runs, spare: &mut Reservation) -> Result<(), ExecError> {
        let Self { pieces, groups, distinct, .. } = std::mem::take(self);
        let Some(first) = pieces.first() else { return Ok(()) };
        let merges = groups as f64 > distinct.estimate() * COPIES_SPILLED_MAX;
        for place in 0..runs.fan_out() {
            let mut together = HashState::new(first.state.form().clone());
            for piece in &pieces {
                // The partition of fewer is several of many.
                for fine in (place..FAN_OUT_MAX).step_by(runs.fan_out()) {
                    let groups = piece.partition(fine);
                    match merges {
                        true => together.merge_groups(&piece.state, groups)?,
                        false => together.append(&piece.state, groups)?,
                    }
                }
            }
            together.flush(runs, spare)?;
        }
        Ok(())
    }
}
