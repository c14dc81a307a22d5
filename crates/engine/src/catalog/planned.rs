//! Tables of files that the planner's own operators read: Parquet, separated values, JSON, Arrow streams.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{ColumnStatistics, DFSchema, Result, ScalarValue};
use datafusion::datasource::TableType;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfigBuilder};
use datafusion::datasource::source::DataSourceExec;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
use datafusion::physical_plan::ExecutionPlan;
use datafusion_datasource::compute_all_files_statistics;
use headrace_io::{ReadAt, try_map};

use super::files::{Files, TableKind};
use super::union::unite;
use super::{layout, parquet, text};

/// Files that one thread looks at, at least, and threads at most.
const FILES_AT_ONCE: (usize, usize) = (4, 8);

/// What is read of all files together, about, to tell their types.
const SAMPLE_BYTES: usize = 64 << 20;

/// A table of files of one kind.
#[derive(Debug)]
pub struct PlannedTable {
    kind: TableKind,
    schema: TableSchema,
    files: Vec<PartitionedFile>,
}

enum Input {
    Parquet(parquet::ParquetInput),
    Text(layout::TextInput),
}

impl PlannedTable {
    /// Looks at all files.
    ///
    /// # Errors
    /// A file that cannot be read, or whose columns do not fit those of the others.
    pub fn open(files: &Files) -> Result<Arc<dyn TableProvider>> {
        let count = files.files.len();
        let sample_bytes = (SAMPLE_BYTES / count.max(1)).clamp(64 << 10, 4 << 20);
        let inspect = |i: usize| match files.kind {
            TableKind::Parquet => parquet::inspect(&files.files[i])
                .map(|(input, schema)| (Input::Parquet(input), schema)),
            kind => layout::inspect(&files.files[i], kind, sample_bytes)
                .map(|(input, schema)| (Input::Text(input), schema)),
        };
        let inspected = try_map(count, FILES_AT_ONCE, inspect)?;
        let (inputs, schemas): (Vec<Input>, Vec<(PathBuf, Schema)>) = inspected
            .into_iter()
            .zip(&files.files)
            .map(|((input, schema), file)| (input, (file.path().to_path_buf(), schema)))
            .unzip();
        let united = unite(files.kind, &schemas)?;
        let partitions = partition_columns(files);
        // A partition's column takes the place of one of its name.
        let is_own = |field: &&FieldRef| !files.keys.contains(field.name());
        let fields: Vec<FieldRef> = united.fields().iter().filter(is_own).cloned().collect();
        let file_schema = Arc::new(Schema::new(fields));
        let mut listed = Vec::with_capacity(count);
        for ((file, input), (_, own)) in files.files.iter().zip(inputs).zip(&schemas) {
            let values = file.values.iter().zip(&partitions).map(|(value, column)| {
                match (value, column.data_type()) {
                    (None, data_type) => ScalarValue::try_new_null(data_type),
                    (Some(text), data_type) => {
                        ScalarValue::try_from_string(text.clone(), data_type)
                    }
                }
            });
            let values = values.collect::<Result<Vec<_>>>()?;
            let path = file.path().to_string_lossy().into_owned();
            let entry = PartitionedFile::new(path, file.source.size_bytes());
            let mut entry = entry.with_partition_values(values);
            entry = match input {
                Input::Text(input) => entry.with_extension(input),
                Input::Parquet(input) => {
                    let statistics = input.statistics(own, &file_schema)?;
                    with_statistics(entry, statistics).with_extension(input)
                }
            };
            listed.push(entry);
        }
        let schema =
            TableSchema::builder(file_schema).with_table_partition_cols(partitions).build();
        Ok(Arc::new(Self { kind: files.kind, schema, files: listed }))
    }

    /// The files whose partitions may have rows that meet the filters.
    fn wanted(&self, state: &dyn Session, filters: &[Expr]) -> Result<Vec<PartitionedFile>> {
        let mut files = self.files.clone();
        let columns = self.schema.table_partition_cols();
        if columns.is_empty() {
            return Ok(files);
        }
        let schema = Arc::new(Schema::new(columns.clone()));
        let names = DFSchema::try_from(Schema::clone(&schema))?;
        for filter in filters {
            let of_partitions =
                |c: &&datafusion::common::Column| schema.field_with_name(&c.name).is_ok();
            let used = filter.column_refs();
            if files.is_empty() || filter.is_volatile() || !used.iter().all(of_partitions) {
                continue;
            }
            let unqualified =
                datafusion::logical_expr::expr_rewriter::unnormalize_col(filter.clone());
            let Ok(filter) = state.create_physical_expr(unqualified, &names) else { continue };
            let column = |i: usize| {
                ScalarValue::iter_to_array(
                    files.iter().map(|file| file.partition_values[i].clone()),
                )
            };
            let values = (0..columns.len()).map(column).collect::<Result<Vec<_>>>()?;
            let rows = RecordBatch::try_new(Arc::clone(&schema), values)?;
            // What fails here fails, or not, where the rows are.
            let Ok(kept) = filter.evaluate(&rows).and_then(|v| v.into_array(rows.num_rows()))
            else {
                continue;
            };
            let Some(kept) = kept.as_boolean_opt() else { continue };
            let mut keep = kept.iter().map(|kept| kept == Some(true));
            files.retain(|_| keep.next().unwrap_or(true));
        }
        Ok(files)
    }
}

/// Of a partition that is NULL, nothing is claimed.
fn with_statistics(
    file: PartitionedFile,
    statistics: datafusion::common::Statistics,
) -> PartitionedFile {
    let columns = statistics.column_statistics.len();
    let mut file = file.with_statistics(Arc::new(statistics));
    if let Some(statistics) = file.statistics.as_mut().map(Arc::make_mut) {
        let of_partitions = statistics.column_statistics.iter_mut().skip(columns);
        for (column, value) in of_partitions.zip(&file.partition_values) {
            if value.is_null() {
                *column = ColumnStatistics::new_unknown();
            }
        }
    }
    file
}

/// Integers and dates where all values are; else text.
fn partition_columns(files: &Files) -> Vec<FieldRef> {
    let column = |(i, key): (usize, &String)| {
        let values = || files.files.iter().filter_map(|file| file.values.get(i)?.as_deref());
        let is = |data_type: &DataType| {
            let parses = |v: &str| ScalarValue::try_from_string(v.to_string(), data_type).is_ok();
            values().all(parses)
        };
        let is_integer = values().all(|v| v.parse::<i64>().is_ok());
        let data_type = match () {
            _ if values().next().is_none() => DataType::Utf8,
            _ if is_integer => DataType::Int64,
            _ if values().all(|v| v.len() == 10) && is(&DataType::Date32) => DataType::Date32,
            _ => DataType::Utf8,
        };
        Arc::new(Field::new(key, data_type, true))
    };
    files.keys.iter().enumerate().map(column).collect()
}

#[async_trait]
impl TableProvider for PlannedTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(self.schema.table_schema())
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let threads = state.config().target_partitions().max(1);
        let files = self.wanted(state, filters)?;
        let source = match self.kind {
            TableKind::Parquet => parquet::source(self.schema.clone(), state.config_options()),
            kind => Arc::new(text::TextSource::new(kind, self.schema.clone(), threads)),
        };
        let mut config = FileScanConfigBuilder::new(ObjectStoreUrl::local_filesystem(), source)
            .with_projection_indices(projection.cloned())?
            .with_limit(limit);
        let has_statistics = self.kind == TableKind::Parquet && !files.is_empty();
        let mut groups = FileGroup::new(files).split_files(threads);
        if has_statistics {
            let (known, total) = compute_all_files_statistics(groups, self.schema(), true, false)?;
            groups = known;
            config = config.with_statistics(total);
        }
        Ok(DataSourceExec::from_data_source(config.with_file_groups(groups).build()))
    }
}
