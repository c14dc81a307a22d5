//! How files are read, where they do not tell.

use datafusion::arrow::datatypes::DataType;

use super::cells::Formats;
use super::encoding::Encoding;
use super::packing::Packing;

/// How the rows of text files lie, where files do not tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadOptions {
    /// Between values; `None`: as the first line looks.
    pub delimiter: Option<u8>,
    /// Around values; `None`: nothing is quoted.
    pub quote: Option<u8>,
    /// Before a quote that is part of a value; `None`: it is doubled.
    pub escape: Option<u8>,
    /// Whether the first line names the columns; `None`: as it looks.
    pub has_header: Option<bool>,
    /// Texts that are NULL, besides the empty one.
    pub nulls: Vec<String>,
    /// Lines before the first; `None`: as they look.
    pub skip_lines: Option<u64>,
    /// What begins lines that are no records; `None`: as they look.
    pub comment: Option<Option<u8>>,
    /// Whether values that a record lacks are NULL.
    pub pads: bool,
    /// Whether records that do not fit are left out.
    pub ignores: bool,
    /// How dates and numbers are written.
    pub formats: Formats,
    /// In what letters are written; `None`: UTF-8, or what the file's first bytes say.
    pub encoding: Option<Encoding>,
    /// Name of a column of the files' names.
    pub file_column: Option<String>,
    /// Columns that are read, all of them, with their types.
    pub columns: Vec<(String, DataType)>,
    /// Names of the first columns.
    pub names: Vec<String>,
    /// Types of some columns.
    pub types: Vec<(String, DataType)>,
    /// Types of the first columns.
    pub types_by_place: Vec<DataType>,
    /// Whether all columns are text.
    pub is_all_text: bool,
    /// `None`: as its name says.
    pub packing: Option<Packing>,
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self {
            delimiter: None,
            quote: Some(b'"'),
            escape: None,
            has_header: None,
            nulls: Vec::new(),
            skip_lines: None,
            comment: None,
            pads: false,
            ignores: false,
            formats: Formats::default(),
            encoding: None,
            file_column: None,
            columns: Vec::new(),
            names: Vec::new(),
            types: Vec::new(),
            types_by_place: Vec::new(),
            is_all_text: false,
            packing: None,
        }
    }
}
