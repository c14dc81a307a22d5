//! Arrow and Parquet, which programs read.

use std::io::{self, Write};
use std::path::Path;

use arrow_array::RecordBatch;
use arrow_ipc::writer::{FileWriter, StreamWriter};
use arrow_schema::{ArrowError, SchemaRef};
use datafusion::parquet::arrow::ArrowWriter as ParquetWriter;
use datafusion::parquet::basic::{Compression, ZstdLevel};
use datafusion::parquet::errors::ParquetError;
use datafusion::parquet::file::properties::WriterProperties;

use super::rows::{Writer, other, renamed, unique};

/// Arrow IPC.
pub struct ArrowWriter {
    schema: SchemaRef,
    writer: Ipc,
}

enum Ipc {
    /// What a pipe can carry.
    Stream(StreamWriter<Vec<u8>>),
    /// What can be mapped: files called `.arrow`.
    File(FileWriter<Vec<u8>>),
}

impl ArrowWriter {
    pub fn new(schema: &SchemaRef, file: Option<&Path>) -> Result<Self, ArrowError> {
        let schema = unique(schema);
        let is_file = file.and_then(Path::extension).is_some_and(|name| name == "arrow");
        let writer = match is_file {
            true => Ipc::File(FileWriter::try_new(Vec::new(), &schema)?),
            false => Ipc::Stream(StreamWriter::try_new(Vec::new(), &schema)?),
        };
        Ok(Self { schema, writer })
    }

    fn drain(&mut self, out: &mut dyn Write) -> io::Result<()> {
        let written = match &mut self.writer {
            Ipc::Stream(writer) => writer.get_mut(),
            Ipc::File(writer) => writer.get_mut(),
        };
        out.write_all(written)?;
        written.clear();
        Ok(())
    }
}

impl Writer for ArrowWriter {
    fn rows(&mut self, out: &mut dyn Write, batch: &RecordBatch) -> io::Result<()> {
        let batch = renamed(batch, &self.schema).map_err(other)?;
        match &mut self.writer {
            Ipc::Stream(writer) => writer.write(&batch),
            Ipc::File(writer) => writer.write(&batch),
        }
        .map_err(other)?;
        self.drain(out)
    }

    fn finish(&mut self, out: &mut dyn Write) -> io::Result<()> {
        match &mut self.writer {
            Ipc::Stream(writer) => writer.finish(),
            Ipc::File(writer) => writer.finish(),
        }
        .map_err(other)?;
        self.drain(out)
    }
}

/// Parquet.
pub struct ParquetFileWriter {
    schema: SchemaRef,
    /// Until the end.
    writer: Option<ParquetWriter<Vec<u8>>>,
}

impl ParquetFileWriter {
    pub fn new(schema: &SchemaRef) -> io::Result<Self> {
        let schema = unique(schema);
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .build();
        let writer = ParquetWriter::try_new(Vec::new(), schema.clone(), Some(properties))
            .map_err(parquet)?;
        Ok(Self { schema, writer: Some(writer) })
    }
}

impl Writer for ParquetFileWriter {
    fn rows(&mut self, out: &mut dyn Write, batch: &RecordBatch) -> io::Result<()> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        writer.write(&renamed(batch, &self.schema).map_err(other)?).map_err(parquet)?;
        let written = writer.inner_mut();
        out.write_all(written)?;
        written.clear();
        Ok(())
    }

    fn finish(&mut self, out: &mut dyn Write) -> io::Result<()> {
        match self.writer.take() {
            Some(writer) => out.write_all(&writer.into_inner().map_err(parquet)?),
            None => Ok(()),
        }
    }
}

fn parquet(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(source) => io::Error::other(source),
        error => io::Error::other(error),
    }
}
