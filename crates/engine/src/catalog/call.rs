//! Files that a query names with the way to read them: `read_csv('x/*.txt', delim => ';')`.

use std::path::{Path, PathBuf};

use datafusion::arrow::datatypes::DataType;
use datafusion::common::Result;
use glob::{MatchOptions, glob_with};

use super::cells::Formats;
use super::encoding::Encoding;
use super::files::{Files, Packing, TableKind, partition_of, refused};
use super::remote::is_address;

/// Letters that make a pattern of a path that is no file's.
const PATTERN: [char; 3] = ['*', '?', '['];

/// Which files, and how they are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Of what kind, whatever they are called.
    pub kind: TableKind,
    /// Files, folders or patterns.
    pub paths: Vec<String>,
    /// How.
    pub options: ReadOptions,
}

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

impl Call {
    /// The files that there are now.
    ///
    /// # Errors
    /// A path that names none; what keeps them from being one table.
    pub fn files(&self) -> Result<Files> {
        let mut found = Vec::new();
        for path in &self.paths {
            found.extend(matching(path)?);
        }
        let of = self.paths.first().map_or(Path::new(""), Path::new);
        let files = Files::of_kind(self.kind, found, of)?;
        Ok(Files { options: self.options.clone(), ..files })
    }
}

/// A file, with what the folders say that a pattern left open.
pub type Match = (PathBuf, Vec<(String, String)>);

/// Whether a path is none of a file, and may match several.
pub fn is_pattern(path: &str) -> bool {
    let itself = Path::new(path);
    path.contains(PATTERN) && !is_address(itself) && std::fs::symlink_metadata(itself).is_err()
}

/// A path that is there means itself; else it is a pattern.
fn matching(path: &str) -> Result<Vec<Match>> {
    // As commands call their standard input.
    let path = if path == "-" { "/dev/stdin" } else { path };
    let itself = Path::new(path);
    // What lies elsewhere is named as it is.
    let Some(first) = path.find(PATTERN).filter(|_| is_pattern(path)) else {
        return Ok(vec![(itself.to_path_buf(), Vec::new())]);
    };
    let options = MatchOptions {
        case_sensitive: true,
        require_literal_separator: true,
        require_literal_leading_dot: true,
    };
    let fail = |cause: &dyn std::fmt::Display| refused(itself, cause, "look at the pattern");
    let fixed = Path::new(&path[..path[..first].rfind('/').map_or(0, |at| at + 1)]);
    let mut found = Vec::new();
    for entry in glob_with(path, options).map_err(|e| fail(&e))? {
        let entry = entry.map_err(|e| fail(&e))?;
        if !entry.is_dir() {
            let folders = entry.strip_prefix(fixed).ok().and_then(Path::parent);
            let keys = folders.into_iter().flat_map(Path::iter);
            let keys = keys.filter_map(|name| partition_of(Path::new(name))).collect();
            found.push((entry, keys));
        }
    }
    match found.is_empty() {
        true => Err(fail(&"no file is called so")),
        false => Ok(found),
    }
}
