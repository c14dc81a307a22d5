//! A file of results.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use headrace_io::write::Appended;

use crate::error::{CliError, Context, Result};

/// An output file for results.
pub struct OutFile {
    path: PathBuf,
    target: Target,
    results: usize,
    /// Whether its single result is complete.
    is_closed: bool,
}

enum Target {
    /// A file that is written completely or not at all.
    Whole(BufWriter<Appended>),
    /// Growing files, devices and pipes.
    InPlace(BufWriter<File>),
}

impl OutFile {
    /// Written beside its target and moved there by [`Self::keep`]; removed if it is not kept. Devices and
    /// pipes are written in place; for a symbolic link the linked file is replaced.
    pub fn whole(path: &Path) -> Result<Self> {
        if std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
            return Self::growing(path);
        }
        let file = Appended::create(path).map_err(CliError::carrying_hint)?;
        Ok(Self::of(path, Target::Whole(BufWriter::new(file))))
    }

    /// Grows with every result.
    pub fn growing(path: &Path) -> Result<Self> {
        let file = File::create(path).at(path.display())?;
        Ok(Self::of(path, Target::InPlace(BufWriter::new(file))))
    }

    fn of(path: &Path, target: Target) -> Self {
        Self { path: path.to_path_buf(), target, results: 0, is_closed: false }
    }

    /// Whether a result was begun.
    pub fn has_result(&self) -> bool {
        self.results > 0
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Another result follows. `one` names a format whose files hold only one.
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
        match &mut self.target {
            Target::Whole(file) => file,
            Target::InPlace(file) => file,
        }
    }

    /// All results are complete.
    pub fn keep(self) -> Result<()> {
        match self.target {
            Target::Whole(file) => {
                let file = file.into_inner().map_err(|e| e.into_error()).at(self.path.display())?;
                file.commit().map_err(CliError::carrying_hint)
            }
            Target::InPlace(mut file) => file.flush().at(self.path.display()),
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
