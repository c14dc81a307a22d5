//! Results on standard output: data only, in the requested format.

use std::io::{self, Write};
use std::path::Path;

use crate::error::{Context, Result};

mod cells;
mod expanded;
mod file;
mod files;
mod format;
mod json;
mod list;
mod rows;
mod table;
mod text;

pub use cells::{show_null_as, show_widths, widths};
pub use file::OutFile;
pub use format::{Expanded, Format, Layout, Room};
pub use list::{separate_by, separator};
pub use rows::Printer;

/// Writes a whole text. A reader that has closed the pipe is no error.
pub fn print(text: &str) -> Result<()> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.at("standard output"),
    }
}

/// Like [`print()`], for a value as JSON.
pub fn print_json(value: &impl serde::Serialize) -> Result<()> {
    print(&(serde_json::to_string_pretty(value).at("JSON")? + "\n"))
}

/// Whether a file name means standard output.
pub fn is_stdout(file: &Path) -> bool {
    file == Path::new("-") || file == Path::new("/dev/stdout")
}

/// Writes a text like [`OutFile::whole`], or to standard output.
pub fn put(file: &Path, text: &str) -> Result<()> {
    if is_stdout(file) {
        return print(text);
    }
    let mut out = OutFile::whole(file)?;
    out.writer().write_all(text.as_bytes()).at(file.display())?;
    out.keep()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

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
}
