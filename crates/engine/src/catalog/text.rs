//! Files that are read from front to back: separated values, JSON, streams of Arrow batches.
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
use datafusion::arrow::datatypes::{DataType, FieldRef, Schema, SchemaRef};
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

use super::kinds::TableKind;
use super::layout::{Layout, TextInput};
use super::records::{Block, Blocks, Records};
use super::refusal::refused;
use super::sample::{REPAIR, plain_text};
use super::separated::Column;
use super::text_room::{Room, Roomed};
use super::{json, separated};
use crate::error::blocking;

/// Reads the files of a table.
#[derive(Clone, Debug)]
pub struct TextSource {
    kind: TableKind,
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
    /// A source of all columns, for up to so many threads, within a memory limit if there is one.
    pub fn new(
        kind: TableKind,
        table_schema: TableSchema,
        threads: usize,
        budget: Option<Arc<MemoryBudget>>,
    ) -> Self {
        Self {
            kind,
            projection: SplitProjection::unprojected(&table_schema),
            table_schema,
            batch_rows: 8192,
            threads,
            budget,
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
        match self.kind {
            TableKind::Csv => "csv",
            TableKind::Json => "json",
            _ => "arrow stream",
        }
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
        let producer = Arc::clone(&self);
        let records = match &self.input.layout {
            Layout::Batches => {
                return received(produce(move |send| producer.batches(send))).boxed();
            }
            Layout::Separated { format, .. } => Records::Separated(format.separators),
            Layout::Json { records, .. } => *records,
        };
        let blocks = received(produce(move |send| {
            let fail = |e: std::io::Error| producer.fail(&e);
            let (reader, first_line) = producer.input.open().map_err(fail)?;
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
            let decoder = Arc::clone(&self);
            async move {
                let block = block?;
                blocking(move || decoder.decode(&block.block)).await
            }
        };
        let batches = blocks.map(decode).buffered(at_once);
        batches.map_ok(|batches| stream::iter(batches.into_iter().map(Ok))).try_flatten().boxed()
    }

    fn path(&self) -> &Path {
        use headrace_io::ReadAt;
        self.input.source.path()
    }

    fn fail(&self, cause: &dyn fmt::Display) -> DataFusionError {
        refused(self.path(), cause, REPAIR)
    }

    fn batches(&self, send: &dyn Fn(RecordBatch) -> bool) -> Result<()> {
        let fail = |cause: String| self.fail(&cause);
        let stream = super::stream::open(&self.input.source).map_err(fail)?;
        let wanted = by_name(&self.schema);
        for batch in stream.only(|name| wanted.contains_key(name)) {
            let batch = batch.map_err(fail)?;
            let names: Vec<&str> =
                batch.schema_ref().fields().iter().map(|f| f.name().as_str()).collect();
            if !send(self.arranged(&batch, &names)?) {
                break;
            }
        }
        Ok(())
    }

    fn decode(&self, block: &Block) -> Result<Vec<RecordBatch>> {
        match &self.input.layout {
            Layout::Separated { format, columns } => {
                let types = by_name(&self.all);
                let typed = |column: &Column| match types.get(column.name.as_str()) {
                    Some(field) => field.data_type().clone(),
                    // It became a partition's.
                    None => DataType::Utf8,
                };
                let read = by_name(&self.schema);
                let wanted = |i: &usize| read.contains_key(columns[*i].name.as_str());
                let wanted: Vec<usize> = (0..columns.len()).filter(wanted).collect();
                let names: Vec<&str> = wanted.iter().map(|i| columns[*i].name.as_str()).collect();
                let reading = separated::Reading {
                    format,
                    columns,
                    types: columns.iter().map(typed).collect(),
                    wanted: wanted.clone(),
                    batch_rows: self.batch_rows,
                };
                let read = reading.batches(block);
                let (batches, ignored) =
                    read.map_err(|fault| refused(self.path(), fault.placed(block), &fault.remedy))?;
                self.ignored.fetch_add(ignored, Ordering::Relaxed);
                batches.iter().map(|batch| self.arranged(batch, &names)).collect()
            }
            Layout::Json { given, .. } => {
                let reading =
                    json::Reading { schema: &self.schema, given, batch_rows: self.batch_rows };
                let read = reading.batches(block);
                read.map_err(|fault| refused(self.path(), fault.cause, fault.remedy))
            }
            Layout::Batches => Err(self.fail(&"a stream has no records")),
        }
    }

    /// The batch with the wanted columns, in their order.
    fn arranged(&self, batch: &RecordBatch, names: &[&str]) -> Result<RecordBatch> {
        let places: HashMap<&str, usize> =
            names.iter().enumerate().map(|(at, name)| (*name, at)).collect();
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

fn by_name(schema: &Schema) -> HashMap<&str, &FieldRef> {
    schema.fields().iter().map(|field| (field.name().as_str(), field)).collect()
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
