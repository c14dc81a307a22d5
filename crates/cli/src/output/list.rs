//! Plain values with a separator, like psql's unaligned output and SQLite's list mode.

use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use super::cells::{Cells, header};
use super::format::{Writer, other};

/// The default separator.
const BAR: &str = "|";

/// The separator, if set by the user.
static SEPARATOR: Mutex<Option<String>> = Mutex::new(None);

/// Sets the separator of lists and CSV; `None` restores the defaults.
pub fn separate_by(text: Option<&str>) {
    *SEPARATOR.lock().unwrap_or_else(PoisonError::into_inner) = text.map(str::to_string);
}

/// The separator, if set by the user.
pub fn separator() -> Option<String> {
    SEPARATOR.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// One line per row; a NULL is empty, unless set otherwise.
pub struct ListWriter {
    schema: SchemaRef,
    separator: String,
    has_headers: bool,
    begun: bool,
}

impl ListWriter {
    pub fn new(schema: SchemaRef, has_headers: bool) -> Self {
        let separator = separator().unwrap_or_else(|| BAR.to_string());
        Self { schema, separator, has_headers, begun: false }
    }

    fn head(&mut self, text: &mut String) {
        if std::mem::replace(&mut self.begun, true) || !self.has_headers {
            return;
        }
        let names: Vec<String> = self.schema.fields().iter().map(|f| header(f.name())).collect();
        *text += &names.join(&self.separator);
        text.push('\n');
    }
}

impl Writer for ListWriter {
    fn rows(&mut self, out: &mut dyn Write, batch: &RecordBatch) -> io::Result<()> {
        let mut text = String::new();
        self.head(&mut text);
        let cells = Cells::plain(batch).map_err(other)?;
        for row in 0..batch.num_rows() {
            for column in 0..batch.num_columns() {
                if column > 0 {
                    text += &self.separator;
                }
                cells.write(row, column, &mut text).map_err(other)?;
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
