//! Parquet files for DataFusion's reader: by their exact names, with no more of them open than may be, checked
//! to be what they were, and named by whatever is wrong with them.

use std::collections::HashSet;
use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::error::ArrowError;
use datafusion::common::config::{ConfigOptions, TableParquetOptions};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{
    FileOpener, FileScanConfig, FileSource, ParquetFileMetrics, ParquetFileReaderFactory,
    ParquetSource,
};
use datafusion::datasource::table_schema::TableSchema;
use datafusion::object_store::ObjectStore;
use datafusion::parquet::arrow::arrow_reader::ArrowReaderOptions;
use datafusion::parquet::arrow::async_reader::AsyncFileReader;
use datafusion::parquet::errors::{ParquetError, Result as ParquetResult};
use datafusion::parquet::file::metadata::ParquetMetaData;
use datafusion::physical_expr::projection::ProjectionExprs;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalSortExpr};
use datafusion::physical_plan::filter_pushdown::FilterPushdownPropagation;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion::physical_plan::{DisplayFormatType, PhysicalExpr, SortOrderPushdownResult};
use datafusion_datasource::morsel::{Morsel, MorselPlan, MorselPlanner, Morselizer};
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use headrace_format::parquet::REPAIR;
use headrace_io::ReadAt;
use tokio::task::spawn_blocking;

use super::format::Scan;
use super::parquet_held::{Room, held, no_room};
use super::parquet_input::{ParquetInput, read};
use super::parquet_metadata::INT96_UNIT;
use super::parquet_parts::{ByParts, Parts};
use super::pipe::shown;
use super::refusal::refused;

/// What is wrong with a file that its reader panics at.
pub const PANICKED: &str = "the reader of Parquet files panicked";

/// What a scan reads all files of a table with.
pub fn source(scan: Scan<'_>) -> Arc<dyn FileSource> {
    let mut global = scan.config.execution.parquet.clone();
    global.coerce_int96 = Some(INT96_UNIT.1.to_string());
    let options = TableParquetOptions { global, ..TableParquetOptions::default() };
    let source = ParquetSource::new(scan.schema)
        .with_table_parquet_options(options)
        .with_parquet_file_reader_factory(Arc::new(Readers(Room(scan.budget.clone()))));
    let limit_bytes = scan.budget.map(|budget| budget.limit_bytes());
    Arc::new(NamingSource { inner: Arc::new(source), limit_bytes })
}

/// What an error says, without the name of its class.
pub fn parquet_text(error: &ParquetError) -> String {
    let text = error.to_string();
    let class = text
        .split_once(": ")
        .filter(|(class, _)| !class.contains(' ') || *class == "Parquet error");
    class.map_or(text.as_str(), |(_, text)| text).to_string()
}

#[derive(Debug)]
struct Readers(Room);

impl ParquetFileReaderFactory for Readers {
    fn create_reader(
        &self,
        partition: usize,
        file: PartitionedFile,
        _metadata_size_hint: Option<usize>,
        metrics: &ExecutionPlanMetricsSet,
    ) -> Result<Box<dyn AsyncFileReader + Send>> {
        let input = file.extension::<ParquetInput>().cloned();
        let input =
            input.ok_or_else(|| DataFusionError::Internal("a file not looked at".into()))?;
        let location = file.object_meta.location.as_ref();
        Ok(Box::new(Reader {
            input,
            room: self.0.clone(),
            metrics: ParquetFileMetrics::new(partition, location, metrics),
        }))
    }
}

struct Reader {
    input: ParquetInput,
    room: Room,
    metrics: ParquetFileMetrics,
}

impl AsyncFileReader for Reader {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, ParquetResult<Bytes>> {
        self.get_byte_ranges(vec![range])
            .map(|bytes| bytes.map(|mut bytes| bytes.pop().unwrap_or_default()))
            .boxed()
    }

    fn get_byte_ranges(
        &mut self,
        ranges: Vec<Range<u64>>,
    ) -> BoxFuture<'_, ParquetResult<Vec<Bytes>>> {
        let bytes: u64 = ranges.iter().map(|range| range.end.saturating_sub(range.start)).sum();
        self.metrics.bytes_scanned.add(bytes as usize);
        let reserved = match self.room.reserve(&ranges, &self.input.metadata) {
            Ok(reserved) => reserved,
            Err(refused) => return async { Err(refused) }.boxed(),
        };
        let all_held = move |read: Vec<Bytes>| {
            read.into_iter().map(|bytes| held(bytes, reserved.as_ref())).collect::<Vec<_>>()
        };
        if let Some(remote) = self.input.remote.clone() {
            let fetched = async move {
                let fetched = remote.ranges(ranges).await;
                fetched.map(all_held).map_err(|e| ParquetError::External(Box::new(e)))
            };
            return fetched.boxed();
        }
        let source = Arc::clone(&self.input.source);
        let work = spawn_blocking(move || {
            let read = ranges.iter().map(|range| read(&source, range));
            read.collect::<ParquetResult<_>>().map(all_held)
        });
        work.map(|done| done.map_err(|e| ParquetError::External(Box::new(e)))?).boxed()
    }

    fn get_metadata<'a>(
        &'a mut self,
        _options: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, ParquetResult<Arc<ParquetMetaData>>> {
        let metadata = Arc::clone(&self.input.metadata);
        async move { Ok(metadata) }.boxed()
    }
}

/// DataFusion's source, whose errors name the file.
#[derive(Clone)]
pub(super) struct NamingSource {
    pub(super) inner: Arc<dyn FileSource>,
    /// Of memory, if there is one.
    limit_bytes: Option<u64>,
}

impl NamingSource {
    fn naming(&self, inner: Arc<dyn FileSource>) -> Arc<dyn FileSource> {
        Arc::new(Self { inner, limit_bytes: self.limit_bytes })
    }

    /// The names of the columns that are read.
    fn names(&self) -> HashSet<String> {
        let fields = self.table_schema().table_schema().fields();
        match self.projection() {
            None => fields.iter().map(|field| field.name().clone()).collect(),
            Some(read) => {
                let read = read.column_indices().into_iter().filter_map(|at| fields.get(at));
                read.map(|field| field.name().clone()).collect()
            }
        }
    }
}

impl FileSource for NamingSource {
    fn create_file_opener(
        &self,
        store: Arc<dyn ObjectStore>,
        config: &FileScanConfig,
        partition: usize,
    ) -> Result<Arc<dyn FileOpener>> {
        self.inner.create_file_opener(store, config, partition)
    }

    fn create_morselizer(
        &self,
        store: Arc<dyn ObjectStore>,
        config: &FileScanConfig,
        partition: usize,
    ) -> Result<Box<dyn Morselizer>> {
        let inner = Arc::from(self.inner.create_morselizer(store, config, partition)?);
        let limit = self.limit_bytes.map(|bytes| (bytes, self.names()));
        Ok(Box::new(NamedFiles { inner, limit }))
    }

    fn table_schema(&self) -> &TableSchema {
        self.inner.table_schema()
    }

    fn with_batch_size(&self, rows: usize) -> Arc<dyn FileSource> {
        self.naming(self.inner.with_batch_size(rows))
    }

    fn filter(&self) -> Option<Arc<dyn PhysicalExpr>> {
        self.inner.filter()
    }

    fn projection(&self) -> Option<&ProjectionExprs> {
        self.inner.projection()
    }

    fn metrics(&self) -> &ExecutionPlanMetricsSet {
        self.inner.metrics()
    }

    fn file_type(&self) -> &str {
        self.inner.file_type()
    }

    fn fmt_extra(&self, format: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        self.inner.fmt_extra(format, f)
    }

    fn reorder_files(&self, files: Vec<PartitionedFile>) -> Vec<PartitionedFile> {
        self.inner.reorder_files(files)
    }

    fn try_pushdown_filters(
        &self,
        filters: Vec<Arc<dyn PhysicalExpr>>,
        config: &ConfigOptions,
    ) -> Result<FilterPushdownPropagation<Arc<dyn FileSource>>> {
        let mut pushed = self.inner.try_pushdown_filters(filters, config)?;
        pushed.updated_node = pushed.updated_node.map(|node| self.naming(node));
        Ok(pushed)
    }

    fn try_pushdown_sort(
        &self,
        order: &[PhysicalSortExpr],
        properties: &EquivalenceProperties,
    ) -> Result<SortOrderPushdownResult<Arc<dyn FileSource>>> {
        Ok(self.inner.try_pushdown_sort(order, properties)?.map(|inner| self.naming(inner)))
    }

    fn try_pushdown_projection(
        &self,
        projection: &ProjectionExprs,
    ) -> Result<Option<Arc<dyn FileSource>>> {
        Ok(self.inner.try_pushdown_projection(projection)?.map(|inner| self.naming(inner)))
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.inner.apply_expressions(f)
    }
}

/// A stage of reading a file, whose errors name it.
struct Named<T: ?Sized> {
    path: PathBuf,
    inner: Box<T>,
}

impl<T: ?Sized> Named<T> {
    fn new(inner: Box<T>, path: &Path) -> Self {
        Self { path: path.to_path_buf(), inner }
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Named<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// Plans files with their names, and large ones by parts.
struct NamedFiles {
    inner: Arc<dyn Morselizer>,
    /// Of memory, if there is one, and the names of the columns that are read.
    limit: Option<(u64, HashSet<String>)>,
}

impl fmt::Debug for NamedFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl NamedFiles {
    /// How a file is read by parts; `None`: whole.
    fn parts_of(&self, input: &ParquetInput) -> Option<Parts> {
        // Elsewhere each look at a page would be a request.
        let (limit_bytes, names) = self.limit.as_ref().filter(|_| input.remote.is_none())?;
        let leaves = input.metadata.file_metadata().schema_descr().columns();
        let is_read = |&leaf: &usize| {
            leaves[leaf].path().parts().first().is_some_and(|root| names.contains(root))
        };
        let columns = (0..leaves.len()).filter(is_read).collect();
        Some(Parts { columns, limit_bytes: *limit_bytes }).filter(|parts| parts.has_large(input))
    }
}

impl Morselizer for NamedFiles {
    fn plan_file(&self, file: PartitionedFile) -> Result<Box<dyn MorselPlanner>> {
        let Some(input) = file.extension::<ParquetInput>().cloned() else {
            return self.inner.plan_file(file);
        };
        let path = input.source.path().to_path_buf();
        let planner = match self.parts_of(&input) {
            Some(parts) => Box::new(ByParts::new(Arc::clone(&self.inner), (file, input), parts)),
            None => self.inner.plan_file(file).map_err(|e| named(&path, e))?,
        };
        Ok(Box::new(Named::new(planner, &path)))
    }
}

impl MorselPlanner for Named<dyn MorselPlanner> {
    fn plan(self: Box<Self>) -> Result<Option<MorselPlan>> {
        let Named { path, inner } = *self;
        let plan = catch_unwind(AssertUnwindSafe(|| inner.plan()));
        let plan = plan.map_err(|_| refused(&path, PANICKED, REPAIR))?;
        let Some(mut plan) = plan.map_err(|e| named(&path, e))? else { return Ok(None) };
        let wrap = |planner| Box::new(Named::new(planner, &path)) as Box<dyn MorselPlanner>;
        let morsels = plan.take_morsels().into_iter();
        let morsels = morsels.map(|morsel| Box::new(Named::new(morsel, &path)) as Box<dyn Morsel>);
        let mut named_plan = MorselPlan::new()
            .with_morsels(morsels.collect())
            .with_planners(plan.take_ready_planners().into_iter().map(wrap).collect());
        if let Some(pending) = plan.take_pending_planner() {
            let path = path.clone();
            named_plan.set_pending_planner(async move {
                let planner = AssertUnwindSafe(pending).catch_unwind().await;
                let planner = planner.map_err(|_| refused(&path, PANICKED, REPAIR))?;
                let planner = planner.map_err(|e| named(&path, e))?;
                Ok(Box::new(Named::new(planner, &path)) as Box<dyn MorselPlanner>)
            });
        }
        Ok(Some(named_plan))
    }
}

impl Morsel for Named<dyn Morsel> {
    fn into_stream(self: Box<Self>) -> BoxStream<'static, Result<RecordBatch>> {
        let Named { path, inner } = *self;
        let batches = AssertUnwindSafe(inner.into_stream()).catch_unwind();
        batches
            .map(move |batch| match batch {
                Ok(batch) => batch.map_err(|e| named(&path, e)),
                Err(_) => Err(refused(&path, PANICKED, REPAIR)),
            })
            .boxed()
    }
}

/// Errors of the file with its name; those of the query as they are.
fn named(path: &Path, error: DataFusionError) -> DataFusionError {
    let root = error.find_root();
    if let DataFusionError::ParquetError(cause) = root
        && let Some(refused) = no_room(cause)
    {
        let place = shown(path).display().to_string();
        return DataFusionError::ResourcesExhausted(format!("{place}: {refused}"));
    }
    let text = match root {
        DataFusionError::ParquetError(cause) => parquet_text(cause),
        DataFusionError::ArrowError(cause, _) => match cause.as_ref() {
            ArrowError::ParquetError(text) => text.clone(),
            ArrowError::ExternalError(cause) => cause.to_string(),
            ArrowError::IoError(text, _) => text.clone(),
            _ => return error,
        },
        DataFusionError::External(cause) => match cause.downcast_ref::<ParquetError>() {
            Some(cause) => parquet_text(cause),
            None => return error,
        },
        _ => return error,
    };
    refused(path, text, REPAIR)
}
