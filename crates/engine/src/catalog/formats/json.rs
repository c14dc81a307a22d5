//! JSON: objects, one after the other or in one array.
//!
//! Arrow's reader of JSON makes texts of all that is no list or object; [`cells`] makes values of them, so that no number
//! loses digits.

use std::collections::HashMap;
use std::io::{self, BufRead, Cursor, Read};
use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, ListArray, RecordBatch, RecordBatchOptions, StringArray, StructArray,
};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::json;
use datafusion::common::Result;
use datafusion::datasource::physical_plan::FileSource;
use headrace_io::{ReadAt, SourceFile};
use memchr::{memchr, memchr_iter};

use crate::catalog::bytes::{FileBytes, unpacked};
use crate::catalog::cells::{self, Written, wider_number};
use crate::catalog::files::DataFile;
use crate::catalog::format::{FileFormat, Inspected, Scan};
use crate::catalog::layout::{Decode, Fault, Layout, Text, TextInput, Wanted};
use crate::catalog::options::ReadOptions;
use crate::catalog::packing::{extension, packing_of};
use crate::catalog::records::{Block, Blocks, Records};
use crate::catalog::refusal::refused;
use crate::catalog::sample::{Cause, REPAIR, beginning, plain_text, schema_of};
use crate::catalog::separated::{misfit_remedy, shown};
use crate::catalog::shapes::{Scanner, infer, text_hint};
use crate::catalog::text::TextSource;
use crate::sql::type_name;

/// What is looked at to see whether a file is a table.
const FIRST_RECORD_BYTES_MAX: u64 = 1 << 20;

/// Objects of any layout.
#[derive(Debug)]
pub struct Json;

impl FileFormat for Json {
    fn name(&self) -> &'static str {
        "JSON"
    }

    fn suffixes(&self) -> &'static [&'static str] {
        &["json", "jsonl", "ndjson"]
    }

    fn is_packable(&self) -> bool {
        true
    }

    fn functions(&self) -> &'static [&'static str] {
        &["read_json", "read_json_auto", "read_ndjson", "read_ndjson_auto"]
    }

    fn options(&self) -> &'static [&'static str] {
        &["columns", "types", "encoding", "compression"]
    }

    /// Settings and manifests are JSON, too, but spread over lines.
    fn is_table(&self, file: &Arc<SourceFile>) -> bool {
        extension(file.path()) != "json" || is_list(file.path(), FileBytes::whole(Arc::clone(file)))
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
        let merged = || {
            let mut merged = Field::new("", a.clone(), true);
            merged.try_merge(&Field::new("", b.clone(), true)).ok()?;
            Some(merged.data_type().clone())
        };
        wider_number(a, b).or_else(merged)
    }

    fn source(&self, scan: Scan<'_>) -> Arc<dyn FileSource> {
        Arc::new(TextSource::new("json", scan))
    }
}

fn look(file: &DataFile, options: &ReadOptions, sample_bytes: usize) -> Result<Inspected, Cause> {
    let text = Text::of(file, options);
    let (mut reader, first_line) = text.open()?;
    let records = records_of(&mut reader)?;
    let sample = beginning(Blocks::new(reader, records, first_line), sample_bytes)?;
    let schema = match options.columns.as_slice() {
        [] => infer(&sample, &options.types)?,
        columns => schema_of(columns),
    };
    // A block has a line for each record.
    let row_bytes = sample.len() / memchr_iter(b'\n', &sample).count().max(1);
    let given = options.columns.iter().chain(&options.types);
    let given = given.map(|(name, _)| name.clone()).collect();
    let layout = Layout::Records(Arc::new(Objects { records, given }));
    let file = file.planned().with_extension(TextInput { text, layout, row_bytes });
    Ok(Inspected { file, schema, notes: Vec::new() })
}

/// How a file is laid out.
fn records_of(reader: &mut dyn BufRead) -> io::Result<Records> {
    let start = reader.fill_buf()?;
    let line_end = memchr(b'\n', start).unwrap_or(start.len());
    let line = start[..line_end].trim_ascii();
    let is_whole = line.starts_with(b"{") && line.ends_with(b"}");
    Ok(if is_whole { Records::Lines } else { Records::Values })
}

/// Whether a file is a list of objects: its first line is a whole one, or it is an array that begins with one.
fn is_list(path: &Path, bytes: impl Read + Send + 'static) -> bool {
    let Ok(mut reader) = unpacked(packing_of(path), None, bytes) else { return false };
    let records = records_of(&mut reader);
    // Bytes, since the last character may be cut.
    let (mut start, mut reader) = (Vec::new(), reader.take(FIRST_RECORD_BYTES_MAX));
    match records {
        Ok(Records::Lines) => {
            let read = reader.read_until(b'\n', &mut start);
            let line = start.trim_ascii();
            read.is_ok() && line.starts_with(b"{") && line.ends_with(b"}")
        }
        Ok(_) => {
            let read = reader.read_to_end(&mut start);
            let first = start.trim_ascii_start().strip_prefix(b"[").map(<[u8]>::trim_ascii_start);
            read.is_ok() && first.is_some_and(|text| matches!(text.first(), Some(b'{' | b']')))
        }
        Err(_) => false,
    }
}

/// How the objects of a file lie.
#[derive(Debug)]
struct Objects {
    /// Where they end.
    records: Records,
    /// Columns whose types somebody named.
    given: Vec<String>,
}

impl Decode for Objects {
    fn records(&self) -> Records {
        self.records
    }

    fn decode(&self, block: &Block, wanted: &Wanted<'_>) -> Result<(Vec<RecordBatch>, u64), Fault> {
        let Wanted { schema, batch_rows, .. } = *wanted;
        let batches = Reading { schema, given: &self.given, batch_rows }.batches(block)?;
        // Those that do not fit are errors.
        Ok((batches, 0))
    }
}

/// How the objects of a block become batches.
struct Reading<'a> {
    /// What comes out.
    schema: &'a SchemaRef,
    /// Columns whose types somebody named.
    given: &'a [String],
    /// Rows of a batch at most.
    batch_rows: usize,
}

impl Reading<'_> {
    fn batches(&self, block: &Block) -> Result<Vec<RecordBatch>, Fault> {
        let is_raw = |field: &&FieldRef| {
            *field.data_type() == DataType::Utf8 && self.given.contains(field.name())
        };
        let (raw, read): (Vec<&FieldRef>, Vec<&FieldRef>) =
            self.schema.fields().iter().partition(is_raw);
        let raw = self.raw_columns(block, &raw)?;
        let texts = read
            .iter()
            .map(|field| Arc::new(Field::new(field.name(), as_text(field.data_type()), true)));
        let texts = Arc::new(Schema::new(texts.collect::<Vec<_>>()));
        let reader = json::ReaderBuilder::new(texts)
            .with_coerce_primitive(true)
            .with_batch_size(self.batch_rows)
            .build(Cursor::new(&block.bytes))
            .map_err(|e| broken(&e, block))?;
        let (mut row, mut batches) = (0, Vec::new());
        for batch in reader {
            let batch = batch.map_err(|e| broken(&e, block))?;
            batches.push(self.batch(&batch, &raw, row, block)?);
            row += batch.num_rows();
        }
        match raw.values().all(|column| column.len() == row) {
            true => Ok(batches),
            false => Err(broken(&ArrowError::JsonError("values are no objects".into()), block)),
        }
    }

    fn batch(
        &self,
        texts: &RecordBatch,
        raw: &HashMap<&str, ArrayRef>,
        row: usize,
        block: &Block,
    ) -> Result<RecordBatch, Fault> {
        let rows = texts.num_rows();
        let column = |field: &FieldRef| -> Result<ArrayRef, Fault> {
            if let Some(raw) = raw.get(field.name().as_str()).filter(|raw| raw.len() >= row + rows)
            {
                return Ok(raw.slice(row, rows));
            }
            let Some(texts) = texts.column_by_name(field.name()) else {
                return Err(broken(&ArrowError::JsonError("values are no objects".into()), block));
            };
            let is_given = self.given.contains(field.name());
            valued(texts, field.data_type(), field.name(), is_given).map_err(|misfit| Fault {
                cause: format!("{}: {}", place(block, misfit.row.map(|at| row + at)), misfit.cause),
                remedy: misfit_remedy("read_json", field.name(), is_given),
            })
        };
        let columns = self.schema.fields().iter().map(column).collect::<Result<Vec<_>, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(Arc::clone(self.schema), columns, &options)
            .map_err(|e| broken(&e, block))
    }

    /// Columns that are to be text: what is none is its JSON.
    fn raw_columns<'f>(
        &self,
        block: &Block,
        fields: &[&'f FieldRef],
    ) -> Result<HashMap<&'f str, ArrayRef>, Fault> {
        if fields.is_empty() {
            return Ok(HashMap::new());
        }
        let mut columns: HashMap<&str, Vec<Option<String>>> =
            fields.iter().map(|field| (field.name().as_str(), Vec::new())).collect();
        let mut scanner = Scanner::of(&block.bytes);
        let mut rows = 0;
        while scanner.skip_blanks() {
            rows += 1;
            let taken = scanner.object(&mut |scanner, name| {
                let value = scanner.value_text()?;
                if let Some(column) = columns.get_mut(name) {
                    column.resize(rows - 1, None);
                    column.push(text_of(value)?);
                }
                Ok(())
            });
            taken.map_err(|cause| Fault {
                cause: format!("{}: {cause}", place(block, Some(rows - 1))),
                remedy: REPAIR.into(),
            })?;
        }
        let finished = columns.into_iter().map(|(name, mut values)| {
            values.resize(rows, None);
            (name, Arc::new(StringArray::from(values)) as ArrayRef)
        });
        Ok(finished.collect())
    }
}

fn text_of(json: &[u8]) -> Result<Option<String>, String> {
    match json {
        b"null" => Ok(None),
        [b'"', ..] => serde_json::from_slice(json).map_err(|e| e.to_string()),
        json => Ok(Some(String::from_utf8_lossy(json).into_owned())),
    }
}

/// The lines of a block, or about that of a record in it.
fn place(block: &Block, record: Option<usize>) -> String {
    let own_lines = memchr::memchr_iter(b'\n', &block.bytes).count() as u64;
    let is_filled = |line: &(usize, &[u8])| !line.1.trim_ascii().is_empty();
    let lines = block.bytes.split(|b| *b == b'\n').enumerate().filter(is_filled);
    match record.and_then(|record| lines.map(|(line, _)| line).nth(record)) {
        Some(line) if own_lines == block.lines => {
            format!("near line {}", block.first_line + line as u64)
        }
        _ => format!("lines {} to {}", block.first_line, block.first_line + block.lines),
    }
}

fn broken(error: &ArrowError, block: &Block) -> Fault {
    let text = plain_text(error);
    let field =
        text.split_once("whilst decoding field '").and_then(|(_, rest)| rest.split_once('\''));
    let remedy = match field {
        Some((field, _)) => text_hint(field),
        None => REPAIR.to_string(),
    };
    Fault { cause: format!("{}: {text}", place(block, None)), remedy }
}

/// The type that values of a type are read as.
fn as_text(data_type: &DataType) -> DataType {
    let renewed =
        |field: &FieldRef| Arc::new(Field::new(field.name(), as_text(field.data_type()), true));
    match data_type {
        DataType::Null => DataType::Null,
        DataType::List(item) => DataType::List(renewed(item)),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(renewed).collect()),
        _ => DataType::Utf8,
    }
}

/// A value that does not fit: its row, where that is known, and why.
struct Misfit {
    row: Option<usize>,
    cause: String,
}

/// Texts as values of a type.
fn valued(texts: &ArrayRef, to: &DataType, path: &str, is_given: bool) -> Result<ArrayRef, Misfit> {
    let fail = |e: ArrowError| Misfit { row: None, cause: plain_text(&e) };
    match to {
        DataType::Null => Ok(Arc::clone(texts)),
        DataType::List(item) => {
            let list = texts.as_list::<i32>();
            let values = valued(list.values(), item.data_type(), path, is_given)
                .map_err(|misfit| Misfit { row: None, ..misfit })?;
            let (offsets, nulls) = (list.offsets().clone(), list.nulls().cloned());
            let list =
                ListArray::try_new(Arc::clone(item), offsets, values, nulls).map_err(fail)?;
            Ok(Arc::new(list))
        }
        DataType::Struct(fields) => {
            let rows = texts.as_struct();
            let columns = fields.iter().zip(rows.columns()).map(|(field, column)| {
                valued(column, field.data_type(), &format!("{path}.{}", field.name()), is_given)
            });
            let columns = columns.collect::<Result<Vec<_>, _>>()?;
            let nulls = rows.nulls().cloned();
            let rows = StructArray::try_new_with_length(fields.clone(), columns, nulls, rows.len());
            Ok(Arc::new(rows.map_err(fail)?))
        }
        _ => {
            let texts = texts.as_string::<i32>();
            let written = Written { is_given, ..Written::default() };
            let (array, misfits) = cells::parse(texts, to, &written).map_err(fail)?;
            match misfits.first() {
                None => Ok(array),
                Some(row) => Err(Misfit {
                    row: Some(*row),
                    cause: format!(
                        "field {path}: '{}' is no {}",
                        shown(texts.value(*row)),
                        type_name(to)
                    ),
                }),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_long_list_is_a_table_in_any_alphabet() {
        for shift in ["", " "] {
            let text = format!("[{shift}{{\"a\": \"{}\"}}]", "é".repeat(1 << 20));
            assert!(is_list(Path::new("t.json"), Cursor::new(text)));
        }
    }
}
