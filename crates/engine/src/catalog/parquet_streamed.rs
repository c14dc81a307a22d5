//! Scans of Parquet files that pipelines read themselves, without the planner's reader.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::datasource::physical_plan::{FileScanConfig, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::projection::ProjectionExpr;
use headrace_format::parquet::{ParquetFile, ParquetTable};
use headrace_io::ReadAt;
use headrace_pipeline::WhyNot;
use headrace_runner::StreamTable;

use super::parquet_input::ParquetInput;
use super::parquet_source::NamingSource;
use super::pipe::shown;
use super::streamed_tables::Opened;

/// Slots at least in the memory for them: one is consumed while another is read.
const SLOTS_MIN: u64 = 3;

/// A scan as a table.
pub struct Streamed {
    /// The columns that the scan reads, in the order of `columns`.
    pub table: Arc<StreamTable>,
    /// Their numbers in `schema`.
    pub columns: Vec<usize>,
    /// What the columns of the scan are computed from.
    pub schema: SchemaRef,
    /// The columns of the scan, over `schema`.
    pub projection: Vec<ProjectionExpr>,
}

/// Why a scan is no table of pipelines.
pub struct NotStreamed {
    /// The reason.
    pub why: WhyNot,
    /// Whether its rows, too, had better not become a pipeline's.
    pub is_for_planner: bool,
}

/// Whether rows of a scan may as well be a pipeline's: it reads Parquet, without an index of pages by which the planner's
/// reader would leave out more than row groups.
pub fn reads_row_groups(scan: &DataSourceExec) -> bool {
    let inputs = parquet_of(scan).and_then(|(config, _)| inputs(config).ok());
    let has_index = |input: &&ParquetInput| {
        let chunks = input.metadata.row_groups().iter().flat_map(|group| group.columns());
        chunks.into_iter().any(|chunk| chunk.column_index_offset().is_some())
    };
    inputs.is_some_and(|inputs| !inputs.iter().any(has_index))
}

/// The table of a scan; `None`: it reads something else than Parquet, or there is no memory for reading.
///
/// # Errors
/// Why pipelines do not read it.
pub fn streamed(scan: &DataSourceExec, slots_bytes: u64) -> Option<Result<Streamed, NotStreamed>> {
    let (config, source) = parquet_of(scan).filter(|_| slots_bytes > 0)?;
    Some(table_of(config, source, slots_bytes))
}

/// What a scan reads, if that is Parquet.
fn parquet_of(scan: &DataSourceExec) -> Option<(&FileScanConfig, &NamingSource)> {
    let config = scan.data_source().downcast_ref::<FileScanConfig>()?;
    Some((config, config.file_source().downcast_ref::<NamingSource>()?))
}

impl From<String> for NotStreamed {
    fn from(why: String) -> Self {
        Self { why: WhyNot::new(why), is_for_planner: false }
    }
}

fn table_of(
    config: &FileScanConfig,
    source: &NamingSource,
    slots_bytes: u64,
) -> Result<Streamed, NotStreamed> {
    if config.limit.is_some() {
        return Err("a scan with LIMIT is left to the planner".to_string().into());
    }
    let inner = source.inner.downcast_ref::<ParquetSource>();
    if inner.is_none_or(|inner| inner.table_parquet_options().global.pushdown_filters) {
        return Err("the planner's reader filters rows".to_string().into());
    }
    let schema = Arc::clone(config.file_source().table_schema().table_schema());
    let projection: Vec<ProjectionExpr> = match config.file_source().projection() {
        Some(projection) => projection.as_ref().to_vec(),
        None => all_columns(&schema),
    };
    let columns: Vec<usize> = match config.file_source().projection() {
        Some(projection) => projection.column_indices(),
        None => (0..schema.fields().len()).collect(),
    };
    // Columns of folders and of files' names: a file may have one of the same name, which is another.
    let of_files = config.file_source().table_schema().file_schema().fields().len();
    if columns.iter().any(|&column| column >= of_files) {
        return Err("a column does not lie in the files".to_string().into());
    }
    let inputs = inputs(config)?;
    let (Some(first), false) = (inputs.first(), columns.is_empty()) else {
        return Err("nothing of the files is read but how many rows there are".to_string().into());
    };
    let wanted = Arc::new(schema.project(&columns).map_err(|error| error.to_string())?);
    let files: Vec<_> = inputs.iter().map(|input| Arc::clone(&input.source)).collect();
    let table = match first.tables.known(&wanted, &files) {
        Some(table) => table,
        None => first.tables.keep((Arc::clone(&wanted), files), opened(&wanted, &inputs)?),
    };
    let Opened { stream, slot_bytes, long_texts } = &*table;
    if slot_bytes.saturating_mul(SLOTS_MIN) > slots_bytes {
        return Err(format!(
            "a row group of {slot_bytes} bytes is too large for the {slots_bytes} bytes of memory for reading"
        )
        .into());
    }
    if let Some(why) = long_texts {
        return Err(NotStreamed { why: WhyNot::new(why.clone()), is_for_planner: true });
    }
    Ok(Streamed { table: Arc::clone(stream), columns, schema, projection })
}

/// Opens the table of a scan that is new.
pub(super) fn opened(columns: &SchemaRef, inputs: &[&ParquetInput]) -> Result<Opened, String> {
    let files = inputs.iter().map(|input| file_of(input, columns));
    let table = ParquetTable::new(Arc::clone(columns), files.collect::<Result<_, String>>()?)?;
    let all: Vec<usize> = (0..columns.fields().len()).collect();
    let first = shown(inputs[0].source.path());
    let name = match inputs.len() {
        1 => first.display().to_string(),
        files => format!("{} and {} more", first.display(), files - 1),
    };
    let (slot_bytes, long_texts) = (table.group_bytes_max(&all), table.long_texts());
    let stream = Arc::new(StreamTable::new(name, Arc::new(table)));
    Ok(Opened { stream, slot_bytes, long_texts })
}

fn all_columns(schema: &Schema) -> Vec<ProjectionExpr> {
    let column = |(number, field): (usize, &Arc<datafusion::arrow::datatypes::Field>)| {
        let alias = field.name().clone();
        ProjectionExpr { expr: Arc::new(Column::new(&alias, number)), alias }
    };
    schema.fields().iter().enumerate().map(column).collect()
}

/// The files of a scan, each once: its partitions may share one.
fn inputs(config: &FileScanConfig) -> Result<Vec<&ParquetInput>, String> {
    let (mut seen, mut inputs) = (HashSet::new(), Vec::new());
    for file in config.file_groups.iter().flat_map(|group| group.files()) {
        let input = file.extension::<ParquetInput>();
        let input = input.ok_or_else(|| "a file was not looked at".to_string())?;
        if input.remote.is_some() {
            return Err("the files lie elsewhere".to_string());
        }
        if seen.insert(input.source.path()) {
            inputs.push(input);
        }
    }
    Ok(inputs)
}

fn file_of(input: &ParquetInput, wanted: &Schema) -> Result<ParquetFile, String> {
    let roots = input.metadata.file_metadata().schema_descr();
    let place = |name: &str| {
        let own = input.columns.index_of(name).ok()?;
        // Of a column that is not nested the only leaf has its number of columns.
        let leaf = (0..roots.num_columns()).find(|&leaf| roots.get_column_root_idx(leaf) == own)?;
        Some((leaf, input.columns.field(own).data_type().clone()))
    };
    let columns = wanted.fields().iter().map(|field| {
        let missing = || {
            format!("column {} is not in {}", field.name(), shown(input.source.path()).display())
        };
        place(field.name()).ok_or_else(missing)
    });
    let columns = columns.collect::<Result<Vec<(usize, DataType)>, _>>()?;
    let (source, metadata) = (Arc::clone(&input.source), Arc::clone(&input.metadata));
    Ok(ParquetFile { source, metadata, columns, texts: Arc::clone(&input.texts) })
}
