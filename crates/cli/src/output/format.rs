//! The formats of results, and what they share.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{ArrowError, Field, Schema, SchemaRef};
use clap::ValueEnum;
use headrace_format::arrow::unique_names;

use crate::error::CliError;

/// Result formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Aligned columns for people.
    Table,
    /// As table, with lines of a terminal's characters.
    Box,
    /// Comma-separated values with a header line.
    Csv,
    /// Tab-separated values with a header line.
    Tsv,
    /// Values as they are, with | between them.
    List,
    /// One JSON array of objects.
    Json,
    /// A JSON object a line.
    #[value(alias = "jsonl", alias = "jsonlines")]
    Ndjson,
    /// A table in Markdown.
    #[value(alias = "md")]
    Markdown,
    /// Arrow IPC: a stream, or a file if FILE ends in .arrow, .feather or .ipc.
    Arrow,
    /// Parquet; needs -o FILE.
    Parquet,
}

impl Format {
    /// Whether it is for programs alone.
    pub fn is_binary(self) -> bool {
        matches!(self, Self::Arrow | Self::Parquet)
    }

    /// Whether one file holds one result.
    pub fn is_one_result(self) -> bool {
        self.is_binary() || self == Self::Json
    }

    /// What a file of this name holds; `None`: the name says nothing.
    ///
    /// # Errors
    /// A name of something that is not written.
    pub fn of_file(path: &Path) -> Result<Option<Self>, CliError> {
        let extension = path.extension().map(|name| name.to_string_lossy().to_ascii_lowercase());
        Ok(Some(match extension.as_deref() {
            Some("csv") => Self::Csv,
            Some("tsv") => Self::Tsv,
            Some("json") => Self::Json,
            Some("ndjson" | "jsonl") => Self::Ndjson,
            Some("md") => Self::Markdown,
            Some("arrow" | "arrows" | "feather" | "ipc") => Self::Arrow,
            Some("parquet") => Self::Parquet,
            Some(other @ ("gz" | "zst" | "bz2" | "xz" | "zip" | "xlsx" | "orc" | "avro")) => {
                return Err(CliError::new(format!("{}: no .{other} is written", path.display()))
                    .hint("names of files that are written end in .csv, .tsv, .json, .ndjson, .md, .arrow or .parquet"));
            }
            _ => return Ok(None),
        }))
    }

    /// For commands that write Arrow files whatever a file is called.
    ///
    /// # Errors
    /// A name of something else.
    pub fn check_arrow_name(path: &Path) -> Result<(), CliError> {
        match Self::of_file(path)? {
            None | Some(Self::Arrow) => Ok(()),
            Some(other) => {
                let (file, other) = (path.display(), other.name());
                Err(CliError::new(format!("{file}: what is written is an Arrow file, no {other}"))
                    .hint(format!("name it .arrow; {other} is written by COPY: headrace -c \"copy (select * from 't.arrow') to '{file}'\"")))
            }
        }
    }

    /// Its name.
    pub fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_string()).unwrap_or_default()
    }
}

/// The layout of a result.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    pub format: Format,
    /// One line per value instead of per row.
    pub expanded: Expanded,
    /// Whether tables and separated values begin with column names.
    pub headers: bool,
    /// Maximum bytes of a file's record batches and row groups.
    pub batch_bytes_max: usize,
    /// The size of a terminal; `None` for everything else.
    pub terminal: Option<Room>,
}

#[cfg(test)]
impl Layout {
    /// A format with default settings.
    pub fn plain(format: Format) -> Self {
        let (expanded, terminal) = (Expanded::Off, None);
        Self { format, expanded, headers: true, batch_bytes_max: 1 << 20, terminal }
    }
}

/// Whether tables are written with one line per value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Expanded {
    Off,
    On,
    /// Where the terminal is too narrow for the columns.
    Auto,
}

/// The space of a terminal.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Rows to show; the others are counted.
    pub rows_max: usize,
    pub columns_max: usize,
}

/// A format.
pub trait Writer {
    /// The next rows.
    fn rows(&mut self, out: &mut dyn Write, batch: &RecordBatch) -> io::Result<()>;
    /// The end.
    fn finish(&mut self, out: &mut dyn Write) -> io::Result<()>;
}

/// A schema with unique column names, for formats that need them.
pub fn unique(schema: &SchemaRef) -> SchemaRef {
    let names = unique_names(schema.fields().iter().map(|field| field.name().as_str()));
    let Some(names) = names else { return Arc::clone(schema) };
    let fields = schema.fields().iter().zip(names);
    let fields: Vec<Field> =
        fields.map(|(field, name)| field.as_ref().clone().with_name(name)).collect();
    Schema::new_with_metadata(fields, schema.metadata().clone()).into()
}

/// A batch in another schema of the same types.
pub fn renamed(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    let fields = schema.fields().iter().zip(batch.schema_ref().fields());
    let fields: Vec<Field> =
        fields.map(|(to, from)| from.as_ref().clone().with_name(to.name())).collect();
    RecordBatch::try_new(Schema::new(fields).into(), batch.columns().to_vec())
}

/// A format's error as a write error.
pub fn other(error: ArrowError) -> io::Error {
    match error {
        ArrowError::IoError(_, source) => source,
        error => io::Error::other(error),
    }
}
