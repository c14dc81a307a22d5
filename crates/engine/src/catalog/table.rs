//! Arrow files as a DataFusion table.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::stats::Precision;
use datafusion::common::{ColumnStatistics, Result, ScalarValue, Statistics, internal_err};
use datafusion::datasource::TableType;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
use datafusion::physical_plan::ExecutionPlan;
use headrace_format::Table;
use headrace_format::arrow::{ArrowTable, KeptMetadata};
use headrace_runner::{Remarks, StreamTable};

use super::files::{DataFile, Files};
use super::folders::Folders;
use crate::error::external;
use crate::rule::types::integer_scalar;
use crate::scan::HeadraceScanExec;

/// Files named in one line.
const SKIPPED_NAMED_MAX: usize = 8;

/// A table of Arrow files, with statistics.
pub struct HeadraceTable {
    name: String,
    arrow: Arc<ArrowTable>,
    statistics: Statistics,
    stream: Arc<StreamTable>,
    /// Columns that folders give.
    folders: Option<Folders>,
}

impl fmt::Debug for HeadraceTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HeadraceTable({}, {} rows)", self.name, self.arrow.rows())
    }
}

impl HeadraceTable {
    /// Opens files and folders as one table.
    ///
    /// # Errors
    /// A file that is no valid Arrow file, or does not have the columns of the others.
    pub fn open(name: &str, paths: &[PathBuf]) -> Result<Arc<Self>> {
        Ok(Self::of(name, ArrowTable::open(paths).map_err(external)?, None))
    }

    /// Opens the listed files of a place as one table, wherever they lie, with the columns that their folders give. What is
    /// read of them for that is kept in a folder, if there is one for that.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub(super) fn of_files(
        name: &str,
        (place, files): (&Path, &Files),
        kept: Option<&Path>,
    ) -> Result<Arc<Self>> {
        let sources: Vec<_> = files.files.iter().map(|file| Arc::clone(&file.source)).collect();
        let kept = kept.and_then(|folder| KeptMetadata::open(folder, place, &sources));
        let arrow = ArrowTable::open_sources(&sources, kept.as_ref()).map_err(external)?;
        // It is there to save time: without it the next opening reads the files again.
        if let Some(Err(error)) = kept.map(|kept| kept.keep(&sources)) {
            tracing::debug!(%error, table = name, "what was read of its files is not kept");
        }
        if files.keys.is_empty() {
            return Ok(Self::of(name, arrow, None));
        }
        // Not all of them need be part of the table.
        let by_path: HashMap<&Path, &DataFile> =
            files.files.iter().map(|file| (file.path(), file)).collect();
        let opened = arrow.files().iter().filter_map(|file| by_path.get(file.path()).copied());
        let folders = Folders::of(&files.keys, opened)?;
        let constants = files.keys.iter().enumerate();
        let constants: Vec<_> = constants
            .map(|(column, key)| (key.clone(), Arc::clone(folders.values(column))))
            .collect();
        let arrow = arrow.with_constants(&constants).map_err(external)?;
        let folders = folders.typed_as(arrow.schema())?;
        Ok(Self::of(name, arrow, Some(folders)))
    }

    fn of(name: &str, arrow: ArrowTable, folders: Option<Folders>) -> Arc<Self> {
        let arrow = Arc::new(arrow);
        let statistics = statistics(&arrow);
        let source: Arc<dyn Table> = arrow.clone();
        let remarks = Remarks { ruled_out: None, skipped: skipped_text(&arrow) };
        let stream = Arc::new(StreamTable::new(name, source).with_remarks(remarks));
        Arc::new(Self { name: name.to_string(), arrow, statistics, stream, folders })
    }

    /// The files whose folders meet the conditions, all of which they decide: the table itself if all do.
    fn wanted(self: &Arc<Self>, filters: &[Expr]) -> Result<Arc<Self>> {
        let Some(folders) = self.folders.as_ref().filter(|_| !filters.is_empty()) else {
            return Ok(Arc::clone(self));
        };
        let (wanted, all_decided) = folders.wanted(filters)?;
        if !all_decided {
            return internal_err!(
                "a condition on folders of {} that they do not decide",
                self.name
            );
        }
        if self.arrow.files().len() == wanted.len() {
            return Ok(Arc::clone(self));
        }
        let arrow = Arc::new(self.arrow.only(&wanted));
        let statistics = statistics(&arrow);
        let (read, all) = (arrow.files().len(), self.arrow.files().len());
        let ruled_out = Some(format!("{read} of {all} files by their folders"));
        let remarks = Remarks { ruled_out, skipped: skipped_text(&arrow) };
        let stream = Arc::new(self.stream.over(arrow.clone()).with_remarks(remarks));
        let name = self.name.clone();
        Ok(Arc::new(Self { name, arrow, statistics, stream, folders: None }))
    }

    /// Name in the catalogue.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether folders are columns of it.
    pub fn is_partitioned(&self) -> bool {
        self.folders.is_some()
    }

    /// The files.
    pub fn arrow(&self) -> &ArrowTable {
        &self.arrow
    }

    /// Arrow schema.
    pub fn arrow_schema(&self) -> SchemaRef {
        Arc::clone(self.arrow.schema())
    }

    /// The table as pipelines stream it.
    pub fn stream(&self) -> &Arc<StreamTable> {
        &self.stream
    }

    /// Rows of all files.
    pub fn rows(&self) -> u64 {
        self.arrow.rows()
    }

    /// Bytes of a column in all files.
    pub fn column_bytes(&self, column: usize) -> u64 {
        self.arrow.column_stats(column).bytes
    }

    /// Why a pipeline cannot read a column in place, if it cannot.
    pub fn column_support(&self, column: usize) -> Result<(), String> {
        self.arrow.column_support(column)
    }

    /// Exact rows; minimum, maximum and NULLs as the files tell them, for estimates.
    pub fn table_statistics(&self) -> &Statistics {
        &self.statistics
    }
}

/// Files that lie among a table's own but are not part of it, with the reasons.
fn skipped_text(arrow: &ArrowTable) -> Option<String> {
    let skipped = arrow.skipped();
    if skipped.is_empty() {
        return None;
    }
    let named = skipped.iter().take(SKIPPED_NAMED_MAX).map(|file| {
        let name = file.path.file_name().unwrap_or(file.path.as_os_str());
        format!("{} ({})", name.to_string_lossy(), file.reason)
    });
    let more = skipped.len().saturating_sub(SKIPPED_NAMED_MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let files = if skipped.len() == 1 { "file" } else { "files" };
    let named = named.collect::<Vec<_>>().join(", ");
    Some(format!("{} {files} skipped: {named}{more}", skipped.len()))
}

/// The planner answers `count(column)` from exact numbers: "none" is one, other counts are claims.
fn null_count(nulls: Option<u64>) -> Precision<usize> {
    match nulls {
        Some(0) => Precision::Exact(0),
        Some(nulls) => Precision::Inexact(nulls as usize),
        None => Precision::Absent,
    }
}

fn statistics(arrow: &ArrowTable) -> Statistics {
    let schema = arrow.schema();
    let columns = schema.fields().iter().enumerate().map(|(index, field)| {
        let stats = arrow.column_stats(index);
        let bound = |value: Option<i64>| -> Precision<ScalarValue> {
            value
                .and_then(|value| integer_scalar(field.data_type(), value))
                .map_or(Precision::Absent, Precision::Inexact)
        };
        ColumnStatistics {
            null_count: null_count(stats.null_count),
            min_value: bound(stats.min),
            max_value: bound(stats.max),
            sum_value: Precision::Absent,
            distinct_count: Precision::Absent,
            byte_size: Precision::Inexact(stats.bytes as usize),
        }
    });
    let column_statistics: Vec<_> = columns.collect();
    let bytes = (0..schema.fields().len()).map(|c| arrow.column_stats(c).bytes).sum::<u64>();
    Statistics {
        num_rows: Precision::Exact(arrow.rows() as usize),
        total_byte_size: Precision::Inexact(bytes as usize),
        column_statistics,
    }
}

/// The provider that a session registers: it hands its scans the shared table.
#[derive(Debug)]
pub struct TableEntry(pub Arc<HeadraceTable>);

#[async_trait]
impl TableProvider for TableEntry {
    fn schema(&self) -> SchemaRef {
        self.0.arrow_schema()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn statistics(&self) -> Option<Statistics> {
        Some(self.0.statistics.clone())
    }

    /// Conditions on the names of folders alone are met by choosing files.
    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        let support = |filter: &&Expr| {
            let folders = self.0.folders.as_ref();
            match folders.is_some_and(|folders| folders.decide(filter)) {
                true => TableProviderFilterPushDown::Exact,
                false => TableProviderFilterPushDown::Unsupported,
            }
        };
        Ok(filters.iter().map(support).collect())
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let columns = match projection {
            Some(projection) => projection.clone(),
            None => (0..self.0.arrow_schema().fields().len()).collect(),
        };
        let partitions = state.config().target_partitions();
        let table = self.0.wanted(filters)?;
        let scan = HeadraceScanExec::try_new(table, columns, partitions, limit)?;
        Ok(Arc::new(scan))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use datafusion::arrow::array::{ArrayRef, Int32Array, RecordBatch};
    use headrace_format::arrow::{ArrowWriter, WriterOptions};

    use super::*;

    /// `count(column)` would be answered from an exact count, which only the bitmap can give.
    #[test]
    fn a_count_of_nulls_is_exact_only_if_there_are_none() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.arrow");
        let some: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), None, Some(3)]));
        let all: ArrayRef = Arc::new(Int32Array::from(vec![1, 2, 3]));
        let batch =
            RecordBatch::try_from_iter_with_nullable([("some", some, true), ("all", all, true)]);
        let batch = batch.unwrap();
        let mut writer =
            ArrowWriter::create(&path, &batch.schema(), WriterOptions::default()).unwrap();
        writer.write(&batch).unwrap();
        writer.finish().unwrap();
        let table = HeadraceTable::open("t", &[path]).unwrap();
        let columns = &table.table_statistics().column_statistics;
        assert_eq!(columns[0].null_count, Precision::Inexact(1));
        assert_eq!(columns[1].null_count, Precision::Exact(0));
    }
}
