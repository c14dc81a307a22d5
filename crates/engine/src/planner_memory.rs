//! The planner's own operators under a memory limit.
//!
//! DataFusion's defaults are made for gigabytes: each partition of a sort sets 10 MiB aside for
//! merging, whoever asks first gets all the memory, and a sort cannot take in a batch that alone is
//! larger than what is left. Under a limit partitions, reservations and batches follow from it.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayData, ArrayRef, MAX_INLINE_VIEW_LEN, UInt32Array};
use datafusion::arrow::compute::take_record_batch;
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::common::config::{ConfigNonZeroUsize, ConfigOptions};
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{
    FairSpillPool, MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation,
};
use futures::{Stream, StreamExt};
use headrace_io::{MemoryBudget, MemoryUse, OutOfBudget, Reservation};
use parking_lot::Mutex;

pub use crate::fixes::sort_reservations::shared;

/// A partition has at least so much: sorts of several partitions set memory aside one after the
/// other, and the last one finds what the first have left.
const PARTITION_BYTES_MIN: usize = 64 << 20;
/// A batch takes at most one part in so many of what a partition has: two spill files merge in half of it.
const BATCHES_A_PARTITION: usize = 16;
/// Operators that cannot spill have one part in so many of the memory to themselves: those that can would take all.
const UNSPILLABLE_SHARE: usize = 8;
/// Of rows of which nothing is known.
const ROW_BYTES: usize = 512;
/// No smaller batches, as long as they take no more than a quarter of what a partition has: each has its price.
const BATCH_ROWS_MIN: usize = 128;

/// Lets operators share `bytes` of a budget, and sets their options accordingly.
///
/// # Errors
/// None that an option can cause here.
pub fn limited(
    options: &mut ConfigOptions,
    budget: &Arc<MemoryBudget>,
    bytes: usize,
) -> Result<Arc<dyn MemoryPool>> {
    let execution = &mut options.execution;
    let partitions_max = (bytes / PARTITION_BYTES_MIN).max(1);
    execution.target_partitions = execution.target_partitions.min(partitions_max);
    let share = bytes / execution.target_partitions.max(1);
    let rows = rows_at_once(share, ROW_BYTES, execution.batch_size.get());
    execution.batch_size = ConfigNonZeroUsize::try_new(rows)?;
    let merging = &mut execution.sort_spill_reservation_bytes;
    *merging = (*merging).min(share / 2);
    let in_place = &mut execution.sort_in_place_threshold_bytes;
    *in_place = (*in_place).min(share / 8);
    let held = Mutex::new(budget.reserve_nothing(MemoryUse::Planner));
    let budget = Arc::clone(budget);
    let pool = FairSpillPool::new(bytes - bytes / UNSPILLABLE_SHARE);
    Ok(Arc::new(BudgetPool { pool, bytes, budget, held }))
}

/// The budget that the planner's operators have a share of; `None`: no limit.
pub fn budget_of(pool: &Arc<dyn MemoryPool>) -> Option<Arc<MemoryBudget>> {
    pool.downcast_ref::<BudgetPool>().map(|pool| Arc::clone(&pool.budget))
}

/// How many rows of so many bytes make a batch where a partition has `share` bytes.
pub fn rows_at_once(share: usize, row_bytes: usize, rows_max: usize) -> usize {
    let row_bytes = row_bytes.max(ROW_BYTES);
    let rows_min = BATCH_ROWS_MIN.min(share / 4 / row_bytes).max(1);
    (share / BATCHES_A_PARTITION / row_bytes).max(rows_min).min(rows_max)
}

/// A share of a budget that others use too: what operators hold is reserved there, and what they
/// ask for makes caches give way first.
#[derive(Debug)]
struct BudgetPool {
    /// What those that can spill share fairly.
    pool: FairSpillPool,
    /// What all share.
    bytes: usize,
    budget: Arc<MemoryBudget>,
    held: Mutex<Reservation>,
}

impl BudgetPool {
    /// Gives an operator that cannot spill what those that can must leave; whether there is so much.
    fn take_left(&self, reservation: &MemoryReservation, additional: usize) -> bool {
        let _alone = self.held.lock();
        let is_left = !reservation.consumer().can_spill()
            && self.pool.reserved().saturating_add(additional) <= self.bytes;
        if is_left {
            self.pool.grow(reservation, additional);
        }
        is_left
    }

    /// Reserves what operators hold by now.
    fn settle(&self) -> std::result::Result<(), OutOfBudget> {
        let mut held = self.held.lock();
        held.resize(self.pool.reserved() as u64)
    }
}

/// The error for an operator whose request is refused. Operators that can spill do so when they get it.
fn exhausted(operator: &str, (more, held): (usize, usize), limit: usize) -> DataFusionError {
    let [more, held, limit] = [more, held, limit].map(|bytes| bytes as f64 / 1e6);
    DataFusionError::ResourcesExhausted(format!(
        "out of host memory: {operator} needs {more:.1} MB beside the {held:.1} MB that it holds, of the {limit:.1} MB that \
         the planner's operators share\nhint: raise the memory limit, or ask for fewer rows at once"
    ))
}

impl fmt::Display for BudgetPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pool.fmt(f)
    }
}

impl MemoryPool for BudgetPool {
    fn name(&self) -> &str {
        self.pool.name()
    }

    fn register(&self, consumer: &MemoryConsumer) {
        self.pool.register(consumer);
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        self.pool.unregister(consumer);
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.pool.grow(reservation, additional);
        // An operator that does not ask cannot be refused; the next that does is, if need be.
        self.settle().ok();
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.pool.shrink(reservation, shrink);
        self.settle().ok();
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        let held = reservation.size();
        match self.pool.try_grow(reservation, additional) {
            Err(DataFusionError::ResourcesExhausted(_))
                if self.take_left(reservation, additional) => {}
            Err(DataFusionError::ResourcesExhausted(_)) => {
                let name = reservation.consumer().name();
                return Err(exhausted(name, (additional, held), self.bytes));
            }
            other => other?,
        }
        self.settle().map_err(|refused| {
            self.pool.shrink(reservation, additional);
            DataFusionError::ResourcesExhausted(refused.to_string())
        })
    }

    fn reserved(&self) -> usize {
        self.pool.reserved()
    }

    fn memory_limit(&self) -> MemoryLimit {
        MemoryLimit::Finite(self.bytes)
    }
}

/// Bytes of a batch's own rows: it may be a slice of something larger, a mapped file for one.
///
/// # Errors
/// Rows of more bytes than a number can tell.
pub fn batch_bytes(batch: &RecordBatch) -> Result<usize> {
    let column = |column: &ArrayRef| {
        let data = column.to_data();
        Ok(data.get_slice_memory_size()? + viewed_bytes(&data))
    };
    batch.columns().iter().map(column).sum()
}

/// Bytes that views of texts and bytes point to; short ones are in the view itself.
pub fn viewed_bytes(data: &ArrayData) -> usize {
    let own = match data.data_type() {
        DataType::Utf8View | DataType::BinaryView => {
            let views = data.buffer::<u128>(0)[..data.len()].iter();
            views
                .map(|&view| view as u32)
                .filter(|&bytes| bytes > MAX_INLINE_VIEW_LEN)
                .map(|bytes| bytes as usize)
                .sum()
        }
        _ => 0,
    };
    own + data.child_data().iter().map(viewed_bytes).sum::<usize>()
}

/// Bytes of a batch, about, so that operators can hold some of them.
pub fn bytes_at_once(context: &TaskContext) -> usize {
    match context.memory_pool().memory_limit() {
        MemoryLimit::Finite(bytes) => {
            let partitions = context.session_config().target_partitions().max(1);
            (bytes / partitions / BATCHES_A_PARTITION).max(1)
        }
        _ => usize::MAX,
    }
}

/// Batches as the operators above can take them: under a limit, of no more rows than the session's
/// batches have, and of fewer where these are wide. Pieces are copies, because a slice counts as all that it was cut from.
pub fn in_pieces<S: Stream<Item = Result<RecordBatch>> + Send>(
    batches: S,
    context: &TaskContext,
) -> impl Stream<Item = Result<RecordBatch>> + Send + use<S> {
    let rows_max = match context.memory_pool().memory_limit() {
        MemoryLimit::Finite(_) => context.session_config().batch_size(),
        _ => usize::MAX,
    };
    cut(batches, rows_max, bytes_at_once(context))
}

/// Batches of no more than so many rows, the same way.
pub fn pieces<S: Stream<Item = Result<RecordBatch>> + Send>(
    batches: S,
    rows_max: usize,
) -> impl Stream<Item = Result<RecordBatch>> + Send + use<S> {
    cut(batches, rows_max, usize::MAX)
}

fn cut<S: Stream<Item = Result<RecordBatch>> + Send>(
    batches: S,
    rows_max: usize,
    bytes_max: usize,
) -> impl Stream<Item = Result<RecordBatch>> + Send + use<S> {
    let pieces = move |batch: RecordBatch| {
        let bytes = if bytes_max == usize::MAX { 0 } else { batch_bytes(&batch)? };
        let rows_max = if bytes <= bytes_max {
            rows_max
        } else {
            let row_bytes = bytes.div_ceil(batch.num_rows().max(1));
            rows_max.min(bytes_max / row_bytes.max(1)).max(1)
        };
        Ok(Pieces { batch, rows_max, start: 0 })
    };
    batches.flat_map(move |batch| match batch.and_then(pieces) {
        Ok(pieces) => futures::stream::iter(pieces).left_stream(),
        Err(error) => futures::stream::iter([Err(error)]).right_stream(),
    })
}

/// What is left of a batch.
struct Pieces {
    batch: RecordBatch,
    rows_max: usize,
    start: usize,
}

impl Iterator for Pieces {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let rows = self.batch.num_rows();
        if rows <= self.rows_max {
            let whole = (self.start == 0).then(|| self.batch.clone());
            self.start = 1;
            return whole.map(Ok);
        }
        let end = self.start.saturating_add(self.rows_max).min(rows);
        if self.start == end {
            return None;
        }
        let (start, schema) = (std::mem::replace(&mut self.start, end), self.batch.schema());
        if schema.fields().is_empty() {
            // Rows without columns are only counted.
            let options = RecordBatchOptions::new().with_row_count(Some(end - start));
            let piece = RecordBatch::try_new_with_options(schema, Vec::new(), &options);
            return Some(piece.map_err(Into::into));
        }
        let indices = UInt32Array::from_iter_values(start as u32..end as u32);
        Some(take_record_batch(&self.batch, &indices).map_err(Into::into))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use datafusion::arrow::array::{Int32Array, StringArray, StringViewArray};

    use super::*;

    fn pieces(rows: i32, rows_max: usize) -> Vec<usize> {
        let column: ArrayRef = Arc::new(Int32Array::from_iter_values(0..rows));
        let batch = RecordBatch::try_from_iter([("n", column)]).unwrap();
        let pieces = Pieces { batch: batch.clone(), rows_max, start: 0 };
        let pieces = pieces.collect::<Result<Vec<_>>>().unwrap();
        let schema = batch.schema();
        assert_eq!(datafusion::arrow::compute::concat_batches(&schema, &pieces).unwrap(), batch);
        pieces.iter().map(RecordBatch::num_rows).collect()
    }

    #[test]
    fn a_batch_is_cut_into_no_more_than_what_is_asked_for() {
        assert_eq!(pieces(10, 4), [4, 4, 2]);
        assert_eq!(pieces(8, 4), [4, 4]);
        assert_eq!(pieces(3, 4), [3]);
        assert_eq!(pieces(0, 4), [0]);
        assert_eq!(pieces(5, usize::MAX), [5]);
    }

    #[test]
    fn rows_without_columns_are_cut_as_others_are() {
        let options = RecordBatchOptions::new().with_row_count(Some(10));
        let schema = Arc::new(datafusion::arrow::datatypes::Schema::empty());
        let batch = RecordBatch::try_new_with_options(schema, vec![], &options).unwrap();
        let pieces = Pieces { batch, rows_max: 4, start: 0 };
        let rows = pieces.map(|piece| piece.unwrap().num_rows());
        assert_eq!(rows.collect::<Vec<_>>(), [4, 4, 2]);
    }

    #[test]
    fn a_batch_has_the_bytes_of_its_own_rows() {
        let texts = ["x".repeat(1000), "short".to_string(), "y".repeat(500)];
        let bytes = |column: ArrayRef| {
            let batch = RecordBatch::try_from_iter([("t", column)]).unwrap();
            (batch_bytes(&batch).unwrap(), batch_bytes(&batch.slice(1, 1)).unwrap())
        };
        assert_eq!(bytes(Arc::new(StringArray::from_iter_values(&texts))), (16 + 1505, 8 + 5));
        let views = StringViewArray::from_iter_values(&texts);
        assert_eq!(bytes(Arc::new(views)), (48 + 1500, 16));
    }

    #[test]
    fn operators_share_one_budget_with_all_others() {
        let (mut options, budget) = (ConfigOptions::new(), MemoryBudget::new(100));
        let pool = limited(&mut options, &budget, 60).unwrap();
        let sort = MemoryConsumer::new("sort").register(&pool);
        sort.try_grow(50).unwrap();
        assert!(sort.try_grow(20).is_err(), "more than the operators' share");
        assert_eq!(budget.uses().of(MemoryUse::Planner), 50);
        let groups = budget.reserve(MemoryUse::Pipelines, 45).unwrap();
        let refused = sort.try_grow(10).unwrap_err().to_string();
        assert!(refused.contains("pipelines 0.0 MB") && refused.contains("planner"), "{refused}");
        assert_eq!((sort.size(), budget.uses().of(MemoryUse::Planner)), (50, 50));
        drop(groups);
        sort.try_grow(10).unwrap();
        sort.grow(30);
        drop(sort);
        assert_eq!(budget.uses().total_bytes(), 0);
    }

    #[test]
    fn the_wider_rows_are_the_fewer_make_a_batch() {
        let rows = |row_bytes| rows_at_once(16 << 20, row_bytes, 8192);
        assert_eq!([rows(0), rows(512), rows(1 << 10)], [2048, 2048, 1024]);
        assert_eq!([rows(16 << 10), rows(1 << 20), rows(1 << 30)], [128, 4, 1]);
        assert_eq!(rows_at_once(1 << 30, 1 << 10, 8192), 8192);
    }

    #[test]
    fn what_all_partitions_set_aside_is_half_of_the_limit_at_most() {
        for megabytes in [1, 2, 16, 64, 4096] {
            let mut options = ConfigOptions::new();
            options.execution.target_partitions = 16;
            let budget = MemoryBudget::new((megabytes << 20) as u64);
            limited(&mut options, &budget, megabytes << 20).unwrap();
            let execution = &options.execution;
            let aside = execution.target_partitions * execution.sort_spill_reservation_bytes;
            assert!(aside <= megabytes << 19, "{megabytes} MiB: {aside} bytes");
            let rows = execution.batch_size.get();
            assert!((BATCH_ROWS_MIN..=8192).contains(&rows), "{megabytes} MiB: {rows} rows");
        }
    }
}
