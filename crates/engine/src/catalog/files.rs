//! The files of a table: which they are, and of which kind.
//!
//! Very many small files cost what opening them costs, in proportion to their number. 10^4 and 10^5 files of 4.6 kB
//! in tmpfs, two busy cores: 45 to 53 us a file to open and check when a process first names them, 6 to 7 us to
//! list and examine in each query, 62 to 74 us for a race to open, map, read and check.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::common::{DataFusionError, Result};
use headrace_io::{FileIdentity, ReadAt, SourceFile};

use super::pipe;
use super::remote::{self, RemoteFile};

use super::call::{Match, ReadOptions};

/// Folders within folders that partitions may be; a loop of symbolic links ends here.
pub const PARTITION_DEPTH_MAX: usize = 16;

/// What stands for NULL in the name of a folder.
pub(crate) const NULL_VALUE: &str = "__HIVE_DEFAULT_PARTITION__";

/// Files named in an error, of each kind.
const NAMED_MAX: usize = 3;

/// How a table's files are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TableKind {
    /// Arrow IPC files, streamed by pipelines; IPC streams, which are not.
    Arrow,
    /// Parquet, through DataFusion.
    Parquet,
    /// Separated values with a header.
    Csv,
    /// JSON objects, one after the other or in one array.
    Json,
}

impl fmt::Display for TableKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TableKind::Arrow => "Arrow",
            TableKind::Parquet => "Parquet",
            TableKind::Csv => "CSV",
            TableKind::Json => "JSON",
        })
    }
}

/// How a file's bytes are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// Not at all.
    Plain,
    /// gzip, `.gz`.
    Gzip,
    /// Zstandard, `.zst`.
    Zstd,
}

/// What a name says of a file; `None`: it is no file of a table.
pub fn kind_of(path: &Path) -> Option<(TableKind, Packing)> {
    let packing = packing_of(path);
    let inner = match packing {
        Packing::Plain => path.to_path_buf(),
        _ => path.with_extension(""),
    };
    let kind = match extension(&inner).as_str() {
        "csv" | "tsv" => TableKind::Csv,
        "json" | "jsonl" | "ndjson" => TableKind::Json,
        "arrow" | "arrows" | "feather" | "ipc" if packing == Packing::Plain => TableKind::Arrow,
        "parquet" if packing == Packing::Plain => TableKind::Parquet,
        _ => return None,
    };
    Some((kind, packing))
}

/// How a file is packed, by its name.
pub fn packing_of(path: &Path) -> Packing {
    match extension(path).as_str() {
        "gz" => Packing::Gzip,
        "zst" | "zstd" => Packing::Zstd,
        _ => Packing::Plain,
    }
}

impl Packing {
    /// As an option says it.
    pub fn of_word(word: &str) -> Option<Self> {
        Some(match word.to_ascii_lowercase().as_str() {
            "none" | "uncompressed" => Self::Plain,
            "gz" | "gzip" => Self::Gzip,
            "zst" | "zstd" => Self::Zstd,
            _ => return None,
        })
    }

    /// What an option says.
    pub fn word(self) -> &'static str {
        match self {
            Self::Plain => "none",
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        }
    }
}

/// A file's extension in lower case, without that of its packing.
pub fn extension(path: &Path) -> String {
    path.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase()
}

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

/// Key and value of a folder named `key=value`.
pub fn partition_of(folder: &Path) -> Option<(String, String)> {
    let (key, value) = folder.file_name()?.to_str()?.split_once('=')?;
    (!key.is_empty()).then(|| (plain(key), value.to_string()))
}

/// The name of the folder of rows whose column `key` has a value; `None` is NULL. What [`partition_of`] and the
/// reader of its values make of it is the same again.
pub fn partition_name(key: &str, value: Option<&str>) -> String {
    let value = match value {
        None => NULL_VALUE.to_string(),
        // A text that looks like none.
        Some(NULL_VALUE) => format!("%5F{}", &NULL_VALUE[1..]),
        Some(value) => escaped(value),
    };
    let key = match key.strip_prefix('.') {
        Some(rest) => format!("%2E{}", escaped(rest)),
        None => escaped(key),
    };
    format!("{key}={value}")
}

/// A text in which `%41` stands for `A`, as Hive writes it.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            letter if letter.is_ascii_control() || "\"#%'*/:=?\\{}[]^<>|".contains(letter) => {
                escaped.push_str(&format!("%{:02X}", letter as u32));
            }
            letter => escaped.push(letter),
        }
    }
    escaped
}

/// Whether it is a table at all: settings and manifests are JSON, too, but spread over lines.
pub fn is_table_like(path: &Path, metadata: &Metadata) -> bool {
    is_table(path, || !metadata.is_file() || super::records::is_json_table(path))
}

/// The same of a file wherever it lies, whose beginning `is_list` looks at.
fn is_table(path: &Path, is_list: impl FnOnce() -> bool) -> bool {
    extension(path) != "json" || is_list()
}

/// Whether a `.json` object is a table.
pub fn is_remote_table(entry: &remote::Entry) -> bool {
    is_table(&entry.path, || {
        super::records::is_json_list(
            &entry.path,
            super::bytes::FileBytes::whole(entry.file.source()),
        )
    })
}

/// The value that a folder's name stands for, as Hive and Spark write them.
fn unescaped(value: &str) -> Option<String> {
    if value == NULL_VALUE {
        return None;
    }
    Some(plain(value))
}

/// A text in which `%41` stands for `A`.
fn plain(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let code = (bytes[at] == b'%').then(|| text.get(at + 1..at + 3)).flatten();
        let code = code.filter(|code| !code.starts_with('+'));
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(byte) => {
                plain.push(byte);
                at += 3;
            }
            None => {
                plain.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&plain).into_owned()
}

/// An error with its place and what helps.
pub fn refused(
    path: &Path,
    cause: impl fmt::Display,
    remedy: impl fmt::Display,
) -> DataFusionError {
    let cause = cause.to_string();
    let place = pipe::shown(path).display().to_string();
    // Those of the lower crates name the file themselves.
    let text = if cause.contains(&place) { cause } else { format!("{place}: {cause}") };
    let hint = if text.contains("\nhint: ") { String::new() } else { format!("\nhint: {remedy}") };
    DataFusionError::Execution(text + &hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_how_its_file_is_compressed() {
        assert_eq!(packing_of(Path::new("a/b.csv.GZ")), Packing::Gzip);
        assert_eq!(packing_of(Path::new("b.json.zst")), Packing::Zstd);
        assert_eq!(packing_of(Path::new("b.csv")), Packing::Plain);
        assert_eq!(packing_of(Path::new("é")), Packing::Plain);
    }

    #[test]
    fn names_of_folders_are_read_as_they_were_meant() {
        let texts = ["", "a", "a/b=c %", "..", "%41", "Ω\n\u{1}\"", NULL_VALUE, "%5F", "a=b"];
        for key in texts.iter().filter(|key| !key.is_empty()) {
            for value in texts.iter().copied().map(Some).chain([None]) {
                let name = partition_name(key, value);
                assert!(!name.contains('/') && !name.starts_with('.'), "{name}");
                let (read_key, read) = partition_of(Path::new(&name)).unwrap_or_default();
                assert_eq!(
                    (read_key.as_str(), unescaped(&read).as_deref()),
                    (*key, value),
                    "{name}"
                );
            }
        }
    }
}
