//! Comma- and tab-separated values, Markdown.

use std::io::{self, Write};
use std::sync::Arc;

use arrow_array::builder::StringBuilder;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_json::writer::{EncoderOptions, make_encoder};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Schema, SchemaRef};

use super::cells::{Cells, header, numeric};
use super::format::{Writer, other};

/// NULL is empty.
pub struct CsvWriter {
    schema: SchemaRef,
    separator: u8,
    /// Whether the column names are still to be written.
    header: bool,
    begun: bool,
}

impl CsvWriter {
    pub fn new(schema: SchemaRef, separator: u8, header: bool) -> Self {
        Self { schema, separator, header, begun: false }
    }
}

impl Writer for CsvWriter {
    fn rows(&mut self, out: &mut dyn Write, batch: &RecordBatch) -> io::Result<()> {
        self.begun = true;
        let header = std::mem::replace(&mut self.header, false);
        // Into memory first: the CSV writer tells a closed pipe only in words.
        let mut text = Vec::new();
        let mut writer = arrow_csv::WriterBuilder::new()
            .with_header(header)
            .with_delimiter(self.separator)
            .build(&mut text);
        writer.write(&flat(batch).map_err(other)?).map_err(other)?;
        drop(writer);
        out.write_all(&text)
    }

    fn finish(&mut self, out: &mut dyn Write) -> io::Result<()> {
        if self.begun {
            return Ok(());
        }
        let empty = RecordBatch::new_empty(Arc::clone(&self.schema));
        self.rows(out, &empty)
    }
}

/// A batch with lists and structs as JSON texts.
fn flat(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    if !batch.columns().iter().any(|column| column.data_type().is_nested()) {
        return Ok(batch.clone());
    }
    let mut fields = Vec::new();
    let mut columns = Vec::new();
    for (field, column) in batch.schema_ref().fields().iter().zip(batch.columns()) {
        let (field, column) = match column.data_type().is_nested() {
            true => {
                (Arc::new(Field::new(field.name(), DataType::Utf8, true)), json(field, column)?)
            }
            false => (Arc::clone(field), Arc::clone(column)),
        };
        fields.push(field);
        columns.push(column);
    }
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)
}

fn json(field: &FieldRef, column: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let options = EncoderOptions::default().with_explicit_nulls(true);
    let mut encoder = make_encoder(field, column.as_ref(), &options)?;
    let mut texts = StringBuilder::new();
    let mut text = Vec::new();
    for row in 0..column.len() {
        if column.is_null(row) {
            texts.append_null();
            continue;
        }
        text.clear();
        encoder.encode(row, &mut text);
        texts.append_value(String::from_utf8_lossy(&text));
    }
    Ok(Arc::new(texts.finish()))
}

/// A table in Markdown.
pub struct MarkdownWriter {
    schema: SchemaRef,
    begun: bool,
}

impl MarkdownWriter {
    pub fn new(schema: SchemaRef) -> Self {
        Self { schema, begun: false }
    }

    fn head(&mut self, text: &mut String) {
        if std::mem::replace(&mut self.begun, true) {
            return;
        }
        text.push('|');
        for field in self.schema.fields() {
            *text += &format!(" {} |", header(field.name()).replace('|', "\\|"));
        }
        text.push_str("\n|");
        for is_number in numeric(&self.schema) {
            *text += if is_number { " ---: |" } else { " --- |" };
        }
        text.push('\n');
    }
}

impl Writer for MarkdownWriter {
    fn rows(&mut self, out: &mut dyn Write, batch: &RecordBatch) -> io::Result<()> {
        let mut text = String::new();
        self.head(&mut text);
        let cells = Cells::of(batch).map_err(other)?;
        let mut cell = String::new();
        for row in 0..batch.num_rows() {
            text.push('|');
            for column in 0..batch.num_columns() {
                cell.clear();
                cells.write(row, column, &mut cell).map_err(other)?;
                text.push(' ');
                text.push_str(&cell.replace('|', "\\|"));
                text.push_str(" |");
            }
            text.push('\n');
        }
        out.write_all(text.as_bytes())
    }

    fn finish(&mut self, out: &mut dyn Write) -> io::Result<()> {
        let mut text = String::new();
        self.head(&mut text);
        out.write_all(text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use arrow_array::ListArray;
    use arrow_array::types::Int32Type;

    #[test]
    fn lists_are_texts_of_json() {
        let lists = ListArray::from_iter_primitive::<Int32Type, _, _>([
            Some(vec![Some(1), None]),
            None,
            Some(vec![]),
        ]);
        let field = Field::new("l", lists.data_type().clone(), true);
        let schema = Arc::new(Schema::new(vec![field]));
        let batch = RecordBatch::try_new(schema.clone(), vec![Arc::new(lists)]).unwrap();
        let mut out = Vec::new();
        let mut writer = CsvWriter::new(schema.clone(), b',', true);
        writer.rows(&mut out, &batch).unwrap();
        writer.finish(&mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "l\n\"[1,null]\"\n\"\"\n[]\n");
    }
}
