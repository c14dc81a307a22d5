//! JSON: one array of objects, or one object per line.

use std::io::{self, Write};

use arrow_array::RecordBatch;
use arrow_json::writer::LineDelimited;
use arrow_schema::SchemaRef;

use super::format::{Writer, other, renamed, unique};

/// Objects, with or without brackets.
pub struct JsonWriter {
    schema: SchemaRef,
    is_array: bool,
    begun: bool,
}

impl JsonWriter {
    pub fn array(schema: &SchemaRef) -> Self {
        Self { schema: unique(schema), is_array: true, begun: false }
    }

    pub fn lines(schema: &SchemaRef) -> Self {
        Self { is_array: false, ..Self::array(schema) }
    }
}

impl Writer for JsonWriter {
    fn rows(&mut self, out: &mut dyn Write, batch: &RecordBatch) -> io::Result<()> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let mut text = Vec::new();
        let mut writer = arrow_json::WriterBuilder::new()
            .with_explicit_nulls(true)
            .build::<_, LineDelimited>(&mut text);
        writer.write(&renamed(batch, &self.schema).map_err(other)?).map_err(other)?;
        writer.finish().map_err(other)?;
        drop(writer);
        if !self.is_array {
            return out.write_all(&text);
        }
        // Inside texts a line break is an escape: each one that stands here ends an object.
        let objects = text.strip_suffix(b"\n").unwrap_or(&text);
        let mut array = Vec::with_capacity(text.len() * 9 / 8);
        array.extend_from_slice(if std::mem::replace(&mut self.begun, true) {
            b",\n"
        } else {
            b"["
        });
        for (i, object) in objects.split(|&byte| byte == b'\n').enumerate() {
            if i > 0 {
                array.extend_from_slice(b",\n");
            }
            array.extend_from_slice(object);
        }
        out.write_all(&array)
    }

    fn finish(&mut self, out: &mut dyn Write) -> io::Result<()> {
        match (self.is_array, self.begun) {
            (true, true) => writeln!(out, "]"),
            (true, false) => writeln!(out, "[]"),
            (false, _) => Ok(()),
        }
    }
}
