//! Files that are read from front to back, in blocks of records or in batches, as their formats lay them out.
//!
//! One task reads and unpacks a file and cuts it into blocks of whole records; as many tasks as there are
//! threads make batches of them. Columns are matched by name; those that a file does not have are NULL.

use std::collections::HashMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, new_null_array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{FieldRef, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{
    FileOpenFuture, FileOpener, FileScanConfig, FileSource,
};
use datafusion::datasource::projection::{ProjectionOpener, SplitProjection};
use datafusion::datasource::table_schema::TableSchema;
use datafusion::object_store::ObjectStore;
use datafusion::physical_expr::projection::ProjectionExprs;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion::physical_plan::{DisplayFormatType, PhysicalExpr, apply_expression_roots};
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use headrace_io::MemoryBudget;
use tokio::sync::mpsc::{Receiver, channel};
use tokio::task::spawn_blocking;

use super::format::Scan;
use super::layout::{Decode, Layout, OpenBatches, TextInput, Wanted};
use super::records::{Block, Blocks};
use super::refusal::refused;
use super::sample::{REPAIR, plain_text};
use super::text_room::{Room, Roomed};
use crate::error::blocking;

/// Reads the files of a table.
#[derive(Clone, Debug)]
pub struct TextSource {
    /// As plans call it.
    file_type: &'static str,
    table_schema: TableSchema,
    projection: SplitProjection,
    batch_rows: usize,
    threads: usize,
    /// For blocks; `None`: no limit.
    budget: Option<Arc<MemoryBudget>>,
    metrics: ExecutionPlanMetricsSet,
    /// Records that were left out, as somebody wished.
    ignored: Arc<AtomicU64>,
}

impl TextSource {
    /// A source of all columns.
    pub fn new(file_type: &'static str, scan: Scan<'_>) -> Self {
        Self {
            file_type,
            projection: SplitProjection::unprojected(&scan.schema),
            table_schema: scan.schema,
            batch_rows: 8192,
            threads: scan.threads,
            budget: scan.budget,
            metrics: ExecutionPlanMetricsSet::new(),
            ignored: Arc::default(),
        }
    }

    /// Records that were left out by now because they do not fit.
    pub fn ignored(&self) -> u64 {
        self.ignored.load(Ordering::Relaxed)
    }
}

impl FileSource for TextSource {
    fn create_file_opener(
        &self,
        _store: Arc<dyn ObjectStore>,
        config: &FileScanConfig,
        _partition: usize,
    ) -> Result<Arc<dyn FileOpener>> {
        let file_schema = self.table_schema.file_schema();
        let opener = TextOpener {
            schema: Arc::new(file_schema.project(&self.projection.file_indices)?),
            all: Arc::clone(file_schema),
            batch_rows: self.batch_rows,
            at_once: self.threads.div_ceil(config.file_groups.len().max(1)),
            budget: self.budget.clone(),
            ignored: Arc::clone(&self.ignored),
        };
        ProjectionOpener::try_new(self.projection.clone(), Arc::new(opener), file_schema)
    }

    fn table_schema(&self) -> &TableSchema {
        &self.table_schema
    }

    fn with_batch_size(&self, batch_rows: usize) -> Arc<dyn FileSource> {
        Arc::new(Self { batch_rows, ..self.clone() })
    }

    fn try_pushdown_projection(
        &self,
        projection: &ProjectionExprs,
    ) -> Result<Option<Arc<dyn FileSource>>> {
        let merged = self.projection.source.try_merge(projection)?;
        let projection = SplitProjection::new(self.table_schema.file_schema(), &merged);
        Ok(Some(Arc::new(Self { projection, ..self.clone() })))
    }

    fn projection(&self) -> Option<&ProjectionExprs> {
        Some(&self.projection.source)
    }

    fn metrics(&self) -> &ExecutionPlanMetricsSet {
        &self.metrics
    }

    fn file_type(&self) -> &str {
        self.file_type
    }

    /// A file is cut into blocks while it is read.
    fn supports_repartitioning(&self) -> bool {
        false
    }

    fn fmt_extra(&self, _: DisplayFormatType, _: &mut fmt::Formatter) -> fmt::Result {
        Ok(())
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        apply_expression_roots(self.projection.source.iter().map(|e| &e.expr), f)
    }
}

struct TextOpener {
    /// What comes out.
    schema: SchemaRef,
    /// All columns of the table's files.
    all: SchemaRef,
    batch_rows: usize,
    at_once: usize,
    budget: Option<Arc<MemoryBudget>>,
    ignored: Arc<AtomicU64>,
}

impl FileOpener for TextOpener {
    fn open(&self, file: PartitionedFile) -> Result<FileOpenFuture> {
        let Some(input) = file.extension::<TextInput>().cloned() else {
            return Err(DataFusionError::Internal("a file that was not looked at".into()));
        };
        let decoder = Arc::new(Decoder {
            schema: Arc::clone(&self.schema),
            all: Arc::clone(&self.all),
            batch_rows: self.batch_rows,
            input,
            room: Room::of(self.budget.clone()),
            ignored: Arc::clone(&self.ignored),
        });
        let at_once = self.at_once.max(1);
        Ok(Box::pin(async move { Ok(decoder.stream(at_once)) }))
    }
}

struct Decoder {
    schema: SchemaRef,
    all: SchemaRef,
    batch_rows: usize,
    input: TextInput,
    room: Room,
    ignored: Arc<AtomicU64>,
}

impl Decoder {
    fn stream(self: Arc<Self>, at_once: usize) -> BoxStream<'static, Result<RecordBatch>> {
        match self.input.layout.clone() {
            Layout::Records(rows) => self.decoded(rows, at_once),
            Layout::Batches(open) => {
                received(produce(move |send| self.batches(open, send))).boxed()
            }
        }
    }

    fn decoded(
        self: Arc<Self>,
        rows: Arc<dyn Decode>,
        at_once: usize,
    ) -> BoxStream<'static, Result<RecordBatch>> {
        let (producer, records) = (Arc::clone(&self), rows.records());
        let blocks = received(produce(move |send| {
            let fail = |e: std::io::Error| producer.fail(&e);
            let (reader, first_line) = producer.input.text.open().map_err(fail)?;
            let room = &producer.room;
            let blocks = Blocks::new(reader, records, first_line);
            let mut blocks = blocks.within(room.record_bytes_max());
            while let Some(block) = blocks.next(room.block_bytes()).map_err(fail)? {
                if !send(room.taken(block)?) {
                    break;
                }
            }
            Ok(())
        }));
        let decode = move |block: Result<Roomed>| {
            let (decoder, rows) = (Arc::clone(&self), Arc::clone(&rows));
            async move {
                let block = block?;
                blocking(move || decoder.decode(&*rows, &block.block)).await
            }
        };
        let batches = blocks.map(decode).buffered(at_once);
        batches.map_ok(|batches| stream::iter(batches.into_iter().map(Ok))).try_flatten().boxed()
    }

    fn path(&self) -> &Path {
        use headrace_io::ReadAt;
        self.input.text.source.path()
    }

    fn fail(&self, cause: &dyn fmt::Display) -> DataFusionError {
        refused(self.path(), cause, REPAIR)
    }

    fn batches(&self, open: OpenBatches, send: &dyn Fn(RecordBatch) -> bool) -> Result<()> {
        let fail = |cause: String| self.fail(&cause);
        let is_wanted = |name: &str| self.schema.fields().find(name).is_some();
        for batch in open(&self.input.text.source, &is_wanted).map_err(fail)? {
            if !send(self.arranged(&batch.map_err(fail)?)?) {
                break;
            }
        }
        Ok(())
    }

    fn decode(&self, rows: &dyn Decode, block: &Block) -> Result<Vec<RecordBatch>> {
        let wanted = Wanted { schema: &self.schema, all: &self.all, batch_rows: self.batch_rows };
        let (batches, ignored) = rows
            .decode(block, &wanted)
            .map_err(|fault| refused(self.path(), fault.cause, fault.remedy))?;
        self.ignored.fetch_add(ignored, Ordering::Relaxed);
        batches.iter().map(|batch| self.arranged(batch)).collect()
    }

    /// The batch with the wanted columns, in their order.
    fn arranged(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let names = batch.schema_ref().fields().iter().map(|field| field.name().as_str());
        let places: HashMap<&str, usize> = names.zip(0..).collect();
        let column = |field: &FieldRef| -> Result<ArrayRef, ArrowError> {
            match places.get(field.name().as_str()).copied() {
                Some(at) if batch.column(at).data_type() == field.data_type() => {
                    Ok(Arc::clone(batch.column(at)))
                }
                Some(at) => cast(batch.column(at), field.data_type()),
                None => Ok(new_null_array(field.data_type(), batch.num_rows())),
            }
        };
        let columns = self.schema.fields().iter().map(column).collect::<Result<Vec<_>, _>>();
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let batch = columns.and_then(|columns| {
            RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)
        });
        batch.map_err(|e| self.fail(&plain_text(&e)))
    }
}

/// Runs `work` off the async threads; what it sends, and its error if it fails or panics.
fn produce<T: Send + 'static>(
    work: impl FnOnce(&dyn Fn(T) -> bool) -> Result<()> + Send + 'static,
) -> Receiver<Result<T>> {
    let (sender, receiver) = channel(2);
    spawn_blocking(move || {
        let send = |item| sender.blocking_send(Ok(item)).is_ok();
        let outcome = catch_unwind(AssertUnwindSafe(|| work(&send))).unwrap_or_else(|_| {
            Err(DataFusionError::Execution("the reader of a file panicked".to_string()))
        });
        if let Err(error) = outcome {
            let _ = sender.blocking_send(Err(error));
        }
    });
    receiver
}

fn received<T: Send + 'static>(
    receiver: Receiver<Result<T>>,
) -> impl futures::Stream<Item = Result<T>> {
    stream::unfold(receiver, |mut receiver| async {
        receiver.recv().await.map(|item| (item, receiver))
    })
}
