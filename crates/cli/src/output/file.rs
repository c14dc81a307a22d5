//! A file of results.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use super::folder_of;
use crate::error::{CliError, Context, Result};

/// A file that results are written to.
pub struct OutFile {
    path: PathBuf,
    /// Where it is written until it is whole.
    partial: Option<PathBuf>,
    writer: BufWriter<File>,
    results: usize,
    /// Whether its one result is there.
    is_closed: bool,
}

impl OutFile {
    /// Written beside its place, and put there by [`Self::keep`]; what is never kept is removed.
    pub fn whole(path: &Path) -> Result<Self> {
        // Devices and pipes are written to and stay what they are.
        if std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
            return Self::growing(path);
        }
        let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let partial = folder_of(&path).join(format!(".{name}.{}.partial", std::process::id()));
        let file = File::create(&partial).at(path.display())?;
        Ok(Self {
            path,
            partial: Some(partial),
            writer: BufWriter::new(file),
            results: 0,
            is_closed: false,
        })
    }

    /// Grows with every result.
    pub fn growing(path: &Path) -> Result<Self> {
        let file = File::create(path).at(path.display())?;
        let path = path.to_path_buf();
        Ok(Self { path, partial: None, writer: BufWriter::new(file), results: 0, is_closed: false })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Another result follows. `one` is the name of a format of which a file holds just one.
    pub fn begin(&mut self, one: Option<&str>) -> Result<()> {
        if self.results > 0 && (one.is_some() || self.is_closed) {
            let format = one.unwrap_or("such a format");
            return Err(CliError::new(format!("{} has a result already", self.path.display()))
                .hint(format!("a file of {format} holds one; name another file for the next")));
        }
        self.results += 1;
        self.is_closed = one.is_some();
        Ok(())
    }

    pub fn writer(&mut self) -> &mut dyn Write {
        &mut self.writer
    }

    /// All results are there.
    pub fn keep(mut self) -> Result<()> {
        self.writer.flush().at(self.path.display())?;
        let done = match self.partial.take() {
            Some(partial) => std::fs::rename(partial, &self.path),
            None => Ok(()),
        };
        done.at(self.path.display())
    }
}

impl Drop for OutFile {
    fn drop(&mut self) {
        if let Some(partial) = &self.partial {
            // If that fails, its name says what it is.
            let _ = std::fs::remove_file(partial);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_file_is_whole_or_not_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.csv");
        let mut file = OutFile::whole(&path).unwrap();
        file.begin(None).unwrap();
        file.writer().write_all(b"1\n").unwrap();
        drop(file);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        let mut file = OutFile::whole(&path).unwrap();
        file.begin(Some("parquet")).unwrap();
        file.writer().write_all(b"1\n").unwrap();
        assert!(file.begin(Some("parquet")).is_err() && file.begin(None).is_err());
        file.keep().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "1\n");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
