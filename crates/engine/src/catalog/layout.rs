//! How the rows of a text file lie, and which columns it has, told from its beginning.

use std::collections::HashMap;
use std::fmt;
use std::io::Cursor;
use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::csv;
use datafusion::arrow::datatypes::{Field, Schema};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::json;
use datafusion::common::Result;
use headrace_io::SourceFile;
use memchr::memchr_iter;

use super::files::{DataFile, TableKind, extension, refused};
use super::records::{Blocks, FileBytes, Records, unpacked};
use super::stream;

/// Records at most that types are told from.
pub const SAMPLE_RECORDS_MAX: usize = 20_480;

/// What helps against a file that cannot be read.
pub const REPAIR: &str = "mend the file or move it out of its table's folder";

/// What is known of a file before its rows are read.
#[derive(Clone, Debug)]
pub struct TextInput {
    /// The file, opened when it is read.
    pub source: Arc<SourceFile>,
    /// How its rows lie.
    pub layout: Layout,
}

/// How rows lie in a file.
#[derive(Clone, Debug)]
pub enum Layout {
    /// Values between delimiters, in the order of the header.
    Separated {
        /// Between values.
        delimiter: u8,
        /// Names, none twice.
        columns: Arc<[String]>,
    },
    /// JSON objects.
    Json(Records),
    /// A stream of Arrow batches.
    Batches,
}

/// Looks at the beginning of a file: how it is laid out, and which columns it has.
///
/// # Errors
/// With the file's name: what keeps it from being read.
pub fn inspect(
    file: &DataFile,
    kind: TableKind,
    sample_bytes: usize,
) -> Result<(TextInput, Schema)> {
    let path = file.path();
    let fail = |cause: &dyn fmt::Display| refused(path, cause, REPAIR);
    let source = Arc::clone(&file.source);
    let bytes = FileBytes::whole(Arc::clone(&source));
    if kind == TableKind::Arrow {
        let reader = stream::open(bytes).map_err(|e| fail(&e))?;
        let schema = Schema::clone(&reader.schema());
        return Ok((TextInput { source, layout: Layout::Batches }, schema));
    }
    let mut reader = unpacked(path, bytes).map_err(|e| fail(&e))?;
    let records = match kind {
        TableKind::Csv => {
            let start = reader.fill_buf().map_err(|e| fail(&e))?;
            Records::Separated { delimiter: delimiter(path, start) }
        }
        _ => Records::of_json(&mut reader).map_err(|e| fail(&e))?,
    };
    let block = Blocks::new(reader, records, 1).next(sample_bytes).map_err(|e| fail(&e))?;
    let sample = Cursor::new(block.map(|block| block.bytes).unwrap_or_default());
    let (layout, schema) = match records {
        Records::Separated { delimiter } => {
            if sample.get_ref().is_empty() {
                return Err(fail(&"it is empty: the first line must name the columns"));
            }
            let format = csv::reader::Format::default().with_header(true).with_delimiter(delimiter);
            let (schema, _) = format
                .infer_schema(sample, Some(SAMPLE_RECORDS_MAX))
                .map_err(|e| fail(&plain_text(&e)))?;
            let columns: Arc<[String]> = column_names(&schema).into();
            let fields = columns.iter().zip(schema.fields());
            let fields = fields.map(|(name, f)| Field::new(name, f.data_type().clone(), true));
            let schema = Schema::new(fields.collect::<Vec<_>>());
            (Layout::Separated { delimiter, columns }, schema)
        }
        records => {
            let (schema, _) = json::reader::infer_json_schema(sample, Some(SAMPLE_RECORDS_MAX))
                .map_err(|e| fail(&plain_text(&e)))?;
            (Layout::Json(records), schema)
        }
    };
    Ok((TextInput { source, layout }, schema))
}

/// A tab in a `.tsv` file; else what stands in the first line, a comma before all others.
fn delimiter(path: &Path, start: &[u8]) -> u8 {
    if extension(Path::new(path.file_stem().unwrap_or_default())) == "tsv"
        || extension(path) == "tsv"
    {
        return b'\t';
    }
    let line = start.split(|b| *b == b'\n').next().unwrap_or_default();
    let known = [b',', b';', b'\t', b'|'];
    known.into_iter().find(|d| memchr_iter(*d, line).next().is_some()).unwrap_or(b',')
}

/// Every column has a name, and no two the same.
fn column_names(schema: &Schema) -> Vec<String> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut names = Vec::new();
    for (i, field) in schema.fields().iter().enumerate() {
        let mut name = field.name().clone();
        if name.is_empty() {
            name = format!("column_{}", i + 1);
        }
        while let Some(times) = seen.get_mut(&name) {
            *times += 1;
            name = format!("{name}_{times}");
        }
        seen.insert(name.clone(), 0);
        names.push(name);
    }
    names
}

/// What an error says, without the name of its class.
pub fn plain_text(error: &ArrowError) -> String {
    let text = error.to_string();
    let class = text.split_once(": ").filter(|(class, _)| class.ends_with("error"));
    class.map_or(text.as_str(), |(_, text)| text).to_string()
}
