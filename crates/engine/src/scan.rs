//! The planner's own scan of a Headrace table: record batches as Arrow arrays. It is the
//! baseline (`processor = off`) and reads whatever no pipeline takes.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, Statistics, internal_err};
use datafusion::execution::memory_pool::MemoryLimit;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::execution_plan::{
    Boundedness, EmissionType, ReplaceChildrenOptions,
};
use datafusion::physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet, RecordOutput,
};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PhysicalExpr, PlanProperties,
};
use futures::StreamExt;
use headrace_pipeline::WhyNot;

use crate::catalog::HeadraceTable;
use crate::error::external;
use crate::explain::skipped_text;

/// One record batch of one file.
#[derive(Clone, Copy, Debug)]
struct Piece {
    file: usize,
    batch: usize,
}

/// The scan.
#[derive(Clone, Debug)]
pub struct HeadraceScanExec {
    table: Arc<HeadraceTable>,
    projection: Vec<usize>,
    limit: Option<usize>,
    why_not: Vec<WhyNot>,
    partitions: Vec<Vec<Piece>>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl HeadraceScanExec {
    /// Scans columns (indices into the table's schema) in at most `partitions` partitions.
    ///
    /// # Errors
    /// A column that the table does not have.
    pub fn try_new(
        table: Arc<HeadraceTable>,
        projection: Vec<usize>,
        partitions: usize,
        limit: Option<usize>,
    ) -> Result<Self> {
        let schema: SchemaRef = Arc::new(table.arrow_schema().project(&projection)?);
        let partitions = partition(&table, partitions);
        let properties = Arc::new(PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(partitions.len()),
            EmissionType::Incremental,
            Boundedness::Bounded,
        ));
        let metrics = ExecutionPlanMetricsSet::new();
        Ok(Self { table, projection, limit, why_not: vec![], partitions, properties, metrics })
    }

    /// The table.
    pub fn table(&self) -> &Arc<HeadraceTable> {
        &self.table
    }

    /// The scanned columns of the table's schema.
    pub fn projection(&self) -> &[usize] {
        &self.projection
    }

    /// Why this scan is not part of a pipeline.
    pub fn why_not(&self) -> &[WhyNot] {
        &self.why_not
    }

    /// The same scan with reasons.
    pub fn with_why_not(&self, why_not: Vec<WhyNot>) -> Self {
        Self { why_not, ..self.clone() }
    }
}

/// Record batches dealt out in runs, so that a partition reads neighbours.
fn partition(table: &HeadraceTable, wanted: usize) -> Vec<Vec<Piece>> {
    let pieces: Vec<_> = table
        .arrow()
        .files()
        .iter()
        .enumerate()
        .flat_map(|(file, f)| (0..f.batches()).map(move |batch| Piece { file, batch }))
        .collect();
    let wanted = wanted.clamp(1, pieces.len().max(1));
    let run = pieces.len().div_ceil(wanted).max(1);
    let mut partitions: Vec<_> = pieces.chunks(run).map(<[Piece]>::to_vec).collect();
    if partitions.is_empty() {
        partitions.push(vec![]);
    }
    partitions
}

/// Gives mapped pages back behind a scan whose session has a memory limit.
///
/// A batch's pages go when the next batch is asked for, or with the stream. Whoever still reads
/// the batch, or another part of the file, faults its pages in again from the page cache.
struct ReleaseMapped {
    table: Option<Arc<HeadraceTable>>,
    file: Option<usize>,
}

impl ReleaseMapped {
    fn under_limit(table: &Arc<HeadraceTable>, context: &TaskContext) -> Self {
        let limited = matches!(context.memory_pool().memory_limit(), MemoryLimit::Finite(_));
        Self { table: limited.then(|| Arc::clone(table)), file: None }
    }

    /// Done with the file of the batch before; `file` is read now.
    fn next(&mut self, file: Option<usize>) {
        if let (Some(table), Some(before)) = (&self.table, self.file) {
            table.arrow().files()[before].release_mapped();
        }
        self.file = file;
    }
}

impl Drop for ReleaseMapped {
    fn drop(&mut self) {
        self.next(None);
    }
}

impl DisplayAs for HeadraceScanExec {
    fn fmt_as(&self, t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let schema = self.schema();
        let names: Vec<_> = schema.fields().iter().map(|f| f.name().as_str()).collect();
        let separator = if t == DisplayFormatType::TreeRender { "\n" } else { ", " };
        if t != DisplayFormatType::TreeRender {
            f.write_str("HeadraceScanExec: ")?;
        }
        write!(f, "table={}{separator}columns=[{}]", self.table.name(), names.join(", "))?;
        if let Some(limit) = self.limit {
            write!(f, "{separator}limit={limit}")?;
        }
        if let Some(skipped) = skipped_text(&self.table) {
            write!(f, "{separator}{skipped}")?;
        }
        if !self.why_not.is_empty() {
            let reasons: Vec<_> = self.why_not.iter().map(ToString::to_string).collect();
            write!(f, "{separator}why_not=[{}]", reasons.join("; "))?;
        }
        Ok(())
    }
}

impl ExecutionPlan for HeadraceScanExec {
    fn name(&self) -> &str {
        "HeadraceScanExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![]
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn with_new_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self { metrics: ExecutionPlanMetricsSet::new(), ..(*self).clone() }))
    }

    fn fetch(&self) -> Option<usize> {
        self.limit
    }

    fn with_fetch(&self, limit: Option<usize>) -> Option<Arc<dyn ExecutionPlan>> {
        Some(Arc::new(Self { limit, ..self.clone() }))
    }

    fn supports_limit_pushdown(&self) -> bool {
        false
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let Some(pieces) = self.partitions.get(partition) else {
            return internal_err!("HeadraceScanExec has no partition {partition}");
        };
        let table = Arc::clone(&self.table);
        let projection = self.projection.clone();
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let mut left = self.limit.unwrap_or(usize::MAX);
        let mut release = ReleaseMapped::under_limit(&table, &context);
        let batches = pieces.clone().into_iter().map(move |piece| {
            release.next(Some(piece.file));
            if left == 0 {
                return None;
            }
            let _timer = metrics.elapsed_compute().timer();
            let batch = match table.arrow().read_batch(piece.file, piece.batch, Some(&projection)) {
                Ok(batch) if batch.num_rows() > left => batch.slice(0, left),
                Ok(batch) => batch,
                Err(error) => return Some(Err(external(error))),
            };
            left -= batch.num_rows();
            Some(Ok::<RecordBatch, _>(batch.record_output(&metrics)))
        });
        let stream = futures::stream::iter(batches)
            .take_while(|batch| futures::future::ready(batch.is_some()))
            .filter_map(futures::future::ready);
        // Batches lie in mappings of the files: one that changed meanwhile is an error.
        let table = Arc::clone(&self.table);
        let files: BTreeSet<usize> = pieces.iter().map(|piece| piece.file).collect();
        let check = futures::stream::iter(files).filter_map(move |file| {
            let checked = table.arrow().files()[file].check_unchanged();
            futures::future::ready(checked.err().map(|error| Err(external(error))))
        });
        let stream = stream.chain(check);
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), stream)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn statistics_from_inputs(
        &self,
        _input_stats: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        if args.partition().is_some() {
            return Ok(Arc::new(Statistics::new_unknown(&self.schema())));
        }
        let all = self.table.table_statistics().clone();
        let projected = all.project(Some(&self.projection));
        match self.limit {
            None => Ok(Arc::new(projected)),
            Some(limit) => Ok(Arc::new(projected.with_fetch(Some(limit), 0, 1)?)),
        }
    }
}
