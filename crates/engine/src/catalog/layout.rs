//! How the rows of a text file lie, and which columns it has, told from its beginning.

use std::fmt;
use std::io::BufRead;
use std::sync::Arc;

use datafusion::arrow::datatypes::Schema;
use datafusion::common::{DataFusionError, Result};
use headrace_io::SourceFile;
use memchr::memchr_iter;

use super::bytes::{FileBytes, skip_lines, unpacked};
use super::encoding::Encoding;
use super::files::DataFile;
use super::kinds::{Packing, TableKind, packing_of};
use super::options::ReadOptions;
use super::records::{Blocks, Records};
use super::refusal::refused;
use super::sample::{REPAIR, schema_of};
use super::separated::{Column, Separated};
use super::{shapes, sniff, stream};

/// What is known of a file before its rows are read.
#[derive(Clone, Debug)]
pub struct TextInput {
    /// The file, opened when it is read.
    pub source: Arc<SourceFile>,
    /// How its rows lie.
    pub layout: Layout,
    /// How it is packed.
    pub packing: Packing,
    /// In what its letters are written, if somebody says.
    pub encoding: Option<Encoding>,
    /// Lines before the first row or header.
    pub skip_lines: u64,
    /// Of a record of its beginning, on average; 0: not known.
    pub row_bytes: usize,
    /// What was told of it and could be wrong.
    pub notes: Vec<String>,
}

impl TextInput {
    /// The file's records, unpacked, and the line with which they begin.
    ///
    /// # Errors
    /// A file that cannot be read or unpacked.
    pub fn open(&self) -> std::io::Result<(Box<dyn BufRead + Send>, u64)> {
        let mut reader =
            unpacked(self.packing, self.encoding, FileBytes::whole(Arc::clone(&self.source)))?;
        let skipped = skip_lines(&mut reader, self.skip_lines)?;
        Ok((reader, 1 + skipped))
    }
}

/// How rows lie in a file.
#[derive(Clone, Debug)]
pub enum Layout {
    /// Values between delimiters, in the order of the header.
    Separated {
        /// What stands between them, and what is NULL.
        format: Separated,
        /// The columns, in the order of the file.
        columns: Arc<[Column]>,
    },
    /// JSON objects.
    Json {
        /// Where they end.
        records: Records,
        /// Columns whose types somebody named.
        given: Arc<[String]>,
    },
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
    options: &ReadOptions,
) -> Result<(TextInput, Schema)> {
    let path = file.path();
    let fail = |cause: &dyn fmt::Display| refused(path, cause, REPAIR);
    let source = Arc::clone(&file.source);
    let packing = options.packing.unwrap_or_else(|| packing_of(path));
    let mut input = TextInput {
        source,
        layout: Layout::Batches,
        packing,
        encoding: options.encoding,
        skip_lines: options.skip_lines.unwrap_or_default(),
        row_bytes: 0,
        notes: Vec::new(),
    };
    if kind == TableKind::Arrow {
        let reader = stream::open(&input.source).map_err(|e| fail(&e))?;
        let schema = Schema::clone(reader.schema());
        return Ok((input, schema));
    }
    let (mut reader, first_line) = input.open().map_err(|e| fail(&e))?;
    let sample = |reader: Box<dyn BufRead + Send>, records: Records| {
        let block = Blocks::new(reader, records, first_line).next(sample_bytes);
        let block = block.map_err(|e| fail(&e))?;
        Ok::<_, DataFusionError>(block.map(|block| block.bytes).unwrap_or_default())
    };
    let schema = match kind {
        TableKind::Csv => {
            let start = reader.fill_buf().map_err(|e| fail(&e))?;
            let format = sniff::first_format(path, start, options);
            let sample = sample(reader, Records::Separated(format.separators))?;
            let sniffed = sniff::sniff(&sample, format, options).map_err(|e| fail(&e))?;
            input.skip_lines += sniffed.preamble_lines;
            input.notes = sniffed.notes;
            input.row_bytes = sniffed.row_bytes;
            input.layout = Layout::Separated { format: sniffed.format, columns: sniffed.columns };
            sniffed.schema
        }
        _ => {
            let records = Records::of_json(&mut reader).map_err(|e| fail(&e))?;
            let sample = sample(reader, records)?;
            // A block has a line for each.
            input.row_bytes = sample.len() / memchr_iter(b'\n', &sample).count().max(1);
            let given = options.columns.iter().chain(&options.types);
            let given = given.map(|(name, _)| name.clone()).collect();
            input.layout = Layout::Json { records, given };
            match options.columns.as_slice() {
                [] => shapes::infer(&sample, &options.types).map_err(|e| fail(&e))?,
                columns => schema_of(columns),
            }
        }
    };
    Ok((input, schema))
}
