//! The manifest, such as `ssb.json`, written last: the content of a complete directory.

use std::{
    fs,
    io::{ErrorKind, Write},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{Suite, SuiteError};

/// The content of a complete directory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`Suite::data_version`] of the generator that wrote the directory.
    pub data_version: u32,
    /// Scale factor.
    pub scale: f64,
    /// Seed, if the suite has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Rows of a full record batch.
    pub rows_per_batch: u64,
    /// Requested number of files of the largest table; 0 is one file beside the other tables.
    #[serde(alias = "lineorder_files")]
    pub fact_files: u32,
    /// The tables, largest last.
    pub tables: Vec<ManifestTable>,
}

/// A table of a [`Manifest`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestTable {
    /// Name of the table.
    pub name: String,
    /// Rows of all its files.
    pub rows: u64,
    /// Its files in row order.
    pub files: Vec<ManifestFile>,
}

/// A file of a [`ManifestTable`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestFile {
    /// Path relative to the manifest's directory, with `/` between parts.
    pub path: String,
    /// Rows in the file.
    pub rows: u64,
    /// Size of the file.
    pub bytes: u64,
}

impl Manifest {
    /// Whether every file of the manifest is in `dir` with its recorded size.
    pub(crate) fn files_are_present(&self, dir: &Path) -> bool {
        self.tables.iter().flat_map(|table| &table.files).all(|file| {
            fs::metadata(dir.join(&file.path))
                .is_ok_and(|metadata| metadata.is_file() && metadata.len() == file.bytes)
        })
    }

    /// Whether the parameters are equal; the scale may have lost its last bit in the text.
    pub(crate) fn has_parameters_of(&self, other: &Self) -> bool {
        (self.scale - other.scale).abs() <= other.scale * 1e-12
            && (self.seed, self.rows_per_batch, self.fact_files)
                == (other.seed, other.rows_per_batch, other.fact_files)
    }

    /// The parameters in words.
    pub(crate) fn parameters(&self) -> String {
        let Self { scale, rows_per_batch, .. } = self;
        let seed = self.seed.map_or(String::new(), |seed| format!(", seed {seed}"));
        let files = match self.fact_files {
            0 => String::new(),
            files => format!(", the largest table in {files} files"),
        };
        format!("scale {scale}{seed}, {rows_per_batch} rows a batch{files}")
    }

    /// Writes the manifest under a temporary name, makes it durable and renames it.
    pub(crate) fn write(&self, suite: Suite, dir: &Path) -> Result<(), SuiteError> {
        let path = dir.join(suite.manifest_file());
        let temporary = dir.join(format!(".{}.tmp", suite.manifest_file()));
        let problem = |error: serde_json::Error| SuiteError::Manifest {
            path: path.clone(),
            problem: error.to_string(),
        };
        let mut text = serde_json::to_vec_pretty(self).map_err(problem)?;
        text.push(b'\n');
        let written = fs::File::create(&temporary).and_then(|mut file| {
            file.write_all(&text)?;
            file.sync_all()?;
            fs::rename(&temporary, &path)
        });
        written.map_err(|error| {
            // Best effort: the error that matters is the first one.
            let _ = fs::remove_file(&temporary);
            SuiteError::io("write", &path)(error)
        })
    }
}

/// The manifest of a suite in `dir`, or `None` if there is none: the directory is then not a complete
/// benchmark.
///
/// # Errors
/// [`SuiteError::Manifest`] when the file is not a manifest of this version, [`SuiteError::Io`] when
/// it cannot be read.
pub fn read_manifest(suite: Suite, dir: &Path) -> Result<Option<Manifest>, SuiteError> {
    let path = dir.join(suite.manifest_file());
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(SuiteError::io("read", path)(error)),
    };
    parse(&text, suite.data_version())
        .map(Some)
        .map_err(|problem| SuiteError::Manifest { path, problem })
}

fn parse(text: &[u8], data_version: u32) -> Result<Manifest, String> {
    let value: serde_json::Value =
        serde_json::from_slice(text).map_err(|error| format!("not JSON: {error}"))?;
    let version = value.get("data_version").and_then(serde_json::Value::as_u64);
    match version {
        Some(version) if version == u64::from(data_version) => {}
        Some(version) => {
            return Err(format!("data of version {version}, not {data_version}"));
        }
        None => return Err("no data_version: not a benchmark manifest".into()),
    }
    let manifest: Manifest =
        serde_json::from_value(value).map_err(|error| format!("incomplete: {error}"))?;
    match manifest.tables.iter().flat_map(|table| &table.files).find(|file| !is_inside(&file.path))
    {
        Some(file) => Err(format!("file {:?} lies outside the directory", file.path)),
        None => Ok(manifest),
    }
}

/// Whether a relative path has only plain parts, so that it cannot leave its directory.
fn is_inside(path: &str) -> bool {
    let path = PathBuf::from(path);
    let mut parts = path.components();
    path.file_name().is_some() && parts.all(|part| matches!(part, std::path::Component::Normal(_)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn manifest() -> Manifest {
        Manifest {
            data_version: Suite::Ssb.data_version(),
            scale: 0.1,
            seed: Some(u64::MAX),
            rows_per_batch: 1 << 20,
            fact_files: 0,
            tables: vec![ManifestTable {
                name: "date".into(),
                rows: 2557,
                files: vec![ManifestFile { path: "date.arrow".into(), rows: 2557, bytes: 7 }],
            }],
        }
    }

    #[test]
    fn reads_what_it_writes() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read_manifest(Suite::Ssb, dir.path()).unwrap(), None);
        manifest().write(Suite::Ssb, dir.path()).unwrap();
        let read = read_manifest(Suite::Ssb, dir.path()).unwrap().unwrap();
        assert_eq!(read, manifest());
        assert!(!read.files_are_present(dir.path()));
        fs::write(dir.path().join("date.arrow"), b"1234567").unwrap();
        assert!(read.files_are_present(dir.path()));
    }

    #[test]
    fn nonsense_is_an_error_that_names_the_file() {
        let outside = String::from_utf8(serde_json::to_vec(&manifest()).unwrap())
            .unwrap()
            .replace("date.arrow", "../date.arrow");
        for text in ["", "{}", "[1]", r#"{"data_version": 99}"#, r#"{"data_version": 1}"#, &outside]
        {
            let dir = tempfile::tempdir().unwrap();
            fs::write(dir.path().join(Suite::Ssb.manifest_file()), text).unwrap();
            let error = read_manifest(Suite::Ssb, dir.path()).unwrap_err();
            assert!(matches!(error, SuiteError::Manifest { .. }), "{error}");
            assert!(error.to_string().contains("ssb.json"), "{error}");
        }
    }
}
