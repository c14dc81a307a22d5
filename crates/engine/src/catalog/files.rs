//! The files of a table: which they are, and of which kind.
//!
//! Very many small files cost what opening them costs, in proportion to their number. 10^4 and 10^5 files of 4.6 kB
//! in tmpfs, two busy cores: 45 to 53 us a file to open and check when a process first names them, 6 to 7 us to
//! list and examine in each query, 62 to 74 us for a race to open, map, read and check.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::common::Result;
use headrace_io::{FileIdentity, ReadAt, SourceFile};

use super::kinds::{Packing, TableKind, extension, kind_of};
use super::options::ReadOptions;
use super::partition_names::{partition_of, unescaped};
use super::pipe;
use super::refusal::refused;
use super::remote::{self, RemoteFile};

/// Folders within folders that partitions may be; a loop of symbolic links ends here.
pub const PARTITION_DEPTH_MAX: usize = 16;

/// Files named in an error, of each kind.
const NAMED_MAX: usize = 3;

/// A file, with what the folders say that a pattern left open.
pub type Match = (PathBuf, Vec<(String, String)>);

/// The name of a table of this file or folder.
pub fn table_name(path: &Path) -> String {
    let path = &*remote::shown_path(path);
    let stem = |path: &Path| path.file_stem().unwrap_or_default().to_owned();
    let name = match kind_of(path) {
        Some((_, Packing::Plain)) => stem(path),
        Some(_) => stem(Path::new(&stem(path))),
        None => path.file_name().unwrap_or_default().to_owned(),
    };
    name.to_string_lossy().into_owned()
}

/// A file of a table. Two are equal if they are the same version of the same file.
#[derive(Clone, Debug)]
pub struct DataFile {
    /// Which version of which file; opened when it is read.
    pub source: Arc<SourceFile>,
    /// Who fetches it, if it lies elsewhere.
    pub remote: Option<RemoteFile>,
    /// Values of [`Files::keys`]; `None` is NULL.
    pub values: Vec<Option<String>>,
}

impl DataFile {
    /// Where it is.
    pub fn path(&self) -> &Path {
        self.source.path()
    }
}

impl PartialEq for DataFile {
    fn eq(&self, other: &Self) -> bool {
        let known = |file: &Self| (file.path().to_path_buf(), file.source.identity());
        known(self) == known(other) && self.values == other.values
    }
}

/// The files of a table, all of one kind, in the order of their paths.
#[derive(Clone, Debug, PartialEq)]
pub struct Files {
    /// How they are read.
    pub kind: TableKind,
    /// Columns that folders named `key=value` give.
    pub keys: Vec<String>,
    /// The files.
    pub files: Vec<DataFile>,
    /// How text files are read, where somebody says.
    pub options: ReadOptions,
}

impl Files {
    /// Files of one kind whatever they are called, and those in folders.
    ///
    /// # Errors
    /// As [`of`](Self::of); `path` is where they were looked for.
    pub fn of_kind(kind: TableKind, found: Vec<Match>, path: &Path) -> Result<Files> {
        let mut listed = Listed { kind: Some(kind), ..Listed::default() };
        for (path, mut folders) in found {
            if remote::is_address(&path) {
                listed.address(&path)?;
                continue;
            }
            let metadata =
                std::fs::metadata(&path).map_err(|e| refused(&path, e, "look at the name"))?;
            match metadata.is_dir() {
                true => listed.folder(&path, &mut folders)?,
                false => listed.add_local(&path, &metadata, &folders)?,
            }
        }
        let mut files = listed.into_files(path)?;
        files.files.sort_by(|a, b| a.path().cmp(b.path()));
        files.files.dedup_by(|a, b| a.path() == b.path());
        Ok(files)
    }

    /// The files of a path: a file, a folder of files, or a folder of partitions
    /// (`year=2024/month=1/..`).
    ///
    /// # Errors
    /// Whatever keeps them from being one table, with the file that does.
    pub fn of(path: &Path) -> Result<Files> {
        let mut listed = Listed::default();
        if remote::is_address(path) {
            listed.address(path)?;
            return listed.into_files(&remote::shown_path(path));
        }
        let metadata = std::fs::metadata(path).map_err(|e| refused(path, e, "look at the name"))?;
        if metadata.is_dir() {
            listed.folder(path, &mut Vec::new())?;
        } else {
            listed.add_local(path, &metadata, &[])?;
        }
        listed.into_files(path)
    }
}

#[derive(Default)]
struct Listed {
    /// What files are that were named; `None`: what they are called.
    kind: Option<TableKind>,
    by_kind: BTreeMap<TableKind, Vec<DataFile>>,
    keys: Option<Vec<String>>,
}

impl Listed {
    fn address(&mut self, address: &Path) -> Result<()> {
        for entry in remote::files_of(address)? {
            self.add(entry.file.source(), Some(entry.file), &entry.partition)?;
        }
        Ok(())
    }

    fn folder(&mut self, folder: &Path, partition: &mut Vec<(String, String)>) -> Result<()> {
        let fail = |e| refused(folder, e, "see whether the folder may be read");
        for path in entries(folder).map_err(fail)? {
            let key = partition_of(&path);
            let known = kind_of(&path).map(|(kind, _)| kind);
            let is_known = known.is_some_and(|known| self.kind.is_none_or(|kind| kind == known));
            // Whatever else lies there may be broken as it likes.
            let metadata = match std::fs::metadata(&path) {
                Err(cause) if is_known => {
                    return Err(refused(&path, cause, "remove it, or what it leads to is missing"));
                }
                Err(_) => continue,
                Ok(metadata) => metadata,
            };
            if !metadata.is_dir() {
                if is_known && is_table_like(&path, &metadata) {
                    self.add_local(&path, &metadata, partition)?;
                }
                continue;
            }
            let Some(key) = key else { continue };
            if partition.len() == PARTITION_DEPTH_MAX || partition.iter().any(|(k, _)| *k == key.0)
            {
                let cause = "folders of partitions lie in each other without end";
                return Err(refused(&path, cause, "look for a symbolic link that leads back"));
            }
            partition.push(key);
            self.folder(&path, partition)?;
            partition.pop();
        }
        Ok(())
    }

    fn add_local(
        &mut self,
        path: &Path,
        metadata: &Metadata,
        partition: &[(String, String)],
    ) -> Result<()> {
        if self.kind.is_some() && pipe::is_pipe(metadata) {
            let kept = pipe::kept(path, metadata);
            let (path, metadata) =
                kept.map_err(|e| refused(path, e, "see whether it can be read"))?;
            let source = SourceFile::known(path, FileIdentity::of_metadata(&metadata));
            return self.add(source, None, partition);
        }
        if pipe::is_pipe(metadata) {
            let remedy = format!("say so: read_csv('{0}'), read_json('{0}')", path.display());
            return Err(refused(path, "a pipe does not say which kind of file it is", remedy));
        }
        if (self.kind.is_some() || kind_of(path).is_some()) && !metadata.is_file() {
            return Err(refused(path, "it is no regular file", "tables are made of files"));
        }
        let source = SourceFile::known(path, FileIdentity::of_metadata(metadata));
        self.add(source, None, partition)
    }

    fn add(
        &mut self,
        source: Arc<SourceFile>,
        remote: Option<RemoteFile>,
        partition: &[(String, String)],
    ) -> Result<()> {
        let path = source.path();
        let Some(kind) = self.kind.or_else(|| Some(kind_of(path)?.0)) else {
            let known = ".parquet, .csv, .tsv, .json, .jsonl (also .gz and .zst of these four), \
                         .arrow, .feather, .ipc and .arrows files are read";
            return Err(refused(path, "its name says no kind of file that is known", known));
        };
        let keys: Vec<String> = partition.iter().map(|(key, _)| key.clone()).collect();
        match &self.keys {
            Some(known) if *known != keys => {
                let cause = format!(
                    "its folders give the columns ({}), those of other files ({})",
                    keys.join(", "),
                    known.join(", ")
                );
                return Err(refused(path, cause, "give all files of a table the same partitions"));
            }
            _ => self.keys = Some(keys),
        }
        self.by_kind.entry(kind).or_default().push(DataFile {
            source,
            remote,
            values: partition.iter().map(|(_, value)| unescaped(value)).collect(),
        });
        Ok(())
    }

    fn into_files(mut self, path: &Path) -> Result<Files> {
        let kinds: Vec<_> = self.by_kind.iter().collect();
        if kinds.len() > 1 {
            let kinds: Vec<String> =
                kinds.iter().map(|(kind, files)| some_of(**kind, files)).collect();
            let cause = format!("files of several kinds: {}", kinds.join("; "));
            return Err(refused(path, cause, "a folder is one table: move the others away"));
        }
        match self.by_kind.pop_first() {
            None => Err(refused(path, "no files of a table in it", "name another folder")),
            Some((kind, files)) => {
                let (keys, options) = (self.keys.unwrap_or_default(), ReadOptions::default());
                Ok(Files { kind, keys, files, options })
            }
        }
    }
}

fn some_of(kind: TableKind, files: &[DataFile]) -> String {
    let named = files.iter().take(NAMED_MAX).map(|f| f.path().file_name().unwrap_or_default());
    let named: Vec<_> = named.map(|name| name.to_string_lossy()).collect();
    let more = if files.len() > NAMED_MAX { ", .." } else { "" };
    format!("{} {kind} ({}{more})", files.len(), named.join(", "))
}

/// What a folder holds, sorted, without what is hidden.
pub fn entries(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut paths = std::fs::read_dir(folder)?
        .map(|entry| entry.map(|e| e.path()))
        .collect::<std::io::Result<Vec<_>>>()?;
    paths.retain(|p| !p.file_name().is_some_and(|n| n.as_encoded_bytes().starts_with(b".")));
    paths.sort();
    Ok(paths)
}

/// Whether it is a table at all: settings and manifests are JSON, too, but spread over lines.
pub fn is_table_like(path: &Path, metadata: &Metadata) -> bool {
    extension(path) != "json" || !metadata.is_file() || super::records::is_json_table(path)
}
