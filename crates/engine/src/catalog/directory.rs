//! Which tables a folder holds.

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use datafusion::common::Result;

use super::formats::format_of;
use super::listing::{entries, is_table, table_name};
use super::partition_names::partition_of;
use super::remote::{self, Tree};

/// A table found in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundTable {
    /// The stem of its file, or the name of its folder.
    pub name: String,
    /// The file, or a folder of files of one kind.
    pub path: PathBuf,
}

/// What a search found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Sorted by path; two may have one name.
    pub tables: Vec<FoundTable>,
    /// Views: `shown.view.sql` has the statement that makes `shown`.
    pub views: Vec<FoundTable>,
    /// Files whose names say no kind that is read.
    pub unknown: Vec<PathBuf>,
    /// Folders seen: none is entered twice, whatever symbolic links say.
    seen: HashSet<(u64, u64)>,
}

/// Every table below a folder: each file of a known kind in it, and each folder below that holds such
/// files or folders of partitions (one table of all of them). Folders of folders are searched. Hidden
/// files are left out, and so are `.json` files that are no table. Nothing is opened but these. Of a
/// file: the table that it is.
///
/// The same of an address: of a folder of S3, one listing says what lies there.
///
/// # Errors
/// A folder that cannot be read.
pub fn find_tables(path: &Path) -> Result<Found> {
    let mut found = Found::default();
    if remote::is_address(path) {
        match remote::tree_of(path)? {
            Some(tree) => found.search_tree(path, &tree, true),
            None => found.add(path),
        }
        return Ok(found);
    }
    if std::fs::metadata(path)?.is_dir() {
        found.search(path, true)?;
    } else {
        found.add(path);
    }
    Ok(found)
}

impl Found {
    fn add(&mut self, path: &Path) {
        self.tables.push(FoundTable { name: table_name(path), path: path.to_path_buf() });
    }

    /// Files of a folder: one table, unless it is the one that was named.
    fn add_folder(
        &mut self,
        folder: &Path,
        is_root: bool,
        has_partitions: bool,
        files: &[PathBuf],
    ) {
        if has_partitions || (!is_root && !files.is_empty()) {
            self.add(folder);
        }
        if is_root && !has_partitions {
            files.iter().for_each(|file| self.add(file));
        }
    }

    fn search_tree(&mut self, folder: &Path, tree: &Tree, is_root: bool) {
        let has_partitions =
            tree.folders.keys().any(|name| partition_of(Path::new(name)).is_some());
        let mut files = Vec::new();
        for entry in tree.files.values() {
            match format_of(&entry.path) {
                Some((format, _)) if format.is_table(&entry.file.source()) => {
                    files.push(entry.path.clone())
                }
                Some(_) => {}
                None => self.unknown.push(entry.path.clone()),
            }
        }
        self.add_folder(folder, is_root, has_partitions, &files);
        for (name, below) in &tree.folders {
            if partition_of(Path::new(name)).is_none() {
                let folder = folder.to_string_lossy();
                let path = PathBuf::from(format!("{}/{name}/", folder.trim_end_matches('/')));
                self.search_tree(&path, below, false);
            }
        }
    }

    fn search(&mut self, folder: &Path, is_root: bool) -> std::io::Result<()> {
        let metadata = std::fs::metadata(folder)?;
        if !self.seen.insert((metadata.dev(), metadata.ino())) {
            return Ok(());
        }
        let (mut files, mut folders, mut has_partitions) = (Vec::new(), Vec::new(), false);
        for path in entries(folder)? {
            let format = format_of(&path).map(|(format, _)| format);
            match (std::fs::metadata(&path), format) {
                (Ok(metadata), _) if metadata.is_dir() && partition_of(&path).is_some() => {
                    has_partitions = true;
                }
                (Ok(metadata), _) if metadata.is_dir() => folders.push(path),
                (Ok(metadata), Some(format)) => {
                    if is_table(format, &path, &metadata) {
                        files.push(path);
                    }
                }
                // What cannot be examined is the error of that table.
                (Err(_), Some(_)) => files.push(path),
                (_, None) => match view_name(&path) {
                    Some(name) => self.views.push(FoundTable { name, path }),
                    None => self.unknown.push(path),
                },
            }
        }
        self.add_folder(folder, is_root, has_partitions, &files);
        folders.iter().try_for_each(|folder| self.search(folder, false))
    }
}

/// How files of views end.
const VIEW_SUFFIX: &str = ".view.sql";

/// The file of a view in a folder.
pub(crate) fn view_file(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}{VIEW_SUFFIX}"))
}

/// The view that a file is.
fn view_name(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?.strip_suffix(VIEW_SUFFIX)?;
    (!name.is_empty()).then(|| name.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn touch(folder: &Path, path: &str) {
        let path = folder.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, b"").unwrap();
    }

    fn names(folder: &Path) -> Vec<String> {
        find_tables(folder).unwrap().tables.into_iter().map(|t| t.name).collect()
    }

    #[test]
    fn files_and_folders_of_files_are_tables() {
        let dir = tempfile::tempdir().unwrap();
        for path in [
            "date.arrow",
            "x y[1].csv.gz",
            "notes.txt",
            "shown.view.sql",
            ".view.sql",
            ".hidden.arrow",
            "lineorder/0.arrow",
            "lineorder/1.arrow",
            "lineorder/old/1.arrow",
            "deep/er/part.parquet",
            "sales/year=2024/month=1/a.parquet",
        ] {
            touch(dir.path(), path);
        }
        std::fs::write(dir.path().join("settings.json"), "{\n\"a\": 1\n}\n").unwrap();
        std::fs::write(dir.path().join("log.json"), "{\"a\": 1}\n{\"a\": 2}\n").unwrap();
        std::fs::write(dir.path().join("list.json"), "[\n{\"a\": 1},\n{\"a\": 2}]\n").unwrap();
        let expected = ["date", "list", "log", "x y[1]", "er", "lineorder", "old", "sales"];
        assert_eq!(names(dir.path()), expected);
        let found = find_tables(dir.path()).unwrap();
        assert_eq!(found.unknown, [dir.path().join("notes.txt")]);
        let [view] = found.views.as_slice() else { panic!("{:?}", found.views) };
        assert_eq!((view.name.as_str(), &view.path), ("shown", &dir.path().join("shown.view.sql")));
        assert_eq!(names(&dir.path().join("sales")), ["sales"]);
        assert_eq!(names(&dir.path().join("x y[1].csv.gz")), ["x y[1]"]);
    }

    #[test]
    fn a_loop_of_links_is_gone_round_once() {
        let dir = tempfile::tempdir().unwrap();
        touch(dir.path(), "a/t/1.csv");
        for link in ["a/up", "a/t/up", "a/again"] {
            std::os::unix::fs::symlink(dir.path(), dir.path().join(link)).unwrap();
        }
        assert_eq!(names(dir.path()), ["t"]);
    }
}
