//! Text files before their rows are read: how their bytes become text, and who makes rows of it.

use std::fmt;
use std::io::{self, BufRead};
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use headrace_io::SourceFile;

use super::bytes::{FileBytes, skip_lines, unpacked};
use super::encoding::Encoding;
use super::files::DataFile;
use super::options::ReadOptions;
use super::packing::{Packing, packing_of};
use super::records::{Block, Records};

/// The bytes of a file as text.
#[derive(Clone, Debug)]
pub struct Text {
    /// The file, opened when it is read.
    pub source: Arc<SourceFile>,
    packing: Packing,
    /// In what its letters are written, if somebody says.
    encoding: Option<Encoding>,
    /// Lines before the first row or header.
    pub skip_lines: u64,
}

impl Text {
    /// Of a file, as its name and its reader's options say.
    pub fn of(file: &DataFile, options: &ReadOptions) -> Self {
        Self {
            source: Arc::clone(&file.source),
            packing: options.packing.unwrap_or_else(|| packing_of(file.path())),
            encoding: options.encoding,
            skip_lines: options.skip_lines.unwrap_or_default(),
        }
    }

    /// The file's records, unpacked, and the line with which they begin.
    ///
    /// # Errors
    /// A file that cannot be read or unpacked.
    pub fn open(&self) -> io::Result<(Box<dyn BufRead + Send>, u64)> {
        let bytes = FileBytes::whole(Arc::clone(&self.source));
        let mut reader = unpacked(self.packing, self.encoding, bytes)?;
        let skipped = skip_lines(&mut reader, self.skip_lines)?;
        Ok((reader, 1 + skipped))
    }
}

/// What is known of a file before its rows are read.
#[derive(Clone, Debug)]
pub struct TextInput {
    /// The file.
    pub text: Text,
    /// How its rows lie.
    pub layout: Layout,
    /// Of a record of its beginning, on average; 0: not known.
    pub row_bytes: usize,
}

/// How rows lie in a file.
#[derive(Clone, Debug)]
pub enum Layout {
    /// In records, blocks of which are decoded apart.
    Records(Arc<dyn Decode>),
    /// In batches, which come one after the other.
    Batches(OpenBatches),
}

/// Opens a file and reads at least the wanted columns. Errors say what is wrong with the file.
pub type OpenBatches = fn(&Arc<SourceFile>, &dyn Fn(&str) -> bool) -> Result<Batches, String>;

/// The batches of a file.
pub type Batches = Box<dyn Iterator<Item = Result<RecordBatch, String>>>;

/// Makes rows of the records of one file.
pub trait Decode: fmt::Debug + Send + Sync {
    /// Where records end.
    fn records(&self) -> Records;

    /// The rows of a block with the columns that are wanted, by name and as far as the file has them, and how many
    /// records were left out.
    ///
    /// # Errors
    /// What does not fit.
    fn decode(&self, block: &Block, wanted: &Wanted<'_>) -> Result<(Vec<RecordBatch>, u64), Fault>;
}

/// The columns that a scan reads.
pub struct Wanted<'a> {
    /// Columns that come out.
    pub schema: &'a SchemaRef,
    /// All columns of the table's files.
    pub all: &'a SchemaRef,
    /// Rows of a batch at most.
    pub batch_rows: usize,
}

/// What keeps records from being read: why, and what helps.
pub struct Fault {
    /// With the line.
    pub cause: String,
    /// What helps.
    pub remedy: String,
}
