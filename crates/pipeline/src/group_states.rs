//! Hashed groups that another processor made: partial states on the host, in memory or spilled,
//! until all are there.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::RecordBatch;
use headrace_columns::hash::hash_keys;
use headrace_columns::memory::{Hold, reserve};
use headrace_columns::repr::Repr;
use headrace_columns::vector::Vector;
use headrace_io::Reservation;
use parking_lot::Mutex;

use crate::ExecError;
use crate::bound::{Bound, BoundSink};
use crate::cpu::hash_sink::{HashLevel, HashSink, PARTITION_GROUPS_MIN};
use crate::cpu::{Emit, WorkerOptions};
use crate::partial::PartialSchema;
use crate::partial::merge::{Outlet, in_parallel};
use crate::state::{AccumulatorState, finish_groups};

/// Some groups of an aggregation as a processor left them.
pub trait MadeGroups {
    /// How many there are.
    fn count(&self) -> usize;

    /// The keys of some of them, a vector a key, whose values are held as the key's [`Repr`] says.
    ///
    /// # Errors
    /// Values that are none.
    fn keys(
        &self,
        bound: &Bound,
        groups: impl ExactSizeIterator<Item = usize> + Clone,
    ) -> Result<Vec<Vector<'_>>, ExecError>;

    /// The running values of all of them, one state an accumulator of the sink.
    fn states(&self) -> &[AccumulatorState];
}

/// The groups of one execution, on however many devices.
pub struct GroupStates {
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
    /// None yet. They are held, spilled and merged as `options` say, whose report counts them.
    ///
    /// # Errors
    /// [`ExecError::Internal`] for a pipeline that does not aggregate.
    pub fn new(bound: &Arc<Bound>, options: &WorkerOptions) -> Result<Self, ExecError> {
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
    pub fn is_empty(&self) -> bool {
        !self.level.has_flushed() && self.few.lock().groups() == 0
    }

    /// Bytes of groups to bring to the host at a time, at most: an eighth of what states may take.
    pub fn region_bytes_max(&self) -> u64 {
        self.options.memory.limit_bytes() / 8
    }

    /// Holds host memory for groups that come. `what` they are is what the error says.
    ///
    /// # Errors
    /// [`headrace_columns::ColumnError::Memory`].
    pub fn reserve(&self, bytes: u64, what: &str) -> Result<Reservation, ExecError> {
        let mut memory = reserve(&self.options.memory);
        memory.hold(bytes, what)?;
        Ok(memory)
    }

    /// Counts a table that was emptied before its time.
    pub fn count_flush(&self) {
        self.level.count_flush();
    }

    /// Groups that are divided among all partitions: enough for each.
    fn portion_groups(&self) -> usize {
        self.level.runs().fan_out() * PARTITION_GROUPS_MIN as usize
    }

    /// Does `work` for `0..count` portion by portion, on as many threads as there may be.
    ///
    /// # Errors
    /// Those of `work`, [`ExecError::Cancelled`].
    pub fn in_portions(
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
    ///
    /// # Errors
    /// Memory, the spill store, keys that are none.
    pub fn push(&self, groups: &impl MadeGroups) -> Result<(), ExecError> {
        let (bound, count) = (&*self.bound, groups.count());
        let encode = |some: &[u32]| partial(bound, groups, &self.level.options().form, some);
        if count < self.portion_groups() / 2 {
            let batch = encode(&(0..count as u32).collect::<Vec<_>>())?;
            return self.few.lock().absorb(&batch);
        }
        let hash = |range: Range<usize>, hashes: &mut Vec<u64>| {
            let (rows, keys) = (range.len(), groups.keys(bound, range)?);
            hash_keys(&keys.iter().collect::<Vec<_>>(), rows, hashes);
            Ok(())
        };
        let mut spare = reserve(&self.level.options().account);
        self.level.flush().take_in(count, self.portion_groups(), hash, encode, &mut spare)
    }

    /// Groups that are nowhere else, as output.
    ///
    /// # Errors
    /// Totals that overflow, keys that are none.
    pub fn finished(&self, groups: &impl MadeGroups) -> Result<RecordBatch, ExecError> {
        match &self.partial {
            Some(form) => {
                let all: Vec<u32> = (0..groups.count() as u32).collect();
                partial(&self.bound, groups, form, &all)
            }
            None => finished(&self.bound, groups),
        }
    }

    /// Merges all groups and hands them out, partition by partition.
    ///
    /// # Errors
    /// Totals that overflow, memory, the spill store, [`ExecError::Cancelled`].
    pub fn finish(self, emit: Emit<'_>) -> Result<(), ExecError> {
        let outlet = Outlet::new(&self.bound, self.partial, &self.options.cancel, emit);
        outlet.finish(vec![self.few.into_inner()], self.options.workers)
    }
}

/// Some groups as partial states; `form` is of the bound pipeline.
fn partial(
    bound: &Bound,
    made: &impl MadeGroups,
    form: &PartialSchema,
    groups: &[u32],
) -> Result<RecordBatch, ExecError> {
    let BoundSink::Aggregate { keys, accumulators, .. } = &bound.sink else {
        return Err(another_sink());
    };
    let vectors = made.keys(bound, groups.iter().map(|&group| group as usize))?;
    let reprs: Vec<&Repr> = keys.iter().map(|key| &key.expr.repr).collect();
    form.encode(&vectors, &reprs, &form.convert(made.states(), accumulators), groups)
}

/// All groups as output: keys, then calls.
fn finished(bound: &Bound, made: &impl MadeGroups) -> Result<RecordBatch, ExecError> {
    let BoundSink::Aggregate { keys, .. } = &bound.sink else { return Err(another_sink()) };
    let groups: Vec<usize> = (0..made.count()).collect();
    let vectors = made.keys(bound, 0..made.count())?;
    let reprs: Vec<&Repr> = keys.iter().map(|key| &key.expr.repr).collect();
    finish_groups(bound, (&vectors, &reprs), made.states(), &groups)
}

fn another_sink() -> ExecError {
    ExecError::Internal("groups of another sink".into())
}
