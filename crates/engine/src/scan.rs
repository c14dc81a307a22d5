//! The planner's own scan of a Headrace table: record batches as Arrow arrays. It is the
//! baseline (`processor = off`) and reads whatever no pipeline takes.
//!
//! Rows are taken in parts (`ArrowTable::stored_batch`, `read_rows`): narrow columns take up to four times the
//! bytes in the table's types, and a record batch may have millions of rows.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result, Statistics, internal_err};
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
use futures::{Stream, TryStreamExt};
use headrace_format::arrow::StoredBatch;
use headrace_pipeline::WhyNot;

use crate::catalog::HeadraceTable;
use crate::error::external;
use crate::floats::one_nan;
use crate::planner_memory::{batch_bytes, bytes_at_once, in_pieces};

/// Rows that are read together: in the table's types, columns may take several times the bytes that they have in the
/// file, and a record batch may have millions of rows.
const ROWS_MAX: usize = 64 << 10;

/// The scan.
#[derive(Clone, Debug)]
pub struct HeadraceScanExec {
    table: Arc<HeadraceTable>,
    projection: Vec<usize>,
    limit: Option<usize>,
    why_not: Vec<WhyNot>,
    /// Record batches, counted over all files.
    partitions: Vec<Range<usize>>,
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
fn partition(table: &HeadraceTable, wanted: usize) -> Vec<Range<usize>> {
    let batches: usize = table.arrow().files().iter().map(|file| file.batches()).sum();
    let run = batches.div_ceil(wanted.clamp(1, batches.max(1))).max(1);
    let runs = batches.div_ceil(run).max(1);
    (0..runs).map(|i| i * run..batches.min((i + 1) * run)).collect()
}

/// Gives mapped pages back behind a scan whose session has a memory limit.
///
/// Pages of rows go when the next rows are asked for, or with the stream. Whoever still reads
/// them, or another part of the file, faults its pages in again from the page cache.
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

/// A record batch of a file.
#[derive(Clone, Copy)]
struct Place {
    file: usize,
    batch: usize,
}

impl Place {
    /// Where a batch lies, counted over all files.
    fn of(table: &HeadraceTable, mut batch: usize) -> Self {
        for (file, source) in table.arrow().files().iter().enumerate() {
            match batch.checked_sub(source.batches()) {
                Some(beyond) => batch = beyond,
                None => return Self { file, batch },
            }
        }
        Self { file: table.arrow().files().len(), batch: 0 }
    }
}

/// Reads the batches of one partition, one after the other.
struct Reader {
    table: Arc<HeadraceTable>,
    projection: Vec<usize>,
    at: Place,
    /// The batch that is being read, and its first row that was not.
    open: Option<(StoredBatch, usize)>,
    batches_left: usize,
    rows_left: usize,
    /// Of rows that are read together.
    bytes_max: usize,
    /// Files that were read and not looked at since.
    unchecked: Option<Range<usize>>,
    release: ReleaseMapped,
    metrics: BaselineMetrics,
}

impl Reader {
    /// Some rows, small batches together; none at the end. They lie in mappings of the files: one that changed meanwhile
    /// is an error.
    fn read(&mut self) -> Result<Vec<RecordBatch>> {
        const ROWS_WANTED: usize = 8192;
        let (mut batches, mut rows, mut bytes) = (Vec::new(), 0, 0);
        while rows < ROWS_WANTED
            && bytes < self.bytes_max
            && let Some(batch) = self.read_rows()?
        {
            rows += batch.num_rows();
            bytes += batch_bytes(&batch)?;
            batches.push(batch);
        }
        if batches.is_empty() {
            self.release.next(None);
            for file in self.unchecked.take().into_iter().flatten() {
                self.table.arrow().files()[file].check_unchanged().map_err(external)?;
            }
        }
        Ok(batches)
    }

    /// The next rows of the batch that is open, or of the next one; of a batch without rows none.
    fn read_rows(&mut self) -> Result<Option<RecordBatch>> {
        let elapsed = self.metrics.elapsed_compute().clone();
        let _timer = elapsed.timer();
        let Some((stored, first)) = self.opened()? else { return Ok(None) };
        let arrow = self.table.arrow();
        let rows_max = ROWS_MAX.min(self.rows_left);
        let rows = stored.rows_within(first, rows_max, self.bytes_max as u64);
        let read = arrow.read_rows(&stored, first..first + rows).map_err(external)?;
        let wanted = with_one_nan(&read)?;
        self.rows_left -= rows;
        if first + rows < stored.rows() {
            self.open = Some((stored, first + rows));
        }
        Ok(Some(wanted.record_output(&self.metrics)))
    }

    /// Takes the batch that is open, or opens the next one, if there is any and rows are wanted.
    fn opened(&mut self) -> Result<Option<(StoredBatch, usize)>> {
        if self.rows_left == 0 {
            return Ok(None);
        }
        if let Some(open) = self.open.take() {
            self.release.next(self.release.file);
            return Ok(Some(open));
        }
        if self.batches_left == 0 {
            return Ok(None);
        }
        let Place { file, batch } = self.next_place();
        self.release.next(Some(file));
        let first = self.unchecked.take().map_or(file, |files| files.start);
        self.unchecked = Some(first..file + 1);
        let stored = self.table.arrow().stored_batch(file, batch, Some(&self.projection));
        Ok(Some((stored.map_err(external)?, 0)))
    }

    fn next_place(&mut self) -> Place {
        while self.at.batch >= self.table.arrow().files()[self.at.file].batches() {
            self.at = Place { file: self.at.file + 1, batch: 0 };
        }
        let place = self.at;
        self.at.batch += 1;
        self.batches_left -= 1;
        place
    }
}

/// Batches as they are wanted, each read on a thread that may block. Dropped, it starts no
/// further read.
fn stream(reader: Reader) -> impl Stream<Item = Result<RecordBatch>> + Send {
    let reads = futures::stream::try_unfold(reader, |mut reader| async move {
        let read = SpawnedTask::spawn_blocking(move || (reader.read(), reader));
        let (batches, reader) =
            read.join().await.map_err(|e| DataFusionError::ExecutionJoin(Box::new(e)))?;
        let batches = batches?;
        let ended = batches.is_empty();
        let some = futures::stream::iter(batches.into_iter().map(Ok::<_, DataFusionError>));
        Ok::<_, DataFusionError>((!ended).then_some((some, reader)))
    });
    reads.try_flatten()
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
        for remark in self.table.stream().remarks().iter() {
            write!(f, "{separator}{remark}")?;
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
        let Some(batches) = self.partitions.get(partition) else {
            return internal_err!("HeadraceScanExec has no partition {partition}");
        };
        let reader = Reader {
            at: Place::of(&self.table, batches.start),
            open: None,
            batches_left: batches.len(),
            rows_left: self.limit.unwrap_or(usize::MAX),
            bytes_max: bytes_at_once(&context),
            unchecked: None,
            release: ReleaseMapped::under_limit(&self.table, &context),
            table: Arc::clone(&self.table),
            projection: self.projection.clone(),
            metrics: BaselineMetrics::new(&self.metrics, partition),
        };
        let batches = in_pieces(stream(reader), &context);
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), batches)))
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

fn with_one_nan(batch: &RecordBatch) -> Result<RecordBatch> {
    let columns = batch.columns().iter().map(one_nan).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(batch.schema(), columns, &options)?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::path::Path;
    use std::sync::mpsc;

    use datafusion::arrow::array::{ArrayRef, AsArray, Int32Array};
    use datafusion::arrow::datatypes::Int32Type;
    use futures::StreamExt;
    use headrace_format::arrow::{ArrowWriter, WriterOptions};

    use super::*;

    const FILES: i32 = 5;
    const ROWS: i32 = 700;

    fn write(folder: &Path) -> Arc<HeadraceTable> {
        for file in 0..FILES {
            let path = folder.join(format!("{file}.arrow"));
            write_numbers(&path, file * ROWS..(file + 1) * ROWS, 100);
        }
        HeadraceTable::open("t", &[folder.to_path_buf()]).unwrap()
    }

    fn write_numbers(path: &Path, numbers: Range<i32>, rows_per_batch: usize) {
        let values: ArrayRef = Arc::new(Int32Array::from_iter_values(numbers));
        let batch = RecordBatch::try_from_iter([("i", values)]).unwrap();
        let options = WriterOptions { rows_per_batch, ..WriterOptions::default() };
        let mut writer = ArrowWriter::create(path, &batch.schema(), options).unwrap();
        writer.write(&batch).unwrap();
        writer.finish().unwrap();
    }

    fn values(batches: &[RecordBatch]) -> Vec<i32> {
        let column = |batch: &RecordBatch| batch.column(0).as_primitive::<Int32Type>().clone();
        batches.iter().flat_map(|batch| column(batch).values().to_vec()).collect()
    }

    #[test]
    fn partitions_read_every_row_once_in_order_and_limits_hold() {
        let dir = tempfile::tempdir().unwrap();
        let table = write(dir.path());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for partitions in [1, 2, 3, 7, 35, 100] {
            for limit in [None, Some(0), Some(1), Some(99), Some(150), Some(10_000)] {
                let scan =
                    HeadraceScanExec::try_new(table.clone(), vec![0], partitions, limit).unwrap();
                let mut all = Vec::new();
                for partition in 0..scan.partitions.len() {
                    let stream = scan.execute(partition, Arc::default()).unwrap();
                    let batches: Vec<_> = runtime.block_on(stream.try_collect()).unwrap();
                    let rows = values(&batches);
                    let there = 100 * scan.partitions[partition].len();
                    assert_eq!(rows.len(), there.min(limit.unwrap_or(usize::MAX)));
                    all.extend(rows);
                }
                assert!(all.is_sorted(), "{partitions} {limit:?}");
                if limit.is_none() {
                    assert_eq!(all, (0..FILES * ROWS).collect::<Vec<_>>());
                }
            }
        }
    }

    #[test]
    fn a_large_record_batch_comes_in_parts() {
        const LARGE: i32 = 150_000;
        let dir = tempfile::tempdir().unwrap();
        write_numbers(&dir.path().join("large.arrow"), 0..LARGE, LARGE as usize);
        let table = HeadraceTable::open("t", &[dir.path().to_path_buf()]).unwrap();
        assert_eq!(table.arrow().files()[0].batches(), 1);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for limit in [None, Some(100_000), Some(ROWS_MAX)] {
            let scan = HeadraceScanExec::try_new(table.clone(), vec![0], 1, limit).unwrap();
            let stream = scan.execute(0, Arc::default()).unwrap();
            let batches: Vec<_> = runtime.block_on(stream.try_collect()).unwrap();
            assert!(batches.iter().all(|batch| batch.num_rows() <= ROWS_MAX));
            let rows = limit.map_or(LARGE, |rows| rows as i32);
            assert_eq!(values(&batches), (0..rows).collect::<Vec<_>>());
        }
    }

    /// The one thread that may block is taken: a scan that read while it is polled would go on.
    #[test]
    fn reading_waits_for_a_thread_that_may_block_and_a_dropped_scan_for_none() {
        let dir = tempfile::tempdir().unwrap();
        let table = write(dir.path());
        let scan = HeadraceScanExec::try_new(table.clone(), vec![0], 1, None).unwrap();
        let runtime =
            tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
        runtime.block_on(async {
            let (let_go, held) = mpsc::channel::<()>();
            let busy = tokio::task::spawn_blocking(move || held.recv());
            let mut stream = scan.execute(0, Arc::default()).unwrap();
            let mut dropped = scan.execute(0, Arc::default()).unwrap();
            assert!(futures::poll!(stream.next()).is_pending());
            assert!(futures::poll!(dropped.next()).is_pending());
            drop(dropped);
            let_go.send(()).unwrap();
            busy.await.unwrap().unwrap();
            let batches: Vec<_> = stream.try_collect().await.unwrap();
            assert_eq!(values(&batches), (0..FILES * ROWS).collect::<Vec<_>>());
        });
        drop((runtime, scan));
        assert_eq!(Arc::strong_count(&table), 1, "a scan that nobody wants still holds it");
    }

    #[test]
    fn a_file_that_changes_while_it_is_scanned_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let table = write(dir.path());
        let scan = HeadraceScanExec::try_new(table, vec![0], 1, None).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let outcome = runtime.block_on(async {
            let mut stream = scan.execute(0, Arc::default()).unwrap();
            stream.next().await.unwrap()?;
            let file = std::fs::File::options().write(true).open(dir.path().join("0.arrow"));
            file.unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
            stream.try_collect::<Vec<_>>().await
        });
        assert!(outcome.unwrap_err().to_string().contains("0.arrow"));
    }
}
