//! Which tables a folder holds.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// How a table's files are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableKind {
    /// Arrow IPC files, streamed by pipelines.
    Arrow,
    /// Parquet, through DataFusion.
    Parquet,
    /// CSV with a header, through DataFusion.
    Csv,
    /// JSON lines, through DataFusion.
    Json,
}

/// A table found in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundTable {
    /// The stem of its file or folder.
    pub name: String,
    /// How it is read.
    pub kind: TableKind,
    /// The file, or a folder of files of one kind.
    pub path: PathBuf,
}

fn kind_of(path: &Path) -> Option<TableKind> {
    match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
        "arrow" | "feather" => Some(TableKind::Arrow),
        "parquet" => Some(TableKind::Parquet),
        "csv" => Some(TableKind::Csv),
        "ndjson" | "jsonl" => Some(TableKind::Json),
        "json" if is_json_lines(path) => Some(TableKind::Json),
        _ => None,
    }
}

/// Whether the first line of a file is a whole JSON object. Settings and manifests, spread
/// over lines, are no tables.
fn is_json_lines(path: &Path) -> bool {
    const FIRST_LINE_BYTES_MAX: u64 = 1 << 20;
    let Ok(file) = File::open(path) else { return false };
    let mut line = String::new();
    let read = BufReader::new(file.take(FIRST_LINE_BYTES_MAX)).read_line(&mut line);
    let line = line.trim();
    read.is_ok() && line.starts_with('{') && line.ends_with('}')
}

fn stem(path: &Path) -> Option<String> {
    path.file_stem().and_then(OsStr::to_str).map(ToString::to_string)
}

fn entries(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut paths = std::fs::read_dir(folder)?
        .map(|entry| entry.map(|e| e.path()))
        .collect::<std::io::Result<Vec<_>>>()?;
    paths.retain(|p| !p.file_name().is_some_and(|n| n.to_string_lossy().starts_with('.')));
    paths.sort();
    Ok(paths)
}

/// Every table below a folder: each file of a known kind, and each folder that holds such
/// files (one table of all of them). Folders of folders are searched. Hidden files are left
/// out, and so are `.json` files whose first line is not a whole object. Sorted by path; two
/// tables of one name are both returned, the caller decides.
///
/// # Errors
/// A folder that cannot be read.
pub fn find_tables(folder: &Path) -> std::io::Result<Vec<FoundTable>> {
    let mut found = Vec::new();
    for path in entries(folder)? {
        if path.is_dir() {
            found.extend(tables_of_folder(&path)?);
        } else if let (Some(kind), Some(name)) = (kind_of(&path), stem(&path)) {
            found.push(FoundTable { name, kind, path });
        }
    }
    Ok(found)
}

fn tables_of_folder(folder: &Path) -> std::io::Result<Vec<FoundTable>> {
    let files = entries(folder)?;
    let kind = files.iter().filter(|p| p.is_file()).find_map(|p| kind_of(p));
    match (kind, folder.file_name().and_then(OsStr::to_str)) {
        (Some(kind), Some(name)) => {
            Ok(vec![FoundTable { name: name.to_string(), kind, path: folder.to_path_buf() }])
        }
        _ => find_tables(folder),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn files_and_folders_of_files_are_tables() {
        let dir = tempfile::tempdir().unwrap();
        let touch = |path: &str| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, b"").unwrap();
        };
        for path in [
            "date.arrow",
            "x.csv",
            "notes.txt",
            ".hidden.arrow",
            "lineorder/0.arrow",
            "lineorder/1.arrow",
            "deep/er/part.parquet",
        ] {
            touch(path);
        }
        std::fs::write(dir.path().join("settings.json"), "{\n\"a\": 1\n}\n").unwrap();
        std::fs::write(dir.path().join("log.json"), "{\"a\": 1}\n{\"a\": 2}\n").unwrap();
        let found = find_tables(dir.path()).unwrap();
        let names: Vec<_> = found.iter().map(|t| (t.name.as_str(), t.kind)).collect();
        assert_eq!(
            names,
            [
                ("date", TableKind::Arrow),
                ("er", TableKind::Parquet),
                ("lineorder", TableKind::Arrow),
                ("log", TableKind::Json),
                ("x", TableKind::Csv),
            ]
        );
    }
}
