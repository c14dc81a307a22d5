//! Files that a query names with the way to read them: `read_csv('x/*.txt', delim => ';')`.

use std::path::Path;

use datafusion::common::Result;
use glob::{MatchOptions, glob_with};

use super::files::Files;
use super::format::Format;
use super::listing::{Match, files_as};
use super::options::ReadOptions;
use super::partition_names::partition_of;
use super::refusal::refused;
use super::remote::is_address;

/// Letters that make a pattern of a path that is no file's.
const PATTERN: [char; 3] = ['*', '?', '['];

/// Which files, and how they are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// What they are, whatever they are called.
    pub format: Format,
    /// Files, folders or patterns.
    pub paths: Vec<String>,
    /// How.
    pub options: ReadOptions,
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
        let files = files_as(self.format, found, of)?;
        Ok(Files { options: self.options.clone(), ..files })
    }
}

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
