//! Values as text.

use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};

use arrow_array::RecordBatch;
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::{ArrowError, DataType, SchemaRef};
use unicode_width::UnicodeWidthStr;

/// Formats the cells of a batch, row by row.
pub struct Cells<'a> {
    columns: Vec<ArrayFormatter<'a>>,
}

/// The text of a NULL, if set by the user.
static NULL: Mutex<Option<&'static str>> = Mutex::new(None);

/// Sets the text of a NULL.
pub fn show_null_as(text: &str) {
    // As often as somebody types it.
    *NULL.lock().unwrap_or_else(PoisonError::into_inner) = Some(String::leak(header(text)));
}

/// Widths of a table's columns, if set by the user: 0 is as wide as needed, and negative numbers align right.
static WIDTHS: Mutex<Vec<i32>> = Mutex::new(Vec::new());

/// Sets the widths of tables' columns.
pub fn show_widths(widths: Vec<i32>) {
    *WIDTHS.lock().unwrap_or_else(PoisonError::into_inner) = widths;
}

/// The widths of tables' columns, if set by the user.
pub fn widths() -> Vec<i32> {
    WIDTHS.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

impl<'a> Cells<'a> {
    /// For people: a NULL is shown as a word.
    pub fn of(batch: &'a RecordBatch) -> Result<Self, ArrowError> {
        Self::with_null(batch, "NULL")
    }

    /// For programs: a NULL is empty.
    pub fn plain(batch: &'a RecordBatch) -> Result<Self, ArrowError> {
        Self::with_null(batch, "")
    }

    fn with_null(batch: &'a RecordBatch, usual: &'static str) -> Result<Self, ArrowError> {
        let null = NULL.lock().unwrap_or_else(PoisonError::into_inner).unwrap_or(usual);
        let options = FormatOptions::new().with_null(null);
        let columns: Result<_, _> = batch
            .columns()
            .iter()
            .map(|column| ArrayFormatter::try_new(column.as_ref(), &options))
            .collect();
        Ok(Self { columns: columns? })
    }

    /// Appends the text of a cell in one line, without terminal control characters.
    pub fn write(&self, row: usize, column: usize, text: &mut String) -> Result<(), ArrowError> {
        let begin = text.len();
        self.columns[column].value(row).write(text)?;
        if text[begin..].contains(char::is_control) {
            let cell = text.split_off(begin);
            escape(&cell, text);
        }
        Ok(())
    }
}

/// Appends a text with control characters as escapes.
fn escape(cell: &str, text: &mut String) {
    for c in cell.chars() {
        match c {
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            c if c.is_control() => {
                // Writing to a String does not fail.
                let _ = write!(text, "\\x{:02x}", c as u32);
            }
            c => text.push(c),
        }
    }
}

/// A column's name in one line.
pub fn header(name: &str) -> String {
    let mut text = String::new();
    escape(name, &mut text);
    text
}

/// Columns on a terminal.
pub fn width(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { text.width() }
}

/// The beginning of a text that fits, with a mark if it was cut.
pub fn cut(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_string();
    }
    let mut cut = String::new();
    let mut used = 1;
    for c in text.chars() {
        used += width(c.encode_utf8(&mut [0; 4]));
        if used > columns {
            break;
        }
        cut.push(c);
    }
    cut + "…"
}

/// Whether each column is numeric.
pub fn numeric(schema: &SchemaRef) -> Vec<bool> {
    let value = |data_type: &DataType| match data_type {
        DataType::Dictionary(_, value) => value.is_numeric(),
        other => other.is_numeric(),
    };
    schema.fields().iter().map(|field| value(field.data_type())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_reach_no_terminal() {
        let mut text = String::from("a");
        escape("\u{1b}[2J\n\u{9b}é", &mut text);
        assert_eq!(text, "a\\x1b[2J\\n\\x9bé");
    }

    #[test]
    fn texts_are_cut_by_what_they_take_on_a_terminal() {
        assert_eq!(cut("abc", 3), "abc");
        assert_eq!(cut("abcd", 3), "ab…");
        assert_eq!(cut("日本語", 5), "日本…");
        assert_eq!(cut("日本語", 4), "日…");
    }
}
