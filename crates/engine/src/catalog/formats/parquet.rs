//! Parquet, which DataFusion reads.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::{Result, Statistics};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::FileSource;
use datafusion::parquet::file::metadata::ParquetMetaDataReader;
use headrace_format::parquet::REPAIR;
use headrace_io::{ReadAt, SourceFile};

use crate::catalog::files::DataFile;
use crate::catalog::format::{FileFormat, Inspected, Scan};
use crate::catalog::options::ReadOptions;
use crate::catalog::parquet_input::{FileChunks, ParquetInput};
use crate::catalog::parquet_metadata::believed;
use crate::catalog::parquet_source::{PANICKED, parquet_text, source};
use crate::catalog::refusal::refused;
use crate::catalog::remote::RemoteFile;

/// Column chunks with statistics.
#[derive(Debug)]
pub struct Parquet;

impl FileFormat for Parquet {
    fn name(&self) -> &'static str {
        "Parquet"
    }

    fn suffixes(&self) -> &'static [&'static str] {
        &["parquet"]
    }

    fn functions(&self) -> &'static [&'static str] {
        &["read_parquet", "parquet_scan"]
    }

    /// Reads its metadata.
    fn inspect(&self, file: &DataFile, _: &ReadOptions, _: usize) -> Result<Inspected> {
        let input = input_of(&file.source, file.remote.clone())?;
        let schema = input.columns.as_ref().clone();
        let file = file.planned().with_extension(input);
        Ok(Inspected { file, schema, notes: Vec::new() })
    }

    fn statistics(
        &self,
        file: &PartitionedFile,
        own: &Schema,
        table: &SchemaRef,
    ) -> Result<Option<Statistics>> {
        let input = file.extension::<ParquetInput>();
        input.map(|input| input.statistics(own, table)).transpose()
    }

    fn source(&self, scan: Scan<'_>) -> Arc<dyn FileSource> {
        source(scan)
    }
}

/// Reads the metadata of a file.
///
/// # Errors
/// It is no Parquet file that can be read.
pub fn input_of(source: &Arc<SourceFile>, remote: Option<RemoteFile>) -> Result<ParquetInput> {
    let read = || {
        let bytes = FileChunks(Arc::clone(source));
        believed(ParquetMetaDataReader::new().parse_and_finish(&bytes)?)
    };
    let fail = |cause: String| refused(source.path(), cause, REPAIR);
    let read = catch_unwind(AssertUnwindSafe(read)).map_err(|_| fail(PANICKED.to_string()))?;
    let (metadata, schema) = read.map_err(|e| fail(parquet_text(&e)))?;
    let (source, metadata, columns) = (Arc::clone(source), Arc::new(metadata), Arc::new(schema));
    let (texts, tables) = Default::default();
    Ok(ParquetInput { source, remote, metadata, columns, texts, tables })
}
