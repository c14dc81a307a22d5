//! Tables of files that the planner's own operators read.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{ColumnStatistics, Result, ScalarValue};
use datafusion::datasource::TableType;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfigBuilder};
use datafusion::datasource::source::DataSourceExec;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
use datafusion::physical_plan::ExecutionPlan;
use datafusion_datasource::compute_all_files_statistics;
use headrace_io::try_map;

use super::files::{DataFile, Files};
use super::folders::Folders;
use super::format::{Format, Inspected, Scan};
use super::refusal::refused;
use super::remote::shown_path;
use super::union::unite;
use crate::planner_memory::budget_of;

/// Files that one thread looks at, at least, and threads at most.
const FILES_AT_ONCE: (usize, usize) = (4, 8);

/// What is read of all files together, about, to tell their types.
const SAMPLE_BYTES: usize = 64 << 20;

/// A table of files of one format.
#[derive(Debug)]
pub struct PlannedTable {
    format: Format,
    schema: TableSchema,
    files: Vec<PartitionedFile>,
    folders: Folders,
    notes: Vec<String>,
}

impl PlannedTable {
    /// Looks at all files.
    ///
    /// # Errors
    /// A file that cannot be read, or whose columns do not fit those of the others.
    pub fn open(format: Format, files: &Files) -> Result<Arc<dyn TableProvider>> {
        let count = files.files.len();
        let sample_bytes = (SAMPLE_BYTES / count.max(1)).clamp(64 << 10, 4 << 20);
        let inspect = |i: usize| format.inspect(&files.files[i], &files.options, sample_bytes);
        let inspected = try_map(count, FILES_AT_ONCE, inspect)?;
        let schemas = inspected.iter().map(|inspected| &inspected.schema);
        let schemas: Vec<_> = files.files.iter().map(DataFile::path).zip(schemas).collect();
        let united = unite(format, &schemas)?;
        check_types(files, &united)?;
        let notes = notes_of(&inspected, files);
        let folders = Folders::of(&files.keys, files.files.iter())?;
        let keys = folders.fields();
        let file_column = file_column(files, &united)?;
        // A partition's column takes the place of one of its name.
        let is_own = |field: &&FieldRef| !files.keys.contains(field.name());
        let fields: Vec<FieldRef> = united.fields().iter().filter(is_own).cloned().collect();
        let file_schema = Arc::new(Schema::new(fields));
        let mut listed = Vec::with_capacity(count);
        for (at, (file, inspected)) in files.files.iter().zip(inspected).enumerate() {
            let values = (0..keys.len())
                .map(|column| ScalarValue::try_from_array(folders.values(column), at));
            let mut values = values.collect::<Result<Vec<_>>>()?;
            if file_column.is_some() {
                let shown = shown_path(file.path()).display().to_string();
                values.push(ScalarValue::Utf8(Some(shown)));
            }
            let entry = inspected.file.with_partition_values(values);
            let entry = match format.statistics(&entry, &inspected.schema, &file_schema)? {
                Some(statistics) => with_statistics(entry, statistics),
                None => entry,
            };
            listed.push(entry);
        }
        let partitions: Vec<FieldRef> = keys.into_iter().chain(file_column).collect();
        let schema =
            TableSchema::builder(file_schema).with_table_partition_cols(partitions).build();
        Ok(Arc::new(Self { format, schema, files: listed, folders, notes }))
    }

    /// What was told of its files and could be wrong.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }
}

/// What was told of files, each once, with the files it was told of.
fn notes_of(inspected: &[Inspected], files: &Files) -> Vec<String> {
    let mut told: BTreeMap<&str, Vec<&Path>> = BTreeMap::new();
    for (inspected, file) in inspected.iter().zip(&files.files) {
        inspected.notes.iter().for_each(|note| told.entry(note).or_default().push(file.path()));
    }
    let note = |(note, of): (&str, Vec<&Path>)| {
        let first =
            shown_path(of[0]).file_name().unwrap_or_default().to_string_lossy().into_owned();
        match of.len() - 1 {
            0 => format!("{first}: {note}"),
            more => format!("{first} and {more} more: {note}"),
        }
    };
    told.into_iter().map(note).collect()
}

/// The column of the files' names, if somebody wants one.
fn file_column(files: &Files, united: &Schema) -> Result<Option<FieldRef>> {
    let Some(name) = &files.options.file_column else { return Ok(None) };
    if united.index_of(name).is_ok() || files.keys.contains(name) {
        let path = files.files.first().map_or(Path::new(""), |file| file.path());
        let cause = format!("filename: there is a column {name}");
        return Err(refused(path, cause, "name it otherwise: filename => 'file'"));
    }
    Ok(Some(Arc::new(Field::new(name, DataType::Utf8, false))))
}

/// Whoever gives a type to a column means one that is there.
fn check_types(files: &Files, schema: &Schema) -> Result<()> {
    let named = files.options.types.iter().map(|(name, _)| name);
    let Some(missing) = named.into_iter().find(|name| schema.index_of(name).is_err()) else {
        return Ok(());
    };
    let path = files.files.first().map_or(Path::new(""), |file| file.path());
    let names: Vec<_> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    let remedy = format!("columns are {}", names.join(", "));
    Err(refused(path, format!("types: there is no column {missing}"), remedy))
}

/// What a file claims. So do folders: a file of no rows has no value of its partition, and of one that is NULL nothing is
/// claimed.
fn with_statistics(
    file: PartitionedFile,
    statistics: datafusion::common::Statistics,
) -> PartitionedFile {
    let columns = statistics.column_statistics.len();
    let mut file = file.with_statistics(Arc::new(statistics));
    if let Some(statistics) = file.statistics.as_mut().map(Arc::make_mut) {
        let of_partitions = statistics.column_statistics.iter_mut().skip(columns);
        for (column, value) in of_partitions.zip(&file.partition_values) {
            *column = match value.is_null() {
                true => ColumnStatistics::new_unknown(),
                false => std::mem::take(column).to_inexact(),
            };
        }
    }
    file
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
        let (wanted, _) = self.folders.wanted(filters)?;
        let files: Vec<_> = wanted.into_iter().map(|file| self.files[file].clone()).collect();
        let source = self.format.source(Scan {
            schema: self.schema.clone(),
            config: state.config_options(),
            threads,
            budget: budget_of(&state.runtime_env().memory_pool),
        });
        let mut config = FileScanConfigBuilder::new(ObjectStoreUrl::local_filesystem(), source)
            .with_projection_indices(projection.cloned())?
            .with_limit(limit);
        let has_statistics = files.iter().any(|file| file.statistics.is_some());
        let mut groups = FileGroup::new(files).split_files(threads);
        if has_statistics {
            let (known, total) = compute_all_files_statistics(groups, self.schema(), true, false)?;
            groups = known;
            config = config.with_statistics(total);
        }
        Ok(DataSourceExec::from_data_source(config.with_file_groups(groups).build()))
    }
}
