//! One result, batch by batch, in the requested format.

use std::io::{self, Write};
use std::path::Path;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use super::expanded::ExpandedWriter;
use super::files::{ArrowWriter, ParquetFileWriter};
use super::format::{Expanded, Format, Layout, Writer};
use super::json::JsonWriter;
use super::list::{ListWriter, separator};
use super::table::TableWriter;
use super::text::{CsvWriter, MarkdownWriter};

/// Rows per write, so that a reader of the first rows does not wait for a whole batch.
const ROWS_AT_ONCE: usize = 1024;

/// Writes one result.
pub struct Printer {
    writer: Option<Box<dyn Writer + Send>>,
    /// Rows that are shown.
    rows_max: u64,
    rows_at_once: usize,
    rows: u64,
}

impl Printer {
    /// A result of a schema; `file` is its destination, if it is a file.
    pub fn new(layout: &Layout, schema: SchemaRef, file: Option<&Path>) -> io::Result<Self> {
        // A statement without an answer, such as CREATE TABLE.
        let writer = match schema.fields().is_empty() {
            true => None,
            false => Some(writer(layout, schema, file)?),
        };
        let room = layout.terminal.filter(|_| matches!(layout.format, Format::Table | Format::Box));
        let rows_max = room.map_or(u64::MAX, |room| room.rows_max as u64);
        // Programs read batches whole.
        let rows_at_once = if layout.format.is_binary() { usize::MAX } else { ROWS_AT_ONCE };
        Ok(Self { writer, rows_max, rows_at_once, rows: 0 })
    }

    /// The next rows.
    pub fn write(&mut self, out: &mut dyn Write, batch: &RecordBatch) -> io::Result<()> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        let shown = self.rows_max.saturating_sub(self.rows).min(batch.num_rows() as u64);
        self.rows += batch.num_rows() as u64;
        let shown = usize::try_from(shown).unwrap_or(usize::MAX);
        for begin in (0..shown).step_by(self.rows_at_once) {
            let rows = self.rows_at_once.min(shown - begin);
            writer.rows(out, &batch.slice(begin, rows))?;
        }
        Ok(())
    }

    /// Whether further rows are only counted.
    pub fn is_full(&self) -> bool {
        self.rows > self.rows_max
    }

    /// The end of the result; `is_whole` if all rows arrived.
    pub fn finish(mut self, out: &mut dyn Write, is_whole: bool) -> io::Result<()> {
        if let Some(writer) = &mut self.writer {
            writer.finish(out)?;
        }
        if self.is_full() {
            let more = if is_whole { "" } else { "more than " };
            writeln!(
                out,
                "({} of {more}{} rows shown; .maxrows N shows more, \\o FILE writes all)",
                self.rows_max, self.rows
            )?;
        }
        out.flush()
    }
}

fn writer(
    layout: &Layout,
    schema: SchemaRef,
    file: Option<&Path>,
) -> io::Result<Box<dyn Writer + Send>> {
    Ok(match layout.format {
        Format::Table | Format::Box if layout.expanded == Expanded::On => {
            Box::new(ExpandedWriter::new(schema))
        }
        Format::Table | Format::Box => Box::new(TableWriter::new(schema, *layout)),
        Format::Csv => Box::new(CsvWriter::new(schema, csv_separator()?, layout.headers)),
        Format::Tsv => Box::new(CsvWriter::new(schema, b'\t', layout.headers)),
        Format::List => Box::new(ListWriter::new(schema, layout.headers)),
        Format::Markdown => Box::new(MarkdownWriter::new(schema)),
        Format::Json => Box::new(JsonWriter::array(&schema)),
        Format::Ndjson => Box::new(JsonWriter::lines(&schema)),
        Format::Arrow => Box::new(ArrowWriter::new(&schema, file, layout.batch_bytes_max)?),
        Format::Parquet => Box::new(ParquetFileWriter::new(&schema, layout.batch_bytes_max)?),
    })
}

fn csv_separator() -> io::Result<u8> {
    let Some(separator) = separator() else { return Ok(b',') };
    match separator.as_bytes() {
        [byte] => Ok(*byte),
        _ => Err(io::Error::other(format!(
            "CSV has one character between values, and not '{separator}': .separator ';', or .mode list"
        ))),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::format::Room;
    use super::*;
    use arrow_array::{ArrayRef, Int32Array, StringArray};
    use arrow_schema::{Field, Schema};
    use std::sync::Arc;

    fn batch(names: [&str; 2]) -> RecordBatch {
        let n: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), None]));
        let s: ArrayRef = Arc::new(StringArray::from(vec![Some("a,b|"), None]));
        let fields = [(&n, names[0]), (&s, names[1])]
            .map(|(column, name)| Field::new(name, column.data_type().clone(), true));
        RecordBatch::try_new(Arc::new(Schema::new(fields.to_vec())), vec![n.clone(), s.clone()])
            .unwrap()
    }

    fn text(layout: Layout, batches: &[RecordBatch]) -> String {
        let mut out = Vec::new();
        let schema = batches.first().map_or_else(|| batch(["n", "s"]).schema(), |b| b.schema());
        let mut printer = Printer::new(&layout, schema, None).unwrap();
        for batch in batches {
            printer.write(&mut out, batch).unwrap();
        }
        printer.finish(&mut out, true).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn formats() {
        let batches = [batch(["n", "s"])];
        let text = |format| text(Layout::plain(format), &batches);
        assert_eq!(text(Format::Csv), "n,s\n1,\"a,b|\"\n,\n");
        assert_eq!(text(Format::Tsv), "n\ts\n1\ta,b|\n\t\n");
        assert_eq!(text(Format::Json), "[{\"n\":1,\"s\":\"a,b|\"},\n{\"n\":null,\"s\":null}]\n");
        assert_eq!(text(Format::Ndjson), "{\"n\":1,\"s\":\"a,b|\"}\n{\"n\":null,\"s\":null}\n");
        assert_eq!(
            text(Format::Markdown),
            "| n | s |\n| ---: | --- |\n| 1 | a,b\\| |\n| NULL | NULL |\n"
        );
        assert_eq!(
            text(Format::Table),
            "+------+------+\n| n    | s    |\n+------+------+\n|    1 | a,b| |\n| NULL | NULL |\n\
             +------+------+\n"
        );
    }

    #[test]
    fn several_batches_are_one_result() {
        let twice = [batch(["n", "s"]), batch(["n", "s"])];
        assert_eq!(text(Layout::plain(Format::Csv), &twice), "n,s\n1,\"a,b|\"\n,\n1,\"a,b|\"\n,\n");
        let json: serde_json::Value =
            serde_json::from_str(&text(Layout::plain(Format::Json), &twice)).unwrap();
        assert_eq!(json.as_array().unwrap().len(), 4);
        let table = text(Layout::plain(Format::Table), &twice);
        assert_eq!(table.lines().filter(|line| line.starts_with('+')).count(), 3);
    }

    #[test]
    fn no_rows_still_have_a_shape() {
        assert_eq!(text(Layout::plain(Format::Csv), &[]), "n,s\n");
        assert_eq!(text(Layout::plain(Format::Json), &[]), "[]\n");
        assert_eq!(text(Layout::plain(Format::Ndjson), &[]), "");
        assert!(text(Layout::plain(Format::Table), &[]).contains("| n | s |"));
    }

    #[test]
    fn columns_of_one_name() {
        let batches = [batch(["n", "n"])];
        assert_eq!(text(Layout::plain(Format::Csv), &batches), "n,n\n1,\"a,b|\"\n,\n");
        assert!(
            text(Layout::plain(Format::Ndjson), &batches).starts_with("{\"n\":1,\"n_1\":\"a,b|\"}")
        );
        assert!(text(Layout::plain(Format::Table), &batches).contains("| n    | n    |"));
    }

    #[test]
    fn a_terminal_is_told_what_it_does_not_show() {
        let room = Room { rows_max: 3, columns_max: 80 };
        let layout = Layout { terminal: Some(room), ..Layout::plain(Format::Table) };
        let three = text(layout, &[batch(["n", "s"]), batch(["n", "s"])]);
        assert_eq!(three.matches("NULL").count(), 2, "{three}");
        assert!(three.contains("(3 of 4 rows shown"), "{three}");
        let csv =
            text(Layout { format: Format::Csv, ..layout }, &[batch(["n", "s"]), batch(["n", "s"])]);
        assert_eq!(csv.lines().count(), 5);
    }
}
