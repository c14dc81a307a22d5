//! Rows that are known to be wide before they are made.
//!
//! ```sql
//! SELECT value, repeat('x', 1000000) FROM generate_series(1, 8192)
//! ```
//!
//! - DataFusion: Batches of 8192 rows however wide they are, here 8 GB that are not reserved; right is as many rows as
//!   there is room for.
//! - Upstream: no upstream issue known.
//! - This can go when its canary finds the fault mended.
//!
//! The planner's operators take so many rows at a time, whatever a row holds: of a constant of 1 MB they make a column of
//! thousands of such texts, and rows of texts of 1 MB each they gather by the thousand. How wide the rows of a plan are is told by its
//! constants and by what its tables say of themselves; where they are wide, the plan runs by so few rows at a time
//! that a batch of them stays small.
//!
//! DataFusion's operators count rows, not bytes.

use std::fmt;
use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, internal_err};
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfig};
use datafusion::datasource::source::DataSourceExec;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::memory::LazyMemoryExec;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};

use crate::catalog::TextInput;
use crate::explain::is_explained;
use crate::planner_memory::{pieces, rows_at_once};

/// Constants of fewer bytes are part of any row.
const CONSTANT_BYTES_MIN: usize = 1 << 10;

/// Without a limit batches are as large as where the planner has so much for each partition.
const UNLIMITED_BYTES: u64 = 1 << 30;

/// The rule. It comes last.
#[derive(Debug)]
pub struct WideRows {
    /// For all partitions.
    planner_bytes: Option<u64>,
}

impl WideRows {
    /// For operators that have so many bytes together; `None`: no limit.
    pub fn new(planner_bytes: Option<u64>) -> Self {
        Self { planner_bytes }
    }

    /// What a partition has.
    fn share(&self, config: &ConfigOptions) -> usize {
        let partitions = config.execution.target_partitions.max(1) as u64;
        let bytes = self.planner_bytes.map_or(UNLIMITED_BYTES, |bytes| bytes / partitions);
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }
}

impl PhysicalOptimizerRule for WideRows {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if is_explained(plan.as_ref()) {
            // Whoever runs it asks whether it is one.
            let children = plan.children().into_iter().cloned();
            let children = children.map(|child| self.optimize(child, config));
            let children = children.collect::<Result<_>>()?;
            let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
            return plan.replace_children(children, options);
        }
        let rows_max = config.execution.batch_size.get();
        let rows = rows_at_once(self.share(config), row_bytes(&plan)?, rows_max);
        // A little fewer change nothing.
        if rows > rows_max / 2 {
            return Ok(plan);
        }
        let plan = plan.transform_up(|node| by_few_rows(node, rows))?.data;
        Ok(Arc::new(FewRowsExec { input: plan, rows }))
    }

    fn name(&self) -> &str {
        "headrace_wide_rows"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Nodes that were told how many rows they take while they were planned.
fn by_few_rows(
    node: Arc<dyn ExecutionPlan>,
    rows: usize,
) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
    if let Some(filter) = node.downcast_ref::<FilterExec>() {
        return Ok(Transformed::yes(Arc::new(filter.with_batch_size(rows)?) as _));
    }
    if node.is::<LazyMemoryExec>() {
        return Ok(Transformed::yes(Arc::new(FewRowsExec { input: node, rows }) as _));
    }
    Ok(Transformed::no(node))
}

/// About what a row takes that has everything that a plan reads and makes.
fn row_bytes(plan: &Arc<dyn ExecutionPlan>) -> Result<usize> {
    let mut bytes = 0;
    plan.apply(|node| {
        node.apply_expressions(&mut |root| {
            root.apply(|expr| {
                let constant = expr.downcast_ref::<Literal>();
                let own = constant.map_or(0, |constant| constant.value().size());
                bytes += if own < CONSTANT_BYTES_MIN { 0 } else { own };
                Ok(TreeNodeRecursion::Continue)
            })
        })?;
        if node.children().is_empty() {
            bytes += read_row_bytes(node.as_ref())?;
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(bytes)
}

/// What a row of a table takes on average, as far as that is known.
fn read_row_bytes(leaf: &dyn ExecutionPlan) -> Result<usize> {
    let known = StatisticsContext::new().compute(leaf, &StatisticsArgs::new())?;
    let of_columns = known.column_statistics.iter().map(|column| value(&column.byte_size));
    let bytes = of_columns.sum::<usize>().max(value(&known.total_byte_size));
    let of_file = leaf.downcast_ref().map_or(0, sampled_row_bytes);
    Ok((bytes / value(&known.num_rows).max(1)).max(of_file))
}

/// What a row of text files takes, as far as their beginnings tell: of them no statistics are known.
fn sampled_row_bytes(scan: &DataSourceExec) -> usize {
    let Some(config) = scan.data_source().downcast_ref::<FileScanConfig>() else { return 0 };
    let files = config.file_groups.iter().flat_map(FileGroup::iter);
    let inputs = files.filter_map(|file| file.extension::<TextInput>());
    inputs.map(|input| input.row_bytes).max().unwrap_or(0)
}

fn value(known: &Precision<usize>) -> usize {
    known.get_value().copied().unwrap_or(0)
}

/// Runs a plan by batches of so few rows, and hands none on that has more.
#[derive(Debug)]
struct FewRowsExec {
    input: Arc<dyn ExecutionPlan>,
    rows: usize,
}

impl DisplayAs for FewRowsExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FewRowsExec: rows={}", self.rows)
    }
}

impl ExecutionPlan for FewRowsExec {
    fn name(&self) -> &str {
        "FewRowsExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match (children.pop(), children.pop()) {
            (Some(input), None) => Ok(Arc::new(Self { input, rows: self.rows })),
            _ => internal_err!("FewRowsExec has one child"),
        }
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        self.replace_children(children, options)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let context = with_batch_rows(&context, self.rows);
        let batches = pieces(self.input.execute(partition, Arc::new(context))?, self.rows);
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), batches)))
    }
}

fn with_batch_rows(context: &TaskContext, rows: usize) -> TaskContext {
    TaskContext::new(
        context.task_id(),
        context.session_id(),
        context.session_config().clone().with_batch_size(rows),
        context.scalar_functions().clone(),
        context.higher_order_functions().clone(),
        context.aggregate_functions().clone(),
        context.window_functions().clone(),
        context.runtime_env(),
    )
}
