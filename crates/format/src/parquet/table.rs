//! A table of Parquet files.

use std::ops::Range;
use std::sync::Arc;

use arrow_schema::{DataType, SchemaRef};
use headrace_io::{ReadAt, SourceFile};
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, RowGroupMetaData};

use super::codec;
use super::codes::{Dictionary, KnownTexts, TextColumn};
use super::statistics::{Claims, of_both};
use super::target::Target;
use crate::table::ColumnStats;

/// A file of a table, and where the table's columns are in it.
#[derive(Clone, Debug)]
pub struct ParquetFile {
    /// The file.
    pub source: Arc<SourceFile>,
    /// Its metadata, without statistics that prove nothing.
    pub metadata: Arc<ParquetMetaData>,
    /// For each column of the table the number of the file's, and its type there.
    pub columns: Vec<(usize, DataType)>,
    /// Its texts, as far as they are known.
    pub texts: Arc<KnownTexts>,
}

/// A column of a file.
#[derive(Clone, Debug)]
pub(super) struct FileColumn {
    pub leaf: usize,
    pub target: Target,
}

/// A file whose columns are read.
#[derive(Debug)]
pub(super) struct KnownFile {
    pub source: Arc<SourceFile>,
    pub metadata: Arc<ParquetMetaData>,
    pub columns: Vec<FileColumn>,
    texts: Arc<KnownTexts>,
}

impl KnownFile {
    pub fn group(&self, group: u32) -> &RowGroupMetaData {
        self.metadata.row_group(group as usize)
    }

    pub fn chunk(&self, group: u32, column: usize) -> &ColumnChunkMetaData {
        self.group(group).column(self.columns[column].leaf)
    }

    /// Whether no value of a column can be NULL.
    pub fn is_required(&self, column: usize) -> bool {
        let leaves = self.metadata.file_metadata().schema_descr().columns();
        leaves[self.columns[column].leaf].max_def_level() == 0
    }

    pub fn claims(&self, group: u32, column: usize) -> Claims {
        Claims::of(self.chunk(group, column), &self.columns[column].target)
    }
}

/// Columns of Parquet files that are read here.
#[derive(Debug)]
pub struct ParquetTable {
    pub(super) schema: SchemaRef,
    pub(super) files: Vec<KnownFile>,
    pub(super) rows: u64,
    pub(super) columns: Vec<ColumnStats>,
    dictionaries: Vec<Option<Arc<Dictionary>>>,
}

/// The bytes of a column chunk.
pub(super) fn chunk_bytes(chunk: &ColumnChunkMetaData) -> Option<Range<u64>> {
    let data = u64::try_from(chunk.data_page_offset()).ok()?;
    let from = match chunk.dictionary_page_offset() {
        Some(dictionary) => u64::try_from(dictionary).ok()?.min(data),
        None => data,
    };
    let to = from.checked_add(u64::try_from(chunk.compressed_size()).ok()?)?;
    Some(from..to)
}

impl ParquetTable {
    /// A table of columns, in the types that pipelines have of them.
    ///
    /// # Errors
    /// What of it is not read here, and why.
    pub fn new(schema: SchemaRef, files: Vec<ParquetFile>) -> std::result::Result<Self, String> {
        let files = files.into_iter().map(|file| known(&schema, file));
        let files = files.collect::<std::result::Result<Vec<_>, _>>()?;
        let groups = || {
            files.iter().flat_map(|file| {
                (0..).zip(file.metadata.row_groups()).map(move |(g, it)| (file, g, it))
            })
        };
        let rows = groups().map(|(_, _, group)| group.num_rows().max(0) as u64).sum();
        let stats = |column: usize| {
            let claims =
                groups().map(|(file, group, _)| file.claims(group, column)).reduce(of_both);
            let claims = claims.unwrap_or_default();
            let bytes = groups()
                .map(|(file, group, _)| file.chunk(group, column).uncompressed_size() as u64);
            // A claim, unless the file has no place for NULLs.
            let is_required = files.iter().all(|file| file.is_required(column));
            let null_count = claims.nulls.filter(|&nulls| nulls > 0 || is_required);
            ColumnStats { min: claims.min, max: claims.max, null_count, bytes: bytes.sum() }
        };
        let columns = (0..schema.fields().len()).map(stats).collect();
        let dictionaries = (0..schema.fields().len()).map(|column| dictionary(&files, column));
        let dictionaries: Vec<Option<_>> = dictionaries.collect();
        Ok(Self { schema, rows, columns, dictionaries, files })
    }

    /// Bytes of the largest row group's columns, as the files have them: of a chunk.
    pub fn group_bytes_max(&self, columns: &[usize]) -> u64 {
        let of = |file: &KnownFile, group| {
            let bytes =
                columns.iter().map(|&column| file.chunk(group, column).compressed_size() as u64);
            bytes.sum::<u64>()
        };
        let groups = self.files.iter().flat_map(|file| {
            (0..file.metadata.num_row_groups() as u32).map(move |group| of(file, group))
        });
        groups.max().unwrap_or(0)
    }

    /// Why rows with these columns had better stay where they are, if they had: texts much longer than their codes are
    /// copied for pipelines, and are not for the planner.
    pub fn long_texts(&self) -> Option<String> {
        let columns = 0..self.schema.fields().len();
        columns.filter(|&column| self.dictionaries[column].is_none()).find_map(|column| {
            let why = self.files.iter().find_map(|file| long_texts(file, column))?;
            Some(format!("column {}: {why}", self.name_of(column)))
        })
    }

    /// The dictionary of a column of codes.
    pub(super) fn texts_of(&self, column: usize) -> Option<&Arc<Dictionary>> {
        self.dictionaries.get(column)?.as_ref()
    }

    /// The name of a column.
    pub(super) fn name_of(&self, column: usize) -> &str {
        self.schema.field(column).name()
    }
}

/// All texts of a column, if the files' dictionaries have them.
fn dictionary(files: &[KnownFile], column: usize) -> Option<Arc<Dictionary>> {
    let text = |file: &'_ KnownFile| file.columns[column].target.is_text();
    let columns = files.iter().map(|file| TextColumn {
        file: &*file.source,
        metadata: &file.metadata,
        leaf: file.columns[column].leaf,
        known: &file.texts,
    });
    let columns: Vec<_> = columns.collect();
    files.iter().all(text).then(|| Dictionary::of(&columns).map(Arc::new))?
}

fn long_texts(file: &KnownFile, column: usize) -> Option<String> {
    const LONG_BYTES: i64 = 64;
    const TIMES: i64 = 4;
    if !matches!(file.columns[column].target, Target::Bytes { .. }) {
        return None;
    }
    let chunks = (0..file.metadata.num_row_groups() as u32).map(|group| file.chunk(group, column));
    let sizes = chunks.map(|chunk| {
        let told = chunk.unencoded_byte_array_data_bytes().unwrap_or(0);
        (chunk.num_values(), chunk.uncompressed_size(), told)
    });
    let sum = |(a, b, c): (i64, i64, i64), (d, e, f): (i64, i64, i64)| {
        (a.saturating_add(d), b.saturating_add(e), c.saturating_add(f))
    };
    let (rows, stored, told) = sizes.fold((0, 0, 0), sum);
    let is_long = told > rows.saturating_mul(LONG_BYTES) && told > stored.saturating_mul(TIMES);
    is_long.then(|| format!("texts of {told} bytes lie in {stored} with a dictionary"))
}

fn known(schema: &SchemaRef, file: ParquetFile) -> std::result::Result<KnownFile, String> {
    let ParquetFile { source, metadata, columns, texts } = file;
    let leaves = metadata.file_metadata().schema_descr().columns();
    let mut made = Vec::with_capacity(columns.len());
    for (field, (leaf, own)) in schema.fields().iter().zip(columns) {
        let refused = |why| format!("column {}: {why}", field.name());
        let column =
            leaves.get(leaf).ok_or_else(|| refused("it is not in all files".to_string()))?;
        let target = Target::of(column, &own, field.data_type()).map_err(refused)?;
        for group in metadata.row_groups() {
            check(group, leaf, source.size_bytes()).map_err(refused)?;
        }
        made.push(FileColumn { leaf, target });
    }
    Ok(KnownFile { source, metadata, columns: made, texts })
}

/// Whether a column chunk is one that is read here.
fn check(
    group: &RowGroupMetaData,
    leaf: usize,
    file_bytes: u64,
) -> std::result::Result<(), String> {
    let Some(chunk) = group.columns().get(leaf) else {
        return Err("a row group does not have it".to_string());
    };
    let rows = group.num_rows();
    if u32::try_from(rows).is_err() || rows > i32::MAX.into() || chunk.num_values() != rows {
        return Err(format!("a row group of {rows} rows has {} of its values", chunk.num_values()));
    }
    if chunk.file_path().is_some() {
        return Err("it lies in another file".to_string());
    }
    if !codec::is_read(chunk.compression()) {
        return Err(format!("compression {} is not read", chunk.compression()));
    }
    match chunk_bytes(chunk) {
        Some(bytes) if bytes.end <= file_bytes && chunk.uncompressed_size() >= 0 => Ok(()),
        _ => Err("its bytes are not all in the file".to_string()),
    }
}
