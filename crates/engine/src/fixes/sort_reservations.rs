//! Sorts of one plan set aside for merging no more than half of the memory, together.
//!
//! ```sql
//! SELECT x FROM t ORDER BY x  -- of three rows, in 5 MB
//! ```
//!
//! - DataFusion: Out of memory: each partition of each sort sets 10 MB aside with its first row, three sorts of a plan
//!   more than 25 MB; right is an answer.
//! - Upstream: no upstream issue known of several sorts; apache/datafusion#15675 tells of one.
//! - This can go when its canary finds the fault mended.

use std::sync::Arc;

use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::MemoryLimit;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

/// The context in which a plan runs. All its sorts together reserve at most half of the pool for merging: a sort reserves
/// with its first row, so that three small sorts with the default reservation would ask for more than the pool has.
pub fn shared(context: TaskContext, plan: &Arc<dyn ExecutionPlan>) -> TaskContext {
    let MemoryLimit::Finite(bytes) = context.memory_pool().memory_limit() else { return context };
    let sorts = sorters(plan);
    let merging = context.session_config().options().execution.sort_spill_reservation_bytes;
    let share = merging.min(bytes / 2 / sorts.max(1));
    if share == merging {
        return context;
    }
    let config = context.session_config().clone().with_sort_spill_reservation_bytes(share);
    context.with_session_config(config)
}

/// How many sorts of all rows a plan has, each partition one.
fn sorters(plan: &Arc<dyn ExecutionPlan>) -> usize {
    let own = match plan.downcast_ref::<SortExec>() {
        Some(sort) if sort.fetch().is_none() => plan.output_partitioning().partition_count(),
        _ => 0,
    };
    own + plan.children().into_iter().map(sorters).sum::<usize>()
}
