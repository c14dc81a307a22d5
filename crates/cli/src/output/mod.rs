//! Results on standard output: data only, in the format asked for.

use std::io::{self, Write};
use std::path::Path;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_cast::display::FormatOptions;
use arrow_cast::pretty::pretty_format_batches_with_options;
use arrow_schema::{ArrowError, SchemaRef};

use crate::args::Format;
use crate::error::{Context, Result};

/// Rows that a table is allowed to hold back to align its columns; a longer result continues as
/// further tables.
const TABLE_ROWS_MAX: usize = 100_000;

/// Writes a whole text. A reader that has seen enough and left is no error.
pub fn print(text: &str) -> Result<()> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.at("standard output"),
    }
}

/// As [`print()`], a value as JSON for people and programs alike.
pub fn print_json(value: &impl serde::Serialize) -> Result<()> {
    print(&(serde_json::to_string_pretty(value).at("JSON")? + "\n"))
}

/// Whether a file's name stands for standard output.
pub fn is_stdout(file: &Path) -> bool {
    file == Path::new("-") || file == Path::new("/dev/stdout")
}

/// The folder that a file lies in.
pub fn folder_of(file: &Path) -> &Path {
    match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Writes a file whole or not at all: beside its place, then renamed. Devices and pipes are
/// written to and stay what they are; behind a symbolic link it is the file that is replaced.
pub fn put(file: &Path, text: &str) -> Result<()> {
    if is_stdout(file) {
        return print(text);
    }
    if std::fs::metadata(file).is_ok_and(|found| !found.is_file()) {
        return std::fs::write(file, text).at(file.display());
    }
    let resolved = std::fs::canonicalize(file);
    let file = resolved.as_deref().unwrap_or(file);
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let temporary = folder_of(file).join(format!(".{name}.{}.partial", std::process::id()));
    let written = std::fs::write(&temporary, text).and_then(|()| std::fs::rename(&temporary, file));
    if written.is_err() {
        // Nothing half-written stays; if even that fails, its name says what it is.
        let _ = std::fs::remove_file(&temporary);
    }
    written.at(file.display())
}

/// Writes one result, batch by batch.
pub struct Printer {
    format: Format,
    schema: SchemaRef,
    held: Vec<RecordBatch>,
    held_rows: usize,
    begun: bool,
}

impl Printer {
    /// A result of a schema.
    pub fn new(format: Format, schema: SchemaRef) -> Self {
        Self { format, schema, held: Vec::new(), held_rows: 0, begun: false }
    }

    /// The next rows.
    pub fn write(&mut self, out: &mut dyn Write, batch: RecordBatch) -> io::Result<()> {
        match self.format {
            Format::Csv => self.write_csv(out, &batch),
            Format::Json => self.write_json(out, &batch),
            Format::Table => {
                self.held_rows += batch.num_rows();
                self.held.push(batch);
                if self.held_rows > TABLE_ROWS_MAX { self.write_table(out) } else { Ok(()) }
            }
        }
    }

    /// The end of the result.
    pub fn finish(mut self, out: &mut dyn Write) -> io::Result<()> {
        match self.format {
            Format::Csv if !self.begun => {
                let empty = RecordBatch::new_empty(self.schema.clone());
                self.write_csv(out, &empty)?;
            }
            Format::Csv => {}
            Format::Json if self.begun => writeln!(out, "]")?,
            Format::Json => writeln!(out, "[]")?,
            Format::Table if self.begun && self.held.is_empty() => {}
            Format::Table => self.write_table(out)?,
        }
        out.flush()
    }

    fn write_table(&mut self, out: &mut dyn Write) -> io::Result<()> {
        if self.held.is_empty() {
            self.held.push(RecordBatch::new_empty(self.schema.clone()));
        }
        self.held_rows = 0;
        self.begun = true;
        let held = std::mem::take(&mut self.held);
        if let Some(plans) = plan_texts(&self.schema, &held) {
            return plans.iter().try_for_each(|plan| writeln!(out, "{}", plan.trim_end()));
        }
        let options = FormatOptions::default().with_null("NULL");
        let text = pretty_format_batches_with_options(&held, &options).map_err(other)?;
        writeln!(out, "{text}")
    }

    fn write_csv(&mut self, out: &mut dyn Write, batch: &RecordBatch) -> io::Result<()> {
        let header = !std::mem::replace(&mut self.begun, true);
        // Into memory first: the CSV writer tells a closed pipe only in words.
        let mut text = Vec::new();
        let mut writer = arrow_csv::WriterBuilder::new().with_header(header).build(&mut text);
        writer.write(batch).map_err(other)?;
        drop(writer);
        out.write_all(&text)
    }

    /// One array over all batches: each batch is written as an array of its own, whose brackets
    /// are left out.
    fn write_json(&mut self, out: &mut dyn Write, batch: &RecordBatch) -> io::Result<()> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let mut text = Vec::new();
        let mut writer = arrow_json::WriterBuilder::new()
            .with_explicit_nulls(true)
            .build::<_, arrow_json::writer::JsonArray>(&mut text);
        writer.write(batch).map_err(other)?;
        writer.finish().map_err(other)?;
        drop(writer);
        let inner = text.strip_prefix(b"[").and_then(|t| t.strip_suffix(b"]")).unwrap_or(&text);
        let begun = std::mem::replace(&mut self.begun, true);
        out.write_all(if begun { b",\n" } else { b"[" })?;
        out.write_all(inner)
    }
}

/// The texts of an EXPLAIN: plans are indented lines and read badly inside a box. Plans that
/// still name the logical plan show only what runs.
fn plan_texts(schema: &SchemaRef, batches: &[RecordBatch]) -> Option<Vec<String>> {
    let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    if names != ["plan_type", "plan"] {
        return None;
    }
    let mut texts = Vec::new();
    for batch in batches {
        let kinds = batch.column(0).as_string_opt::<i32>()?;
        let plans = batch.column(1).as_string_opt::<i32>()?;
        let pairs = kinds.iter().flatten().zip(plans.iter().flatten());
        texts.extend(
            pairs.filter(|(kind, _)| *kind != "logical_plan").map(|(_, plan)| plan.to_string()),
        );
    }
    Some(texts)
}

fn other(error: ArrowError) -> io::Error {
    match error {
        ArrowError::IoError(_, source) => source,
        error => io::Error::other(error),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use arrow_array::{Int32Array, StringArray};
    use arrow_schema::{DataType, Field, Schema};
    use std::sync::Arc;

    fn result() -> (SchemaRef, Vec<RecordBatch>) {
        let schema = Arc::new(Schema::new(vec![
            Field::new("n", DataType::Int32, true),
            Field::new("s", DataType::Utf8, true),
        ]));
        let columns: Vec<arrow_array::ArrayRef> = vec![
            Arc::new(Int32Array::from(vec![Some(1), None])),
            Arc::new(StringArray::from(vec![Some("a,b"), None])),
        ];
        let batch = RecordBatch::try_new(schema.clone(), columns).unwrap();
        (schema, vec![batch])
    }

    fn text(format: Format, batches: &[RecordBatch]) -> String {
        let mut out = Vec::new();
        let mut printer = Printer::new(format, result().0);
        for batch in batches {
            printer.write(&mut out, batch.clone()).unwrap();
        }
        printer.finish(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn what_is_put_replaces_files_alone() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("a.json"), folder.path().join("link.json"));
        put(&file, "old").unwrap();
        std::os::unix::fs::symlink("a.json", &link).unwrap();
        put(&link, "new").unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "new");
        assert!(link.is_symlink());
        let null = folder.path().join("null.json");
        std::os::unix::fs::symlink("/dev/null", &null).unwrap();
        put(&null, "gone").unwrap();
        assert!(null.is_symlink(), "what it leads to was written to");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 3);
    }

    #[test]
    fn formats() {
        let (_, batches) = result();
        assert_eq!(text(Format::Csv, &batches), "n,s\n1,\"a,b\"\n,\n");
        assert_eq!(
            text(Format::Json, &batches),
            "[{\"n\":1,\"s\":\"a,b\"},{\"n\":null,\"s\":null}]\n"
        );
        assert!(text(Format::Table, &batches).contains("| 1    | a,b  |"));
    }

    #[test]
    fn several_batches_are_one_result() {
        let (_, batches) = result();
        let twice = [batches[0].clone(), batches[0].clone()];
        assert_eq!(text(Format::Csv, &twice), "n,s\n1,\"a,b\"\n,\n1,\"a,b\"\n,\n");
        let json: serde_json::Value = serde_json::from_str(&text(Format::Json, &twice)).unwrap();
        assert_eq!(json.as_array().unwrap().len(), 4);
    }

    #[test]
    fn no_rows_still_have_a_shape() {
        assert_eq!(text(Format::Csv, &[]), "n,s\n");
        assert_eq!(text(Format::Json, &[]), "[]\n");
        assert!(text(Format::Table, &[]).contains("| n | s |"));
    }
}
