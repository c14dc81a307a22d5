//! Hashed groups that have left their devices: partial states on the host, in memory or spilled,
//! until all are there.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::RecordBatch;
use headrace_io::Reservation;
use parking_lot::Mutex;

use crate::bound::Bound;
use crate::cpu::hash_sink::{HashLevel, HashSink, PARTITION_GROUPS_MIN};
use crate::cpu::{Emit, WorkerOptions};
use crate::cuda::groups::DeviceGroups;
use crate::error::ExecError;
use crate::memory::{Hold, reserve};
use crate::partial::PartialSchema;
use crate::partial::hash::hash_keys;
use crate::partial::merge::{Outlet, in_parallel};

/// The groups of one execution, on however many devices.
pub(super) struct GroupStates {
    bound: Arc<Bound>,
    /// The form in which they are put out, if not as results.
    partial: Option<PartialSchema>,
    options: WorkerOptions,
    /// Of the local form: devices of one process share its dictionaries.
    level: Arc<HashLevel>,
    /// Groups that came in portions too small to be divided.
    few: Mutex<HashSink>,
}

impl GroupStates {
    /// None yet.
    pub(super) fn new(bound: &Arc<Bound>, options: &WorkerOptions) -> Result<Self, ExecError> {
        let level = HashLevel::first(options.hash_options(PartialSchema::local(bound)?), 1);
        Ok(Self {
            bound: Arc::clone(bound),
            partial: PartialSchema::of_output(bound)?,
            options: options.clone(),
            few: Mutex::new(HashSink::new(&level)),
            level,
        })
    }

    /// Whether no group came so far.
    pub(super) fn is_empty(&self) -> bool {
        !self.level.has_flushed() && self.few.lock().state().len() == 0
    }

    /// Bytes of groups to bring to the host at a time, at most: an eighth of what states may take.
    pub(super) fn region_bytes_max(&self) -> u64 {
        self.options.memory.limit_bytes() / 8
    }

    /// Holds host memory for groups that are being decoded.
    pub(super) fn reserve(&self, bytes: u64) -> Result<Reservation, ExecError> {
        let mut memory = reserve(&self.options.memory);
        memory.hold(bytes, "groups on their way from a GPU")?;
        Ok(memory)
    }

    /// Counts a table that was emptied before its time.
    pub(super) fn count_flush(&self) {
        self.level.count_flush();
    }

    /// Groups that are divided among all partitions: enough for each.
    fn portion_groups(&self) -> usize {
        self.level.runs().fan_out() * PARTITION_GROUPS_MIN as usize
    }

    /// Does `work` for `0..count` portion by portion, on as many threads as there may be.
    pub(super) fn in_portions(
        &self,
        count: usize,
        work: impl Fn(Range<usize>) -> Result<(), ExecError> + Sync,
    ) -> Result<(), ExecError> {
        let portion = self.portion_groups();
        let starts = (0..count).step_by(portion);
        let portions = starts.map(|start| start..count.min(start + portion)).collect();
        in_parallel(self.options.workers, portions, |range| {
            if self.options.cancel.is_cancelled() {
                return Err(ExecError::Cancelled);
            }
            work(range)
        })
    }

    /// Takes groups in; several threads may do so.
    pub(super) fn push(&self, groups: &DeviceGroups<'_>) -> Result<(), ExecError> {
        let (bound, count) = (&*self.bound, groups.len());
        let encode = |some: &[u32]| groups.partial(bound, &self.level.options().form, some);
        if count < self.portion_groups() / 2 {
            let batch = encode(&(0..count as u32).collect::<Vec<_>>())?;
            return self.few.lock().absorb(&batch);
        }
        let hash = |range: Range<usize>, hashes: &mut Vec<u64>| {
            let (rows, keys) = (range.len(), groups.keys(bound, range)?);
            hash_keys(&keys.iter().collect::<Vec<_>>(), rows, hashes);
            Ok(())
        };
        self.level.flush().take_in(count, self.portion_groups(), hash, encode)
    }

    /// Groups that are nowhere else, as output.
    pub(super) fn finished(&self, groups: &DeviceGroups<'_>) -> Result<RecordBatch, ExecError> {
        match &self.partial {
            Some(form) => {
                let all: Vec<u32> = (0..groups.len() as u32).collect();
                groups.partial(&self.bound, form, &all)
            }
            None => groups.finish(&self.bound),
        }
    }

    /// Merges all groups and hands them out, partition by partition.
    pub(super) fn finish(self, emit: Emit<'_>) -> Result<(), ExecError> {
        let outlet = Outlet::new(&self.bound, self.partial, &self.options.cancel, emit);
        outlet.finish(vec![self.few.into_inner()], self.options.workers)
    }
}
