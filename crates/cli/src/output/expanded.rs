//! One line per value, with a head per row.

use std::io::{self, Write};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use super::cells::{Cells, header, width};
use super::format::{Writer, other};

/// One line per value.
pub struct ExpandedWriter {
    names: Vec<String>,
    rows: u64,
}

impl ExpandedWriter {
    pub fn new(schema: SchemaRef) -> Self {
        Self { names: schema.fields().iter().map(|f| header(f.name())).collect(), rows: 0 }
    }
}

impl Writer for ExpandedWriter {
    fn rows(&mut self, out: &mut dyn Write, batch: &RecordBatch) -> io::Result<()> {
        let cells = Cells::of(batch).map_err(other)?;
        let mut text = String::new();
        for row in 0..batch.num_rows() {
            let mut texts = Vec::with_capacity(self.names.len());
            for column in 0..self.names.len() {
                let mut cell = String::new();
                cells.write(row, column, &mut cell).map_err(other)?;
                texts.push(cell);
            }
            self.rows += 1;
            write_expanded(&self.names, &texts, self.rows, &mut text);
        }
        out.write_all(text.as_bytes())
    }

    fn finish(&mut self, out: &mut dyn Write) -> io::Result<()> {
        if self.rows == 0 { writeln!(out, "(no rows)") } else { Ok(()) }
    }
}

/// One row.
pub fn write_expanded(names: &[String], cells: &[String], number: u64, text: &mut String) {
    let widest = names.iter().map(|name| width(name)).max().unwrap_or(0);
    *text += &format!("-[ row {number} ]{}\n", "-".repeat(widest.saturating_sub(8).max(3)));
    for (name, cell) in names.iter().zip(cells) {
        text.push_str(name);
        text.extend(std::iter::repeat_n(' ', widest - width(name)));
        text.push_str(" | ");
        text.push_str(cell);
        text.push('\n');
    }
}
