//! JSON: the values of objects as batches.
//!
//! The reader of JSON makes texts of all that is no list or object; [`cells`](super::cells) makes values of them, so that
//! no number loses digits.

use std::collections::HashMap;
use std::io::Cursor;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, ListArray, RecordBatch, RecordBatchOptions, StringArray, StructArray,
};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::json;

use super::cells::{self, Written};
use super::records::Block;
use super::sample::{REPAIR, plain_text};
use super::separated::{misfit_remedy, shown};
use super::shapes::{Scanner, text_hint};
use crate::sql::type_name;

/// How the objects of a block become batches.
pub struct Reading<'a> {
    /// What comes out.
    pub schema: &'a SchemaRef,
    /// Columns whose types somebody named.
    pub given: &'a [String],
    /// Rows of a batch at most.
    pub batch_rows: usize,
}

/// What keeps objects from being read: why, and what helps.
pub struct Fault {
    /// With the lines.
    pub cause: String,
    /// What helps.
    pub remedy: String,
}

impl Reading<'_> {
    /// The batches.
    ///
    /// # Errors
    /// A value that does not fit.
    pub fn batches(&self, block: &Block) -> Result<Vec<RecordBatch>, Fault> {
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
