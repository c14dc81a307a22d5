//! Arrow and Parquet, for programs.

use std::io::{self, Write};
use std::path::Path;

use arrow_array::RecordBatch;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::SchemaRef;
use datafusion::common::DataFusionError;
use datafusion::parquet::arrow::ArrowWriter as ParquetWriter;
use datafusion::parquet::basic::{Compression, ZstdLevel};
use datafusion::parquet::errors::ParquetError;
use datafusion::parquet::file::properties::WriterProperties;
use headrace_engine::copy::{StreamedWriter, streamed_schema};
use headrace_format::arrow::{ArrowWriter as FileWriter, WriterOptions, is_table_file};

use super::format::{Writer, other, renamed, unique};

/// Maximum bytes of a record batch in a file: it exists three times, as rows, as a batch and as the file's bytes.
const BATCH_BYTES_MAX: usize = 32 << 20;

/// Arrow IPC.
pub struct ArrowWriter {
    schema: SchemaRef,
    writer: Ipc,
}

enum Ipc {
    /// For pipes.
    Stream(Box<StreamWriter<Vec<u8>>>),
    /// For pipelines: files named `.arrow` or equivalent; `None` at the end.
    File(Option<Box<StreamedWriter<Vec<u8>>>>),
}

impl ArrowWriter {
    pub fn new(
        schema: &SchemaRef,
        file: Option<&Path>,
        batch_bytes_max: usize,
    ) -> io::Result<Self> {
        let schema = unique(schema);
        let file = file.filter(|path| is_table_file(path));
        let writer = match file {
            Some(path) => {
                let written = streamed_schema(&schema, &[]);
                let writer = FileWriter::over(Vec::new(), path, &written, WriterOptions::default());
                let writer = writer.map_err(io::Error::other)?;
                let bytes_max = batch_bytes_max.min(BATCH_BYTES_MAX);
                Ipc::File(Some(Box::new(StreamedWriter::new(writer, bytes_max))))
            }
            None => {
                Ipc::Stream(Box::new(StreamWriter::try_new(Vec::new(), &schema).map_err(other)?))
            }
        };
        Ok(Self { schema, writer })
    }

    fn drain(&mut self, out: &mut dyn Write) -> io::Result<()> {
        let written = match &mut self.writer {
            Ipc::Stream(writer) => Some(writer.get_mut()),
            Ipc::File(writer) => writer.as_mut().and_then(|writer| writer.get_mut().get_mut()),
        };
        let Some(written) = written else { return Ok(()) };
        out.write_all(written)?;
        written.clear();
        Ok(())
    }
}

impl Writer for ArrowWriter {
    fn rows(&mut self, out: &mut dyn Write, batch: &RecordBatch) -> io::Result<()> {
        let batch = renamed(batch, &self.schema).map_err(other)?;
        match &mut self.writer {
            Ipc::Stream(writer) => writer.write(&batch).map_err(other)?,
            Ipc::File(Some(writer)) => writer.write(&batch).map_err(planner)?,
            Ipc::File(None) => {}
        }
        self.drain(out)
    }

    fn finish(&mut self, out: &mut dyn Write) -> io::Result<()> {
        let writer = match &mut self.writer {
            Ipc::Stream(writer) => {
                writer.finish().map_err(other)?;
                return self.drain(out);
            }
            Ipc::File(writer) => writer.take(),
        };
        let Some(writer) = writer else { return Ok(()) };
        let (rest, _) = writer.into_inner().end().map_err(io::Error::other)?;
        out.write_all(&rest)
    }
}

fn planner(error: DataFusionError) -> io::Error {
    io::Error::other(error.find_root().message().to_string())
}

/// Parquet.
pub struct ParquetFileWriter {
    schema: SchemaRef,
    /// Until the end.
    writer: Option<ParquetWriter<Vec<u8>>>,
    /// Limit of a row group, which is in memory until it is complete.
    group_bytes_max: usize,
}

impl ParquetFileWriter {
    pub fn new(schema: &SchemaRef, group_bytes_max: usize) -> io::Result<Self> {
        let schema = unique(schema);
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .build();
        let writer = ParquetWriter::try_new(Vec::new(), schema.clone(), Some(properties))
            .map_err(parquet)?;
        Ok(Self { schema, writer: Some(writer), group_bytes_max })
    }
}

impl Writer for ParquetFileWriter {
    fn rows(&mut self, out: &mut dyn Write, batch: &RecordBatch) -> io::Result<()> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        writer.write(&renamed(batch, &self.schema).map_err(other)?).map_err(parquet)?;
        if writer.memory_size() > self.group_bytes_max {
            writer.flush().map_err(parquet)?;
        }
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
