//! Separated values.
//!
//! What a file's beginning suggests ([`sniff`]) is checked for each later value ([`separated`](crate::catalog::separated)).

use std::collections::HashMap;
use std::io::BufRead;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{DataType, FieldRef, Schema};
use datafusion::common::Result;
use datafusion::datasource::physical_plan::FileSource;

use crate::catalog::cells::wider_number;
use crate::catalog::files::DataFile;
use crate::catalog::format::{FileFormat, Inspected, Scan};
use crate::catalog::layout::{Decode, Fault, Layout, Text, TextInput, Wanted};
use crate::catalog::options::ReadOptions;
use crate::catalog::records::{Block, Blocks, Records};
use crate::catalog::refusal::refused;
use crate::catalog::sample::{Cause, REPAIR, beginning};
use crate::catalog::separated::{Column, Reading, Separated};
use crate::catalog::sniff;
use crate::catalog::text::TextSource;

/// Values between delimiters, a record a line.
#[derive(Debug)]
pub struct Csv;

impl FileFormat for Csv {
    fn name(&self) -> &'static str {
        "CSV"
    }

    fn suffixes(&self) -> &'static [&'static str] {
        &["csv", "tsv"]
    }

    fn is_packable(&self) -> bool {
        true
    }

    fn functions(&self) -> &'static [&'static str] {
        &["read_csv", "read_csv_auto"]
    }

    fn options(&self) -> &'static [&'static str] {
        &[
            "delim", "quote", "escape", "header", "nullstr", "skip", "comment", "null_padding",
            "ignore_errors", "names", "columns", "types", "all_varchar", "dateformat",
            "timestampformat", "decimal_separator", "encoding", "compression",
        ]
    }

    fn inspect(
        &self,
        file: &DataFile,
        options: &ReadOptions,
        sample_bytes: usize,
    ) -> Result<Inspected> {
        look(file, options, sample_bytes).map_err(|cause| refused(file.path(), cause, REPAIR))
    }

    /// Values are read again, from their text, as what they turn out to be.
    fn wider(&self, a: &DataType, b: &DataType) -> Option<DataType> {
        use DataType::{Date32, Timestamp, Utf8};
        Some(match (a, b) {
            (Date32, moment @ Timestamp(_, None)) | (moment @ Timestamp(_, None), Date32) => {
                moment.clone()
            }
            _ => wider_number(a, b).unwrap_or(Utf8),
        })
    }

    fn source(&self, scan: Scan<'_>) -> Arc<dyn FileSource> {
        Arc::new(TextSource::new("csv", scan))
    }
}

fn look(file: &DataFile, options: &ReadOptions, sample_bytes: usize) -> Result<Inspected, Cause> {
    let mut text = Text::of(file, options);
    let (mut reader, first_line) = text.open()?;
    let format = sniff::first_format(file.path(), reader.fill_buf()?, options);
    let blocks = Blocks::new(reader, Records::Separated(format.separators), first_line);
    let told = sniff::sniff(&beginning(blocks, sample_bytes)?, format, options)?;
    text.skip_lines += told.preamble_lines;
    let layout = Layout::Records(Arc::new(Rows { format: told.format, columns: told.columns }));
    let input = TextInput { text, layout, row_bytes: told.row_bytes };
    let file = file.planned().with_extension(input);
    Ok(Inspected { file, schema: told.schema, notes: told.notes })
}

/// How the rows of a file lie.
#[derive(Debug)]
struct Rows {
    /// What stands between values, and what is NULL.
    format: Separated,
    /// The columns, in the order of the file.
    columns: Vec<Column>,
}

impl Decode for Rows {
    fn records(&self) -> Records {
        Records::Separated(self.format.separators)
    }

    fn decode(&self, block: &Block, wanted: &Wanted<'_>) -> Result<(Vec<RecordBatch>, u64), Fault> {
        let types = by_name(wanted.all);
        let typed = |column: &Column| match types.get(column.name.as_str()) {
            Some(field) => field.data_type().clone(),
            // It became a partition's.
            None => DataType::Utf8,
        };
        let read = by_name(wanted.schema);
        let is_read = |i: &usize| read.contains_key(self.columns[*i].name.as_str());
        let reading = Reading {
            format: &self.format,
            columns: &self.columns,
            types: self.columns.iter().map(typed).collect(),
            wanted: (0..self.columns.len()).filter(is_read).collect(),
            batch_rows: wanted.batch_rows,
        };
        reading
            .batches(block)
            .map_err(|fault| Fault { cause: fault.placed(block), remedy: fault.remedy })
    }
}

fn by_name(schema: &Schema) -> HashMap<&str, &FieldRef> {
    schema.fields().iter().map(|field| (field.name().as_str(), field)).collect()
}
