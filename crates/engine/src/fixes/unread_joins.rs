//! Nested loop joins that nobody reads end.
//!
//! ```sql
//! SELECT count(*) FROM a JOIN b ON abs(a.v - b.v) < 0  -- a million rows each; then Ctrl-C
//! ```
//!
//! - DataFusion: computes on for minutes: the join pauses when it has a batch of rows, and there is none. A stream that is
//!   dropped meanwhile goes at the next pause. Right is an end within a moment.
//! - Upstream: none known.
//! - This can go when its canary finds the fault mended.
//!
//! The condition of such a join asks before each of its batches whether anybody reads the query: with an error it stops
//! the join, which nobody hears.

use std::fmt::{Display, Formatter, Result as Written};
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{DataType, FieldRef, Schema};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Result, exec_err, internal_err};
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{NestedLoopJoinExec, NestedLoopJoinExecBuilder};

/// Those who read the rows of a query.
#[derive(Debug, Default)]
pub struct Readers {
    now: AtomicUsize,
    /// Before the first one comes, none has gone.
    began: AtomicBool,
}

impl Readers {
    /// One more, until it is dropped.
    pub fn one(self: &Arc<Self>) -> Reader {
        self.now.fetch_add(1, Ordering::AcqRel);
        self.began.store(true, Ordering::Release);
        Reader(Arc::clone(self))
    }

    fn have_gone(&self) -> bool {
        self.began.load(Ordering::Acquire) && self.now.load(Ordering::Acquire) == 0
    }
}

/// Somebody who reads.
#[derive(Debug)]
pub struct Reader(Arc<Readers>);

impl Drop for Reader {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A plan whose nested loop joins end when its readers have gone.
///
/// # Errors
/// The planner's, of a join that it has made itself.
pub fn watched(
    plan: Arc<dyn ExecutionPlan>,
    readers: &Arc<Readers>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let watched = |plan: Arc<dyn ExecutionPlan>| {
        let Some(join) = plan.downcast_ref::<NestedLoopJoinExec>() else {
            return Ok(Transformed::no(plan));
        };
        let Some(filter) = join.filter() else { return Ok(Transformed::no(plan)) };
        let condition =
            Watched { inner: Arc::clone(filter.expression()), readers: Arc::clone(readers) };
        let columns = filter.column_indices().to_vec();
        let filter = JoinFilter::new(Arc::new(condition), columns, Arc::clone(filter.schema()));
        let join = NestedLoopJoinExecBuilder::from(join).with_filter(Some(filter)).build()?;
        Ok(Transformed::yes(Arc::new(join) as Arc<dyn ExecutionPlan>))
    };
    plan.transform_up(watched).map(|plan| plan.data)
}

/// A condition that fails once nobody reads.
#[derive(Debug)]
struct Watched {
    inner: Arc<dyn PhysicalExpr>,
    readers: Arc<Readers>,
}

impl Display for Watched {
    fn fmt(&self, f: &mut Formatter<'_>) -> Written {
        self.inner.fmt(f)
    }
}

impl PartialEq for Watched {
    fn eq(&self, other: &Self) -> bool {
        self.inner.eq(&other.inner) && Arc::ptr_eq(&self.readers, &other.readers)
    }
}

impl Eq for Watched {}

impl Hash for Watched {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inner.hash(state);
    }
}

impl PhysicalExpr for Watched {
    fn data_type(&self, input: &Schema) -> Result<DataType> {
        self.inner.data_type(input)
    }

    fn nullable(&self, input: &Schema) -> Result<bool> {
        self.inner.nullable(input)
    }

    fn return_field(&self, input: &Schema) -> Result<FieldRef> {
        self.inner.return_field(input)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        match self.readers.have_gone() {
            true => exec_err!("nobody reads this any more"),
            false => self.inner.evaluate(batch),
        }
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.inner]
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        match (children.pop(), children.pop()) {
            (Some(inner), None) => Ok(Arc::new(Self { inner, readers: Arc::clone(&self.readers) })),
            _ => internal_err!("a watched condition is one"),
        }
    }

    fn fmt_sql(&self, f: &mut Formatter<'_>) -> Written {
        self.inner.fmt_sql(f)
    }
}
