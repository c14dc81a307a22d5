//! Which files a table has, and of which format.
//!
//! Very many small files cost what opening them costs, in proportion to their number. 10^4 and 10^5 files of 4.6 kB
//! in tmpfs, two busy cores: 45 to 53 us a file to open and check when a process first names them, 6 to 7 us to
//! list and examine in each query, 62 to 74 us for a race to open, map, read and check.

use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::common::Result;
use headrace_io::{FileIdentity, ReadAt, SourceFile};

use super::files::{DataFile, Files};
use super::format::Format;
use super::formats::{FORMATS, format_of, known_suffixes};
use super::options::ReadOptions;
use super::packing::Packing;
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
    let name = match format_of(path) {
        Some((_, Packing::Plain)) => stem(path),
        Some(_) => stem(Path::new(&stem(path))),
        None => path.file_name().unwrap_or_default().to_owned(),
    };
    name.to_string_lossy().into_owned()
}

/// Files of one format whatever they are called, and those in folders.
///
/// # Errors
/// As [`files_of`]; `path` is where they were looked for.
pub fn files_as(format: Format, found: Vec<Match>, path: &Path) -> Result<Files> {
    let mut listed = Listed { format: Some(format), ..Listed::default() };
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
    let (_, mut files) = listed.into_files(path)?;
    files.files.sort_by(|a, b| a.path().cmp(b.path()));
    files.files.dedup_by(|a, b| a.path() == b.path());
    Ok(files)
}

/// The files of a path, and their format: a file, a folder of files, or a folder of partitions
/// (`year=2024/month=1/..`).
///
/// # Errors
/// Whatever keeps them from being one table, with the file that does.
pub fn files_of(path: &Path) -> Result<(Format, Files)> {
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

#[derive(Default)]
struct Listed {
    /// What files are that were named; `None`: what they are called.
    format: Option<Format>,
    files: Vec<(Format, DataFile)>,
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
            let known = format_of(&path).map(|(format, _)| format);
            let known = known.filter(|known| self.format.is_none_or(|format| format == *known));
            // Whatever else lies there may be broken as it likes.
            let metadata = match std::fs::metadata(&path) {
                Err(cause) if known.is_some() => {
                    return Err(refused(&path, cause, "remove it, or what it leads to is missing"));
                }
                Err(_) => continue,
                Ok(metadata) => metadata,
            };
            if !metadata.is_dir() {
                if known.is_some_and(|format| is_table(format, &path, &metadata)) {
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
        if self.format.is_some() && pipe::is_pipe(metadata) {
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
        if (self.format.is_some() || format_of(path).is_some()) && !metadata.is_file() {
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
        let Some(format) = self.format.or_else(|| Some(format_of(path)?.0)) else {
            let remedy = format!("{} files are read", known_suffixes());
            return Err(refused(path, "its name says no kind of file that is known", remedy));
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
        let values = partition.iter().map(|(_, value)| unescaped(value)).collect();
        self.files.push((format, DataFile { source, remote, values }));
        Ok(())
    }

    fn into_files(self, path: &Path) -> Result<(Format, Files)> {
        let has = |format: &&Format| self.files.iter().any(|(own, _)| own == *format);
        match FORMATS.iter().filter(has).collect::<Vec<_>>().as_slice() {
            [] => Err(refused(path, "no files of a table in it", "name another folder")),
            [format] => {
                let files = self.files.into_iter().map(|(_, file)| file).collect();
                let (keys, options) = (self.keys.unwrap_or_default(), ReadOptions::default());
                Ok((**format, Files { keys, files, options }))
            }
            several => {
                let several: Vec<_> = several.iter().map(|format| self.some_of(**format)).collect();
                let cause = format!("files of several kinds: {}", several.join("; "));
                Err(refused(path, cause, "a folder is one table: move the others away"))
            }
        }
    }

    fn some_of(&self, format: Format) -> String {
        let of_it = self.files.iter().filter(|(own, _)| *own == format);
        let names: Vec<_> = of_it
            .map(|(_, file)| file.path().file_name().unwrap_or_default().to_string_lossy())
            .collect();
        let more = if names.len() > NAMED_MAX { ", .." } else { "" };
        let named = names[..names.len().min(NAMED_MAX)].join(", ");
        format!("{} {} ({named}{more})", names.len(), format.name())
    }
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

/// Whether a file that lies in a folder is one of a table.
pub fn is_table(format: Format, path: &Path, metadata: &Metadata) -> bool {
    let source = || SourceFile::known(path, FileIdentity::of_metadata(metadata));
    !metadata.is_file() || format.is_table(&source())
}
