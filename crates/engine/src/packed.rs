//! COPY of text into a file that is compressed as a whole: `COPY t TO 'x.csv.gz'`.
//!
//! The planner's writers write plain files. Here their texts of batches go through a packer, as they come.

use std::any::Any;
use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::file_options::csv_writer::CsvWriterOptions;
use datafusion::common::parsers::CompressionTypeVariant;
use datafusion::common::{Result, plan_err};
use datafusion::datasource::file_format::csv::{CsvFormat, CsvSerializer};
use datafusion::datasource::file_format::file_type_to_format;
use datafusion::datasource::file_format::json::JsonSerializer;
use datafusion::datasource::sink::DataSink;
use datafusion::execution::session_state::SessionState;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::dml::CopyTo;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType};
use datafusion_datasource::write::BatchSerializer;
use flate2::write::GzEncoder;
use futures::StreamExt;

use crate::catalog::{Packing, refused};
use crate::error::blocking;

/// The option of a COPY that says how a file is compressed.
pub const OPTION: &str = "format.compression";

/// What a COPY of text asks for; of other kinds of files, which compress their parts, `Plain`.
///
/// # Errors
/// What nothing here writes.
pub fn packing_of_copy(copy: &CopyTo) -> Result<Packing> {
    let Some(wanted) = copy.options.get(OPTION) else { return Ok(Packing::Plain) };
    match copy.file_type.get_ext().as_str() {
        "csv" | "json" if !wanted.is_empty() => Packing::of_word(wanted).map_or_else(
            || plan_err!("COPY writes no text compressed by {wanted}\nhint: gzip, zstd or none"),
            Ok,
        ),
        _ => Ok(Packing::Plain),
    }
}

/// A file on its way through a packer.
enum Packer {
    Plain(BufWriter<File>),
    Gzip(GzEncoder<BufWriter<File>>),
    Zstd(zstd::Encoder<'static, BufWriter<File>>),
}

impl Packer {
    fn create(path: &std::path::Path, packing: Packing) -> io::Result<Self> {
        let file = BufWriter::new(File::create(path)?);
        Ok(match packing {
            Packing::Plain => Self::Plain(file),
            Packing::Gzip => Self::Gzip(GzEncoder::new(file, flate2::Compression::default())),
            Packing::Zstd => Self::Zstd(zstd::Encoder::new(file, zstd::DEFAULT_COMPRESSION_LEVEL)?),
        })
    }

    fn write(&mut self, text: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(file) => file.write_all(text),
            Self::Gzip(packer) => packer.write_all(text),
            Self::Zstd(packer) => packer.write_all(text),
        }
    }

    fn finish(self) -> io::Result<()> {
        let mut file = match self {
            Self::Plain(file) => file,
            Self::Gzip(packer) => packer.finish()?,
            Self::Zstd(packer) => packer.finish()?,
        };
        file.flush()
    }
}

/// COPY .. TO 'x.csv.gz'.
pub struct PackedSink {
    path: PathBuf,
    packing: Packing,
    schema: SchemaRef,
    texts: Arc<dyn BatchSerializer>,
}

impl PackedSink {
    /// Of rows of such columns, as a COPY's options say.
    ///
    /// # Errors
    /// Options that its format does not have.
    pub fn new(
        path: PathBuf,
        packing: Packing,
        schema: SchemaRef,
        copy: &CopyTo,
        state: &SessionState,
    ) -> Result<Self> {
        let mut options = copy.options.clone();
        options.remove("single_file_output");
        options.insert(OPTION.to_string(), CompressionTypeVariant::UNCOMPRESSED.to_string());
        let format = file_type_to_format(&copy.file_type)?.create(state, &options)?;
        let format: &dyn Any = format.as_ref();
        let texts: Arc<dyn BatchSerializer> = match format.downcast_ref::<CsvFormat>() {
            Some(csv) => {
                let has_header = csv.options().has_header;
                let has_header =
                    has_header.unwrap_or_else(|| state.config().options().catalog.has_header);
                let writer =
                    CsvWriterOptions::try_from(&csv.options().clone().with_has_header(has_header))?;
                let texts = CsvSerializer::new().with_builder(writer.writer_options);
                Arc::new(texts.with_header(has_header))
            }
            None => Arc::new(JsonSerializer::new()),
        };
        Ok(Self { path, packing, schema, texts })
    }
}

impl fmt::Debug for PackedSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.packing, self.path.display())
    }
}

impl DisplayAs for PackedSink {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "HeadracePacked({:?}, {})", self.packing, self.path.display())
    }
}

#[async_trait]
impl DataSink for PackedSink {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    async fn write_all(
        &self,
        mut data: SendableRecordBatchStream,
        _context: &Arc<TaskContext>,
    ) -> Result<u64> {
        let fail = |cause: io::Error| refused(&self.path, cause, "see whether there is room");
        let mut packer = Packer::create(&self.path, self.packing).map_err(fail)?;
        let mut rows = 0;
        while let Some(batch) = data.next().await {
            let batch = batch?;
            let (texts, is_first) = (Arc::clone(&self.texts), rows == 0);
            rows += batch.num_rows() as u64;
            let path = self.path.clone();
            packer = blocking(move || {
                let text = texts.serialize(batch, is_first)?;
                let written = packer.write(&text).map(|()| packer);
                written.map_err(|cause| refused(&path, cause, "see whether there is room"))
            })
            .await?;
        }
        packer.finish().map_err(fail)?;
        Ok(rows)
    }
}
